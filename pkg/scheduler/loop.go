package scheduler

import (
	"math/rand/v2"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// tick is the wheel's: how exactly a slot fires.
const tick = 100 * time.Microsecond

// batch is how many messages the loop takes before it looks at the clock again.
const batch = 256

// probes is how long an upstream that is down is left alone between two dials.
var probes = retry.Policy{Min: 500 * time.Millisecond, Max: 30 * time.Second}

// The loop is the one goroutine that touches the wheel, the planners and the
// calls in hand. It lives on messages: functions that it runs at an instant.
type loop struct {
	s       *Scheduler
	inbox   chan func(now time.Time)
	ended   chan struct{}
	observe func(Event)

	// Owned by run.
	origin   time.Time
	wheel    *wheel.Wheel[timeouter]
	planners map[string]*planner
	calls    map[string]*call // that are not finished, or not yet recorded as such
	seq      uint64
	stopping bool
	busy     int // calls being admitted, sent or recorded: each will send a message
}

// A timeouter is what lies in the wheel: a gate that opens, a call whose time has come.
type timeouter interface{ timeoutAt(now time.Time) }

// timed is a call in the wheel.
type timed struct {
	*call
	l *loop
}

func (t timed) timeoutAt(now time.Time) { t.l.timeout(now, t.call) }

func newLoop(s *Scheduler, observe func(Event)) *loop {
	l := &loop{
		s: s, inbox: make(chan func(time.Time), batch), ended: make(chan struct{}),
		observe: observe, origin: time.Now(), wheel: wheel.New[timeouter](tick),
		planners: make(map[string]*planner), calls: make(map[string]*call),
	}
	if l.observe == nil {
		l.observe = func(Event) {}
	}
	for name, sv := range *s.services.Load() {
		l.planners[name] = l.newPlanner(sv)
	}
	return l
}

func (l *loop) newPlanner(sv *service) *planner {
	p := newPlanner(sv, l.wheel, l.origin)
	p.ledger.OnStep = func(step time.Duration) {
		l.s.log.Warn("the wall clock was put forward; what is out of aligned limits counts in both windows", "upstream", p.Name, "step", step.String())
	}
	return p
}

// post hands the loop a message; false if the loop has ended.
func (l *loop) post(f func(now time.Time)) bool {
	select {
	case l.inbox <- f:
		return true
	case <-l.ended:
		return false
	}
}

// run is the loop. It ends when it has been told to stop and nothing is under way.
func (l *loop) run() {
	defer close(l.ended)
	slot := time.NewTimer(time.Hour)
	defer slot.Stop()
	for !l.stopping || l.busy > 0 {
		if next, ok := l.wheel.Next(); ok {
			slot.Reset(time.Until(l.origin.Add(next)))
		}
		select {
		case f := <-l.inbox:
			now := time.Now()
			f(now)
			l.drain(now)
		case <-slot.C:
		}
		now := time.Now()
		l.wheel.Advance(now.Sub(l.origin), func(t timeouter) { t.timeoutAt(now) })
		l.dispatch(now)
	}
}

// drain runs the messages that are there already, up to a batch.
func (l *loop) drain(now time.Time) {
	for range batch - 1 {
		select {
		case f := <-l.inbox:
			f(now)
		default:
			return
		}
	}
}

// dispatch sends every call that can go.
func (l *loop) dispatch(now time.Time) {
	if l.stopping {
		return
	}
	for _, p := range l.planners {
		for c := p.next(now); c != nil; c = p.next(now) {
			l.send(now, p, c)
		}
	}
}

// admit reserves a place for a new call, or says why it is refused.
func (l *loop) admit(now time.Time, c *call) *Error {
	p := l.planners[c.Upstream]
	if p == nil || p.retired {
		return errNoUpstream(c.Upstream)
	}
	l.reroute(p, c)
	if refused := l.refusal(now, p, c); refused != nil {
		refused.Upstream = c.Upstream
		call := c.Call.snapshot()
		refused.Call = &call
		l.observe(Event{Kind: EventRefused, Call: c.Call, Reason: refused.Reason, route: c.route})
		return refused
	}
	p.waiting++
	p.bytes += c.bytes
	l.busy++
	return nil
}

// enqueue takes an admitted call in hand.
func (l *loop) enqueue(now time.Time, c *call) {
	l.busy--
	l.seq++
	c.seq = l.seq
	l.calls[c.ID] = c
	l.observe(Event{Kind: EventAccepted, Call: c.Call, route: c.route})
	if l.stopping { // since it was admitted
		l.release(now, c)
		return
	}
	l.wait(now, c)
}

// withdraw gives back the place of a call that was admitted and not enqueued.
func (l *loop) withdraw(c *call) {
	p := l.planners[c.Upstream]
	p.waiting--
	p.bytes -= c.bytes
	l.busy--
}

// wait puts a call into the plan, or lets it wait for its time.
func (l *loop) wait(now time.Time, c *call) {
	at := c.Deadline.Sub(l.origin)
	if c.due > now.Sub(l.origin) {
		at = min(at, c.due)
	} else {
		p := l.planners[c.Upstream]
		l.reroute(p, c)
		p.add(c)
	}
	c.timeout = l.wheel.Insert(at, timed{c, l})
}

// timeout is the instant that a waiting call has in the wheel: its deadline, or
// the end of its backoff.
func (l *loop) timeout(now time.Time, c *call) {
	if c.queued.lane != nil || !now.Before(c.Deadline) {
		l.expire(now, c)
		return
	}
	l.wait(now, c)
}

// expire ends a call that may not wait any longer.
func (l *loop) expire(now time.Time, c *call) {
	c.reason = PastDeadline
	if p := l.planners[c.Upstream]; p.trouble.After(now) {
		c.reason = Paused
	}
	l.finish(now, c, Expired)
}

// leave takes a waiting call out of the plan and the wheel.
func (l *loop) leave(now time.Time, c *call) {
	if c.queued.lane != nil {
		p, g := l.planners[c.Upstream], c.queued.lane.share.gate
		p.remove(c)
		p.check(now, g) // what it waited for may be enough for the next
	}
	l.wheel.Cancel(c.timeout)
}

// send starts an attempt of a call that the planner has let go.
func (l *loop) send(now time.Time, p *planner, c *call) {
	l.wheel.Cancel(c.timeout)
	p.waiting--
	p.sending++
	if c.flight == nil {
		c.flight = new(flight)
	}
	c.flight.sentAt, c.flight.needs = now, c.route.needs
	n := 1
	if last := c.Last(); last != nil {
		n = last.N + 1
	}
	intent := c.change()
	intent.State = Sending
	if len(intent.Attempts) == MaxAttempts {
		intent.Attempts = intent.Attempts[1:]
	}
	intent.Attempts = append(intent.Attempts, Attempt{N: n, SentAt: now})
	l.observe(Event{Kind: EventSending, Call: intent})
	l.busy++
	up := p.up
	l.s.work.Go(func() { l.s.attempt(up, c, intent) })
}

// attempt sends a call once, on a goroutine of its own.
func (s *Scheduler) attempt(up *upstream.Upstream, c *call, intent *Call) {
	var result *upstream.Result
	if err := s.store.Intend(intent); err != nil {
		result = &upstream.Result{Outcome: upstream.NotExecuted, Reason: "never sent: the intent could not be stored", AnsweredAt: time.Now(), RetryAfter: time.Second, Err: err}
	} else {
		result = up.Do(s.ctx, c.request)
	}
	switch {
	case result.Outcome == upstream.Unknown:
		s.log.Warn("a call may have been executed", "call", intent.ID, "upstream", intent.Upstream, "reason", result.Reason)
	case result.Outcome == upstream.NotExecuted && result.Sent:
		s.log.Info("limited by the upstream", "call", intent.ID, "upstream", intent.Upstream, "reason", result.Reason, "retry_after", result.RetryAfter.String())
	}
	// Read what is kept of the answer here: it may block.
	var kept *Response
	if intent.Async && result.Response != nil {
		kept = keep(result, up.MaxInspect)
	}
	s.loop.post(func(now time.Time) {
		s.loop.conclude(now, c, result, kept)
		if up != s.loop.planners[intent.Upstream].up { // replaced meanwhile
			up.Close()
		}
	})
}

// conclude takes in what an attempt came to and decides what follows.
func (l *loop) conclude(now time.Time, c *call, r *upstream.Result, kept *Response) {
	p := l.planners[c.Upstream]
	f := c.flight
	l.busy--
	p.sending--
	p.back(now, f, r)
	told := c.change()
	told.Response = kept
	last := told.Last()
	last.EndedAt, last.Outcome, last.Reason = now, r.Outcome, r.Reason
	if r.Response != nil {
		last.Status = r.Response.StatusCode
	}
	if before := c.answer(); before != nil {
		before.Response.Body.Close()
	}
	f.result = r
	l.observe(Event{Kind: EventAttempt, Call: c.Call, Attempt: last})

	l.reachable(now, p, r)
	decision := p.Retry.Next(now, retry.Attempt{
		Number: f.burnt + 1, Outcome: retry.Outcome(r.Outcome), Repeatable: c.repeatable,
		RetryAfter: r.RetryAfter, Response: r.Response, Err: r.Err,
	}, rand.Float64())
	if decision.Burnt {
		f.burnt++
	}
	switch {
	case r.Outcome == upstream.Done:
		l.finish(now, c, Done)
		return
	case r.Outcome == upstream.Failed:
		l.finish(now, c, Failed)
		return
	case r.Outcome == upstream.NotExecuted && r.Sent:
		f.limited++
		f.unreached = 0
		l.limited(now, p, c, r)
		decision.At = now // the pause is what it waits for
	case r.Unreachable:
		f.unreached++
		decision.At = now
	}
	l.again(now, p, c, r, decision)
}

// again lets a call wait for its next attempt, or ends it if there is none.
func (l *loop) again(now time.Time, p *planner, c *call, r *upstream.Result, d retry.Decision) {
	// A caller that waits gets the first answer there is, unless its request may
	// go out again as it is. What was never sent is no repeat; but a caller need
	// not wait for an upstream that stays down.
	may := c.Async || r.Sent && (p.Resend || p.Signer != nil) || !r.Sent && c.flight.unreached < 2
	end := Exhausted
	switch {
	case r.Outcome == upstream.Unknown:
		end = Unknown
	case d.Again && c.Async:
		end = Expired // the only reason left
	}
	if d.Again && may && !c.gone && (c.Async || !l.stopping) {
		c.due = d.At.Sub(l.origin)
		l.reroute(p, c)
		if eta, _ := p.eta(now, c); !eta.After(c.Deadline) {
			// It stays in sending until that is recorded: records of a call do not overtake.
			next := c.snapshot()
			next.State = Waiting
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

// limited shuts what the upstream's answer says, or the upstream.
func (l *loop) limited(now time.Time, p *planner, c *call, r *upstream.Result) {
	wait, target := r.RetryAfter, ""
	if r.Pause != nil {
		target = r.Pause.Limit
		if wait == 0 {
			wait = r.Pause.For
		}
	}
	if wait == 0 {
		wait = p.Retry.Delay(c.flight.limited, rand.Float64())
	}
	until := now.Add(wait)
	for _, n := range c.flight.needs {
		if target != "" && p.limits[n.Limit].name == target {
			p.ledger.PauseKey(now, n.Limit, n.Key, until)
			l.observe(Event{Kind: EventPaused, Call: c.Call, Limit: target, Until: until})
			return
		}
	}
	l.pause(now, p, c, until)
}

// pause shuts the upstream.
func (l *loop) pause(now time.Time, p *planner, c *call, until time.Time) {
	if until.After(p.trouble) {
		p.trouble = until
	}
	p.ledger.PauseLimit(0, until)
	l.observe(Event{Kind: EventPaused, Call: c.Call, Until: until})
}

// reachable keeps book of whether the upstream can be reached at all: while it
// cannot, one call at a time probes it, each after a longer pause.
func (l *loop) reachable(now time.Time, p *planner, r *upstream.Result) {
	switch {
	case r.Unreachable && !p.trouble.After(now): // else: sent before the pause began
		p.down++
		wait := probes.Delay(p.down, rand.Float64())
		if p.down == 1 {
			l.s.log.Warn("upstream is down, its calls wait", "upstream", p.Name, "reason", r.Reason, "probe_in", wait.String())
		}
		p.ledger.SetCalls(0, 1)
		p.trouble = now.Add(wait)
		p.ledger.PauseLimit(0, p.trouble)
	case !r.Unreachable && r.Sent && p.down > 0:
		l.s.log.Info("upstream is up again", "upstream", p.Name, "failed_dials", p.down)
		p.down = 0
		p.ledger.SetCalls(0, p.Concurrency)
		p.checkLimit(now, 0)
	}
}

// finish ends a call in a state: finished, or unknown.
func (l *loop) finish(now time.Time, c *call, state State) {
	p := l.planners[c.Upstream]
	if c.State == Waiting {
		l.leave(now, c)
		p.waiting--
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
	l.record(end, func(time.Time) { l.settle(c) })
}

// record stores where a call stands, beside the loop, and then goes on in it.
func (l *loop) record(told *Call, then func(now time.Time)) {
	l.busy++
	l.s.work.Go(func() {
		if err := l.s.store.Record(told); err != nil {
			l.s.log.Error("a call's state could not be stored", "call", told.ID, "state", told.State, "err", err)
		}
		l.post(func(now time.Time) {
			l.busy--
			then(now)
		})
	})
}

// settle tells everybody who waits for the call that it has ended.
func (l *loop) settle(c *call) {
	if c.State.Finished() || !c.Async {
		delete(l.calls, c.ID)
	}
	if answer := c.answer(); c.gone && answer != nil {
		answer.Response.Body.Close()
	}
	if c.settled != nil {
		close(c.settled)
	}
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
	left := 0
	for _, c := range l.calls {
		switch {
		case c.State == Waiting && !c.Async:
			l.release(now, c)
		case c.State == Waiting:
			left++
		}
	}
	if left > 0 {
		l.s.log.Warn("calls are waiting and will not be sent by this process", "calls", left)
	}
}

// release ends a waiting call because the scheduler stops.
func (l *loop) release(now time.Time, c *call) {
	c.reason = Stopping
	if !c.Async {
		l.finish(now, c, Cancelled)
	}
}
