package retry

import (
	"math"
	"slices"
	"time"
)

// How long an upstream is left alone between two probes: by calls that it recognises when
// they are repeated, and by others, of which each failed probe leaves one unknown.
var (
	probes      = Curve{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	riskyProbes = Curve{Min: probes.Min, Max: 5 * time.Minute}
)

const (
	// calm is how long a breaker must stay closed, so that the next trip is the first of
	// a row: probes begin less often with each trip of a row.
	calm = time.Minute
	// minPatience is the shortest silence that opens a breaker by itself.
	minPatience = 5 * time.Second
	// remembered is how many answers tell how long one usually takes.
	remembered = 128
	// fullSpeed is the number in flight at which a slow start is over.
	fullSpeed = 1000
)

// A Trip says which attempts open a [Breaker], besides those that cannot reach the
// upstream. The zero Trip names none.
type Trip struct {
	// Unknown is how many of the last Of subjects have an unknown outcome when the breaker
	// opens. The attempts of one subject, which [Breaker.Record] explains, count once, as the
	// last one has ended.
	Unknown, Of int
	// Silent is the time without any answer that opens the breaker while Unknown attempts
	// are in flight. 0 means four times the 99th percentile of the last answers, and at
	// least 5 s; with fewer than Of answers it is not known.
	Silent time.Duration
}

// A Breaker is a circuit breaker: it stops attempts while an upstream cannot be reached,
// while its signer does not answer, while too many outcomes are unknown, or while the
// upstream is silent. Then one attempt at a time probes the way, each after a longer wait.
//
//	closed ── a failure, or a trip ──► open ── wait ──► half-open: one probe ── answered ──► closed
//	                                     ▲                     │
//	                                     └─────── failed ──────┘
//
// Outcomes are those of calls, not of attempts: a payload that always fails, sent again and again
// under its key, is one outcome, and no sign of a failing upstream. So traffic of a single subject
// opens the breaker only if no connection can be had, or if many of its attempts are in flight and
// silent. Else it stays closed, because a repeat can leave no more than the one call unknown.
//
// The words are those of Hystrix and resilience4j (count-based sliding window). That trips
// in a row keep the upstream away longer is Envoy's outlier ejection. After a trip it is a
// slow start, as TCP's: one attempt at a time, and one more with each answer.
//
// The zero Breaker is closed, and no [Trip] opens it. It has state and belongs to one
// goroutine.
type Breaker struct {
	trip     Trip
	health   Health
	failures int       // in a row, of the opening and its probes; 0 while it is closed
	trips    int       // in a row
	changed  time.Time // when the last failure, or the closing, was noticed
	probeAt  time.Time // no probe before it
	riskAt   time.Time // no probe before it that could become unknown for good
	probe    uint64    // the attempt that probes, 0 if there is none

	outcomes outcomes // of the last Trip.Of subjects

	flying int       // attempts that began since the breaker closed
	most   int       // of them, during a slow start; 0 means any number
	heard  time.Time // when the last attempt ended
	full   time.Time // when flying last rose to trip.Unknown
	took   ring[time.Duration]
}

// Health is the state of an upstream as its breaker knows it.
type Health uint8

const (
	Healthy Health = iota
	Down           // no connection, or no signature, can be had
	Failing        // too many outcomes are unknown
	Silent         // attempts are in flight, and no answer comes
)

var healthNames = [...]string{"healthy", "down", "failing", "silent"}

func (h Health) String() string { return healthNames[h] }

// A Reach says how far an attempt got.
type Reach uint8

const (
	Unproven  Reach = iota // nothing is known: it was cancelled before, for example
	Unreached              // no connection, or no signature, could be had
	Unsure                 // it was sent, and its outcome is unknown
	Reached                // it was sent, and its outcome is known
)

// Set takes another Trip from now on.
func (b *Breaker) Set(t Trip) {
	b.trip, b.outcomes = t, newOutcomes(t.Of)
	if b.took.values == nil {
		b.took = newRing[time.Duration](remembered)
	}
}

// Allow returns how many attempts may begin: any number, one probe, or none.
func (b *Breaker) Allow(now time.Time) int {
	switch {
	case b.health == Healthy && b.most == 0:
		return math.MaxInt
	case b.health == Healthy:
		return max(0, b.most-b.flying)
	case b.probe == 0 && !now.Before(b.probeAt):
		return 1
	}
	return 0
}

// Risk reports whether the probe that Allow lets begin may be a call that cannot be
// repeated. Of an upstream that cannot be reached no probe is sent, so any call will do.
func (b *Breaker) Risk(now time.Time) bool { return !now.Before(b.riskAt) }

// ProbeAt returns the instant from which Allow lets a probe begin, and RiskAt that from
// which Risk is true.
func (b *Breaker) ProbeAt() time.Time { return b.probeAt }
func (b *Breaker) RiskAt() time.Time  { return b.riskAt }

// Heard returns when the last attempt ended, or when many began to be in flight since.
func (b *Breaker) Heard() time.Time {
	if b.heard.After(b.full) {
		return b.heard
	}
	return b.full
}

// Health returns why the breaker is open, or Healthy.
func (b *Breaker) Health() Health { return b.health }

// Open reports whether calls wait for the breaker.
func (b *Breaker) Open() bool { return b.health != Healthy }

// Failures returns how many attempts in a row have failed since the breaker opened.
func (b *Breaker) Failures() int { return b.failures }

// Until returns when the next probe may begin; zero if the breaker is closed.
func (b *Breaker) Until(now time.Time) time.Time {
	switch {
	case b.health == Healthy:
		return time.Time{}
	case b.probeAt.Before(now):
		return now
	}
	return b.probeAt
}

// Begin notes an attempt that begins; id is not 0, and names it until Record.
func (b *Breaker) Begin(now time.Time, id uint64) {
	if b.Open() {
		b.probe = id
		return
	}
	if b.flying++; b.flying == b.trip.Unknown {
		b.full = now
	}
}

// Record notes how an attempt ended that began at an instant. Subject is a hash of what the
// attempt was about: equal for the attempts of one call, and for calls that are repeats of one
// payload under one key. It reports whether the breaker has opened, closed, or changed the instant
// of its next probe. Random is from [0, 1).
func (b *Breaker) Record(now time.Time, id, subject uint64, began time.Time, reach Reach, random float64) (changed bool) {
	probed := b.probe == id
	if probed {
		b.probe = 0
	}
	if reach == Reached {
		b.took.add(now.Sub(began))
	}
	switch {
	case b.Open():
		return b.recordOpen(now, probed, reach, random)
	case began.Before(b.changed): // it may have failed for a reason that is over
		return false
	}
	b.flying--
	switch reach {
	case Unreached:
		b.open(now, Down, random)
	case Reached, Unsure:
		b.heard = now
		if reach == Reached && b.most > 0 {
			b.most = (b.most + 1) % fullSpeed
		}
		if b.outcomes.note(subject, reach == Unsure); b.trip.Unknown > 0 && b.outcomes.unknown >= b.trip.Unknown {
			b.open(now, Failing, random)
		}
	}
	return b.Open()
}

// recordOpen is Record while the breaker is open.
func (b *Breaker) recordOpen(now time.Time, probed bool, reach Reach, random float64) (changed bool) {
	sent := reach == Reached || reach == Unsure && b.trip.Unknown == 0
	switch {
	case sent && (probed || b.health == Down):
		b.close(now)
		return true
	case sent && b.health == Silent: // it is heard again: the next probe need not wait
		if at := b.changed.Add(probes.Min); at.Before(b.probeAt) {
			b.probeAt, b.riskAt = at, at
			return true
		}
	case probed && reach != Unproven:
		if reach == Unsure {
			b.health = Failing
		}
		b.failures++
		b.wait(now, random)
		return true
	}
	return false
}

// open opens the breaker.
func (b *Breaker) open(now time.Time, h Health, random float64) {
	b.failures = 1
	if h != Down {
		if now.Sub(b.changed) > calm {
			b.trips = 0
		}
		b.trips++
		b.failures = b.trips
	}
	b.health = h
	b.wait(now, random)
}

// wait sets the instant of the next probe.
func (b *Breaker) wait(now time.Time, random float64) {
	b.changed = now
	b.probeAt = now.Add(probes.Delay(b.failures, 0, random))
	b.riskAt = b.probeAt
	if b.health != Down {
		b.riskAt = now.Add(riskyProbes.Delay(b.failures, 0, random))
	}
}

// close closes the breaker. Attempts that began before may still fail.
func (b *Breaker) close(now time.Time) {
	if b.health == Failing || b.health == Silent {
		b.most = 1
	}
	b.health, b.failures, b.changed, b.probe, b.flying = Healthy, 0, now, 0, 0
	b.Set(b.trip)
}

// Reset closes the breaker: the upstream is another one now, or a person says that it is
// well.
func (b *Breaker) Reset(now time.Time) {
	b.close(now)
	b.most, b.trips = 0, 0
}

// Restore opens the breaker as an earlier process left it.
func (b *Breaker) Restore(now time.Time, h Health, random float64) {
	if h != Healthy {
		b.open(now, h, random)
	}
}

// Listen opens the breaker if the upstream is silent now. Else it returns when it will be
// if no attempt ends before; zero if too few are in flight, or the usual time of an
// answer is not known.
func (b *Breaker) Listen(now time.Time, random float64) (opened bool, at time.Time) {
	if b.Open() || b.trip.Unknown == 0 || b.flying < b.trip.Unknown {
		return false, time.Time{}
	}
	patience := b.patience()
	if patience == 0 {
		return false, time.Time{}
	}
	if at = b.Heard().Add(patience); at.After(now) {
		return false, at
	}
	b.open(now, Silent, random)
	return true, time.Time{}
}

// patience returns how long no answer is no silence yet; 0 if that is not known.
func (b *Breaker) patience() time.Duration {
	switch {
	case b.trip.Silent > 0:
		return b.trip.Silent
	case len(b.took.values) < b.trip.Of:
		return 0
	}
	took := slices.Sorted(slices.Values(b.took.values))
	return max(minPatience, 4*took[(99*len(took)+99)/100-1])
}

// Defer returns how long a call whose signature failed waits while the breaker is open,
// so that the next probe is another call: the fault may be its own. Failed is how often
// in a row the call failed to go out. It is zero if the breaker is closed, or no call
// has taken the probe that is due: then the call with the fewest failures goes.
func (b *Breaker) Defer(now time.Time, failed int, random float64) time.Duration {
	switch {
	case b.health == Healthy:
	case b.probe != 0:
		return probes.Delay(failed+1, 0, random)
	case now.Before(b.probeAt):
		after := 1 - 1/(float64(failed)+1+random)
		return b.probeAt.Sub(now) + time.Duration(after*float64(probes.Min))
	}
	return 0
}
