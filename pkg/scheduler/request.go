package scheduler

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Checks of a request before it is a call.

func badRequest(upstream, format string, args ...any) *Error {
	return &Error{Reason: BadRequest, Upstream: upstream, Detail: fmt.Sprintf(format, args...)}
}

// checkRequest refuses a request that can never be a call.
func checkRequest(sv *service, r *Request, wire *upstream.Request) *Error {
	if refused := checkPriority(r); refused != nil {
		return refused
	}
	if _, known := sv.Callbacks[r.Callback]; r.Callback != "" && !known {
		return badRequest(r.Upstream, "callback %q is not one of upstream %q's callbacks in the configuration", r.Callback, r.Upstream)
	}
	if int64(len(r.Body)) > sv.MaxBody {
		return &Error{Reason: TooLarge, Upstream: r.Upstream, Detail: fmt.Sprintf("the body has %d bytes, upstream %q takes at most %d (max_body)", len(r.Body), r.Upstream, sv.MaxBody)}
	}
	if err := wire.Check(); err != nil {
		return badRequest(r.Upstream, "%v", err)
	}
	return nil
}

func checkPriority(r *Request) *Error {
	if r.Priority < -MaxPriority || r.Priority > MaxPriority {
		return badRequest(r.Upstream, "priority is %d, must be from %d to %d", r.Priority, -MaxPriority, MaxPriority)
	}
	return nil
}

// spanOf returns the earliest and the latest instant at which a call may be sent that was
// accepted at an instant. Instants
// of a request are on the wall clock; the results are on the monotonic one, which no
// clock step moves.
func spanOf(sv *service, now, accepted time.Time, r *Request) (earliest, deadline time.Time, refused *Error) {
	earliest = now
	if r.NotBefore.After(now) {
		earliest = now.Add(r.NotBefore.Sub(now))
	}
	deadline = sv.validUntil(accepted, earliest.Add(sv.MaxAge))
	if deadline.Before(earliest) {
		return earliest, deadline, badRequest(r.Upstream, "not_before %s is after %s, when the call's signature is stale (signature.life is %v)", stamp(earliest), stamp(deadline), sv.Signature.Life)
	}
	if r.Deadline.IsZero() {
		return earliest, deadline, nil
	}
	if !r.Deadline.After(now) {
		return earliest, deadline, badRequest(r.Upstream, "the deadline %s has passed", stamp(r.Deadline))
	}
	if r.Deadline.Before(earliest) {
		return earliest, deadline, badRequest(r.Upstream, "not_before %s is after the deadline %s", stamp(r.NotBefore), stamp(r.Deadline))
	}
	return earliest, earlier(deadline, now.Add(r.Deadline.Sub(now))), nil
}
