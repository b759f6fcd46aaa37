package quota

import "time"

// farthest is the longest estimate, 73 years: beyond it the clock's numbers end.
const farthest = never / 4

// ETA estimates when a need can be met if calls that cost ahead permits of the
// same key go before it, and an attempt takes trip. It is exact as far as the
// permits' returns are known, and assumes trip beyond.
func (l *Ledger) ETA(now time.Time, n Need, ahead int, trip time.Duration) time.Time {
	return l.ETAFrom(now, now, n, ahead, trip)
}

// ETAFrom is ETA if neither the need nor a call ahead goes before an instant, because
// another limit is paused for instance.
func (l *Ledger) ETAFrom(now, first time.Time, n Need, ahead int, trip time.Duration) time.Time {
	lim, at := l.limits[n.Limit], l.instant(now)
	pause := max(lim.paused, int64(first.Sub(l.origin)))
	a := lim.accounts[n.Key]
	if a == nil {
		a = &account{extra: lim.newExtra(at, nil)}
		if lim.full(at) > at.mono {
			pause = max(pause, lim.vacant)
		}
	}
	if a == lim.leaving {
		pause = max(pause, min(lim.idleAt(at, a), farthest))
	}
	from := at.add(max(0, max(pause, a.paused)-at.mono))
	// Each permit is taken once per round: the need has the r-th of this round.
	last := ahead + n.Cost - 1
	rounds, r := int64(last/lim.Calls), last%lim.Calls
	rounds = min(rounds, farthest/(int64(lim.Window.Length()+trip)+1))
	wait := lim.pessimistic(at, from, a, rounds, r, int64(trip))
	if lim.Partly {
		wait = min(wait, lim.optimistic(at, a, last+1, int64(trip)))
	}
	if lim.Burst > 0 {
		wait = max(wait, a.spaced(from, last+1))
	}
	return l.time(from.mono + wait)
}

// pessimistic returns how long after from the r-th permit of a round is free, both
// counted from 0, if every attempt counts.
func (lim *limit) pessimistic(now, from instant, a *account, rounds int64, r int, trip int64) int64 {
	clock, begin := lim.clock(now), lim.clock(from)
	at := begin
	if free := lim.Calls - int(a.inFlight) - a.cooling.at(clock); r >= free {
		back, known := a.cooling.nth(r - free)
		if !known { // the permit of an attempt in flight
			back = lim.Window.back(now.add(trip))
		}
		at = max(at, back)
	}
	return lim.Window.later(at, rounds, trip) - begin
}

// optimistic returns how long after from n permits have been free if no attempt
// counts that is in flight, or is sent until then; never if the counted ones hold all.
func (lim *limit) optimistic(now instant, a *account, n int, trip int64) int64 {
	left := lim.Calls - a.cooling.at(lim.clock(now))
	if left <= 0 {
		return never
	}
	return int64((int(a.inFlight)+n-1)/left) * trip
}

// spaced returns how long after from the bucket has given n tokens.
func (a *account) spaced(from instant, n int) int64 {
	bucket := a.extra.bucket
	rate := float64(bucket.Limit())
	lacking := float64(n) - bucket.TokensAt(time.Unix(0, from.mono))
	return max(0, int64(min(lacking/rate*1e9, farthest)))
}
