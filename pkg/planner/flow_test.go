package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

var plenty = quota.Limit{Name: "plenty", Calls: quota.MaxCalls, Window: quota.InFlight()}

// TestVirtualTime plays the table of the package doc.
func TestVirtualTime(t *testing.T) {
	r := newRig(t, map[string]float64{"b": 2}, plenty)
	order := []string{"a1", "b1", "b2", "a2", "b3", "b4"}
	for _, name := range order {
		r.add(name, need(0, "", 1))
	}
	rows := [3]string{"goes              ", "virtual time of a ", "virtual time of b "}
	for range order {
		for i, flow := range []string{"a", "b"} {
			v := r.planner.flows.byName[flow].virtual
			rows[i+1] += fmt.Sprintf("  %-2s", map[float64]string{0: "0", 0.5: "½", 1: "1", 1.5: "1½", 2: "2"}[v])
		}
		rows[0] += "  " + r.dispatch(1)
	}
	for i, row := range rows {
		rows[i] = "//\t" + strings.TrimRight(row, " ")
	}
	docHas(t, strings.Join(rows[:], "\n"))
}

// TestShares sends calls of three flows with random costs. Between two flows that both
// have calls waiting, the difference of what they have had for their weight is bounded
// (Goyal, Vin and Cheng, theorem 1), from any instant to any other.
func TestShares(t *testing.T) {
	const most = 5 // permits of a call
	weights := map[string]float64{"a": 5, "b": 3, "c": 2}
	r := newRig(t, weights, plenty)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		flow := string("abc"[i%3])
		r.add(fmt.Sprint(flow, i), need(0, "", 1+random.IntN(most)))
	}
	flows := []string{"a", "b", "c"}
	had := map[string]float64{} // permits
	low, high := map[string]float64{}, map[string]float64{}
	for n := 0; ; n++ {
		name := r.dispatch(1)
		had[name[:1]] += float64(r.calls[name].Demand.Cost)
		for i, f := range flows {
			for _, g := range flows[:i] {
				ahead := had[f]/weights[f] - had[g]/weights[g]
				low[f+g], high[f+g] = min(low[f+g], ahead), max(high[f+g], ahead)
				if bound := most/weights[f] + most/weights[g]; high[f+g]-low[f+g] > bound+1e-9 {
					t.Fatalf("after %d calls, flows %s and %s were %v apart, want at most %v", n+1, f, g, high[f+g]-low[f+g], bound)
				}
			}
		}
		for _, f := range flows {
			if r.planner.flows.byName[f].waiting > 0 {
				continue
			}
			if n < 1000 {
				t.Errorf("flow %s is empty after %d calls: that is no test", f, n)
			}
			return
		}
	}
}

// TestIdleFlow: a flow that was idle has no claim on the past, and one that has had more
// than its share does not begin anew by being idle.
func TestIdleFlow(t *testing.T) {
	r := newRig(t, nil, plenty)
	for i := range 8 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	want(t, "a flow alone", r.dispatch(4), "a0 a1 a2 a3")
	for i := range 4 {
		r.add(fmt.Sprint("b", i), need(0, "", 1))
	}
	want(t, "a flow that was idle", r.dispatch(8), "b0 a4 b1 a5 b2 a6 b3 a7")

	r.add("c0", need(0, "", 4))
	for i := range 6 {
		r.add(fmt.Sprint("d", i), need(0, "", 1))
	}
	want(t, "the older one", r.dispatch(1), "c0")
	r.add("c1", need(0, "", 1)) // it has paid 4
	want(t, "a flow that was idle and ahead", r.dispatch(7), "d0 d1 d2 d3 d4 c1 d5")
}

// TestFlowsAreForgotten: a planner keeps no flow that is idle and not ahead of virtual
// time, and none at all once it was empty.
func TestFlowsAreForgotten(t *testing.T) {
	r := newRig(t, nil, plenty)
	for i := range 1001 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	for i := range 1000 {
		r.add(string(rune('一'+i)), need(0, "", 1))
		r.dispatch(2)
		r.now += time.Millisecond
	}
	if n := len(r.planner.flows.byName); n > 3 {
		t.Errorf("%d flows are known when 1000 have come and gone beside one", n)
	}
	r.dispatch(math.MaxInt)
	r.now += time.Millisecond
	r.add("a", need(0, "", 7))
	r.add("b", need(0, "", 1))
	r.dispatch(math.MaxInt)
	if v := r.planner.flows.byName["a"].virtual; v != 7 {
		t.Errorf("virtual time of a is %v, want 7", v)
	}
	r.now += time.Millisecond
	r.add("a2", need(0, "", 1))
	if v := r.planner.flows.byName["a"].virtual; v != 0 {
		t.Errorf("virtual time of a is %v after all was idle, want 0", v)
	}
}

// TestFlowAheadKeepsNoOther: a flow that has had far more than its share is known while it
// is idle; flows that come and go beside it are not.
func TestFlowAheadKeepsNoOther(t *testing.T) {
	r := newRig(t, nil, plenty)
	r.add("x", need(0, "", 1000))
	for i := range 300 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	r.dispatch(2)
	for i := range 200 {
		r.add(string(rune('一'+i)), need(0, "", 1))
		r.dispatch(2)
	}
	if n := len(r.planner.flows.byName); n > 4 || r.planner.flows.byName["x"] == nil {
		t.Errorf("%d flows are known, x: %v; want a and x", n, r.planner.flows.byName["x"] != nil)
	}
}

// Priority comes before the shares of flows, and shares before age.
func TestPriority(t *testing.T) {
	r := newRig(t, nil, plenty)
	for i := range 3 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	r.urgent("a8", 2, need(0, "", 1))
	r.urgent("b8", 1, need(0, "", 1))
	r.urgent("a9", 2, need(0, "", 1))
	r.urgent("b0", math.MinInt16, need(0, "", 1))
	want(t, "by priority, share and age", r.dispatch(10), "a8 a9 b8 a0 a1 a2 b0")
}
