package quota

import "time"

// Held are permits of one key that are out, in a form that outlives the process:
// Back is on the wall clock.
type Held struct {
	Limit   int
	Key     string
	Permits int
	// All means all permits of all keys: see [Ledger.HoldAll].
	All bool
	// Back is when they come back; zero if their attempt is in flight.
	Back time.Time
}

// Save returns all permits that are out.
func (l *Ledger) Save(now time.Time) []Held {
	at := l.instant(now)
	var all []Held
	for i, lim := range l.limits {
		clock := lim.clock(at)
		if lim.heldUntil > at.mono {
			all = append(all, Held{Limit: i, All: true, Back: time.Unix(0, at.wall+lim.heldUntil-at.mono)})
		}
		for key, a := range lim.accounts {
			if a.inFlight > 0 {
				all = append(all, Held{Limit: i, Key: key, Permits: int(a.inFlight)})
			}
			a.cooling.at(clock)
			for _, b := range a.cooling.ring[a.cooling.head:] {
				all = append(all, Held{Limit: i, Key: key, Permits: int(b.n), Back: time.Unix(0, at.wall+b.at-clock)})
			}
		}
	}
	return all
}

// Restore takes permits that another ledger saved, or that an earlier process
// left: they come back at h.Back, which must not be zero. Mark is the latest wall
// clock that was ever read: a clock behind it was put back, and lets no permit
// come back sooner, and none later than that of an attempt that is unanswered now.
func (l *Ledger) Restore(now, mark time.Time, h Held) {
	at, lim, back := l.restored(now, mark, h.Limit, h.Back)
	if back <= lim.clock(at) {
		return
	}
	a := lim.accounts[h.Key]
	if a == nil {
		a = lim.open(at, h.Key)
	}
	a.cooling.add(back, h.Permits)
	a.idle = max(a.idle, back)
	if lim.Guard > 0 {
		a.extra.full.add(back, h.Permits)
	}
}

// HoldAll keeps all permits of all keys of a limit out until the instant, where
// their number is unknown. PauseLimit does not shorten it. Mark is as in Restore.
func (l *Ledger) HoldAll(now, mark time.Time, limit int, until time.Time) {
	at, lim, back := l.restored(now, mark, limit, until)
	lim.heldUntil = max(lim.heldUntil, at.mono+back-lim.clock(at))
	lim.paused = max(lim.paused, lim.heldUntil)
}

// restored puts an instant of the wall clock at which permits come back on the
// clock of the limit's window.
func (l *Ledger) restored(now, mark time.Time, limit int, back time.Time) (at instant, lim *limit, on int64) {
	l.wall = max(l.wall, mark.UnixNano())
	at, lim = l.instant(now), l.limits[limit]
	on = lim.clock(at) + back.UnixNano() - at.wall
	return at, lim, min(on, lim.Window.back(at.add(int64(lim.Late))))
}

// Back returns when the permits of an attempt come back, on the wall clock; zero
// if they are back.
func (l *Ledger) Back(now time.Time, limit int, a Attempt) time.Time {
	at, lim := l.instant(now), l.limits[limit]
	end, sent := l.before(at, a.End), l.before(at, a.Sent)
	switch g := int64(lim.Guard); {
	case a.Fate == Uncounted:
		return time.Time{}
	case a.Fate == Unanswered:
		end = end.add(int64(lim.Late))
	case g > 0 && end.mono > sent.mono+g:
		end = sent.add(g)
	}
	back, clock := lim.Window.back(end), lim.clock(at)
	if back <= clock {
		return time.Time{}
	}
	return time.Unix(0, at.wall+back-clock)
}
