package scheduler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// erratic is an upstream that counts each request at some time between its first byte
// and its answer or, without an answer, up to late after the end of the attempt.
type erratic struct {
	late, timeout time.Duration

	mu       sync.Mutex
	r        *rand.Rand
	arrivals map[string][]time.Time // by path
}

func (e *erratic) RoundTrip(req *http.Request) (*http.Response, error) {
	e.mu.Lock()
	kind := e.r.IntN(20)
	trip := time.Duration(e.r.Int64N(int64(200 * ms)))
	way := time.Duration(e.r.Int64N(int64(trip) + 1))
	if kind == 0 { // no answer in time; the request may be read after the time-out
		trip, way = time.Hour, time.Duration(e.r.Int64N(int64(e.timeout+e.late)))
	}
	e.mu.Unlock()
	if kind == 1 {
		return nil, errDial
	}
	sent := time.Now()
	e.mu.Lock()
	e.arrivals[req.URL.Path] = append(e.arrivals[req.URL.Path], sent.Add(way))
	e.mu.Unlock()
	select {
	case <-time.After(trip):
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	status := map[int]int{2: 500, 3: 429, 4: 400}[kind]
	if status == 0 {
		status = 200
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// TestRandomLoads submits random calls, cancels some, and has an upstream that
// limits, fails, hangs and refuses connections. No window is exceeded, every call
// ends, and the scheduler's tables are empty afterwards.
func TestRandomLoads(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds /= 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLoad(t, seed) })
		})
	}
}

func randomLoad(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	e := &erratic{late: sec, timeout: 2 * sec, r: rand.New(rand.NewPCG(seed, 4)), arrivals: map[string][]time.Time{}}
	app := Limit{Name: "app", Calls: 3 + r.IntN(8), Window: time.Duration(200+r.IntN(800)) * ms}
	key := Limit{Name: "key", PerKey: "path", Calls: 1 + r.IntN(3), Window: time.Duration(100+r.IntN(2000)) * ms}
	u := Upstream{Limits: []Limit{app, key}, Late: e.late, Resend: r.IntN(2) == 0, Concurrency: 2 + r.IntN(20), ShareBy: `header("X-Flow")`}
	u.URL, u.Transport, u.Timeout = "http://api.test", e, e.timeout
	u.Idempotent = `path != "/k0"`
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "key", For: 500 * ms}}}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []string
	var callers sync.WaitGroup
	for range 60 + r.IntN(100) {
		req := Request{
			Upstream: "api", Target: fmt.Sprintf("/k%d", r.IntN(4)), Priority: r.IntN(3),
			Header: http.Header{"X-Flow": {string(rune('a' + r.IntN(3)))}},
		}
		switch r.IntN(6) {
		case 0:
			req.NotBefore = time.Now().Add(time.Duration(r.Int64N(int64(10 * sec))))
		case 1:
			req.Deadline = time.Now().Add(time.Duration(r.Int64N(int64(30 * sec))))
		case 2:
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.Int64N(int64(20*sec))))
			callers.Go(func() {
				defer cancel()
				if resp, _, err := s.Do(ctx, req); err == nil {
					resp.Body.Close()
				}
			})
			continue
		}
		if c, err := s.Submit(t.Context(), req); err == nil {
			ids = append(ids, c.ID)
		} else if reason(err) != PastDeadline && reason(err) != Paused {
			t.Errorf("Submit: %v", err)
		}
		if len(ids) > 0 && r.IntN(5) == 0 {
			s.Cancel(t.Context(), ids[r.IntN(len(ids))])
		}
		if r.IntN(3) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(sec))))
		}
	}
	callers.Wait()
	for _, id := range ids {
		if c := wait(t, s, id); c.State == Waiting || c.State == Sending {
			t.Errorf("call %s is %s for ever", id, c.State)
		}
	}
	time.Sleep(time.Minute)
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []time.Time
	for path, arrivals := range e.arrivals {
		all = append(all, arrivals...)
		if n := most(arrivals, key.Window); n > key.Calls {
			t.Errorf("%s: %d calls in %v, at most %d may", path, n, key.Window, key.Calls)
		}
	}
	if n := most(all, app.Window); n > app.Calls {
		t.Errorf("%d calls in %v, at most %d may", n, app.Window, app.Calls)
	}
	if st := upstreams(t, s)[0]; st.Waiting != 0 || st.Sending != 0 {
		t.Errorf("left behind: %+v", st)
	}
	s.loop.ask(t.Context(), func(time.Time) {
		u := s.loop.upstreams["api"]
		unknown, bytes := 0, int64(0)
		for _, c := range s.loop.calls {
			if c.State == Unknown {
				unknown++
				bytes += c.bytes
			}
		}
		size, timeouts := u.planner.Sizes(), 0
		if u.slow.watch { // until the slow-down is over
			timeouts = 1
		}
		if unknown != len(s.loop.calls) || u.count[unresolved] != unknown || u.usage.bytes.Load() != bytes || size.Classes+size.Keys+size.Ready != 0 || s.loop.wheel.Len() != timeouts {
			t.Errorf("left behind: %d calls (%d unknown), %d bytes, %+v in the planner, %d timeouts",
				len(s.loop.calls), unknown, u.usage.bytes.Load(), size, s.loop.wheel.Len())
		}
	})
}
