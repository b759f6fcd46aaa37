package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// goodUntil bounds a call's deadline by the life of the signature that it brings.
// With a signer there is no such bound: what is sent is signed then.
func (sv *service) goodUntil(accepted, deadline time.Time) time.Time {
	if sv.Signer != nil || sv.Signature.Life == 0 {
		return deadline
	}
	return earlier(deadline, accepted.Add(sv.Signature.Life))
}

// stale says why an unknown call cannot be sent again; nil if it can.
func (p *planner) stale(now time.Time, c *call) *Error {
	switch {
	case p.Signer != nil:
		return nil
	case p.Signature.Once && c.sent().used:
		return wrongState(c.Call, "its signature was good for one sending, and upstream "+p.Name+" has no signer; query it, and submit it anew with the same business numbers")
	case p.Signature.Life > 0 && !now.Before(c.AcceptedAt.Add(p.Signature.Life)):
		return wrongState(c.Call, fmt.Sprintf("its signature is older than %v (signature.life), and upstream %s has no signer; query it, and submit it anew with the same business numbers", p.Signature.Life, p.Name))
	}
	return nil
}

// outgoing is the call's request with the instant at which it is stale, and
// whether it is a repeat: also of what somebody has resolved as not executed.
func (sv *service) outgoing(c *Call, request *upstream.Request) *upstream.Request {
	r := *request
	if sv.Signer == nil && sv.Signature.Life > 0 {
		r.Latest = c.AcceptedAt.Add(sv.Signature.Life)
	}
	r.Repeat = slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Outcome == upstream.Unknown })
	return &r
}
