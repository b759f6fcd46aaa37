package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Reason is why a call has no answer of the upstream.
type Reason string

const (
	BadRequest   Reason = "bad_request"   // a field of the request is wrong
	BadKey       Reason = "bad_key"       // a limit's key is absent, empty or failing
	NotFound     Reason = "not_found"     // no such upstream, limit or call
	WrongState   Reason = "wrong_state"   // the call has gone too far for it
	TooLarge     Reason = "too_large"     // the body is above max_body
	CostTooHigh  Reason = "cost_too_high" // the call costs more than its limit has
	KeyReused    Reason = "key_reused"    // the idempotency key was used for another request
	PastDeadline Reason = "past_deadline" // its slot is, or was, later than it may wait
	Unreachable  Reason = "unreachable"   // no connection to the upstream
	Full         Reason = "full"          // max_waiting is reached
	Stopping     Reason = "stopping"      // the scheduler is closing
	Paused       Reason = "paused"        // the upstream is shut for longer than the call may wait
	NoAnswer     Reason = "no_answer"     // it was sent, and may have been executed
	NotSent      Reason = "not_sent"      // the signer, for instance, could not complete it
	Gone         Reason = "gone"          // nobody waits for the answer any more, and nothing was sent
	StoreFailed  Reason = "store_failed"  // the call could not be stored
	DiskFull     Reason = "disk_full"     // there is no room to store the call
)

// An Error says why a call was refused, or why there is no answer to it.
type Error struct {
	Reason Reason
	Detail string // for people; holds nothing of the request's content but limit keys
	// Upstream and Limit name what the reason is about, if anything.
	Upstream string
	Limit    string
	// RetryAfter is when trying again makes sense; zero if it is not known.
	RetryAfter time.Duration
	// Call is the call as it ended; nil if there was none yet.
	Call *Call
}

func (e *Error) Error() string { return "throttler: " + e.Detail }

// Outcome is what is known of the call's execution.
func (e *Error) Outcome() upstream.Outcome {
	if e.Reason == NoAnswer {
		return upstream.Unknown
	}
	return upstream.NotExecuted
}
