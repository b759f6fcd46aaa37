package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The slots of what is cancelled go to what is left: each window is as full as if
// only that had ever been there.
func TestHalfOfABacklogIsCancelled(t *testing.T) {
	const backlog, perWindow, most = 1500, 50, 20 * ms
	for seed := range uint64(20) {
		bubble(t, Upstream{Limits: perSecond(perWindow)}, func(t *testing.T, s *Scheduler, f *fake) {
			r := rand.New(rand.NewPCG(seed, 25))
			f.serve = func(n int, _ *http.Request) answer {
				return answer{after: time.Duration(1+n*7919%200) * grain}
			}
			var ids []string
			for range backlog {
				ids = append(ids, submit(t, s, Request{}).ID)
			}
			cancelled := 0
			for range 1 + r.IntN(3) { // at once, or bit by bit
				time.Sleep(time.Duration(r.IntN(4000)) * ms)
				for _, i := range r.Perm(backlog)[:backlog/4] {
					if _, err := s.Cancel(t.Context(), ids[i]); err == nil {
						cancelled++
					} else if reason(err) != WrongState {
						t.Fatal(err)
					}
				}
			}
			for _, id := range ids {
				wait(t, s, id)
			}
			if len(f.arrivals) != backlog-cancelled {
				t.Fatalf("seed %d: %d requests for %d calls of which %d were cancelled", seed, len(f.arrivals), backlog, cancelled)
			}
			var at []time.Duration
			for i, a := range f.arrivals {
				if latest := time.Duration(i/perWindow) * (sec + most + tick); a.at > latest {
					t.Fatalf("seed %d: request %d came at %v, the optimum and a round trip per window is %v", seed, i, a.at, latest)
				}
				at = append(at, a.at)
			}
			if n := busiest(at, sec); n > perWindow {
				t.Errorf("seed %d: %d requests in a second", seed, n)
			}
		})
	}
}

// What one key is told to wait for holds that key, and it alone: the others' calls
// go at the same instants as if nothing had been.
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

// An upstream goes away for a minute in the middle of a backlog. No attempt is
// burnt, it is probed once for each step of the backoff, and afterwards it gets
// each call once, and never too many.
func TestUpstreamDownInTheMiddleOfABacklog(t *testing.T) {
	const backlog, perWindow = 1000, 10
	const from, to = 20500 * ms, 80500 * ms
	u := Upstream{Limits: perSecond(perWindow)}
	u.Retry = retry.Policy{Attempts: 1}
	for _, dial := range []time.Duration{0, ms, 300 * ms} {
		t.Run(fmt.Sprintf("a dial fails after %v", dial), func(t *testing.T) {
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				var mu sync.Mutex
				var dials, reached []time.Duration
				seen := map[string]int{}
				f.serve = func(n int, r *http.Request) answer {
					mu.Lock()
					defer mu.Unlock()
					now := time.Since(f.start)
					if now >= from && now < to {
						dials = append(dials, now)
						return answer{after: dial, err: errDial}
					}
					reached = append(reached, now)
					seen[r.URL.Path]++
					return answer{after: time.Duration(1+n*7919%200) * grain}
				}
				var ids []string
				for i := range backlog {
					ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i)}).ID)
				}
				for _, id := range ids {
					if c := wait(t, s, id); c.State != Done {
						t.Fatalf("a call is %s after %+v", c.State, c.Attempts)
					}
				}
				if len(seen) != backlog || len(reached) != backlog {
					t.Errorf("%d requests for %d of %d calls", len(reached), len(seen), backlog)
				}
				if n := busiest(reached, sec); n > perWindow {
					t.Errorf("%d requests in a second", n)
				}
				// A window's calls may be on their way before it is known. Then come the
				// probes: each wait is at least half of its step, of 0.5, 1, 2 … 30 s.
				on := 0
				for on < len(dials) && dials[on] <= dials[0]+dial {
					on++
				}
				step := probes.Min
				for i := on; i < len(dials); i++ {
					if wait := dials[i] - dials[i-1]; wait < step/2 {
						t.Errorf("a probe %v after the last dial, in a step of %v: %v", wait, step, dials)
					}
					step = min(2*step, probes.Max)
				}
				if most := perWindow + 10; len(dials) > most || on > perWindow {
					t.Errorf("%d dials, %d of them before it was known to be down, want at most %d: %v", len(dials), on, most, dials)
				}
				back, _ := slices.BinarySearch(reached, to)
				if late := reached[back] - to; late > probes.Max+sec {
					t.Errorf("it was back for %v before a call reached it", late)
				}
				t.Logf("%d dials at %s", len(dials), strings.Trim(fmt.Sprint(dials), "[]"))
			})
		})
	}
}
