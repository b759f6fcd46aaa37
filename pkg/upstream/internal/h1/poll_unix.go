//go:build unix

package h1

import (
	"io"
	"syscall"
)

// pollable is true if a socket can be read without waiting.
const pollable = true

// receive reads the bytes that have come; the error is errNothing if there are none.
func receive(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, errNothing
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}
