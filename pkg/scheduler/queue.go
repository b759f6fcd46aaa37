package scheduler

import (
	"container/heap"
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// The calls of an upstream wait in a tree. From the leaves up:
//
//	call   one call
//	lane   the calls of one flow that need the same permits
//	share  the lanes of one flow that queue at one gate
//	gate   one key of a limit, and the lanes that cannot go before it opens
//
// At each level the best comes first: by priority, then by the flow that has had
// least of its share, then by age. A lane queues at one gate at a time, the one
// that it will pass last as things stand, so a full key keeps nobody else, and
// an opening gate looks at nobody who cannot use it.

// A rank orders whatever waits; the smaller goes first.
type rank struct {
	priority int
	virtual  float64 // the flow's virtual time: what it has had, over its weight
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

// A pile is a heap whose items know their place in it.
type pile[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // of an item in items, plus 1; 0 when it is in none
}

func (p *pile[T]) Len() int           { return len(p.items) }
func (p *pile[T]) Less(i, j int) bool { return p.before(p.items[i], p.items[j]) }
func (p *pile[T]) Swap(i, j int) {
	p.items[i], p.items[j] = p.items[j], p.items[i]
	*p.place(p.items[i]), *p.place(p.items[j]) = i+1, j+1
}

func (p *pile[T]) Push(x any) {
	p.items = append(p.items, x.(T))
	*p.place(x.(T)) = len(p.items)
}

func (p *pile[T]) Pop() any {
	last := len(p.items) - 1
	x := p.items[last]
	var zero T
	p.items[last] = zero
	p.items = p.items[:last]
	*p.place(x) = 0
	return x
}

func (p *pile[T]) first() T          { return p.items[0] }
func (p *pile[T]) add(x T)           { heap.Push(p, x) }
func (p *pile[T]) remove(x T)        { heap.Remove(p, *p.place(x)-1) }
func (p *pile[T]) fix(x T)           { heap.Fix(p, *p.place(x)-1) }
func (p *pile[T]) contains(x T) bool { return *p.place(x) > 0 }

func popFirst[T any](p *pile[T]) T { return heap.Pop(p).(T) }

// A flow is a party that shares fairly with others, by start-time fair queueing
// (Goyal, Vin and Cheng, SIGCOMM 1996).
type flow struct {
	name    string
	weight  float64
	virtual float64 // start tag of its next call
	waiting int
	queued  []int // calls, by the limit at whose gate their lane queues, plus 1
	place   int   // among those that rest: nothing waits, but they have had more than their share
}

// A lane holds calls that are alike but for priority and age.
type lane struct {
	route *route
	flow  *flow
	gates []*gate // one for each need
	calls tree

	census census // of its calls
	share  *share // where it queues
	place  int
	aside  bool // in the round of those that are aside
}

// rank is that of the lane's first call.
func (l *lane) rank() rank {
	c := l.calls.first()
	return rank{int(c.Priority), l.flow.virtual, c.seq}
}

// A census counts by priority, the highest first.
type census []struct{ priority, n int }

func (c *census) add(priority, n int) {
	i, ok := slices.BinarySearchFunc(*c, priority, func(e struct{ priority, n int }, p int) int { return p - e.priority })
	if !ok {
		*c = slices.Insert(*c, i, struct{ priority, n int }{priority, 0})
	}
	if (*c)[i].n += n; (*c)[i].n == 0 {
		*c = slices.Delete(*c, i, i+1)
	}
}

// split returns how many are above a priority, and how many are at it.
func (c census) split(priority int) (above, at int) {
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

// A share is what one flow has at one gate.
type share struct {
	flow    *flow
	gate    *gate
	lanes   pile[*lane]
	census  census  // of permits
	virtual float64 // the flow's, as of when the share was last put in order
	place   int
}

func (s *share) rank() rank {
	c := s.lanes.first().calls.first()
	return rank{int(c.Priority), s.virtual, c.seq}
}

// A gate is one key of a limit with the lanes that queue at it.
type gate struct {
	id     gateID
	shares pile[*share]
	flows  map[*flow]*share
	lanes  int // lanes that have it among their gates

	rank    rank // of its first lane, as of when it was last put in order
	place   int  // among the open gates
	timeout wheel.Handle
	planner *planner
	claimed bool // in the round of those with claims

	// waiting are the permits that waiting calls will take here, by the limit at
	// whose gate their lane queues, plus 1: those of the entry first.
	waiting []int
}

// A gateID names a gate. The gate of a limit below 0 has no limit: there lanes
// queue that nothing is known to stop.
type gateID struct {
	limit int
	key   string
}

func newGate(p *planner, id gateID) *gate {
	g := &gate{id: id, planner: p, flows: make(map[*flow]*share), waiting: make([]int, len(p.limits)+1)}
	g.shares.place = func(s *share) *int { return &s.place }
	g.shares.before = func(a, b *share) bool { return a.rank().before(b.rank()) }
	return g
}

// first returns the lane that goes first. A flow's virtual time grows while its
// shares lie in other gates, so each is put in order again when it comes up; as it
// only grows, the first one in order is the first.
func (g *gate) first() *lane {
	for {
		s := g.shares.first()
		if s.virtual == s.flow.virtual {
			return s.lanes.first()
		}
		s.virtual = s.flow.virtual
		g.shares.fix(s)
	}
}

func (g *gate) empty() bool { return g.shares.Len() == 0 }

// add lets a lane queue at the gate.
func (g *gate) add(l *lane) {
	s := g.flows[l.flow]
	if s == nil {
		s = &share{flow: l.flow, gate: g, virtual: l.flow.virtual}
		s.lanes.place = func(l *lane) *int { return &l.place }
		s.lanes.before = func(a, b *lane) bool { return a.rank().before(b.rank()) }
		g.flows[l.flow] = s
	}
	l.share = s
	l.count(1)
	s.lanes.add(l)
	if g.shares.contains(s) {
		g.shares.fix(s)
	} else {
		g.shares.add(s)
	}
}

// remove takes a lane out of the gate's queue.
func (g *gate) remove(l *lane) {
	s := l.share
	l.count(-1)
	if s.lanes.remove(l); s.lanes.Len() > 0 {
		g.shares.fix(s)
	} else {
		g.shares.remove(s)
		delete(g.flows, s.flow)
	}
	l.share = nil
}

// fix puts a lane in order whose first call has changed.
func (g *gate) fix(l *lane) {
	l.share.lanes.fix(l)
	g.shares.fix(l.share)
}

// count takes note that all calls of a lane wait where it queues, or do not any more:
// sign is 1 or -1.
func (l *lane) count(sign int) {
	for _, e := range l.census {
		l.countAt(e.priority, sign*e.n)
	}
}

// countAt takes note of calls that have a priority.
func (l *lane) countAt(priority, calls int) {
	at := l.share.gate.id.limit + 1
	for i, g := range l.gates {
		g.waiting[at] += calls * l.route.needs[i].Cost
	}
	l.flow.queued[at] += calls
	l.share.gate.planner.queued[at] += calls
	l.share.census.add(priority, calls*l.cost(l.share.gate))
}

// cost is what a call of the lane takes at a gate.
func (l *lane) cost(at *gate) int {
	for i, g := range l.gates {
		if g == at {
			return l.route.needs[i].Cost
		}
	}
	return 1
}

// queued is a call's place in a lane.
type queued struct {
	lane *lane
	node
}
