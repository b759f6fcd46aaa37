package scheduler

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestRetryAfterPausesAndBurnsNoAttempt(t *testing.T) {
	u := Upstream{Concurrency: 1, Limits: []Limit{{Name: "app", PerKey: "path", Calls: 100, Window: sec}}}
	u.Retry.Attempts = 1
	u.Outcomes = []upstream.Rule{
		{When: `status == 429 && path == "/key"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "app", For: sec}},
		{When: `status == 429`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Upstream: true}},
	}
	limitOnce := func(seconds string) func(int, *http.Request) answer {
		return func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{status: 429, header: http.Header{"Retry-After": {seconds}}}
			}
			return answer{}
		}
	}
	t.Run("the upstream, in seconds", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			steady(s)
			f.serve = limitOnce("3")
			first := submit(t, s, Request{Target: "/a"})
			time.Sleep(sec)
			waits := submit(t, s, Request{Target: "/b"})
			if w := waits.WaitingFor; w == nil || w.Limit != ConcurrencyLimit || w.Until.Sub(f.start).Round(100*ms) != 3*sec {
				t.Errorf("the second call waits for %+v, want the upstream's pause until 3s", w)
			}
			c := wait(t, s, first.ID)
			wait(t, s, waits.ID)
			if c.State != Done || len(c.Attempts) != 2 || c.Attempts[0].Outcome != upstream.NotExecuted {
				t.Errorf("%s after %+v", c.State, c.Attempts)
			}
			sameTimes(t, f.at(), 0, 3*sec, 3*sec)
			if got := f.targets(); got != "a a b" { // a call that is sent again keeps its age
				t.Errorf("order %q, want a a b", got)
			}
		})
	})
	t.Run("a date", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce(f.start.Add(7 * sec).UTC().Format(http.TimeFormat))
			wait(t, s, submit(t, s, Request{Target: "/a"}).ID)
			sameTimes(t, f.at(), 0, 7*sec)
		})
	})
	t.Run("only the key that was limited", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce("3")
			first := submit(t, s, Request{Target: "/key"})
			time.Sleep(sec)
			wait(t, s, submit(t, s, Request{Target: "/other"}).ID)
			wait(t, s, first.ID)
			sameTimes(t, f.at(), 0, sec, 3*sec)
		})
	})
	t.Run("by the rule's own time", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce("")
			wait(t, s, submit(t, s, Request{Target: "/key"}).ID)
			sameTimes(t, f.at(), 0, sec)
		})
	})
}

// TestRetryAfterHoldsItsKeyOnly: a Retry-After for one key pauses that key alone. The
// calls of other keys are sent at the same instants as without it.
func TestRetryAfterHoldsItsKeyOnly(t *testing.T) {
	const keys, calls, trip = 10, 60, 10 * ms
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 500, Window: sec}, {Name: "merchant", PerKey: "path", Calls: 4, Window: sec}}}
	u.Retry.Attempts = 1
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "merchant"}}}
	run := func(limit bool) (sent map[string][]time.Duration, told time.Duration) {
		sent = map[string][]time.Duration{}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			var mu sync.Mutex
			f.serve = func(_ int, r *http.Request) answer {
				mu.Lock()
				defer mu.Unlock()
				key := r.URL.Path
				sent[key] = append(sent[key], time.Since(f.start))
				if limit && key == "/3" && len(sent[key]) == 9 {
					told = time.Since(f.start) + trip
					return answer{after: trip, status: 429, header: http.Header{"Retry-After": {"3"}}}
				}
				return answer{after: trip}
			}
			var ids []string
			for i := range keys * calls {
				ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i%keys)}).ID)
			}
			for _, id := range ids {
				if c := wait(t, s, id); c.State != Done {
					t.Errorf("a call is %s after %+v", c.State, c.Attempts)
				}
			}
		})
		return sent, told
	}
	usual, _ := run(false)
	sent, told := run(true)
	for key, at := range sent {
		if key != "/3" {
			if !slices.Equal(at, usual[key]) {
				t.Errorf("key %s went at %v, and at %v when another was not limited", key, at, usual[key])
			}
			continue
		}
		held, resumed := 0, time.Duration(0)
		for _, a := range at {
			switch {
			case a > told && a < told+3*sec:
				held++
			case a >= told+3*sec && resumed == 0:
				resumed = a
			}
		}
		if held > 0 || len(at) != calls+1 || resumed > told+3*sec+tick {
			t.Errorf("limited at %v, key %s had %d requests in the 3 s after, %d in all, and went on at %v", told, key, held, len(at), resumed)
		}
	}
}

// TestUpstreamThatLimitsForEver: an upstream that limits every request, without a
// Retry-After, gets requests at growing intervals.
func TestUpstreamThatLimitsForEver(t *testing.T) {
	u := Upstream{}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 10 * ms, status: 429} }
		for range 300 {
			submit(t, s, Request{Deadline: f.start.Add(10 * time.Minute)})
		}
		time.Sleep(5 * time.Minute)
		var waves []time.Duration
		for _, at := range f.at() {
			if len(waves) == 0 || at-waves[len(waves)-1] > 100*ms {
				waves = append(waves, at)
			}
		}
		// Each wait is at least half of its step, and the steps double.
		step := time.Duration(retry.DefaultMin)
		for i := 1; i < len(waves); i++ {
			if wait := waves[i] - waves[i-1]; wait < step/2 {
				t.Errorf("asked again after %v, in a step of %v: %v", wait, step, waves)
			}
			step = min(2*step, retry.DefaultMax)
		}
		if most := len(waves) * 300; len(f.at()) > most || len(waves) < 8 {
			t.Errorf("%d requests, want at most %d: each call once at %v", len(f.at()), most, waves)
		}
	})
}

func TestRetryIsNotEndedBecauseOfYoungerCalls(t *testing.T) {
	u := Upstream{Limits: perSecond(1)}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: 500 * ms, status: 429}
			}
			return answer{}
		}
		first := submit(t, s, Request{Target: "/first", Deadline: f.start.Add(20 * sec)})
		synctest.Wait()
		for range 50 {
			submit(t, s, Request{Target: "/younger"})
		}
		if c := wait(t, s, first.ID); c.State != Done {
			t.Errorf("the oldest call, limited once, ended as %s at %v; its deadline is 20s and nobody is ahead", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

// leaving is an HTTP/2 server that answers each request on its first connections with
// GOAWAY, which says that the request was not processed.
func leaving(t *testing.T, connections int64) (url string, requests *atomic.Int64) {
	t.Helper()
	s := httptest.NewTLSServer(nil) // for its certificate
	defer s.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	serve := func(c net.Conn, answers bool) {
		defer c.Close()
		io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok {
				requests.Add(1)
				if !answers {
					f.WriteGoAway(0, http2.ErrCodeNo, nil)
					continue
				}
				var head bytes.Buffer
				hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for n := int64(1); ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() { serve(c, n > connections) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "https://" + l.Addr().String(), requests
}

// TestUnprocessedGoesAgain: a request that the upstream reports as unprocessed is
// sent again, also for a waiting caller, without a signer, and with a one-time
// signature, since that was not used. A waiting caller gets an error if it happens a
// second time.
func TestUnprocessedGoesAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		leaves   int64
		requests int64
		want     Reason
	}{"once": {1, 2, ""}, "each time": {100, 2, Unreachable}} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{Late: 20 * time.Millisecond, Limits: []Limit{{Name: "one", Calls: 1, Window: 30 * time.Millisecond}}}
			u.Signature.Once = true
			u.Retry.Attempts = 1
			u.TLS = &tls.Config{InsecureSkipVerify: true}
			url, requests := leaving(t, tt.leaves)
			u.URL = url
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			began := time.Now()
			resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/", Body: []byte("x")})
			if err == nil {
				resp.Body.Close()
			}
			if reason(err) != tt.want || requests.Load() != tt.requests || err == nil && (resp.StatusCode != http.StatusOK || c.State != Done) {
				t.Errorf("%v, %+v after %d requests", err, c, requests.Load())
			}
			// The first attempt may have been counted: its permit returned after late and the window.
			if waited := time.Since(began); waited < 50*time.Millisecond {
				t.Errorf("the second one went after %v", waited)
			}
		})
	}
}
