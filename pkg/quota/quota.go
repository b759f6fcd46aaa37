// Package quota keeps limits of the form "at most N calls per window" exactly,
// as the receiver of the calls counts them.
//
// A [Ledger] holds the permits of several limits:
//
//	short, ok := ledger.Take(now, needs)   // all permits or none
//	ledger.Return(now, needs, attempt)     // the attempt has ended
//	at := ledger.ETA(now, need, ahead, t)  // when will the calls ahead have gone?
//
// # Why it is exact
//
// A call arrives between its first byte and its response. So a permit is taken
// before the first byte and comes back at response + window. Take the last-sent
// of any N+1 arrivals within one window: each other one was sent before it and
// its permit had not come back, so N permits were out, and it was not sent. No
// common clock, no model of the network; the price is one round trip per window.
//
//	N = 2 per 1s   sent ├──────┤ response        permit back
//	call 1            0 ├──┤ 20ms                at 1020ms
//	call 2            5 ├────┤ 45ms              at 1045ms
//	call 3                    waits until 1020ms ├──┤
//	call 4                    waits until 1045ms   ├──┤
//
// A cost that only the answer tells is taken at its upper bound, so that never fewer permits are
// out than the receiver counts. With the answer the unused ones are free (see [Attempt]).
//
// The receiver may still read an unanswered attempt after its end: the permit
// comes back Late later. One of an attempt that was never sent is free at once.
//
// # Kinds of limits
//
// They differ only in their [Window], the rule by which a permit comes back:
// [Sliding], [Aligned] or [InFlight]. A minimum distance is one call per window; a
// cost is several permits; spacing is a token bucket of golang.org/x/time/rate.
//
// A Ledger takes the instant, owns no goroutine and no lock, and knows limits,
// keys and costs, not calls. If a receiver counts an unanswered attempt later than
// Late after its end, the limit may be exceeded there.
package quota

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultMaxKeys is the MaxKeys of a limit that gives none.
	DefaultMaxKeys = 100_000

	// The maxima of a limit's numbers and durations.
	MaxCalls  = 1_000_000_000
	MaxWindow = 366 * 24 * time.Hour
	MaxKeys   = 10_000_000
)

// A Limit is "at most Calls per Window, counted per key".
type Limit struct {
	// Name is the limit's name in messages.
	Name string
	// Calls is the number of permits per key, at least 1.
	Calls int
	// Window is the kind of the limit: it decides when a permit comes back.
	Window Window
	// Late is how long after its end an unanswered attempt may still be counted by the receiver.
	Late time.Duration
	// Guard, if positive, caps the hold of a slow answer: the permit comes back
	// as if the response had come at min(response, written+Guard). That is exact only
	// while a call's way to the receiver takes less than Guard.
	Guard time.Duration
	// Burst, if positive, spaces the calls inside a sliding window: a token
	// bucket of Calls per Window that holds Burst.
	Burst int
	// Partly tells that not every answered attempt counts, or not whole (see [Uncounted] and
	// [Attempt]): the ETA then assumes that the permits of attempts in flight come back
	// with the response.
	Partly bool
	// MaxKeys is how many keys with permits out there may be at a time; zero
	// means DefaultMaxKeys. Calls of further keys wait until a key has no permit out; the
	// first one gets its place. If none comes free within a window, one key gets no
	// permit until its last one is back. A key takes some 0.9 KiB of memory.
	MaxKeys int
}

// A FieldError is one fault of a Limit.
type FieldError struct {
	Field string // as in YAML: calls, window, skew, late, guard, burst, max_keys
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// Check reports all faults that make a limit impossible, each a [*FieldError], joined.
func (c Limit) Check() error {
	var faults faults
	within(&faults, "calls", c.Calls, 1, MaxCalls)
	within(&faults, "late", c.Late, 0, MaxWindow)
	within(&faults, "guard", c.Guard, 0, MaxWindow)
	if c.Burst < 0 || c.Burst > max(c.Calls, 0) {
		faults.add("burst", "is %d, must be from 0 to calls (%d)", c.Burst, c.Calls)
	}
	within(&faults, "max_keys", c.MaxKeys, 0, MaxKeys)
	if c.Window == nil {
		faults.add("window", "is missing")
		return errors.Join(faults...)
	}
	c.Window.check(&faults)
	if c.Burst > 0 && !c.Window.Slides() {
		faults.add("burst", "is %d, but spacing needs a sliding window", c.Burst)
	}
	return errors.Join(faults...)
}

// faults are the errors of one Check.
type faults []error

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, &FieldError{field, fmt.Errorf(format, args...)})
}

// within adds a fault unless the value lies between low and high, both included.
func within[T int | time.Duration](f *faults, field string, value, low, high T) {
	if value < low || value > high {
		f.add(field, "is %v, must be from %v to %v", value, low, high)
	}
}

// spacing returns the token bucket of a limit, or nil.
func (c Limit) spacing() *rate.Limiter {
	if c.Burst == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(c.Calls)/c.Window.Length().Seconds()), c.Burst)
}

// A Need is the permits of one limit that a call takes.
type Need struct {
	Limit int    // index into the limits given to New
	Key   string // each key is counted apart; empty where the limit has one key
	Cost  int    // permits, at least 1
}

// Fate is how much is known of an attempt that has ended.
type Fate uint8

const (
	// Answered: the counting host responded at Attempt.End.
	Answered Fate = iota
	// Unanswered: it may have been counted, and may yet be, up to Late after Attempt.End.
	Unanswered
	// Uncounted: not one byte was written, or the receiver does not count the
	// attempt's outcome.
	Uncounted
)

// An Attempt is one sending, as far as a ledger needs to know it.
type Attempt struct {
	Sent    time.Time // when the permits were taken
	Written time.Time // when the last byte of the request was written; zero means Sent
	End     time.Time // the response, or when it was given up
	Fate    Fate
	// Unused is how many permits of each need were not used, as the answer says: they are back
	// at once. It counts if the attempt is Answered, up to the need's cost.
	Unused int
}

// A Shortage is the reason why a call gets no permits.
type Shortage struct {
	// Need is the index, among the needs given to Take, of the one that will be
	// met last as things stand.
	Need int
	// Until is the earliest instant at which it can be met. Zero means: not
	// before an attempt that is in flight ends.
	Until time.Time
}
