package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// Cancel takes back a call that is not being sent and has not finished. If ctx ends
// first, the call may be cancelled all the same: Get returns its state.
func (s *Scheduler) Cancel(ctx context.Context, id string) (*Call, error) {
	var refused error
	var ended <-chan struct{}
	doubted := false // an earlier attempt may have executed it
	if err := s.withCall(ctx, id, Waiting, func(now time.Time, c *call) {
		switch {
		case c == nil && s.loop.stopping:
			refused = errStopping("")
		case c == nil:
		case c.State == Waiting:
			ended = c.whenEnded()
			if doubted = c.history().maybe; doubted {
				c.flight.endedBy = c.ID // it becomes unknown, and no query sends it again
			}
			c.up.finish(now, c, Cancelled)
		case c.ending:
			ended = c.whenEnded()
		default:
			refused = wrongState(c.Call, "only a waiting call can be cancelled")
		}
	}); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	if ended != nil {
		if err := await(ctx, ended); err != nil {
			return nil, err
		}
	}
	c, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case ended != nil && (c.State == Cancelled || c.State == Unknown && doubted):
		return c, nil
	case c.State.Finished():
		return nil, wrongState(c, "it has finished")
	case c.State == Waiting && s.service(c.Upstream) == nil:
		return nil, notConfigured(c, "cancel it then")
	}
	return nil, wrongState(c, "only a waiting call can be cancelled")
}

// endCall ends the call of an identity for another call; see Upstream.Ends. The store has the
// end already, so a call that is missed here is not sent either.
func (s *Scheduler) endCall(identity, by string) {
	ctx := context.Background()
	c, err := s.journal.find(ctx, &Entry{Call: &Call{}, Identity: identity})
	if err != nil || c == nil {
		return
	}
	state := Waiting
	if c.State == Unknown {
		state = Unknown
	}
	if err := s.withCall(ctx, c.ID, state, func(now time.Time, c *call) {
		if c != nil {
			c.up.endBy(now, c, by)
		}
	}); err != nil {
		s.log.Warn("a call that another one has ended stays as it is until its next attempt, which is not sent", "call", c.ID, "ended_by", by, "err", err)
	}
}

// Resolve decides an unknown call: done or failed end it, waiting sends it again.
// The reason is kept with the last attempt. A call whose caller waited, and has
// been told that it is unknown, is not sent again: that is for the caller to do. If
// ctx ends first, the decision may take effect all the same: Get returns its state.
func (s *Scheduler) Resolve(ctx context.Context, id string, as State, reason string) (*Call, error) {
	return s.resolve(ctx, id, as, reason, 0)
}

// resolve is Resolve by a person if attempt is 0: a call that waits again then begins anew,
// with all its attempts and a new max_age. Else a query decides the outcome of that attempt,
// and of no later one; see repeatAfterQuery.
func (s *Scheduler) resolve(ctx context.Context, id string, as State, reason string, attempt int) (*Call, error) {
	if as != Done && as != Failed && as != Waiting {
		return nil, &Error{Reason: BadRequest, Detail: fmt.Sprintf("an unknown call can be resolved as done, failed or waiting, not as %q", as)}
	}
	var refused error
	var storing <-chan struct{}
	known, recorded := false, make(chan struct{})
	if err := s.withCall(ctx, id, Unknown, func(now time.Time, c *call) {
		known = c != nil
		switch {
		case c == nil && s.loop.stopping:
			refused = errStopping("")
		case c == nil:
		case c.ending:
			storing = c.whenEnded()
		case s.loop.stopping:
			refused = errStopping(c.Upstream)
		case c.State != Unknown || !c.Async:
			refused = wrongState(c.Call, "only an unknown call can be resolved")
		case attempt > 0 && c.Last().N != attempt:
			refused = wrongState(c.Call, "it has been sent again since it was asked about")
		default:
			if as == Waiting {
				if spent := unsendable(now, c.up.service, c, attempt == 0); spent != nil {
					refused = spent
					return
				}
			}
			c.up.resolve(now, c, as, reason, attempt == 0, recorded)
		}
	}); err != nil {
		return nil, err
	}
	switch {
	case refused != nil:
		return nil, refused
	case !known:
		return s.resolveStored(ctx, id, as, reason)
	case storing != nil:
		if err := await(ctx, storing); err != nil {
			return nil, err
		}
		return s.resolve(ctx, id, as, reason, attempt)
	}
	if err := await(ctx, recorded); err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// resolveStored decides an unknown call that is not in memory any more.
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
		return nil, wrongState(c, "its caller had that answer; it can be resolved as done or failed, but only its caller can send it again")
	case as == Waiting && s.service(c.Upstream) == nil:
		return nil, notConfigured(c, "send it again then; it can be resolved as done or failed now")
	case as == Waiting:
		return nil, wrongState(c, "its request was not kept; it can be resolved as done or failed, and submitted anew")
	}
	e := s.journal.fetch(context.WithoutCancel(ctx), id) // its bytes; nil where no store outlives the process
	if e == nil && c.Async {
		return nil, wrongState(c, "its state has changed meanwhile; look it up, and decide then")
	}
	next := c.resolved(time.Now(), as, reason)
	if err := s.journal.decide(ctx, next); err != nil {
		return nil, s.journal.unread(err)
	}
	s.followUps.questions.drop(id)
	s.relay.wake()
	if err := s.loop.ask(context.WithoutCancel(ctx), func(now time.Time) { s.loop.settleStored(now, next, e) }); err != nil {
		return nil, err
	}
	return s.stored(ctx, id)
}

// Notified queries at once the calls of unknown outcome that a verified notification of the
// platform concerns: the calls of an upstream that share one of the numbers (see
// Upstream.Numbers) and contradict none. Of calls that were not submitted it knows the last
// 10,000 of this process. Only the answer to the query decides a call. Notified returns the number
// of calls and does not wait for their queries. Several notifications before a call's next
// query make one query. It is safe for concurrent use.
func (s *Scheduler) Notified(upstream string, numbers map[string]string) (calls int) {
	return s.followUps.notified(upstream, numbers)
}

// resolved returns the call after a decision about it.
func (c *Call) resolved(now time.Time, as State, reason string) *Call {
	next := c.snapshot()
	next.become(now, as)
	if last := next.Last(); last != nil && reason != "" {
		last.Reason += "; resolved as " + string(as) + ": " + reason
	}
	return next
}

// Pause pauses an upstream, one of its limits for all keys (limit), or one key of
// a limit, until an instant that is to come. Statuses and explanations have the reason,
// which is for people and may be empty. A [Durable] store keeps the pause over a restart. A
// pause that ends before one by an earlier Pause is refused ([WrongState]): Resume it first.
func (s *Scheduler) Pause(ctx context.Context, upstream, limit, key string, until time.Time, reason string) error {
	if !until.After(time.Now()) {
		return badRequest(upstream, "until %s has passed; Resume ends a pause", stamp(until))
	}
	return s.pause(ctx, upstream, limit, key, until, reason)
}

// Resume ends a pause, by Pause or by an answer of the upstream. Without a limit it also
// closes the upstream's circuit breaker.
func (s *Scheduler) Resume(ctx context.Context, upstream, limit, key string) error {
	return s.pause(ctx, upstream, limit, key, time.Time{}, "")
}

func (s *Scheduler) pause(ctx context.Context, upstream, limit, key string, until time.Time, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if limit == ConcurrencyLimit { // which all calls are under
		limit = ""
	}
	s.pausing.Lock() // the pause that is stored last is the one that counts
	defer s.pausing.Unlock()
	var refused error
	var begun, over []lease.Hold
	var closed <-chan struct{} // when the store knows that the breaker is
	if err := s.loop.ask(context.WithoutCancel(ctx), func(now time.Time) {
		u := s.loop.upstreams[upstream]
		h := lease.Hold{Upstream: upstream, Limit: limit, Key: key, Back: until, Paused: true, Since: now, Reason: reason}
		if refused = shorter(now, s.loop, h); refused != nil {
			return
		}
		if refused = s.loop.takePause(now, upstream, limit, key, until); refused != nil {
			return
		}
		if u != nil && until.IsZero() && limit == "" {
			u.circuit.reset(now)
			closed = u.circuit.whenStored()
		}
		begun, over = s.loop.notePause(now, h)
		e := Event{Kind: EventPaused, Call: &Call{Upstream: upstream}, Reason: byOperator, Limit: limit, Key: key, Until: until}
		if until.IsZero() {
			e.Kind = EventResumed
		}
		s.loop.observe(e)
	}); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	if err := s.journal.pause(ctx, begun, over); err != nil {
		return &Error{Reason: StoreFailed, Upstream: upstream, cause: err, Detail: "the pause could not be stored: " + err.Error()}
	}
	if closed != nil {
		<-closed
	}
	return nil
}

// notConfigured refuses a decision that only the upstream's configuration makes possible.
func notConfigured(c *Call, then string) *Error {
	return wrongState(c, fmt.Sprintf("its upstream %q is not configured, and it stays in the store; put the upstream into the configuration again, and %s", c.Upstream, then))
}

func wrongState(c *Call, why string) *Error {
	return &Error{Reason: WrongState, Upstream: c.Upstream, Call: c.told(), Detail: fmt.Sprintf("call %s is %s: %s", c.ID, c.State, why)}
}
