package scheduler

import (
	"cmp"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Calls from an attempt on: sent, completed, waiting again or ended.

// send starts an attempt of a call whose permits the planner has taken.
func (u *upstreamState) send(now time.Time, c *call) {
	l := u.loop
	l.wheel.Cancel(c.timeout)
	u.setPhase(c, sending)
	u.depart(c)
	if c.flight == nil {
		c.flight = new(flight)
	}
	f := c.flight
	f.sentAt, f.needs = now, c.item.Demand.Needs
	if f.firstSent.IsZero() {
		f.firstSent = now
		u.budget.first(now)
	}
	f.place = u.flying.PushBack(c)
	u.circuit.begin(now, c)
	u.slow.sent(now, f.needs)
	n := 1
	if last := c.Last(); last != nil {
		n = last.N + 1
	}
	intent := c.change()
	intent.State = Sending
	intent.Attempts = append(abridged(intent.Attempts), Attempt{N: n, SentAt: now})
	l.observe(Event{Kind: EventSending, Call: intent})
	a := &attempt{loop: l, service: u.service, call: c, intent: intent, history: *f}
	if u.leases != nil {
		before := lease.Out(intent.spent(), now) // of other attempts
		var own []lease.Hold
		own, a.take, a.used = u.leases.Take(now, f.needs, c.Durable)
		f.leases = a.used
		intent.setSpent(append(before, own...))
	}
	l.busy++
	l.work.Add(1)
	if !c.grant(a) {
		go a.run()
	}
}

// complete takes in the end of an attempt and does what follows.
func (u *upstreamState) complete(now time.Time, c *call, e ending) {
	r := e.result
	needs := c.flight.needs
	u.setPhase(c, recording)
	warnOfCharges(u, c, e)
	warnOfWait(u, c, r)
	changed := c.change()
	u.returnPermits(now, c, changed, e)
	u.recordAttempt(now, c, changed, e)
	u.circuit.judge(now, c, e)
	e.next.flight.carryOver(c.flight)
	*c.flight = e.next.flight
	if e := ended(r.Err); e != nil {
		c.flight.endedBy = e.by
	}
	if r.Outcome != upstream.NotExecuted && reachOf(r) == retry.Reached {
		u.slow.passed(now, needs, c.flight.sentAt)
	}
	switch r.Outcome {
	case upstream.Done, upstream.Failed:
		u.finish(now, c, State(r.Outcome))
		return
	}
	if r.Outcome == upstream.NotExecuted {
		switch causeOf(r) {
		case retry.Limited:
			u.limited(now, c, needs, r)
		case retry.LimitedAlone:
			logAlone(u, c, r, e.next.at.Sub(now))
		}
	}
	u.again(now, c, r, e.next)
}

// returnPermits ends the attempt in the books: the leases, the ledger and the planner.
func (u *upstreamState) returnPermits(now time.Time, c *call, changed *Call, e ending) {
	f, r := c.flight, e.result
	if u.leases != nil {
		before := known(changed.spent())
		own, over := u.leases.Return(now, f.needs, f.leases, c.Durable, func(n quota.Need) (permits int, at time.Time) {
			a := e.quota(u, f, n)
			return n.Cost - a.Unused, u.ledger.Back(now, n.Limit, a)
		})
		changed.setSpent(append(before, own...))
		u.loop.settle(over)
	}
	if r.Answered {
		u.planner.Observe(r.AnsweredAt.Sub(f.sentAt))
	}
	for i, n := range f.needs {
		u.ledger.Return(now, f.needs[i:i+1], e.quota(u, f, n))
	}
	u.flying.Remove(f.place)
	f.place = nil
	u.planner.Check(now, f.needs)
	f.needs = nil
}

// known returns the holds of attempts whose end is known.
func known(holds []lease.Hold) (ended []lease.Hold) {
	for _, h := range holds {
		if !h.Back.IsZero() {
			ended = append(ended, h)
		}
	}
	return ended
}

// recordAttempt notes the end of an attempt in the Call that others see.
func (u *upstreamState) recordAttempt(now time.Time, c *call, changed *Call, e ending) {
	r := e.result
	if grown := e.kept.size() - changed.Response.size(); grown != 0 { // a kept answer takes memory too
		u.grow(c, grown)
	}
	changed.Response = e.kept
	last := changed.Last()
	last.EndedAt, last.Outcome, last.Reason = now, r.Outcome, r.Reason
	if r.Outcome == upstream.Failed && !r.Sent { // for good, but the upstream has not refused it
		last.Outcome = upstream.NotExecuted
	}
	switch {
	case e.kept != nil:
		last.Status = e.kept.Status
	case r.Response != nil:
		last.Status = r.Response.StatusCode
	}
	c.discardAnswer()
	c.flight.result = r
	u.loop.observe(Event{Kind: EventAttempt, Call: changed, Attempt: last, Alone: e.result.Alone})
}

// limited pauses the key, the limit or the upstream that the answer concerns, for as long as it
// says, or longer the more calls are limited, and slows its calls down.
func (u *upstreamState) limited(now time.Time, c *call, needs []quota.Need, r *upstream.Result) {
	at, key := u.slow.target(now, needs, r.Pause)
	wait := r.RetryAfter
	if wait == 0 && r.Pause != nil {
		wait = r.Pause.For
	}
	by := pause{cause: byAnswer, reason: r.Reason, since: now, until: now.Add(wait), status: c.Last().Status}
	held := time.Duration(0)
	if key != at && wait > 0 { // other keys may not have reached their limits, and have not to wait for an hour
		u.pauseByAnswer(now, key, by)
		held, wait = wait, min(wait, cmp.Or(u.Retry.LimitedCurve().Max, retry.DefaultMax))
	}
	until, change := u.slow.limited(now, at, needs, c.flight.sentAt, wait, held)
	name := pausedName(u, at.limit)
	by.until = until
	u.pauseByAnswer(now, at, by)
	if change != retry.Unchanged {
		logLimited(now, u, c, needs, r, at, until.Sub(now), change == retry.Begun)
	}
	u.planner.Check(now, needs)
	u.loop.observe(Event{Kind: EventPaused, Call: c.Call, Reason: byAnswer, Limit: name, Key: at.key, Until: until})
}

// pauseByAnswer pauses a key, a limit or the upstream.
func (u *upstreamState) pauseByAnswer(now time.Time, at target, p pause) {
	if at.limit == 0 {
		u.ledger.PauseLimit(0, p.until)
	} else {
		u.ledger.PauseKey(now, at.limit, at.key, p.until)
	}
	u.answerPauses.note(now, at, p)
}

// again lets a call wait for its next attempt, or ends it if there is none. A submitted call
// that was not executed waits until its deadline, also for a slot that comes later: a person may
// end the pause before.
func (u *upstreamState) again(now time.Time, c *call, r *upstream.Result, n next) {
	end := Exhausted
	switch {
	case r.Outcome == upstream.Unknown:
		end = Unknown
	case c.flight.endedBy != "":
		end = Cancelled
	case c.abandoned() && causeOf(r) == retry.NeverSent:
		end = Cancelled
		c.because(Gone)
	case n.again && c.Async:
		end = Expired // the only reason left
		u.becauseLate(now, c)
	case r.Outcome == upstream.NotExecuted && !now.Before(c.Deadline): // on its way to the wire, perhaps
		end = Expired
		c.because(PastDeadline)
	}
	if n.again && c.abandoned() {
		c.because(Gone)
	} else if n.again && (c.Async || !u.loop.stopping && !u.shut()) {
		c.due = n.at.Sub(u.loop.origin)
		u.reroute(c)
		deadline := u.repeatableUntil(c.flight, c.Deadline)
		if u.waitsFor(now, c, deadline) {
			next := c.Call.snapshot()
			next.State, next.Deadline = Waiting, deadline
			next.delayUntil(n.at)
			u.loop.record(now, c, next, func(now time.Time) { u.resume(now, c) })
			return
		}
	}
	u.finish(now, c, end)
}

// waitsFor reports whether a call waits for its next attempt, at most until a deadline. The caller of Do
// and Begin is answered at once if the slot comes later, and a call that may have been executed is
// unknown at once: it is asked about then.
func (u *upstreamState) waitsFor(now time.Time, c *call, deadline time.Time) bool {
	if c.Async && !c.flight.maybe {
		return now.Before(deadline)
	}
	eta, _ := u.forecast(now, c, nil)
	return !eta.After(deadline)
}

// resume lets a call wait again after an attempt, or after a decision about it.
func (u *upstreamState) resume(now time.Time, c *call) {
	u.setPhase(c, waiting)
	switch {
	case c.history().endedBy != "": // while that was recorded
		u.finish(now, c, Cancelled)
	case c.abandoned():
		c.because(Gone)
		u.finish(now, c, Cancelled)
	case u.loop.stopping && !c.Async:
		u.release(now, c)
	case u.shut() && !c.Async:
		u.refuseCaller(now, c)
	default:
		u.loop.observe(Event{Kind: EventWaiting, Call: c.Call})
		u.wait(now, c)
	}
}

// finish ends a call in a state: finished, or unknown. If its answer streams, the call ends
// when that has.
func (u *upstreamState) finish(now time.Time, c *call, state State) {
	if c.State == Waiting {
		u.leave(now, c)
	}
	if c.history().maybe && state != Done {
		state = Unknown // an earlier attempt may have executed it, whichever way it ended now
	}
	if state == Unknown && (c.Resolves != "" || u.webhook != nil) {
		state = Exhausted // a query or a webhook moves nothing: there is nothing to decide
	}
	if s := c.streams(); s != nil {
		passOn(now, u, c, state, s)
		return
	}
	u.end(now, c, state)
}

// end ends a call in a state, and records that.
func (u *upstreamState) end(now time.Time, c *call, state State) {
	end := c.Call.snapshot()
	end.become(now, state)
	if state == Unknown && c.Async {
		u.setPhase(c, unresolved) // it stays in memory, and may go again
	} else {
		u.setPhase(c, recording)
	}
	if state == Cancelled || state == Expired || state == Exhausted {
		end.Reason = c.history().reason
	}
	if state == Cancelled || state == Unknown {
		end.EndedBy = c.history().endedBy
	}
	c.ending = true
	u.loop.record(now, c, end, func(now time.Time) { u.ended(now, c) })
}

// ended tells the end of a call, which is recorded.
func (u *upstreamState) ended(now time.Time, c *call) {
	u.loop.observe(Event{Kind: EventEnded, Call: c.Call, Reason: c.Reason})
	c.tellEnd()
	if c.State.Finished() || !c.Async {
		u.setPhase(c, uncounted)
		u.forget(c)
	}
	if s := c.streams(); s != nil {
		close(s.stored)
	}
	if c.abandoned() {
		c.discardAnswer()
	}
	c.tell(c.Call)
	u.loop.after(now, c)
	u.rest(c)
}

// rest takes an unknown call out of memory that the store has whole: there it waits for a
// decision, and is counted as before. While queries about it are under way it stays.
func (u *upstreamState) rest(c *call) {
	if c.State == Unknown && c.pages() && !c.noBody && !c.ending && c.flight.queries == 0 {
		u.grow(c, -c.Response.size()) // as in the store, where an answer takes no memory
		u.forget(c)
	}
}

// forget takes a call out of memory.
func (u *upstreamState) forget(c *call) {
	u.loop.forget(c.ID)
	if c.pages() {
		u.window.Forget(int64(c.item.Seq))
	}
}

// dropStale drops a copy of a call that the store knows to be no longer waiting, so that
// nothing was sent. It takes back the counts of the copy's load and sending.
func (u *upstreamState) dropStale(now time.Time, c *call) {
	never := &upstream.Result{Outcome: upstream.NotExecuted, AnsweredAt: now}
	u.circuit.Record(now, c.item.Seq, 0, c.flight.sentAt, retry.Unproven, 0)
	u.returnPermits(now, c, c.change(), ending{result: never})
	delete(u.loop.calls, c.ID)
	if c.pages() {
		u.window.Forget(int64(c.item.Seq))
		u.noteDeadline(c.Deadline)
		u.count[sending]--
		u.count[waiting]++
		u.publish()
		u.window.Park()
	} else {
		u.setPhase(c, uncounted)
	}
	u.loop.watched.tell(c.ID, nil)
	c.tell(c.Call)
}

// resolve records a decision about an unknown call, and then ends it or lets it go again. If
// a person has decided, a call that goes again begins anew; else it goes as a repeat.
func (u *upstreamState) resolve(now time.Time, c *call, d Decision, person bool, recorded chan struct{}) {
	d.AcceptDuplicate = d.As == upstream.Unknown && !repeatIsSafe(now, u, c)
	next := c.decided(now, d)
	next.delayUntil(time.Time{})
	again := next.State == Waiting
	if again && person {
		next.EndedBy = ""
		for i := range next.Attempts {
			next.Attempts[i].Resolved = next.Attempts[i].Resolved || d.As == upstream.NotExecuted
		}
		history := c.history()
		history.renew(d)
		next.Deadline = u.repeatableUntil(&history, u.validUntil(c.AcceptedAt, now.Add(u.MaxAge)))
	}
	u.loop.record(now, c, next, func(now time.Time) {
		defer close(recorded)
		if c.flight.resolved != nil {
			c.flight.resolved()
			c.flight.resolved = nil
		}
		if again {
			c.due, c.flight.reason, c.flight.repeat = 0, "", !person
			if person {
				c.flight.renew(d)
			}
			u.resume(now, c)
			return
		}
		u.settle(now, c)
	})
}

// settle ends an unknown call whose end a decision has put into the store.
func (u *upstreamState) settle(now time.Time, c *call) {
	u.setPhase(c, uncounted)
	u.forget(c)
	u.loop.observe(Event{Kind: EventEnded, Call: c.Call})
	u.loop.after(now, c)
}
