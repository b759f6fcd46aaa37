package quota

import "time"

// Held are permits of one key that are out, in a form that outlives the process:
// Back is on the wall clock.
type Held struct {
	Limit   int
	Key     string
	Permits int
	// Every means all permits of all keys: see Shut.
	Every bool
	// Back is when they come back; zero if their attempt is in flight.
	Back time.Time
}

// Save returns everything that is out.
func (l *Ledger) Save(now time.Time) []Held {
	at := l.instant(now)
	var all []Held
	for i, lim := range l.limits {
		clock := lim.clock(at)
		if lim.shut > at.mono {
			all = append(all, Held{Limit: i, Every: true, Back: time.Unix(0, at.wall+lim.shut-at.mono)})
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
// clock that anybody has seen: a clock behind it was put back, and lets nothing
// come back sooner, and nothing later than a window and Late from now.
func (l *Ledger) Restore(now, mark time.Time, h Held) {
	at, lim, back := l.returned(now, mark, h.Limit, h.Back)
	if back <= lim.clock(at) {
		return
	}
	a := lim.accounts[h.Key]
	if a == nil {
		a = lim.open(at, h.Key)
	}
	a.cooling.add(back, h.Permits)
	a.idle = max(a.idle, back)
	if a.soft != nil && lim.Guard > 0 {
		a.soft.full.add(back, h.Permits)
	}
}

// Shut takes all permits of all keys of a limit until the instant, whatever
// PauseLimit says: nobody knows how many are out. Mark is as in Restore.
func (l *Ledger) Shut(now, mark time.Time, limit int, until time.Time) {
	at, lim, back := l.returned(now, mark, limit, until)
	lim.shut = max(lim.shut, at.mono+back-lim.clock(at))
	lim.paused = max(lim.paused, lim.shut)
}

// returned puts an instant of the wall clock at which permits come back on a
// limit's clock.
func (l *Ledger) returned(now, mark time.Time, limit int, back time.Time) (at instant, lim *limit, on int64) {
	l.wall = max(l.wall, mark.UnixNano())
	at, lim = l.instant(now), l.limits[limit]
	if lim.Calendar != nil {
		return at, lim, back.UnixNano()
	}
	longest := int64(lim.Window) + int64(lim.Window)/grains + int64(lim.Late)
	return at, lim, at.mono + min(back.UnixNano()-at.wall, longest)
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
	back, clock := lim.back(end), lim.clock(at)
	if back <= clock {
		return time.Time{}
	}
	return time.Unix(0, at.wall+back-clock)
}
