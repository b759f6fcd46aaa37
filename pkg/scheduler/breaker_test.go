package scheduler

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
)

func TestUpstreamDown(t *testing.T) {
	u := Upstream{Limits: perSecond(10)}
	u.Retry.Attempts = 1
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			if time.Since(f.start) < 60*sec {
				return answer{after: ms, err: errDial}
			}
			return answer{after: 10 * ms}
		}
		var ids []string
		for range 50 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(30 * sec)
		if st := upstreams(t, s)[0]; st.State != "down" || st.Waiting+st.Sending != 50 {
			t.Errorf("in the middle: %+v; want it down and 50 calls waiting", st)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("a call ended as %s after %+v", c.State, c.Attempts)
			}
		}
		var probes, inRow int
		at := f.at()
		for i, d := range at {
			if d >= 60*sec {
				break
			}
			if probes++; i >= 10 && d-at[i-1] < 250*ms {
				inRow++
			}
		}
		// 10 dials before the upstream is known to be down, then one for each step of 0.5, 1, 2, 4 … 30 s
		if probes > 10+9 || inRow > 0 {
			t.Errorf("%d dials while it was down, %d of them too soon after another: %v", probes, inRow, at[:probes])
		}
		after := at[probes:]
		if len(after) != 50 {
			t.Errorf("%d requests after it came back, want 50", len(after))
		}
		for i := 10; i < len(after); i++ {
			if after[i]-after[i-10] < sec {
				t.Errorf("more than 10 in a second when it came back: %v", after)
				break
			}
		}
		if st := upstreams(t, s)[0]; st.State != "up" {
			t.Errorf("afterwards: %+v", st)
		}
	})
}

// TestUpstreamDownInTheMiddleOfABacklog takes the upstream down for a minute. No
// attempt is used up, and there is one probe for each step of the backoff. Afterwards
// each call is sent once, within the limit.
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
				// The calls of one window may be in flight before the upstream is known to
				// be down. Then come the probes: each wait is at least half of its step, of
				// 0.5, 1, 2 … 30 s.
				on := 0
				for on < len(dials) && dials[on] <= dials[0]+dial {
					on++
				}
				step := firstProbe
				for i := on; i < len(dials); i++ {
					if wait := dials[i] - dials[i-1]; wait < step/2 {
						t.Errorf("a probe %v after the last dial, in a step of %v: %v", wait, step, dials)
					}
					step = min(2*step, lastProbe)
				}
				if most := perWindow + 10; len(dials) > most || on > perWindow {
					t.Errorf("%d dials, %d of them before it was known to be down, want at most %d: %v", len(dials), on, most, dials)
				}
				back, _ := slices.BinarySearch(reached, to)
				if late := reached[back] - to; late > lastProbe+sec {
					t.Errorf("it was back for %v before a call reached it", late)
				}
				t.Logf("%d dials at %s", len(dials), strings.Trim(fmt.Sprint(dials), "[]"))
			})
		})
	}
}

func TestProbeDoesNotWaitForAHangingAttempt(t *testing.T) {
	bubble(t, Upstream{Concurrency: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			switch {
			case strings.HasPrefix(r.URL.Path, "/hang"):
				return answer{after: time.Hour}
			case time.Since(f.start) < 2*sec:
				return answer{err: errDial}
			}
			return answer{}
		}
		submit(t, s, Request{Target: "/hang"})
		time.Sleep(sec)
		wait(t, s, submit(t, s, Request{Target: "/b"}).ID)
		if d := time.Since(f.start); d > 5*sec {
			t.Errorf("the upstream was back at 2s, the call went at %v; all at %v", d, f.at())
		}
	})
}

// TestDialsThatFailTogetherCountOnce drops connections instead of refusing them: each
// dial fails after ten seconds, and a thousand dials are in flight when the first one
// fails.
func TestDialsThatFailTogetherCountOnce(t *testing.T) {
	bubble(t, Upstream{Concurrency: 1000}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 10 * sec, err: errDial} }
		for range 1200 {
			submit(t, s, Request{})
		}
		time.Sleep(10*sec + ms)
		s.loop.ask(t.Context(), func(now time.Time) {
			if b := &s.loop.upstreams["api"].breaker; b.Failures() != 1 || b.Until(now).Sub(now) > firstProbe {
				t.Errorf("down after %d failed dials, the next in %v; want one, and the first step", b.Failures(), b.Until(now).Sub(now))
			}
		})
		known := len(f.at())
		time.Sleep(time.Minute)
		if n := len(f.at()) - known; n > 5 {
			t.Errorf("%d probes in a minute, each of which takes ten seconds", n)
		}
	})
}
