package scheduler

import (
	"context"
	"time"
)

// InMemory returns how many calls the loop holds.
func (s *Scheduler) InMemory() (calls int) {
	s.loop.ask(context.Background(), func(time.Time) { calls = len(s.loop.calls) })
	return calls
}
