//go:build !linux

package alarm

import "errors"

// New returns an error: there is no timerfd.
func New() (Alarm, error) {
	return nil, errors.New("there is no timerfd on this system")
}
