package planner

import (
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A Succession puts a planner under other limits while its calls wait, in steps between
// which it goes on. The steps make another planner:
//
//	s := planner.Succeed(p, ledger.Successor(now, limits, kept), limits, kept, weight)
//	s.Stage(now, item, demand)                       // for each call; p goes on
//	for _, c := range s.Late() { s.Stage(…) }        // those that were added since
//	p = s.Begin(now)                                 // at once, however many calls wait
//	s.Settle(now, item)                              // for each call; the new p goes on
//
// Until Begin the first planner decides alone, and the second one follows: each call has a
// double there, which leaves when the call does. So the second one stands at each instant
// as if all calls had been added to it then, oldest first. From Begin on it decides alone;
// Settle puts a call where its double is, and is done by itself for a call that goes
// before.
//
// The owner stages calls in their order, so that each step is short.
type Succession[T any] struct {
	from, to *Planner[T]
	kept     []int
	doubles  map[*Item[T]]*Item[T] // in to, by item of from
	owners   map[*Item[T]]*Item[T] // the other way
	late     []*Item[T]            // added to from since it began
}

// Succeed begins a succession. The ledger is the successor of that of p, under the limits:
// see [quota.Ledger.Successor], also for kept.
func Succeed[T any](p *Planner[T], ledger *quota.Ledger, limits []quota.Limit, kept []int, weight func(flow string) float64) *Succession[T] {
	s := &Succession[T]{
		from: p, to: New[T](p.origin, p.wheel, ledger, limits, weight), kept: kept,
		doubles: make(map[*Item[T]]*Item[T]), owners: make(map[*Item[T]]*Item[T]),
	}
	p.leaving = s
	return s
}

// Stage gives a call its double, with a demand under the new limits. It does nothing if the
// call does not wait, or has one.
func (s *Succession[T]) Stage(now time.Time, it *Item[T], d *Demand) {
	if !it.Queued() || s.doubles[it] != nil {
		return
	}
	double := &Item[T]{Value: it.Value, Demand: d, Seq: it.Seq, Priority: it.Priority}
	s.doubles[it], s.owners[double] = double, it
	s.to.Add(now, double)
	if cl := s.to.classes[d.ID]; cl.at.key == s.to.entry {
		s.seat(now, cl)
	}
}

// seat lets a class wait where a Dispatch would let it: at the limit that stops it for
// longest, if it cannot go. A class that may go waits at the key that most classes need: if
// that is full after the first of them, the others stay there.
func (s *Succession[T]) seat(now time.Time, cl *class[T]) {
	at, longest, most := s.to.entry, now, 0
	for i, q := range cl.keys {
		until := s.to.ledger.Next(now, cl.demand.Needs[i])
		if until.IsZero() {
			until = forever
		}
		if until.After(longest) || longest.Equal(now) && q.classes >= most {
			at, most = q, q.classes
			longest = later(longest, until)
		}
	}
	if to := s.to.place(now, cl); cl.demand.Cost > 1 && to != s.to.entry {
		at = to
	}
	if at != s.to.entry {
		s.to.move(now, cl, s.to.entry, at)
	}
	if at.first() == cl {
		s.to.check(now, at)
	}
}

// forever is behind each instant at which a permit comes back.
var forever = time.Unix(1<<40, 0)

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Late returns the calls that were added since the last Late, and wait without a double.
func (s *Succession[T]) Late() (calls []T) {
	for _, it := range s.late {
		if it.Queued() && s.doubles[it] == nil {
			calls = append(calls, it.Value)
		}
	}
	s.late = nil
	return calls
}

// Begin ends the first planner, and returns the second one. All calls have been staged, and
// the ledger has begun.
func (s *Succession[T]) Begin(now time.Time) *Planner[T] {
	s.from.leaving, s.to.arriving = nil, s
	s.from.wheel.Cancel(s.from.parked.timeout)
	s.to.trip, s.to.idle, s.to.changed = s.from.trip, s.from.idle, true
	for i := range s.to.limits { // the number of calls may be another one
		if q := s.to.keys[keyID{limit: i}]; q != nil {
			s.to.check(now, q)
		}
	}
	return s.to
}

// Settle puts a call where its double is; false if it has none. Its demand is the new one
// from then on.
func (s *Succession[T]) Settle(now time.Time, it *Item[T]) bool {
	if s == nil || s.doubles[it] == nil {
		return false
	}
	double := s.doubles[it]
	s.forget(it, double)
	s.from.wheel.Cancel(s.from.classes[it.Demand.ID].at.key.timeout)
	cl := s.to.classes[double.Demand.ID]
	cl.calls.replace(double, it)
	it.Demand = double.Demand
	if q := cl.at.key; q.first() == cl {
		s.to.check(now, q)
	}
	if len(s.doubles) == 0 {
		s.to.arriving = nil
	}
	return true
}

// Abandon gives a succession up that has not begun: it takes out n doubles, and reports
// whether there are more.
func (s *Succession[T]) Abandon(now time.Time, n int) (more bool) {
	s.from.leaving = nil
	for it := range s.doubles {
		if n--; n < 0 {
			return true
		}
		s.left(now, it)
	}
	return false
}

func (s *Succession[T]) forget(it, double *Item[T]) {
	delete(s.doubles, it)
	delete(s.owners, double)
}

// owner settles the call of a double, and returns its item.
func (s *Succession[T]) owner(now time.Time, it *Item[T]) *Item[T] {
	if s != nil && s.owners[it] != nil {
		it = s.owners[it]
		s.Settle(now, it)
	}
	return it
}

// added notes that a call was added to the first planner.
func (s *Succession[T]) added(it *Item[T]) {
	if s != nil {
		s.late = append(s.late, it)
	}
}

// left takes out the double of a call that leaves the first planner.
func (s *Succession[T]) left(now time.Time, it *Item[T]) {
	if s == nil || s.doubles[it] == nil {
		return
	}
	double := s.doubles[it]
	s.forget(it, double)
	s.to.Remove(now, double)
}

// check looks again at the key queues of needs in the first planner.
func (s *Succession[T]) check(now time.Time, needs []quota.Need) {
	if s == nil {
		return
	}
	for _, n := range needs {
		if i := slices.Index(s.kept, n.Limit); i >= 0 {
			n.Limit = i
			s.to.Check(now, []quota.Need{n})
		}
	}
}

// checkLimit is check for all keys of a limit.
func (s *Succession[T]) checkLimit(now time.Time, limit int) {
	if s == nil {
		return
	}
	if i := slices.Index(s.kept, limit); i >= 0 {
		s.to.CheckLimit(now, i)
	}
}
