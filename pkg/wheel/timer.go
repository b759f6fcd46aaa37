package wheel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrStopped is returned for a timeout that comes after Stop or Drain.
	ErrStopped = errors.New("wheel: timer is stopped")
	// ErrFull is returned for a timeout beyond Config.MaxPending.
	ErrFull = errors.New("wheel: timer is full")
	// ErrInsideTask is returned by Stop and Drain to a task of the same timer: they
	// wait for running tasks, so they would wait for their caller.
	ErrInsideTask = errors.New("wheel: called from inside a task of the same timer")
)

// patience is how long due tasks wait for those ahead of them before more goroutines
// join in.
const patience = time.Millisecond

// never is an instant at which nothing has to be done.
const never = time.Duration(math.MaxInt64)

// Config is the configuration of a Timer. The zero value is ready to use.
type Config struct {
	// Tick is the resolution: a timeout is due at the first tick after its delay. 0
	// means 1ms. NewTimer panics if it is negative.
	Tick time.Duration

	// MaxPending is how many timeouts may wait at once; the next is refused with
	// ErrFull. 0 means that only memory bounds them. NewTimer panics if it is negative.
	MaxPending int

	// Executor decides where tasks run; nil means goroutines of the timer. A call of
	// run runs the due tasks one after another until none is left. Executor must run
	// it, once, elsewhere, and return without waiting for it.
	//
	// It is called when tasks come due and nobody runs them, and again when a task
	// holds up others: if no task ended for 1ms, all that run are counted out and twice
	// as many are called for; if some ended, but others still wait, one more. So one
	// task, however slow, delays no tick, and others by at most about 2ms; k of them
	// together by 2ms · (1 + log2 k). An executor that has no room delays them by as
	// long as that lasts: it is not asked again before it has begun.
	Executor func(run func())

	// OnPanic is told, on the goroutine of the task, of each task that panicked; nil
	// means an error in the default slog.Logger. Other tasks are not affected.
	OnPanic func(value any, stack []byte)
}

// Timer calls a handler for each timeout, when its delay has passed.
//
// Delays count on the monotonic clock: steps of the wall clock do not matter. Where
// that clock stands still while the machine is suspended, as on Linux, so do the
// delays: after a second of suspend all fire a second later. An owner that means an
// instant of the wall clock calls Reschedule when it learns of a step or a resume.
//
// All methods may be called concurrently, also by tasks. The first timeout starts the
// timer's goroutine, and Stop or Drain must end it. It wakes up when a timeout is due
// or moves down a level, every 1ms while due tasks have to wait, and otherwise not at
// all.
type Timer[T any] struct {
	handle     func(T)
	maxPending int
	execute    func(run func())
	onPanic    func(value any, stack []byte)
	runner     func()    // t.run, bound once: starting one allocates no closure
	origin     time.Time // instant 0 of the wheel, with its monotonic reading

	goroutines sync.WaitGroup // work, and run where there is no Config.Executor
	quit       chan struct{}  // closed when stopped: work returns
	done       chan struct{}  // closed when stopped and the last runner has left

	// mu guards all below. It is held for some operations on the wheel, never while a
	// task, Executor or OnPanic runs.
	mu    sync.Mutex
	phase phase
	wheel *Wheel[T]
	alarm *time.Timer   // wakes up work; nil before the first timeout
	wake  time.Duration // when alarm goes off

	// Runners are the calls of run. The crew is those that take tasks: one that was
	// counted out, because it was stuck, ends with its present task.
	running map[uint64]struct{} // goroutines of all runners
	crew    int
	coming  int    // handed to execute, not yet begun
	shift   uint64 // counts the crews, so that a runner knows when it was counted out
	taken   uint64 // calls of take: how far the crew has come

	// When work looks after the crew next, and what it saw when it last did. In
	// between, seenTaken grows by one for each runner that begins: its first task is no
	// sign that any of the tasks before has ended.
	look      time.Duration
	seenTick  uint64
	seenTaken uint64
}

type phase uint8

const (
	fresh phase = iota
	started
	draining
	stopped
)

// NewTimer returns a timer of tasks. It runs nothing before its first timeout.
func NewTimer(cfg Config) *Timer[func()] {
	return NewHandlerTimer(func(task func()) { task() }, cfg)
}

// NewHandlerTimer returns a timer that calls handle with the value of each timeout.
// With a value that holds no pointer, as a number that handle looks up, millions of
// timeouts cost the garbage collector nothing.
func NewHandlerTimer[T any](handle func(T), cfg Config) *Timer[T] {
	if cfg.Tick < 0 {
		panic(fmt.Sprintf("wheel: Config.Tick is %v, must not be negative", cfg.Tick))
	}
	if cfg.MaxPending < 0 {
		panic(fmt.Sprintf("wheel: Config.MaxPending is %d, must not be negative", cfg.MaxPending))
	}
	if cfg.Tick == 0 {
		cfg.Tick = time.Millisecond
	}
	t := &Timer[T]{
		handle:     handle,
		maxPending: cfg.MaxPending,
		execute:    cfg.Executor,
		onPanic:    cfg.OnPanic,
		origin:     time.Now(),
		quit:       make(chan struct{}),
		done:       make(chan struct{}),
		wheel:      New[T](cfg.Tick),
		wake:       never,
		running:    make(map[uint64]struct{}),
	}
	t.runner = t.run
	if t.execute == nil {
		t.execute = t.goroutines.Go
	}
	if t.onPanic == nil {
		t.onPanic = func(value any, stack []byte) {
			slog.Error("wheel: task panicked", "panic", value, "stack", string(stack))
		}
	}
	return t
}

// NewTimeout lets value (with NewTimer: a task) be handled once, after delay, and not
// before. A delay of 0 or less is due at once, one too great for the clock at its end,
// 292 years from NewTimer. The error is ErrStopped, or wraps ErrFull.
func (t *Timer[T]) NewTimeout(value T, delay time.Duration) (Timeout[T], error) {
	now := t.now()
	at := after(now, delay)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase >= draining {
		return Timeout[T]{}, ErrStopped
	}
	if t.maxPending > 0 && t.wheel.Len() >= t.maxPending {
		return Timeout[T]{}, fmt.Errorf("%w: %d pending, MaxPending %d", ErrFull, t.wheel.Len(), t.maxPending)
	}
	if t.phase == fresh {
		t.phase = started
		t.alarm = time.NewTimer(never)
		t.goroutines.Go(t.work)
	}
	sooner := t.soonerLocked(at, now)
	h := t.wheel.Insert(at, value)
	if sooner {
		t.setAlarmLocked(now)
	}
	return Timeout[T]{t, h}, nil
}

// Len returns the number of timeouts that wait, with those that are due and have not
// begun. After Stop it counts those that Stop gave back.
func (t *Timer[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wheel.Len()
}

// Stop ends the timer at once: from now on no task begins. It returns the timeouts that
// neither fired nor were cancelled, in no order; they stay as they are, so that their
// Value and Deadline can be read. A timer that was stopped or drained before gives back
// none.
//
// It then waits for the tasks that run until ctx is done; if they are not, the timeouts
// come with an error, and another Stop or Drain may wait for them. From inside a task
// it does nothing and returns ErrInsideTask.
func (t *Timer[T]) Stop(ctx context.Context) ([]Timeout[T], error) {
	self := goroutineID()
	t.mu.Lock()
	if _, inside := t.running[self]; inside {
		t.mu.Unlock()
		return nil, ErrInsideTask
	}
	var left []Timeout[T]
	if t.phase != stopped {
		t.stopLocked()
		for _, h := range t.wheel.handles() {
			left = append(left, Timeout[T]{t, h})
		}
	}
	t.mu.Unlock()
	if !t.wait(ctx) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return left, fmt.Errorf("wheel: Stop: %d tasks still run: %w", len(t.running), context.Cause(ctx))
	}
	return left, nil
}

// Drain refuses new timeouts, waits until all have fired, or were cancelled, and their
// tasks have returned, and ends the timer. If ctx is done before, it returns an error
// and the timer goes on draining. It returns an error that wraps ErrStopped if Stop
// left some to fire, and from inside a task ErrInsideTask, having done nothing.
func (t *Timer[T]) Drain(ctx context.Context) error {
	self := goroutineID()
	t.mu.Lock()
	if _, inside := t.running[self]; inside {
		t.mu.Unlock()
		return ErrInsideTask
	}
	if t.phase < draining {
		t.phase = draining
		t.settleLocked()
	}
	t.mu.Unlock()
	done := t.wait(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !done {
		return fmt.Errorf("wheel: Drain: %d timeouts wait, %d tasks run: %w", t.wheel.Len(), len(t.running), context.Cause(ctx))
	}
	if n := t.wheel.Len(); n > 0 {
		return fmt.Errorf("wheel: Drain: %d timeouts will not fire: %w", n, ErrStopped)
	}
	return nil
}

// wait waits for the end of a timer that is stopped or draining, and reports whether it
// came.
func (t *Timer[T]) wait(ctx context.Context) bool {
	select {
	case <-t.done:
	default:
		select {
		case <-t.done:
		case <-ctx.Done():
			return false
		}
	}
	t.goroutines.Wait() // they wait for nothing any more
	return true
}

// stopLocked ends work, and lets no task begin.
func (t *Timer[T]) stopLocked() {
	t.phase = stopped
	if t.alarm != nil {
		t.alarm.Stop()
	}
	close(t.quit)
	if len(t.running) == 0 {
		close(t.done)
	}
}

// settleLocked ends a timer that has drained.
func (t *Timer[T]) settleLocked() {
	if t.phase == draining && t.wheel.Len() == 0 && len(t.running) == 0 {
		t.stopLocked()
	}
}

// work is the timer's goroutine.
func (t *Timer[T]) work() {
	for {
		select {
		case <-t.quit:
			return
		case <-t.alarm.C:
		}
		for range t.tick() {
			t.execute(t.runner)
		}
	}
}

// tick brings the wheel up to date and returns how many more runners to start; see
// Config.Executor for the rule.
func (t *Timer[T]) tick() (runners int) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == stopped {
		return 0
	}
	look := now >= t.look
	late := look && t.wheel.seek() && t.wheel.now <= t.seenTick
	t.wheel.raise(now)
	due := t.wheel.seek()
	switch {
	case !due || t.coming > 0:
	case t.crew == 0:
		runners = 1
	case look && t.taken == t.seenTaken:
		runners = min(2*t.crew, t.wheel.Len())
		t.shift++
		t.crew = 0
	case late:
		runners = 1
	}
	t.coming += runners
	if look {
		t.look = now + patience
		t.seenTick, t.seenTaken = t.wheel.goal, t.taken
	}
	t.wake = never // the alarm went off
	t.setAlarmLocked(now)
	return runners
}

// run takes due tasks straight from the wheel, one by one, so that each can be
// cancelled until it begins, and none is stuck in a queue behind another.
func (t *Timer[T]) run() {
	self := goroutineID()
	t.mu.Lock()
	t.coming--
	if t.phase == stopped {
		t.mu.Unlock()
		return
	}
	t.running[self] = struct{}{}
	t.crew++
	t.seenTaken++
	shift := t.shift
	t.mu.Unlock()

	defer t.leave(self, shift) // deferred, as a task may end its goroutine
	for value, ok := t.take(shift); ok; value, ok = t.take(shift) {
		t.call(value)
	}
}

func (t *Timer[T]) take(shift uint64) (value T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == stopped || t.shift != shift {
		return value, false
	}
	t.taken++
	return t.wheel.pop()
}

func (t *Timer[T]) call(value T) {
	defer func() {
		if v := recover(); v != nil {
			t.onPanic(v, debug.Stack())
		}
	}()
	t.handle(value)
}

// leave signs a runner off, and sees to it that what is left will be run.
func (t *Timer[T]) leave(self, shift uint64) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, self)
	if t.shift == shift {
		t.crew--
	}
	switch {
	case t.phase != stopped:
		t.setAlarmLocked(now)
		t.settleLocked()
	case len(t.running) == 0:
		close(t.done)
	}
}

// soonerLocked reports whether a timeout at the given instant needs an earlier alarm.
// If so, it first brings the wheel up to date: after a long sleep the timeout would
// else start on a high level and need alarms only to move down.
func (t *Timer[T]) soonerLocked(at, now time.Duration) bool {
	if at >= t.wake {
		return false
	}
	t.wheel.raise(now)
	t.wheel.seek()
	return true
}

// setAlarmLocked sets the alarm to when work has something to do: to the next tick in
// use, or, while the crew has due tasks to run, to the next look after it.
func (t *Timer[T]) setAlarmLocked(now time.Duration) {
	wake := never
	if at, ok := t.wheel.Next(); ok {
		wake = at
		if at <= now && t.crew+t.coming > 0 {
			wake = t.look
		}
	}
	if wake == t.wake {
		return
	}
	t.wake = wake
	if wake == never {
		t.alarm.Stop()
	} else {
		t.alarm.Reset(wake - now)
	}
}

func (t *Timer[T]) now() time.Duration { return time.Since(t.origin) }

// after returns the instant that is delay after now.
func after(now, delay time.Duration) time.Duration {
	if delay <= 0 {
		return 0
	}
	if delay > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + delay
}

// goroutineID returns the number of the calling goroutine. It serves only to refuse
// what would be a deadlock; package runtime offers no other way to recognise the
// caller.
func goroutineID() uint64 {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(line, []byte(" "))
	id, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		panic("BUG: wheel: no goroutine number in " + string(line))
	}
	return id
}

// Timeout is a timeout of a Timer. It is a small value: copies are the same timeout and
// compare equal. It may be kept and used after its end.
type Timeout[T any] struct {
	timer  *Timer[T]
	handle Handle
}

// Cancel takes the timeout back. It reports true only to the one call that did so, and
// then the task never begins; false if the task has begun, or another cancelled it.
func (o Timeout[T]) Cancel() bool {
	if o.timer == nil {
		return false
	}
	o.timer.mu.Lock()
	defer o.timer.mu.Unlock()
	_, ok := o.timer.wheel.Cancel(o.handle)
	if ok {
		o.timer.settleLocked()
	}
	return ok
}

// Reschedule lets the timeout fire after delay from now instead. It reports false, and
// does nothing, if it fired, was cancelled, or its timer is stopped. A timer that
// drains waits for the new deadline.
func (o Timeout[T]) Reschedule(delay time.Duration) bool {
	t := o.timer
	if t == nil {
		return false
	}
	now := t.now()
	at := after(now, delay)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase == stopped {
		return false
	}
	sooner := t.soonerLocked(at, now)
	ok := t.wheel.Reschedule(o.handle, at)
	if sooner {
		t.setAlarmLocked(now)
	}
	return ok
}

// Deadline returns the tick at which the timeout is due: its delay, rounded up. It is
// the zero Time once the timeout has fired or been cancelled.
func (o Timeout[T]) Deadline() time.Time {
	if o.timer == nil {
		return time.Time{}
	}
	o.timer.mu.Lock()
	defer o.timer.mu.Unlock()
	n := o.timer.wheel.find(o.handle)
	if n == nil {
		return time.Time{}
	}
	return o.timer.origin.Add(o.timer.wheel.instant(n.tick))
}

// Value returns what was given to NewTimeout, while the timeout waits: after Stop, the
// tasks that did not run.
func (o Timeout[T]) Value() (value T, ok bool) {
	if o.timer == nil {
		return value, false
	}
	o.timer.mu.Lock()
	defer o.timer.mu.Unlock()
	n := o.timer.wheel.find(o.handle)
	if n == nil {
		return value, false
	}
	return n.value, true
}

// State returns what has become of the timeout.
func (o Timeout[T]) State() State {
	if o.timer == nil {
		return Gone
	}
	o.timer.mu.Lock()
	defer o.timer.mu.Unlock()
	return o.timer.wheel.state(o.handle)
}

// State is what has become of a timeout.
type State uint8

const (
	// Gone is a timeout that fired or was cancelled, and whose place another has taken
	// since: remembering which of the two for as long as somebody may ask would need
	// memory for every timeout that ever was. It is also the state of the zero Timeout.
	Gone State = iota
	// Waiting is a timeout whose task has not begun; if Stop gave it back, it never
	// will.
	Waiting
	// Fired is a timeout whose task has begun.
	Fired
	// Cancelled is a timeout that will never fire.
	Cancelled
)

func (s State) String() string {
	switch s {
	case Gone:
		return "gone"
	case Waiting:
		return "waiting"
	case Fired:
		return "fired"
	case Cancelled:
		return "cancelled"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// state tells how a timeout ended, until its node is used again.
func (w *Wheel[T]) state(h Handle) State {
	switch {
	case w.find(h) != nil:
		return Waiting
	case h.index == 0 || h.index >= w.used:
		return Gone
	}
	n := w.node(h.index)
	switch {
	case n.generation != h.generation+1:
		return Gone
	case n.list == endFired:
		return Fired
	case n.list == endCancelled:
		return Cancelled
	}
	return Gone
}
