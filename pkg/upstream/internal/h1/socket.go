package h1

import (
	"net"
	"sync/atomic"
	"syscall"
)

// A socket is a TCP connection. It notes writes that may have put a byte on the wire, and reads
// without waiting where it is told to.
type socket struct {
	net.Conn
	wrote atomic.Bool // a byte may have left since it was set to false
	poll  bool        // Read returns errNothing instead of waiting

	raw     syscall.RawConn // nil if the platform, or the connection, has none
	receive func(fd uintptr) bool
	into    []byte // of receive
	n       int
	err     error
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: c}
	if c, ok := c.(syscall.Conn); ok && pollable {
		s.raw, _ = c.SyscallConn()
		s.receive = func(fd uintptr) bool {
			s.n, s.err = receive(fd, s.into)
			return true
		}
	}
	return s
}

func (s *socket) Read(p []byte) (int, error) {
	switch {
	case !s.poll:
		return s.Conn.Read(p)
	case s.raw == nil:
		return 0, errNothing
	}
	s.into = p
	if err := s.raw.Read(s.receive); err != nil {
		return 0, err
	}
	return s.n, s.err
}

func (s *socket) Write(p []byte) (int, error) {
	before := s.wrote.Swap(true)
	n, err := s.Conn.Write(p)
	if n == 0 && err != nil && !before {
		s.wrote.Store(false)
	}
	return n, err
}

// abort ends reads and writes, without a farewell of TLS.
func (s *socket) abort() { s.Conn.Close() }

// errNothing is the error of a read that would wait. TLS goes on after a temporary error.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "no byte has come" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }
