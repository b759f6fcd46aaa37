package wheel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
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

// grains is the number of ticks of a Timer's wheels in one Config.Tick.
const grains = 16

// maxShards is the largest number of wheels of a Timer. With more, their alarms cost
// more time than less contention saves.
const maxShards = 8

// Config is the configuration of a Timer. The zero value is ready to use.
type Config struct {
	// Tick is the least time between two wake-ups, and so the greatest lateness: a
	// timeout that is due within a tick of others that fired waits until the tick has
	// passed. Deadlines round up to a sixteenth of it. 0 means 1ms. NewTimer panics if
	// it is negative.
	Tick time.Duration

	// MaxPending is the greatest number of waiting timeouts; the next is refused with
	// ErrFull. 0 means that only memory bounds them. NewTimer panics if it is negative.
	MaxPending int

	// Executor decides where tasks run; nil means goroutines of the timer. A call of
	// run runs the due tasks one after another until none is left. Executor must run
	// it, once, elsewhere, and return without waiting for it.
	//
	// It is called when tasks come due while no call of run is active, and again when a
	// task delays others. If no task ended for 1ms, all active calls count as stuck,
	// and Executor is called twice as many times. If some tasks ended and others still
	// wait, it is called once more. So a slow task delays no tick, and other tasks by
	// at most about 2ms; k slow tasks together delay them by 2ms · (1 + log2 k). An
	// executor without room delays them until it has room: Executor is not called again
	// before the last run has begun.
	Executor func(run func())

	// OnPanic is called for each task that panicked, on the goroutine of the task;
	// nil logs an error to the default slog.Logger. Other tasks are not affected.
	OnPanic func(value any, stack []byte)
}

// Timer calls a handler for each timeout, when its delay has passed.
//
// Delays count on the monotonic clock: steps of the wall clock do not matter. On
// Linux that clock stands still while the machine is suspended: after a second of
// suspend all timeouts fire a second later. For an instant of the wall clock, call
// Reschedule after a step or a resume.
//
// All methods may be called concurrently, also by tasks. A timer consists of a few
// wheels, at most one per processor. A goroutine mostly uses the same wheel, and another
// one while that is locked. The first timeout starts the timer, and Stop or Drain must
// end it. The timer wakes up when a timeout is due or moves down a level, and every 1ms
// while due tasks wait; only then does it have goroutines. Timeouts that are ticks apart
// fire in order of their deadlines, unless a slow task or another wheel comes between.
//
// A timer keeps the memory of the most timeouts that have waited at a time, some 32 bytes
// for each and the size of T: after ten million, 320 MB. It is free when neither the timer
// nor a Timeout of it is reachable any more.
type Timer[T any] struct {
	handle     func(T)
	maxPending int64
	execute    func(run func()) // nil: goroutines of the timer
	onPanic    func(value any, stack []byte)
	tick       time.Duration
	grain      time.Duration // tick of the wheels
	origin     time.Time     // instant 0 of the wheels, with its monotonic reading

	goroutines sync.WaitGroup // calls of onAlarm, also those to come; workers, without Config.Executor
	shards     []shard[T]
	pending    atomic.Int64  // counted only if maxPending is set
	unfinished atomic.Int32  // shards that are not stopped, or have workers
	done       chan struct{} // closed when unfinished is 0
}

// NewTimer returns a timer of tasks. It runs nothing before its first timeout.
func NewTimer(cfg Config) *Timer[func()] {
	return NewHandlerTimer(func(task func()) { task() }, cfg)
}

// NewHandlerTimer returns a timer that calls handle with the value of each timeout.
// If T holds no pointer (a number that handle looks up), millions of timeouts cost
// the garbage collector nothing.
func NewHandlerTimer[T any](handle func(T), cfg Config) *Timer[T] {
	return newTimer(handle, cfg, min(maxShards, runtime.GOMAXPROCS(0)))
}

func newTimer[T any](handle func(T), cfg Config, shards int) *Timer[T] {
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
		maxPending: int64(cfg.MaxPending),
		execute:    cfg.Executor,
		onPanic:    cfg.OnPanic,
		origin:     time.Now(),
		tick:       cfg.Tick,
		grain:      max(1, cfg.Tick/grains),
		shards:     make([]shard[T], shards),
		done:       make(chan struct{}),
	}
	for i := range t.shards {
		t.shards[i].timer = t
	}
	t.unfinished.Store(int32(len(t.shards)))
	if t.onPanic == nil {
		t.onPanic = func(value any, stack []byte) {
			slog.Error("wheel: task panicked", "panic", value, "stack", string(stack))
		}
	}
	return t
}

// NewTimeout has value (with NewTimer: a task) handled once, after delay and never
// earlier. A delay of 0 or less is due at once; one beyond the clock's end is due
// there, 292 years from NewTimer. The error is ErrStopped, or wraps ErrFull.
func (t *Timer[T]) NewTimeout(value T, delay time.Duration) (Timeout[T], error) {
	now := t.now()
	at := after(now, delay)
	s := t.lockShard()
	defer s.mu.Unlock()
	if s.phase >= draining {
		return Timeout[T]{}, ErrStopped
	}
	if !t.admit() {
		return Timeout[T]{}, fmt.Errorf("%w: %d pending, MaxPending %d", ErrFull, t.maxPending, t.maxPending)
	}
	if s.phase == fresh {
		s.startLocked()
	}
	return s.insertLocked(at, now, value), nil
}

// lockShard returns a shard with its lock held: that of the calling goroutine, or
// a free one if that is locked.
func (t *Timer[T]) lockShard() *shard[T] {
	own := &t.shards[stackNumber()*uint64(len(t.shards))>>32]
	if own.mu.TryLock() {
		return own
	}
	for i := range t.shards {
		if s := &t.shards[i]; s.mu.TryLock() {
			return s
		}
	}
	own.mu.Lock()
	return own
}

// stackNumber returns a number below 2^32: the hash of the stack's address. It is
// mostly stable within a goroutine and differs between goroutines. Asking the runtime
// for the goroutine or the processor would cost far more.
func stackNumber() uint64 {
	var here byte
	return uint64(uint32(uintptr(unsafe.Pointer(&here))>>13) * 0x9E3779B1)
}

// admit counts a new timeout and reports true if MaxPending leaves room for it.
func (t *Timer[T]) admit() bool {
	if t.maxPending == 0 {
		return true
	}
	for {
		n := t.pending.Load()
		if n >= t.maxPending {
			return false
		}
		if t.pending.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release counts a timeout as ended.
func (t *Timer[T]) release() {
	if t.maxPending != 0 {
		t.pending.Add(-1)
	}
}

// Len returns the number of waiting timeouts, including due ones that have not
// begun. After Stop it counts those that Stop returned.
func (t *Timer[T]) Len() int {
	waiting, _ := t.count()
	return waiting
}

// count returns the numbers of waiting timeouts and of workers.
func (t *Timer[T]) count() (waiting, running int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		waiting += s.lenLocked()
		running += len(s.running)
		s.mu.Unlock()
	}
	return waiting, running
}

// insideTask reports whether the caller is a task of this timer.
func (t *Timer[T]) insideTask() bool {
	self := goroutineID()
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		_, inside := s.running[self]
		s.mu.Unlock()
		if inside {
			return true
		}
	}
	return false
}

// Stop ends the timer at once: from now on no task begins. It returns the timeouts that
// neither fired nor were cancelled, in no order; their Value and Deadline can still be
// read. A timer that was stopped or drained before returns none.
//
// It then waits for the running tasks, and for an Executor that has no room: a run that it
// takes later runs nothing. If ctx ends first, it returns the timeouts with an error, and a
// later Stop or Drain may wait again. From inside a task it does nothing and returns
// ErrInsideTask.
func (t *Timer[T]) Stop(ctx context.Context) ([]Timeout[T], error) {
	if t.insideTask() {
		return nil, ErrInsideTask
	}
	var left []Timeout[T]
	for i := range t.shards {
		left = append(left, t.shards[i].stop()...)
	}
	if !t.wait(ctx) {
		_, running := t.count()
		return left, fmt.Errorf("wheel: Stop: %d tasks still run, or Config.Executor has not returned: %w", running, context.Cause(ctx))
	}
	return left, nil
}

// Drain refuses new timeouts, waits until all have fired or were cancelled and their
// tasks have returned, and ends the timer. If ctx ends first, Drain returns an error
// and the timer goes on draining. If Stop was called before and left timeouts, the
// error wraps ErrStopped. From inside a task Drain does nothing and returns
// ErrInsideTask.
func (t *Timer[T]) Drain(ctx context.Context) error {
	if t.insideTask() {
		return ErrInsideTask
	}
	for i := range t.shards {
		t.shards[i].drain()
	}
	done := t.wait(ctx)
	waiting, running := t.count()
	switch {
	case !done:
		return fmt.Errorf("wheel: Drain: %d timeouts wait, %d tasks run, or Config.Executor has not returned: %w", waiting, running, context.Cause(ctx))
	case waiting > 0:
		return fmt.Errorf("wheel: Drain: %d timeouts will not fire: %w", waiting, ErrStopped)
	}
	return nil
}

// wait waits until a stopped or draining timer has ended, and reports false if ctx
// ended first.
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
	t.goroutines.Wait() // their work is done; they only return
	return true
}

// shardDone is called once by each shard, when it is stopped and has no worker.
func (t *Timer[T]) shardDone() {
	if t.unfinished.Add(-1) == 0 {
		close(t.done)
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
// a call that would deadlock; package runtime offers no other way to recognise the
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
