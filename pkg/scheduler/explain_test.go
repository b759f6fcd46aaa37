package scheduler

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestExplainNamesTheLimit compares the explanation of a waiting call with the time
// of its sending, in many situations.
func TestExplainNamesTheLimit(t *testing.T) {
	app := Limit{Name: "app", Calls: 2, Window: sec}
	key := Limit{Name: "key", PerKey: `query("k")`, Calls: 1, Window: 3 * sec}
	limited := func(n int, _ *http.Request) answer {
		if n == 1 {
			return answer{after: 10 * ms, status: 429, header: http.Header{"Retry-After": {"7"}}}
		}
		return answer{after: 10 * ms}
	}
	rule := []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	keyRule := []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "key"}}}
	for _, c := range []struct {
		name     string
		up       Upstream
		outcomes []upstream.Rule
		serve    func(int, *http.Request) answer
		before   []string // targets of earlier calls
		then     func(*Scheduler)
		last     Request
		want     WaitingFor // without Until and Next
	}{
		{name: "a limit is full", up: Upstream{Limits: []Limit{app}},
			before: []string{"/", "/"}, want: WaitingFor{Limit: "app"}},
		{name: "others are ahead", up: Upstream{Limits: []Limit{app}},
			before: []string{"/", "/", "/", "/", "/"}, want: WaitingFor{Limit: "app", Ahead: 3}},
		{name: "its key is full, the limit above it is not", up: Upstream{Limits: []Limit{{Name: "app", Calls: 9, Window: sec}, key}},
			before: []string{"/?k=a", "/?k=b"}, last: Request{Target: "/?k=a"}, want: WaitingFor{Limit: "key", Key: "a"}},
		{name: "both are full, the key for longer", up: Upstream{Limits: []Limit{app, key}},
			before: []string{"/?k=a", "/?k=b"}, last: Request{Target: "/?k=b"}, want: WaitingFor{Limit: "key", Key: "b"}},
		{name: "both are full, the limit for longer", up: Upstream{Limits: []Limit{{Name: "app", Calls: 2, Window: 9 * sec}, key}},
			before: []string{"/?k=a", "/?k=b"}, last: Request{Target: "/?k=b"}, want: WaitingFor{Limit: "app"}},
		{name: "another key has the only place of its limit", up: Upstream{Limits: []Limit{{Name: "key", PerKey: `query("k")`, Calls: 9, Window: sec, MaxKeys: 1}}},
			before: []string{"/?k=a"}, last: Request{Target: "/?k=b"}, want: WaitingFor{Limit: "key", Key: "b", KeysFull: true}},
		{name: "a minute of the clock is used up", up: Upstream{Limits: []Limit{{Name: "minute", Calls: 2, Calendar: &quota.Calendar{Unit: quota.Minute, Skew: sec}}}},
			before: []string{"/", "/"}, want: WaitingFor{Limit: "minute"}},
		{name: "a dear call needs more than is left", up: Upstream{Limits: []Limit{{Name: "app", Calls: 3, Window: sec, Cost: `query("k") == "dear" ? 3 : 1`}}},
			before: []string{"/?k=a"}, last: Request{Target: "/?k=dear"}, want: WaitingFor{Limit: "app"}},
		{name: "more urgent ones are ahead", up: Upstream{Limits: []Limit{app}},
			before: []string{"/", "/", "/", "/"}, last: Request{Priority: -1}, want: WaitingFor{Limit: "app", Ahead: 2}},
		{name: "its own time has not come", up: Upstream{Limits: []Limit{app}},
			last: Request{NotBefore: time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC)}, want: WaitingFor{}},
		{name: "the upstream is paused", up: Upstream{Limits: []Limit{app}},
			then: func(s *Scheduler) {
				s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(5 * sec)})
			}, want: WaitingFor{Limit: ConcurrencyLimit, Paused: true}},
		{name: "a limit is paused", up: Upstream{Limits: []Limit{app, key}},
			then: func(s *Scheduler) {
				s.Pause(t.Context(), Pause{Upstream: "api", Limit: "app", Until: time.Now().Add(5 * sec)})
			}, last: Request{Target: "/?k=a"}, want: WaitingFor{Limit: "app", Paused: true}},
		{name: "a key is paused", up: Upstream{Limits: []Limit{app, key}},
			then: func(s *Scheduler) {
				s.Pause(t.Context(), Pause{Upstream: "api", Limit: "key", Key: "a", Until: time.Now().Add(5 * sec)})
			}, last: Request{Target: "/?k=a"}, want: WaitingFor{Limit: "key", Key: "a", Paused: true}},
		{name: "an answer has paused the upstream", up: Upstream{Limits: []Limit{{Name: "app", Calls: 9, Window: sec}}}, outcomes: rule, serve: limited,
			before: []string{"/"}, want: WaitingFor{Limit: ConcurrencyLimit, Ahead: 1, Paused: true}},
		{name: "an answer has paused a key", up: Upstream{Limits: []Limit{{Name: "app", Calls: 9, Window: sec}, {Name: "key", PerKey: `query("k")`, Calls: 9, Window: sec}}}, outcomes: keyRule, serve: limited,
			before: []string{"/?k=a"}, last: Request{Target: "/?k=a"}, want: WaitingFor{Limit: "key", Key: "a", Ahead: 1, Paused: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.outcomes != nil {
				c.up.Outcomes = c.outcomes
			}
			c.up.Retry = retry.Policy{Attempts: 3}
			bubble(t, c.up, func(t *testing.T, s *Scheduler, f *fake) {
				steady(s)
				f.serve = c.serve
				for _, target := range c.before {
					submit(t, s, Request{Target: target})
				}
				time.Sleep(100 * ms) // every call with free permits has been answered
				if c.then != nil {
					c.then(s)
				}
				if c.last.Target == "" {
					c.last.Target = "/"
				}
				call, err := s.Get(t.Context(), submit(t, s, c.last).ID)
				if err != nil {
					t.Fatal(err)
				}
				if call.WaitingFor == nil {
					t.Fatalf("it does not wait: %+v", call)
				}
				until := call.WaitingFor.Until
				got := *call.WaitingFor
				if (got.Pause != "") != (got.Paused && got.Breaker == "") {
					t.Errorf("paused %v by %q", got.Paused, got.Pause)
				}
				got.Until, got.Next, got.Pause = time.Time{}, "", ""
				if got != c.want {
					t.Errorf("it waits for %+v, want %+v", got, c.want)
				}
				if !call.ETA.Equal(until) {
					t.Errorf("the ETA is %v, and it is held until %v", call.ETA, until)
				}
				sent := wait(t, s, call.ID).Attempts[0].SentAt
				if off := sent.Sub(until); off < -tick || off > tick {
					t.Errorf("it is held until %v and goes at %v: %v off", stamp(until), stamp(sent), off)
				}
			})
		})
	}
}

// TestHungAttempts: a call that waits for attempts which take far longer than others is
// told which, and has no ETA before one of them ends. It is admitted all the same.
func TestHungAttempts(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		hang  int // of three attempts
		known bool
	}{
		{"all permits in flight", Limit{Name: "parallel", Concurrency: 3}, 3, false},
		{"all permits of a window", Limit{Name: "rate", Calls: 3, Window: sec}, 3, false},
		{"all permits of a key", Limit{Name: "key", PerKey: `query("k")`, Calls: 3, Window: sec}, 3, false},
		{"dear ones", Limit{Name: "dear", Calls: 12, Cost: "4", Window: sec}, 3, false},
		{"one of three", Limit{Name: "parallel", Concurrency: 3}, 1, true},
		{"two of three of a window", Limit{Name: "rate", Calls: 3, Window: sec}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Upstream{Limits: []Limit{c.limit}, MaxWait: time.Minute}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					if n > 10 && n <= 10+c.hang {
						return answer{after: 20 * sec}
					}
					return answer{after: 100 * ms}
				}
				for range 10 {
					wait(t, s, submit(t, s, Request{Target: "/?k=a"}).ID)
				}
				time.Sleep(5 * sec)
				began := time.Now()
				for range 3 {
					submit(t, s, Request{Target: "/?k=a"})
				}
				id := submit(t, s, Request{Target: "/?k=a", Deadline: began.Add(25 * sec)}).ID
				time.Sleep(900 * ms) // no longer than attempts may take
				if got := s.mustGet(t, id); got.State == Waiting && got.ETA.IsZero() {
					t.Errorf("%+v", got)
				}
				time.Sleep(2 * sec)
				late := submit(t, s, Request{Target: "/?k=a", Deadline: began.Add(25 * sec)})
				got, st := s.mustGet(t, id), upstreams(t, s)[0]
				if c.known {
					if got.State != Done {
						t.Errorf("%+v", got)
					}
					return
				}
				want := WaitingFor{Limit: c.limit.Name, InFlight: 3, OldestSentAt: began, Timeout: 30 * sec}
				if c.limit.PerKey != "" {
					want.Key = "a"
				}
				if got.State != Waiting || !got.ETA.IsZero() || got.WaitingFor == nil || *got.WaitingFor != want {
					t.Errorf("%v, %+v, want %+v", got.ETA, got.WaitingFor, want)
				}
				if st.Waiting != 2 || !st.ETA.IsZero() {
					t.Errorf("%+v", st)
				}
				if c := wait(t, s, late.ID); c.State != Done || c.Last().SentAt.Sub(began) < 20*sec {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// TestHungKeys: attempts that hang have all places of a limit, so a call of another key has
// no ETA.
func TestHungKeys(t *testing.T) {
	limit := Limit{Name: "key", PerKey: `query("k")`, Calls: 9, Window: sec, MaxKeys: 2}
	bubble(t, Upstream{Limits: []Limit{limit}}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 20 * sec} }
		began := time.Now()
		for _, key := range []string{"a", "a", "b"} {
			submit(t, s, Request{Target: "/?k=" + key})
		}
		waits := submit(t, s, Request{Target: "/?k=c"})
		time.Sleep(3 * sec)
		want := WaitingFor{Limit: "key", Key: "c", KeysFull: true, InFlight: 3, OldestSentAt: began, Timeout: 30 * sec}
		if c := s.mustGet(t, waits.ID); !c.ETA.IsZero() || c.WaitingFor == nil || *c.WaitingFor != want {
			t.Errorf("%v, %+v, want %+v", c.ETA, c.WaitingFor, want)
		}
		if st := upstreams(t, s)[0]; !st.ETA.IsZero() {
			t.Errorf("%+v", st)
		}
		if c := wait(t, s, waits.ID); c.State != Done || c.Last().SentAt.Sub(began) < 20*sec {
			t.Errorf("%+v", c)
		}
	})
}

// TestSlowStart: after the breaker has closed, a call that waits for the only attempt in
// flight is told so. It does not go at once.
func TestSlowStart(t *testing.T) {
	bubble(t, Upstream{Breaker: retry.Trip{Unknown: 2, Of: 4}}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			switch n {
			case 1, 2:
				return answer{status: 500}
			case 4:
				return answer{after: 20 * sec}
			}
			return answer{after: 10 * ms}
		}
		for range 2 {
			wait(t, s, submit(t, s, Request{}).ID)
		}
		wait(t, s, submit(t, s, Request{}).ID) // the probe
		began := time.Now()
		hangs, waits := submit(t, s, Request{}), submit(t, s, Request{})
		synctest.Wait()
		if c := s.mustGet(t, hangs.ID); c.State != Sending {
			t.Fatalf("%+v", c)
		}
		time.Sleep(3 * sec)
		want := WaitingFor{Limit: ConcurrencyLimit, InFlight: 1, OldestSentAt: began, Timeout: 30 * sec}
		if c := s.mustGet(t, waits.ID); c.State != Waiting || !c.ETA.IsZero() || c.WaitingFor == nil || *c.WaitingFor != want {
			t.Errorf("%v, %+v, want %+v", c.ETA, c.WaitingFor, want)
		}
		if c := wait(t, s, waits.ID); c.State != Done || c.Last().SentAt.Sub(began) != 20*sec {
			t.Errorf("%+v", c)
		}
	})
}
