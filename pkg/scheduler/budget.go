package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/internal/heap"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A budgetQueue holds the calls of an upstream that are due for a repeat which its retry
// budget does not cover: the oldest goes first, when first attempts or time have earned
// it. The loop owns it.
type budgetQueue struct {
	up      *upstreamState
	budget  retry.Budget
	calls   heap.Heap[*call]
	timeout wheel.Handle
}

func newBudgetQueue(u *upstreamState) *budgetQueue {
	return &budgetQueue{
		up: u, budget: retry.Budget{Share: u.Retry.Share},
		calls: heap.New(
			func(c *call) *int { return &c.flight.budgetSlot },
			func(a, b *call) bool { return a.item.Seq < b.item.Seq },
		),
	}
}

// share changes the budget.
func (q *budgetQueue) share(share float64) { q.budget.Share = share }

// enter lets a call into the plan: at once, or a repeat when the budget covers it.
func (q *budgetQueue) enter(now time.Time, c *call) {
	if c.flight == nil || !c.flight.repeat {
		q.up.planner.Add(now, &c.item)
		return
	}
	q.calls.Add(c)
	q.release(now)
}

// first notes the first sending of a call.
func (q *budgetQueue) first(now time.Time) {
	q.budget.First()
	q.release(now)
}

// release lets the calls into the plan that the budget covers, and wakes up when it
// covers more.
func (q *budgetQueue) release(now time.Time) {
	for q.calls.Size() > 0 {
		ok, next := q.budget.Take(now)
		if !ok {
			q.up.loop.wheel.Cancel(q.timeout)
			q.timeout = q.up.loop.wheel.Insert(next.Sub(q.up.loop.origin), q)
			return
		}
		c := q.calls.Pop()
		c.flight.repeat = false
		q.up.reroute(c) // a reload may be under way
		q.up.planner.Add(now, &c.item)
	}
}

// Fire is the instant at which the budget covers another repeat.
func (q *budgetQueue) Fire(now time.Time) { q.release(now) }

// leave takes a call out, if it waits here.
func (q *budgetQueue) leave(c *call) {
	if q.holds(c) {
		q.calls.Remove(c)
	}
}

// holds reports whether a call waits for the budget.
func (q *budgetQueue) holds(c *call) bool { return c.flight != nil && q.calls.Contains(c) }
