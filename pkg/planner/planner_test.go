package planner

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// The memory of a million waiting calls depends on the size of an item.
func TestSizeOfItem(t *testing.T) {
	if size := unsafe.Sizeof(Item[*int]{}); size != 48 {
		t.Errorf("an item with a pointer has %d bytes, want 48", size)
	}
}

// TestAdd: a call that is first now in a key queue that waits is looked at, as it may need
// less than the one before it.
func TestAdd(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 3, Window: quota.InFlight()})
	r.add("p", need(0, "", 2))
	r.dispatch(10)
	r.add("big", need(0, "", 2))
	want(t, "a call that costs 2", r.dispatch(10), "")
	r.add("small", need(0, "", 1))
	want(t, "a younger one", r.dispatch(10), "")
	it := r.urgent("b", 1, need(0, "", 1))
	if r.planner.entry.empty() || !it.Queued() {
		t.Errorf("fresh is %v, queued is %v after Add", !r.planner.entry.empty(), it.Queued())
	}
	want(t, "an urgent one", r.dispatch(10), "b")
	if !r.planner.entry.empty() || it.Queued() {
		t.Errorf("fresh is %v, queued is %v after it was sent", !r.planner.entry.empty(), it.Queued())
	}
	r.back("b")
	// It joins a class that waits, and is the first there.
	r.urgent("s", 1, need(0, "", 1))
	want(t, "an urgent call of a class that waits", r.dispatch(10), "s")
}

// TestAddShares: calls with equal demands share one, so that a million calls need one
// list of needs.
func TestAddShares(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 1, Window: quota.InFlight()})
	x, y := r.add("a1", need(0, "k", 1)), r.add("a2", need(0, "k", 1))
	if x.Demand != y.Demand {
		t.Error("two calls with equal demands have two of them")
	}
}

// TestRemove: a cancelled call leaves no hole. The permits that it lacked may be enough
// for the next one.
func TestRemove(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 3, Window: quota.InFlight()}, quota.Limit{Name: "b", Calls: 1, Window: quota.InFlight()})
	r.add("p", need(0, "", 2))
	r.dispatch(10)
	big := r.add("big", need(0, "", 2))
	r.add("other", need(0, "", 1), need(1, "", 1))
	want(t, "behind a reservation", r.dispatch(10), "")
	r.planner.Remove(r.time(), big)
	if big.Queued() {
		t.Error("it is queued after Remove")
	}
	want(t, "when it is gone", r.dispatch(10), "other")

	// The first of a class, one in its middle, and its last.
	for i := range 4 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	r.dispatch(10)
	for _, i := range []int{0, 2} {
		r.planner.Remove(r.time(), r.calls[fmt.Sprint("a", i)])
	}
	if n := r.planner.Wanted(0, ""); n != 2 {
		t.Errorf("%d permits are wanted, want 2", n)
	}
	r.back("p")
	want(t, "those that are left", r.dispatch(10), "a1 a3")
	if n := len(r.planner.classes) + len(r.planner.keys) + r.planner.perKey[0] + r.planner.perKey[1]; n != 0 {
		t.Errorf("%d classes and keys are left", n)
	}

	// One that no Dispatch has looked at, and one that is parked.
	fresh := r.add("fresh", need(1, "", 1))
	r.planner.Remove(r.time(), fresh)
	if !r.planner.entry.empty() || r.planner.ready.Size() > 0 {
		t.Error("the entry queue is not empty")
	}
	parked := r.add("parked", need(0, "", 3), need(1, "", 1))
	want(t, "nothing", r.dispatch(10), "")
	r.wantAt("parked", "parked")
	r.planner.Remove(r.time(), parked)
	want(t, "nothing", r.dispatch(10), "")
	if n := len(r.planner.parked.classes.items) + len(r.planner.classes); n != 0 {
		t.Errorf("%d classes are left", n)
	}
}

// TestCheck: permits that are back, and pauses that begin or end, count from the Check on.
func TestCheck(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 1, Window: quota.InFlight()}, quota.Limit{Name: "b", Calls: 2, Window: quota.Sliding(sec)})
	for _, key := range []string{"k", "l", "m"} {
		r.add("p"+key, need(0, key, 1))
	}
	r.dispatch(10)
	for _, key := range []string{"k", "l", "m"} {
		r.add("w"+key, need(0, key, 1))
	}
	want(t, "while keys are full", r.dispatch(10), "")
	for _, key := range []string{"k", "l"} {
		r.ledger.Return(r.time(), []quota.Need{need(0, key, 1)}, quota.Attempt{Sent: start, End: start, Fate: quota.Uncounted})
	}
	want(t, "before Check", r.dispatch(10), "")
	r.planner.Check(r.time(), []quota.Need{need(0, "k", 1), need(0, "unknown", 1)})
	want(t, "after Check", r.dispatch(10), "wk")
	r.planner.CheckLimit(r.time(), 0)
	want(t, "after CheckLimit", r.dispatch(10), "wl")

	r.ledger.PauseLimit(1, start.Add(10*sec))
	r.ledger.PauseKey(r.time(), 1, "l", start.Add(20*sec))
	r.planner.CheckLimit(r.time(), 1)
	for _, key := range []string{"k", "l", "m"} {
		r.add("x"+key, need(1, key, 1))
	}
	want(t, "during the pause", r.run(5*sec), "")
	r.ledger.PauseLimit(1, time.Time{})
	r.planner.CheckLimit(r.time(), 1)
	want(t, "when the pause of the limit has ended", r.dispatch(10), "xk xm")
	r.ledger.PauseKey(r.time(), 1, "l", time.Time{})
	r.planner.Check(r.time(), []quota.Need{need(1, "l", 1)})
	want(t, "when the pause of the key has ended", r.dispatch(10), "xl")

	// X reserves permits of b. A pause of the other limit ends that.
	r.add("q", need(1, "z", 1))
	want(t, "one permit of two", r.dispatch(10), "q")
	r.add("X", need(0, "z", 1), need(1, "z", 2))
	r.add("young", need(1, "z", 1))
	want(t, "behind X", r.dispatch(10), "")
	r.ledger.PauseLimit(0, start.Add(time.Hour))
	r.planner.CheckLimit(r.time(), 0)
	want(t, "since X is parked", r.dispatch(10), "young")
}

// TestMost: Dispatch sends as many calls as it may, the first ones, and keeps the others.
func TestMost(t *testing.T) {
	r := newRig(t, nil, plenty)
	for i := range 5 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	want(t, "none", r.dispatch(0), "")
	if r.planner.entry.empty() {
		t.Error("no call may go, and none is fresh")
	}
	want(t, "two", r.dispatch(2), "a0 a1")
	want(t, "one", r.dispatch(1), "a2")
	want(t, "the others", r.dispatch(math.MaxInt), "a3 a4")
}

// TestSend: send may add, remove and check calls, as an owner does that counts its calls.
func TestSend(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 4, Window: quota.InFlight()}, quota.Limit{Name: "b", Calls: 2, Window: quota.InFlight()})
	r.add("p", need(0, "", 2), need(1, "", 1))
	r.dispatch(10)
	r.add("parked", need(0, "", 3), need(1, "", 2))
	want(t, "while both limits are full", r.dispatch(10), "")
	r.wantAt("parked", "parked")

	r.onSend = func(name string) {
		switch name {
		case "a1":
			r.urgent("urgent", 1, need(1, "", 1))
			r.planner.Remove(r.time(), r.calls["a2"])
		case "urgent":
			r.back("a1", "urgent", "p") // so that the parked one can go
		}
	}
	r.add("a1", need(0, "", 1))
	r.add("a2", need(0, "", 1))
	want(t, "with those of send", r.dispatch(10), "a1 urgent parked")
}

// TestTimeouts: the wheel holds one timeout for a key queue and one for all parked calls,
// however often they are looked at, and none when nothing waits.
func TestTimeouts(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 2, Window: quota.Sliding(sec)}, quota.Limit{Name: "b", Calls: 2, Window: quota.Sliding(sec)})
	r.add("p", need(0, "k", 1), need(1, "", 1))
	r.dispatch(10)
	r.back("p")
	var items []*Item[string]
	for i := range 100 {
		items = append(items, r.add(fmt.Sprint("x", i), need(0, "k", 2)), r.add(fmt.Sprint("y", i), need(0, "k", 2), need(1, "", 2)))
		r.dispatch(10)
		r.planner.CheckLimit(r.time(), 0)
	}
	if n := r.wheel.Len(); n > 2 {
		t.Errorf("%d timeouts are in the wheel, want at most 2", n)
	}
	for _, it := range items {
		r.planner.Remove(r.time(), it)
	}
	r.dispatch(10)
	if n := r.wheel.Len(); n != 0 {
		t.Errorf("%d timeouts are in the wheel of a planner without calls", n)
	}
}

// TestReads: what a planner says of its key queues.
func TestReads(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 1, Window: quota.InFlight()}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	app, trade := need(0, "", 1), func(key string) quota.Need { return need(1, key, 1) }
	r.add("a1", app, trade("17"))
	r.dispatch(10)
	r.add("a2", app, trade("17"))
	r.add("b3", app, trade("18"))
	r.urgent("b4", 1, app, trade("18"))
	r.dispatch(10)

	keys := func(limit int) string {
		var all []string
		for d := range r.planner.Keys() {
			if d.Limit == limit {
				all = append(all, fmt.Sprintf("%s:%d", d.Key, d.Permits))
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if got := keys(0) + " " + keys(1); got != ":3 17:1 18:2" {
		t.Errorf("keys are %q", got)
	}
	for range r.planner.Keys() {
		break // it ends here
	}
	if a, b := r.planner.WantedOf(0), r.planner.WantedOf(1); a != 3 || b != 3 {
		t.Errorf("of all keys %d and %d permits are wanted, want 3 of each", a, b)
	}
	flows := make(map[string]string) // a flow, with the first calls of its classes
	for f := range r.planner.Flows() {
		flows[fmt.Sprint(f.Flow, f.Waiting, f.Weight)] += f.First
	}
	if len(flows) != 2 || flows["a1 1"] != "a2" || flows["b2 1"] != "b4" {
		t.Errorf("flows are %v", flows)
	}
	for range r.planner.Flows() {
		break
	}
	if a, b, c := r.planner.Wanted(0, ""), r.planner.Wanted(1, "18"), r.planner.Wanted(1, "99"); a != 3 || b != 2 || c != 0 {
		t.Errorf("wanted are %d, %d and %d permits, want 3, 2 and 0", a, b, c)
	}
	if a, b := r.planner.Held(0), r.planner.Held(1); a != 3 || b != 0 {
		t.Errorf("%d and %d calls are held, want 3 and 0", a, b)
	}
	if name, ok := r.planner.First(0, ""); !ok || name != "b4" {
		t.Errorf("%q is first, want b4", name)
	}
	for _, key := range []string{"18", "99"} { // calls need the first, and wait elsewhere
		if name, ok := r.planner.First(1, key); ok {
			t.Errorf("%q is first at key %s of trade, want none", name, key)
		}
	}
	r.back("a1")
	want(t, "when app is free", r.dispatch(10), "b4")
	r.back("b4")
	want(t, "and again", r.dispatch(10), "")
	if a, b := r.planner.Held(0), r.planner.Held(1); a != 0 || b != 2 {
		t.Errorf("%d and %d calls are held, want 0 and 2", a, b)
	}
}

// TestProbe: the first call of all that may be repeated, and whose permits are free, is
// taken, though others go before; the rest stays as it is.
func TestProbe(t *testing.T) {
	app := quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(time.Second)}
	r := newRig(t, nil, app, quota.Limit{Name: "full", Calls: 1, Window: quota.Sliding(time.Second)})
	repeatable := func(name string, priority int16, needs ...quota.Need) {
		r.calls[name] = &Item[string]{Value: name, Demand: NewDemand(flowOf(name), needs, true), Seq: uint64(len(r.calls) + 1), Priority: priority}
		r.planner.Add(r.time(), r.calls[name])
	}
	probe := func(want string) {
		t.Helper()
		got := ""
		if it := r.planner.Probe(r.time()); it != nil {
			got = it.Value
			r.sent[got] = r.now
		}
		if got != want {
			t.Errorf("the probe is %q, want %q", got, want)
		}
	}
	probe("")
	r.add("a", need(0, "", 1))
	probe("")
	if _, ok := r.ledger.Take(r.time(), []quota.Need{need(1, "", 1)}); !ok {
		t.Fatal("no permit")
	}
	repeatable("b", 9, need(0, "", 1), need(1, "", 1)) // lacks a permit
	repeatable("c", 0, need(0, "", 1))
	repeatable("d", 0, need(0, "", 1))
	r.dispatch(0)
	if probe("c"); !r.planner.changed {
		t.Error("the next Dispatch does not look at calls that the probe held back")
	}
	if got := r.dispatch(10); got != "a" {
		t.Errorf("%q go after the probe, want a: then the permits are out", got)
	}
	probe("")
	if r.back("a"); r.calls["c"].Queued() || !r.calls["b"].Queued() || !r.calls["d"].Queued() {
		t.Error("the probe waits on, or another call does not")
	}
}

// TestNewDemand: the cost is the greatest of the needs, and equal demands alone have the
// same ID, whatever texts flows and keys are.
func TestNewDemand(t *testing.T) {
	ids := make(map[string]string)
	for name, d := range map[string]*Demand{
		"none":         NewDemand("", nil, false),
		"repeatable":   NewDemand("", nil, true),
		"a flow":       NewDemand("a", nil, false),
		"a need":       NewDemand("", []quota.Need{need(0, "", 1)}, false),
		"a cost":       NewDemand("", []quota.Need{need(0, "", 11)}, false),
		"limit 1":      NewDemand("", []quota.Need{need(1, "", 1)}, false),
		"a key":        NewDemand("", []quota.Need{need(0, "k", 1)}, false),
		"two needs":    NewDemand("", []quota.Need{need(0, "", 1), need(1, "", 2)}, false),
		"a sly key":    NewDemand("", []quota.Need{need(0, `" 1*2"`, 1)}, false),
		"a sly flow":   NewDemand(`"false 0*1"`, nil, false),
		"another cost": NewDemand("", []quota.Need{need(0, "", 2), need(1, "", 1)}, false),
	} {
		if other := ids[d.ID]; other != "" {
			t.Errorf("%s and %s have the ID %s", name, other, d.ID)
		}
		ids[d.ID] = name
		cost := 1
		for _, n := range d.Needs {
			cost = max(cost, n.Cost)
		}
		if same := NewDemand(d.Flow, d.Needs, d.Repeatable); d.Cost != cost || same.ID != d.ID {
			t.Errorf("%s: cost %d, ID %s and %s", name, d.Cost, d.ID, same.ID)
		}
	}
}
