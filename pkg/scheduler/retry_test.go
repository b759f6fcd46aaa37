package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestRetryIsANewSingleShotTimeoutWithBackoff(t *testing.T) {
	u := Upstream{}
	u.Idempotent = "true"
	u.Retry.Attempts, u.Retry.Min = 3, sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		c := submit(t, s, Request{Method: "POST"})
		got := wait(t, s, c.ID)
		if got.State != Unknown || len(got.Attempts) != 3 || got.Attempts[2].N != 3 || got.Attempts[2].Outcome != upstream.Unknown {
			t.Errorf("ended as %s after %+v; want unknown after 3 attempts", got.State, got.Attempts)
		}
		at := f.at()
		if len(at) != 3 || at[1]-at[0] < 500*ms || at[1]-at[0] > sec+ms || at[2]-at[1] < sec || at[2]-at[1] > 2*sec+ms {
			t.Errorf("sent at %v; want the second 0.5 to 1 s and the third 1 to 2 s later", at)
		}
		time.Sleep(time.Hour)
		if n := len(f.at()); n != 3 {
			t.Errorf("%d requests an hour later: something is periodic", n)
		}
	})
}

// TestRetriesStayWithinTheirBudget sends 1,000 calls, of whose attempts 30% end with
// a 500 and 10% with a 429.
func TestRetriesStayWithinTheirBudget(t *testing.T) {
	const calls, share = 1000, 0.2
	u := Upstream{Limits: perSecond(50), MaxWaiting: 2 * calls}
	u.Idempotent = "true"
	u.Retry.Attempts, u.Retry.Min, u.Retry.Max, u.Retry.Share = 30, sec, 5*sec, share
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, After: sec}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		random := rand.New(rand.NewPCG(5, 6)) // used by one goroutine at a time, by turn
		turn := make(chan struct{}, 1)
		f.serve = func(int, *http.Request) answer {
			turn <- struct{}{}
			defer func() { <-turn }()
			switch n := random.IntN(100); {
			case n < 30:
				return answer{after: 10 * ms, status: 500}
			case n < 40:
				return answer{after: 10 * ms, status: 429}
			}
			return answer{after: 10 * ms}
		}
		var ids []string
		for i := range calls {
			ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i)}).ID)
		}
		unknown, sent := 0, 0
		for _, id := range ids {
			c := wait(t, s, id)
			if c.State != Done {
				t.Fatalf("%s after %+v", c.State, c.Attempts)
			}
			sent += len(c.Attempts)
			for _, a := range c.Attempts {
				if a.Outcome == upstream.Unknown {
					unknown++
				}
			}
		}
		at := f.at()
		for i := 50; i < len(at); i++ {
			if at[i]-at[i-50] < sec {
				t.Fatalf("51 requests within %v", at[i]-at[i-50])
			}
		}
		if len(at) != sent {
			t.Errorf("%d requests, %d attempts", len(at), sent)
		}
		// The bound at any time: the share of the first attempts so far, the start
		// value of a budget, and one repeat for each tenth of a second.
		sentAt, first, repeat := make(map[string]time.Duration), []time.Duration{}, []time.Duration{}
		for i, id := range ids {
			for n, a := range s.mustGet(t, id).Attempts {
				at := a.SentAt.Sub(f.start)
				switch {
				case a.N == 1:
					first, sentAt[fmt.Sprintf("/%d", i)] = append(first, at), at
				case n > 0 && s.mustGet(t, id).Attempts[n-1].Outcome == upstream.Unknown:
					repeat = append(repeat, at)
				}
			}
		}
		slices.Sort(first)
		slices.Sort(repeat)
		for i, at := range repeat {
			firsts, _ := slices.BinarySearch(first, at+ms)
			if most := share*float64(firsts) + retry.DefaultMost + at.Seconds()/retry.DefaultFloor.Seconds(); float64(i+1) > most+1 {
				t.Fatalf("%d repeats among %d first attempts by %v", i+1, firsts, at)
			}
		}
		// First attempts are sent in the order of acceptance.
		for i := 1; i < calls; i++ {
			if before, at := sentAt[fmt.Sprintf("/%d", i-1)], sentAt[fmt.Sprintf("/%d", i)]; at < before {
				t.Fatalf("call %d went at %v, before the older one, at %v", i, at, before)
			}
		}
		t.Logf("%d requests for %d calls, %d of unknown outcome repeated, over %v", len(at), calls, unknown, at[len(at)-1])
	})
}

func TestRepeatsWithinRetention(t *testing.T) {
	u := Upstream{}
	u.Idempotency = upstream.Idempotency{Header: "Idempotency-Key", Retention: 10 * sec}
	u.Retry.Attempts, u.Retry.Min, u.Retry.Max = 20, 3*sec, 3*sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		c := wait(t, s, submit(t, s, Request{Header: http.Header{"Idempotency-Key": {"k"}}}).ID)
		at := f.at()
		if c.State != Unknown || len(at) < 4 || at[len(at)-1] >= 10*sec {
			t.Errorf("%s, sent at %v; want repeats in the first 10 s only", c.State, at)
		}
	})
}

// TestRepeatsThatAreHeldUpStayWithinRetention: a delayed repeat is sent within the
// retention, or never.
func TestRepeatsThatAreHeldUpStayWithinRetention(t *testing.T) {
	for name, hold := range map[string]func(s *Scheduler, n int) answer{
		"limited after the doubt": func(_ *Scheduler, n int) answer {
			if n == 2 {
				return answer{status: 429, header: http.Header{"Retry-After": {"20"}}}
			}
			return answer{}
		},
		"paused": func(s *Scheduler, _ int) answer {
			go s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(20 * sec)})
			return answer{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{}
			u.Idempotency = upstream.Idempotency{Header: "Idempotency-Key", Retention: 10 * sec}
			u.Retry.Min, u.Retry.Max = sec, sec
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					if n > 1 {
						return hold(s, n)
					}
					if name == "paused" {
						hold(s, n)
					}
					return answer{status: 500}
				}
				c := wait(t, s, submit(t, s, Request{Header: http.Header{"Idempotency-Key": {"k"}}}).ID)
				if at := f.at(); c.State != Unknown || at[len(at)-1] >= 10*sec {
					t.Errorf("%s, sent at %v; want it unknown, and no repeat after 10 s", c.State, at)
				}
			})
		})
	}
}

// TestUnknownStays: after an attempt of unknown outcome the call stays unknown,
// although the next attempt was not executed.
func TestUnknownStays(t *testing.T) {
	u := Upstream{Resend: true, MaxWait: 20 * sec, MaxAge: time.Minute}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: 2 * time.Hour}}}
	serve := func(n int, _ *http.Request) answer {
		if n == 1 {
			return answer{status: 500}
		}
		return answer{status: 429, body: "limited"}
	}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Unknown || c.Outcome() != upstream.Unknown || len(f.at()) != 2 {
			t.Errorf("submitted: %s, %s after %d requests; want unknown", c.State, c.Outcome(), len(f.at()))
		}
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if reason(err) != NoAnswer || c.State != Unknown || err.(*Error).Outcome() != upstream.Unknown {
			t.Errorf("waiting: %v, %+v; want it told that it may have been executed", err, c)
		}
	})
	u.MaxAge = 24 * time.Hour
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		c := submit(t, s, Request{})
		time.Sleep(30 * sec)
		if got, err := s.Cancel(t.Context(), c.ID); err != nil || s.mustGet(t, c.ID).State != Unknown {
			t.Errorf("cancelled: %v, %v", got, err)
		}
	})
}

// TestManyAttemptsStayUnknown: the list of attempts is cut, but keeps every attempt
// on which later decisions depend.
func TestManyAttemptsStayUnknown(t *testing.T) {
	u := Upstream{}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{
		{When: "status == 404 and repeat", Is: upstream.Unknown}, {When: "status == 404", Is: upstream.Failed},
		{When: "status == 429", Is: upstream.NotExecuted, After: sec},
	}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			switch {
			case n == 2:
				return answer{status: 500}
			case n < maxAttempts+10:
				return answer{status: 429}
			}
			return answer{after: sec, status: 404}
		}
		c := submit(t, s, Request{})
		time.Sleep(time.Hour)
		c = s.mustGet(t, c.ID)
		first, doubt := c.Attempts[0].N, c.Attempts[1]
		if len(c.Attempts) != maxAttempts || first != 1 || doubt.N != 2 || doubt.Outcome != upstream.Unknown || c.State != Unknown {
			t.Fatalf("%s after %+v; want the first attempt, the doubt, and the last ones", c.State, c.Attempts)
		}
		if f := flightOf(time.Now(), c); !f.maybe || f.counted == 0 || !f.firstSent.Equal(c.Attempts[0].SentAt) {
			t.Errorf("another process knows %+v of it", f)
		}
		decided, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Reason: "nothing came"})
		if err != nil {
			t.Fatal(err)
		}
		if f := flightOf(time.Now(), decided); f.maybe || f.counted != 0 {
			t.Errorf("somebody has decided, and another process knows %+v of it", f)
		}
	})
}

// TestRefusalOfARepeatStaysUnknown: the response to the second attempt does not
// tell whether the platform executed the first.
func TestRefusalOfARepeatStaysUnknown(t *testing.T) {
	var u Upstream
	u.Idempotent = "true"
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return answer{status: map[bool]int{true: 502, false: 401}[n == 1]}
		}
		if c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID); c.State != Unknown || len(c.Attempts) != 2 {
			t.Errorf("%s after %d attempts, want unknown after 2", c.State, len(c.Attempts))
		}
	})
}

// TestHookOfThePolicyThatPanics: a panic in the retry policy's hook ends the repeats
// of its call, and harms no other call.
func TestHookOfThePolicyThatPanics(t *testing.T) {
	var u Upstream
	u.Idempotent = "true"
	u.Retry.Check = func(a retry.Attempt) bool { panic("no response to look at") }
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		for range 2 {
			if c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID); c.State != Unknown || len(c.Attempts) != 1 {
				t.Errorf("%s after %d attempts, want unknown after 1", c.State, len(c.Attempts))
			}
		}
	})
}
