// Package retry decides whether a call is sent again, and when.
//
// The main calls are [Policy.Next], the decision after an attempt, [Curve.Delay],
// the wait before the n-th try of anything, and [Budget.Take], which keeps repeats
// to a share of the traffic. The instant and the random number are arguments, and
// nothing here sleeps.
//
//	outcome       sent again?                                     counts as attempt
//	done, failed  never                                           -
//	not_executed  always: nothing happened yet                    no
//	unknown       only where the upstream recognises a repeat,    yes
//	              and only while attempts are left
//
// A platform that limits, or that cannot be reached, has executed nothing; the
// call waits again as if it had not been sent. A call of unknown outcome may have
// moved money: sending it again is safe only where the upstream itself recognises
// the repeat, and no policy changes that.
//
// [FromBackoff] and [FromCheckRetry] adapt hooks written for hashicorp/go-retryablehttp.
// A policy is a value without state, safe for concurrent use if its hooks are; a
// budget has one owner.
package retry

import (
	"net/http"
	"time"
)

// Defaults of the fields of a [Policy] and a [Curve].
const (
	DefaultAttempts = 4
	DefaultMin      = 500 * time.Millisecond
	DefaultMax      = time.Minute
)

// Outcome is the result of an attempt.
type Outcome string

const (
	Done        Outcome = "done"         // executed, and answered so
	Failed      Outcome = "failed"       // refused for good
	NotExecuted Outcome = "not_executed" // limited, or never sent
	Unknown     Outcome = "unknown"      // may have been executed
)

// Cause says more of an attempt that was not executed.
type Cause uint8

const (
	NeverSent    Cause = iota // for a reason that says nothing of the upstream
	Unreachable               // no connection could be had
	Unsigned                  // the signer could not complete it for now
	Unprocessed               // the upstream did not process it: HTTP/2 says so, or its token was refused
	Limited                   // the upstream refused it, as it would others
	LimitedAlone              // the upstream refused this call alone
)

// An Attempt is the input of a policy.
type Attempt struct {
	// Number is how many attempts of the call count, this one included, from 1.
	Number  int
	Outcome Outcome
	Cause   Cause // where Outcome is NotExecuted
	// Failures counts the attempts in a row before this one that did not get through.
	Failures int
	// Repeatable tells that the upstream recognises a repeat of this call.
	Repeatable bool
	// Until, if not zero, is when it ceases to: a repeat must be sent before.
	Until time.Time
	// RetryAfter is how long the upstream asks to wait; zero if it does not say.
	RetryAfter time.Duration
	// Last is the wait before this attempt; zero if there was none.
	Last time.Duration
	// Response and Err are the results of the attempt, for Check and Backoff; each
	// may be nil. The body of the response must not be read.
	Response *http.Response
	Err      error
}

// A Curve is how delays grow. Its zero value is ready to use.
type Curve struct {
	// Min and Max bound a delay; zero means DefaultMin and DefaultMax.
	Min, Max time.Duration
	// Backoff is the curve between them; nil means Exponential.
	Backoff Backoff
}

// A Policy decides on repeats. Its zero value is ready to use.
type Policy struct {
	// Attempts is how many attempts a call may burn; zero means DefaultAttempts.
	Attempts int
	// Curve is the delay of repeats after an unknown outcome.
	Curve
	// Limited is the delay where an upstream limits without a Retry-After; nil: Curve.
	Limited *Curve
	// Share bounds the repeats after unknown outcomes to a share of the first
	// attempts, as a [Budget] does; zero: no bound.
	Share float64
	// Check, if not nil, may end a call of unknown outcome that would be sent again.
	// It cannot make an unsafe repeat safe, and is not called for NotExecuted: such
	// hooks look at the status, which does not tell whether a call was executed.
	Check func(Attempt) bool
}

// A Decision is the answer of a policy.
type Decision struct {
	Again   bool
	At      time.Time // when, if again; not before
	Counted bool      // whether the attempt counts
	// Failures counts the attempts in a row, this one included, that did not get through.
	Failures int
}

// Next decides what follows an attempt that ended at now. The random number is
// taken from [0, 1).
func (p Policy) Next(now time.Time, a Attempt, random float64) Decision {
	switch a.Outcome {
	case NotExecuted:
		return p.notExecuted(now, a, random)
	case Unknown:
		never := Decision{Counted: true, Failures: a.Failures}
		if !a.Repeatable || p.Spent(a.Number) || p.Check != nil && !p.Check(a) {
			return never
		}
		wait := p.delay(Step{N: a.Number, Last: a.Last, Random: random, Response: a.Response})
		at := now.Add(max(a.RetryAfter, wait))
		if !a.Until.IsZero() && !at.Before(a.Until) {
			return never // by then it would be a second call
		}
		return Decision{Again: true, At: at, Counted: true, Failures: a.Failures}
	default:
		return Decision{Counted: true}
	}
}

// notExecuted decides about an attempt that has executed nothing: it goes again. A call
// that was limited waits for the pause of its limit, and one without a connection for the
// breaker of its upstream, so neither waits here. A signature or a connection that fails
// may be the call's own fault: it backs off, so that another one is the next probe; but
// the first request that HTTP/2 takes back has met the end of a connection, most often, and
// the first 401 that of a token. A call that is limited alone again and again backs off too,
// because no pause slows it and others like it down.
func (p Policy) notExecuted(now time.Time, a Attempt, random float64) Decision {
	d := Decision{Again: true, At: now, Failures: a.Failures}
	switch a.Cause {
	case Unreachable:
		d.Failures++
	case Unsigned, Unprocessed:
		d.Failures++
		if a.Cause == Unsigned || a.Failures > 0 {
			d.At = now.Add(probes.Delay(d.Failures+1, 0, random))
		}
	case Limited:
		d.Failures = 0
	case LimitedAlone:
		d.Failures++
		wait := a.RetryAfter
		if a.Failures > 0 {
			c := p.LimitedCurve()
			c.Backoff = Exponential // it needs no wait but the number of failures
			wait = max(wait, c.Delay(d.Failures, 0, random))
		}
		d.At = now.Add(max(0, wait))
	default:
		d.At = now.Add(max(0, a.RetryAfter))
	}
	return d
}

// Delay returns the wait after the n-th failure in a row, n from 1, where the wait
// before was last.
func (c Curve) Delay(n int, last time.Duration, random float64) time.Duration {
	return c.delay(Step{N: n, Last: last, Random: random})
}

func (c Curve) delay(s Step) time.Duration {
	s.Min, s.Max = c.Min, c.Max
	if s.Min == 0 {
		s.Min = DefaultMin
	}
	if s.Max == 0 {
		s.Max = max(s.Min, DefaultMax)
	}
	curve := c.Backoff
	if curve == nil {
		curve = Exponential
	}
	return max(0, curve(s))
}

// LimitedCurve returns the curve of delays where an upstream limits.
func (p Policy) LimitedCurve() Curve {
	if p.Limited != nil {
		return *p.Limited
	}
	return p.Curve
}

// Spent reports whether a call with n attempts that count has none left.
func (p Policy) Spent(n int) bool { return n >= p.attempts() }

func (p Policy) attempts() int {
	if p.Attempts == 0 {
		return DefaultAttempts
	}
	return p.Attempts
}
