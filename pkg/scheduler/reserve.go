package scheduler

import (
	"context"
	"fmt"
	"time"
)

// Reserve counts the bytes of a request that has yet to be read against its
// upstream's max_waiting_bytes, so that bodies on their way in are bounded like
// those that wait, and says at once where a call would be refused in any case.
// Release gives them back; it is called once, before the call is handed over,
// which counts for itself. The error is an [*Error].
func (s *Scheduler) Reserve(ctx context.Context, upstream string, bytes int64) (release func(), err error) {
	refused := errStopping(upstream)
	var p *planner
	err = s.ask(ctx, func(time.Time) {
		if p = s.loop.planners[upstream]; p == nil {
			refused = errNoUpstream(upstream)
		} else if !s.loop.stopping {
			if refused = p.full(bytes); refused == nil {
				p.bytes += bytes
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	return func() { s.loop.post(func(time.Time) { p.bytes -= bytes }) }, nil
}

// full says why no call of so many bytes can be taken in hand; nil if one can.
func (p *planner) full(bytes int64) *Error {
	e := &Error{Reason: Full, Upstream: p.Name, RetryAfter: time.Second}
	switch {
	case p.waiting+p.unknown >= p.MaxWaiting:
		e.Detail = fmt.Sprintf("%d calls wait for upstream %q and %d are unknown, at most %d may be in hand (max_waiting)", p.waiting, p.Name, p.unknown, p.MaxWaiting)
	case p.bytes+bytes > p.MaxWaitingBytes:
		e.Detail = fmt.Sprintf("calls of %d bytes are in hand for upstream %q, at most %d may be (max_waiting_bytes)", p.bytes, p.Name, p.MaxWaitingBytes)
	default:
		return nil
	}
	return e
}
