package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

func TestStoredAnswersWhereAllowed(t *testing.T) {
	var arrived atomic.Int64
	platform := func(w http.ResponseWriter, r *http.Request) {
		n := arrived.Add(1)
		switch r.URL.Path {
		case "/unknown":
			w.WriteHeader(500)
		case "/cut":
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "answer %d", n)
	}
	for _, allowed := range []bool{true, false} {
		t.Run(fmt.Sprintf("replay %v", allowed), func(t *testing.T) {
			arrived.Store(0)
			r := newRig(t, scheduler.Upstream{}, Refusal{}, platform)
			srv := httptest.NewServer(&Data{Scheduler: r.s, Upstream: "pay", Replay: allowed})
			defer srv.Close()
			const key = "Idempotency-Key: k1"
			one, first := send(t, "POST", srv.URL+"/pay", "a", key)
			two, second := send(t, "POST", srv.URL+"/pay", "a", key)
			if !allowed {
				if first != "answer 1" || second != "answer 2" {
					t.Errorf("answers %q, %q, want the upstream's own", first, second)
				}
				return
			}
			if first != "answer 1" || second != "answer 1" || arrived.Load() != 1 {
				t.Errorf("answers %q, %q after %d requests; want the stored one", first, second, arrived.Load())
			}
			if one.Header.Get("Idempotent-Replayed") != "" || two.Header.Get("Idempotent-Replayed") != "true" || two.Header.Get("Throttler-Outcome") != "done" {
				t.Errorf("headers %v and %v", one.Header, two.Header)
			}
			if resp, body := send(t, "POST", srv.URL+"/pay", "b", key); resp.StatusCode != 422 || resp.Header.Get("Throttler-Outcome") != "not_executed" || !strings.Contains(body, "call "+one.Header.Get("Throttler-Call")) {
				t.Errorf("the key for another request: %d %s", resp.StatusCode, body)
			}
			if resp, _ := send(t, "POST", srv.URL+"/unknown", "a", "Idempotency-Key: k2"); resp.StatusCode != 500 || resp.Header.Get("Throttler-Outcome") != "unknown" {
				t.Errorf("unknown, with an answer: %d %v", resp.StatusCode, resp.Header)
			}
			for range 2 {
				if resp, _ := send(t, "POST", srv.URL+"/cut", "a", "Idempotency-Key: k3"); resp.StatusCode != 504 || resp.Header.Get("Throttler-Outcome") != "unknown" {
					t.Errorf("unknown, without: %d %v", resp.StatusCode, resp.Header)
				}
			}
			if n := arrived.Load(); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
		})
	}
}

// TestDurableAnswerAgain: the key counts on a durable route too, and the response to
// its second request is marked.
func TestDurableAnswerAgain(t *testing.T) {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "paid") }))
	defer platform.Close()
	db, err := store.Open(filepath.Join(t.TempDir(), "calls.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u := scheduler.Upstream{Durable: "true"}
	u.URL = platform.URL
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}, Store: db})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	srv := httptest.NewServer(&Data{Scheduler: s, Upstream: "pay"})
	defer srv.Close()
	for _, replayed := range []string{"", "true"} {
		if resp, body := send(t, "POST", srv.URL+"/pay", "a", "Idempotency-Key: k1"); body != "paid" || resp.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("%s, %v; want it marked %q", body, resp.Header, replayed)
		}
	}
}

// TestExpiredInAPauseUnderAKey: a call that expired in a pause is refused as paused, with
// a Retry-After, to the client that waited for it and to a later one with its key.
func TestExpiredInAPauseUnderAKey(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, scheduler.Upstream{Concurrency: 1, MaxWait: 2 * time.Second}, Refusal{}, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	srv := httptest.NewServer(&Data{Scheduler: r.s, Upstream: "pay", Replay: true})
	defer srv.Close()
	if _, err := r.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/first"}); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the first is being sent", func(st scheduler.UpstreamStatus) bool { return st.Sending == 1 })
	paused := make(chan error, 1)
	go func() {
		for r.upstream(t).Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		paused <- r.s.Pause(t.Context(), scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour), Reason: "maintenance"})
	}()
	for _, client := range []string{"the one that waited", "a later one"} {
		resp, body := send(t, "POST", srv.URL+"/pay", "a", "Idempotency-Key: k1")
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != 503 || seconds < 3000 || !strings.Contains(body, `"reason":"paused"`) || !strings.Contains(body, "maintenance") || resp.Header.Get("Throttler-Outcome") != "not_executed" {
			t.Errorf("%s: %d, Retry-After %d, %s", client, resp.StatusCode, seconds, body)
		}
	}
	if err := <-paused; err != nil {
		t.Error(err)
	}
	if err := r.s.Resume(t.Context(), "pay", "", ""); err != nil {
		t.Fatal(err)
	}
	if resp, body := send(t, "POST", srv.URL+"/pay", "a", "Idempotency-Key: k1"); resp.StatusCode != 429 {
		t.Errorf("after the pause: %d, %s", resp.StatusCode, body)
	}
}

// TestStopWhileAStoredAnswerIsWaitedFor: at a stop, the outcome of a call that outlives
// its client is unknown. After not_executed the client would send it to another instance.
func TestStopWhileAStoredAnswerIsWaitedFor(t *testing.T) {
	u := scheduler.Upstream{MaxWait: 2 * time.Hour, Limits: []scheduler.Limit{{Name: "one", Calls: 1, Window: time.Hour}}}
	r := newRig(t, u, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	srv := httptest.NewServer(&Data{Scheduler: r.s, Upstream: "pay", Replay: true})
	defer srv.Close()
	send(t, "POST", srv.URL, "", "Idempotency-Key: k1")
	second := make(chan *http.Response)
	go func() {
		defer close(second)
		req, _ := http.NewRequest("POST", srv.URL, nil)
		req.Header.Set("Idempotency-Key", "k2")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			second <- resp
		}
	}()
	r.until(t, "the second waits", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 1 })
	r.s.Close()
	if resp := <-second; resp == nil || resp.StatusCode != 504 || resp.Header.Get("Throttler-Outcome") != "unknown" {
		t.Errorf("%+v, want 504, unknown", resp)
	}
}
