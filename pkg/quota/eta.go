package quota

import "time"

// farthest is the longest estimate, 73 years: beyond it the clock's numbers end.
const farthest = never / 4

// ETA estimates when a need can be met if calls that cost ahead permits of the
// same key go before it, and an attempt takes trip. It is exact as far as the
// permits' returns are known, and assumes trip beyond.
func (l *Ledger) ETA(now time.Time, n Need, ahead int, trip time.Duration) time.Time {
	at, _ := l.Estimate(now, n, Outlook{Ahead: ahead, Trip: trip})
	return at
}

// An Outlook is what is expected of the calls that share a key with a need.
type Outlook struct {
	Ahead int           // permits of calls that go before
	Trip  time.Duration // of an attempt
	// From is the instant before which neither the need nor a call ahead goes, because
	// another limit is paused for instance; none if it is zero.
	From time.Time
	// Hung is how many permits in flight are not expected back, as their attempts have
	// taken for longer than attempts do.
	Hung int
}

// Estimate is ETA with more to expect. It has no result if the need cannot be met before
// permits of o.Hung are back.
func (l *Ledger) Estimate(now time.Time, n Need, o Outlook) (at time.Time, known bool) {
	lim := l.limits[n.Limit]
	usable := lim.Calls - o.Hung
	if usable < max(1, n.Cost) {
		return at, false
	}
	return l.estimate(l.instant(now), n, o, usable), true
}

// estimate is Estimate if so many permits can be used.
func (l *Ledger) estimate(at instant, n Need, o Outlook, usable int) time.Time {
	lim, trip, pause := l.limits[n.Limit], int64(o.Trip), int64(0)
	if !o.From.IsZero() {
		pause = int64(o.From.Sub(l.origin))
	}
	pause = max(pause, lim.paused)
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
	last := o.Ahead + n.Cost - 1
	rounds, r := int64(last/usable), last%usable
	rounds = min(rounds, farthest/(int64(lim.Window.Length())+trip+1))
	wait := lim.pessimistic(at, from, a, rounds, r, trip)
	if lim.Partly {
		wait = min(wait, lim.optimistic(at, a, last+1, o.Hung, trip))
	}
	if lim.Burst > 0 {
		wait = max(wait, a.spaced(from, last+1))
	}
	wait = max(wait, lim.paces.wait(n.Key, from.mono, o.Ahead))
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
// counts that is in flight, or is sent until then, and hung ones stay; never if the counted
// ones and these hold all.
func (lim *limit) optimistic(now instant, a *account, n, hung int, trip int64) int64 {
	left := lim.Calls - a.cooling.at(lim.clock(now)) - hung
	if left <= 0 {
		return never
	}
	return int64((int(a.inFlight)-hung+n-1)/left) * trip
}

// spaced returns how long after from the bucket has given n tokens.
func (a *account) spaced(from instant, n int) int64 {
	bucket := a.extra.bucket
	rate := float64(bucket.Limit())
	lacking := float64(n) - bucket.TokensAt(time.Unix(0, from.mono))
	return max(0, int64(min(lacking/rate*1e9, farthest)))
}
