package wheel

import (
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// patience is how long due tasks wait for those ahead of them before more goroutines
// join in.
const patience = time.Millisecond

// never is an instant at which nothing has to be done.
const never = time.Duration(math.MaxInt64)

// budget is how many timeouts move down a level under one lock: some 10µs.
const budget = 256

// shard is a wheel of a Timer, with the alarm that advances it. Shards know nothing of
// each other, so that processors that schedule and cancel at the same time share no
// lock.
type shard[T any] struct {
	timer  *Timer[T]
	runner func() // s.run, bound once: starting one allocates no closure

	// mu guards all below. It is held for a few operations on the wheel, never while a
	// task, Executor or OnPanic runs.
	mu    sync.Mutex
	phase phase
	wheel *Wheel[T]     // nil before the first timeout
	alarm *time.Timer   // calls work on a goroutine of its own; nil before the first timeout
	wake  time.Duration // when alarm goes off
	fired time.Duration // when it last went off for timeouts that were due

	// Runners are the calls of run. The crew is those that take tasks: one that was
	// counted out, because it was stuck, ends with its present task.
	running map[uint64]struct{} // goroutines of all runners
	crew    int
	coming  int    // handed to execute, not yet begun
	shift   uint64 // counts the crews, so that a runner knows when it was counted out
	taken   uint64 // steps of take: how far the crew has come

	// When work looks after the crew next, and what it saw when it last did. In
	// between, seenTaken grows by one for each runner that begins: its first task is no
	// sign that any of the tasks before has ended.
	look      time.Duration
	seenTick  uint64
	seenTaken uint64

	_ [64]byte // the next shard is on another cache line
}

type phase uint8

const (
	fresh phase = iota
	started
	draining
	stopped
)

func (s *shard[T]) startLocked() {
	s.phase = started
	s.wheel = New[T](s.timer.grain)
	s.fired = -s.timer.tick
	s.wake = never
	s.running = make(map[uint64]struct{})
	s.runner = s.run
	s.timer.goroutines.Add(1)
	s.alarm = time.AfterFunc(never, s.work)
}

// insertLocked adds a timeout to a shard that has started.
func (s *shard[T]) insertLocked(at, now time.Duration, value T) Timeout[T] {
	sooner := s.soonerLocked(at, now)
	h := s.wheel.Insert(at, value)
	if sooner {
		s.setAlarmLocked(now)
	}
	return Timeout[T]{s, h}
}

// lenLocked returns the number of timeouts that wait.
func (s *shard[T]) lenLocked() int {
	if s.wheel == nil {
		return 0
	}
	return s.wheel.Len()
}

// stop ends a shard at once and returns the timeouts that wait.
func (s *shard[T]) stop() (left []Timeout[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return nil
	}
	s.stopLocked()
	if s.wheel == nil {
		return nil
	}
	for _, h := range s.wheel.handles() {
		left = append(left, Timeout[T]{s, h})
	}
	return left
}

// drain lets a shard end when all its timeouts have fired or were cancelled.
func (s *shard[T]) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase < draining {
		s.phase = draining
		s.settleLocked()
	}
}

// stopLocked ends work, and lets no task begin.
func (s *shard[T]) stopLocked() {
	s.phase = stopped
	if s.alarm != nil {
		s.stopAlarm()
	}
	if len(s.running) == 0 {
		s.timer.shardDone()
	}
}

// settleLocked ends a shard that has drained.
func (s *shard[T]) settleLocked() {
	if s.phase == draining && s.lenLocked() == 0 && len(s.running) == 0 {
		s.stopLocked()
	}
}

// work is what the alarm calls. Where there is no Config.Executor, its goroutine becomes
// the first runner: by then the next alarm is set.
func (s *shard[T]) work() {
	defer s.timer.goroutines.Done()
	runners, again := s.tick()
	for again {
		runners, again = s.tick()
	}
	if runners == 0 {
		return
	}
	if execute := s.timer.execute; execute != nil {
		for range runners {
			execute(s.runner)
		}
		return
	}
	for range runners - 1 {
		s.timer.goroutines.Go(s.runner)
	}
	s.run()
}

// tick brings the wheel up to date and returns how many more runners to start, see
// Config.Executor for the rule; and whether it has to be called again, as it holds the
// lock for no more than a step.
func (s *shard[T]) tick() (runners int, again bool) {
	now := s.timer.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return 0, false
	}
	look := now >= s.look
	late := look && s.wheel.seek(budget) == due && s.wheel.now <= s.seenTick
	s.wheel.raise(now)
	found := s.wheel.seek(budget)
	if found == busy {
		return 0, true
	}
	if found == due {
		s.fired = now
	}
	switch {
	case found == idle || s.coming > 0:
	case s.crew == 0:
		runners = 1
	case look && s.taken == s.seenTaken:
		runners = min(2*s.crew, s.wheel.Len())
		s.shift++
		s.crew = 0
	case late:
		runners = 1
	}
	s.coming += runners
	if look {
		s.look = now + patience
		s.seenTick, s.seenTaken = s.wheel.goal, s.taken
	}
	s.wake = never // the alarm went off
	s.setAlarmLocked(now)
	return runners, false
}

// run takes due tasks straight from the wheel, one by one, so that each can be
// cancelled until it begins, and none is stuck in a queue behind another.
func (s *shard[T]) run() {
	self := goroutineID()
	s.mu.Lock()
	s.coming--
	if s.phase == stopped {
		s.mu.Unlock()
		return
	}
	s.running[self] = struct{}{}
	s.crew++
	s.seenTaken++
	shift := s.shift
	s.mu.Unlock()

	defer s.leave(self, shift) // deferred, as a task may end its goroutine
	for value, ok := s.take(shift); ok; value, ok = s.take(shift) {
		s.call(value)
	}
}

// take takes out the next task that is due. The crew also moves timeouts down while none
// is due, in steps between which others get the lock.
func (s *shard[T]) take(shift uint64) (value T, ok bool) {
	for {
		s.mu.Lock()
		if s.phase == stopped || s.shift != shift {
			s.mu.Unlock()
			return value, false
		}
		s.taken++
		found := s.wheel.seek(budget)
		if found == due {
			value = s.wheel.pop()
			s.timer.release()
		}
		if found == busy {
			s.wheel.raise(s.timer.now()) // moving is no reason to be late
		}
		s.mu.Unlock()
		if found != busy {
			return value, found == due
		}
	}
}

func (s *shard[T]) call(value T) {
	defer func() {
		if v := recover(); v != nil {
			s.timer.onPanic(v, debug.Stack())
		}
	}()
	s.timer.handle(value)
}

// leave signs a runner off, and sees to it that what is left will be run.
func (s *shard[T]) leave(self, shift uint64) {
	now := s.timer.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, self)
	if s.shift == shift {
		s.crew--
	}
	switch {
	case s.phase != stopped:
		s.setAlarmLocked(now)
		s.settleLocked()
	case len(s.running) == 0:
		s.timer.shardDone()
	}
}

// soonerLocked reports whether a timeout at the given instant needs an earlier alarm.
// If so, it first brings the wheel up to date: after a long sleep the timeout would
// else start on a high level and need alarms only to move down.
func (s *shard[T]) soonerLocked(at, now time.Duration) bool {
	if at >= s.wake {
		return false
	}
	s.wheel.raise(now)
	s.wheel.seek(budget)
	return true
}

// setAlarmLocked sets the alarm to when work has something to do: to the next instant at
// which the wheel has, or, while the crew has due tasks to run, to the next look after
// it. What is due soon after others waits until a tick has passed since: there is one
// alarm a tick, however many come due.
func (s *shard[T]) setAlarmLocked(now time.Duration) {
	wake := never
	if at, ok := s.wheel.Next(); ok {
		wake = at
		if at > s.wheel.instant(s.wheel.goal) {
			wake = max(at, s.fired+s.timer.tick)
		}
		if wake <= now && s.crew+s.coming > 0 {
			wake = s.look
		}
	}
	if wake == s.wake {
		return
	}
	s.wake = wake
	if wake == never {
		s.stopAlarm()
	} else if !s.alarm.Reset(wake - now) {
		s.timer.goroutines.Add(1) // one more call of work will come
	}
}

func (s *shard[T]) stopAlarm() {
	if s.alarm.Stop() {
		s.timer.goroutines.Done() // a call of work that will not come
	}
}
