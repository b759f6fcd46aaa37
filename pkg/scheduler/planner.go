package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
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
	resting pile[*flow] // those with nothing waiting, kept for what they have had
	gates   map[gateID]*gate
	keys    []int // gates, by limit
	queued  []int // calls of all flows, by the limit at whose gate their lane queues, plus 1
	entry   *gate // where lanes queue that nothing is known to stop
	aside   *aside
	open    pile[*gate]
	repeats *repeats
	virtual float64   // greatest start tag of a call that went
	idle    time.Time // when a call last left its lane

	waiting int // calls, in lanes or before their time
	sending int
	unknown int           // calls that were submitted and wait for a decision
	bytes   int64         // of the bodies and headers of all these
	retired bool          // not in the configuration any more
	trip    time.Duration // of an attempt, smoothed
	strikes map[gateID]strike
	door    door
	spender *spender // nil if nothing outlives the process
	backlog *backlog // nil if nothing does
}

func newPlanner(sv *service, w *wheel.Wheel[timeouter], origin time.Time) *planner {
	p := &planner{wheel: w, origin: origin, ledger: quota.New(origin, sv.quotas()...), flows: make(map[string]*flow)}
	p.resting.place = func(f *flow) *int { return &f.place }
	p.resting.before = func(a, b *flow) bool { return a.virtual < b.virtual }
	p.configure(sv)
	p.repeats = newRepeats(p)
	return p
}

// configure begins with empty queues under a configuration.
func (p *planner) configure(sv *service) {
	p.service = sv
	p.lanes, p.gates, p.keys = make(map[string]*lane), make(map[gateID]*gate), make([]int, len(sv.limits))
	p.queued, p.strikes = make([]int, len(sv.limits)+1), make(map[gateID]strike)
	p.entry = newGate(p, gateID{limit: -1})
	p.aside = newAside(p)
	p.open = pile[*gate]{
		place:  func(g *gate) *int { return &g.place },
		before: func(a, b *gate) bool { return a.rank.before(b.rank) },
	}
}

// add puts a call into its lane.
func (p *planner) add(now time.Time, c *call) {
	if len(p.lanes) == 0 && now.After(p.idle) {
		p.begin()
	}
	l := p.lane(c)
	p.rouse(l.flow)
	l.flow.waiting++
	fresh := l.calls.Len() == 0
	l.calls.add(c)
	l.census.add(int(c.Priority), 1)
	c.queued.lane = l
	g := p.entry
	if fresh {
		g.add(l)
	} else {
		g = l.share.gate
		l.countAt(int(c.Priority), 1)
		g.fix(l)
	}
	// A closed gate must look again if another call is the first there now: it may
	// need less than the one before it.
	if g == p.entry || p.open.contains(g) || g != p.aside.gate && l.calls.first() == c && g.first() == l {
		p.openGate(g)
	}
}

// remove takes a call out of its lane.
func (p *planner) remove(now time.Time, c *call) {
	l := c.queued.lane
	c.queued.lane = nil
	g := l.share.gate
	if l.calls.Len() > 1 {
		l.countAt(int(c.Priority), -1)
		l.census.add(int(c.Priority), -1)
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
	if l.flow.waiting--; l.flow.waiting == 0 {
		p.resting.add(l.flow)
	}
	p.idle = now
}

// dispatch hands over every call that can go now, the first of all first. Their
// permits are taken, and they are in no lane any more.
func (p *planner) dispatch(now time.Time, send func(*call)) {
	p.aside.recall(now)
	for again := true; again; {
		p.aside.lapse(now)
		c := p.next(now)
		if c != nil {
			send(c)
			p.aside.claims.again()
		}
		again = c != nil || p.aside.lapse(now)
	}
	p.aside.sleep(now)
}

// next takes the permits of the call that goes first of all that can go now, and
// the call out of its lane; nil if none can.
func (p *planner) next(now time.Time) *call {
	for p.open.Len() > 0 && p.door.lets(now) {
		g := p.open.first()
		l := g.first()
		if r := l.rank(); r != g.rank { // its flow went elsewhere meanwhile
			g.rank = r
			p.open.fix(g)
			continue
		}
		if behind := p.behind(now, l, g); behind != nil {
			p.move(now, l, g, behind)
			continue
		}
		if p.open.first() != g { // looking for claims has opened one that goes first
			continue
		}
		short, ok := p.ledger.Take(now, l.route.needs)
		if ok {
			c := l.calls.first()
			p.virtual = max(p.virtual, l.flow.virtual)
			l.flow.virtual += float64(l.route.cost) / l.flow.weight
			p.remove(now, c)
			p.awake()
			return c
		}
		last := l.gates[short.Need]
		if l.route.cost > 1 {
			last = p.place(now, l)
		}
		if last == g {
			p.open.remove(g)
		} else {
			p.move(now, l, g, last)
		}
		p.check(now, last)
		if l.route.cost > 1 { // its claim may be another's end
			p.aside.claims.again()
			p.aside.lapse(now)
		}
	}
	return nil
}

// behind returns a closed gate of the lane at which an earlier call waits: it
// must not take the permits for which that one waits.
func (p *planner) behind(now time.Time, l *lane, at *gate) *gate {
	for _, g := range l.gates {
		if g != at && p.claimed(now, g, l.rank()) {
			return g
		}
	}
	return nil
}

// claimed tells whether a closed gate's permits are kept from whoever has the rank
// for the first that waits there. One that lacks more than permits of this gate
// claims none: it steps aside, or behind the one whose claim it must respect.
func (p *planner) claimed(now time.Time, g *gate, r rank) bool {
	for !g.empty() && !p.open.contains(g) {
		l := g.first()
		if !l.rank().before(r) {
			return false
		}
		if l.route.cost == 1 { // if it lacks one permit, there is none for anybody
			return true
		}
		to := p.behind(now, l, g)
		if to == nil {
			to = p.place(now, l)
		}
		switch to {
		case g:
			return true
		case p.entry: // it lacks nothing
			p.openGate(g)
		default:
			p.move(now, l, g, to)
			p.check(now, to)
			p.check(now, g)
		}
	}
	return false
}

// place returns where a lane belongs that takes several permits of a limit: at the
// gate of the one limit that it lacks, at the entry if it lacks none, else aside.
func (p *planner) place(now time.Time, l *lane) *gate {
	first := p.lacks(now, l, nil)
	switch {
	case first == nil:
		return p.entry
	case p.lacks(now, l, first) == nil:
		return first
	}
	return p.aside.gate
}

// lacks returns a gate but one at which a lane cannot pass now.
func (p *planner) lacks(now time.Time, l *lane, but *gate) *gate {
	for i, g := range l.gates {
		if g == but {
			continue
		}
		if at := p.ledger.Next(now, l.route.needs[i]); at.IsZero() || at.After(now) {
			return g
		}
	}
	return nil
}

func (p *planner) move(now time.Time, l *lane, from, to *gate) {
	from.remove(l)
	if from.empty() && p.open.contains(from) {
		p.open.remove(from)
	}
	to.add(l)
	if p.open.contains(to) {
		p.openGate(to)
	}
	switch {
	case to == p.aside.gate:
		p.aside.lanes.add(l)
		p.aside.foresee(now, l)
	case l.route.cost > 1 && to != p.entry:
		p.aside.claims.add(to)
	}
}

// back ends an attempt and opens the gates that its permits opened.
func (p *planner) back(now time.Time, f *flight, r *upstream.Result) {
	if r.Answered {
		p.observe(r.AnsweredAt.Sub(f.sentAt))
	}
	for i, n := range f.needs {
		p.ledger.Return(now, f.needs[i:i+1], p.attemptOf(f, n, r))
	}
	for _, n := range f.needs {
		if g := p.gates[gateID{n.Limit, n.Key}]; g != nil {
			p.check(now, g)
		}
	}
	f.needs = nil
}

// attemptOf returns an attempt as the ledger needs to know it for one of its needs.
func (p *planner) attemptOf(f *flight, n quota.Need, r *upstream.Result) quota.Attempt {
	a := quota.Attempt{Sent: f.sentAt, End: r.AnsweredAt, Fate: quota.Unanswered}
	if r.SentAt.After(a.Sent) { // after a dial, a signature, a write of the store
		a.Sent = r.SentAt
	}
	switch {
	case !r.Sent, r.Answered && !p.limits[n.Limit].counted(r.Outcome):
		a.Fate = quota.Uncounted
	case r.Answered:
		a.Fate = quota.Answered
	}
	return a
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
		if at := p.ledger.Next(now, l.route.needs[i]); at.IsZero() || at.After(now) {
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

// shutUntil returns until when the whole upstream is shut, by a pause or because
// it is down; the zero time if it is not.
func (p *planner) shutUntil(now time.Time) time.Time {
	until := p.ledger.Usage(now, 0, "").PausedUntil
	if at := p.door.until(now); at.After(until) {
		return at
	}
	return until
}
