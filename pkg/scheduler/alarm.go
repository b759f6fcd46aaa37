package scheduler

import "time"

// An alarm wakes the loop at an instant, besides its timer: that is up to a millisecond
// late in an idle process, since the runtime's poller rounds up. In a busy one the timer
// is the sooner, since the poller, by which the alarm comes, is looked at last. An alarm may
// ring once more for an earlier setting.
type alarm interface {
	set(in time.Duration)
	rings() <-chan struct{}
	stop()
}

// newAlarm returns an alarm if one is asked for and the system has one, else one that
// never rings.
func newAlarm(s *Scheduler) alarm {
	if s.precise {
		a, err := newPreciseAlarm()
		if err == nil {
			return a
		}
		s.log.Info("slots may fire up to a millisecond late", "reason", err)
	}
	return silent{}
}

type silent struct{}

func (silent) set(time.Duration)      {}
func (silent) rings() <-chan struct{} { return nil }
func (silent) stop()                  {}
