package quota

import "time"

// ETA estimates when a need can be met if calls that cost ahead permits of the
// same key go before it, and an attempt takes trip. It is exact as far as the
// permits' returns are known, and assumes trip beyond.
func (l *Ledger) ETA(now time.Time, n Need, ahead int, trip time.Duration) time.Time {
	lim, at := l.limits[n.Limit], l.instant(now)
	from, inFlight, pause := at, 0, lim.paused
	var w window
	if a := lim.accounts[n.Key]; a != nil {
		w, inFlight, pause = a.window, a.inFlight, max(pause, a.paused)
	} else {
		w = lim.newWindow()
	}
	if d := pause - at.mono; d > 0 {
		from = instant{at.mono + d, at.wall + d}
	}
	return l.time(w.expect(at, from, lim.Calls, inFlight, ahead+n.Cost-1, int64(trip)))
}
