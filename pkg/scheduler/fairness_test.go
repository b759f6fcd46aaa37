package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

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

func TestUrgentCallPassesAHugeBacklog(t *testing.T) {
	const trip = 10 * ms
	backlog, keys := 100_000, 10_000
	if testing.Short() {
		backlog, keys = backlog/5, keys/5
	}
	u := Upstream{MaxWaiting: 2 * backlog, Limits: []Limit{
		{Name: "app", Calls: 100, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for i := range backlog {
			submit(t, s, Request{Target: fmt.Sprintf("/%d", i%keys)})
		}
		r := rand.New(rand.NewPCG(1, 23))
		worst := time.Duration(0)
		for i := range 30 {
			time.Sleep(time.Duration(r.IntN(3000)) * ms)
			key := fmt.Sprintf("/%d", r.IntN(keys))
			if i%3 == 0 { // the key of the last permit
				all := f.targets()
				key = "/" + all[strings.LastIndex(all, " ")+1:]
			}
			asked := time.Now()
			c := wait(t, s, submit(t, s, Request{Target: key, Priority: 50}).ID)
			waited := c.Attempts[0].SentAt.Sub(asked)
			if worst = max(worst, waited); waited > sec+trip+tick {
				t.Errorf("urgent call %d of key %s waited for %v behind %d calls, want at most %v", i, key, waited, backlog, sec+trip)
			}
		}
		t.Logf("the longest wait of 30 was %v", worst)
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
		// B has twice A's weight: two calls for each of A's, and then the rest.
		got := f.targets()
		if b, a := strings.Count(got[:len("0 A B B A B B A B B")], "B"), strings.Count(got[:len("0 A B B A B B A B B")], "A"); b != 6 || a != 3 {
			t.Errorf("order %q; among the first nine %d of A and %d of B, want 3 and 6", got, a, b)
		}
	})
}

// TestSharesOfAnyTenWindows has three flows with very different backlogs. While all
// remaining flows have waiting calls, each has its share of any ten windows, within
// one call and 1%.
func TestSharesOfAnyTenWindows(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backlog map[string]int
		weights map[string]float64
	}{
		{"1:1:1, backlogs 100:10:1", map[string]int{"/a": 10_000, "/b": 1000, "/c": 100}, map[string]float64{"/a": 1, "/b": 1, "/c": 1}},
		{"5:3:2, backlogs 100:10:5", map[string]int{"/a": 10_000, "/b": 1000, "/c": 500}, map[string]float64{"/a": 5, "/b": 3, "/c": 2}},
		{"2:3:5, backlogs 100:10:5", map[string]int{"/a": 10_000, "/b": 1000, "/c": 500}, map[string]float64{"/a": 2, "/b": 3, "/c": 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Limits: perSecond(30), MaxWaiting: 20_000, ShareBy: "path", Weights: tt.weights}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer { return answer{after: time.Duration(n*7919%200) * grain} }
				for _, flow := range []string{"/a", "/b", "/c"} {
					for range tt.backlog[flow] {
						submit(t, s, Request{Target: flow})
					}
				}
				time.Sleep(90 * sec) // longer than the backlogs of the two small flows
				f.mu.Lock()          // the large flow continues
				defer f.mu.Unlock()
				spans, worst := checkShares(t, f.arrivals, tt.weights)
				if spans < 500 {
					t.Errorf("only %d spans looked at", spans)
				}
				t.Logf("%d spans of ten windows, at most %.2f calls from the share", spans, worst)
			})
		})
	}
}

// checkShares examines every span of ten seconds in which no flow became empty. It
// returns the number of spans and the largest distance of a flow from its share.
func checkShares(t *testing.T, sent []arrival, weights map[string]float64) (spans int, worst float64) {
	t.Helper()
	begin := slices.IndexFunc(sent, func(a arrival) bool { return a.at > 0 }) // the first flow is alone before that
	end := map[string]time.Duration{}
	for _, a := range sent {
		end[a.target] = a.at
	}
	n, next := map[string]float64{}, begin
	for i := begin; i < len(sent); i++ {
		from := sent[i].at
		for next < len(sent) && sent[next].at < from+10*sec {
			n[sent[next].target]++
			next++
		}
		if next == len(sent) {
			return spans, worst
		}
		var all, sum float64
		whole := sent[i-1].at < from // calls of one instant have no order
		for flow, last := range end {
			if last >= from {
				all, sum = all+n[flow], sum+weights[flow]
				whole = whole && last >= from+10*sec
			}
		}
		for flow, last := range end {
			if !whole || last < from {
				continue
			}
			share := all * weights[flow] / sum
			off := math.Abs(n[flow] - share)
			if worst = max(worst, off); off > 1+share/100 {
				t.Fatalf("flow %s has %v of the %v calls from %v on, its share is %v", flow, n[flow], all, from, share)
			}
		}
		if whole {
			spans++
		}
		n[sent[i].target]--
	}
	return spans, worst
}

// TestFlowsWithAWeightInAnyCase: gold and GOLD are one flow with one weight, because
// it is configured. Flows without a weight, such as a and A, differ by case.
func TestFlowsWithAWeightInAnyCase(t *testing.T) {
	u := Upstream{Limits: perSecond(10), ShareBy: `header("X-Tenant")`, Weights: map[string]float64{"Gold": 3}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 40 {
			for _, name := range []string{"gold", "GOLD", "a", "A"} {
				submit(t, s, Request{Header: tenant(name)})
			}
		}
		time.Sleep(3 * sec)
		s.loop.ask(t.Context(), func(time.Time) {
			u, waits := s.loop.upstreams["api"], make(map[string]int)
			for _, c := range s.loop.calls {
				waits[c.item.Demand.Flow]++
			}
			var left []string
			for flow, n := range waits {
				left = append(left, fmt.Sprint(flow, " ", u.weight(flow), " ", n))
			}
			slices.Sort(left)
			// 30 of 160 have been sent, 3:1:1.
			if want := []string{"A 1 34", "a 1 34", "gold 3 62"}; !slices.Equal(left, want) {
				t.Errorf("flows, weights and what waits: %q, want %q", left, want)
			}
		})
	})
	twice := map[string]float64{"gold": 3, "Gold": 2}
	err := Config{Upstreams: map[string]Upstream{"api": {Config: upstream.Config{URL: "http://api.test"}, ShareBy: "path", Weights: twice}}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "weights.gold: is given twice") {
		t.Errorf("a weight twice: %v", err)
	}
}

func TestFlowsAreForgotten(t *testing.T) {
	bubble(t, Upstream{ShareBy: `header("X-Tenant")`}, func(t *testing.T, s *Scheduler, f *fake) {
		for i := range 5000 {
			wait(t, s, submit(t, s, Request{Header: tenant(fmt.Sprint(i))}).ID)
		}
		s.loop.ask(t.Context(), func(time.Time) {
			if n := s.loop.upstreams["api"].planner.Sizes().Flows; n > 200 {
				t.Errorf("%d flows are remembered, none has anything waiting", n)
			}
		})
	})
}
