package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestSignaturesDoNotAge has timestamps that are valid for 3 s and a queue of 10 s.
// With a signer every call succeeds. Without one no stale request is sent, and a call
// that cannot be sent in time is refused at once.
func TestSignaturesDoNotAge(t *testing.T) {
	const calls, life = 40, 3 * sec
	u := Upstream{Limits: perSecond(4), Signature: Signature{Life: life}, MaxWait: time.Minute}
	for _, async := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a signer, async %v", async), func(t *testing.T) {
			signed := u
			signed.Signer = stamper{}
			bubble(t, signed, func(t *testing.T, s *Scheduler, f *fake) {
				testAging(t, s, f, calls, async, func(_, age time.Duration, signature string) bool { return signature != "" }, calls)
			})
		})
		t.Run(fmt.Sprintf("without, async %v", async), func(t *testing.T) {
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				testAging(t, s, f, calls, async, func(_, age time.Duration, _ string) bool { return age < life }, 12)
			})
		})
	}
}

func testAging(t *testing.T, s *Scheduler, f *fake, calls int, async bool, fresh func(at, age time.Duration, signature string) bool, atLeast int) {
	f.serve = func(_ int, r *http.Request) answer {
		at := time.Since(f.start)
		if !fresh(at, at, r.Header.Get("Signed")) {
			t.Errorf("a stale request came in after %v", at)
		}
		return answer{after: 10 * ms}
	}
	results := make(chan string, calls)
	refused := 0
	for i := range calls {
		r := Request{Upstream: "api", Target: fmt.Sprintf("/%d", i)}
		if async {
			c, err := s.Submit(t.Context(), r)
			if reason(err) == PastDeadline {
				refused++
				results <- string(Expired)
				continue
			}
			go func() {
				c, _ := s.Wait(t.Context(), c.ID)
				results <- string(c.State)
			}()
			continue
		}
		go func() {
			resp, c, err := s.Do(t.Context(), r)
			if err == nil {
				resp.Body.Close()
			}
			results <- string(c.State)
		}()
	}
	n := map[string]int{}
	for range calls {
		n[<-results]++
	}
	if n["done"] < atLeast || n["done"]+n["expired"]+n["waiting"] != calls || len(f.at()) != n["done"] {
		t.Errorf("%v, %d requests; want at least %d done and the rest refused", n, len(f.at()), atLeast)
	}
	if async && n["done"] < calls && refused == 0 {
		t.Error("nobody was told at once")
	}
}

// TestOneTimeSignatures: a nonce is valid once, so a limited call is not sent again
// unchanged.
func TestOneTimeSignatures(t *testing.T) {
	u := Upstream{Signature: Signature{Once: true}, Resend: true}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	for status, want := range map[int]State{429: Exhausted, 500: Unknown} {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{status: status} }
			c := wait(t, s, submit(t, s, Request{}).ID)
			if c.State != want || len(f.at()) != 1 {
				t.Errorf("status %d: %s after %d requests, want %s after one", status, c.State, len(f.at()), want)
			}
			if want == Unknown {
				if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted}); reason(err) != WrongState || !strings.Contains(err.Error(), "one sending") {
					t.Errorf("sent again by hand: %v", err)
				}
			}
		})
		signed := u
		signed.Signer = stamper{}
		bubble(t, signed, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(n int, _ *http.Request) answer {
				if n == 1 {
					return answer{status: status}
				}
				return answer{}
			}
			if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Done || len(f.at()) != 2 {
				t.Errorf("status %d, signed anew: %s after %d requests", status, c.State, len(f.at()))
			}
		})
	}
}

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

// TestSignerIsDown: while the signer is down, one call at a time asks it, at growing
// intervals. Meanwhile no request is sent and no attempt or permit is used up.
// Afterwards each call is sent once.
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
		first, _ := slices.BinarySearch(asked, asked[0]+ms) // the calls of the first slot
		if probes := len(asked) - first; first > perSecond || probes < 4 || probes > 12 {
			t.Errorf("asked %d times before it was known to be down, and %d times after: %v", first, probes, asked)
		}
		after, _ := slices.BinarySearch(f.at(), to)
		if late := f.at()[after] - to; late > lastProbe+sec {
			t.Errorf("it was back for %v before a call was sent", late)
		}
	})
}

// TestSignerThatFailsForOneCall: a request that the signer cannot sign delays the
// other calls only for a short time.
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

// TestCallThatLeavesTheProbe: a call whose signature failed leaves the next probe to others. It
// waits for the breaker all the same, and not for a time of its own.
func TestCallThatLeavesTheProbe(t *testing.T) {
	u := Upstream{}
	u.Signer = signFunc(func(context.Context, *upstream.Request) error { return downError{errors.New("no answer")} })
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		id := submit(t, s, Request{}).ID
		later := time.Now().Add(time.Hour)
		own := submit(t, s, Request{NotBefore: later}).ID
		time.Sleep(100 * ms)
		st, c := upstreams(t, s)[0], s.mustGet(t, id)
		if why := c.WaitingFor; why == nil || why.Limit != ConcurrencyLimit || why.Breaker != st.Reason || !why.Until.After(st.PausedUntil) || !c.ETA.Equal(why.Until) {
			t.Errorf("%+v, ETA %v, with %+v", c.WaitingFor, c.ETA, st)
		}
		if why := s.mustGet(t, own).WaitingFor; why == nil || why.Limit != "" || why.Breaker != "" || !why.Until.Equal(later) {
			t.Errorf("the call with a time of its own waits for %+v", why)
		}
	})
}

// TestSignerThatFailsForSomeCalls: the calls that the signer cannot sign are the
// oldest and the most urgent. All other calls are sent nevertheless: at once if there
// are free permits, and also if all calls wait for the same permit.
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
				time.Sleep(10 * time.Minute) // until the pauses have their full length
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

// TestCallerOfASignerThatIsDown: a waiting caller soon learns that the signer is down
// and that no request was sent.
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
