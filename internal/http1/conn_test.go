package http1

import (
	"bufio"
	"net"
	"testing"
	"testing/synctest"
)

// TestBufferOfALongHead: it is not kept for other connections.
func TestBufferOfALongHead(t *testing.T) {
	for range 10 { // the pool may forget it
		c := &conn{in: bufio.NewReaderSize(nil, 2*bufferSize)}
		c.detach()
		if r := readers.Get().(*bufio.Reader); r.Size() != bufferSize {
			t.Fatalf("a connection begins with a buffer of %d bytes", r.Size())
		}
	}
}

// TestConnectionsAreForgotten: a server knows its connections until they have ended.
func TestConnectionsAreForgotten(t *testing.T) {
	bubble(t, nothing, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		ask(t, c, get)
		known := func() int { return len(s.where(func(*conn) bool { return true })) }
		if n := known(); n != 1 {
			t.Errorf("%d connections are known, not the one that is open", n)
		}
		c.Close()
		synctest.Wait()
		if n := known(); n != 0 {
			t.Errorf("%d connections are known that have ended", n)
		}
	})
}

// open is a listener that still has a connection after it was closed.
type open struct{ pipes }

func (open) Close() error { return nil }

// TestConnectionAfterStop: it is closed.
func TestConnectionAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, ended := open{pipes{make(chan net.Conn)}}, newServer(nothing), make(chan error)
		go func() { ended <- s.Serve(l) }()
		synctest.Wait()
		s.Stop()
		here, there := net.Pipe()
		l.conns <- there
		endsAfter(t, here, 0)
		close(l.conns)
		<-ended
	})
}
