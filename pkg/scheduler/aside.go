package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// lookAside is how many lanes, and how many claims, one look reconsiders.
const lookAside = 128

// lowest is behind every rank.
var lowest = rank{priority: -MaxPriority - 1}

// aside is where lanes wait that take more than one permit of a limit and lack
// permits of two. At a gate such a lane would keep others from permits that it
// cannot use yet; here it claims none. Others that lack one permit each need no
// such place: while their gate is closed, it has none for anybody.
type aside struct {
	*gate
	planner *planner
	claims  map[*gate]struct{} // gates at which lanes that take more than one have queued
	wake    wheel.Handle
}

func newAside(p *planner) *aside {
	return &aside{gate: newGate(p, gateID{limit: -1}), planner: p, claims: make(map[*gate]struct{})}
}

// some returns lanes that are aside, a bounded number of them.
func (a *aside) some() []*lane {
	var lanes []*lane
	for _, s := range a.shares.items {
		for l := range sample(s.lanes.items, lookAside) {
			if lanes = append(lanes, l); len(lanes) == lookAside {
				return lanes
			}
		}
	}
	return lanes
}

// recall lets lanes go back that lack permits of one limit only, or of none.
func (a *aside) recall(now time.Time) {
	p := a.planner
	for _, l := range a.some() {
		switch to := p.place(now, l); to {
		case a.gate:
		case p.entry:
			p.move(l, a.gate, to)
			p.openGate(to)
		default:
			p.move(l, a.gate, to)
			p.check(now, to)
		}
	}
}

// sleep has the wheel wake the loop when a lane may lack less.
func (a *aside) sleep(now time.Time) {
	p := a.planner
	p.wheel.Cancel(a.wake)
	var soonest time.Time
	for _, l := range a.some() {
		for _, n := range l.route.needs {
			if at := p.ledger.Next(now, n); at.After(now) && (soonest.IsZero() || at.Before(soonest)) {
				soonest = at
			}
		}
	}
	if !soonest.IsZero() {
		a.wake = p.wheel.Insert(soonest.Sub(p.origin), wakeup{})
	}
}

// lapse looks again at the gates whose permits are kept for one who needs several:
// since others have gone, it may lack permits of another limit too, or its flow's
// turn may come later now. It reports whether somebody may go.
func (a *aside) lapse(now time.Time) bool {
	p, looked, found := a.planner, 0, false
	for g := range a.claims {
		if looked++; looked > lookAside {
			break
		}
		if p.claimed(now, g, lowest) {
			p.check(now, g)
		}
		if g.empty() {
			delete(a.claims, g)
		}
		found = found || p.open.contains(g)
	}
	return found
}
