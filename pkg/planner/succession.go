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
// Settle puts a call where its double is, and is done by itself for a call that goes or is
// removed before. An ETA needs it.
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
// longest. Of several, and if none does, that is the key which most classes need: if it is
// full after the first of them, the others stay there.
func (s *Succession[T]) seat(now time.Time, cl *class[T]) {
	at, longest := s.to.entry, time.Duration(0)
	for i, q := range cl.keys {
		wait := s.to.wait(now, cl.demand.Needs[i])
		if wait > longest || wait == longest && q.classes >= at.classes {
			at, longest = q, wait
		}
	}
	if at != s.to.entry { // it needs a permit
		s.to.move(now, cl, s.to.entry, at)
		s.to.check(now, at)
	}
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
	s.from.wheel.Cancel(s.from.parked.timeout)
	s.to.trip = s.from.trip
	if len(s.doubles) > 0 {
		s.to.arriving = s
	}
	for i := range s.to.limits { // a ledger that has begun knows the spacing, too
		s.to.Check(now, []quota.Need{{Limit: i}})
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
	s.to.check(now, cl.at.key)
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
		if n == 0 {
			return true
		}
		n--
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

// check looks again at the key queues of needs in the first planner. A limit that is not
// kept has none in the second one.
func (s *Succession[T]) check(now time.Time, needs []quota.Need) {
	if s == nil {
		return
	}
	for _, n := range needs {
		n.Limit = slices.Index(s.kept, n.Limit)
		s.to.Check(now, []quota.Need{n})
	}
}

// checkLimit is check for all keys of a limit.
func (s *Succession[T]) checkLimit(now time.Time, limit int) {
	if s != nil {
		s.to.CheckLimit(now, slices.Index(s.kept, limit))
	}
}
