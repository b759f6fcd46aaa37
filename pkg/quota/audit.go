package quota

import "time"

// Guards are those for which an [Audit] computes the gain.
var Guards = [...]time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second}

// An Audit is the record of a limit since it began, by the instants of sending and
// of response alone.
type Audit struct {
	// Most is the most permits of one key whose calls may have arrived within
	// one window, wherever between sending and response they did. It stays at or
	// below Calls, unless a guard was set and was too short. It begins anew when Calls
	// changes, unless it was above: that a limit was exceeded stays known.
	Most int
	// Permits is how many answered calls have used, Held for how long beyond the
	// window in sum: waiting for the responses costs Held / (Permits · Window + Held)
	// of a saturated quota.
	Permits int64
	Held    time.Duration
	// Unanswered is how many permits attempts without an answer have used. A receiver that
	// counts such an attempt later than Late after its end exceeds the limit, and only its
	// own count shows that.
	Unanswered int64
	// Cut is how much less Held would be with each of the Guards.
	Cut [len(Guards)]time.Duration
}

func (a *Audit) add(cost int, trip time.Duration) {
	a.Permits += int64(cost)
	a.Held += time.Duration(cost) * trip
	for i, g := range Guards {
		if trip <= g {
			return
		}
		a.Cut[i] += time.Duration(cost) * (trip - g)
	}
}

// Cost returns the share of a saturated quota that waiting for responses costs,
// and the share that each of the Guards would win back, for a sliding window.
func (a *Audit) Cost(window time.Duration) (hold float64, wins [len(Guards)]float64) {
	whole := float64(a.Permits)*float64(window) + float64(a.Held)
	if whole == 0 {
		return 0, wins
	}
	for i := range wins {
		wins[i] = float64(a.Cut[i]) / whole
	}
	return float64(a.Held) / whole, wins
}
