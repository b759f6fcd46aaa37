package alarm

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A timerfd is an alarm by the kernel's timer (timerfd_create(2)), to which the poller
// listens as to a socket, without rounding.
type timerfd struct {
	fd    int // of file, whose Fd method would make it blocking
	file  *os.File
	ring  chan struct{}
	ended chan struct{}
}

// New returns an alarm by the kernel's timer.
func New() (Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	t := &timerfd{fd: fd, file: os.NewFile(uintptr(fd), "timerfd"), ring: make(chan struct{}, 1), ended: make(chan struct{})}
	go t.run()
	return t, nil
}

// run passes on each expiry of the timer, until the file is closed.
func (t *timerfd) run() {
	defer close(t.ended)
	var expirations [8]byte
	for {
		if _, err := t.file.Read(expirations[:]); err != nil {
			return
		}
		select {
		case t.ring <- struct{}{}:
		default: // it rings already
		}
	}
}

func (t *timerfd) Set(in time.Duration) {
	// Zero would disarm it. An instant far ahead is no matter of a millisecond: the
	// runtime's timer rings anyway, also if the system call fails.
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(min(max(in, 1), time.Hour)))}
	unix.TimerfdSettime(t.fd, 0, &at, nil)
}

func (t *timerfd) C() <-chan struct{} { return t.ring }

func (t *timerfd) Stop() {
	t.file.Close()
	<-t.ended
}
