//go:build !unix

package http1

import "syscall"

// left cannot tell on this system: a client's leaving is seen when it is answered.
func left(syscall.RawConn) bool { return false }
