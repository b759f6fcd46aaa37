package scheduler

import (
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/paging"
)

// Calls before an attempt: admission, waiting for a time, for the retry budget and for
// permits, and the ends that need no attempt.

// horizon is how far ahead calls are in memory: one that is due later waits on disk.
const horizon = time.Minute

// admit reserves a place for a new call, or says why it is refused.
func (u *upstreamState) admit(now time.Time, c *call) *Error {
	c.up = u
	u.reroute(c)
	u.boundByClient(c)
	if refused := refusal(now, u, c); refused != nil {
		refused.Upstream = c.Upstream
		refused.Call = c.Call.snapshot()
		u.loop.observe(Event{Kind: EventRefused, Call: c.Call, Reason: refused.Reason, service: u.service, demand: c.item.Demand})
		return refused
	}
	u.setPhase(c, waiting)
	c.item.Seq = u.loop.nextSeq()
	if c.Stored != nil {
		c.Seq = int64(c.item.Seq)
	}
	return nil
}

// boundByClient bounds the wait of a new call so that the usual answer comes before the time-out
// of its client. The usual time counts as half of the time-out at most: an upstream that has
// become slower still gets calls that go at once, and their answers show when it recovers.
func (u *upstreamState) boundByClient(c *call) {
	if c.caller == nil {
		return
	}
	c.caller.until = c.Deadline
	if u.ClientTimeout == 0 {
		return
	}
	usual := u.ClientTimeout / 2
	if trip := u.planner.Trip(); trip > 0 {
		usual = min(usual, trip)
	}
	c.caller.gone = c.AcceptedAt.Add(u.ClientTimeout - usual)
	c.caller.until = c.caller.gone
	c.Deadline = earlier(c.Deadline, c.caller.gone)
}

// accept lets an admitted call wait that is stored, and describes it if it was submitted. One
// whose caller has left meanwhile is cancelled.
func (u *upstreamState) accept(now time.Time, c *call) *Call {
	u.enqueue(now, c)
	switch {
	case c.caller == nil:
		return describe(now, u, c)
	case c.caller.ctx.Err() != nil:
		u.abandon(now, c)
	}
	return nil
}

func (u *upstreamState) enqueue(now time.Time, c *call) {
	l := u.loop
	u.reroute(c) // a reload may have come since it was admitted
	l.observe(Event{Kind: EventAccepted, Call: c.Call, service: u.service, demand: c.item.Demand})
	l.calls[c.ID] = c
	switch {
	case l.stopping: // since it was admitted
		u.release(now, c)
	case u.shut() && !c.Async: // likewise
		u.refuseCaller(now, c)
	case u.parks(now, c):
		delete(l.calls, c.ID)
		u.window.Park()
	default:
		u.wait(now, c)
	}
}

// parks reports whether a new call waits on disk only.
func (u *upstreamState) parks(now time.Time, c *call) bool {
	if !c.pages() || c.noBody {
		return false
	}
	return c.due > now.Sub(u.loop.origin)+horizon || !u.window.Admit(c.row())
}

// wait puts a call into the plan, or lets it wait for its time.
func (u *upstreamState) wait(now time.Time, c *call) {
	if c.pages() && !c.resident {
		c.resident = true
		u.window.Enter(c.row())
	}
	if more := u.deferred(now, c); more > 0 {
		c.due = max(c.due, now.Add(more).Sub(u.loop.origin))
	}
	if c.due <= now.Sub(u.loop.origin) {
		u.reroute(c)
		u.budget.enter(now, c)
	}
	c.timeout = u.loop.wheel.Insert(u.wakeUp(now, c), c)
}

// wakeUp returns the instant that a waiting call has in the wheel.
func (u *upstreamState) wakeUp(now time.Time, c *call) time.Duration {
	at := c.Deadline.Sub(u.loop.origin)
	if c.due > now.Sub(u.loop.origin) {
		return min(at, c.due)
	}
	return at
}

// deferred returns how long a call whose signature failed leaves the probe to others.
func (u *upstreamState) deferred(now time.Time, c *call) time.Duration {
	if !unsigned(c) {
		return 0
	}
	return u.circuit.Defer(now, c.flight.failures, u.loop.random())
}

// unsigned reports whether the signature of the last attempt failed.
func unsigned(c *call) bool {
	return c.flight != nil && c.flight.result != nil && c.flight.result.Unsigned
}

// fire is the instant that a waiting call has in the wheel.
func (u *upstreamState) fire(now time.Time, c *call) {
	if c.item.Queued() || !now.Before(c.Deadline) {
		u.expire(now, c)
		return
	}
	u.wait(now, c)
}

// endBy ends a call for another one: at once if it waits, else before its next attempt.
func (u *upstreamState) endBy(now time.Time, c *call, by string) {
	if c.flight == nil {
		c.flight = new(flight)
	}
	c.flight.endedBy = by
	if c.identities != nil {
		c.identities.revoked.Store(true)
	}
	switch {
	case c.State == Waiting:
		u.finish(now, c, Cancelled)
	case c.State == Unknown:
		next := c.Call.snapshot()
		next.EndedBy = by
		c.ending = true
		u.loop.record(now, c, next, func(time.Time) {
			c.tellEnd()
			u.rest(c)
		})
	}
}

// edit stores a change of a waiting call, and puts it into its place then. Meanwhile the call is
// being sent to all others, so that nothing else is decided.
func (u *upstreamState) edit(now time.Time, c *call, next *Call, earliest time.Time, recorded chan struct{}) {
	u.leave(now, c)
	u.setPhase(c, recording)
	c.change().State = Sending
	u.loop.record(now, c, next, func(now time.Time) {
		defer close(recorded)
		c.item.Priority, c.due = c.Priority, earliest.Sub(u.loop.origin)
		if c.due > now.Sub(u.loop.origin)+horizon && c.pages() && !c.noBody && c.history().endedBy == "" {
			u.setPhase(c, waiting)
			u.park(c)
			return
		}
		u.resume(now, c)
	})
}

// park leaves a waiting call to the disk. It comes back before its time.
func (u *upstreamState) park(c *call) {
	u.forget(c)
	u.window.Park()
}

// expire ends a call that may not wait any longer.
func (u *upstreamState) expire(now time.Time, c *call) {
	u.becauseLate(now, c)
	u.finish(now, c, Expired)
}

// becauseLate notes why a call has had no slot before its deadline.
func (u *upstreamState) becauseLate(now time.Time, c *call) {
	c.because(PastDeadline)
	if u.pausedUntil(now).After(now) {
		c.because(Paused)
		c.flight.paused = heldBy(now, u)
	}
}

// leave takes a waiting call out of the plan and the wheel.
func (u *upstreamState) leave(now time.Time, c *call) {
	u.depart(c)
	if c.item.Queued() {
		u.planner.Remove(now, &c.item)
	}
	u.budget.leave(c)
	u.loop.wheel.Cancel(c.timeout)
}

// depart tells paging that a call does not wait any more.
func (u *upstreamState) depart(c *call) {
	if c.resident {
		c.resident = false
		u.window.Leave(c.row())
	}
}

// abandon notes that the caller has left.
func (u *upstreamState) abandon(now time.Time, c *call) {
	if c.caller.end != nil {
		c.discardAnswer()
		return
	}
	c.caller.left = true
	if c.State == Waiting {
		c.because(Gone)
		u.finish(now, c, Cancelled)
	}
}

// release ends a waiting call because the scheduler stops. A call that was submitted
// stays as it is.
func (u *upstreamState) release(now time.Time, c *call) {
	c.because(Stopping)
	if !c.Async {
		u.finish(now, c, Cancelled)
	}
}

// load takes a call from disk into memory; it is counted already.
func (u *upstreamState) load(now time.Time, c *call) {
	c.up = u
	u.reroute(c) // a reload may have come since it was read
	u.loop.calls[c.ID] = c
	if c.counted = unresolved; c.State == Waiting {
		c.counted = waiting
		u.window.Load()
		u.wait(now, c)
	}
}

// forecast returns when a call can be expected to go, and the limit that it waits for
// last. A call that is not queued yet is looked at as if it were. Calls that are yet to
// come, and go before, are not foreseen. With hung attempts there may be no instant: see
// [planner.Elsewhere].
func (u *upstreamState) forecast(now time.Time, c *call, hung func(limit int, key string) int) (eta time.Time, why WaitingFor) {
	u.handover.settle(now, c)
	why.Until = now
	if due := u.loop.origin.Add(c.due); due.After(now) {
		why.Until = due
	}
	other := planner.Elsewhere{Ahead: u.ahead(c)}
	if u.circuit.Open() { // one probe at a time says nothing of the calls that follow
		other.Without = 1
		held := WaitingFor{Limit: ConcurrencyLimit, Until: u.ledger.Usage(now, 0, "").PausedUntil, Paused: true}
		if due := u.circuit.due(now, c); !due.Before(held.Until) {
			held.Until, held.Breaker = due, u.circuit.reason
		}
		switch {
		case held.Until.After(why.Until):
			why = held
		case held.Breaker != "" && unsigned(c) && why.Until.After(now): // it leaves the next probe to others
			held.Until = why.Until
			why = held
		}
	}
	if other.Without == 0 && !why.Until.After(now) {
		other.Hung = hung
	}
	f := u.planner.ETA(now, &c.item, other)
	switch {
	case f.At.IsZero():
		return f.At, WaitingFor{Limit: u.limits[f.Limit].Name, Key: f.Key, Ahead: f.Ahead}
	case f.At.After(why.Until) && why.Paused && !f.Pause.After(why.Until): // all calls ahead wait for it, too
		why.Ahead = f.Ahead
		return f.At, why
	case f.At.After(why.Until):
		why = WaitingFor{Limit: u.limits[f.Limit].Name, Key: f.Key, Until: f.At, Ahead: f.Ahead, KeysFull: f.Full}
		if !f.Pause.IsZero() {
			why.Paused, why.Until = true, f.Pause
		}
		return f.At, why
	}
	return why.Until, why
}

// ahead estimates how many calls on disk go before one that is not in memory.
func (u *upstreamState) ahead(c *call) int {
	if c.resident || c.State != Waiting || !c.Durable {
		return 0
	}
	r := c.row()
	if r.Seq == 0 { // not accepted yet: younger than all others
		r.Seq = math.MaxInt64
	}
	return u.window.Ahead(r, int64(u.loop.seq))
}

// refill reads calls from disk if there is room for them.
func (u *upstreamState) refill(now time.Time) {
	if u.removed || u.loop.stopping {
		return
	}
	request := u.window.Next()
	if request == nil {
		return
	}
	var page *Page
	var calls []*call
	r := u.loop.beginReading()
	u.loop.beside(func() {
		wants := func(p Position, class int64) bool { return request.Wants(paging.Position(p), class) }
		if page = u.loop.journal.scan(u.Name, Position(request.From), now.Add(horizon), wants); page != nil {
			calls = u.loop.rehydrate(page.Entries)
		}
	}, func(now time.Time) {
		if page != nil {
			u.window.Done(request, paging.Position(page.Last), page.End)
		}
		u.loop.load(now, r, calls...)
	})
}
