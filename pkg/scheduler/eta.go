package scheduler

import (
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// An estimate looks at so many shares of a gate, and at so many of their lanes,
// and takes them for all. What it costs is bounded however much waits.
const (
	lookShares = 16
	lookLanes  = 16
)

// eta returns when a call can be expected to go, and what it waits for, the last
// of it. A call that is not queued yet is looked at as if it were. It counts what
// waits, not what is yet to come: who comes later and goes before makes it later.
func (p *planner) eta(now time.Time, c *call) (time.Time, *WaitingFor) {
	why := &WaitingFor{Until: now}
	if due := p.origin.Add(c.due); due.After(now) {
		why.Until = due
	}
	if at := p.shutUntil(now); p.door.down > 0 && at.After(why.Until) {
		*why = WaitingFor{Limit: ConcurrencyLimit, Until: at, Paused: true}
	}
	for _, n := range c.route.needs {
		if n.Limit == 0 && p.door.down > 0 { // one probe at a time says nothing of what follows
			continue
		}
		stored := p.backlog.beyond(c) * n.Cost
		view := p.outlook(p.gates[gateID{n.Limit, n.Key}], c, n.Cost)
		ahead := stored + view.ahead(0)
		at := p.ledger.ETA(now, n, ahead, p.trip)
		for range 4 { // what passes meanwhile takes time too; it converges from below
			more := stored + view.ahead(at.Sub(now))
			if more <= ahead {
				break
			}
			ahead = more
			at = p.ledger.ETA(now, n, ahead, p.trip)
		}
		if at.After(why.Until) {
			*why = WaitingFor{Limit: p.limits[n.Limit].Name, Key: n.Key, Until: at, Ahead: ahead}
			why.Paused = !p.ledger.Usage(now, n.Limit, n.Key).PausedUntil.IsZero()
		}
	}
	return why.Until, why
}

// An outlook is what stands at a gate between a call and its turn. Flows take turns
// there by what they have had, whichever of their lanes a call comes from: those
// that queue at the gate go when it is their turn, those that queue elsewhere and
// need the gate too as fast as their own limit lets them.
type outlook struct {
	p      *planner
	gate   *gate
	flow   *flow   // the call's, nil if it is new
	weight float64 // of that
	tag    float64 // where that stands now
	before int     // permits for calls of the flow that go before, and queue here or in the call's lane
	behind float64 // the part of its calls elsewhere that go before
	apart  int     // of those elsewhere, what is in before already
	rivals [lookShares]rival
	looked int
	all    int // rivals, looked at or not
}

// A rival is what another flow has at a gate: permits for calls that are more urgent
// than the call, and as urgent.
type rival struct {
	flow          *flow
	urgent, alike int
	older         int // of alike, those of calls that are older
}

// outlook returns what stands between a call and its turn at a gate: nothing if nobody
// needs the gate. On the heap it would take a quarter of the time of an ETA.
func (p *planner) outlook(g *gate, c *call, cost int) (o outlook) {
	if g == nil {
		return o
	}
	r := c.rank()
	if r.seq == 0 { // not accepted yet
		r.seq = math.MaxUint64
	}
	o = outlook{p: p, gate: g, flow: p.flows[c.route.flow], tag: p.virtual, weight: p.weight(c.route.flow), behind: 1, all: g.shares.Len()}
	if o.flow != nil {
		o.tag = max(o.tag, o.flow.virtual)
	}
	own := g.flows[o.flow]
	if own != nil {
		o.all--
		o.before = own.before(r)
		if above, at := own.census.split(lowest.priority); above+at > 0 {
			o.behind = float64(o.before) / float64(above+at)
		}
	}
	if lane := p.lanes[c.route.id]; lane != nil && lane.share != own {
		o.before += lane.calls.before(r) * cost
		o.apart = lane.calls.Len() * cost
	}
	for s := range sample(g.shares.items, lookShares) {
		if s == own || o.looked == lookShares {
			continue
		}
		urgent, alike := s.census.split(r.priority)
		o.rivals[o.looked] = rival{s.flow, urgent, alike, s.older(r)}
		o.looked++
	}
	return o
}

// ahead returns how many permits of the gate will be taken before the call's turn,
// if that comes within a time.
func (o *outlook) ahead(in time.Duration) int {
	if o.gate == nil {
		return 0
	}
	own := float64(o.apart)
	if o.flow != nil {
		own = max(own, o.passing(o.flow, in))
	}
	rest := o.passing(nil, in) - own
	mine := o.before + int(o.behind*(own-float64(o.apart)))
	tag := o.tag + float64(mine)/o.weight // of the call
	others := 0
	for _, r := range o.rivals[:o.looked] {
		passing := o.passing(r.flow, in)
		rest -= passing
		others += r.urgent + min(r.alike+int(passing), r.due(tag))
	}
	n := mine + scale(others, o.looked, o.all)
	if o.looked == o.all { // flows of which nothing queues here
		n += int(max(0, rest))
	}
	return n
}

// due returns how many of the rival's permits come before a call at the tag. Of two at
// one tag the older goes first.
func (r *rival) due(tag float64) int {
	ahead := (tag - r.flow.virtual) * r.flow.weight
	n := max(0, int(math.Ceil(ahead-1e-9)))
	if same := math.Abs(ahead-float64(n)) < 1e-9; same && r.older > n {
		n++
	}
	return n
}

// passing returns how many permits of the gate calls that queue elsewhere take
// within a time: those of a flow, of all if it is nil.
func (o *outlook) passing(f *flow, in time.Duration) float64 {
	n := 0.0
	for j := range o.p.limits {
		if here := float64(o.gate.waiting[j+1]); j != o.gate.id.limit && here > 0 {
			all := float64(o.p.queued[j+1])
			if f != nil {
				here *= float64(f.queued[j+1]) / all
			}
			n += here * min(1, o.p.passes(j, in)/all)
		}
	}
	return n
}

// before returns how many permits of the gate go to calls of the share with a
// better rank.
func (s *share) before(r rank) int {
	n, looked := 0, 0
	for l := range sample(s.lanes.items, lookLanes) {
		n += l.calls.before(r) * l.cost(s.gate)
		looked++
	}
	return scale(n, looked, s.lanes.Len())
}

// older returns how many permits of the gate go to calls of the share that are as
// urgent as a call, and older; where there are many lanes, all or none, as the first.
func (s *share) older(r rank) int {
	if s.lanes.Len() <= 4 {
		return s.before(r) - s.before(rank{priority: r.priority})
	}
	if first := s.lanes.first().calls.first(); int(first.Priority) == r.priority && first.seq < r.seq {
		return math.MaxInt
	}
	return 0
}

// passes returns how many permits all keys of a limit have within a time.
func (p *planner) passes(limit int, in time.Duration) float64 {
	l := &p.limits[limit]
	all := float64(l.capacity() * p.keys[limit])
	round := l.Window + p.trip
	if l.Calendar != nil || round <= 0 {
		return all
	}
	return all * float64(in) / float64(round)
}

// sample yields at most n items, evenly spread over all.
func sample[T any](items []T, n int) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		step := max(1, len(items)/n)
		for i := 0; i < len(items); i += step {
			if !yield(items[i]) {
				return
			}
		}
	}
}

// scale takes what was counted in looked of all for the whole.
func scale(n, looked, all int) int {
	if looked == 0 || looked == all {
		return n
	}
	return n * all / looked
}

// observe learns how long attempts take.
func (p *planner) observe(trip time.Duration) {
	if p.trip == 0 {
		p.trip = trip
	}
	p.trip += (trip - p.trip) / 8
}

// last returns when the last of all waiting calls can be expected to go: it waits
// at one of the keys for which most waits.
func (p *planner) last(now time.Time) (eta time.Time) {
	eta = p.shutUntil(now)
	longest := make([]*gate, len(p.limits))
	for id, g := range p.gates {
		if l := longest[id.limit]; l == nil || g.total() > l.total() {
			longest[id.limit] = g
		}
	}
	for i, g := range longest {
		if g == nil || g.total() == 0 {
			continue
		}
		if at := p.ledger.ETA(now, quota.Need{Limit: i, Key: g.id.key, Cost: 1}, g.total()-1, p.trip); at.After(eta) {
			eta = at
		}
	}
	return eta
}

// total are the permits that waiting calls will take at the gate.
func (g *gate) total() int {
	n := 0
	for _, w := range g.waiting {
		n += w
	}
	return n
}
