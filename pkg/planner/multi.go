package planner

import (
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// batch is how often one Dispatch looks at ready classes that cannot go, at how many parked
// ones it looks, and at how many reservations before each call that it sends. Where there is
// more, the wheel fires for the next batch at once, so that the owner can do other things in
// between.
const batch = 128

// parked holds the classes that need more than one permit of a limit, and lack permits
// of two limits. At a key queue such a class would keep others from permits that it
// cannot use yet; here it reserves none. A class of cost 1 needs no such place: a key
// that lacks one permit has none for any call.
type parked[T any] struct {
	queue    *keyQueue[T]
	planner  *Planner[T]
	classes  scan[*class[T]]    // that are here, or were
	reserved scan[*keyQueue[T]] // at which classes wait that need more than one permit, or did
	soonest  time.Time          // when one of the classes looked at may lack fewer permits
	timeout  wheel.Handle
}

func newParked[T any](p *Planner[T]) parked[T] {
	return parked[T]{
		queue: newKeyQueue(p, keyID{limit: -1}), planner: p,
		classes:  scan[*class[T]]{in: func(cl *class[T]) *bool { return &cl.parked }},
		reserved: scan[*keyQueue[T]]{in: func(q *keyQueue[T]) *bool { return &q.reserved }},
	}
}

// A scan holds items that are looked at in turn, a batch at a time.
type scan[T any] struct {
	items []T
	left  int           // items to be looked at until the scan is complete
	in    func(T) *bool // whether an item is in items
}

func (s *scan[T]) add(x T) {
	if in := s.in(x); !*in {
		*in = true
		s.items = append(s.items, x)
	}
}

// restart lets all items be looked at.
func (s *scan[T]) restart() { s.left = len(s.items) }

// look looks at a batch of the items that are left, and keeps those that stay.
func (s *scan[T]) look(stays func(T) bool) {
	for n := min(s.left, batch); n > 0; n-- {
		x := s.items[0]
		s.items = s.items[1:]
		s.left--
		if *s.in(x) = false; stays(x) {
			s.add(x)
		}
	}
}

// restart lets everything be looked at, as the calls or the permits have changed.
func (k *parked[T]) restart() {
	k.classes.restart()
	k.reserved.restart()
	k.soonest = time.Time{}
}

// expect notes when a class may lack fewer permits.
func (k *parked[T]) expect(now time.Time, cl *class[T]) {
	for _, n := range cl.demand.Needs {
		if at := k.planner.ledger.Next(now, n); at.After(now) && (k.soonest.IsZero() || at.Before(k.soonest)) {
			k.soonest = at
		}
	}
}

// unfinished reports whether a Dispatch has not looked at everything.
func (p *Planner[T]) unfinished() bool {
	return p.left == 0 || p.parked.classes.left > 0 || p.parked.reserved.left > 0
}

// sleep has the wheel fire when a parked class may lack fewer permits, or for the next
// batch.
func (p *Planner[T]) sleep(now time.Time) {
	k := &p.parked
	p.wheel.Cancel(k.timeout)
	switch {
	case p.unfinished():
		k.timeout = p.wheel.Insert(now.Sub(p.origin), nextBatch{})
	case !k.soonest.IsZero():
		k.timeout = p.wheel.Insert(k.soonest.Sub(p.origin), rescan[T]{p})
	}
}

// nextBatch is in the wheel so that the owner dispatches again.
type nextBatch struct{}

func (nextBatch) Fire(time.Time) {}

// rescan is in the wheel so that Dispatch looks at everything again.
type rescan[T any] struct{ p *Planner[T] }

func (r rescan[T]) Fire(time.Time) { r.p.changed = true }

// unpark looks at parked classes. One that lacks permits of one limit only goes to the
// key queue there, one that lacks none to the entry queue.
func (p *Planner[T]) unpark(now time.Time) {
	k := &p.parked
	if p.changed {
		p.changed = false
		k.restart()
	}
	k.classes.look(func(cl *class[T]) bool {
		if cl.at == nil || cl.at.key != k.queue {
			return false
		}
		switch to := p.place(now, cl); to {
		case k.queue:
			k.expect(now, cl)
		case p.entry:
			p.move(now, cl, k.queue, to)
			p.open(to)
		default:
			p.move(now, cl, k.queue, to)
			p.check(now, to)
		}
		return cl.at.key == k.queue
	})
}

// recheck looks at reservations again. Since other calls went, a class that reserves may
// lack permits of another limit too, or the turn of its flow may come later. It reports
// whether it has seen a key queue that is ready.
func (p *Planner[T]) recheck(now time.Time) (found bool) {
	p.parked.reserved.look(func(q *keyQueue[T]) bool {
		if p.reserves(now, q, lowest) {
			p.check(now, q)
		}
		found = found || p.ready.Contains(q)
		return !q.empty()
	})
	return found
}

// reservedFor returns a key queue of the class, other than the one where it waits, at
// which permits are reserved for an earlier call; nil if there is none.
func (p *Planner[T]) reservedFor(now time.Time, cl *class[T], at *keyQueue[T]) *keyQueue[T] {
	for _, q := range cl.keys {
		if q != at && p.reserves(now, q, cl.rank()) {
			return q
		}
	}
	return nil
}

// reserves reports whether the first class of a key queue that is not ready keeps its
// permits from calls of a rank. A class that lacks permits of another limit too, or
// must respect a reservation there, reserves none and moves on.
func (p *Planner[T]) reserves(now time.Time, q *keyQueue[T], r rank) bool {
	for !q.empty() && !p.ready.Contains(q) {
		cl := q.first()
		if !cl.rank().before(r) {
			return false
		}
		if cl.demand.Cost == 1 { // if it lacks one permit, there is none for any call
			return true
		}
		to := p.reservedFor(now, cl, q)
		if to == nil {
			to = p.place(now, cl)
		}
		switch to {
		case q:
			return true
		case p.entry: // it lacks nothing
			p.open(q)
		default:
			p.move(now, cl, q, to)
			p.check(now, to)
			p.check(now, q)
		}
	}
	return false
}

// place returns where a class belongs that needs several permits of a limit: at the key
// queue of the one limit that it lacks, at the entry queue if it lacks none; else it is
// parked.
func (p *Planner[T]) place(now time.Time, cl *class[T]) *keyQueue[T] {
	first := p.lacks(now, cl, nil)
	switch {
	case first == nil:
		return p.entry
	case p.lacks(now, cl, first) == nil:
		return first
	}
	return p.parked.queue
}

// lacks returns a key queue, but not other, that has too few permits for the class now;
// nil if there is none.
func (p *Planner[T]) lacks(now time.Time, cl *class[T], other *keyQueue[T]) *keyQueue[T] {
	for i, q := range cl.keys {
		if q == other {
			continue
		}
		if p.wait(now, cl.demand.Needs[i]) > 0 {
			return q
		}
	}
	return nil
}

// wait returns how long a need cannot be met; for ever, if an attempt has to end first.
func (p *Planner[T]) wait(now time.Time, n quota.Need) time.Duration {
	at := p.ledger.Next(now, n)
	if at.IsZero() {
		return math.MaxInt64
	}
	return at.Sub(now)
}
