package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const asLines = "Content-Type: " + ndjson

// batch submits a batch, and returns the results of its lines.
func (r *rig) batch(t *testing.T, body string, header ...string) (results []api.BatchResult) {
	t.Helper()
	resp, answer := sendLines(t, r.admin.URL, body, header...)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != ndjson {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, answer)
	}
	for line := range strings.Lines(answer) {
		var result api.BatchResult
		if err := json.Unmarshal([]byte(line), &result); err != nil || (result.Call == nil) == (result.Problem == nil) {
			t.Fatalf("%v: %s", err, line)
		}
		results = append(results, result)
	}
	return results
}

func sendLines(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/calls/batch", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", ndjson)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return do(t, req)
}

// waits is an upstream whose calls wait for long.
func waits() scheduler.Upstream {
	return scheduler.Upstream{Durable: "true", Config: upstream.Config{URL: "http://127.0.0.1:1"}, Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}}}
}

func line(key string) string {
	return fmt.Sprintf(`{"upstream":"pay","method":"POST","target":"/pay","body":"canary","not_before":%q,"idempotency_key":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), key)
}

// TestBatch: each line has its result in order, and a bad one stops no other.
func TestBatch(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	k1 := line("k1")
	before := r.submit(t, k1)
	results := r.batch(t, strings.Join([]string{
		line("k2"), `{"upstream":"pay","target":"/pay"}`, "", `{"upstream":"pay"`, "  " + line("k3") + "\r", `{"upstream":"none","method":"GET","target":"/"}`,
		k1, `[]`, `{"upstrem":"canary"}`, strings.Replace(line("k1"), "/pay", "/other", 1), line("k4"),
	}, "\n"))
	for i, want := range []struct {
		line           int
		key, reason, p string // the key of the call, or the reason and the pointer of the problem
		status         int
	}{
		{1, "k2", "", "", 0}, {2, "", "bad_request", "/method", 400}, {4, "", "bad_request", "", 400}, {5, "k3", "", "", 0}, {6, "", "not_found", "", 404},
		{7, "k1", "", "", 0}, {8, "", "bad_request", "", 400}, {9, "", "bad_request", "/upstrem", 400}, {10, "", "key_reused", "", 422}, {11, "k4", "", "", 0},
	} {
		got := results[i]
		switch {
		case got.Line != want.line:
			t.Errorf("result %d is of line %d, want %d", i, got.Line, want.line)
		case want.key != "":
			if got.Call == nil || got.Call.IdempotencyKey != want.key || got.Call.State != api.Waiting || got.Call.Response != nil || !got.Call.Durable || got.Replayed != (want.key == "k1") {
				t.Errorf("line %d: %+v", want.line, got)
			}
		case got.Problem == nil || got.Problem.Status != want.status || got.Problem.Reason != want.reason || got.Problem.Type != problemTypes+want.reason || got.Problem.Instance != "/v1/calls/batch":
			t.Errorf("line %d: %+v", want.line, got)
		case want.p != "" && (len(got.Problem.Errors) == 0 || got.Problem.Errors[0].Pointer != want.p):
			t.Errorf("line %d points at %+v, want %s", want.line, got.Problem.Errors, want.p)
		}
	}
	if len(results) != 10 || results[5].Call.ID != before.ID {
		t.Errorf("%d results; the replayed call is %+v, want %s", len(results), results[5].Call, before.ID)
	}
	if calls := read[api.Calls](t, r.admin.URL+"/v1/calls").Calls; len(calls) != 4 {
		t.Errorf("%d calls were accepted, want 4", len(calls))
	}
	if n := len(read[api.Refusals](t, r.admin.URL+"/v1/refusals").Refusals); n != 6 {
		t.Errorf("%d refusals are kept, want 6", n)
	}
	if strings.Contains(r.logs.String(), "canary") {
		t.Errorf("the log has a body:\n%s", r.logs)
	}
}

// TestBatchIsRefusedAsAWhole: nothing of a body that is no batch is accepted.
func TestBatchIsRefusedAsAWhole(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	good := line("k")
	for name, tt := range map[string]struct {
		body, header string
		status       int
		has          string
	}{
		"JSON":           {good, "Content-Type: application/json", 415, ndjson},
		"a form":         {good, "Content-Type: application/x-www-form-urlencoded", 415, ndjson},
		"one key":        {good, "Idempotency-Key: k", 400, "idempotency_key"},
		"nothing":        {"", asLines, 400, "empty"},
		"blank lines":    {"\n \r\n\n", asLines, 400, "empty"},
		"an array":       {"[" + good + "]", asLines, 400, "no NDJSON"},
		"several lines":  {"{\n\"upstream\":\n\"pay\"\n}", asLines, 400, "no NDJSON"},
		"CSV":            {"upstream,method\npay,GET", asLines, 400, "no NDJSON"},
		"too many lines": {strings.Repeat(good+"\n", maxBatchLines+1), asLines, 413, "1001 lines, at most 1000"},
		"too large":      {good + strings.Repeat(" ", maxBatchBytes), asLines, 413, "16777216"},
	} {
		resp, body := sendLines(t, r.admin.URL, tt.body, tt.header)
		if resp.StatusCode != tt.status || !strings.Contains(body, tt.has) || strings.Contains(body, "canary") || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d with %q", name, resp.StatusCode, body, tt.status, tt.has)
		}
	}
	if calls := read[api.Calls](t, r.admin.URL+"/v1/calls").Calls; len(calls) > 0 {
		t.Errorf("%d calls were accepted", len(calls))
	}
}

// TestBatchIsDurable: a whole batch is accepted, and its repeat has the same calls.
func TestBatchIsDurable(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	var body strings.Builder
	for n := range maxBatchLines {
		body.WriteString(line(fmt.Sprint(n)) + "\n")
	}
	first, again := r.batch(t, body.String()), r.batch(t, body.String())
	seen := make(map[string]bool)
	for i, result := range first {
		call := result.Call
		if call == nil || result.Replayed || result.Line != i+1 || call.IdempotencyKey != fmt.Sprint(i) || !call.Durable || seen[call.ID] {
			t.Fatalf("line %d: %+v", i+1, result)
		}
		seen[call.ID] = true
		if repeat := again[i]; repeat.Call == nil || !repeat.Replayed || repeat.Call.ID != call.ID {
			t.Fatalf("the repeat of line %d: %+v", i+1, repeat)
		}
	}
	if got := r.upstream(t).Waiting; got != maxBatchLines {
		t.Errorf("%d calls wait, want %d", got, maxBatchLines)
	}
}

// TestBatchOfOneKey: of lines with one key, one is accepted, and the others have its call.
func TestBatchOfOneKey(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	accepted, id := 0, ""
	for _, result := range r.batch(t, strings.Repeat(line("k")+"\n", 100)) {
		if !result.Replayed {
			accepted++
		}
		if id != "" && result.Call.ID != id {
			t.Errorf("line %d is call %s, want %s", result.Line, result.Call.ID, id)
		}
		id = result.Call.ID
	}
	if accepted != 1 {
		t.Errorf("%d lines were accepted, want 1", accepted)
	}
}

// TestBatchesShareTheLines: batches that come at once are all taken, though more lines come than are
// submitted at a time.
func TestBatchesShareTheLines(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	const batches, lines = 5, 500
	counts := make(chan int, batches)
	for b := range batches {
		go func() {
			var body strings.Builder
			for n := range lines {
				body.WriteString(line(fmt.Sprint(b, n)) + "\n")
			}
			resp, answer := sendLines(t, r.admin.URL, body.String())
			if resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, answer)
			}
			counts <- strings.Count(answer, `"call":{`)
		}()
	}
	for range batches {
		if n := <-counts; n != lines {
			t.Errorf("%d lines were accepted, want %d", n, lines)
		}
	}
}

// TestPanicOfALine: a bug at one line has its result, and does not end the process.
func TestPanicOfALine(t *testing.T) {
	r := newRig(t, waits(), Refusal{}, nil)
	logs := &lockedBuffer{}
	broken := newAdmin(r.s, r.metrics, NewEvents(), slog.New(slog.NewTextHandler(logs, nil)), nil)
	broken.Scheduler = nil
	req, err := http.NewRequestWithContext(t.Context(), "POST", "/v1/calls/batch", nil)
	if err != nil {
		t.Fatal(err)
	}
	var result api.BatchResult
	submitLine(broken, req, []byte(line("k")), &result)
	if result.Problem == nil || result.Problem.Status != 500 || !strings.Contains(result.Problem.Detail, "may have been accepted") || !strings.Contains(logs.String(), "BUG") || strings.Contains(logs.String(), "canary") {
		t.Errorf("%+v; the log: %s", result.Problem, logs)
	}
}

// TestBatchBodiesAreBounded: a batch of the largest size has room alone, and takes it from others.
func TestBatchBodiesAreBounded(t *testing.T) {
	up := scheduler.Upstream{Config: upstream.Config{Transport: platform(0)}}
	bubbleOf(t, up, true, func(t *testing.T, _ *scheduler.Scheduler, dial func() net.Conn) {
		if got := announceTo(dial(), "/v1/calls/batch", fmt.Sprintf("Content-Length: %d", maxBatchBytes+1), 0).status(); got != 413 {
			t.Errorf("a batch above the bound: %d, want 413", got)
		}
		length := fmt.Sprintf("Content-Length: %d", maxBatchBytes)
		first := announceTo(dial(), "/v1/calls/batch", length, maxBatchBytes-1)
		if got := first.status(); got != 0 {
			t.Errorf("one that fits got %d before it was sent", got)
		}
		if got := announceTo(dial(), "/v1/calls/batch", length, 10_000).status(); got != 503 {
			t.Errorf("the second got %d, want 503", got)
		}
		first.send([]byte("x"))
		if got := first.status(); got != 415 {
			t.Errorf("the first, without a media type: %d, want 415", got)
		}
		if got := announceTo(dial(), "/v1/calls/batch", length, 10_000).status(); got != 0 {
			t.Errorf("after the first: %d, want none yet", got)
		}
	})
}
