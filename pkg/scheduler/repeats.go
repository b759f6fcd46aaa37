package scheduler

import (
	"errors"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// repeats holds the calls of an upstream whose turn to be repeated has come and
// for which its retry budget has nothing left: the oldest goes first, when first
// sendings or time have earned it. It is owned by the loop.
type repeats struct {
	p       *planner
	budget  retry.Budget
	waiting pile[*call]
	timeout wheel.Handle
}

func newRepeats(p *planner) *repeats {
	r := &repeats{p: p, budget: retry.Budget{Share: p.Retry.Share}}
	r.waiting.place = func(c *call) *int { return &c.flight.place }
	r.waiting.before = func(a, b *call) bool { return a.seq < b.seq }
	return r
}

// enter lets a call into the plan, a repeat when the budget covers it.
func (r *repeats) enter(now time.Time, c *call) {
	if c.flight == nil || !c.flight.repeat {
		r.p.add(now, c)
		return
	}
	r.waiting.add(c)
	r.let(now)
}

// first takes note of a call's first sending.
func (r *repeats) first(now time.Time) {
	r.budget.First(now)
	r.let(now)
}

// let lets into the plan what the budget covers, and foresees when it covers more.
func (r *repeats) let(now time.Time) {
	for r.waiting.Len() > 0 {
		ok, next := r.budget.Take(now)
		if !ok {
			r.p.wheel.Cancel(r.timeout)
			r.timeout = r.p.wheel.Insert(next.Sub(r.p.origin), r)
			return
		}
		c := popFirst(&r.waiting)
		c.flight.repeat = false
		r.p.add(now, c)
	}
}

func (r *repeats) timeoutAt(now time.Time) { r.let(now) }

// leave takes a call out, if it is there.
func (r *repeats) leave(c *call) {
	if r.holds(c) {
		r.waiting.remove(c)
	}
}

// holds tells whether a call waits for the budget.
func (r *repeats) holds(c *call) bool { return c.flight != nil && r.waiting.contains(c) }

// mayGoAgain reports whether a call may be sent again after an attempt, if its
// outcome allows it.
//
// A caller that waits gets the first answer there is, unless its request may go
// out again as it is; and one of which the rest is on its way, whatever it says.
// What was never sent, or not processed, is no repeat; but a caller need not wait
// for an upstream or a signer that stays down, or for room on the disk.
func (p *planner) mayGoAgain(c *call, r *upstream.Result) bool {
	switch {
	case c.flight.used && p.Signer == nil && p.Signature.Once:
		return false
	case c.Async:
		return true
	case r.Outcome == upstream.Unknown && r.Truncated:
		return false
	case r.Sent && !r.Unprocessed:
		return p.Resend || p.Signer != nil
	case errors.Is(r.Err, ErrFull):
		return false
	}
	return c.flight.unreached < 2
}

// latest returns an upstream as it is configured now, or as it was last: what
// follows an attempt is for the file that is in force.
func (s *Scheduler) latest(sv *service) *service {
	if now := s.service(sv.Name); now != nil {
		return now
	}
	return sv
}

// repeatable tells until when the upstream recognises a repeat of the call: not at
// all, or until an instant, or for good.
func (sv *service) repeatable(c *call, r *upstream.Result) (ok bool, until time.Time) {
	if r.Outcome != upstream.Unknown || r.Park || !sv.up.Repeatable(upstream.NewInput(c.request)) {
		return false, time.Time{}
	}
	if sv.Idempotency.Retention > 0 {
		until = c.flight.firstSent.Add(sv.Idempotency.Retention)
	}
	return true, until
}

// goodFor returns until when a call may go again that would wait until a deadline: a
// repeat no longer than the upstream recognises it as one.
func (sv *service) goodFor(f *flight, deadline time.Time) time.Time {
	if retention := sv.Idempotency.Retention; f.doubt && retention > 0 {
		return earlier(deadline, f.firstSent.Add(retention))
	}
	return deadline
}
