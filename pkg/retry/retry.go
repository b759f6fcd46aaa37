// Package retry decides whether a call is sent again, and when.
//
// The main calls are [Policy.Next], the decision after an attempt, and
// [Policy.Delay], the wait before the n-th try of anything. Both are pure: the
// instant and the random number are arguments, and nothing here sleeps.
//
//	outcome       sent again?                                     burns an attempt
//	done, failed  never                                           -
//	not_executed  always: nothing happened yet                    no
//	unknown       only where the upstream recognises a repeat,    yes
//	              and only while attempts are left
//
// A platform that limits, or that cannot be reached, has executed nothing; the
// call goes back to waiting as if it had not been tried. An unknown outcome may
// have moved money: sending it again is safe only where the upstream itself
// recognises the repeat, and no policy changes that.
//
// [FromBackoff] and [FromCheckRetry] take the hooks that people have written for
// hashicorp/go-retryablehttp. A policy is a value without state, safe for
// concurrent use if its hooks are.
package retry

import (
	"net/http"
	"time"
)

// Defaults of a [Policy] whose fields are zero.
const (
	DefaultAttempts = 4
	DefaultMin      = 500 * time.Millisecond
	DefaultMax      = time.Minute
)

// Outcome is what an attempt came to.
type Outcome string

const (
	Done        Outcome = "done"         // executed, and answered so
	Failed      Outcome = "failed"       // refused for good
	NotExecuted Outcome = "not_executed" // limited, or never sent
	Unknown     Outcome = "unknown"      // may have been executed
)

// An Attempt is what a policy looks at.
type Attempt struct {
	// Number counts the attempts of the call that were burnt, this one included, from 1.
	Number  int
	Outcome Outcome
	// Repeatable tells that the upstream recognises a repeat of this call.
	Repeatable bool
	// RetryAfter is how long the upstream asks to wait; zero if it does not say.
	RetryAfter time.Duration
	// Response and Err are what the attempt gave, for Check and Backoff; each
	// may be nil. The body of the response must not be read.
	Response *http.Response
	Err      error
}

// A Policy says how calls come back. Its zero value is ready to use.
type Policy struct {
	// Attempts is how many attempts a call may burn; zero means DefaultAttempts.
	Attempts int
	// Min and Max bound a delay; zero means DefaultMin and DefaultMax.
	Min, Max time.Duration
	// Backoff is the curve between them; nil means Exponential.
	Backoff Backoff
	// Check, if not nil, may end a call that would be sent again. It cannot make
	// an unsafe repeat safe.
	Check func(Attempt) bool
}

// A Decision is the answer of a policy.
type Decision struct {
	Again bool
	At    time.Time // when, if again; not before
	Burnt bool      // whether the attempt counts
}

// Next decides what follows an attempt that ended at now. The random number is
// taken from [0, 1).
func (p Policy) Next(now time.Time, a Attempt, random float64) Decision {
	switch a.Outcome {
	case NotExecuted:
		return Decision{Again: p.Check == nil || p.Check(a), At: now.Add(max(0, a.RetryAfter))}
	case Unknown:
		if !a.Repeatable || a.Number >= p.attempts() || p.Check != nil && !p.Check(a) {
			return Decision{Burnt: true}
		}
		wait := max(a.RetryAfter, p.delay(a.Number, random, a.Response))
		return Decision{Again: true, At: now.Add(wait), Burnt: true}
	default:
		return Decision{Burnt: true}
	}
}

// Delay returns the wait after the n-th failure in a row, n from 1.
func (p Policy) Delay(n int, random float64) time.Duration { return p.delay(n, random, nil) }

func (p Policy) delay(n int, random float64, resp *http.Response) time.Duration {
	lo, hi, curve := p.Min, p.Max, p.Backoff
	if lo == 0 {
		lo = DefaultMin
	}
	if hi == 0 {
		hi = max(lo, DefaultMax)
	}
	if curve == nil {
		curve = Exponential
	}
	return max(0, curve(lo, hi, n, random, resp))
}

func (p Policy) attempts() int {
	if p.Attempts == 0 {
		return DefaultAttempts
	}
	return p.Attempts
}
