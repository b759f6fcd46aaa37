package scheduler

import (
	"fmt"
	"time"
)

// Resolve decides an unknown call: done or failed end it, waiting sends it again.
// The reason is kept with the last attempt.
func (s *Scheduler) Resolve(id string, as State, reason string) (*Call, error) {
	if as != Done && as != Failed && as != Waiting {
		return nil, &Error{Reason: BadRequest, Detail: fmt.Sprintf("an unknown call can be resolved as done, failed or waiting, not as %q", as)}
	}
	var err error
	recorded := make(chan struct{})
	s.ask(func(now time.Time) {
		c := s.loop.calls[id]
		switch {
		case c == nil:
			close(recorded)
		case c.State != Unknown:
			err = wrongState(c.Call, "only an unknown call can be resolved")
		case s.loop.stopping:
			err = errStopping(c.Upstream)
		default:
			s.loop.resolve(now, c, as, reason, recorded)
		}
	})
	if err != nil {
		return nil, err
	}
	<-recorded
	return s.Get(id)
}

func (l *loop) resolve(now time.Time, c *call, as State, reason string, recorded chan struct{}) {
	p := l.planners[c.Upstream]
	next := c.snapshot()
	next.State = as
	if last := next.Last(); last != nil && reason != "" {
		last.Reason += "; resolved as " + string(as) + ": " + reason
	}
	if as.Finished() {
		next.FinishedAt = now
	} else {
		next.Deadline = now.Add(p.MaxAge)
	}
	c.change().State = Sending // until that is recorded: nobody else decides meanwhile
	l.record(&next, func(now time.Time) {
		defer close(recorded)
		p.unknown--
		c.settled = nil // closed when it became unknown
		if as == Waiting {
			c.due, c.flight.burnt = 0, 0
			l.resume(now, c, &next)
			return
		}
		p.bytes -= c.bytes
		c.Call = &next
		l.observe(Event{Kind: EventEnded, Call: &next})
		delete(l.calls, c.ID)
	})
}

// Pause shuts an upstream, one of its limits for all keys (limit), or one key of
// a limit, until an instant.
func (s *Scheduler) Pause(upstream, limit, key string, until time.Time) error {
	return s.shut(upstream, limit, key, until)
}

// Resume opens again what Pause, or an answer of the upstream, has shut.
func (s *Scheduler) Resume(upstream, limit, key string) error {
	return s.shut(upstream, limit, key, time.Time{})
}

func (s *Scheduler) shut(upstream, limit, key string, until time.Time) error {
	var err error
	s.ask(func(now time.Time) {
		p := s.loop.planners[upstream]
		if p == nil || p.retired {
			err = errNoUpstream(upstream)
			return
		}
		i := 0
		if limit != "" {
			if i = p.limitNamed(limit); i < 0 {
				err = &Error{Reason: NotFound, Upstream: upstream, Limit: limit, Detail: fmt.Sprintf("upstream %q has no limit %q; it has %s", upstream, limit, p.limitNames())}
				return
			}
		}
		if i == 0 {
			p.trouble = until
		}
		if key != "" {
			p.ledger.PauseKey(now, i, key, until)
		} else {
			p.ledger.PauseLimit(i, until)
		}
		p.checkLimit(now, i)
	})
	return err
}
