package planner

import (
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// TestSuccession: a planner goes on while its calls are staged, one by one, for another one;
// that has the other limits and weights, and each call has one timeout when all are settled.
func TestSuccession(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 1, Window: quota.Sliding(sec)}, quota.Limit{Name: "b", Calls: 2, Window: quota.Sliding(sec)}, quota.Limit{Name: "c", Calls: 2, Window: quota.Sliding(sec)})
	r.trip = 0
	r.add("p", need(0, "", 1), need(1, "", 1), need(2, "", 1))
	r.run(0)
	r.add("x1", need(0, "", 1))
	r.add("x2", need(0, "", 1))
	r.add("y1", need(0, "", 1))
	r.add("y2", need(0, "", 1))
	r.add("parked", need(1, "", 2), need(2, "", 2))
	want(t, "while a is full", r.dispatch(10), "")
	r.wantAt("parked", "parked")
	if n := r.wheel.Len(); n != 2 {
		t.Fatalf("%d timeouts are in the wheel, want one of a and one of parked calls", n)
	}

	limits := []quota.Limit{{Name: "d", Calls: 3, Window: quota.Sliding(sec)}}
	ledger := r.ledger.Successor(r.time(), limits, nil)
	s := Succeed(r.planner, ledger, limits, nil, weight(map[string]float64{"y": 2}))
	stage := func(names ...string) {
		for _, name := range names {
			s.Stage(r.time(), r.calls[name], demand(name[:1], need(0, "", 1)))
		}
	}
	stage("x1", "x1", "p")
	r.add("y3", need(0, "", 1))
	r.planner.Remove(r.time(), r.add("gone", need(0, "", 1)))
	want(t, "a second later, by the old limit", r.run(sec), "x1 parked")
	stage("x1", "x2", "y1", "y2")
	if late := s.Late(); len(late) != 1 || late[0] != "y3" {
		t.Errorf("%q were added late, want y3", late)
	}
	if late := s.Late(); len(late) != 0 {
		t.Errorf("%q were added late, and were told before", late)
	}
	stage("y3")
	ledger.Begin(r.time())
	r.ledger, r.planner = ledger, s.Begin(r.time())
	want(t, "by the new limit and weights", r.run(sec), "x2 y1 y2")
	if !r.calls["y3"].Queued() || r.calls["x2"].Queued() {
		t.Error("calls are queued that went, or none that wait")
	}
	if !s.Settle(r.time(), r.calls["y3"]) || s.Settle(r.time(), r.calls["y3"]) || s.Settle(r.time(), r.calls["x2"]) {
		t.Error("one call is to be settled, once")
	}
	if n := r.wheel.Len(); n != 1 || r.planner.arriving != nil {
		t.Errorf("%d timeouts are in the wheel, want that of the limit", n)
	}
	want(t, "later", r.run(3*sec), "y3")
}

// inFlight returns a limit of so many calls in flight.
func inFlight(name string, calls int) quota.Limit {
	return quota.Limit{Name: name, Calls: calls, Window: quota.InFlight()}
}

// succeed begins a succession to limits that keep some of those before; begin ends it.
func (r *rig) succeed(kept []int, limits ...quota.Limit) (s *Succession[string], begin func()) {
	ledger := r.ledger.Successor(r.time(), limits, kept)
	s = Succeed(r.planner, ledger, limits, kept, weight(nil))
	return s, func() {
		ledger.Begin(r.time())
		r.ledger, r.planner = ledger, s.Begin(r.time())
	}
}

// TestSuccessionWithoutCalls: a planner without calls is over at once, and what it has learnt
// of attempts stays.
func TestSuccessionWithoutCalls(t *testing.T) {
	r := newRig(t, nil, inFlight("a", 1))
	r.planner.Observe(sec)
	_, begin := r.succeed([]int{0}, inFlight("a", 1))
	begin()
	if r.planner.arriving != nil || r.planner.Trip() != sec {
		t.Errorf("no call is to be settled, but one is expected; attempts take %v", r.planner.Trip())
	}
}

// TestStage: a call waits in the second planner at the limit that stops it for longest; if
// there are several, or none, at the key that most classes need, the last of these.
func TestStage(t *testing.T) {
	limits := []quota.Limit{
		inFlight("up", 9), {Name: "app", Calls: 1, Window: quota.Sliding(sec)}, {Name: "m", Calls: 1, Window: quota.Sliding(60 * sec)},
		inFlight("n", 1), inFlight("o", 1),
	}
	r := newRig(t, nil, limits...)
	up, app, n, o := need(0, "", 1), need(1, "", 1), need(3, "", 1), need(4, "", 1)
	r.add("s", app, need(2, "x", 1))
	r.add("t", n, o)
	want(t, "before", r.dispatch(10), "s t")
	r.back("s")
	s, begin := r.succeed([]int{0, 1, 2, 3, 4}, limits...)
	first := r.planner
	for _, c := range []struct {
		name  string
		at    string
		needs []quota.Need
	}{
		{"a", "m:a", []quota.Need{up, need(2, "a", 1)}},
		{"b", "up:", []quota.Need{up, need(2, "b", 1)}},
		{"c", "app:", []quota.Need{up, app, need(2, "c", 1)}},
		{"d", "m:x", []quota.Need{up, app, need(2, "x", 1)}},
		{"e", "m:x", []quota.Need{need(2, "x", 1), app}},
		{"f", "n:", []quota.Need{app, n, need(2, "x", 1)}},
		{"g", "n:", []quota.Need{n, o}},
		{"h", "entry", nil},
	} {
		it := r.add(c.name, c.needs...)
		s.Stage(r.time(), it, it.Demand)
		r.planner = s.to
		r.wantAt(c.name, c.at)
		r.planner = first
	}
	begin()
	want(t, "at once", r.dispatch(10), "a b h")
	want(t, "a second later", r.run(sec), "c")
	want(t, "when the attempt has ended", func() string { r.back("t"); return r.dispatch(10) }(), "g")
}

// TestSuccessionOfOtherOrder: a permit that comes back before the second planner begins, and
// a pause that ends, are seen there under the number that their limit has.
func TestSuccessionOfOtherOrder(t *testing.T) {
	r := newRig(t, nil, inFlight("gone", 1), inFlight("a", 1), inFlight("b", 1))
	r.add("s", need(1, "k", 1))
	r.add("t", need(2, "k", 1))
	want(t, "before", r.dispatch(10), "s t")
	r.ledger.PauseKey(r.time(), 1, "l", start.Add(10*sec))
	r.ledger.PauseKey(r.time(), 2, "l", start.Add(10*sec))
	s, begin := r.succeed([]int{2, 1, -1}, inFlight("b", 1), inFlight("a", 1), inFlight("new", 1))
	for _, c := range []struct {
		name       string
		limit, new int
		key        string
	}{
		{"c", 1, 1, "k"}, {"d", 2, 0, "k"}, {"e", 1, 1, "l"}, {"f", 2, 0, "l"},
	} {
		s.Stage(r.time(), r.add(c.name, need(c.limit, c.key, 1)), demand(c.name, need(c.new, c.key, 1)))
	}
	for limit := range 3 {
		r.ledger.PauseKey(r.time(), limit, "l", time.Time{})
		r.planner.CheckLimit(r.time(), limit)
	}
	r.back("s", "t")
	begin()
	want(t, "at once", r.dispatch(10), "c d e f")
}

// TestSuccessionToOtherSpacing: calls go as soon as the second planner begins that the spacing
// of before would keep back, those of a key as soon as one of them is settled.
func TestSuccessionToOtherSpacing(t *testing.T) {
	limit := quota.Limit{Name: "a", Calls: 10, Window: quota.Sliding(sec), Burst: 1}
	r := newRig(t, nil, limit, limit)
	r.trip = 0
	r.add("s", need(0, "", 1), need(1, "k", 1))
	a, b := r.add("a", need(0, "", 1)), r.add("b", need(1, "k", 1))
	want(t, "before", r.run(10*ms), "s")
	limit.Burst = 0
	s, begin := r.succeed([]int{0, 1}, limit, limit)
	s.Stage(r.time(), a, a.Demand)
	s.Stage(r.time(), b, b.Demand)
	begin()
	want(t, "at once", r.dispatch(10), "a")
	s.Settle(r.time(), b)
	want(t, "when it is settled", r.dispatch(10), "b")
}

// TestAbandon: doubles are taken out some at a time, and the first planner goes on alone.
func TestAbandon(t *testing.T) {
	r := newRig(t, nil, inFlight("a", 1))
	s, _ := r.succeed([]int{0}, inFlight("a", 1))
	for _, name := range []string{"a", "b", "c"} {
		it := r.add(name, need(0, "", 1))
		s.Stage(r.time(), it, it.Demand)
	}
	s.Late()
	for _, left := range []int{1, 0} {
		if more := s.Abandon(r.time(), 2); more != (left > 0) || s.to.Sizes().Classes != left {
			t.Errorf("%d doubles are left, and more: %v; want %d", s.to.Sizes().Classes, more, left)
		}
	}
	r.add("d", need(0, "", 1))
	if late := s.Late(); len(late) > 0 || r.wheel.Len() > 0 {
		t.Errorf("%q are noted, and %d timeouts are left", late, r.wheel.Len())
	}
}
