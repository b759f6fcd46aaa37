package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// TestMain lets the test binary be a keeper or a proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "-as" {
		if err := serveAs(os.Args[2], os.Args[4:]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestParseStat(t *testing.T) {
	const stat = "4242 (a) b) S 1 77 4242 0 -1 4194304 1 2 3 4 150 25 6 7 20 0 9 0 1 2 3"
	group, cpu, err := parseStat(stat)
	if err != nil || group != 77 || cpu != 1750*ms {
		t.Errorf("group %d, CPU %v, %v; want 77 and 1.75s", group, cpu, err)
	}
	for _, text := range []string{"", "1 (x) S 1 2", "1 (x) S 1 a 3 4 5 6 7 8 9 10 11 12", "1 (x) S 1 2 3 4 5 6 7 8 9 10 b 12"} {
		if _, _, err := parseStat(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestParseResident(t *testing.T) {
	if n, err := parseResident("Name:\tx\nVmRSS:\t    1024 kB\nThreads:\t1\n"); err != nil || n != 1<<20 {
		t.Errorf("%d, %v; want 1 MiB", n, err)
	}
	if _, err := parseResident("Name:\tx\n"); err == nil {
		t.Error("no error without a figure")
	}
}

func TestParseMetrics(t *testing.T) {
	const text = "# HELP a Of it.\na 1.5e+06\n\nb{upstream=\"x y\"} 3\n"
	want := map[string]float64{"a": 1.5e6, "b": 3}
	if got, err := parseMetrics(strings.NewReader(text)); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, text := range []string{"alone\n", "a b\n"} {
		if _, err := parseMetrics(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestParseHead(t *testing.T) {
	status, length, err := parseHead([]byte("HTTP/1.1 202 Accepted\r\nX: 1\r\ncontent-length:  7"))
	if err != nil || status != 202 || length != 7 {
		t.Errorf("status %d, length %d, %v; want 202 and 7", status, length, err)
	}
	for _, head := range []string{
		"", "HTTP/1.1", "HTTP/1.0 200 OK\r\nContent-Length: 1", "HTTP/1.1 2x0 OK\r\nContent-Length: 1",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "HTTP/1.1 200 OK\r\nContent-Length: x",
	} {
		if _, _, err := parseHead([]byte(head)); err == nil {
			t.Errorf("%q: no error", head)
		}
	}
}

func TestNumbers(t *testing.T) {
	var n []int
	if err := numbers("-n", "1, 16", 1, &n); err != nil || !slices.Equal(n, []int{1, 16}) {
		t.Errorf("%v, %v", n, err)
	}
	for _, list := range []string{"", "0", "1,x"} {
		if err := numbers("-n", list, 1, &n); err == nil {
			t.Errorf("%q: no error", list)
		}
	}
}

func TestRequestText(t *testing.T) {
	text, digits := request{target: "/x", body: []byte("abc")}.text("127.0.0.1:1")
	if got := string(text[digits : digits+4]); got != "0000" {
		t.Errorf("the account is %q", got)
	}
	if !bytes.HasSuffix(text, []byte("Content-Length: 3\r\n\r\nabc")) {
		t.Errorf("the request is %q", text)
	}
}

// TestCell: added latency is that of the same round.
func TestCell(t *testing.T) {
	rounds := [][]figure{
		{{p50: 1 * ms, p99: 10 * ms}, {p50: 3 * ms, p99: 11 * ms, rate: 1, cpu: 5}},
		{{p50: 9 * ms, p99: 90 * ms}, {p50: 10 * ms, p99: 95 * ms, rate: 3, cpu: 4}},
		{{p50: 2 * ms, p99: 20 * ms}, {p50: 6 * ms, p99: 50 * ms, rate: 2, cpu: 9}},
	}
	c := newCell(1, 2, []string{"p"}, rounds)
	got := c.rows[0]
	want := row{proxy: "p", figure: figure{cpu: 5, rate: 2, p50: 6 * ms, p99: 50 * ms}, added50: 2 * ms, added99: 5 * ms}
	if got != want {
		t.Errorf("row %+v, want %+v", got, want)
	}
	if c.straight.p50 != 2*ms {
		t.Errorf("the upstream's median is %v", c.straight.p50)
	}
}

func TestTargets(t *testing.T) {
	one := cell{body: typical, connections: 1, rows: []row{
		{proxy: ours, added50: 90, added99: 20}, {proxy: nginx, added50: 30}, {proxy: reverse, added99: 100},
	}}
	many := cell{body: typical, connections: 64, rows: []row{
		{proxy: ours, figure: figure{cpu: 90, rate: 50, allocated: 82}}, {proxy: nginx, figure: figure{rate: 100}},
		{proxy: reverse, figure: figure{cpu: 100}}, {proxy: bare, figure: figure{allocated: 72}},
	}}
	r := results{cells: []cell{{body: 0, connections: 1}, one, many}, memories: []memory{{name: waitingClient, bytes: 6 << 10}, {name: submittedCall, bytes: 601}}}
	var lines []string
	for _, line := range r.targets() {
		cells := strings.Split(line.String(), " | ")
		lines = append(lines, strings.Join([]string{cells[1], strings.TrimSuffix(cells[4], " |")}, ": "))
	}
	want := []string{"0.90: held", "0.50: held", "3.00: NOT HELD", "0.20: held, tried for too", "10.00: held", "6.00 KiB: held, tried for too", "601.00 B: NOT HELD"}
	if !slices.Equal(lines, want) {
		t.Errorf("targets %q, want %q", lines, want)
	}
	one.rows[0].added50 = -1
	if got := (results{cells: []cell{one}}).targets()[0]; got.met(got.must) {
		t.Errorf("a ratio of noise is %v, and held", got.value)
	}
	if got := (results{cells: []cell{one}}).targets(); len(got) != 2 {
		t.Errorf("%d targets of one cell, want those that it has", len(got))
	}
}

func TestKept(t *testing.T) {
	for old, want := range map[string]string{
		"":                    "",
		"# Page\n\nfigures\n": "",
		"# Page\n" + handWritten + "## Profile\n": "## Profile\n",
		"# Page\n\n## Profile\ntext\n":            "\n## Profile\ntext\n",
	} {
		if got := kept(old); got != want {
			t.Errorf("of %q %q is kept, want %q", old, got, want)
		}
	}
	page := results{}.page(&plan{rounds: 5, time: time.Second}) + "## Profile\n"
	if got := kept(page); got != "## Profile\n" {
		t.Errorf("of a page %q is kept", got)
	}
}

// TestMeasure drives a load through a real proxy, in processes of their own.
func TestMeasure(t *testing.T) {
	upstream, err := openPart("upstream")("the upstream", "")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.process.stop()
	for _, part := range []string{"reverse", "fasthttp", "bare"} {
		h, err := openPart(part)(part, upstream.addr)
		if err != nil {
			t.Fatal(err)
		}
		f, err := measure(h, 2, 64<<10, 50*ms)
		if err != nil || f.rate <= 0 || f.p99 < f.p50 || f.p50 <= 0 || f.allocated < 0 {
			t.Errorf("%s: %+v, %v", part, f, err)
		}
		if err := h.process.stop(); err != nil {
			t.Error(err)
		}
		if _, _, err := usage(h.process.group); err == nil {
			t.Errorf("%s: it runs on", part)
		}
	}
}

func TestFind(t *testing.T) {
	if _, err := find("no-such-program"); err == nil || !strings.Contains(err.Error(), "make bench-peers") {
		t.Errorf("the error is %v, and should name the target", err)
	}
}

// TestStart: a program that ends at once is an error with its output, and its directory goes.
func TestStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, err := start("sh", "file", "text", "/bin/sh", "-c", "cat file; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.until(func() bool { return false }); err == nil || !strings.Contains(err.Error(), "ended at its start: text") {
		t.Errorf("the error is %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "bench-hop-*")); left != nil {
		t.Errorf("left: %q", left)
	}
}
