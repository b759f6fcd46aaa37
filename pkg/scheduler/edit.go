package scheduler

import "time"

// Changes of waiting calls.

// An Edit changes a waiting call. A nil field leaves what it names; a zero instant takes it away.
type Edit struct {
	Priority            *int
	NotBefore, Deadline *time.Time
}

// edited returns a waiting call with changes, and the earliest instant at which it goes. The
// request is checked as when it was submitted.
func edited(now time.Time, u *upstreamState, c *call, e Edit) (next *Call, earliest time.Time, refused *Error) {
	r := Request{Upstream: c.Upstream, Priority: int(c.Priority), NotBefore: c.NotBefore}
	if e.Priority != nil {
		r.Priority = *e.Priority
	}
	if refused := checkPriority(&r); refused != nil {
		return nil, now, refused
	}
	next, earliest = c.Call.snapshot(), u.loop.origin.Add(c.due)
	next.Priority = int16(r.Priority)
	if e.NotBefore == nil && e.Deadline == nil {
		return next, earliest, nil
	}
	if standard := u.validUntil(c.AcceptedAt, later(c.AcceptedAt, toMonotonic(now, c.NotBefore)).Add(u.MaxAge)); c.Deadline.Sub(standard).Abs() > time.Millisecond {
		r.Deadline = c.Deadline // its caller, or a person, has set it
	}
	if e.NotBefore != nil {
		r.NotBefore = *e.NotBefore
	}
	if e.Deadline != nil {
		r.Deadline = *e.Deadline
	}
	from, deadline, refused := spanOf(u.service, now, c.AcceptedAt, &r)
	if refused != nil {
		return nil, now, refused
	}
	if e.NotBefore != nil && (c.flight == nil || from.After(earliest)) { // else it waits after an attempt
		earliest = from
	}
	next.NotBefore, next.Deadline = r.NotBefore, deadline
	if c.flight != nil {
		next.Deadline = u.repeatableUntil(c.flight, deadline)
	}
	next.delayUntil(time.Time{})
	if earliest.After(now) {
		next.delayUntil(earliest)
	}
	return next, earliest, nil
}

// movable says why a call cannot be changed; nil if it can.
func movable(c *call) *Error {
	switch {
	case c.State != Waiting || c.ending:
		return wrongState(c.Call, "only a waiting call can be changed")
	case !c.Async:
		return wrongState(c.Call, "its caller waits for it, and has set its bounds; only a submitted call can be changed")
	}
	return nil
}

// unmovable refuses to change a call that is not in memory, and does not wait on disk for it.
func unmovable(c *Call, configured bool) *Error {
	if c.State == Waiting && !configured {
		return notConfigured(c, "change it then")
	}
	return wrongState(c, "only a waiting call can be changed")
}
