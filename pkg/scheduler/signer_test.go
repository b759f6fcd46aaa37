package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type signFunc func(context.Context, *upstream.Request) error

func (f signFunc) Sign(ctx context.Context, r *upstream.Request) error { return f(ctx, r) }

func TestSignerThatHangs(t *testing.T) {
	u := Upstream{}
	u.Timeout = sec
	u.Signer = signFunc(func(ctx context.Context, _ *upstream.Request) error { <-ctx.Done(); return ctx.Err() })
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{})
		time.Sleep(48 * time.Hour)
		if got := s.mustGet(t, c.ID); got.State == Sending || got.State == Unknown || len(f.at()) > 0 {
			t.Errorf("two days later it is %s after %d requests; nothing was ever sent", got.State, len(f.at()))
		}
	})
}

// The guard counts from the first byte, not from when the signer was asked.
func TestGuardCountsFromTheFirstByte(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: sec, Guard: 100 * ms}}}
	asked := 0
	u.Signer = signFunc(func(context.Context, *upstream.Request) error {
		if asked++; asked == 1 {
			time.Sleep(500 * ms)
		}
		return nil
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		if at := f.at(); at[1]-at[0] < sec {
			t.Errorf("arrivals at %v: two in one second, one may", at)
		}
	})
}

type downError struct{ error }

func (downError) Temporary() bool { return true }

// A signer that is down is asked by one call at a time, less and less often, while
// nothing is sent and nothing is used up; afterwards each call is sent once.
func TestSignerIsDown(t *testing.T) {
	const calls, perSecond, from, to = 300, 20, 5 * sec, 125 * sec
	u := Upstream{Limits: []Limit{{Name: "app", Calls: perSecond, Window: sec}}}
	u.Retry = retry.Policy{Attempts: 1}
	var start time.Time
	var asked []time.Duration
	var mu sync.Mutex
	u.Signer = signFunc(func(context.Context, *upstream.Request) error {
		mu.Lock()
		defer mu.Unlock()
		now := time.Since(start)
		if now < from || now >= to {
			return nil
		}
		asked = append(asked, now)
		return downError{errors.New("no answer")}
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		start = f.start
		seen := map[string]int{}
		f.serve = func(_ int, r *http.Request) answer {
			mu.Lock()
			defer mu.Unlock()
			seen[r.URL.Path]++
			return answer{after: 5 * ms}
		}
		var ids []string
		for i := range calls {
			ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i)}).ID)
		}
		time.Sleep((from + to) / 2)
		if st := limits(t, s)[1]; upstreams(t, s)[0].State != "down" || st.Out > st.InFlight || st.InFlight > 1 {
			t.Errorf("meanwhile it is %s, and %d permits are out, %d of them in flight", upstreams(t, s)[0].State, st.Out, st.InFlight)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("a call is %s after %+v", c.State, c.Attempts)
			}
		}
		if len(seen) != calls || len(f.at()) != calls {
			t.Errorf("%d requests for %d calls", len(f.at()), calls)
		}
		if n := busiest(f.at(), sec); n > perSecond {
			t.Errorf("%d requests in a second", n)
		}
		first, _ := slices.BinarySearch(asked, asked[0]+ms) // those that had their slot together
		if probes := len(asked) - first; first > perSecond || probes < 4 || probes > 12 {
			t.Errorf("asked %d times before it was known to be down, and %d times after: %v", first, probes, asked)
		}
		after, _ := slices.BinarySearch(f.at(), to)
		if late := f.at()[after] - to; late > probes.Max+sec {
			t.Errorf("it was back for %v before a call was sent", late)
		}
	})
}

// A request that a signer cannot complete, this one alone, keeps no other from
// being sent for long.
func TestSignerThatFailsForOneCall(t *testing.T) {
	u := Upstream{}
	u.Signer = signFunc(func(_ context.Context, r *upstream.Request) error {
		if r.Target == "/odd" {
			return downError{errors.New("no answer")}
		}
		return nil
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		odd := submit(t, s, Request{Target: "/odd"})
		for range 100 {
			began := time.Now()
			if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Done || time.Since(began) > 2*sec {
				t.Fatalf("a call beside it is %s after %v", c.State, time.Since(began))
			}
			time.Sleep(sec)
		}
		if c := s.mustGet(t, odd.ID); c.State != Waiting || len(c.Attempts) > 15 {
			t.Errorf("it is %s after %d attempts", c.State, len(c.Attempts))
		}
	})
}

// Calls that a signer cannot complete are the oldest and the most urgent, and all
// others go nevertheless: at once where there is room, and where all wait for the
// same permit.
func TestSignerThatFailsForSomeCalls(t *testing.T) {
	for name, u := range map[string]Upstream{
		"no limit": {}, "one at a time": {Concurrency: 1}, "one in a second": {Limits: perSecond(1)},
	} {
		t.Run(name, func(t *testing.T) {
			u.Signer = signFunc(func(_ context.Context, r *upstream.Request) error {
				if r.Target == "/odd" {
					return downError{errors.New("no answer")}
				}
				return nil
			})
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				var odd, good []string
				for range 5 {
					odd = append(odd, submit(t, s, Request{Target: "/odd", Priority: 1}).ID)
				}
				time.Sleep(10 * time.Minute) // the pauses are as long as they get
				for range 25 {
					good = append(good, submit(t, s, Request{}).ID)
				}
				began := time.Now()
				for _, id := range good {
					if c := wait(t, s, id); c.State != Done {
						t.Errorf("a good call is %s after %+v", c.State, c.Attempts)
					}
				}
				if took := time.Since(began); took > 5*time.Minute {
					t.Errorf("it took %v", took)
				}
				for _, id := range odd {
					if c := s.mustGet(t, id); c.State != Waiting && c.State != Sending || len(c.Attempts) < 2 {
						t.Errorf("a bad call is %s after %d attempts", c.State, len(c.Attempts))
					}
				}
			})
		})
	}
}

// A caller who waits is told soon that the signer is down, and that nothing was sent.
func TestCallerOfASignerThatIsDown(t *testing.T) {
	u := Upstream{}
	u.Signer = signFunc(func(context.Context, *upstream.Request) error { return downError{errors.New("no answer")} })
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if reason(err) != Unreachable || c.State != Exhausted || time.Since(f.start) > 2*sec || len(f.at()) > 0 {
			t.Errorf("after %v, %d requests: %v, %+v", time.Since(f.start), len(f.at()), err, c)
		}
	})
}

// What may be repeated is asked of the file that is in force when it matters.
func TestRepeatableAfterReload(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer { return answer{after: 10 * sec, status: 500} }
		c := submit(t, s, Request{Method: "POST"})
		time.Sleep(sec) // it is on its way
		next := Upstream{}
		next.URL, next.Transport, next.Idempotent = "http://api.test", f, "true"
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": next}}); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, c.ID); c.State != Unknown || len(f.at()) != retry.DefaultAttempts {
			t.Errorf("%s after %d requests", c.State, len(f.at()))
		}
	})
}
