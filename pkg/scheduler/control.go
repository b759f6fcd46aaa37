package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
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

// Resolve decides an unknown call by what the platform says of it: done or failed end it, and
// not_executed sends it again, with all its attempts. A call whose caller waited, and has
// been told that it is unknown, is not sent again: that is for the caller to do. If
// ctx ends first, the decision may take effect all the same: Get returns its state.
func (s *Scheduler) Resolve(ctx context.Context, id string, d Decision) (*Call, error) {
	if refused := checkResolution(d); refused != nil {
		return nil, refused
	}
	d.AcceptDuplicate = false
	return s.decide(ctx, id, d, true)
}

// Retry sends an unknown call again, with all its attempts, although its outcome stays unknown: it
// says nothing of the earlier attempts. Where the upstream does not recognise the repeat, that may
// execute the call twice, and is refused ([MayExecuteTwice]) without [Decision].AcceptDuplicate. All
// else is as of Resolve.
func (s *Scheduler) Retry(ctx context.Context, id string, d Decision) (*Call, error) {
	d.As = upstream.Unknown
	return s.decide(ctx, id, d, true)
}

// decide takes a decision by a person: a call that waits again then begins anew, with all its
// attempts and a new max_age. Else a query has decided, and the call goes as a repeat; see
// repeatAfterQuery.
func (s *Scheduler) decide(ctx context.Context, id string, d Decision, person bool) (*Call, error) {
	if refused := d.check(); refused != nil {
		return nil, refused
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
		default:
			if bad := undecidable(now, c.up, c, d, person); bad != nil {
				refused = bad
				return
			}
			c.up.resolve(now, c, d, person, recorded)
		}
	}); err != nil {
		return nil, err
	}
	switch {
	case refused != nil:
		return nil, refused
	case !known:
		return s.decideStored(ctx, id, d)
	case storing != nil:
		if err := await(ctx, storing); err != nil {
			return nil, err
		}
		return s.decide(ctx, id, d, person)
	}
	if err := await(ctx, recorded); err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
}

// decideStored decides an unknown call that is not in memory any more.
func (s *Scheduler) decideStored(ctx context.Context, id string, d Decision) (*Call, error) {
	select { // one decision at a time
	case s.resolving <- struct{}{}:
		defer func() { <-s.resolving }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := s.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	if refused := undecidableStored(c, d, s.service(c.Upstream) != nil); refused != nil {
		return nil, refused
	}
	e := s.journal.fetch(context.WithoutCancel(ctx), id) // its bytes; nil where no store outlives the process
	if e == nil && c.Async {
		return nil, wrongState(c, "its state has changed meanwhile; look it up, and decide then")
	}
	next := c.decided(time.Now(), d)
	if err := s.journal.decide(ctx, next); err != nil {
		return nil, s.journal.told(err, "the decision could not be stored")
	}
	s.followUps.questions.drop(id)
	s.relay.wake()
	if err := s.loop.ask(context.WithoutCancel(ctx), func(now time.Time) { s.loop.settleStored(now, next, e) }); err != nil {
		return nil, err
	}
	return s.stored(ctx, id)
}

// Ask queries the upstream at once about an unknown call, once, by the [Resolve] that fits it and
// under the limits, whether other queries about it are to come, are used up, or were never made.
// It returns the call as it is after the answer, which may have decided it, or when ctx ends; the
// query then goes on. While a query by Ask is under way, another Ask waits for its answer. The name
// of the person is kept with the decision, if there is one.
func (s *Scheduler) Ask(ctx context.Context, id, by string) (*Call, error) {
	if refused := checkWords("", words{"by", by, maxBy / 2}); refused != nil { // beside the query's id
		return nil, refused
	}
	c, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if c.State != Unknown {
		return nil, wrongState(c, "only an unknown call is asked about")
	}
	asked, err := s.followUps.askNow(ctx, c, by)
	if err != nil {
		return nil, err
	}
	select {
	case <-asked.over:
		if asked.err != nil {
			return nil, asked.err
		}
	case <-s.journal.failed:
		return nil, errStopping(c.Upstream)
	case <-ctx.Done():
	}
	return s.Get(context.WithoutCancel(ctx), id)
}

// Edit changes a waiting call that was submitted, in memory or on disk, and returns it when the
// change is stored. It keeps its age. If ctx ends first, the change may take effect all the same.
func (s *Scheduler) Edit(ctx context.Context, id string, e Edit) (*Call, error) {
	var refused error
	known, recorded := false, make(chan struct{})
	if err := s.withCall(ctx, id, Waiting, func(now time.Time, c *call) {
		known = c != nil
		switch {
		case s.loop.stopping:
			refused = errStopping("")
		case c != nil:
			bad := movable(c)
			if bad == nil {
				var next *Call
				var earliest time.Time
				if next, earliest, bad = edited(now, c.up, c, e); bad == nil {
					c.up.edit(now, c, next, earliest, recorded)
					return
				}
			}
			refused = bad
		}
	}); err != nil {
		return nil, err
	}
	if refused == nil && !known {
		c, err := s.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		refused = unmovable(c, s.service(c.Upstream) != nil)
	}
	if refused != nil {
		return nil, refused
	}
	if err := await(ctx, recorded); err != nil {
		return nil, err
	}
	return s.Get(ctx, id)
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

// Pause pauses an upstream, one of its limits for all keys (Limit), or one key of a limit, until
// an instant that is to come. Upstream, Limit, Key, Until, Who and Reason of p count. Statuses and
// explanations have Who and Reason, which are for people and may be empty. A [Durable] store keeps
// the pause over a restart. A pause that ends before one by an earlier Pause is refused
// ([WrongState]): Resume it first.
func (s *Scheduler) Pause(ctx context.Context, p Pause) error {
	if !p.Until.After(time.Now()) {
		return badRequest(p.Upstream, "until %s has passed; Resume ends a pause", stamp(p.Until))
	}
	if refused := checkWords(p.Upstream, words{"who", p.Who, maxBy}, words{"reason", p.Reason, maxReason}); refused != nil {
		return refused
	}
	return s.pause(ctx, func(time.Time) (Pause, error) { return p, nil })
}

// Resume ends a pause, by Pause or by an answer of the upstream. Without a limit it also
// closes the upstream's circuit breaker.
func (s *Scheduler) Resume(ctx context.Context, upstream, limit, key string) error {
	return s.pause(ctx, func(time.Time) (Pause, error) { return Pause{Upstream: upstream, Limit: limit, Key: key}, nil })
}

// ResumePause is Resume by the ID of a pause, which it returns. It is [NotFound] if the pause has
// ended, or another one has taken its place.
func (s *Scheduler) ResumePause(ctx context.Context, id string) (ended Pause, err error) {
	err = s.pause(ctx, func(now time.Time) (Pause, error) {
		if ended, err = pauseNamed(now, s.loop, id); err != nil {
			return ended, err
		}
		return Pause{Upstream: ended.Upstream, Limit: ended.Limit, Key: ended.Key}, nil
	})
	return ended, err
}

// Pauses returns what is paused now, by upstream, limit and key: by people, by answers, by open
// circuit breakers, and by a restart.
func (s *Scheduler) Pauses(ctx context.Context) (all []Pause, err error) {
	err = s.loop.ask(ctx, func(now time.Time) { all = allPauses(now, s.loop) })
	return identified(all), err
}

// pause begins a pause that find returns in the loop, or ends it if that has no Until.
func (s *Scheduler) pause(ctx context.Context, find func(now time.Time) (Pause, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.pausing.Lock() // the pause that is stored last is the one that counts
	defer s.pausing.Unlock()
	var p Pause
	var refused error
	var begun, over []lease.Hold
	var closed <-chan struct{} // when the store knows that the breaker is
	if err := s.loop.ask(context.WithoutCancel(ctx), func(now time.Time) {
		if p, refused = find(now); refused != nil {
			return
		}
		if p.Limit == ConcurrencyLimit { // which all calls are under
			p.Limit = ""
		}
		u := s.loop.upstreams[p.Upstream]
		h := lease.Hold{Upstream: p.Upstream, Limit: p.Limit, Key: p.Key, Back: p.Until, Paused: true, Since: now, Who: p.Who, Reason: p.Reason}
		if refused = shorter(now, s.loop, h); refused != nil {
			return
		}
		if refused = s.loop.takePause(now, p.Upstream, p.Limit, p.Key, p.Until); refused != nil {
			return
		}
		if u != nil && p.Until.IsZero() && p.Limit == "" {
			u.circuit.reset(now)
			closed = u.circuit.whenStored()
		}
		begun, over = s.loop.notePause(now, h)
		e := Event{Kind: EventPaused, Call: &Call{Upstream: p.Upstream}, Reason: byOperator, Limit: p.Limit, Key: p.Key, Until: p.Until}
		if p.Until.IsZero() {
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
		return storeFailed(err, p.Upstream, "the pause could not be stored")
	}
	if closed != nil {
		<-closed
	}
	return nil
}

// Audited does what a person, or a program, has asked for, and keeps a record of it: before it is
// done, so that nothing is done without a record, and if it fails once more, with an After that
// tells so. It returns the error of do.
func (s *Scheduler) Audited(ctx context.Context, r AuditRecord, do func() error) error {
	if err := s.journal.audit(ctx, r); err != nil {
		return storeRefused(err, r.Upstream, "nothing was done, as it is not certain that its record was stored")
	}
	err := do()
	if err == nil {
		return nil
	}
	r.After = "not done: " + err.Error()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) { // it may take effect all the same
		r.After = "not known whether done: " + err.Error()
	}
	if refused := (*Error)(nil); errors.As(err, &refused) {
		r.After = "not done: " + refused.Detail
	}
	if failed := s.journal.audit(context.WithoutCancel(ctx), r); failed != nil {
		s.log.Error("the record that an action was not done could not be stored", "action", r.Action, "actor", r.Actor, "call", r.Call, "err", failed)
	}
	return err
}

// AuditLog returns the records that match a filter, the latest first.
func (s *Scheduler) AuditLog(ctx context.Context, f AuditFilter) (records []AuditRecord, err error) {
	return s.journal.auditLog(ctx, f)
}
