package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What follows an attempt: the states of the package doc from sending on.

// attempt sends a call once, on a goroutine of its own.
func (s *Scheduler) attempt(sv *service, c *call, intent *Call, take []Hold) {
	send := sv.up.Do
	if !intent.Async { // who waits gets the beginning of a slow answer before its end
		send = sv.up.Stream
	}
	result := s.once(send, sv, c, intent, take)
	if errors.Is(result.Err, ErrNotWaiting) {
		s.loop.post(func(now time.Time) { s.loop.vanish(now, c) })
		return
	}
	inForce := s.latest(sv)
	repeatable, until := inForce.repeatable(c, result)
	decision := s.decision(inForce.Retry, retry.Attempt{
		Number: c.flight.burnt + 1, Outcome: retry.Outcome(result.Outcome), Repeatable: repeatable, Until: until,
		RetryAfter: result.RetryAfter, Last: c.flight.backoff, Response: result.Response, Err: result.Err,
	})
	switch {
	case result.Outcome == upstream.Unknown:
		s.log.Warn("a call may have been executed", "call", intent.ID, "upstream", intent.Upstream, "reason", result.Reason)
	case result.Unprocessed:
		s.log.Info("the upstream did not process a call", "call", intent.ID, "upstream", intent.Upstream, "reason", result.Reason)
	case result.Outcome == upstream.NotExecuted && result.Sent:
		s.log.Info("limited by the upstream", "call", intent.ID, "upstream", intent.Upstream, "reason", result.Reason, "retry_after", result.RetryAfter.String())
	}
	// Read what is kept of the answer here: it may block.
	var kept *Response
	switch {
	case result.Response == nil:
	case intent.Async:
		kept = keep(result, sv.up.MaxInspect)
		result.Response = nil
	case intent.Durable:
		kept = copyOf(result, sv.up.MaxInspect)
	}
	s.loop.post(func(now time.Time) {
		s.loop.conclude(now, c, result, kept, decision)
		if p := s.loop.planners[intent.Upstream]; p.retired || p.service != sv { // replaced meanwhile
			sv.up.Close()
		}
	})
}

// decision asks the policy what follows. If a hook of it panics, nothing does.
func (s *Scheduler) decision(p retry.Policy, a retry.Attempt) (d retry.Decision) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("a hook of the retry policy panicked", "panic", v, "stack", string(debug.Stack()))
			d = retry.Decision{Burnt: true}
		}
	}()
	return p.Next(time.Now(), a, rand.Float64())
}

// once stores the intent and sends the request. What panics, a signer or a
// transport that somebody gave us, harms this call alone: it may have been sent.
func (s *Scheduler) once(send func(context.Context, *upstream.Request) *upstream.Result, sv *service, c *call, intent *Call, take []Hold) (result *upstream.Result) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("an attempt panicked", "call", intent.ID, "upstream", intent.Upstream, "panic", v, "stack", string(debug.Stack()))
			result = &upstream.Result{Outcome: upstream.Unknown, Sent: true, Reason: "the attempt panicked", AnsweredAt: time.Now()}
		}
	}()
	if err := s.intend(c, intent, take); err != nil {
		return &upstream.Result{Outcome: upstream.NotExecuted, Reason: "never sent: the intent could not be stored", AnsweredAt: time.Now(), RetryAfter: time.Second, Err: err}
	}
	return send(s.ctx, sv.outgoing(intent, c.request))
}

// conclude takes in what an attempt came to and does what follows.
func (l *loop) conclude(now time.Time, c *call, r *upstream.Result, kept *Response, d retry.Decision) {
	p, f := l.planners[c.Upstream], c.flight
	needs := f.needs
	l.busy--
	p.sending--
	told := c.change()
	if p.spender != nil {
		var settled []Hold
		told.Spent, settled = p.spender.back(now, p, c, r)
		l.settled(settled)
	}
	p.back(now, f, r)
	l.tell(now, c, told, r, kept)
	l.reachable(now, p, c, r)
	f.used = f.used || r.Sent && !r.Unprocessed
	f.doubt = f.doubt || r.Outcome == upstream.Unknown
	if d.Burnt {
		f.burnt++
		f.backoff = d.At.Sub(now)
		f.repeat = d.Again
	}
	switch r.Outcome {
	case upstream.Done:
		p.executed(needs)
		l.finish(now, c, Done)
	case upstream.Failed:
		p.executed(needs)
		l.finish(now, c, Failed)
	default:
		l.putOff(now, p, c, needs, r, &d)
		l.again(now, p, c, r, d)
	}
}

// putOff says when a call goes again that was not executed, whatever the policy
// says: what was limited waits for the pause, what met a closed door for the door.
func (l *loop) putOff(now time.Time, p *planner, c *call, needs []quota.Need, r *upstream.Result, d *retry.Decision) {
	f := c.flight
	switch {
	case r.Unprocessed && f.unreached == 0: // a connection's end, most often
		f.unreached++
		d.At = now
	case r.Unprocessed, r.Unsigned: // it may be the call's own fault: another one is the next probe
		f.unreached++
		d.At = now.Add(probes.Delay(f.unreached+1, 0, rand.Float64()))
	case r.Outcome == upstream.NotExecuted && r.Sent:
		f.unreached = 0
		if !r.Alone {
			l.limited(now, p, c, needs, r)
			d.At = now
		}
	case r.Unreachable:
		f.unreached++
		d.At = now
	}
}

// tell notes what an attempt came to where others see it.
func (l *loop) tell(now time.Time, c *call, told *Call, r *upstream.Result, kept *Response) {
	if grown := kept.size() - told.Response.size(); grown != 0 { // what is kept of an answer is held too
		c.bytes += grown
		l.planners[c.Upstream].bytes += grown
	}
	told.Response = kept
	last := told.Last()
	last.EndedAt, last.Outcome, last.Reason = now, r.Outcome, r.Reason
	if r.Outcome == upstream.Failed && !r.Sent { // for good, but nobody has refused it
		last.Outcome = upstream.NotExecuted
	}
	switch {
	case kept != nil:
		last.Status = kept.Status
	case r.Response != nil:
		last.Status = r.Response.StatusCode
	}
	if before := c.answer(); before != nil {
		before.Response.Body.Close()
	}
	c.flight.result = r
	l.observe(Event{Kind: EventAttempt, Call: told, Attempt: last})
}

// again lets a call wait for its next attempt, or ends it if there is none.
func (l *loop) again(now time.Time, p *planner, c *call, r *upstream.Result, d retry.Decision) {
	may := p.mayGoAgain(c, r)
	end := Exhausted
	switch {
	case r.Outcome == upstream.Unknown:
		end = Unknown
	case d.Again && c.Async && may:
		end = Expired // the only reason left
	case r.Outcome == upstream.NotExecuted && !now.Before(c.Deadline): // on its way to the wire, perhaps
		end = Expired
		c.because(PastDeadline)
	}
	if d.Again && may && !c.gone && (c.Async || !l.stopping) {
		c.due = d.At.Sub(l.origin)
		l.reroute(p, c)
		deadline := p.goodFor(c.flight, c.Deadline)
		if eta, _ := p.eta(now, c); !eta.After(deadline) {
			// It stays in sending until that is recorded: records of a call do not overtake.
			next := c.snapshot()
			next.State, next.Deadline = Waiting, deadline
			next.putOff(d.At)
			l.record(&next, func(now time.Time) { l.resume(now, c, &next) })
			return
		}
	}
	l.finish(now, c, end)
}

// resume lets a call wait again after an attempt.
func (l *loop) resume(now time.Time, c *call, next *Call) {
	c.Call = next
	l.planners[c.Upstream].waiting++
	switch {
	case c.gone:
		l.finish(now, c, Cancelled)
	case l.stopping && !c.Async:
		l.release(now, c)
	default:
		l.observe(Event{Kind: EventWaiting, Call: next})
		l.wait(now, c)
	}
}

// limited shuts what the upstream's answer says, or the upstream, for as long as
// it says, or longer each time in a row.
func (l *loop) limited(now time.Time, p *planner, c *call, needs []quota.Need, r *upstream.Result) {
	wait, target := r.RetryAfter, ""
	if r.Pause != nil {
		target = r.Pause.Limit
		if wait == 0 {
			wait = r.Pause.For
		}
	}
	id := gateID{}
	for _, n := range needs {
		if target != "" && p.limits[n.Limit].Name == target {
			id = gateID{n.Limit, n.Key}
		}
	}
	if id.limit == 0 {
		target = ""
	}
	if wait == 0 {
		wait = p.strike(now, id, c.flight.sentAt)
	}
	until := now.Add(wait)
	if id.limit == 0 {
		p.ledger.PauseLimit(0, until)
	} else {
		p.ledger.PauseKey(now, id.limit, id.key, until)
	}
	l.observe(Event{Kind: EventPaused, Call: c.Call, Limit: target, Key: id.key, Until: until})
}

// reachable keeps book of whether the upstream can be reached at all.
func (l *loop) reachable(now time.Time, p *planner, c *call, r *upstream.Result) {
	before := p.door.down
	if !p.door.heard(now, c, r) {
		return
	}
	switch down := p.door.down; {
	case down == 0:
		l.s.log.Info("upstream is up again", "upstream", p.Name, "failed_probes", before)
	case down == 1:
		l.s.log.Warn("upstream, or its signer, is down; its calls wait", "upstream", p.Name, "reason", r.Reason, "probe_in", p.door.probe.Sub(now).String())
		fallthrough
	default:
		l.wheel.Insert(p.door.probe.Sub(l.origin), wakeup{})
	}
}

// finish ends a call in a state: finished, or unknown.
func (l *loop) finish(now time.Time, c *call, state State) {
	p := l.planners[c.Upstream]
	if c.State == Waiting {
		l.leave(now, c)
		p.waiting--
	}
	if c.sent().doubt && state != Done {
		state = Unknown // an earlier attempt may have executed it, whatever ended it now
	}
	if state == Unknown && (c.Resolves != "" || p.target != "") {
		state = Exhausted // a query or a webhook moves nothing: nobody need decide about it
	}
	end := c.change()
	end.State = state
	if state == Unknown && c.Async {
		p.unknown++ // it stays in hand, and may go again
	} else {
		p.bytes -= c.bytes
	}
	if state.Finished() {
		end.FinishedAt = now
	}
	l.observe(Event{Kind: EventEnded, Call: end})
	l.record(end, func(now time.Time) { l.settle(now, c) })
}

// record stores where a call stands, beside the loop, and then goes on in it.
func (l *loop) record(told *Call, then func(now time.Time)) {
	l.busy++
	l.s.work.Go(func() {
		if err := l.s.storeOf(told).Record(context.WithoutCancel(l.s.ctx), told); err != nil {
			l.s.log.Error("a call's state could not be stored", "call", told.ID, "state", told.State, "err", err)
			l.s.check(err)
		}
		l.post(func(now time.Time) {
			l.busy--
			then(now)
		})
	})
}

// settle tells everybody who waits for the call that it has ended.
func (l *loop) settle(now time.Time, c *call) {
	if c.State.Finished() || !c.Async {
		delete(l.calls, c.ID)
		l.planners[c.Upstream].backlog.forget(c)
	}
	if answer := c.answer(); c.gone && answer != nil {
		answer.Response.Body.Close()
	}
	if c.settled != nil {
		close(c.settled)
	}
	l.aftermath(now, c)
}

// abandon takes note that nobody waits for the call any more.
func (l *loop) abandon(now time.Time, c *call) {
	select {
	case <-c.settled:
		if answer := c.answer(); answer != nil {
			answer.Response.Body.Close()
		}
		return
	default:
	}
	c.gone = true
	if c.State == Waiting {
		l.finish(now, c, Cancelled)
	}
}

// stop refuses what waits for an answer; what was submitted stays as it is.
func (l *loop) stop(now time.Time) {
	l.stopping = true
	for _, c := range l.calls {
		if c.State == Waiting && !c.Async {
			l.release(now, c)
		}
	}
}

// lost logs what ends with a process that has no store. The loop has ended.
func (l *loop) lost() {
	calls, unknown, webhooks := 0, 0, int(l.s.untold.Load())
	for _, c := range l.calls {
		switch {
		case l.planners[c.Upstream].target != "":
			webhooks++
		case c.State == Waiting:
			calls++
		case c.State == Unknown:
			unknown++
		}
	}
	if calls+unknown+webhooks > 0 {
		l.s.log.Warn("what is kept in memory ends with this process", "waiting_calls", calls, "unknown_calls", unknown, "webhooks", webhooks)
	}
}

// release ends a waiting call because the scheduler stops.
func (l *loop) release(now time.Time, c *call) {
	c.because(Stopping)
	if !c.Async {
		l.finish(now, c, Cancelled)
	}
}
