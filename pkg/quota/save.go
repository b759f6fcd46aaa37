package quota

import "time"

// Held are permits of one key that are out, in a form that outlives the ledger.
type Held struct {
	Limit   int
	Key     string
	Permits int
	// All means all permits of all keys: see [Ledger.HoldAll].
	All bool
	// Back is when they come back; zero if their attempt is in flight. It counts on the
	// monotonic clock, also of an aligned limit.
	Back time.Time
}

// Save returns all permits that are out.
func (l *Ledger) Save(now time.Time) []Held {
	at := l.instant(now)
	var all []Held
	for i, lim := range l.limits {
		if lim.heldUntil > at.mono {
			all = append(all, Held{Limit: i, All: true, Back: l.time(lim.heldUntil)})
		}
		clock := lim.clock(at)
		for key, a := range lim.accounts {
			if a.inFlight > 0 {
				all = append(all, Held{Limit: i, Key: key, Permits: int(a.inFlight)})
			}
			a.cooling.at(clock)
			for _, b := range a.cooling.ring[a.cooling.head:] {
				all = append(all, Held{Limit: i, Key: key, Permits: int(b.n), Back: l.time(at.mono + b.at - clock)})
			}
		}
	}
	return all
}

// Restore takes permits that another ledger saved, or that an earlier process
// left: they come back at h.Back, which must not be zero, but not later than those of an
// attempt that is unanswered now, or ends by the instant of Outlived. Step is how far the wall clock was put forward since
// they were saved, or back if it is negative, beyond the time that has passed: an aligned
// limit that does not tolerate it keeps them as after such a step of a running ledger.
func (l *Ledger) Restore(now time.Time, step time.Duration, h Held) {
	at, lim, back := l.restored(now, step, h.Limit, h.Back)
	if back <= lim.clock(at) {
		return
	}
	a := lim.accounts[h.Key]
	if a == nil {
		a = lim.open(at, h.Key)
	}
	a.cooling.add(batch{at: back, n: int32(h.Permits)})
	lim.total.add(lim.clock(at), lim.Window, back, int32(h.Permits))
	a.idle = max(a.idle, back)
	if lim.Guard > 0 {
		a.extra.full.add(batch{at: back, n: int32(h.Permits)})
	}
}

// Outlived tells the ledger, before Restore and HoldAll, that attempts of an earlier process may go on,
// and end by an instant.
func (l *Ledger) Outlived(until time.Time) { l.outlived = l.instant(until).mono }

// HoldAll keeps all permits of all keys of a limit out until the instant, where
// their number is unknown. PauseLimit does not shorten it. Step is as in Restore.
func (l *Ledger) HoldAll(now time.Time, step time.Duration, limit int, until time.Time) {
	at, lim, back := l.restored(now, step, limit, until)
	lim.heldUntil = max(lim.heldUntil, at.mono+back-lim.clock(at))
	lim.paused = max(lim.paused, lim.heldUntil)
}

// HeldUntil returns until when HoldAll keeps all permits of a limit out; zero if it does not.
func (l *Ledger) HeldUntil(now time.Time, limit int) time.Time {
	if held := l.limits[limit].heldUntil; held > l.instant(now).mono {
		return l.time(held)
	}
	return time.Time{}
}

// restored puts an instant at which permits come back on the clock of the limit's window.
func (l *Ledger) restored(now time.Time, step time.Duration, limit int, back time.Time) (at instant, lim *limit, on int64) {
	at, lim = l.instant(now), l.limits[limit]
	on = lim.clock(at) + int64(back.Sub(now))
	last := lim.Window.back(at.add(int64(lim.Late) + max(0, l.outlived-at.mono)))
	if lim.Window.tolerates(int64(step)) || on <= lim.clock(at) {
		return at, lim, min(on, last)
	}
	return at, lim, min(max(on, last), last+int64(lim.Window.Length()))
}

// Back returns when the permits of an attempt come back, on the monotonic clock; zero
// if they are back.
func (l *Ledger) Back(now time.Time, limit int, a Attempt) time.Time {
	if a.Fate == Uncounted {
		return time.Time{}
	}
	at, lim := l.instant(now), l.limits[limit]
	arrived, _ := lim.arrived(l.trip(at, a))
	back, clock := lim.back(arrived), lim.clock(at)
	if back <= clock {
		return time.Time{}
	}
	return l.time(at.mono + back - clock)
}
