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
)

// Three flows of very uneven backlogs: while all that are left have calls waiting,
// each has its share of any ten windows, within one call and a hundredth.
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
				time.Sleep(90 * sec) // enough for the two small ones, and then some
				f.mu.Lock()          // the large one goes on
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

// checkShares looks at every span of ten seconds in which no flow ran dry, and
// returns how many there are and how far from its share a flow was at most.
func checkShares(t *testing.T, sent []arrival, weights map[string]float64) (spans int, worst float64) {
	t.Helper()
	begin := slices.IndexFunc(sent, func(a arrival) bool { return a.at > 0 }) // before, the first flow was alone
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
		whole := sent[i-1].at < from // what goes at one instant is in no order
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

func TestUrgentCallPassesAHugeBacklog(t *testing.T) {
	const backlog, keys, trip = 100_000, 10_000, 10 * ms
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
			if i%3 == 0 { // the key that has just had its permit
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

// A call that takes half of the permits is neither starved by small ones that take
// each permit as it comes back, nor by another flow's backlog of them.
func TestHalfOfThePermitsAtOnce(t *testing.T) {
	const calls, every = 100, 5 * ms // twice as many as may
	for _, backlog := range []int{0, 3000} {
		t.Run(fmt.Sprintf("small calls keep coming, %d of another flow wait", backlog), func(t *testing.T) {
			for seed := range uint64(5) {
				u := Upstream{MaxWaiting: 20_000, ShareBy: "path", Limits: []Limit{
					{Name: "app", Calls: calls, Window: sec, Cost: `path == "/dear" ? 50 : 1`},
					{Name: "shop", When: `path == "/small"`, PerKey: `query("shop")`, Calls: 1, Window: 200 * ms},
				}}
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					r := rand.New(rand.NewPCG(seed, 24))
					submitSmall := func() { submit(t, s, Request{Target: fmt.Sprintf("/small?shop=%d", r.IntN(60))}) }
					small := func(since time.Duration) {
						for end := time.Now().Add(since); time.Now().Before(end); time.Sleep(every) {
							submitSmall()
						}
					}
					small(500 * ms) // permits come back one by one from here on
					for range backlog {
						submitSmall()
					}
					small(time.Duration(500+r.IntN(1000)) * ms)
					asked := time.Now()
					dear := submit(t, s, Request{Target: "/dear"})
					small(2500 * ms)
					if c := wait(t, s, dear.ID); c.Attempts[0].SentAt.Sub(asked) > 2*sec {
						t.Errorf("seed %d: it waited for %v, want at most two windows", seed, c.Attempts[0].SentAt.Sub(asked))
					}
				})
			}
		})
	}
}

// Calls that come in one message after permits have come back do not overtake an older one
// that stands aside, since it takes several permits of two limits.
func TestYoungCallsDoNotOvertakeOneAside(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "a", Calls: 2, Window: sec, Cost: `path == "/big" ? 2 : 1`},
		{Name: "b", Calls: 2, Window: sec, Cost: `path == "/big" ? 2 : 1`},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{} }
		submit(t, s, Request{Target: "/first"})
		submit(t, s, Request{Target: "/big"})
		time.Sleep(10 * ms)
		s.ask(t.Context(), func(time.Time) {
			time.Sleep(time.Until(f.start.Add(sec + 10*ms))) // the loop stalls, or its timer is late
			for _, target := range []string{"/young", "/other"} {
				hand(t, s, Request{Target: target})
			}
		})
		time.Sleep(5 * sec)
		if got := f.targets(); !strings.HasPrefix(got, "first big ") {
			t.Errorf("sent %s, want first, big and then the others", got)
		}
	})
}
