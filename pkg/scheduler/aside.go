package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// lookAside is how many lanes, and how many claims, one look reconsiders. Where there
// are more, the loop looks at the next ones at once, after its messages.
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
	lanes   round[*lane] // that are here, or were
	claims  round[*gate] // at which lanes that take more than one queue, or did
	soonest time.Time    // when one of the lanes that were looked at may lack less
	wake    wheel.Handle
}

func newAside(p *planner) *aside {
	a := &aside{gate: newGate(p, gateID{limit: -1}), planner: p}
	a.lanes.in = func(l *lane) *bool { return &l.aside }
	a.claims.in = func(g *gate) *bool { return &g.claimed }
	return a
}

// A round holds items that are looked at in turn.
type round[T any] struct {
	items []T
	left  int           // how many of them have yet to be looked at
	in    func(T) *bool // whether an item is in items
}

func (r *round[T]) add(x T) {
	if in := r.in(x); !*in {
		*in = true
		r.items = append(r.items, x)
	}
}

// again lets all items be looked at.
func (r *round[T]) again() { r.left = len(r.items) }

// look shows some of those that are left, and keeps what is to stay.
func (r *round[T]) look(stays func(T) bool) {
	for n := min(r.left, lookAside); n > 0; n-- {
		x := r.items[0]
		r.items = r.items[1:]
		r.left--
		if *r.in(x) = false; stays(x) {
			r.add(x)
		}
	}
}

// again lets everything be looked at: something has happened.
func (a *aside) again() {
	a.lanes.again()
	a.claims.again()
	a.soonest = time.Time{}
}

// unfinished tells whether not everything has been looked at.
func (a *aside) unfinished() bool { return a.lanes.left > 0 || a.claims.left > 0 }

// recall lets lanes go back that lack permits of one limit only, or of none.
func (a *aside) recall(now time.Time) {
	p := a.planner
	a.lanes.look(func(l *lane) bool {
		if l.share == nil || l.share.gate != a.gate {
			return false
		}
		switch to := p.place(now, l); to {
		case a.gate:
			a.foresee(now, l)
		case p.entry:
			p.move(now, l, a.gate, to)
			p.openGate(to)
		default:
			p.move(now, l, a.gate, to)
			p.check(now, to)
		}
		return l.share.gate == a.gate
	})
}

// foresee takes note of when a lane may lack less.
func (a *aside) foresee(now time.Time, l *lane) {
	for _, n := range l.route.needs {
		if at := a.planner.ledger.Next(now, n); at.After(now) && (a.soonest.IsZero() || at.Before(a.soonest)) {
			a.soonest = at
		}
	}
}

// lapse looks again at the gates whose permits are kept for one who needs several:
// since others have gone, it may lack permits of another limit too, or its flow's
// turn may come later now. It reports whether somebody may go.
func (a *aside) lapse(now time.Time) (found bool) {
	p := a.planner
	a.claims.look(func(g *gate) bool {
		if p.claimed(now, g, lowest) {
			p.check(now, g)
		}
		found = found || p.open.contains(g)
		return !g.empty()
	})
	return found
}

// more is in the wheel where there is more to look at than one look does.
type more struct{}

func (more) timeoutAt(time.Time) {}

// sleep has the wheel wake the loop when a lane may lack less, or for the next look.
func (a *aside) sleep(now time.Time) {
	p := a.planner
	p.wheel.Cancel(a.wake)
	switch {
	case a.unfinished():
		a.wake = p.wheel.Insert(now.Sub(p.origin), more{})
	case !a.soonest.IsZero():
		a.wake = p.wheel.Insert(a.soonest.Sub(p.origin), wakeup{})
	}
}
