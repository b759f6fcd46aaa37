package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const (
	arrivalsPage   = 256
	arrivalsFew    = 4  // of an upstream that had no room at the last page
	arrivalsAtOnce = 64 // which the store commits together

	longestUpstream = 256 // bytes of the name in a refused call: a store has it in an index
)

// An arrivalStore is a Durable to which programs hand calls in transactions of their own. The calls lie there until the
// scheduler takes them in; Accept of an Entry that has Arrived takes the call out of them in one step.
type arrivalStore interface {
	// Arrived waits until there are such calls, or ctx ends: then it is false.
	Arrived(ctx context.Context) bool
	// Arrivals calls each with the first ones of them, the oldest first, at most max: of those for some upstreams, or, if
	// others is true, of those for all others. A fault is in one that cannot be read.
	Arrivals(ctx context.Context, upstreams []string, others bool, max int, each func(id string, r Request, fault error)) error
	// RefuseArrival takes a call out of them and stores that it has ended.
	RefuseArrival(ctx context.Context, e *Entry) error
}

// An intake takes in the calls that arrive in a store; those for an upstream in the order in which they lie there.
type intake struct {
	*Scheduler
	from arrivalStore
	left map[string]bool // upstreams of which the last page had to leave a call where it is
}

// run takes calls in until ctx ends.
func (s *intake) run(ctx context.Context) {
	for s.from.Arrived(ctx) {
		if err := s.pass(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, Stopping) {
			s.journal.check(err)
			s.log.Error("calls that have arrived in the store cannot be taken in", "err", err)
		}
	}
}

// pass takes in all calls for which there is room. When a call has to stay where it is, no other one of its upstream is
// taken in or read until the next page, so that they keep their order and those of other upstreams are reached. Each page
// begins with the oldest call: one whose transaction has committed meanwhile may be older than those of the last page.
func (s *intake) pass(ctx context.Context) error {
	for {
		for _, name := range slices.Sorted(maps.Keys(s.left)) {
			if err := s.again(ctx, name); err != nil {
				return err
			}
		}
		if n, err := s.page(ctx, slices.Sorted(maps.Keys(s.left)), true, arrivalsPage); n == 0 || err != nil {
			return err
		}
	}
}

// again tries an upstream of which the last page has left a call: it reads no body while there is no room, and a few
// calls, then more and more, while there is.
func (s *intake) again(ctx context.Context, name string) error {
	if sv := s.service(name); sv != nil && full(sv, sv.usage.bytes.Load(), 1, sv.MaxWaitingBytes) != nil {
		return nil
	}
	delete(s.left, name)
	for few := arrivalsFew; few < arrivalsPage && !s.left[name]; few *= 2 {
		if n, err := s.page(ctx, []string{name}, false, few); n == 0 || err != nil {
			return err
		}
	}
	return nil
}

// page reads calls that have arrived and takes them in. It returns how many there were. Each was taken in, or its
// upstream is among those that are left.
func (s *intake) page(ctx context.Context, upstreams []string, others bool, max int) (n int, err error) {
	var all []*arrivedCall
	err = s.journal.reading(func() error {
		return s.from.Arrivals(ctx, upstreams, others, max, func(id string, r Request, fault error) {
			r.arrived, r.NoCopy = id, true
			all = append(all, &arrivedCall{Request: r, acceptance: acceptance{err: fault}})
		})
	})
	for rest := all; len(rest) > 0 && err == nil; {
		if err = ctx.Err(); err == nil {
			rest, err = s.some(ctx, rest)
		}
	}
	return len(all), err
}

// An arrivedCall is a call that is being taken in. Its err is why it is refused, or has to stay.
type arrivedCall struct {
	Request
	call     *call
	entry    *Entry // nil until it was prepared
	unlock   func() // its identity
	admitted bool
	acceptance
}

// some takes in the first calls of some, and returns the others. They are looked up together, and stored together; they
// are admitted, and wait, one after the other. No two of them have an idempotency key or identity: the second has to
// find the first.
func (s *intake) some(ctx context.Context, all []*arrivedCall) (rest []*arrivedCall, err error) {
	some := all[:min(len(all), arrivalsAtOnce)]
	together(some, s.prepare)
	some = some[:distinct(some)]
	for _, a := range some {
		if a.entry != nil {
			if a.unlock, a.err = s.journal.locks.lock(ctx, a.entry.Identity); a.err == nil {
				defer a.unlock()
			}
		}
	}
	together(some, func(a *arrivedCall) {
		if a.err == nil {
			a.known, a.err = s.journal.known(ctx, a.entry)
			a.err = unstored(s.journal, a.entry.Call, &a.Request, a.err)
		}
	})
	for _, a := range some {
		s.admit(a)
	}
	together(some, func(a *arrivedCall) {
		if a.admitted {
			a.known, a.err = s.journal.accept(ctx, a.entry)
			a.err = unstored(s.journal, a.entry.Call, &a.Request, a.err)
		}
	})
	for _, a := range some {
		s.enter(a)
	}
	together(some, func(a *arrivedCall) {
		if a.err = a.reason(); a.err != nil {
			a.err = s.refuse(ctx, a.arrived, &a.Request, a.err)
		}
	})
	for _, a := range some {
		err = errors.Join(err, a.err)
	}
	return all[len(some):], err
}

// together does something for some calls at once, and waits until all of it is done.
func together(some []*arrivedCall, do func(a *arrivedCall)) {
	var wait sync.WaitGroup
	for _, a := range some {
		wait.Go(func() { do(a) })
	}
	wait.Wait()
}

// distinct returns how many of the first calls have no key or identity of one before.
func distinct(some []*arrivedCall) int {
	taken := make(map[string]bool)
	for i, a := range some {
		if a.entry == nil {
			continue
		}
		for _, key := range []string{a.entry.Key, a.entry.Identity} {
			if key != "" && taken[key] {
				return i
			}
			taken[key] = true
		}
	}
	return len(some)
}

// prepare makes a call of a request, unless that was done before.
func (s *intake) prepare(a *arrivedCall) {
	if a.entry != nil || a.err != nil {
		return
	}
	sv, c, refused := s.newCall(a.Request)
	switch {
	case refused != nil:
		a.err = refused
		return
	case c.bytes > sv.MaxWaitingBytes: // there will never be room
		a.err = &Error{Reason: TooLarge, Upstream: sv.Name, Detail: fmt.Sprintf("the call has %d bytes, upstream %q takes at most %d (max_waiting_bytes)", c.bytes, sv.Name, sv.MaxWaitingBytes)}
		return
	}
	if s.relay != nil && c.Callback == "" {
		c.Callback = toEnded
	}
	c.Async, c.Durable = true, true
	a.call, a.entry = c, newEntry(sv, c, &a.Request)
}

// admit reserves the place of a call, unless one of its upstream has to stay.
func (s *intake) admit(a *arrivedCall) {
	if a.err == nil && a.known == nil && !s.left[a.Upstream] {
		a.err = s.reserve(a.call)
		a.admitted = a.err == nil
	}
	s.stay(a)
}

// enter lets a call wait that is stored.
func (s *intake) enter(a *arrivedCall) {
	if !a.admitted {
		return
	}
	s.Scheduler.enter(a.call, &a.acceptance)
	s.stay(a)
}

// stay notes the upstream of a call that has to stay where it is.
func (s *intake) stay(a *arrivedCall) {
	if a.err != nil && a.reason() == nil || a.known != nil && a.known.ID == a.arrived {
		s.left[a.Upstream] = true
	}
}

// reason returns why a call is refused for good, nil if it is not.
func (a *arrivedCall) reason() error {
	var refused *Error
	switch {
	case a.known != nil && a.known.ID != a.arrived:
		return fmt.Errorf("the idempotency key or identity is that of call %s, which stands for it", a.known.ID)
	case errors.Is(a.err, context.Canceled), errors.Is(a.err, context.DeadlineExceeded):
		return nil
	case errors.As(a.err, &refused) && slices.Contains([]Reason{Full, Stopping, StoreFailed, NoAnswer, DiskFull}, refused.Reason):
		return nil
	}
	return a.err
}

// refuse stores that a call has failed before it was accepted, with the reason.
func (s *intake) refuse(ctx context.Context, id string, r *Request, reason error) error {
	now := time.Now()
	c := &Call{
		ID: id, Upstream: strings.ToValidUTF8(r.Upstream[:min(len(r.Upstream), longestUpstream)], ""), State: Failed, Priority: int16(max(-MaxPriority, min(r.Priority, MaxPriority))), Async: true, Durable: true,
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
	if err := s.journal.reading(func() error {
		return s.from.RefuseArrival(ctx, &Entry{Call: c, Request: r.wire()})
	}); err != nil {
		return fmt.Errorf("call %s, which was refused: %w", id, err)
	}
	s.log.Warn("a call that has arrived was refused", "call", id, "upstream", r.Upstream, "err", reason)
	s.loop.post(func(now time.Time) { s.followUps.tell(now, c) })
	return nil
}
