//go:build !linux

package scheduler

import "errors"

func newPreciseAlarm() (alarm, error) {
	return nil, errors.New("there is no timerfd on this system")
}
