package planner

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A Pause is one of a limit or, with a key, of that key.
type Pause struct {
	Limit int
	Key   string // empty: of all keys
	Until time.Time
}

// lines are the longest line of each limit.
type lines[T any] struct {
	planner *Planner[T]
	longest []*keyQueue[T] // nil where no call waits
	stored  float64        // calls elsewhere for each one here
}

// after heeds pauses: no call that needs a paused limit or key goes before the end, and then these calls take
// their turns at other limits, at the longest line of each.
func (l lines[T]) after(now, at time.Time, other Elsewhere) time.Time {
	p := l.planner
	for _, pause := range other.Pauses {
		q := p.keys[keyID{pause.Limit, pause.Key}]
		n := 0
		if q != nil {
			n = q.total()
		}
		if pause.Key == "" {
			q, n = l.longest[pause.Limit], p.wanted[pause.Limit]
		}
		if n == 0 {
			continue
		}
		if pause.Until.After(at) {
			at = pause.Until
		}
		for i, line := range l.longest {
			if i == pause.Limit || line == nil || line.total() == 0 || !l.meet(line, q, pause) {
				continue
			}
			o := p.outlook(now, pause.Until, i, line.id.key, other)
			n := min(n, line.total())
			o.Ahead = n + int(float64(n)*l.stored) - 1
			if eta, known := p.ledger.Estimate(now, quota.Need{Limit: i, Key: line.id.key, Cost: 1}, o); known && eta.After(at) {
				at = eta
			}
		}
	}
	return at
}

// meet reports whether calls of a line need the paused limit or key too, by those that are first in line there and
// at the queue of the pause. Where no call waits at either, it takes them to.
func (l lines[T]) meet(line, paused *keyQueue[T], pause Pause) bool {
	looked := false
	for _, q := range []*keyQueue[T]{line, paused} {
		if q.empty() {
			continue
		}
		looked = true
		there, here := false, false
		for _, k := range q.first().keys {
			there = there || k == line
			here = here || k.id.limit == pause.Limit && (pause.Key == "" || k.id.key == pause.Key)
		}
		if there && here {
			return true
		}
	}
	return !looked
}
