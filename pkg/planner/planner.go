// Package planner decides which call of an upstream goes when permits are free, and
// estimates when the others will go.
//
//	p := planner.New[*call](origin, wheel, ledger, limits, weight)
//	p.Add(now, item)                                     // a call waits
//	p.Dispatch(now, most, func(c *call) { … })           // takes permits for the calls that go
//	forecast := p.ETA(now, item, planner.Elsewhere{})    // when will it go, and which limit holds it?
//
// A Planner is passive: it takes now, owns no goroutine, clock or lock, and knows
// limits, keys and costs, not requests. Its owner also owns its ledger (package quota)
// and its wheel: it calls Check when permits are back or a pause begins or ends, and
// Dispatch when the wheel is due.
//
// # Order
//
// The call with the highest priority goes first, then the call of the flow that has had
// the least for its weight, then the oldest (start-time fair queueing: Goyal, Vin and
// Cheng, SIGCOMM 1996). A flow pays cost/weight of virtual time for a call; one that was
// idle begins where the others stand. Flows a and b with weights 1 and 2, their calls
// from the oldest to the youngest:
//
//	goes                a1  b1  b2  a2  b3  b4
//	virtual time of a   0   1   1   1   2   2
//	virtual time of b   0   0   ½   1   1   1½
//
// # Where calls wait
//
// Calls of one flow that need the same permits are a class. It waits at one key: behind
// an earlier call that lacks a permit there, or else at the last limit that stops it.
// Here limit app and key 18 of limit trade are full:
//
//	key queue    flow queue   class, by its needs    calls, oldest first
//	app          a            app, trade:17          #5 #9
//	                          app                    #6
//	             b            app                    #7
//	trade:18     b            app, trade:18          #3 #8
//
// Nothing is booked ahead, so a cancelled call leaves no hole. A full key blocks no call
// of another key. A permit that comes back wakes the key queue that it opens, and no
// other; the class with the first call takes its permits, or moves on if one is missing.
//
// # Calls that need several permits
//
// While the first call of a key queue lacks permits of that key only, no later call may
// take them: calls that cost 1 must not starve one that costs 2. A call that lacks
// permits of two limits reserves none: it is parked, and looked at again when one of them
// may be enough. X needs 2 of limit a and 2 of limit b, which have 2 permits each:
//
//	free of a, b   X                           a younger call that needs 1 of a
//	  1    0       is parked                   goes
//	  1    2       waits at a, reserves a      waits behind X
//	  2    2       goes                        waits for the next permit
//
// Not promised: exact estimates where calls of many flows and costs meet at one key,
// and fairness between classes of one flow beyond priority and age.
package planner

import (
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/internal/heap"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A Timeout is a value of the wheel, which a planner shares with its owner.
type Timeout interface{ Fire(now time.Time) }

// A Planner holds the calls of one upstream that may go as soon as permits are free.
// It has one owner: its methods must not be called concurrently.
type Planner[T any] struct {
	ledger *quota.Ledger
	wheel  *wheel.Wheel[Timeout]
	origin time.Time // of the wheel
	limits []quota.Limit

	classes map[string]*class[T] // by Demand.ID
	flows   flowTable
	keys    map[keyID]*keyQueue[T]
	perKey  []int        // key queues, by limit
	held    []int        // calls of all flows, by the limit at whose key queue their class waits, plus 1
	wanted  []int        // permits of all keys that waiting calls will take, by limit
	entry   *keyQueue[T] // where classes wait that no limit is known to stop
	ready   heap.Heap[*keyQueue[T]]
	parked  parked[T]
	left    int           // classes that a Dispatch may still look at that cannot go
	changed bool          // since parked calls and reservations were last looked at
	idle    time.Time     // when a call last left its class
	trip    time.Duration // of an attempt, smoothed
	empty   empty[T]
	spare   spares[T]

	leaving  *Succession[T] // to another planner, that has not begun
	arriving *Succession[T] // from another one, that is over
}

// New returns a planner without calls. Limits are those of the ledger, in its order;
// weight returns the share of a flow, above 0. Origin is instant 0 of the wheel.
func New[T any](origin time.Time, w *wheel.Wheel[Timeout], ledger *quota.Ledger, limits []quota.Limit, weight func(flow string) float64) *Planner[T] {
	p := &Planner[T]{
		ledger: ledger, wheel: w, origin: origin, limits: limits, empty: newEmpty[T](),
		classes: make(map[string]*class[T]), keys: make(map[keyID]*keyQueue[T]),
		perKey: make([]int, len(limits)), held: make([]int, len(limits)+1), wanted: make([]int, len(limits)), flows: newFlowTable(len(limits), weight),
	}
	p.entry, p.parked = newKeyQueue(p, keyID{limit: -1}), newParked(p)
	p.ready = heap.New(
		func(q *keyQueue[T]) *int { return &q.place },
		func(a, b *keyQueue[T]) bool { return a.rank.before(b.rank) },
	)
	return p
}

// Add lets a call wait. The next Dispatch looks at it.
func (p *Planner[T]) Add(now time.Time, it *Item[T]) {
	p.changed = true
	p.leaving.added(it)
	if len(p.classes) == 0 && now.After(p.idle) {
		p.flows.reset()
	}
	cl := p.class(it)
	p.flows.activate(cl.flow)
	cl.flow.waiting++
	fresh := cl.calls.size() == 0
	cl.calls.add(it)
	cl.counts.add(int(it.Priority), 1)
	q := p.entry
	if fresh {
		q.add(cl)
	} else {
		q = cl.at.key
		cl.count(int(it.Priority), 1)
		q.fix(cl)
	}
	// A queue that is not ready must be looked at again if another call is the first
	// there now: it may need less than the one before it.
	if p.ready.Contains(q) || q != p.parked.queue && cl.calls.first() == it && q.first() == cl {
		p.open(q)
	}
}

// Remove takes out a call that is queued.
func (p *Planner[T]) Remove(now time.Time, it *Item[T]) {
	p.changed = true
	p.arriving.Settle(now, it)
	cl := p.classes[it.Demand.ID]
	q := cl.at.key
	p.remove(now, cl, it)
	p.check(now, q) // the permits that it lacked may be enough for the next
}

func (p *Planner[T]) remove(now time.Time, cl *class[T], it *Item[T]) {
	p.leaving.left(now, it)
	q := cl.at.key
	if cl.calls.size() > 1 {
		cl.count(int(it.Priority), -1)
		cl.counts.add(int(it.Priority), -1)
		cl.calls.remove(it)
		q.fix(cl)
	} else {
		q.remove(cl)
		cl.calls.remove(it)
		p.drop(cl)
	}
	p.rest(q)
	p.flows.leave(cl.flow)
	p.idle = now
}

// Dispatch takes the permits of the calls that can go now, the first of all first, and
// hands each to send. It sends no more calls than most; others that could go are sent by
// the next Dispatch. Send may call Add, Remove and Check. More reports that there are
// classes or reservations left to look at: the wheel fires at once for them.
func (p *Planner[T]) Dispatch(now time.Time, most int, send func(T)) (more bool) {
	p.left = batch
	p.unpark(now)
	for again := true; again; {
		p.recheck(now)
		it := (*Item[T])(nil)
		if most > 0 {
			it = p.next(now)
		}
		if it != nil {
			most--
			send(it.Value)
			p.parked.reserved.restart()
			if p.changed { // by send
				p.unpark(now)
			}
		}
		again = it != nil || p.recheck(now)
	}
	p.sleep(now)
	return p.unfinished()
}

// Probe takes the permits of the call that goes first of all whose demand is Repeatable,
// and takes it out of its class; nil if none can go now. It looks at all classes.
func (p *Planner[T]) Probe(now time.Time) *Item[T] {
	var first *class[T]
	for _, cl := range p.classes {
		if cl.demand.Repeatable && (first == nil || cl.rank().before(first.rank())) && p.free(now, cl.demand) {
			first = cl
		}
	}
	if first == nil {
		return nil
	}
	if _, ok := p.ledger.Take(now, first.demand.Needs); !ok {
		return nil
	}
	p.changed = true
	return p.depart(now, first)
}

// depart takes out the first call of a class, whose permits are taken.
func (p *Planner[T]) depart(now time.Time, cl *class[T]) *Item[T] {
	it := p.arriving.owner(now, cl.calls.first())
	p.flows.pay(cl.flow, cl.demand.Cost)
	p.remove(now, cl, it)
	p.flows.prune()
	return it
}

// next takes the permits of the call that goes first of all that can go now, and takes
// the call out of its class; nil if none can.
func (p *Planner[T]) next(now time.Time) *Item[T] {
	for ; p.ready.Size() > 0 && p.left > 0; p.left-- {
		q := p.ready.First()
		cl := q.first()
		if r := cl.rank(); r != q.rank { // the flow has had a turn elsewhere since
			q.rank = r
			p.ready.Fix(q)
			continue
		}
		if reserved := p.reservedFor(now, cl, q); reserved != nil {
			p.move(now, cl, q, reserved)
			continue
		}
		if p.ready.First() != q { // reservedFor has opened a queue that goes before
			continue
		}
		short, ok := p.ledger.Take(now, cl.demand.Needs)
		if ok {
			return p.depart(now, cl)
		}
		last := cl.keys[short.Need]
		if cl.demand.Cost > 1 {
			last = p.place(now, cl)
		}
		if last == q {
			p.ready.Remove(q)
		} else {
			p.move(now, cl, q, last)
		}
		p.check(now, last)
		if cl.demand.Cost > 1 { // its reservation may end others
			p.parked.reserved.restart()
			p.recheck(now)
		}
	}
	return nil
}

// move lets a class wait at another key queue.
func (p *Planner[T]) move(now time.Time, cl *class[T], from, to *keyQueue[T]) {
	from.remove(cl)
	p.rest(from)
	to.add(cl)
	if p.ready.Contains(to) {
		p.open(to)
	}
	switch {
	case to == p.parked.queue:
		p.parked.classes.add(cl)
		p.parked.expect(now, cl)
	case cl.demand.Cost > 1 && to != p.entry: // its reservation may end others, or respect one
		p.parked.reserved.add(to)
		p.parked.reserved.restart()
	}
}

// rest lets a key queue be looked at no more if it is empty.
func (p *Planner[T]) rest(q *keyQueue[T]) {
	switch {
	case !q.empty():
	case p.ready.Contains(q):
		p.ready.Remove(q)
	default:
		p.wheel.Cancel(q.timeout)
	}
}

// Check looks again at the key queues of some needs, after permits have come back or a
// pause has begun or ended. The next Dispatch sends the calls.
func (p *Planner[T]) Check(now time.Time, needs []quota.Need) {
	p.changed = true
	for _, n := range needs {
		if q := p.keys[keyID{n.Limit, n.Key}]; q != nil {
			p.check(now, q)
		}
	}
	p.leaving.check(now, needs)
}

// CheckLimit is Check for all keys of a limit.
func (p *Planner[T]) CheckLimit(now time.Time, limit int) {
	p.changed = true
	for id, q := range p.keys {
		if id.limit == limit {
			p.check(now, q)
		}
	}
	p.leaving.checkLimit(now, limit)
}

// check makes a key queue ready if its first class can pass it now; else it has the
// wheel do so when it can.
func (p *Planner[T]) check(now time.Time, q *keyQueue[T]) {
	if q.empty() || p.ready.Contains(q) {
		return
	}
	cl := q.first()
	for i := range cl.keys {
		if cl.keys[i] != q {
			continue
		}
		if at := p.ledger.Next(now, cl.demand.Needs[i]); at.IsZero() || at.After(now) {
			p.wake(q, at)
		} else {
			p.open(q)
		}
	}
}

// wake has the wheel make a key queue ready at an instant. Zero means that an attempt
// has to end first, after which the owner calls Check.
func (p *Planner[T]) wake(q *keyQueue[T], at time.Time) {
	p.wheel.Cancel(q.timeout)
	if !at.IsZero() {
		q.timeout = p.wheel.Insert(at.Sub(p.origin), q)
	}
}

// open makes a key queue ready, so that Dispatch looks at it, and puts it in order.
func (p *Planner[T]) open(q *keyQueue[T]) {
	q.rank = q.first().rank()
	if p.ready.Contains(q) {
		p.ready.Fix(q)
		return
	}
	p.wheel.Cancel(q.timeout)
	p.ready.Add(q)
}

// class returns the class of a call, a new one if there is none.
func (p *Planner[T]) class(it *Item[T]) *class[T] {
	cl := p.classes[it.Demand.ID]
	if cl == nil {
		cl = p.spare.classes.take()
		cl.demand, cl.flow, cl.keys = it.Demand, p.flows.of(it.Demand.Flow), slices.Grow(cl.keys[:0], len(it.Demand.Needs))
		for _, n := range it.Demand.Needs {
			id := keyID{n.Limit, n.Key}
			q := p.keys[id]
			if q == nil {
				q = newKeyQueue(p, id)
				p.keys[id] = q
				p.perKey[id.limit]++
			}
			q.classes++
			cl.keys = append(cl.keys, q)
		}
		p.classes[it.Demand.ID] = cl
	}
	it.Demand = cl.demand // calls of a class share it
	return cl
}

// drop forgets an empty class, and the key queues that it alone needed.
func (p *Planner[T]) drop(cl *class[T]) {
	delete(p.classes, cl.demand.ID)
	for _, q := range cl.keys {
		if q.classes--; q.classes == 0 {
			delete(p.keys, q.id)
			p.perKey[q.id.limit]--
			p.spare.keys.put(q)
		}
	}
	cl.counts = cl.counts[:0]
	p.spare.classes.put(cl)
}
