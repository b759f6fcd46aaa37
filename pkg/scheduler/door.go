package scheduler

import (
	"math/rand/v2"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// probes is how long an upstream that is down is left alone between two dials.
var probes = retry.Curve{Min: 500 * time.Millisecond, Max: 30 * time.Second}

// A door keeps book of whether anything can be sent to an upstream at all: whether
// it can be dialled, and its signer answers. While not, one call at a time probes
// it, each after a longer pause; what is sent opens it.
type door struct {
	down    int       // dials or signatures in a row that failed; 0: it is open
	shut    time.Time // when the last of them was noticed
	probe   time.Time // not before it
	probing *call
}

// lets tells whether a call may go.
func (d *door) lets(now time.Time) bool {
	return d.down == 0 || d.probing == nil && !now.Before(d.probe)
}

// until returns when the next probe may go, zero if the door is open.
func (d *door) until(now time.Time) time.Time {
	switch {
	case d.down == 0:
		return time.Time{}
	case d.probe.Before(now):
		return now
	}
	return d.probe
}

// sends takes note of a call that is sent.
func (d *door) sends(c *call) {
	if d.down > 0 {
		d.probing = c
	}
}

// heard takes note of what an attempt came to. It reports whether the door was
// opened or shut, or shut for longer.
func (d *door) heard(now time.Time, c *call, r *upstream.Result) bool {
	probe := d.probing == c
	if probe {
		d.probing = nil
	}
	switch {
	case r.Sent && d.down > 0:
		*d = door{shut: now} // what was sent before may still fail
		return true
	case (r.Unreachable || r.Unsigned) && (probe || d.down == 0 && !c.flight.sentAt.Before(d.shut)):
		d.down++
		d.shut = now
		d.probe = now.Add(probes.Delay(d.down, 0, rand.Float64()))
		return true
	}
	return false
}

// yields returns how long a call that could not be signed still waits because the
// door is shut: it may be the call's own fault, so whoever else can go is the next
// probe. Zero if the door is open, or nobody has taken the probe: then the one goes
// that has failed least often.
func (d *door) yields(now time.Time, c *call) time.Duration {
	f := c.sent()
	switch {
	case d.down == 0 || f.result == nil || !f.result.Unsigned:
		return 0
	case d.probing != nil:
		return probes.Delay(f.unreached+1, 0, rand.Float64())
	case now.Before(d.probe):
		after := 1 - 1/(float64(f.unreached)+1+rand.Float64())
		return d.probe.Sub(now) + time.Duration(after*float64(probes.Min))
	}
	return 0
}
