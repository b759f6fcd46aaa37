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
	lookLanes  = 24
)

// eta returns when a call can be expected to go, and what it waits for, the last
// of it. A call that is not queued yet is looked at as if it were.
//
// At each gate it counts the permits that go before the call: of the lanes that
// queue there, by priority, share and age. Lanes that queue elsewhere pass it too,
// but only as fast as their own limit lets them.
func (p *planner) eta(now time.Time, c *call) (time.Time, *WaitingFor) {
	why := &WaitingFor{Until: now}
	if due := p.origin.Add(c.due); due.After(now) {
		why.Until = due
	}
	if at := p.door.until(now); at.After(why.Until) {
		*why = WaitingFor{Limit: ConcurrencyLimit, Until: at}
	}
	for _, n := range c.route.needs {
		if n.Limit == 0 && p.door.down > 0 { // one probe at a time says nothing of what follows
			continue
		}
		here, passing := 0, func(time.Duration) int { return 0 }
		if g := p.gates[gateID{n.Limit, n.Key}]; g != nil {
			here, passing = p.ahead(g, c, n.Cost)
		}
		here += p.backlog.beyond(c) * n.Cost
		ahead := here
		at := p.ledger.ETA(now, n, here, p.trip)
		for range 4 { // what passes meanwhile takes time too; it converges from below
			more := here + passing(at.Sub(now))
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

// ahead returns how many permits of a gate will be taken before the call's turn:
// here by lanes that queue at the gate, and passing within a time by others.
func (p *planner) ahead(g *gate, c *call, cost int) (here int, passing func(time.Duration) int) {
	r := c.rank()
	if r.seq == 0 { // not accepted yet
		r.seq = math.MaxUint64
	}
	own, tag, weight := (*share)(nil), p.virtual, p.weight(c.route.flow)
	if f := p.flows[c.route.flow]; f != nil {
		own = g.flows[f]
		tag = max(tag, f.virtual)
	}
	before := 0
	if own != nil {
		before = own.before(r)
	}
	if l := p.lanes[c.route.id]; l != nil && l.share != own {
		before += l.calls.before(r) * cost
	}
	tag += float64(before) / weight // of the call
	here = before + g.others(own, r, tag)

	total := g.waiting[g.id.limit+1]
	place := 1.0 // of the call among those here: the last
	if total > 0 {
		place = min(1, float64(here)/float64(total))
	}
	return here, func(in time.Duration) int {
		n := 0
		for j := range p.limits {
			if waiting := g.waiting[j+1]; j != g.id.limit && waiting > 0 {
				n += min(int(place*float64(waiting)), p.passes(j, in))
			}
		}
		return n
	}
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

// others returns how many permits other shares take before a call of the rank
// whose flow will then stand at the tag.
func (g *gate) others(own *share, r rank, tag float64) int {
	n, looked := 0, 0
	for s := range sample(g.shares.items, lookShares) {
		if s == own {
			continue
		}
		looked++
		urgent := s.before(rank{priority: r.priority, seq: 0})
		alike := s.before(rank{priority: r.priority, seq: math.MaxUint64}) - urgent
		due := int(math.Ceil((tag - s.flow.virtual) * s.flow.weight))
		n += urgent + min(alike, max(0, due))
	}
	all := g.shares.Len()
	if own != nil {
		all--
	}
	return scale(n, looked, all)
}

// passes returns how many permits all keys of a limit have within a time.
func (p *planner) passes(limit int, in time.Duration) int {
	l := &p.limits[limit]
	round := l.Window + p.trip
	if l.Calendar != nil || round <= 0 {
		return l.capacity() * p.keys[limit]
	}
	return int(float64(l.capacity()*p.keys[limit]) * float64(in) / float64(round))
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
