package retry

import (
	"math"
	"time"
)

// probes is how long an upstream that is down is left alone between two probes.
var probes = Curve{Min: 500 * time.Millisecond, Max: 30 * time.Second}

// A Breaker is a circuit breaker: it stops attempts while an upstream cannot be reached,
// or its signer does not answer. The first failure opens it. Then one attempt at a time
// probes the way, each after a longer wait, and an attempt that was sent closes it.
//
//	closed ── unreachable ──► open ── wait ──► half-open: one probe ── sent ──► closed
//	                            ▲                     │
//	                            └──── unreachable ────┘
//
// The zero Breaker is closed. It has state and belongs to one goroutine.
type Breaker struct {
	failures int       // in a row; 0 while it is closed
	closed   time.Time // when it closed last
	probeAt  time.Time // no probe before it
	probe    uint64    // the attempt that probes, 0 if there is none
}

// A Reach says whether an attempt got through to its upstream.
type Reach uint8

const (
	Unproven Reach = iota // nothing is known: it was cancelled before, for example
	Reached               // a byte was sent
	Failing               // no connection, or no signature, could be had
)

// Allow returns how many attempts may begin: any number, one probe, or none.
func (b *Breaker) Allow(now time.Time) int {
	switch {
	case b.failures == 0:
		return math.MaxInt
	case b.probe == 0 && !now.Before(b.probeAt):
		return 1
	}
	return 0
}

// Open reports whether the upstream is down.
func (b *Breaker) Open() bool { return b.failures > 0 }

// Failures returns how many attempts in a row have failed.
func (b *Breaker) Failures() int { return b.failures }

// Until returns when the next probe may begin; zero if the breaker is closed.
func (b *Breaker) Until(now time.Time) time.Time {
	switch {
	case b.failures == 0:
		return time.Time{}
	case b.probeAt.Before(now):
		return now
	}
	return b.probeAt
}

// Begin notes an attempt that begins; id is not 0, and names it until Record.
func (b *Breaker) Begin(id uint64) {
	if b.failures > 0 {
		b.probe = id
	}
}

// Record notes how an attempt ended that began at an instant. It reports whether the
// breaker has opened, closed, or stays open for longer. Random is from [0, 1).
func (b *Breaker) Record(now time.Time, id uint64, began time.Time, reach Reach, random float64) (changed bool) {
	probed := b.probe == id
	if probed {
		b.probe = 0
	}
	switch {
	case reach == Reached && b.failures > 0:
		*b = Breaker{closed: now} // attempts that began before may still fail
		return true
	case reach == Failing && (probed || b.failures == 0 && !began.Before(b.closed)):
		b.failures++
		b.probeAt = now.Add(probes.Delay(b.failures, 0, random))
		return true
	}
	return false
}

// Reset closes the breaker: the upstream is another one now.
func (b *Breaker) Reset(now time.Time) { *b = Breaker{closed: now} }

// Defer returns how long a call whose signature failed waits while the breaker is open,
// so that the next probe is another call: the fault may be its own. Failed is how often
// in a row the call failed to go out. It is zero if the breaker is closed, or no call
// has taken the probe that is due: then the call with the fewest failures goes.
func (b *Breaker) Defer(now time.Time, failed int, random float64) time.Duration {
	switch {
	case b.failures == 0:
	case b.probe != 0:
		return probes.Delay(failed+1, 0, random)
	case now.Before(b.probeAt):
		after := 1 - 1/(float64(failed)+1+random)
		return b.probeAt.Sub(now) + time.Duration(after*float64(probes.Min))
	}
	return 0
}
