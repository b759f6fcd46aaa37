package scheduler

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestAnHourOfSchedule(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(2), MaxWaiting: 100_000}, func(t *testing.T, s *Scheduler, f *fake) {
		const calls = 7200
		var last *Call
		for range calls {
			last = submit(t, s, Request{})
		}
		// 3600 windows of a second, and a round trip of 10 ms (and a tick) in each.
		if c := wait(t, s, last.ID); c.State != Done {
			t.Fatalf("last call is %s", c.State)
		}
		at := f.at()
		if len(at) != calls {
			t.Fatalf("%d requests, want %d", len(at), calls)
		}
		for i := 2; i < calls; i++ {
			if d := at[i] - at[i-2]; d < sec {
				t.Fatalf("requests %d to %d came within %v, more than 2 in a second", i-2, i, d)
			}
		}
		if took, best := at[calls-1], 3599*(sec+10*ms); took > best+best/1000 {
			t.Errorf("the last call went after %v, want at most %v + 0.1%%", took, best)
		}
		if eta := last.ETA.Sub(f.start); (eta - at[calls-1]).Abs() > 40*sec {
			t.Errorf("the last call's first ETA was %v, it went at %v", eta, at[calls-1])
		}
	})
}

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

func TestUnknownIsNotSentAgain(t *testing.T) {
	for name, a := range map[string]answer{
		"status 500":     {status: 500},
		"lost answer":    {err: io.ErrUnexpectedEOF},
		"no answer ever": {after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return a }
				c := wait(t, s, submit(t, s, Request{}).ID)
				if c.State != Unknown {
					t.Errorf("state %s, want unknown", c.State)
				}
				time.Sleep(48 * time.Hour)
				if got, err := s.Get(t.Context(), c.ID); err != nil || got.State != Unknown || len(f.at()) != 1 {
					t.Errorf("two days later: %v, %v, %d requests; want it unknown still, sent once", got, err, len(f.at()))
				}
			})
		})
	}
}

func TestUnansweredPermitIsHeldUntilLate(t *testing.T) {
	u := Upstream{Limits: perSecond(1), Late: 5 * sec}
	u.Timeout = 2 * sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: time.Hour}
			}
			return answer{}
		}
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		sameTimes(t, f.at(), 0, 2*sec+5*sec+sec) // time-out, late, window
	})
}

func TestRetryAfterPausesAndBurnsNoAttempt(t *testing.T) {
	u := Upstream{Concurrency: 1, Limits: []Limit{{Name: "app", PerKey: "path", Calls: 100, Window: sec}}}
	u.Retry.Attempts = 1
	u.Outcomes = []upstream.Rule{
		{When: `status == 429 && path == "/key"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "app", For: sec}},
		{When: `status == 429`, Is: upstream.NotExecuted},
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
			if got := f.targets(); got != "a a b" { // what comes back keeps its age
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
		// 10 went at once before it was known, then one for each step of 0.5, 1, 2, 4 … 30 s
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

func TestMaxAgeEndsWhatIsNeverAnswered(t *testing.T) {
	u := Upstream{MaxAge: time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Expired || c.FinishedAt.Sub(f.start) > time.Hour+sec {
			t.Errorf("%s at %v, want expired within an hour", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

func TestNotBefore(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{NotBefore: f.start.Add(time.Hour)})
		if w := c.WaitingFor; w == nil || w.Limit != "" || !w.Until.Equal(f.start.Add(time.Hour)) || !c.ETA.Equal(w.Until) {
			t.Errorf("it waits for %+v, ETA %v; want the hour", w, c.ETA)
		}
		wait(t, s, c.ID)
		sameTimes(t, f.at(), time.Hour)
	})
}

func TestPriorityAndAge(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var last *Call
		submit(t, s, Request{Target: "/first"})
		for _, r := range []Request{
			{Target: "/low", Priority: -5}, {Target: "/a"}, {Target: "/b"},
			{Target: "/urgent", Priority: 100}, {Target: "/c"},
		} {
			c := submit(t, s, r)
			if r.Target == "/low" {
				last = c
			}
		}
		wait(t, s, last.ID)
		if got := f.targets(); got != "first urgent a b c low" {
			t.Errorf("order %q", got)
		}
	})
}

func TestFlowsShareFairly(t *testing.T) {
	u := Upstream{Limits: perSecond(1), ShareBy: `header("X-Tenant")`, Weights: map[string]float64{"b": 2}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		var last *Call
		submit(t, s, Request{Target: "/0", Header: http.Header{"X-Tenant": {"z"}}})
		for _, tenant := range []string{"A", "B"} {
			for range 6 {
				last = submit(t, s, Request{Target: "/" + tenant, Header: http.Header{"X-Tenant": {tenant}}})
			}
		}
		wait(t, s, last.ID)
		time.Sleep(20 * sec)
		// B has twice A's weight: two of its calls for each of A's, and then the rest.
		got := f.targets()
		if b, a := strings.Count(got[:len("0 A B B A B B A B B")], "B"), strings.Count(got[:len("0 A B B A B B A B B")], "A"); b != 6 || a != 3 {
			t.Errorf("order %q; among the first nine %d of A and %d of B, want 3 and 6", got, a, b)
		}
	})
}

func TestFullKeyKeepsNobodyElse(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: 5 * sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 {
			submit(t, s, Request{Target: "/full"})
		}
		for _, target := range []string{"/a", "/b", "/c"} {
			submit(t, s, Request{Target: target})
		}
		time.Sleep(20 * sec)
		sameTimes(t, f.at(), 0, 0, 0, 0, 5*sec+10*ms, 10*sec+20*ms)
		if got := f.targets(); !strings.HasSuffix(got, "full full") {
			t.Errorf("order %q", got)
		}
	})
}

func TestLargeCostIsNotStarved(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 4, Window: sec, Cost: `path == "/big" ? 4 : 1`}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{Target: "/a"})
		time.Sleep(100 * ms)
		submit(t, s, Request{Target: "/big"})
		for range 8 {
			submit(t, s, Request{Target: "/small"})
			time.Sleep(100 * ms)
		}
		time.Sleep(10 * sec)
		if got := f.targets(); !strings.HasPrefix(got, "a big small") {
			t.Errorf("order %q: smaller calls went ahead of the big one", got)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/big?x"}); err != nil {
			t.Errorf("a cost of N was refused: %v", err)
		}
	})
}
