package scheduler

import (
	"context"
	"time"
)

// TakeUp does what a process does at its start for the follow-ups that the last one left.
func (s *Scheduler) TakeUp(upstream string) { s.followUps.resume([]string{upstream}) }

// InMemory returns how many calls the loop holds.
func (s *Scheduler) InMemory() (calls int) {
	s.loop.ask(context.Background(), func(time.Time) { calls = len(s.loop.calls) })
	return calls
}
