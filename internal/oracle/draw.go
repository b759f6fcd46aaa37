package oracle

import (
	"math/rand/v2"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// Grain divides all instants of a load that was drawn.
const Grain = 100 * time.Microsecond

const ms = time.Millisecond

// Draw draws a load: limits of every kind, calls under several of them with keys,
// costs, flows and priorities, answers of all kinds, cancels, pauses and changed limits.
// In some loads the calls meet at a few keys, in others they are spread over many.
func Draw(r *rand.Rand) *Load {
	l := &Load{Weights: map[string]float64{"a": 1, "b": 2, "c": 3}, Late: 300 * ms, Pause: 400 * ms}
	v := drawVariety(r)
	spread := []time.Duration{2 * time.Second, 2 * time.Second, 20 * time.Second}[r.IntN(3)] // with idle times
	for i := range 1 + r.IntN(5) {
		lim := drawLimit(r, i == 0)
		if lim.Calendar != nil {
			spread = 2 * time.Minute
		}
		l.Limits = append(l.Limits, lim)
	}
	instant := func() time.Duration { return time.Duration(1+r.Int64N(int64(spread/Grain))) * Grain }
	for range 30 + r.IntN(50) {
		c := v.drawCall(r, l.Limits)
		if c.Due = instant().Truncate(ms) + ms; r.IntN(3) == 0 { // many at once
			c.Due = ms
		}
		if r.IntN(8) == 0 {
			c.Cancel = instant()
		}
		l.Calls = append(l.Calls, c)
	}
	for range r.IntN(5) {
		if ch, ok := drawChange(r, l, instant()); ok {
			l.Changes = append(l.Changes, ch)
		}
	}
	return l
}

func drawLimit(r *rand.Rand, first bool) (l Limit) {
	switch kind := r.IntN(8); {
	case kind == 0 && !first: // a limited answer pauses keys of the first one
		l.Calls = 2 + r.IntN(6)
	case kind == 1:
		unit := []quota.Unit{quota.Minute, quota.Hour}[r.IntN(2)]
		l.Calls, l.Calendar = 4+r.IntN(20), &quota.Calendar{Unit: unit, Skew: time.Duration(r.IntN(3)) * 500 * ms}
	case kind == 2:
		l.Calls, l.Window, l.FailedOnly = 2+r.IntN(3), time.Duration(50+r.IntN(3000))*ms, true
	case kind == 3: // a minimum distance
		l.Calls, l.Window = 1, time.Duration(50+r.IntN(400))*ms
	default:
		l.Calls, l.Window = 2+r.IntN(6), time.Duration(50+r.IntN(1000))*ms
		if kind == 4 {
			l.Guard = time.Duration(1+r.IntN(60)) * ms
		}
	}
	return l
}

// A variety is how much the calls of a load differ.
type variety struct {
	keys                    []string // empty: not under the limit
	flows, priorities, cost int      // how many there are
}

func drawVariety(r *rand.Rand) variety {
	return variety{
		keys:  [][]string{{"x"}, {"", "x", "x"}, {"", "x", "x", "y", "z"}}[r.IntN(3)],
		flows: 1 + r.IntN(3), priorities: 1 + r.IntN(3), cost: 1 + r.IntN(3),
	}
}

func (v variety) drawCall(r *rand.Rand, limits []Limit) *Call {
	c := &Call{Priority: r.IntN(v.priorities), Flow: string(rune('a' + r.IntN(v.flows)))}
	for _, l := range limits {
		c.Keys = append(c.Keys, v.keys[r.IntN(len(v.keys))])
		c.Costs = append(c.Costs, min(1+r.IntN(v.cost)*r.IntN(2), l.Calls))
	}
	trip := func() time.Duration { return time.Duration(1+r.IntN(999)) * Grain }
	for len(c.Tries) < 3 && r.IntN(8) == 0 {
		c.Tries = append(c.Tries, Try{trip(), Limited})
	}
	c.Tries = append(c.Tries, Try{trip(), []Result{Done, Done, Done, Done, Failed, Lost}[r.IntN(6)]})
	return c
}

// drawChange draws a change at an instant; false if there is nothing to be changed.
func drawChange(r *rand.Rand, load *Load, at time.Duration) (ch Change, ok bool) {
	ch = Change{At: at, Limit: r.IntN(len(load.Limits))}
	l := load.Limits[ch.Limit]
	switch kind := r.IntN(5); {
	case kind == 0:
		ch.Pause, ch.Key = true, []string{"", "x", "y"}[r.IntN(3)]
		ch.Until = at + time.Duration(r.IntN(10_000))*Grain
	case kind == 1:
		ch.Pause, ch.Limit = true, -1
		ch.Until = at + time.Duration(r.IntN(5_000))*Grain
	case kind == 2 && len(load.Changes) > 0 && load.Changes[len(load.Changes)-1].Pause: // it ends early
		before := load.Changes[len(load.Changes)-1]
		ch = Change{At: before.At + time.Duration(1+r.IntN(2_000))*Grain, Limit: before.Limit, Key: before.Key, Pause: true}
	case kind == 3 && l.Window > 0:
		ch.Window = l.Window + time.Duration(1+r.IntN(500))*ms
	case l.Window > 0 || l.Calendar != nil:
		ch.Calls = max(1, l.Calls+r.IntN(7)-3)
	default:
		return ch, false
	}
	return ch, true
}

// tied reports whether a message came at the instant of another thing. That the permits
// of an attempt come back with its end is no tie.
func (s *state) tied() bool {
	own := map[time.Duration]int{}
	for _, a := range s.attempts {
		for i := range s.limits {
			if s.back(a, i) == a.End {
				own[a.End]++
			}
		}
	}
	for _, at := range s.messages {
		if s.instants[at] > own[at]+1 {
			return true
		}
	}
	return false
}
