package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const (
	arrivalsPage   = 256
	arrivalsAtOnce = 64 // goroutines; the store commits what they accept together
)

// An arrivalStore is a Durable to which programs hand calls in transactions of their own. The calls lie there until the
// scheduler takes them in; Accept of an Entry that has Arrived takes the call out of them in one step.
type arrivalStore interface {
	// Arrived waits until there are such calls, or ctx ends: then it is false.
	Arrived(ctx context.Context) bool
	// Arrivals calls each with them, after the one with a number, the oldest first, at most max. A fault is in one that
	// cannot be read.
	Arrivals(ctx context.Context, after int64, max int, each func(n int64, id string, r Request, fault error)) error
	// RefuseArrival takes a call out of them and stores that it has ended.
	RefuseArrival(ctx context.Context, e *Entry) error
}

// An intake takes in the calls that arrive in a store.
type intake struct {
	*Scheduler
	from arrivalStore
}

// run takes calls in until ctx ends.
func (s *intake) run(ctx context.Context) {
	for s.from.Arrived(ctx) {
		for after, more := int64(0), true; more && ctx.Err() == nil; {
			after, more = s.page(ctx, after)
		}
	}
}

// page takes in the calls after one with a number, and returns the number of the last; more reports whether there
// may be others that can be taken in now.
func (s *intake) page(ctx context.Context, after int64) (last int64, more bool) {
	var wait sync.WaitGroup
	places := make(chan struct{}, arrivalsAtOnce)
	n := 0
	err := s.journal.reading(func() error {
		return s.from.Arrivals(ctx, after, arrivalsPage, func(number int64, id string, r Request, fault error) {
			last, n = number, n+1
			places <- struct{}{}
			wait.Go(func() {
				defer func() { <-places }()
				s.one(ctx, id, r, fault)
			})
		})
	})
	wait.Wait()
	if err != nil && ctx.Err() == nil && !errors.Is(err, Stopping) {
		s.journal.check(err)
		s.log.Error("calls that have arrived in the store cannot be read", "err", err)
	}
	return last, err == nil && n == arrivalsPage
}

// one takes in a call. One for which there is no room yet stays where it is.
func (s *intake) one(ctx context.Context, id string, r Request, fault error) {
	r.arrived, r.NoCopy = id, true
	err := fault
	if err == nil {
		var c *Call
		if c, err = s.Submit(ctx, r); err == nil && c.ID != id {
			err = fmt.Errorf("the idempotency key or identity is that of call %s, which stands for it", c.ID)
		}
	}
	var refused *Error
	switch {
	case err == nil, ctx.Err() != nil:
		return
	case errors.As(err, &refused) && (refused.Reason == Full || refused.Reason == Stopping || refused.Reason == StoreFailed || refused.Reason == NoAnswer || refused.Reason == DiskFull):
		return
	}
	if err := s.refuse(ctx, id, &r, err); err != nil && ctx.Err() == nil && !errors.Is(err, Stopping) {
		s.journal.check(err)
		s.log.Error("the refusal of a call that has arrived could not be stored", "call", id, "err", err)
	}
}

// refuse stores that a call has failed before it was accepted, with the reason.
func (s *intake) refuse(ctx context.Context, id string, r *Request, reason error) error {
	now := time.Now()
	c := &Call{
		ID: id, Upstream: r.Upstream, State: Failed, Priority: int16(max(-MaxPriority, min(r.Priority, MaxPriority))), Async: true, Durable: true,
		AcceptedAt: now, Deadline: now, Method: r.Method, Path: pathOf(r.Target), SubmittedBy: r.SubmittedBy, Stored: &Stored{},
		Attempts: []Attempt{{N: 1, SentAt: now, EndedAt: now, Outcome: upstream.NotExecuted, Reason: "refused: " + reason.Error()}},
	}
	if sv := s.service(r.Upstream); sv != nil {
		if _, known := sv.Callbacks[r.Callback]; known {
			c.Callback = r.Callback
		}
	}
	if s.relay != nil {
		c.Callback = cmp.Or(c.Callback, toEnded)
	}
	if err := s.loop.ask(ctx, func(time.Time) { c.Seq = int64(s.loop.nextSeq()) }); err != nil {
		return err
	}
	err := s.journal.reading(func() error {
		return s.from.RefuseArrival(ctx, &Entry{Call: c, Request: r.wire()})
	})
	if err == nil {
		s.log.Warn("a call that has arrived was refused", "call", id, "upstream", r.Upstream, "err", reason)
		s.loop.post(func(now time.Time) { s.followUps.tell(now, c) })
	}
	return err
}
