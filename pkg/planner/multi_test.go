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

// TestSeveralPermits plays each row of the table of the package doc: X needs 2 permits of
// a and 2 of b, the younger call needs 1 of a.
func TestSeveralPermits(t *testing.T) {
	both := []quota.Limit{{Name: "a", Calls: 2, Window: quota.Sliding(sec)}, {Name: "b", Calls: 2, Window: quota.Sliding(sec)}}
	big := []quota.Need{need(0, "", 2), need(1, "", 2)}
	for _, row := range []struct {
		freeA, freeB int
		x, young     string // where they are after a Dispatch
		sent         string
		later        string // the call that is sent when a permit of each limit comes back
	}{
		{1, 0, "parked", "gone", "young", ""},
		{1, 2, "a:", "a:", "", "X"},
		{2, 2, "gone", "a:", "X", ""},
	} {
		t.Run(fmt.Sprint(row.freeA, " and ", row.freeB, " free"), func(t *testing.T) {
			r := newRig(t, nil, both...)
			names := []string{"p0", "p1"}
			for limit, free := range []int{row.freeA, row.freeB} {
				if free < 2 {
					r.add(names[limit], need(limit, "", 2-free))
				}
			}
			r.dispatch(10)
			r.now = 10 * ms
			r.add("X", big...)
			r.add("young", need(0, "", 1))
			want(t, "at first", r.dispatch(10), row.sent)
			r.wantAt("X", row.x)
			r.wantAt("young", row.young)
			for _, name := range names {
				if r.calls[name] != nil {
					r.back(name)
				}
			}
			want(t, "later", r.run(sec+10*ms), row.later)
			if row.later == "" && row.x == "parked" {
				r.back("young")
				want(t, "when the permit of the younger call is back", r.run(3*sec), "X")
			}
			if row.sent == "X" {
				r.back("X")
				want(t, "when the permits of X are back", r.run(3*sec), "young")
			}
		})
	}
	line := func(free, x, young string) string { return fmt.Sprintf("//\t%-14s %-27s %s\n", free, x, young) }
	docHas(t, line("free of a, b", "X", "a younger call that needs 1 of a")+
		line("  1    0", "is parked", "goes")+line("  1    2", "waits at a, reserves a", "waits behind X")+
		line("  2    2", "goes", "waits for the next permit"))
}

// TestReservationEndsBehindAnother: X was parked, and lacks permits of one limit only
// since others came back, but waits behind the reservation of a more urgent call: it
// reserves none itself.
func TestReservationEndsBehindAnother(t *testing.T) {
	for _, priority := range []int16{0, math.MinInt16} {
		testReservationEndsBehindAnother(t, priority)
	}
}

func testReservationEndsBehindAnother(t *testing.T, priority int16) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 3, Window: quota.Sliding(sec)}, quota.Limit{Name: "b", Calls: 2, Window: quota.InFlight()}, quota.Limit{Name: "c", Calls: 1, Window: quota.InFlight()})
	r.add("p1", need(0, "", 1))
	r.add("p2", need(0, "", 2))
	r.add("p3", need(1, "", 1))
	r.add("p4", need(2, "", 1))
	want(t, "others", r.dispatch(10), "p1 p2 p3 p4")
	r.back("p1") // its permit of a is back at 1s
	r.urgent("X", priority, need(0, "", 3), need(1, "", 1), need(2, "", 1))
	r.urgent("young", priority, need(0, "", 1))
	want(t, "all limits are full", r.run(500*ms), "")
	r.urgent("urgent", 1, need(1, "", 2))
	want(t, "and b is short", r.dispatch(10), "")
	r.wantAt("urgent", "b:")
	r.wantAt("X", "parked")
	r.back("p4")
	want(t, "c is free", r.dispatch(10), "")
	r.wantAt("X", "b:")
	want(t, "a has a permit", r.run(sec), "young")
	if at := r.sent["young"]; at != sec {
		t.Errorf("the younger call was sent at %v, want 1s", at)
	}
}

// TestReservationEndsWithATurn: X reserves permits of a key. When its flow has had a turn
// elsewhere, a call of another flow comes before it and takes them.
func TestReservationEndsWithATurn(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "a", Calls: 2, Window: quota.InFlight()}, quota.Limit{Name: "b", Calls: 1, Window: quota.InFlight()})
	r.add("p", need(0, "", 1))
	r.add("q", need(1, "", 1))
	r.dispatch(10)
	r.add("X", need(0, "", 2))
	r.add("X2", need(1, "", 1))
	r.urgent("y", -1, need(0, "", 1))
	want(t, "a less urgent call waits behind the reservation", r.dispatch(10), "")
	r.add("z", need(0, "", 1))
	want(t, "so does one of a flow that has had as much, and is younger", r.dispatch(10), "")
	r.back("q")
	want(t, "flow X has a turn at b", r.dispatch(10), "X2 z")
	r.wantAt("X", "a:")
	r.wantAt("y", "a:")
}

// TestManyParked: more calls are parked than one Dispatch looks at. Calls that lack no
// permits go all the same, at once, and so does the last parked one when it can.
func TestManyParked(t *testing.T) {
	r := newRig(t, nil,
		quota.Limit{Name: "hour", Calls: 2, Window: quota.InFlight()}, quota.Limit{Name: "day", Calls: 2, Window: quota.InFlight()},
		quota.Limit{Name: "m", Calls: 2, Window: quota.Sliding(sec)}, quota.Limit{Name: "n", Calls: 2, Window: quota.Sliding(sec)})
	const many = 4*batch + 7
	for i := range many {
		for _, name := range []string{"p", "q"} { // the second one lacks both limits
			r.add(fmt.Sprint(name, i), need(0, fmt.Sprint(i), 2), need(1, fmt.Sprint(i), 2))
		}
	}
	r.dispatch(1 << 20)
	if n := r.planner.Held(-1); n != many {
		t.Fatalf("%d calls are parked, want %d", n, many)
	}
	big := []quota.Need{need(2, "", 2), need(3, "", 2)}
	r.add("a1", big...)
	r.add("a2", big...)
	want(t, "the first of the others", r.dispatch(10), "a1")
	r.run(20 * ms)
	r.back("a1")
	r.dispatch(10)
	want(t, "the second", r.run(10*sec), "a2")
	if at := r.sent["a2"]; at != sec+20*ms {
		t.Errorf("the second was sent at %v, want 1.02s", at)
	}
	last := fmt.Sprint(many - 1)
	r.back("p" + last)
	want(t, "the last parked one", r.dispatch(10), "q"+last)
	if n := r.planner.parked.classes.left + r.planner.parked.reserved.left; n != 0 {
		t.Errorf("%d are left to be looked at", n)
	}
}

// TestBatch: one Dispatch looks at a batch of parked calls, and the wheel fires at once
// for the next one.
func TestBatch(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "m", Calls: 2, Window: quota.InFlight()}, quota.Limit{Name: "n", Calls: 2, Window: quota.InFlight()})
	for i := range 3 * batch {
		key := fmt.Sprint(i)
		r.add("p"+key, need(0, key, 2), need(1, key, 2))
		r.add("q"+key, need(0, key, 2), need(1, key, 2))
	}
	r.dispatch(1 << 20)
	for i := range 3 * batch {
		r.back(fmt.Sprint("p", i))
	}
	dispatches := 0
	for more := true; more; dispatches++ {
		n := 0
		more = r.planner.Dispatch(r.time(), 1<<20, func(string) { n++ })
		if n > batch {
			t.Errorf("Dispatch %d has sent %d parked calls, a batch is %d", dispatches, n, batch)
		}
		if next, ok := r.wheel.Next(); more && (!ok || next > r.now) {
			t.Fatalf("there is more, and the wheel fires at %v", next)
		}
		r.wheel.Advance(r.now, func(t Timeout) { t.Fire(r.time()) })
	}
	if dispatches < 3 || r.planner.Held(-1) != 0 {
		t.Errorf("after %d times Dispatch %d calls are parked", dispatches, r.planner.Held(-1))
	}
}

// TestBatchOfReadyCalls: many calls wait for the end of a pause, and for one permit. When the
// pause ends, one Dispatch lets a batch of them wait for the permit, and the wheel fires at
// once for the next one. An urgent call goes meanwhile.
func TestBatchOfReadyCalls(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "paused", Calls: 9999, Window: quota.InFlight()}, quota.Limit{Name: "full", Calls: 1, Window: quota.InFlight()}, quota.Limit{Name: "m", Calls: 1, Window: quota.InFlight()})
	r.ledger.PauseLimit(0, start.Add(sec))
	const many = 3*batch + 1
	for i := range many {
		r.add(fmt.Sprint("a", i), need(0, "", 1), need(1, "", 1), need(2, fmt.Sprint(i), 1))
	}
	want(t, "during the pause", r.run(sec-ms), "")
	r.now = sec
	r.wheel.Advance(r.now, func(t Timeout) { t.Fire(r.time()) })
	sent, more := r.once(9)
	want(t, "after the pause", strings.Join(sent, " "), "a0")
	dispatches := 1
	for before := 0; more; dispatches++ {
		n := r.planner.Held(1)
		if n <= before || n > before+batch {
			t.Fatalf("%d calls wait for the permit, %d did before; a batch is %d", n, before, batch)
		}
		if next, ok := r.wheel.Next(); !ok || next > r.now {
			t.Fatalf("there is more, and the wheel fires at %v", next)
		}
		before = n
		name := fmt.Sprint("u", n)
		r.urgent(name, 1, need(0, "", 1))
		sent, more = r.once(9)
		want(t, "meanwhile", strings.Join(sent, " "), name)
	}
	if n := r.planner.Held(1); n != many-1 || dispatches < many/batch {
		t.Errorf("after %d times Dispatch %d calls wait for the permit, want %d", dispatches, n, many-1)
	}
}

// TestBatchDelaysNone: where more reservations than a batch are to be looked at, an urgent
// call goes at once, and so does the call behind one that is cancelled.
func TestBatchDelaysNone(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "m", Calls: 2, Window: quota.InFlight()})
	const many = 4 * batch
	for i := range many {
		key := fmt.Sprint(i)
		r.add("p"+key, need(0, key, 1))
		r.dispatch(1)
		r.add("X"+key, need(0, key, 2))
		r.add("s"+key, need(0, key, 1))
	}
	r.dispatch(1 << 20)
	if n := len(r.planner.parked.reserved.items); n != many || r.planner.Held(0) != 2*many {
		t.Fatalf("%d reservations, and %d calls wait", n, r.planner.Held(0))
	}
	once := func(what, name string) {
		t.Helper()
		sent := ""
		r.planner.Dispatch(r.time(), 1, func(name string) { sent = name })
		want(t, what, sent, name)
		r.dispatch(0) // the other batches
	}
	last := func() string { return r.planner.parked.reserved.items[many-1].id.key } // to be looked at
	r.urgent("s", 1, need(0, last(), 1))
	once("an urgent call", "s")
	key := last()
	r.planner.Remove(r.time(), r.calls["X"+key])
	once("the call behind a cancelled one", "s"+key)
}

// TestManyReservations: thousands of calls that need several permits of several keys meet.
// Each is sent, and at no instant does Dispatch have more to look at without end.
func TestManyReservations(t *testing.T) {
	limits := []quota.Limit{{Name: "a", Calls: 3, Window: quota.Sliding(sec)}, {Name: "b", Calls: 4, Window: quota.Sliding(sec / 2)}, {Name: "c", Calls: 5, Window: quota.InFlight()}}
	r := newRig(t, nil, limits...)
	r.trip = 20 * ms
	random := rand.New(rand.NewPCG(3, 3))
	calls, keys := 4000, 300
	if testing.Short() {
		calls, keys = calls/2, keys/2
	}
	for i := range calls {
		var needs []quota.Need
		for limit, l := range limits {
			if random.IntN(3) > 0 {
				needs = append(needs, need(limit, fmt.Sprint(random.IntN(keys)), 1+random.IntN(l.Calls)))
			}
		}
		r.urgent(fmt.Sprint(string(rune('a'+i%20)), i), int16(random.IntN(2)), needs...)
		if i%100 == 0 {
			r.run(r.now + ms)
		}
	}
	r.run(time.Hour)
	if n := len(r.sent); n != calls {
		t.Errorf("%d of %d calls were sent", n, calls)
	}
}

// TestPauseOfMany: two pauses end at one instant, and all calls that wait for both go at
// once, each under a key of its own of which it takes all permits.
func TestPauseOfMany(t *testing.T) {
	const many = 4*batch - 12
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 2000, Window: quota.Sliding(sec)}, quota.Limit{Name: "m", Calls: 2, Window: quota.Sliding(sec)})
	for limit := range 2 {
		r.ledger.PauseLimit(limit, start.Add(10*sec))
		r.planner.CheckLimit(r.time(), limit)
	}
	for i := range many {
		r.add(fmt.Sprint("a", i), need(0, "", 1), need(1, fmt.Sprint(i), 2))
	}
	want(t, "during the pause", r.run(10*sec-ms), "")
	if n := len(strings.Fields(r.run(10 * sec))); n != many {
		t.Errorf("%d of %d calls were sent when the pauses ended", n, many)
	}
}
