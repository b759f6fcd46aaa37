// Package alarm wakes a goroutine at an instant by a timer of the operating system.
//
// A timer of the runtime is up to a millisecond late in an idle process, since its
// poller rounds up; a timerfd is some 0.05 ms late. In a busy process the runtime's timer
// is the sooner one, since the poller, by which an alarm comes, is looked at last: so
// both are set.
package alarm

import "time"

// An Alarm rings at one instant. It may ring once more for an earlier setting.
type Alarm interface {
	// Set has the alarm ring after a duration, and not at any instant set before.
	Set(in time.Duration)
	// C is where it rings.
	C() <-chan struct{}
	// Stop ends the alarm, and returns when its goroutine has ended.
	Stop()
}

// Silent is an alarm that never rings.
type Silent struct{}

func (Silent) Set(time.Duration)  {}
func (Silent) C() <-chan struct{} { return nil }
func (Silent) Stop()              {}
