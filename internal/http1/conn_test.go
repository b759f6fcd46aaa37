package http1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

// TestConnectionsAreForgotten: a server knows its connections until they have ended. Their context
// ends with them.
func TestConnectionsAreForgotten(t *testing.T) {
	var ctx context.Context
	bubble(t, func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
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
		if ctx.Err() == nil {
			t.Error("the context of a connection that has ended goes on")
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

// TestDetach: a request that its handler leaves has no goroutine until it is resumed. Its connection
// lives on, also if the answer comes before the handler returns.
func TestDetach(t *testing.T) {
	var resume chan struct{}
	h := func(w http.ResponseWriter, r *http.Request) {
		if !Detaches(w) {
			t.Error("a handler may not leave its request")
		}
		ended := make(chan struct{})
		Detach(w)
		go func() {
			defer close(ended)
			<-resume
			Resume(w, func() {
				if r.URL.Path == "/cut off" {
					panic(http.ErrAbortHandler)
				}
				io.WriteString(w, r.URL.Path)
			})
		}()
		if r.URL.Path != "/" {
			<-ended
		}
	}
	bubble(t, h, func() { resume = make(chan struct{}) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		for _, path := range []string{"/", "/at once", "/", "/", "/at once"} {
			go io.WriteString(c, "GET "+strings.ReplaceAll(path, " ", "%20")+" HTTP/1.1\r\nHost: a\r\n\r\n")
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			serves := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "http1.(*conn).serve(")
			if want := min(len(path)-1, 1); serves != want {
				t.Errorf("%q: %d goroutines serve the connection, want %d", path, serves, want)
			}
			resume <- struct{}{}
			resp := ask(t, c, "")
			if body, err := io.ReadAll(resp.Body); string(body) != path || err != nil || resp.Close {
				t.Errorf("%q is answered by %q, %v", path, body, err)
			}
			synctest.Wait()
		}
		go io.WriteString(c, "GET /cut%20off HTTP/1.1\r\nHost: a\r\n\r\n")
		resume <- struct{}{}
		endsAfter(t, c, 0)
	})
	if Detaches(nil) {
		t.Error("a handler of another server may leave its request")
	}
}

// TestDetachAgain: a request may be left several times, and each part of the work may end before or after the next ones. It is
// answered once, and its connection lives on.
func TestDetachAgain(t *testing.T) {
	pause := func() { time.Sleep(rand.N(4 * time.Millisecond)) } // virtual time: all orders
	var part func(w http.ResponseWriter, path string, more int)
	part = func(w http.ResponseWriter, path string, more int) {
		if more == 0 {
			io.WriteString(w, path)
			pause()
			return
		}
		go func() {
			pause()
			Resume(w, func() { part(w, path, more-1) })
		}()
		pause()
		Detach(w)
		pause()
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		more, _ := strconv.Atoi(r.URL.Path[1:])
		part(w, r.URL.Path, more)
	}
	bubble(t, h, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		for range 300 {
			path := fmt.Sprint("/", rand.N(4))
			resp := ask(t, c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
			if body, err := io.ReadAll(resp.Body); string(body) != path || err != nil || resp.Close {
				t.Fatalf("%s is answered by %d %q, %v", path, resp.StatusCode, body, err)
			}
		}
	})
}

// TestPanicAfterDetach: the answer goes its way.
func TestPanicAfterDetach(t *testing.T) {
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		later(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answered") })(w, r)
		panic("a fault of the handler")
	}, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		for range 10 {
			resp := ask(t, c, get)
			if body, err := io.ReadAll(resp.Body); string(body) != "answered" || err != nil {
				t.Fatalf("%q, %v", body, err)
			}
		}
	})
}
