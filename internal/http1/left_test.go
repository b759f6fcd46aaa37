//go:build unix

package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// patience is for clients with sockets.
const patience = 20 * time.Second

// TestClientsThatLeave: a client that closes its connection, or its half of it, ends the context
// of its request; one that sends more bytes does not.
func TestClientsThatLeave(t *testing.T) {
	began, left := make(chan struct{}, 10), make(chan string, 10)
	waits := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-r.Context().Done()
		left <- r.URL.Path
	}
	at, detached := listen(t, waits), listen(t, later(waits))
	begin := func(addr, request string) *net.TCPConn {
		c := connect(t, addr)
		io.WriteString(c, request)
		next(t, began, patience)
		return c
	}
	stays := begin(at, "GET /stays HTTP/1.1\r\nHost: a\r\n\r\n")
	io.WriteString(stays, "GET /next")
	for name, leave := range map[string]func(*net.TCPConn){
		"closes":          func(c *net.TCPConn) { c.Close() },
		"closes its half": func(c *net.TCPConn) { c.CloseWrite() },
		"resets": func(c *net.TCPConn) {
			c.SetLinger(0)
			c.Close()
		},
	} {
		for _, request := range []string{"GET", "POST"} {
			for _, addr := range []string{at, detached} {
				leave(begin(addr, request+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"))
				t.Logf("a client that %s", name)
				if path := next(t, left, patience); path != "/" {
					t.Errorf("the client of %s has left", path)
				}
			}
		}
	}
}

// listen serves h on a free port until the test ends, and returns its address.
func listen(t *testing.T, h http.HandlerFunc) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, ended := newServer(h), make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	return l.Addr().String()
}

// connect opens a connection that lives until the test ends.
func connect(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// TestClientThatWaits: it has no buffer, and its connection lives on.
func TestClientThatWaits(t *testing.T) {
	began, release := make(chan *conn), make(chan struct{})
	addr := listen(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- w.(*response).conn
		<-release
	})
	t.Cleanup(func() { close(release) })
	c := connect(t, addr)
	for _, request := range []string{get, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", get} {
		io.WriteString(c, request)
		if waits := next(t, began, patience); waits.in != nil {
			t.Errorf("a client that waits has a buffer of %d bytes", waits.in.Size())
		}
		release <- struct{}{}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 || resp.Close {
			t.Fatal(resp, err)
		}
	}
}

// TestRefusedUpload: a client that sends all of a long body before it reads gets the answer that
// was written before, by the handler or without it.
func TestRefusedUpload(t *testing.T) {
	addr := listen(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	for host, status := range map[string]int{"a": 413, "a/b": 400} {
		c := connect(t, addr)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 16777216\r\n\r\n")
		for range 16 {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != status {
			t.Fatal(resp, err)
		}
	}
}

// TestLeft: a handler learns at once that its client has left, and its context ends then. To ask
// takes no byte of the next request.
func TestLeft(t *testing.T) {
	began, release := make(chan *http.Request), make(chan struct{})
	addr := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- r
		<-release
	})
	t.Cleanup(func() { close(release) })
	c := connect(t, addr)
	io.WriteString(c, get)
	r := next(t, began, patience)
	io.WriteString(c, get)
	if Left(r) || r.Context().Err() != nil {
		t.Error("a client has left that has sent another request")
	}
	release <- struct{}{}
	r = next(t, began, patience)
	if r.Method != http.MethodGet {
		t.Errorf("the next request has the method %s", r.Method)
	}
	c.Close()
	for closed := time.Now(); !Left(r); {
		if time.Since(closed) > patience {
			t.Fatal("a client that closes is still there")
		}
	}
	if r.Context().Err() == nil {
		t.Error("a client has left, and the context goes on")
	}
}

// TestReset: the first look at a connection that was reset sees it.
func TestReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	socket, err := there.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waits, came := make(chan struct{}), make(chan error)
	go func() {
		looks := 0
		came <- socket.Read(func(uintptr) bool { // it is called again when there is something to read
			if looks++; looks == 1 {
				close(waits)
			}
			return looks > 1
		})
	}()
	<-waits
	here.(*net.TCPConn).SetLinger(0)
	here.Close()
	if err := <-came; err != nil || !left(socket) {
		t.Errorf("%v; a client that resets its connection is still there", err)
	}
}

// TestContext: a request has the addresses of its connection, and the context that the server
// gives it. One without a socket, or of another server, has no client that leaves.
func TestContext(t *testing.T) {
	type key struct{}
	var local net.Addr
	var remote string
	var given any
	h := func(_ http.ResponseWriter, r *http.Request) {
		local, _ = r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		remote, given = r.RemoteAddr, r.Context().Value(key{})
		if Left(r) {
			t.Error("a client has left that waits")
		}
	}
	bubble(t, h, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		s.Context = func(ctx context.Context, raw net.Conn) context.Context {
			return context.WithValue(ctx, key{}, raw.LocalAddr())
		}
		c := dial()
		ask(t, c, get)
		if want := c.RemoteAddr(); local != want || given != want {
			t.Errorf("local address %v, context of %v; want %v", local, given, want)
		}
	})
	c := connect(t, listen(t, h))
	ask(t, c, get)
	if remote != c.LocalAddr().String() || local.String() != c.RemoteAddr().String() {
		t.Errorf("the addresses are %s and %v", remote, local)
	}
	if Left(httptest.NewRequest(http.MethodGet, "/", nil)) {
		t.Error("a client has left that is of another server")
	}
}
