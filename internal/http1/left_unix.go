//go:build unix

package http1

import "syscall"

// left reports whether the client of a socket has closed the connection, or its half of it, and has
// left no byte to be read.
func left(socket syscall.RawConn) (left bool) {
	err := socket.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch err {
		case nil:
			left = n == 0
		case syscall.EAGAIN, syscall.EINTR:
		default:
			left = true
		}
	})
	return left || err != nil
}
