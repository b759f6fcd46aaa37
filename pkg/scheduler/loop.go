package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// tick is the wheel's: how exactly a slot fires.
const tick = 100 * time.Microsecond

// batch is how many messages the loop takes before it looks at the clock again.
const batch = 256

// The loop is the one goroutine that touches the wheel, the planners and the
// calls in hand. It lives on messages: functions that it runs at an instant.
type loop struct {
	s       *Scheduler
	inbox   chan func(now time.Time)
	ended   chan struct{}
	observe func(Event)

	// Owned by run.
	origin    time.Time
	wheel     *wheel.Wheel[timeouter]
	planners  map[string]*planner
	absent    map[string]absent // upstreams that were configured
	pauses    map[pauseID]Hold  // by people
	calls     map[string]*call  // that are not finished, or not yet recorded as such
	accepting map[string]bool   // ids that have been admitted, and are being stored
	seq       uint64
	stirred   bool // something has happened since calls were last sent
	stopping  bool
	busy      int   // calls being admitted, sent or recorded: each will send a message
	blocks    int64 // ids of holds
}

// A timeouter is what lies in the wheel: a gate that opens, a call whose time has come.
type timeouter interface{ timeoutAt(now time.Time) }

// timed is a call in the wheel.
type timed struct {
	*call
	l *loop
}

func (t timed) timeoutAt(now time.Time) { t.l.timeout(now, t.call) }

// wakeup is in the wheel only so that the loop looks at its calls again.
type wakeup struct{}

func (wakeup) timeoutAt(time.Time) {}

func newLoop(s *Scheduler, observe func(Event)) *loop {
	l := &loop{
		s: s, inbox: make(chan func(time.Time), batch), ended: make(chan struct{}),
		observe: observe, origin: time.Now(), wheel: wheel.New[timeouter](tick),
		planners: make(map[string]*planner), absent: make(map[string]absent), pauses: make(map[pauseID]Hold),
		calls: make(map[string]*call), accepting: make(map[string]bool),
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
	if l.s.durable != nil {
		p.spender = newSpender(l.s.long, l.nextHold)
		p.backlog = newBacklog(0)
	}
	p.ledger.OnStep = func(step time.Duration) {
		what := "the wall clock was put forward; what is out of aligned limits counts in both windows"
		if step < 0 {
			what = "the wall clock was put back; aligned windows stand still until it is where it was"
		}
		l.s.log.Warn(what, "upstream", p.Name, "step", step.String())
	}
	return p
}

func (l *loop) nextHold() int64 { l.blocks++; return l.blocks }

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
	slot, precise := time.NewTimer(time.Hour), newAlarm(l.s)
	defer slot.Stop()
	defer precise.stop()
	set := time.Duration(-1) // the instant to which both are set; -1: one of them has rung
	for !l.stopping || l.busy > 0 {
		if next, ok := l.wheel.Next(); ok && next != set {
			in := time.Until(l.origin.Add(next))
			slot.Reset(in)
			precise.set(in)
			set = next
		}
		select {
		case f := <-l.inbox:
			now := time.Now()
			f(now)
			l.drain()
			l.stirred = true
		case <-slot.C:
			set = -1
		case <-precise.rings():
			set = -1
		}
		now := time.Now()
		l.wheel.Advance(now.Sub(l.origin), func(t timeouter) {
			t.timeoutAt(now)
			l.stirred = l.stirred || t != timeouter(more{})
		})
		l.dispatch(now)
	}
}

// drain runs the messages that are there already, up to a batch.
func (l *loop) drain() {
	for range batch - 1 {
		select {
		case f := <-l.inbox:
			f(time.Now())
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
		if l.stirred {
			p.aside.again()
		}
		p.dispatch(now, func(c *call) { l.send(now, p, c) })
		l.refill(now, p)
	}
	l.stirred = false
}

// catchUp does for what has come to an upstream since calls were last sent what dispatch
// does at the end of a turn: it sends what can go and lets the rest queue at its gates.
// So who comes next or asks when a call goes is told of all that came before, and a batch
// of messages is no more than so many turns.
func (l *loop) catchUp(now time.Time, p *planner) {
	if !l.stopping && !p.entry.empty() {
		p.aside.again()
		p.dispatch(now, func(c *call) { l.send(now, p, c) })
	}
}

// admit reserves a place for a new call, or says why it is refused.
func (l *loop) admit(now time.Time, c *call) *Error {
	p := l.planners[c.Upstream]
	if p == nil || p.retired && p.target == "" && c.Resolves == "" {
		return errNoUpstream(c.Upstream)
	}
	l.reroute(p, c)
	l.catchUp(now, p)
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
	l.seq++
	if c.seq = l.seq; c.Stored != nil {
		c.Seq = int64(l.seq)
	}
	l.accepting[c.ID] = true
	return nil
}

// enqueue takes an admitted call in hand.
func (l *loop) enqueue(now time.Time, c *call) {
	l.busy--
	l.observe(Event{Kind: EventAccepted, Call: c.Call, route: c.route})
	p := l.planners[c.Upstream]
	delete(l.accepting, c.ID)
	l.calls[c.ID] = c
	switch {
	case l.stopping: // since it was admitted
		l.release(now, c)
	case l.parks(now, p, c):
		delete(l.calls, c.ID)
		p.backlog.far++
	default:
		l.catchUp(now, p)
		l.wait(now, c)
	}
}

// withdraw gives back the place of a call that was admitted and not enqueued.
func (l *loop) withdraw(c *call) {
	p := l.planners[c.Upstream]
	p.waiting--
	p.bytes -= c.bytes
	l.busy--
	delete(l.accepting, c.ID)
}

// wait puts a call into the plan, or lets it wait for its time.
func (l *loop) wait(now time.Time, c *call) {
	at := c.Deadline.Sub(l.origin)
	p := l.planners[c.Upstream]
	p.backlog.enter(c)
	if more := p.door.yields(now, c); more > 0 {
		c.due = max(c.due, now.Add(more).Sub(l.origin))
	}
	if c.due > now.Sub(l.origin) {
		at = min(at, c.due)
	} else {
		l.reroute(p, c)
		p.repeats.enter(now, c)
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
	c.because(PastDeadline)
	if p := l.planners[c.Upstream]; p.shutUntil(now).After(now) {
		c.because(Paused)
	}
	l.finish(now, c, Expired)
}

// leave takes a waiting call out of the plan and the wheel.
func (l *loop) leave(now time.Time, c *call) {
	l.planners[c.Upstream].backlog.leave(c)
	if c.queued.lane != nil {
		p, g := l.planners[c.Upstream], c.queued.lane.share.gate
		p.remove(now, c)
		p.check(now, g) // what it waited for may be enough for the next
	}
	l.planners[c.Upstream].repeats.leave(c)
	l.wheel.Cancel(c.timeout)
}

// send starts an attempt of a call that the planner has let go.
func (l *loop) send(now time.Time, p *planner, c *call) {
	l.wheel.Cancel(c.timeout)
	p.waiting--
	p.sending++
	p.backlog.leave(c)
	if c.flight == nil {
		c.flight = new(flight)
	}
	c.flight.sentAt, c.flight.needs = now, c.route.needs
	if c.flight.firstSent.IsZero() {
		c.flight.firstSent = now
		p.repeats.first(now)
	}
	p.door.sends(c)
	n := 1
	if last := c.Last(); last != nil {
		n = last.N + 1
	}
	intent := c.change()
	intent.State = Sending
	intent.Attempts = append(abridged(intent.Attempts), Attempt{N: n, SentAt: now})
	l.observe(Event{Kind: EventSending, Call: intent})
	var take []Hold
	if p.spender != nil {
		intent.Spent, take = p.spender.take(now, p, c)
	}
	l.busy++
	sv := p.service
	l.s.work.Go(func() { l.s.attempt(sv, c, intent, take) })
}
