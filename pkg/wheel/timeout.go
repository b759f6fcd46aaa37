package wheel

import (
	"fmt"
	"time"
)

// Timeout is a timeout of a Timer. It is a small value: copies are the same timeout and
// compare equal. It may be kept and used after its end.
type Timeout[T any] struct {
	shard  *shard[T]
	handle Handle
}

// Cancel removes the timeout. It reports true for exactly one call, and then the task
// never begins; false if the task has begun or the timeout was cancelled before.
func (o Timeout[T]) Cancel() bool {
	if o.shard == nil {
		return false
	}
	o.shard.mu.Lock()
	defer o.shard.mu.Unlock()
	_, ok := o.shard.wheel.Cancel(o.handle)
	if ok {
		o.shard.timer.release()
		o.shard.endIfDrainedLocked()
	}
	return ok
}

// Reschedule makes the timeout fire after delay, counted from now. It reports false,
// and does nothing, if it fired, was cancelled, or its timer is stopped. A timer that
// drains waits for the new deadline.
func (o Timeout[T]) Reschedule(delay time.Duration) bool {
	s := o.shard
	if s == nil {
		return false
	}
	now := s.timer.now()
	at := after(now, delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return false
	}
	sooner := s.soonerLocked(at, now)
	ok := s.wheel.Reschedule(o.handle, at)
	if sooner {
		s.setAlarmLocked(now)
	}
	return ok
}

// Deadline returns when the timeout is due: its delay, rounded up to a sixteenth of
// Config.Tick. It is the zero Time once the timeout has fired or been cancelled.
func (o Timeout[T]) Deadline() time.Time {
	if o.shard == nil {
		return time.Time{}
	}
	o.shard.mu.Lock()
	defer o.shard.mu.Unlock()
	n := o.shard.wheel.find(o.handle)
	if n == nil {
		return time.Time{}
	}
	return o.shard.timer.origin.Add(o.shard.wheel.instant(n.tick))
}

// Value returns the value given to NewTimeout while the timeout waits. After Stop it
// gives the tasks that did not run.
func (o Timeout[T]) Value() (value T, ok bool) {
	if o.shard == nil {
		return value, false
	}
	o.shard.mu.Lock()
	defer o.shard.mu.Unlock()
	n := o.shard.wheel.find(o.handle)
	if n == nil {
		return value, false
	}
	return n.value, true
}

// State returns the state of the timeout.
func (o Timeout[T]) State() State {
	if o.shard == nil {
		return Gone
	}
	o.shard.mu.Lock()
	defer o.shard.mu.Unlock()
	return o.shard.wheel.state(o.handle)
}

// State is the state of a timeout.
type State uint8

const (
	// Gone is a timeout that fired or was cancelled, and then gave its memory to
	// another: keeping the end of each one would need memory for every timeout that
	// ever was. It is also the state of the zero Timeout.
	Gone State = iota
	// Waiting is a timeout whose task has not begun. If Stop returned it, the task
	// never will.
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

// state returns the state of a timeout; its end is known until its node is used again.
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
