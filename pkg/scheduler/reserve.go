package scheduler

import (
	"fmt"
	"time"
)

// Reserve counts the bytes of a request that has yet to be read against its
// upstream's max_waiting_bytes, so that bodies on their way in are bounded like
// those that wait, and says at once where a call would be refused in any case.
// Release gives them back; it is called once, before the call is handed over,
// which counts for itself. The error is an [*Error].
func (s *Scheduler) Reserve(upstream string, bytes int64) (release func(), err error) {
	refused := errStopping(upstream)
	var p *planner
	s.ask(func(time.Time) {
		p = s.loop.planners[upstream]
		switch {
		case s.loop.stopping:
		case p == nil:
			refused = &Error{Reason: NotFound, Upstream: upstream, Detail: fmt.Sprintf("upstream %q is not configured", upstream)}
		case p.waiting+p.unknown >= p.MaxWaiting:
			refused = &Error{Reason: Full, Upstream: upstream, RetryAfter: time.Second, Detail: fmt.Sprintf("%d calls are in hand for upstream %q, at most %d may be (max_waiting)", p.waiting+p.unknown, upstream, p.MaxWaiting)}
		case p.bytes+bytes > p.MaxWaitingBytes:
			refused = &Error{Reason: Full, Upstream: upstream, RetryAfter: time.Second, Detail: fmt.Sprintf("requests of %d bytes are in hand for upstream %q, at most %d may be (max_waiting_bytes)", p.bytes, upstream, p.MaxWaitingBytes)}
		default:
			refused = nil
			p.bytes += bytes
		}
	})
	if refused != nil {
		return nil, refused
	}
	return func() { s.loop.post(func(time.Time) { p.bytes -= bytes }) }, nil
}
