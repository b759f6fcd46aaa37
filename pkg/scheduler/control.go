package scheduler

import (
	"fmt"
	"time"
)

// Resolve decides an unknown call: done or failed end it, waiting sends it again.
// The reason is kept with the last attempt.
func (s *Scheduler) Resolve(id string, as State, reason string) (*Call, error) {
	return s.resolve(id, as, reason, true)
}

// resolve is Resolve; a call that waits again has a new max_age if it is renewed.
func (s *Scheduler) resolve(id string, as State, reason string, renew bool) (*Call, error) {
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
			err = wrongState(&c.Call, "only an unknown call can be resolved")
		case s.loop.stopping:
			err = errStopping(c.Upstream)
		default:
			if as == Waiting {
				if stale := s.loop.planners[c.Upstream].stale(now, c); stale != nil {
					err = stale
					return
				}
			}
			s.loop.resolve(now, c, as, reason, renew, recorded)
		}
	})
	if err != nil {
		return nil, err
	}
	<-recorded
	return s.Get(id)
}

func (l *loop) resolve(now time.Time, c *call, as State, reason string, renew bool, recorded chan struct{}) {
	if last := c.Last(); last != nil && reason != "" {
		last.Reason += "; resolved as " + string(as) + ": " + reason
	}
	snapshot := c.Call
	snapshot.State = as
	if as.Finished() {
		snapshot.FinishedAt = now
	}
	c.State = Sending // until that is recorded: nobody else decides meanwhile
	l.record(snapshot.snapshot(), func(now time.Time) {
		defer close(recorded)
		p := l.planners[c.Upstream]
		p.unknown--
		if as == Waiting {
			c.settled = make(chan struct{})
			c.due, c.burnt, c.backoff, c.doubt = time.Time{}, 0, 0, false
			if renew {
				c.Deadline = p.goodUntil(c.AcceptedAt, now.Add(p.MaxAge))
			}
			l.resume(now, c)
			return
		}
		p.bytes -= c.bytes
		c.State, c.FinishedAt = as, snapshot.FinishedAt
		delete(l.calls, c.ID)
		l.aftermath(now, c)
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
	sv := s.services[upstream]
	if sv == nil {
		return &Error{Reason: NotFound, Upstream: upstream, Detail: fmt.Sprintf("upstream %q is not configured", upstream)}
	}
	i := 0
	if limit != "" {
		if i = sv.limitNamed(limit); i < 0 {
			return &Error{Reason: NotFound, Upstream: upstream, Limit: limit, Detail: fmt.Sprintf("upstream %q has no limit %q; it has %s", upstream, limit, sv.limitNames())}
		}
	}
	s.ask(func(now time.Time) {
		p := s.loop.planners[upstream]
		if i == 0 {
			p.trouble = until
		}
		if key != "" {
			p.ledger.PauseKey(i, key, until)
		} else {
			p.ledger.PauseLimit(i, until)
		}
		p.checkLimit(now, i)
	})
	return nil
}
