package planner

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/internal/heap"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A Demand is the permits and the turn that a call takes. Items may share it, and it
// must not change. [NewDemand] makes one.
type Demand struct {
	// ID names all other fields: equal demands have the same ID, others have not.
	ID string
	// Needs are the permits, at most one need per limit.
	Needs []quota.Need
	// Flow is the flow whose turn the call takes. Cost is the price of the turn, the
	// greatest cost of its needs, and at least 1.
	Flow string
	Cost int
	// Repeatable tells that the upstream recognises a repeat of such a call, or that it
	// changes nothing: see [Planner.Probe].
	Repeatable bool
}

// NewDemand returns the demand of a call of a flow, to which the needs belong from then on.
func NewDemand(flow string, needs []quota.Need, repeatable bool) *Demand {
	d := &Demand{Needs: slices.Clip(needs), Flow: flow, Cost: 1, Repeatable: repeatable}
	id := strconv.AppendQuote(make([]byte, 0, 64), flow)
	id = strconv.AppendBool(id, repeatable)
	for _, n := range d.Needs {
		d.Cost = max(d.Cost, n.Cost)
		id = strconv.AppendInt(append(id, ' '), int64(n.Limit), 10)
		id = strconv.AppendInt(append(id, '*'), int64(n.Cost), 10)
		id = strconv.AppendQuote(id, n.Key)
	}
	d.ID = string(id)
	return d
}

// An Item is a call as a Planner knows it. It is embedded in the owner's own type,
// and Value leads back there. While it is queued only the Planner changes it.
type Item[T any] struct {
	Value    T
	Demand   *Demand
	Seq      uint64 // age: a smaller one is older; unique and not 0
	Priority int16  // a higher one goes first

	count       uint32   // items of the subtree in the treap of its class; 0 outside
	left, right *Item[T] // subtrees
}

// Queued reports whether the item waits in a planner.
func (it *Item[T]) Queued() bool { return it.count > 0 }

// A rank orders calls, and the classes and queues of which they are the first; the
// smaller goes first.
type rank struct {
	priority int
	virtual  float64 // virtual time of the flow
	seq      uint64
}

func (r rank) before(o rank) bool {
	switch {
	case r.priority != o.priority:
		return r.priority > o.priority
	case r.virtual != o.virtual:
		return r.virtual < o.virtual
	}
	return r.seq < o.seq
}

// lowest is behind every rank.
var lowest = rank{priority: math.MinInt16 - 1}

// A class holds the calls of one flow that have equal demands: they differ in
// priority and age only.
type class[T any] struct {
	demand *Demand
	flow   *flow
	keys   []*keyQueue[T] // one for each need
	calls  treap[T]

	counts priorityCounts // of its calls
	at     *flowQueue[T]  // where it waits
	place  int            // there
	parked bool           // in the scan of parked classes, maybe not parked any more
}

// rank is that of the first call.
func (cl *class[T]) rank() rank {
	it := cl.calls.first()
	return rank{int(it.Priority), cl.flow.virtual, it.Seq}
}

// cost is the number of permits that a call of the class takes at a key.
func (cl *class[T]) cost(at *keyQueue[T]) int {
	for i, q := range cl.keys {
		if q == at {
			return cl.demand.Needs[i].Cost
		}
	}
	return 1
}

// countAll adds all calls of a class to the counts of the key queue where it waits; sign
// is 1, or -1 to take them out.
func (cl *class[T]) countAll(sign int) {
	for _, c := range cl.counts {
		cl.count(c.priority, sign*c.n)
	}
}

// count adds calls of one priority to the counts of the key queue where the class waits.
func (cl *class[T]) count(priority, calls int) {
	held := cl.at.key.id.limit + 1
	for i, q := range cl.keys {
		q.waiting[held] += calls * cl.demand.Needs[i].Cost
		q.planner.wanted[q.id.limit] += calls * cl.demand.Needs[i].Cost
	}
	cl.flow.held[held] += calls
	cl.at.key.planner.held[held] += calls
	cl.at.counts.add(priority, calls*cl.cost(cl.at.key))
}

// priorityCounts counts by priority, the highest first.
type priorityCounts []struct{ priority, n int }

func (c *priorityCounts) add(priority, n int) {
	i, ok := slices.BinarySearchFunc(*c, priority, func(e struct{ priority, n int }, p int) int { return p - e.priority })
	if !ok {
		*c = slices.Insert(*c, i, struct{ priority, n int }{priority, 0})
	}
	if (*c)[i].n += n; (*c)[i].n == 0 {
		*c = slices.Delete(*c, i, i+1)
	}
}

// split returns the counts above a priority, and at it.
func (c priorityCounts) split(priority int) (above, at int) {
	for _, e := range c {
		switch {
		case e.priority > priority:
			above += e.n
		case e.priority == priority:
			at = e.n
		}
	}
	return above, at
}

// A flowQueue holds the classes of one flow at one key queue.
type flowQueue[T any] struct {
	flow    *flow
	key     *keyQueue[T]
	classes heap.Heap[*class[T]]
	counts  priorityCounts // of permits
	virtual float64        // of the flow, when the queue was last put in order
	place   int
}

func (f *flowQueue[T]) rank() rank {
	it := f.classes.First().calls.first()
	return rank{int(it.Priority), f.virtual, it.Seq}
}

// A keyQueue is one key of a limit with the classes that wait there.
type keyQueue[T any] struct {
	id      keyID
	flows   heap.Heap[*flowQueue[T]]
	byFlow  map[*flow]*flowQueue[T] // nil until a class waits here
	spare   spare[flowQueue[T]]
	classes int // that need the key, wherever they wait

	rank     rank // of the first class, when the queue was last put in order
	place    int  // among the ready ones
	timeout  wheel.Handle
	planner  *Planner[T]
	reserved bool // in the scan of reservations, maybe without one

	// waiting are the permits that waiting calls will take here, by the limit at
	// whose key queue their class waits, plus 1: those of the entry queue first.
	waiting []int
}

// A keyID names a key queue. That of a limit below 0 has no limit: classes wait there
// that no limit is known to stop.
type keyID struct {
	limit int
	key   string
}

// empty holds the empty heaps of key queues and flow queues, to be copied: each closure
// of generic code costs an allocation.
type empty[T any] struct {
	flows   heap.Heap[*flowQueue[T]]
	classes heap.Heap[*class[T]]
}

func newEmpty[T any]() empty[T] {
	return empty[T]{
		flows: heap.New(
			func(f *flowQueue[T]) *int { return &f.place },
			func(a, b *flowQueue[T]) bool { return a.rank().before(b.rank()) },
		),
		classes: heap.New(
			func(cl *class[T]) *int { return &cl.place },
			func(a, b *class[T]) bool { return a.rank().before(b.rank()) },
		),
	}
}

// newKeyQueue returns an empty key queue. A spare one has none of its state left but its place
// in the scan of reservations.
func newKeyQueue[T any](p *Planner[T], id keyID) *keyQueue[T] {
	q := p.spare.keys.take()
	if q.planner == nil {
		q.planner, q.flows, q.waiting = p, p.empty.flows, make([]int, len(p.limits)+1)
	}
	q.id = id
	return q
}

// spares are the empty objects of a planner.
type spares[T any] struct {
	classes spare[class[T]]
	keys    spare[keyQueue[T]]
}

// A spare keeps a few empty objects for their next use: a call that waits alone has a class, a
// flow and key queues of its own.
type spare[X any] struct{ items []*X }

// maxSpare bounds the objects of a spare.
const maxSpare = 16

// take returns a spare object, or a zero one.
func (s *spare[X]) take() *X {
	last := len(s.items) - 1
	if last < 0 {
		return new(X)
	}
	x := s.items[last]
	s.items = s.items[:last]
	return x
}

func (s *spare[X]) put(x *X) {
	if len(s.items) < maxSpare {
		s.items = append(s.items, x)
	}
}

// first returns the class that goes first. The virtual time of a flow grows while its
// classes wait in several key queues, so a flow queue is put in order again when it
// comes up; as virtual time only grows, the first one in order is the first.
func (q *keyQueue[T]) first() *class[T] {
	for {
		f := q.flows.First()
		if f.virtual == f.flow.virtual {
			return f.classes.First()
		}
		f.virtual = f.flow.virtual
		q.flows.Fix(f)
	}
}

func (q *keyQueue[T]) empty() bool { return q.flows.Size() == 0 }

// add lets a class wait here.
func (q *keyQueue[T]) add(cl *class[T]) {
	f := q.byFlow[cl.flow]
	if f == nil {
		f = q.spare.take()
		f.flow, f.virtual = cl.flow, cl.flow.virtual
		if f.key == nil {
			f.key, f.classes = q, q.planner.empty.classes
		}
		if q.byFlow == nil {
			q.byFlow = make(map[*flow]*flowQueue[T])
		}
		q.byFlow[cl.flow] = f
	}
	cl.at = f
	cl.countAll(1)
	f.classes.Add(cl)
	if q.flows.Contains(f) {
		q.flows.Fix(f)
	} else {
		q.flows.Add(f)
	}
}

// remove takes a class out.
func (q *keyQueue[T]) remove(cl *class[T]) {
	f := cl.at
	cl.countAll(-1)
	if f.classes.Remove(cl); f.classes.Size() > 0 {
		q.flows.Fix(f)
	} else {
		q.flows.Remove(f)
		delete(q.byFlow, f.flow)
		q.spare.put(f)
	}
	cl.at = nil
}

// fix puts a class in order whose first call has changed.
func (q *keyQueue[T]) fix(cl *class[T]) {
	cl.at.classes.Fix(cl)
	q.flows.Fix(cl.at)
}

// total is the number of permits that waiting calls will take here.
func (q *keyQueue[T]) total() int {
	n := 0
	for _, w := range q.waiting {
		n += w
	}
	return n
}

// Fire makes the key queue ready: its slot has come.
func (q *keyQueue[T]) Fire(time.Time) {
	q.planner.changed = true
	q.planner.open(q)
}
