package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// Resolve decides an unknown call: done or failed end it, waiting sends it again.
// The reason is kept with the last attempt. A call whose caller waited, and has
// been told that it is unknown, is not sent again: that is for the caller to do.
func (s *Scheduler) Resolve(ctx context.Context, id string, as State, reason string) (*Call, error) {
	return s.resolve(ctx, id, as, reason, 0)
}

// resolve is Resolve, if attempt is 0: a call that waits again then has a new
// max_age. Else it decides what was asked about that attempt, and about no later one.
func (s *Scheduler) resolve(ctx context.Context, id string, as State, reason string, attempt int) (*Call, error) {
	if as != Done && as != Failed && as != Waiting {
		return nil, &Error{Reason: BadRequest, Detail: fmt.Sprintf("an unknown call can be resolved as done, failed or waiting, not as %q", as)}
	}
	var err error
	known, recorded := false, make(chan struct{})
	s.fetch(ctx, id)
	if gone := s.ask(ctx, func(now time.Time) {
		c := s.loop.calls[id]
		known = c != nil
		switch {
		case c == nil:
		case s.loop.stopping:
			err = errStopping(c.Upstream)
		case c.State != Unknown || !c.Async:
			err = wrongState(c.Call, "only an unknown call can be resolved")
		case attempt > 0 && c.Last().N != attempt:
			err = wrongState(c.Call, "it has been sent again since it was asked about")
		default:
			if as == Waiting {
				if stale := s.loop.planners[c.Upstream].stale(now, c); stale != nil {
					err = stale
					return
				}
			}
			s.loop.resolve(now, c, as, reason, attempt == 0, recorded)
		}
	}); gone != nil {
		return nil, gone
	}
	switch {
	case err != nil:
		return nil, err
	case !known:
		return s.resolveStored(ctx, id, as, reason)
	}
	select {
	case <-recorded:
		return s.Get(ctx, id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// resolveStored decides an unknown call that is not in hand any more.
func (s *Scheduler) resolveStored(ctx context.Context, id string, as State, reason string) (*Call, error) {
	s.resolving.Lock() // one decision at a time
	defer s.resolving.Unlock()
	c, err := s.stored(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case c.State != Unknown:
		return nil, wrongState(c, "only an unknown call can be resolved")
	case as == Waiting && !c.Async:
		return nil, wrongState(c, "its caller has been told so; it can be resolved as done or failed, but only its caller can send it again")
	case as == Waiting && s.service(c.Upstream) == nil:
		return nil, notConfigured(c, "send it again then; it can be resolved as done or failed now")
	case as == Waiting:
		return nil, wrongState(c, "its request was not kept; it can be resolved as done or failed, and submitted anew")
	}
	next := c.resolved(time.Now(), as, reason)
	if err := s.reading(func() error { return s.storeOf(next).Record(ctx, next) }); err != nil {
		return nil, s.unread(err)
	}
	return s.stored(ctx, id)
}

// resolved returns the call as somebody has decided it.
func (c *Call) resolved(now time.Time, as State, reason string) *Call {
	next := c.snapshot()
	next.State = as
	if last := next.Last(); last != nil && reason != "" {
		last.Reason += "; resolved as " + string(as) + ": " + reason
	}
	if as.Finished() {
		next.FinishedAt = now
		return &next
	}
	for i := range next.Attempts {
		next.Attempts[i].Resolved = true
	}
	return &next
}

func (l *loop) resolve(now time.Time, c *call, as State, reason string, renew bool, recorded chan struct{}) {
	p := l.planners[c.Upstream]
	next := c.resolved(now, as, reason)
	next.putOff(time.Time{})
	if as == Waiting && renew {
		next.Deadline = p.goodUntil(c.AcceptedAt, now.Add(p.MaxAge))
	}
	c.change().State = Sending // until that is recorded: nobody else decides meanwhile
	l.record(next, func(now time.Time) {
		defer close(recorded)
		p.unknown--
		c.settled = nil // closed when it became unknown
		if c.flight.decided != nil {
			c.flight.decided()
		}
		if as == Waiting {
			c.due, c.flight.burnt, c.flight.backoff, c.flight.doubt = 0, 0, 0, false
			l.resume(now, c, next)
			return
		}
		p.bytes -= c.bytes
		c.Call = next
		delete(l.calls, c.ID)
		p.backlog.forget(c)
		l.observe(Event{Kind: EventEnded, Call: next})
		l.aftermath(now, c)
	})
}

// Pause shuts an upstream, one of its limits for all keys (limit), or one key of
// a limit, until an instant. A [Durable] store keeps that over a restart.
func (s *Scheduler) Pause(ctx context.Context, upstream, limit, key string, until time.Time) error {
	return s.shut(ctx, upstream, limit, key, until)
}

// Resume opens again what Pause, or an answer of the upstream, has shut.
func (s *Scheduler) Resume(ctx context.Context, upstream, limit, key string) error {
	return s.shut(ctx, upstream, limit, key, time.Time{})
}

func (s *Scheduler) shut(ctx context.Context, upstream, limit, key string, until time.Time) error {
	s.pausing.Lock() // what is stored last is what counts
	defer s.pausing.Unlock()
	var err error
	var begun, over []Hold
	if gone := s.ask(context.WithoutCancel(ctx), func(now time.Time) {
		p := s.loop.planners[upstream]
		if p == nil || p.retired {
			err = errNoUpstream(upstream)
			return
		}
		i := p.toShut(limit)
		if i < 0 {
			err = &Error{Reason: NotFound, Upstream: upstream, Limit: limit, Detail: fmt.Sprintf("upstream %q has no limit %q; it has %s", upstream, limit, p.limitNames())}
			return
		}
		if err = p.shut(now, i, key, until); err != nil {
			return
		}
		begun, over = s.loop.notePause(now, Hold{Upstream: upstream, Limit: limit, Key: key, Back: until, Paused: true})
		e := Event{Kind: EventPaused, Call: &Call{Upstream: upstream}, Limit: limit, Key: key, Until: until}
		if until.IsZero() {
			e.Kind = EventResumed
		}
		s.loop.observe(e)
	}); gone != nil {
		return gone
	}
	if err != nil || s.durable == nil {
		return err
	}
	if len(begun) > 0 {
		err = s.durable.Intend(context.WithoutCancel(ctx), nil, begun)
	}
	if err == nil && len(over) > 0 {
		err = s.durable.Settle(context.WithoutCancel(ctx), over)
	}
	if err != nil {
		s.check(err)
		return &Error{Reason: StoreFailed, Upstream: upstream, Detail: "the pause could not be stored: " + err.Error()}
	}
	return nil
}

// toShut returns the index of the limit that a pause shuts, -1 if there is none: the
// first one counts all calls of the upstream.
func (p *planner) toShut(limit string) int {
	if limit == "" {
		return 0
	}
	return p.limitNamed(limit)
}

// shut pauses a limit, or a key of it if there is one, until an instant; the zero
// instant opens it.
func (p *planner) shut(now time.Time, limit int, key string, until time.Time) error {
	l := &p.limits[limit]
	switch {
	case key == "":
		p.ledger.PauseLimit(limit, until)
	case l.PerKey == "":
		return &Error{Reason: BadRequest, Upstream: p.Name, Limit: l.Name, Detail: fmt.Sprintf("limit %q has no keys; leave the key %q out to pause all of it", l.Name, key)}
	case !p.ledger.PauseKey(now, limit, key, until):
		return &Error{Reason: Full, Upstream: p.Name, Limit: l.Name, RetryAfter: time.Second, Detail: fmt.Sprintf("limit %q knows %d keys that are in use, and takes no pause of another one", l.Name, quota.DefaultMaxKeys)}
	}
	p.checkLimit(now, limit)
	return nil
}

// notePause keeps what people have shut, and returns what the store must know of it.
func (l *loop) notePause(now time.Time, h Hold) (begun, over []Hold) {
	for id, old := range l.pauses {
		if id == h.pause() || !old.Back.After(now) {
			delete(l.pauses, id)
			old.Back = now
			over = append(over, old)
		}
	}
	if h.Back.After(now) {
		h.ID = l.nextHold()
		l.pauses[h.pause()] = h
		begun = []Hold{h}
	}
	return begun, over
}
