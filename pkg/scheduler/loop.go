package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/alarm"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// tick is the wheel's: how exactly a slot fires.
const tick = 100 * time.Microsecond

// maxLogging is how many lines of the log may be written at a time beside the loop.
const maxLogging = 256

// The loop owns the wheel, the upstreams and the calls in memory. It lives on messages:
// functions of the instant at which they run. A message runs on the goroutine that posts it,
// when those before it have: there is nothing to wake, and its sender goes on with its effects.
// The loop's own goroutine sees to the timeouts.
type loop struct {
	// Set at the start; safe for all goroutines.
	ended      chan struct{} // closed after the last message
	origin     time.Time     // instant 0 of the wheel
	longWindow time.Duration
	precise    bool
	log        *slog.Logger
	journal    *journal
	cuts       context.Context                // ends when attempts in flight are cut off
	work       sync.WaitGroup                 // attempts, and work beside the loop
	logging    chan struct{}                  // has an element for each line of the log that is being written beside the loop
	service    func(upstream string) *service // as it is configured now
	random     func() float64                 // from [0, 1), for the spread of waits
	endCall    func(identity, by string)      // ends the calls of an identity; not for the loop itself
	// settleBy settles the unknown call of an identity by the answer to a caller's query; not
	// for the loop itself.
	settleBy   func(identity string, query *Call, answer *Response)
	progress   func(id string) progress // of the queries about an unknown call
	uncomputed uncomputed               // rules without a value

	turns sync.Mutex // guards all that follows

	slot      *time.Timer // both ring at the instant set
	alarm     alarm.Alarm
	set       time.Duration // -1: one of them has rung
	observe   func(Event)
	after     func(now time.Time, c *call) // what follows the end of a submitted call
	wheel     *wheel.Wheel[planner.Timeout]
	upstreams map[string]*upstreamState
	absent    map[string]detached      // upstreams that were configured
	alive     time.Time                // until which the last process may have begun attempts; zero if it has ended
	timeouts  map[string]time.Duration // of attempts of earlier owners, by upstream
	restored  time.Time                // when a copy of the store was restored; zero if it is none
	pauses    map[pauseID]lease.Hold   // by people, and of open circuits: those that the store keeps
	calls     map[string]*call         // that are not finished, or not yet recorded as such
	accepting map[string]bool          // ids that have been admitted, and are being stored
	watched   watches                  // of calls anywhere
	readings  map[*reading]struct{}    // that are under way
	seq       uint64
	holdID    int64
	stopping  bool
	busy      int // messages that goroutines beside the loop will send
}

func newLoop(s *Scheduler, c Config) *loop {
	l := &loop{
		ended: make(chan struct{}), logging: make(chan struct{}, maxLogging), origin: time.Now(),
		longWindow: c.LongWindow, precise: c.Precise, log: s.log, journal: s.journal, cuts: s.cuts, service: s.service, random: rand.Float64, endCall: s.endCall,
		observe: c.Observe, wheel: wheel.New[planner.Timeout](tick),
		upstreams: make(map[string]*upstreamState), absent: make(map[string]detached), pauses: make(map[pauseID]lease.Hold),
		calls: make(map[string]*call), accepting: make(map[string]bool), watched: make(watches), readings: make(map[*reading]struct{}),
	}
	if l.longWindow == 0 {
		l.longWindow = DefaultLongWindow
	}
	if l.observe == nil {
		l.observe = func(Event) {}
	}
	for name, sv := range *s.services.Load() {
		l.upstreams[name] = newUpstreamState(l, sv)
	}
	return l
}

func (l *loop) nextSeq() uint64 { l.seq++; return l.seq }
func (l *loop) nextHold() int64 { l.holdID++; return l.holdID }

// post runs f as a message; false if the loop has ended, and f does not run.
func (l *loop) post(f func(now time.Time)) bool {
	l.turns.Lock()
	defer l.turns.Unlock()
	if l.over() {
		return false
	}
	whole := false
	defer func() {
		if !whole {
			endProcess("a message", recover())
		}
	}()
	now := time.Now()
	f(now)
	l.wheel.Advance(now.Sub(l.origin), func(t planner.Timeout) { t.Fire(now) })
	l.dispatch(now)
	if l.stopping && l.busy == 0 {
		close(l.ended)
	} else {
		l.sleep()
	}
	whole = true
	return true
}

// over reports whether the last message has run.
func (l *loop) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// endProcess ends the process, for a message or an attempt has panicked, or has ended its
// goroutine (runtime.Goexit). The goroutine may be that of a caller that recovers from panics, as
// handlers of net/http do, and would go on with half of it done.
func endProcess(of string, bug any) {
	message := fmt.Sprintf("throttler: %s did not end: %v\n\n%s", of, cmp.Or(bug, any("its goroutine has ended")), debug.Stack())
	go panic(message)
	select {}
}

// ask is post with an error: that of a ctx that has ended before, or that the loop has.
func (l *loop) ask(ctx context.Context, f func(now time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !l.post(f) {
		return errStopping("")
	}
	return nil
}

// beside runs do on a goroutine of its own and then, in the loop, then. The loop does
// not end before.
func (l *loop) beside(do func(), then func(now time.Time)) {
	l.busy++
	l.work.Go(func() {
		do()
		l.post(func(now time.Time) {
			l.busy--
			then(now)
		})
	})
}

// begin makes the loop ready for messages. Afterwards run is to be called.
func (l *loop) begin() {
	l.slot, l.alarm, l.set = time.NewTimer(time.Hour), l.newAlarm(), -1
	l.post(func(time.Time) {})
}

// run posts a message when a timeout is due, until the loop has ended.
func (l *loop) run() {
	defer l.slot.Stop()
	defer l.alarm.Stop()
	rung := func(time.Time) { l.set = -1 }
	for {
		select {
		case <-l.slot.C:
			l.post(rung)
		case <-l.alarm.C():
			l.post(rung)
		case <-l.ended:
			return
		}
	}
}

// sleep sets the timers to the next timeout.
func (l *loop) sleep() {
	if next, ok := l.wheel.Next(); ok && next != l.set {
		in := time.Until(l.origin.Add(next))
		l.slot.Reset(in)
		l.alarm.Set(in)
		l.set = next
	}
}

// newAlarm returns the system's timer if it is asked for and there is one.
func (l *loop) newAlarm() alarm.Alarm {
	if l.precise {
		a, err := alarm.New()
		if err == nil {
			return a
		}
		l.log.Info("slots may fire up to a millisecond late", "reason", err)
	}
	return alarm.Silent{}
}

// dispatch sends every call that can go.
func (l *loop) dispatch(now time.Time) {
	if l.stopping {
		return
	}
	for _, u := range l.upstreams {
		u.dispatch(now)
		u.refill(now)
	}
}

// admit reserves a place for a new call at its upstream, or says why it is refused.
func (l *loop) admit(now time.Time, c *call) *Error {
	u := l.upstreams[c.Upstream]
	if u == nil || u.removed && u.webhook == nil && c.Resolves == "" {
		return errNoUpstream(c.Upstream)
	}
	return u.admit(now, c)
}

// entryOf returns a channel that is closed when a call that is being stored has come into the loop, or
// was given up; nil if it is not being stored. The store may show it before.
func (l *loop) entryOf(id string) <-chan struct{} {
	if !l.accepting[id] {
		return nil
	}
	return l.watched.join(id).news
}

// record stores the next state of a call and puts it into effect; then goes on in the loop, at
// once where the store cannot block. Until another state is stored the call is sending to all
// others: no reader is told a state that a crash undoes, and nothing else is decided.
func (l *loop) record(now time.Time, c *call, next *Call, then func(now time.Time)) {
	if l.journal.inPlace(next) {
		c.stored = l.journal.record(next)
		c.Call = next
		then(now)
		return
	}
	if c.State != Sending && c.State != next.State {
		c.change().State = Sending
	}
	stored := false
	l.beside(func() { stored = l.journal.record(next) }, func(now time.Time) {
		c.Call, c.stored = next, stored
		then(now)
	})
}

// settle stores when the permits of leases come back. No call waits for that.
func (l *loop) settle(holds []lease.Hold) {
	if len(holds) > 0 {
		l.beside(func() { l.journal.settle(holds) }, func(time.Time) {})
	}
}

// A reading is a read of calls from the store that is under way. A call that leaves memory
// meanwhile has another state, and its row may have been read before.
type reading struct{ left map[string]struct{} }

// outdated reports whether the row of a call may have been read before its state changed.
func (r *reading) outdated(id string) bool {
	_, left := r.left[id]
	return left
}

func (l *loop) beginReading() *reading {
	r := &reading{left: make(map[string]struct{})}
	l.readings[r] = struct{}{}
	return r
}

// load ends a reading and takes its calls from disk into memory.
func (l *loop) load(now time.Time, r *reading, calls ...*call) {
	delete(l.readings, r)
	for _, c := range calls {
		if u := l.upstreams[c.Upstream]; u != nil && l.calls[c.ID] == nil && !r.outdated(c.ID) && !l.accepting[c.ID] && !l.stopping {
			u.load(now, c)
		}
	}
}

// forget takes a call out of memory whose state the store knows.
func (l *loop) forget(id string) {
	delete(l.calls, id)
	l.outdate(id)
}

// settleStored ends an unknown call that a decision has ended in the store, while it was not
// in memory. The webhook of an upstream that is not configured waits in the store until it is.
func (l *loop) settleStored(now time.Time, c *Call, e *Entry) {
	l.outdate(c.ID)
	if e == nil || !c.Async { // it was not counted: its caller had the answer
		return
	}
	if u := l.upstreams[c.Upstream]; u != nil {
		u.settle(now, &call{Call: c, up: u, bytes: e.Bytes, counted: unresolved})
		return
	}
	if d, absent := l.absent[c.Upstream]; absent {
		d.backlog.Unknown--
		d.backlog.Bytes -= e.Bytes
		l.absent[c.Upstream] = d
	}
}

// outdate notes that the store has another state of a call that is not in memory: rows that are
// being read may be old, and callers that watch it are to look for it.
func (l *loop) outdate(id string) {
	for r := range l.readings {
		r.left[id] = struct{}{}
	}
	l.watched.tell(id, nil)
}

// stop refuses the calls whose callers wait; submitted ones stay as they are.
func (l *loop) stop(now time.Time) {
	l.stopping = true
	for _, c := range l.calls {
		if c.State == Waiting && !c.Async {
			c.up.release(now, c)
		}
	}
}

// logLosses logs the calls that end with a process which has no store. The loop has
// ended.
func (l *loop) logLosses(webhooks, ends int) {
	pending, unknown := 0, 0
	for _, c := range l.calls {
		switch {
		case c.up.webhook != nil:
			webhooks++
		case c.State == Waiting:
			pending++
		case c.State == Unknown:
			unknown++
		}
	}
	if pending+unknown+webhooks+ends > 0 {
		l.log.Warn("calls in memory end with this process", "waiting_calls", pending, "unknown_calls", unknown, "webhooks", webhooks, "unhandled_ends", ends)
	}
}
