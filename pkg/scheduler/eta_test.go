package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestETAIsNearTheTruth keeps up a backlog of three flows under two limits. 95% of
// the first ETAs are within 3%, or 100 ms, of the time of sending, and a later ETA of
// a waiting call is nearer.
func TestETAIsNearTheTruth(t *testing.T) {
	tests := []struct {
		name    string
		weights map[string]float64
		flow    func(i int) string
		refunds map[string]float64 // the part of a flow's calls under both limits
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
				for i := range 1500 { // as many as are sent meanwhile
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
				var first, later time.Duration // summed errors of the calls with two ETAs
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

// inTurn returns the names one after another.
func inTurn(names ...string) func(int) string {
	return func(i int) string { return names[i%len(names)] }
}

// TestETAOfManyFlowsWithOneCallEach: flows with equal service are sent by age, one
// call each.
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

// TestETAUnderABudgetOfFailures: an ETA under a limit that counts failures does not
// assume that the calls in flight will fail.
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

func TestCancelsBehindDoNotChangeTheETA(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for range 21 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(20 * ms)
		before := s.mustGet(t, ids[10])
		for _, id := range ids[11:] {
			s.Cancel(t.Context(), id)
		}
		after := s.mustGet(t, ids[10])
		if !before.ETA.Equal(after.ETA) || before.WaitingFor.Ahead != after.WaitingFor.Ahead {
			t.Errorf("ten calls behind were cancelled: ETA from %v (%d ahead) to %v (%d ahead)", before.ETA.Sub(f.start), before.WaitingFor.Ahead, after.ETA.Sub(f.start), after.WaitingFor.Ahead)
		}
		if at := wait(t, s, ids[10]).Attempts[0].SentAt; at.Sub(after.ETA).Abs() > tick {
			t.Errorf("it went at %v, its ETA was %v", at.Sub(f.start), after.ETA.Sub(f.start))
		}
	})
}
