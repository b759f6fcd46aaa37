package wheel

import (
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// stallTimeout is the longest that due tasks wait for running ones before more workers
// start.
const stallTimeout = time.Millisecond

// never is the end of time: an alarm set to it is stopped.
const never = time.Duration(math.MaxInt64)

// budget is the number of timeouts moved down a level while the lock is held once: some
// 10µs.
const budget = 256

// shard is a wheel of a Timer, with the alarm that advances it. Shards are
// independent: goroutines that schedule and cancel at the same time on two shards
// share no lock.
type shard[T any] struct {
	timer  *Timer[T]
	worker func() // s.run, bound once, so that starting a worker allocates no closure

	// mu guards the fields below. It is held for a few operations on the wheel, never
	// while a task, Executor or OnPanic runs.
	mu    sync.Mutex
	phase phase
	wheel *Wheel[T]     // nil before the first timeout
	alarm *time.Timer   // calls onAlarm on a goroutine of its own; nil before the first timeout
	wake  time.Duration // when alarm goes off
	fired time.Duration // when it last went off for due timeouts

	// A worker is a call of run. When all workers are stuck, a new generation starts:
	// those of the old one end with their present task.
	running    map[uint64]struct{} // goroutines of the workers of all generations
	handing    int                 // calls of Config.Executor
	workers    int                 // workers of the present generation
	starting   int                 // workers asked for that have not begun
	generation uint64
	taken      uint64 // steps of take: the progress of the present generation

	// When tick checks the workers' progress next, and the state at the last check. In
	// between, checkedTaken grows by one for each worker that begins: its first task
	// does not show that an earlier task has ended.
	nextCheck    time.Duration
	checkedTick  uint64
	checkedTaken uint64

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
	s.worker = s.run
	s.timer.goroutines.Add(1)
	s.alarm = time.AfterFunc(never, s.onAlarm)
}

// insertLocked adds a timeout to a started shard.
func (s *shard[T]) insertLocked(at, now time.Duration, value T) Timeout[T] {
	sooner := s.soonerLocked(at, now)
	h := s.wheel.Insert(at, value)
	if sooner {
		s.setAlarmLocked(now)
	}
	return Timeout[T]{s, h}
}

// lenLocked returns the number of waiting timeouts.
func (s *shard[T]) lenLocked() int {
	if s.wheel == nil {
		return 0
	}
	return s.wheel.Len()
}

// stop ends a shard at once and returns the waiting timeouts.
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

// drain makes a shard end once all its timeouts have fired or were cancelled.
func (s *shard[T]) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase < draining {
		s.phase = draining
		s.endIfDrainedLocked()
	}
}

// stopLocked stops the alarm and lets no further task begin.
func (s *shard[T]) stopLocked() {
	s.phase = stopped
	if s.alarm != nil {
		s.stopAlarm()
	}
	if !s.busyLocked() {
		s.timer.shardDone()
	}
}

// busyLocked reports whether workers run, or are handed to the Executor.
func (s *shard[T]) busyLocked() bool { return len(s.running) > 0 || s.handing > 0 }

// endIfDrainedLocked ends a draining shard without timeouts and workers.
func (s *shard[T]) endIfDrainedLocked() {
	if s.phase == draining && s.lenLocked() == 0 && !s.busyLocked() {
		s.stopLocked()
	}
}

// onAlarm is called by the alarm. Without a Config.Executor its goroutine becomes the
// first worker: by then the next alarm is set.
func (s *shard[T]) onAlarm() {
	defer s.timer.goroutines.Done()
	newWorkers, again := s.tick()
	for again {
		newWorkers, again = s.tick()
	}
	if newWorkers == 0 {
		return
	}
	if execute := s.timer.execute; execute != nil {
		for range newWorkers {
			execute(s.worker)
		}
		s.handedOver()
		return
	}
	for range newWorkers - 1 {
		s.timer.goroutines.Go(s.worker)
	}
	s.run()
}

// handedOver notes that the Executor has taken its workers.
func (s *shard[T]) handedOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handing--
	if s.phase != stopped {
		s.endIfDrainedLocked()
	} else if !s.busyLocked() {
		s.timer.shardDone()
	}
}

// tick advances the wheel and returns the number of workers to start (Config.Executor
// gives the rule). It holds the lock for one step only; again says that there is
// another.
func (s *shard[T]) tick() (newWorkers int, again bool) {
	now := s.timer.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return 0, false
	}
	check := now >= s.nextCheck
	late := check && s.wheel.seek(budget) == due && s.wheel.now <= s.checkedTick
	s.wheel.raise(now)
	found := s.wheel.seek(budget)
	if found == busy {
		return 0, true
	}
	if found == due {
		s.fired = now
	}
	switch {
	case found == idle || s.starting > 0:
	case s.workers == 0:
		newWorkers = 1
	case check && s.taken == s.checkedTaken:
		newWorkers = min(2*s.workers, s.wheel.Len())
		s.generation++
		s.workers = 0
	case late:
		newWorkers = 1
	}
	s.starting += newWorkers
	if newWorkers > 0 && s.timer.execute != nil {
		s.handing++
	}
	if check {
		s.nextCheck = now + stallTimeout
		s.checkedTick, s.checkedTaken = s.wheel.goal, s.taken
	}
	s.wake = never // the alarm went off
	s.setAlarmLocked(now)
	return newWorkers, false
}

// run is a worker. It takes due tasks straight from the wheel, one by one:
// each can be cancelled until it begins, and none is stuck in a queue behind
// another.
func (s *shard[T]) run() {
	self := goroutineID()
	s.mu.Lock()
	s.starting--
	if s.phase == stopped {
		s.mu.Unlock()
		return
	}
	s.running[self] = struct{}{}
	s.workers++
	s.checkedTaken++
	generation := s.generation
	s.mu.Unlock()

	defer s.workerDone(self, generation) // deferred: a task may call runtime.Goexit
	for value, ok := s.take(generation); ok; value, ok = s.take(generation) {
		s.call(value)
	}
}

// take removes the next due task from the wheel. While none is due it moves timeouts
// down, and releases the lock after each step.
func (s *shard[T]) take(generation uint64) (value T, ok bool) {
	for {
		s.mu.Lock()
		if s.phase == stopped || s.generation != generation {
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
			s.wheel.raise(s.timer.now()) // timeouts that came due during the move
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

// workerDone removes a worker, and sets the alarm for the remaining timeouts.
func (s *shard[T]) workerDone(self, generation uint64) {
	now := s.timer.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, self)
	if s.generation == generation {
		s.workers--
	}
	switch {
	case s.phase != stopped:
		s.setAlarmLocked(now)
		s.endIfDrainedLocked()
	case !s.busyLocked():
		s.timer.shardDone()
	}
}

// soonerLocked reports whether a timeout at the given instant needs an earlier alarm.
// If so, it first advances the wheel. Otherwise, after a long sleep, the timeout
// would start on a high level and need alarms only to move down.
func (s *shard[T]) soonerLocked(at, now time.Duration) bool {
	if at >= s.wake {
		return false
	}
	s.wheel.raise(now)
	s.wheel.seek(budget)
	return true
}

// setAlarmLocked sets the alarm to the wheel's next instant, or, while workers run due
// tasks, to the next check of their progress. Timeouts due shortly after others wait
// until a tick has passed: there is at most one alarm per tick.
func (s *shard[T]) setAlarmLocked(now time.Duration) {
	wake := never
	if at, ok := s.wheel.Next(); ok {
		wake = at
		if at > s.wheel.instant(s.wheel.goal) {
			wake = max(at, s.fired+s.timer.tick)
		}
		if wake <= now && s.workers+s.starting > 0 {
			wake = s.nextCheck
		}
	}
	if wake == s.wake {
		return
	}
	s.wake = wake
	if wake == never {
		s.stopAlarm()
	} else if !s.alarm.Reset(wake - now) {
		s.timer.goroutines.Add(1) // one more call of onAlarm will come
	}
}

func (s *shard[T]) stopAlarm() {
	if s.alarm.Stop() {
		s.timer.goroutines.Done() // one call of onAlarm will not come
	}
}
