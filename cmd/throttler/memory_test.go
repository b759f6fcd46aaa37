//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Memory that an attack may take at most, with the defaults. The README promises it.
const (
	mostMemory = 256 << 20
	mostListed = 150 << 20
)

// memory returns a figure of the process in bytes: VmRSS, or VmHWM, its peak.
func (p *process) memory(t *testing.T, figure string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(figure + `:\s+(\d+) kB`).FindSubmatch(text)
	if line == nil {
		t.Fatalf("no %s in\n%s", figure, text)
	}
	kib, _ := strconv.Atoi(string(line[1]))
	return kib << 10
}

// holds checks the peak of the process since it began.
func (p *process) holds(t *testing.T, most int) {
	t.Helper()
	peak := p.memory(t, "VmHWM")
	t.Logf("peak %d MiB, now %d MiB; at most %d MiB", peak>>20, p.memory(t, "VmRSS")>>20, most>>20)
	if peak > most {
		t.Errorf("the process had %d MiB, at most %d MiB may be", peak>>20, most>>20)
	}
}

// post sends a body n times at once and counts the statuses; 0 is a broken connection.
func post(t *testing.T, url string, n int, body []byte) map[int]int {
	t.Helper()
	statuses := make(map[int]int)
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			status := 0
			resp, err := http.Post(url, "application/json", bytes.NewReader(body))
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				status = resp.StatusCode
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	clients.Wait()
	return statuses
}

// TestMemoryUnderDeepJSON: bodies and answers that are nested too deep are not read.
func TestMemoryUnderDeepJSON(t *testing.T) {
	deep := bytes.Repeat([]byte("["), 1<<20)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	for range 9 {
		zip.Write(deep)
	}
	zip.Close()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/deep":
			w.Write(deep)
		case "/packed":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(packed.Bytes())
		default:
			io.WriteString(w, `{"code":"SUCCESS"}`)
		}
	}))
	p := start(t, url, "preset: wechatpay-v3", "limits:", `  - {name: order, per_key: 'path startsWith "/v3" ? json("out_trade_no") : "none"', calls: 100, window: 1s}`)
	if got := post(t, p.data+"/v3/pay/transactions/jsapi", 16, deep); got[400] != 16 {
		t.Errorf("16 bodies of 1 MiB: statuses %v, want 400", got)
	}
	post(t, p.data+"/deep", 16, []byte("{}"))
	post(t, p.data+"/packed", 16, []byte("{}"))
	p.holds(t, mostMemory)
}

// TestMemoryUnderBodies: bodies that are announced, half sent, or sent by more clients
// than there is room for.
func TestMemoryUnderBodies(t *testing.T) {
	p := start(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") })))
	const head = "POST / HTTP/1.1\r\nHost: localhost\r\n"
	open(t, p.data, 300, head+"Content-Length: 1048576\r\n\r\n")
	open(t, p.data, 300, head+"Transfer-Encoding: chunked\r\n\r\n")
	open(t, p.data, 3000, "GET / HTTP/1.1\r\nHost: local")
	if got := post(t, p.data, 16, bytes.Repeat([]byte("x"), 1<<20)); got[200] != 16 {
		t.Errorf("bodies beside those that were announced only: statuses %v, want 200", got)
	}
	almost := strings.Repeat("x", 1<<20-1)
	var sockets sync.WaitGroup
	for range 8 {
		sockets.Go(func() { open(t, p.data, 25, head+"Content-Length: 1048576\r\n\r\n"+almost) })
	}
	sockets.Wait()
	if got := post(t, p.data, 16, []byte("small")); got[200] != 16 {
		t.Errorf("small calls beside half bodies: statuses %v, want 200", got)
	}
	p.holds(t, mostMemory)
}

// TestMemoryUnderWaitingCalls: as many calls wait as there is room for.
func TestMemoryUnderWaitingCalls(t *testing.T) {
	answer := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer }))
	p := start(t, url, "max_wait: 5m", "limits:", "  - {name: one, concurrency: 1}")
	statuses := make(chan map[int]int)
	go func() { statuses <- post(t, p.data, 200, bytes.Repeat([]byte("x"), 1<<20)) }()
	p.until(t, "full", func() bool {
		return strings.Contains(p.body("/metrics"), `throttler_calls_refused_total{reason="full",upstream="alipay"} 1`)
	})
	close(answer)
	if got := <-statuses; got[200] < 50 || got[200]+got[503]+got[0] != 200 {
		t.Errorf("statuses %v: at least 50 of 1 MiB fit into 64 MiB, and the others are refused", got)
	}
	p.holds(t, mostMemory)
}

// TestMemoryUnderSubmissions: the largest submissions that the admin API takes.
func TestMemoryUnderSubmissions(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := start(t, url, "limits:", "  - {name: none, calls: 1, window: 1h}")
	const most = 8<<20 - 1000
	for _, body := range []string{strings.Repeat("x", most), strings.Repeat(`\u0001`, most/6), strings.Repeat("[", most)} {
		got := post(t, p.admin+"/v1/calls", 16, []byte(`{"upstream":"alipay","method":"POST","path":"/","body":"`+body+`"}`))
		if got[413] == 0 || got[413]+got[503]+got[0] != 16 {
			t.Errorf("statuses %v: none fits into the upstream's max_body", got)
		}
	}
	post(t, p.admin+"/v1/calls", 16, bytes.Repeat([]byte("["), most))
	p.holds(t, mostMemory)
}

// TestMemoryUnderUnknownCalls: 700 calls of unknown outcome, with answers of 100 KB, wait
// for decisions on disk. They are counted exactly, also after a restart.
func TestMemoryUnderUnknownCalls(t *testing.T) {
	const calls, decided, answer = 700, 10, 100_000
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, strings.Repeat("x", answer))
	}))
	file := filepath.Join(t.TempDir(), "throttler.db")
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams: {alipay: {listen: '127.0.0.1:0', url: '%s', concurrency: 4, breaker: {unknown: 0}}}\n", file, url)
	p := launch(t, yaml)
	for range calls / 20 {
		if got := post(t, p.admin+"/v1/calls", 20, []byte(`{"upstream":"alipay","method":"POST","path":"/"}`)); got[202] != 20 {
			t.Fatalf("20 submissions: %v", got)
		}
	}
	unknown := func(n int) {
		t.Helper()
		metric := fmt.Sprintf("throttler_calls_unknown{upstream=\"alipay\"} %d\n", n)
		p.until(t, metric, func() bool { return strings.Contains(p.body("/metrics"), metric) })
	}
	unknown(calls)
	p.holds(t, mostListed)
	var page struct{ Calls []struct{ ID string } }
	if err := json.Unmarshal([]byte(p.body(fmt.Sprintf("/v1/calls?state=unknown&page_size=%d", decided))), &page); err != nil || len(page.Calls) != decided {
		t.Fatalf("%d calls, %v", len(page.Calls), err)
	}
	for _, c := range page.Calls {
		if got := post(t, p.admin+"/v1/calls/"+c.ID+"/resolve", 1, []byte(`{"outcome":"done","attempt":1,"reason":"paid"}`)); got[200] != 1 {
			t.Errorf("a decision: %v", got)
		}
	}
	unknown(calls - decided)
	p.cmd.Process.Signal(os.Interrupt)
	p.exit(t)
	p = launch(t, yaml)
	unknown(calls - decided)
}

// TestMemoryUnderLists: 1,000 stored answers of 1 MB, listed five times at once. With -short a
// third of them are stored, which is more than the process may take, too.
func TestMemoryUnderLists(t *testing.T) {
	calls := 1000
	if testing.Short() {
		calls /= 3
	}
	answer := bytes.Repeat([]byte("0123456789"), 100_000)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(answer) }))
	file := filepath.Join(t.TempDir(), "throttler.db")
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams: {alipay: {listen: '127.0.0.1:0', url: '%s', concurrency: 4}}\n", file, url)
	p := launch(t, yaml)
	for range calls {
		if got := post(t, p.admin+"/v1/calls", 1, []byte(`{"upstream":"alipay","method":"POST","path":"/"}`)); got[202] != 1 {
			t.Fatalf("a submission: %v", got)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(p.body("/metrics"), fmt.Sprintf(`throttler_calls_ended_total{state="done",upstream="alipay"} %d`, calls)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the calls did not end")
		}
	}
	p.holds(t, mostMemory)
	p.cmd.Process.Signal(os.Interrupt)
	p.exit(t)
	p = launch(t, yaml) // with a peak of its own
	var lists sync.WaitGroup
	for range 5 {
		lists.Go(func() {
			var page struct{ Calls []json.RawMessage }
			if err := json.Unmarshal([]byte(p.body("/v1/calls?page_size=1000")), &page); err != nil || len(page.Calls) != calls {
				t.Errorf("a list has %d calls: %v", len(page.Calls), err)
			}
		})
	}
	lists.Wait()
	p.holds(t, mostListed)
}
