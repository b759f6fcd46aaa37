package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// agreeing is the configuration of TestPlanAgreesWithARealRun.
const agreeing = `upstreams:
  pay:
    url: %s
    share_by: query("tenant")
    limits:
      - {name: app,      calls: 400, window: 2s}
      - {name: refund,   when: query("method") == "refund", calls: 140, window: 2s}
      - {name: merchant, per_key: query("merchant"), calls: 60, window: 2s}
`

// An offered call of the load.
type offered struct {
	at                       time.Duration
	method, merchant, tenant string
}

// TestPlanAgreesWithARealRun plays 2,000 calls, and sends them: makespan and p99
// wait agree within 2%. The round trip that the plan is given is the one that the
// run had, on average. A busy machine may spoil one run, so it has three.
func TestPlanAgreesWithARealRun(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) }))
	defer upstream.Close()
	dir := t.TempDir()
	yaml, csv := filepath.Join(dir, "t.yaml"), filepath.Join(dir, "load.csv")
	if err := os.WriteFile(yaml, fmt.Appendf(nil, agreeing, upstream.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	load := offeredLoad()
	lines := []string{"at,query.method,query.merchant,query.tenant"}
	for _, o := range load {
		lines = append(lines, fmt.Sprintf("%.6f,%s,%s,%s", o.at.Seconds(), o.method, o.merchant, o.tenant))
	}
	if err := os.WriteFile(csv, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var apart []string
	for range 3 {
		real := sendLoad(t, yaml, load)
		out, err := exec.CommandContext(t.Context(), path, "plan", "-c", yaml, "--load", csv, "--rtt", real.trip.String(), "-o", "json").Output()
		var told struct{ Reports []preview.Report }
		if err != nil || json.Unmarshal(out, &told) != nil {
			t.Fatalf("plan: %v\n%s", err, out)
		}
		r := told.Reports[0]
		if r.Sent != len(load) || r.Over != 0 {
			t.Fatalf("the plan sends %d of %d calls, %d of them over", r.Sent, len(load), r.Over)
		}
		said := fmt.Sprintf("makespan %v, planned %v; p99 wait %v, planned %v; round trip %v",
			real.makespan, r.Makespan.Duration(), real.p99, r.Wait.P99.Duration(), real.trip)
		t.Log(said)
		if near(real.makespan, r.Makespan.Duration()) && near(real.p99, r.Wait.P99.Duration()) {
			return
		}
		apart = append(apart, said)
	}
	t.Errorf("more than 2%% apart, three times:\n%s", strings.Join(apart, "\n"))
}

func near(a, b time.Duration) bool { return math.Abs(float64(a-b)) <= 0.02*float64(b) }

// offeredLoad is 2,000 calls within 2 s.
func offeredLoad() []offered {
	r := rand.New(rand.NewPCG(7, 7))
	zipf := rand.NewZipf(r, 1.2, 4, 11)
	var load []offered
	at := time.Duration(0)
	for range 2000 {
		at += time.Duration(r.ExpFloat64() * float64(time.Millisecond)).Round(time.Microsecond)
		o := offered{at, "query", fmt.Sprint("m", zipf.Uint64()), fmt.Sprint("t", r.IntN(3))}
		if r.IntN(4) == 0 {
			o.method = "refund"
		}
		load = append(load, o)
	}
	return load
}

type realRun struct{ makespan, p99, trip time.Duration }

// sendLoad sends the load through a scheduler of its own.
func sendLoad(t *testing.T, yaml string, load []offered) realRun {
	t.Helper()
	c, err := config.Load(yaml, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Scheduler.Log = slog.New(slog.DiscardHandler)
	s, err := scheduler.New(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begin := time.Now()
	var ids []string
	for _, o := range load {
		time.Sleep(time.Until(begin.Add(o.at)))
		call, err := s.Submit(t.Context(), scheduler.Request{
			Upstream: "pay", Method: "POST", Target: fmt.Sprintf("/?method=%s&merchant=%s&tenant=%s", o.method, o.merchant, o.tenant),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, call.ID)
	}
	var waits []time.Duration
	var end time.Time
	var trips time.Duration
	for _, id := range ids {
		call, err := s.Wait(t.Context(), id)
		if err != nil || call.State != scheduler.Done {
			t.Fatal(call, err)
		}
		last := call.Last()
		waits = append(waits, last.SentAt.Sub(call.AcceptedAt))
		trips += last.EndedAt.Sub(last.SentAt)
		if last.EndedAt.After(end) {
			end = last.EndedAt
		}
	}
	slices.Sort(waits)
	return realRun{end.Sub(begin) - load[0].at, waits[len(waits)*99/100-1], trips / time.Duration(len(ids))}
}

// example matches the first command of a document, and its output there.
var example = regexp.MustCompile("(?s)```sh\ncd docs\nthrottler (.*?)\n```\n\n```\n(.*?)```")

// TestPreviewExample runs the command of docs/preview.md. UPDATE=1 writes its output,
// and the picture, into docs.
func TestPreviewExample(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(docs, "preview.md")
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	at := example.FindSubmatchIndex(text)
	if at == nil {
		t.Fatal("there is no example in docs/preview.md")
	}
	args := words(string(text[at[2]:at[3]]))
	update := os.Getenv("UPDATE") != ""
	picture := filepath.Join(docs, args[len(args)-1])
	if !update {
		args[len(args)-1] = filepath.Join(t.TempDir(), "preview.svg")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = docs
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := string(text[at[4]:at[5]])
	if update {
		if err := os.WriteFile(doc, []byte(strings.Replace(string(text), want, string(out), 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(out) != want {
		t.Errorf("docs/preview.md says\n%s\nand the command prints\n%s\nUPDATE=1 go test ./cmd/throttler -run PreviewExample writes it anew", want, out)
	}
	kept, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if drawn, err := os.ReadFile(args[len(args)-1]); err != nil || !bytes.Equal(drawn, kept) {
		t.Errorf("the command draws another picture than %s, %v; UPDATE=1 writes it anew", picture, err)
	}
}

// words splits a command line with single quotes and line ends.
func words(line string) []string {
	var all []string
	for _, w := range regexp.MustCompile(`'[^']*'|[^\s\\]+`).FindAllString(line, -1) {
		all = append(all, strings.Trim(w, "'"))
	}
	return all
}
