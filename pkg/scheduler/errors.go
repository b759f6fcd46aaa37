package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Reason is why a call has no answer of the upstream. It is an error too, so that
// errors.Is(err, scheduler.Paused) tells whether an [*Error] has it.
type Reason string

const (
	BadRequest   Reason = "bad_request"   // a field of the request is wrong
	BadKey       Reason = "bad_key"       // a limit's key, or the identity, is absent, empty or failing; or no client certificate fits
	NotFound     Reason = "not_found"     // no such upstream, limit or call
	WrongState   Reason = "wrong_state"   // the call has gone too far for it
	ChangedSince Reason = "changed_since" // the call was sent again, or decided, since the attempt that a decision names
	// MayExecuteTwice refuses to send an unknown call again whose repeat the upstream does not
	// recognise; see Decision.AcceptDuplicate.
	MayExecuteTwice Reason = "may_execute_twice"
	TooLarge        Reason = "too_large"     // the body is above max_body
	CostTooHigh     Reason = "cost_too_high" // the call costs more than its limit has
	KeyReused       Reason = "key_reused"    // the idempotency key was used for another request
	PastDeadline    Reason = "past_deadline" // its slot is, or was, later than it may wait
	Unreachable     Reason = "unreachable"   // no connection to the upstream
	Full            Reason = "full"          // max_waiting is reached
	Stopping        Reason = "stopping"      // the scheduler is closing
	Paused          Reason = "paused"        // the upstream is paused for longer than the call may wait
	NoAnswer        Reason = "no_answer"     // it was sent, and may have been executed; or the store may have it
	NotSent         Reason = "not_sent"      // the signer, for instance, could not complete it
	Gone            Reason = "gone"          // its caller has left, and nothing was sent
	StoreFailed     Reason = "store_failed"  // the store could not be written or read
	DiskFull        Reason = "disk_full"     // there is no room to store the call
	NoOwner         Reason = "no_owner"      // another process has the calls, and this one waits for its end
)

func (r Reason) Error() string { return string(r) }

// An Error says why a call was refused, or why there is no answer to it. It wraps its
// Reason and, where there is one, the error of the store: errors.Is finds [ErrNotFound],
// [ErrKeyReused], [ErrFull] and [ErrBroken] in it, [upstream.ErrStatus], and
// [upstream.ErrSigner].
type Error struct {
	Reason Reason
	Detail string // for people; holds nothing of the request's content but limit keys
	// Upstream and Limit name the subject of the reason, if it has one.
	Upstream string
	Limit    string
	// RetryAfter is when trying again makes sense; zero if it is not known.
	RetryAfter time.Duration
	// Call is the call as it ended; nil if there was none yet.
	Call *Call

	cause error // of the store, or of the attempt
}

// callOf returns the call of an error, nil if there is none.
func callOf(err error) *Call {
	var e *Error
	if errors.As(err, &e) {
		return e.Call
	}
	return nil
}

func (e *Error) Error() string { return "throttler: " + e.Detail }

// Unwrap returns the reason, and the error that led to it.
func (e *Error) Unwrap() []error {
	switch {
	case e.cause != nil:
		return []error{e.Reason, e.cause}
	case e.Reason == NotFound:
		return []error{e.Reason, ErrNotFound}
	}
	return []error{e.Reason}
}

// Timeout reports whether the call was not sent because its time was over, as a
// net.Error does.
func (e *Error) Timeout() bool { return e.Reason == PastDeadline }

// Outcome is the outcome of the call as far as it is known.
func (e *Error) Outcome() upstream.Outcome {
	if e.Reason == NoAnswer || e.Reason == WrongState && e.Call != nil && e.Call.State == Waiting { // the first call of a repeat, which may be sent yet
		return upstream.Unknown
	}
	return upstream.NotExecuted
}

// unstored says why the store did not take a call; nil if it did. A call that it may have taken is in the error, with its ID.
func unstored(j *journal, c *Call, r *Request, err error) error {
	if err == nil {
		return nil
	}
	var refused *Error
	var doubt interface{ InDoubt() bool } // of a store that has ended while it stored the call
	end := ended(err)
	switch {
	case errors.As(err, &doubt):
		j.check(err)
		doubtful := c.snapshot()
		doubtful.State = Unknown
		return &Error{Reason: NoAnswer, Upstream: r.Upstream, cause: err, Call: doubtful, Detail: fmt.Sprintf("call %s may have been stored, and is executed then; it was not, if the next process does not find it: %v", c.ID, err)}
	case end != nil:
		return &Error{Reason: KeyReused, Upstream: r.Upstream, cause: err, Detail: fmt.Sprintf("call %s, such as a cancel, a close or a reverse, has ended this identity (ends): no call of it is sent any more. Look at the upstream whether one was executed before; if none was, use a new business number", end.by)}
	case errors.As(err, &refused), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, ErrKeyReused) && r.IdempotencyKey == "":
		return &Error{Reason: KeyReused, Upstream: r.Upstream, cause: err, Detail: fmt.Sprintf("%v (identity). If this is meant as a repeat, look that call up: with another content the upstream may take it for a second one. If it is not, give it a business number of its own", err)}
	case errors.Is(err, ErrKeyReused):
		return &Error{Reason: KeyReused, Upstream: r.Upstream, cause: err, Detail: fmt.Sprintf("%v (idempotency key %q). If this is meant as a repeat, look that call up: a new key would make a second one. If it is not, give it a key of its own", err, r.IdempotencyKey)}
	case errors.Is(err, ErrFull):
		return &Error{Reason: DiskFull, Upstream: r.Upstream, cause: err, RetryAfter: time.Second, Detail: "the store's disk is full and the call was not taken; free some space, or send it again later"}
	}
	j.check(err)
	return storeFailed(err, r.Upstream, "the call could not be stored")
}

// storeFailed is the refusal of a store. One that is not broken, such as a server that is away, comes back.
func storeFailed(err error, upstream, detail string) *Error {
	var doubt interface{ InDoubt() bool }
	if errors.As(err, &doubt) {
		return &Error{Reason: NoAnswer, Upstream: upstream, cause: err, Detail: detail + ", or its answer was lost: it may take effect; look before you repeat it: " + err.Error()}
	}
	return storeRefused(err, upstream, detail)
}

// storeRefused is storeFailed of a change that has no effect though the store may have it.
func storeRefused(err error, upstream, detail string) *Error {
	e := &Error{Reason: StoreFailed, Upstream: upstream, cause: err, Detail: detail + ": " + err.Error()}
	if !errors.Is(err, ErrBroken) {
		e.RetryAfter = time.Second
	}
	return e
}
