package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestETAIsNearTheTruth keeps up a backlog of three flows under two limits. 95 of
// 100 first answers are within 3%, or 100 ms, of when the call then goes, and what is
// answered later, while it still waits, is nearer.
func TestETAIsNearTheTruth(t *testing.T) {
	tests := []struct {
		name    string
		weights map[string]float64
		flow    func(i int) string
		refunds map[string]float64 // the part of a flow's calls that come under both limits
	}{
		{"alike", nil, inTurn("a", "b", "c"), map[string]float64{"a": .15, "b": .15, "c": .15}},
		{"by weight", map[string]float64{"b": 2}, inTurn("a", "b", "b", "c"), map[string]float64{"a": .16, "b": .16, "c": .16}},
		{"each otherwise", map[string]float64{"b": 2}, inTurn("a", "b", "b", "c"), map[string]float64{"b": .1, "c": .5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Concurrency: 1024, ShareBy: `header("X-Tenant")`, Weights: tt.weights, Limits: []Limit{
				{Name: "app", Calls: 100, Window: sec},
				{Name: "refund", When: `path == "/refund"`, Calls: 20, Window: sec},
			}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return answer{after: 20 * ms} }
				r := rand.New(rand.NewPCG(7, 7))
				type foreseen struct {
					asked, first, later, sent time.Duration
				}
				calls := make(map[string]*foreseen)
				hand := func(i int) {
					flow, target := tt.flow(i), "/query"
					if r.Float64() < tt.refunds[flow] {
						target = "/refund"
					}
					c := submit(t, s, Request{Target: target, Header: tenant(flow)})
					calls[c.ID] = &foreseen{asked: time.Since(f.start), first: c.ETA.Sub(f.start)}
				}
				for i := range 2000 {
					hand(i)
				}
				clear(calls)
				for i := range 1500 { // as many as go meanwhile
					time.Sleep(10200 * time.Microsecond)
					hand(i)
				}
				time.Sleep(5 * sec)
				for id, call := range calls {
					if c := s.mustGet(t, id); c.State == Waiting {
						call.later = c.ETA.Sub(f.start)
					}
				}
				time.Sleep(3 * time.Minute)
				near, both := 0, 0
				var first, later time.Duration // errors, of those that were asked about twice
				for id, call := range calls {
					c := s.mustGet(t, id)
					if c.State != Done {
						t.Fatalf("%s is %s", id, c.State)
					}
					call.sent = c.Attempts[0].SentAt.Sub(f.start)
					off := (call.first - call.sent).Abs()
					if off <= max((call.sent-call.asked)*3/100, 100*ms) {
						near++
					}
					if call.later > 0 {
						both++
						first += off
						later += (call.later - call.sent).Abs()
					}
				}
				told := fmt.Sprintf("%d of %d first answers are near the truth; those asked for again were off by %v on average, and then by %v",
					near, len(calls), first/time.Duration(both), later/time.Duration(both))
				t.Log(told)
				if near*100 < len(calls)*95 || later > first {
					t.Error("want 95 of 100, and then less")
				}
			})
		})
	}
}

// inTurn deals names out one after another.
func inTurn(names ...string) func(int) string {
	return func(i int) string { return names[i%len(names)] }
}

// Flows that have had as much as each other go by age, one call each.
func TestETAOfManyFlowsWithOneCallEach(t *testing.T) {
	u := Upstream{ShareBy: `header("X-Tenant")`, Limits: []Limit{{Name: "app", Calls: 1, Window: 500 * ms}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{} }
		var ids []string
		var told []time.Duration
		for i := range 15 {
			c := submit(t, s, Request{Target: "/", Header: tenant(fmt.Sprint(i))})
			ids, told = append(ids, c.ID), append(told, c.ETA.Sub(f.start))
		}
		time.Sleep(time.Minute)
		for i, id := range ids {
			if sent := s.mustGet(t, id).Attempts[0].SentAt.Sub(f.start); (sent - told[i]).Abs() > 10*ms {
				t.Errorf("call %d goes at %v, told was %v", i, sent, told[i])
			}
		}
	})
}

// Calls that come so fast that the loop takes them all before it sends one are told of
// each other all the same.
func TestETAOfCallsThatComeAtOnce(t *testing.T) {
	u := Upstream{ShareBy: `header("X-Tenant")`, Limits: []Limit{{Name: "app", Calls: 1, Window: 500 * ms}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{} }
		s.ask(t.Context(), func(now time.Time) {
			for i := range 10 {
				told := s.loop.describe(now, hand(t, s, Request{Target: "/", Header: tenant(fmt.Sprint(i))}))
				if want := f.start.Add(time.Duration(i) * 500 * ms); told.State != Waiting || told.ETA.Sub(want).Abs() > 10*ms {
					t.Errorf("call %d is %s and told to go at %v, want %v", i, told.State, told.ETA.Sub(f.start), want.Sub(f.start))
				}
			}
		})
	})
}

// A budget of failures is no reason to expect that what is in flight will fail.
func TestETAUnderABudgetOfFailures(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "failures", Calls: 2, Window: time.Hour, Counts: []upstream.Outcome{upstream.Failed}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n > 3 {
				return answer{status: 400}
			}
			return answer{after: sec}
		}
		submit(t, s, Request{Target: "/"})
		submit(t, s, Request{Target: "/"})
		time.Sleep(10 * ms)
		if c := submit(t, s, Request{Target: "/"}); c.ETA.Sub(f.start) > 2*sec {
			t.Errorf("told to go at %v", c.ETA.Sub(f.start))
		}
		time.Sleep(2 * sec)
		if n := len(f.at()); n != 3 {
			t.Errorf("%d calls were sent", n)
		}
		submit(t, s, Request{Target: "/"})
		submit(t, s, Request{Target: "/"})
		time.Sleep(sec)
		if c := submit(t, s, Request{Target: "/"}); c.ETA.Sub(f.start) < time.Hour {
			t.Errorf("the budget is used up, and the next call is told to go at %v", c.ETA.Sub(f.start))
		}
	})
}

// A pause counts while the upstream is down, and one for ever is one.
func TestPauseOfAnUpstreamThatIsDown(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(5)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		c := submit(t, s, Request{Target: "/"})
		time.Sleep(100 * ms)
		until := time.Now().Add(time.Hour)
		if err := s.Pause(t.Context(), "api", "", "", until); err != nil {
			t.Fatal(err)
		}
		got := s.mustGet(t, c.ID)
		if !got.ETA.Equal(until) || got.WaitingFor == nil || !got.WaitingFor.Paused || !got.WaitingFor.Until.Equal(until) {
			t.Errorf("eta %v for %+v, want the end of the pause %v", got.ETA, got.WaitingFor, until)
		}
		if st := upstreams(t, s)[0]; !st.ETA.Equal(until) || !st.PausedUntil.Equal(until) {
			t.Errorf("%+v, want it shut until %v", st, until)
		}
		if err := s.Pause(t.Context(), "api", "", "", time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
		if st := upstreams(t, s)[0]; time.Until(st.PausedUntil) < 250*365*24*time.Hour {
			t.Errorf("%+v, want it shut for ever", st)
		}
	})
}
