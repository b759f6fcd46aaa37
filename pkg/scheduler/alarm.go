package scheduler

import "time"

// An alarm wakes the loop at an instant. It may ring once more for an earlier setting.
type alarm interface {
	set(in time.Duration)
	rings() <-chan time.Time
	stop()
}

// newAlarm returns a precise alarm if that is asked for and the system has one.
func newAlarm(s *Scheduler) alarm {
	if s.precise {
		a, err := newPreciseAlarm()
		if err == nil {
			return a
		}
		s.log.Info("slots may fire up to a millisecond late", "reason", err)
	}
	return runtimeAlarm{time.NewTimer(time.Hour)}
}

// A runtimeAlarm is a timer of the runtime: up to a millisecond late in an idle
// process, since its poller rounds up.
type runtimeAlarm struct{ *time.Timer }

func (a runtimeAlarm) set(in time.Duration)    { a.Reset(in) }
func (a runtimeAlarm) rings() <-chan time.Time { return a.C }
func (a runtimeAlarm) stop()                   { a.Stop() }
