package scheduler

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A planner decides which call of an upstream goes, when its slot fires and not
// before. It is owned by the loop, takes now, and puts into the wheel the next
// opening of each gate at which somebody queues.
type planner struct {
	*service
	ledger *quota.Ledger
	wheel  *wheel.Wheel[timeouter]
	origin time.Time // of the wheel

	lanes   map[string]*lane
	flows   map[string]*flow
	gates   map[gateID]*gate
	entry   *gate // where lanes queue that nothing is known to stop
	open    pile[*gate]
	repeats *repeats
	virtual float64 // start tag of the call that went last

	waiting int // calls, in lanes or before their time
	sending int
	unknown int           // calls that were submitted and wait for a decision
	bytes   int64         // of the bodies and headers of all these
	trip    time.Duration // of an attempt, smoothed
	down    int           // failed dials in a row
	trouble time.Time     // until when a pause keeps the whole upstream
}

func newPlanner(sv *service, w *wheel.Wheel[timeouter], origin time.Time) *planner {
	p := &planner{
		service: sv, wheel: w, origin: origin,
		ledger: quota.New(origin, sv.quotas()...),
		lanes:  make(map[string]*lane), flows: make(map[string]*flow), gates: make(map[gateID]*gate),
	}
	p.repeats = newRepeats(p)
	p.entry = newGate(p, gateID{limit: -1})
	p.open.place = func(g *gate) *int { return &g.place }
	p.open.before = func(a, b *gate) bool { return a.rank.before(b.rank) }
	return p
}

// add puts a call into its lane.
func (p *planner) add(c *call) {
	l := p.lane(c)
	fresh := l.calls.Len() == 0
	if fresh && l.flow.waiting == 0 {
		l.flow.virtual = max(l.flow.virtual, p.virtual) // what it did not use is gone
	}
	l.flow.waiting++
	l.calls.add(c)
	c.queued.lane = l
	c.queued.added = c.queued.added[:0]
	for i, g := range l.gates {
		t := g.tallyOf(c.Priority)
		before := t.added
		if c.burnt+c.limited+c.unreached > 0 { // it keeps its age: nobody of its priority is ahead
			before = t.removed
		}
		c.queued.added = append(c.queued.added, before)
		t.added += l.needs[i].Cost
	}
	g := p.entry
	if fresh {
		g.add(l)
	} else {
		g = l.share.gate
		g.fix(l)
	}
	if g == p.entry || p.open.contains(g) {
		p.openGate(g)
	}
}

// remove takes a call out of its lane.
func (p *planner) remove(c *call) {
	l := c.queued.lane
	for i, g := range l.gates {
		g.tallyOf(c.Priority).removed += l.needs[i].Cost
	}
	c.queued.lane = nil
	l.flow.waiting--
	g := l.share.gate
	if l.calls.Len() > 1 {
		l.calls.remove(c)
		g.fix(l)
	} else {
		g.remove(l)
		l.calls.remove(c)
		p.drop(l)
	}
	if g.empty() && p.open.contains(g) {
		p.open.remove(g)
	}
}

// next takes the permits of the call that goes first of all that can go now, and
// the call out of its lane; nil if none can.
func (p *planner) next(now time.Time) *call {
	for p.open.Len() > 0 {
		g := p.open.first()
		l := g.first()
		if r := l.rank(); r != g.rank { // its flow went elsewhere meanwhile
			g.rank = r
			p.open.fix(g)
			continue
		}
		if behind := p.behind(l, g); behind != nil {
			p.move(l, g, behind)
			continue
		}
		short, ok := p.ledger.Take(now, l.needs)
		if ok {
			c := l.calls.first()
			p.remove(c)
			p.virtual = l.flow.virtual
			l.flow.virtual += 1 / l.flow.weight
			return c
		}
		last := l.gates[short.Need]
		if last == g {
			p.open.remove(g)
		} else {
			p.move(l, g, last)
		}
		p.check(now, last)
	}
	return nil
}

// behind returns a closed gate of the lane at which an earlier call waits: it
// must not take the permits for which that one waits.
func (p *planner) behind(l *lane, at *gate) *gate {
	for _, g := range l.gates {
		if g != at && !g.empty() && !p.open.contains(g) && g.first().rank().before(l.rank()) {
			return g
		}
	}
	return nil
}

func (p *planner) move(l *lane, from, to *gate) {
	from.remove(l)
	if from.empty() {
		p.open.remove(from)
	}
	to.add(l)
	if p.open.contains(to) {
		p.openGate(to)
	}
}

// back ends an attempt and opens the gates that its permits opened.
func (p *planner) back(now time.Time, needs []quota.Need, a quota.Attempt) {
	p.ledger.Return(now, needs, a)
	for _, n := range needs {
		if g := p.gates[gateID{n.Limit, n.Key}]; g != nil {
			p.check(now, g)
		}
	}
}

// check opens a closed gate if its first lane may pass it, or foresees when.
func (p *planner) check(now time.Time, g *gate) {
	if g.empty() || p.open.contains(g) {
		return
	}
	l := g.first()
	for i := range l.gates {
		if l.gates[i] != g {
			continue
		}
		if at := p.ledger.Next(now, l.needs[i]); at.IsZero() || at.After(now) {
			p.wake(g, at)
		} else {
			p.openGate(g)
		}
	}
}

// checkLimit looks again at all gates of a limit.
func (p *planner) checkLimit(now time.Time, limit int) {
	for id, g := range p.gates {
		if id.limit == limit {
			p.check(now, g)
		}
	}
}

// wake has the wheel open the gate at an instant; zero: only what comes back opens it.
func (p *planner) wake(g *gate, at time.Time) {
	p.wheel.Cancel(g.timeout)
	if !at.IsZero() {
		g.timeout = p.wheel.Insert(at.Sub(p.origin), g)
	}
}

// timeoutAt opens the gate: its slot has fired.
func (g *gate) timeoutAt(time.Time) {
	if !g.empty() {
		g.planner.openGate(g)
	}
}

// openGate lets next look at the gate, and puts it in order.
func (p *planner) openGate(g *gate) {
	g.rank = g.first().rank()
	if p.open.contains(g) {
		p.open.fix(g)
		return
	}
	p.wheel.Cancel(g.timeout)
	p.open.add(g)
}

// lane returns the lane of a call, a new one if there is none.
func (p *planner) lane(c *call) *lane {
	id := laneID(c.flowName, c.needs)
	l := p.lanes[id]
	if l == nil {
		l = newLane(id, p.flow(c.flowName), c.needs)
		for _, n := range c.needs {
			id := gateID{n.Limit, n.Key}
			g := p.gates[id]
			if g == nil {
				g = newGate(p, id)
				p.gates[id] = g
			}
			g.lanes++
			l.gates = append(l.gates, g)
		}
		p.lanes[id] = l
	}
	return l
}

// drop forgets an empty lane, and what only it needed.
func (p *planner) drop(l *lane) {
	delete(p.lanes, l.id)
	for _, g := range l.gates {
		if g.lanes--; g.lanes == 0 {
			p.wheel.Cancel(g.timeout)
			delete(p.gates, g.id)
		}
	}
}

func laneID(flow string, needs []quota.Need) string {
	var b strings.Builder
	b.WriteString(strconv.Quote(flow))
	for _, n := range needs {
		b.WriteByte(' ')
		b.WriteString(strconv.Itoa(n.Limit))
		b.WriteByte('*')
		b.WriteString(strconv.Itoa(n.Cost))
		b.WriteString(strconv.Quote(n.Key))
	}
	return b.String()
}

func (p *planner) flow(name string) *flow {
	f := p.flows[name]
	if f == nil {
		if len(p.flows) > 64 && len(p.flows) > 2*len(p.lanes) {
			p.forgetFlows()
		}
		f = &flow{name: name, weight: p.weight(name)}
		p.flows[name] = f
	}
	return f
}

// forgetFlows drops the flows that have nothing waiting and no more than their due.
func (p *planner) forgetFlows() {
	for name, f := range p.flows {
		if f.waiting == 0 && f.virtual <= p.virtual {
			delete(p.flows, name)
		}
	}
}

// eta returns when a call can be expected to go, and what it waits for, the
// last of it. A call that is not queued yet is put behind those of its priority.
func (p *planner) eta(now time.Time, c *call) (time.Time, *WaitingFor) {
	from := now
	why := &WaitingFor{}
	if c.due.After(now) {
		from = c.due
	}
	why.Until = from
	for i, n := range c.needs {
		if n.Limit == 0 && p.down > 0 { // one probe at a time says nothing of what follows
			if p.trouble.After(why.Until) {
				*why = WaitingFor{Limit: ConcurrencyLimit, Until: p.trouble}
			}
			continue
		}
		ahead := 0
		if g := p.gates[gateID{n.Limit, n.Key}]; g != nil {
			added := g.tallyOf(c.Priority).added
			if c.queued.lane != nil {
				added = c.queued.added[i]
			}
			ahead = g.ahead(c.Priority, added)
		}
		if at := p.ledger.ETA(now, n, ahead, p.trip); at.After(why.Until) {
			*why = WaitingFor{Limit: p.limits[n.Limit].name, Key: n.Key, Until: at, Ahead: ahead}
		}
	}
	return why.Until, why
}

// observe learns how long attempts take.
func (p *planner) observe(trip time.Duration) {
	if p.trip == 0 {
		p.trip = trip
	}
	p.trip += (trip - p.trip) / 8
}
