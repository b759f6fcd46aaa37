package scheduler

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A next is what follows an attempt.
type next struct {
	again  bool      // the call may be sent again
	at     time.Time // when, if again; not before
	flight flight    // the call's history with this attempt in it
}

// nextAttempt says when a call goes again after an attempt, if at all. It is pure, and
// the only place that decides it: from the result, the attempts before and the decision
// of the retry policy. The loop adds the pause of a limit, the deadline and, for a call
// without a signature, the wait of the circuit breaker.
//
//	attempt                            again                                  when
//	done, failed                       never                                  -
//	limited                            always                                 when the pause is over
//	limited, this call alone           always                                 Retry-After, then backoff of the call
//	no connection                      always                                 when the breaker lets it
//	no signature, not processed        always                                 backoff of the call
//	unknown                            if the upstream recognises a repeat,   backoff of the policy
//	                                   and attempts and retention last
//
// After a query that found nothing, see repeatAfterQuery.
//
// A caller who waits gets the first answer, unless the request may be resent as it is, or
// a signer makes it anew; an answer that is still streaming is always passed on. And it
// does not wait for an upstream or a signer that stays down, or for room on the disk.
func nextAttempt(now time.Time, sv *service, async bool, h flight, r *upstream.Result, d retry.Decision) next {
	n := next{at: d.At, flight: h}
	f := &n.flight
	f.used = f.used || r.Sent && !r.Unprocessed
	f.maybe = f.maybe || r.Outcome == upstream.Unknown
	if d.Counted {
		f.counted++
		f.backoff = d.At.Sub(now)
		f.repeat = d.Again
	}
	f.failures = d.Failures
	n.again = d.Again && sv.mayResend(async, f, r)
	return n
}

// retryAttempt is an attempt as the retry policy sees it.
func (sv *service) retryAttempt(request *upstream.Request, h flight, r *upstream.Result) retry.Attempt {
	repeatable, until := sv.repeatable(request, h, r)
	return retry.Attempt{
		Number: h.counted + 1, Outcome: retry.Outcome(r.Outcome), Cause: causeOf(r), Failures: h.failures,
		Repeatable: repeatable, Until: until,
		RetryAfter: r.RetryAfter, Last: h.backoff, Response: r.Response, Err: r.Err,
	}
}

// causeOf returns the cause of an attempt that was not executed.
func causeOf(r *upstream.Result) retry.Cause {
	switch {
	case r.Unprocessed:
		return retry.Unprocessed
	case r.Unsigned:
		return retry.Unsigned
	case r.Unreachable:
		return retry.Unreachable
	case r.Sent && r.Alone:
		return retry.LimitedAlone
	case r.Sent:
		return retry.Limited
	}
	return retry.NeverSent
}

// mayResend reports whether a call may be sent again, if its outcome allows it. The
// flight has this attempt in it.
func (sv *service) mayResend(async bool, f *flight, r *upstream.Result) bool {
	switch {
	case f.used && sv.Signer == nil && sv.Signature.Once:
		return false
	case async:
		return true
	case r.Outcome == upstream.Unknown && r.Truncated:
		return false
	case r.Sent && !r.Unprocessed:
		return sv.Resend || sv.Signer != nil
	case errors.Is(r.Err, ErrFull):
		return false
	}
	return f.failures < 2
}

// repeatable returns whether the upstream recognises a repeat of a call: not at all,
// until an instant, or for good.
func (sv *service) repeatable(request *upstream.Request, h flight, r *upstream.Result) (ok bool, until time.Time) {
	if r.Outcome != upstream.Unknown || r.Park || !sv.up.Repeatable(upstream.NewInput(request)) {
		return false, time.Time{}
	}
	if sv.Idempotency.Retention > 0 {
		until = h.firstSent.Add(sv.Idempotency.Retention)
	}
	return true, until
}

// recognises reports whether an instant is within the retention of a call whose repeats the
// upstream recognises.
func (sv *service) recognises(now time.Time, f flight) bool {
	retention := sv.Idempotency.Retention
	return retention <= 0 || now.Before(f.firstSent.Add(retention))
}

// repeatableUntil returns until when a call may go again that would wait until a
// deadline: a repeat no longer than the upstream recognises it as one.
func (sv *service) repeatableUntil(f *flight, deadline time.Time) time.Time {
	if retention := sv.Idempotency.Retention; f.maybe && retention > 0 && !f.firstSent.IsZero() {
		return earlier(deadline, f.firstSent.Add(retention))
	}
	return deadline
}

// repeatAfterQuery says why a call that a query has found not executed is not sent again; nil
// if it is. To send it with the same numbers is what a platform such as Alipay asks for then.
// But the first request may still be on its way inside the platform, so this is a repeat like
// any other: it takes one of the attempts, waits for the retry budget, and ends with the
// retention and max_age. The call stays unknown then, for a person. Nor does the query end
// the doubt: a refusal of the repeat says nothing of the first request.
func repeatAfterQuery(now time.Time, sv *service, c *call) *Error {
	switch until := sv.repeatableUntil(c.flight, c.Deadline); {
	case sv.Retry.Spent(c.flight.counted):
		return wrongState(c.Call, fmt.Sprintf("a query has not found it, but %d attempts of it count, which is all that retry.attempts allows; look it up at the upstream, then resolve it, or send it again", c.flight.counted))
	case !now.Before(until):
		return wrongState(c.Call, fmt.Sprintf("a query has not found it, but it could be sent again only until %s (max_age, or idempotency.retention); look it up at the upstream, then resolve it, or submit it anew", stamp(until)))
	}
	return nil
}

// validUntil bounds a call's deadline by the life of the signature that it brings.
// With a signer there is no such bound: each attempt is signed anew.
func (sv *service) validUntil(accepted, deadline time.Time) time.Time {
	if until := sv.SignatureUntil(accepted); !until.IsZero() {
		return earlier(deadline, until)
	}
	return deadline
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// outgoing is the call's request with the instant at which it is stale. It is a repeat
// if an earlier attempt may have executed the call, also one that was resolved since.
func (sv *service) outgoing(c *Call, request *upstream.Request) *upstream.Request {
	r := *request
	r.Latest = sv.SignatureUntil(c.AcceptedAt)
	r.Repeat = slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Outcome == upstream.Unknown })
	r.Renewed = renewed(c.Attempts)
	return &r
}

// renewed reports whether the last answer was a 401 that did not end the call: the signer
// has renewed its credentials since. See [upstream.Renewer].
func renewed(attempts []Attempt) bool {
	for _, a := range slices.Backward(attempts) {
		if a.Status != 0 {
			return a.Status == http.StatusUnauthorized && a.Outcome == upstream.NotExecuted
		}
	}
	return false
}

// unsendable says why an unknown call cannot be sent again, by a person or after a query;
// nil if it can.
func unsendable(now time.Time, sv *service, c *call, person bool) *Error {
	if by := c.history().endedBy; by != "" && !(person && by == c.ID) {
		return wrongState(c.Call, fmt.Sprintf("call %s has ended it (ends, or a cancel), and it is not sent again; resolve it as done or failed, and submit it anew under a new business number", by))
	}
	if !person {
		if spent := repeatAfterQuery(now, sv, c); spent != nil {
			return spent
		}
	}
	switch {
	case sv.Signer != nil:
		return nil
	case sv.Signature.Once && c.history().used:
		return wrongState(c.Call, "its signature was good for one sending, and upstream "+sv.Name+" has no signer; query it, and submit it anew with the same business numbers")
	case sv.Signature.Life > 0 && !now.Before(c.AcceptedAt.Add(sv.Signature.Life)):
		return wrongState(c.Call, fmt.Sprintf("its signature is older than %v (signature.life), and upstream %s has no signer; query it, and submit it anew with the same business numbers", sv.Signature.Life, sv.Name))
	}
	return nil
}
