package h1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// host is a server of raw connections: serve has each of them.
func host(t *testing.T, serve func(c net.Conn, in *bufio.Reader)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	return l.Addr().String()
}

// answering answers each request of a connection with the bytes that reply returns for it.
func answering(reply func(r *http.Request) string) func(c net.Conn, in *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			if _, err := io.WriteString(c, reply(r)); err != nil {
				return
			}
		}
	}
}

// client is a pool and the number of connections that it has opened.
type client struct {
	Pool
	address string
	secure  func(net.Conn) (net.Conn, error)
	opened  int
}

func newClient(t *testing.T, address string) *client {
	c := &client{Pool: Pool{MaxIdle: 10, IdleTimeout: time.Minute}, address: address}
	t.Cleanup(c.Close)
	return c
}

func (cl *client) conn(t *testing.T) *Conn {
	t.Helper()
	if c := cl.Take(); c != nil {
		return c
	}
	raw, err := net.Dial("tcp", cl.address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cl.Add(raw, cl.secure)
	if err != nil {
		t.Fatal(err)
	}
	cl.opened++
	return c
}

func request(method, target, body string) *http.Request {
	r, err := http.NewRequest(method, "http://host.test"+target, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return r
}

// get sends a request and reads the whole answer.
func (cl *client) get(t *testing.T, r *http.Request) (status int, body string, p Progress, err error) {
	t.Helper()
	resp, p, err := cl.conn(t).RoundTrip(t.Context(), r, 0)
	if err != nil {
		return 0, "", p, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), p, err
}

// After a whole answer the connection carries the next request, and after another one it does not.
func TestReuse(t *testing.T) {
	for name, tt := range map[string]struct {
		method, reply, body string
		opened              int // of three requests
	}{
		"length":            {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1},
		"no body":           {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 1},
		"204":               {"GET", "HTTP/1.1 204 No Content\r\n\r\n", "", 1},
		"HEAD":              {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "", 1},
		"chunks":            {"POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n", "ok", 1},
		"100":               {"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1},
		"103 and 199":       {"GET", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 199 Any\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1},
		"most interim":      {"GET", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", MaxInterim) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 1},
		"Connection: close": {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", "ok", 3},
		"HTTP/1.0":          {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 3},
		"surplus":           {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nsteal", "ok", 3},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newClient(t, host(t, answering(func(*http.Request) string { return tt.reply })))
			for range 3 {
				before := time.Now()
				status, body, p, err := cl.get(t, request(tt.method, "/", ""))
				if err != nil || status/100 != 2 || body != tt.body {
					t.Fatalf("%d %q, %v; want %q", status, body, err, tt.body)
				}
				if !p.Wrote || p.Written.Before(before) || p.Began.Before(p.Written) {
					t.Errorf("begun %v: %+v", before, p)
				}
			}
			if cl.opened != tt.opened {
				t.Errorf("%d connections for three requests, want %d", cl.opened, tt.opened)
			}
		})
	}
}

// A body that is not read to its end costs the connection.
func TestBodyIsClosedEarly(t *testing.T) {
	cl := newClient(t, host(t, answering(func(*http.Request) string { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" })))
	for range 2 {
		resp, _, err := cl.conn(t).RoundTrip(t.Context(), request("GET", "/", ""), 0)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(resp.Body, make([]byte, 1))
		resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a closed body can be read")
		}
	}
	if cl.opened != 2 {
		t.Errorf("%d connections for two requests, want 2", cl.opened)
	}
}

// An idle connection that the other side has closed, or on which bytes have come, is not taken.
func TestIdleConnectionIsChecked(t *testing.T) {
	idle, after := make(chan func(net.Conn)), make(chan struct{})
	serve := func(c net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		(<-idle)(c)
		after <- struct{}{}
		answering(func(*http.Request) string { return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext" })(c, in)
	}
	plain := host(t, serve)
	cert := httptest.NewTLSServer(nil)
	cert.Close()
	hidden := host(t, func(c net.Conn, _ *bufio.Reader) {
		secured := tls.Server(c, &tls.Config{Certificates: cert.TLS.Certificates})
		serve(secured, bufio.NewReader(secured))
	})
	secure := func(c net.Conn) (net.Conn, error) {
		s := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		return s, s.Handshake()
	}
	for name, tt := range map[string]struct {
		do     func(net.Conn)
		opened int
	}{
		"it is left alone": {func(net.Conn) {}, 1},
		"it is closed":     {func(c net.Conn) { c.Close() }, 2},
		"bytes come":       {func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsteal") }, 2},
	} {
		for kind, address := range map[string]string{"plain": plain, "TLS": hidden} {
			t.Run(name+" "+kind, func(t *testing.T) {
				cl := newClient(t, address)
				if kind == "TLS" {
					cl.secure = secure
				}
				if _, _, _, err := cl.get(t, request("GET", "/", "")); err != nil {
					t.Fatal(err)
				}
				before := cl.idle[0]
				idle <- tt.do
				<-after
				if tt.opened == 2 {
					waitUntilCame(t, cl)
				}
				c := cl.conn(t)
				defer c.Close()
				if cl.opened != tt.opened {
					t.Errorf("%d connections, want %d", cl.opened, tt.opened)
				}
				if closed := errors.Is(before.top.SetDeadline(time.Time{}), net.ErrClosed); closed != (tt.opened == 2) {
					t.Errorf("the first one is closed: %v", closed)
				}
			})
		}
	}
}

// waitUntilCame waits until bytes, or an end, have come on the idle connection: loopback takes
// some microseconds.
func waitUntilCame(t *testing.T, cl *client) {
	t.Helper()
	c := cl.pop()
	for range 10000 {
		if c.check() != nil {
			c.Release()
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nothing has come")
}

// The head of an answer has a bound, as has the number of interim answers.
func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		head string
		want error
	}{
		"a long field":         {"X: " + strings.Repeat("x", MaxHead), errHead},
		"many fields":          {strings.Repeat("X: y\r\n", MaxHead/6), errHead},
		"many interim answers": {"\r\n" + strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", MaxInterim), errInterim},
	} {
		t.Run(name, func(t *testing.T) {
			first := "HTTP/1.1 200 OK\r\n"
			if tt.want == errInterim {
				first = "HTTP/1.1 102 Processing\r\n"
			}
			cl := newClient(t, host(t, answering(func(*http.Request) string { return first + tt.head + "\r\n\r\n" })))
			if _, _, p, err := cl.get(t, request("GET", "/", "")); !errors.Is(err, tt.want) || !p.Wrote {
				t.Errorf("%v, %+v; want %v", err, p, tt.want)
			}
		})
	}
	long := "X: " + strings.Repeat("x", MaxHead-1000) + "\r\n"
	cl := newClient(t, host(t, answering(func(*http.Request) string {
		return "HTTP/1.1 200 OK\r\n" + long + "Content-Length: 300000\r\n\r\n" + strings.Repeat("y", 300000)
	})))
	if _, body, _, err := cl.get(t, request("GET", "/", "")); err != nil || len(body) != 300000 {
		t.Errorf("%d bytes of a body behind a long head: %v", len(body), err)
	}
}

// A long request is written while its answer is read.
func TestLongRequest(t *testing.T) {
	long := strings.Repeat("x", 8<<20)
	t.Run("whole", func(t *testing.T) {
		cl := newClient(t, host(t, answering(func(r *http.Request) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.Method), r.Method)
		})))
		for range 3 {
			if _, body, p, err := cl.get(t, request("POST", "/", long)); err != nil || body != "POST" || !p.Wrote {
				t.Fatalf("%q, %v, %+v", body, err, p)
			}
		}
		if cl.opened != 1 {
			t.Errorf("%d connections, want 1", cl.opened)
		}
	})
	t.Run("answered before it is read", func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		cl := newClient(t, host(t, func(c net.Conn, in *bufio.Reader) {
			in.Peek(1)
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
			<-release
		}))
		for range 2 {
			if status, body, p, err := cl.get(t, request("POST", "/", long)); err != nil || status != 413 || body != "big" || !p.Wrote || !p.Written.IsZero() {
				t.Fatalf("%d %q, %v, %+v", status, body, err, p)
			}
		}
		if cl.opened != 2 {
			t.Errorf("%d connections, want 2", cl.opened)
		}
	})
	t.Run("refused", func(t *testing.T) {
		cl := newClient(t, host(t, func(c net.Conn, in *bufio.Reader) {
			in.Peek(1)
			c.(*net.TCPConn).SetLinger(0) // closes with a reset
		}))
		if _, _, p, err := cl.get(t, request("POST", "/", long)); err == nil || !p.Wrote || !p.Written.IsZero() {
			t.Errorf("%v, %+v", err, p)
		}
	})
}

// The end of a context ends the request, or the body of its answer.
func TestContext(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	cl := newClient(t, host(t, func(c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err == nil && r.URL.Path == "/body" {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
		}
		<-hang
	}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, p, err := cl.conn(t).RoundTrip(ctx, request("GET", "/", ""), 0); !errors.Is(err, context.Canceled) || p.Wrote {
		t.Errorf("a context that has ended: %v, %+v", err, p)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, p, err := cl.conn(t).RoundTrip(ctx, request("GET", "/", ""), 0); err == nil || !p.Wrote {
		t.Errorf("while it waits for an answer: %v, %+v", err, p)
	}
	ctx, cancel = context.WithCancel(t.Context())
	resp, _, err := cl.conn(t).RoundTrip(ctx, request("GET", "/body", ""), 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "ab" {
		t.Errorf("while it reads the body: %q, %v", b, err)
	}
	if _, p, err := cl.conn(t).RoundTrip(t.Context(), request("GET", "/", ""), 10*time.Millisecond); err == nil || !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) || !p.Wrote {
		t.Errorf("the wait for a head: %v, %+v", err, p)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A pool keeps MaxIdle connections for IdleTimeout, and none when it is closed.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{MaxIdle: 2, IdleTimeout: time.Minute}
		add := func() (c *Conn, closed func() bool) {
			here, there := net.Pipe()
			c, err := p.Add(here, nil)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { there.Read(make([]byte, 1)); close(ended) }()
			return c, func() bool {
				synctest.Wait()
				select {
				case <-ended:
					return true
				default:
					return false
				}
			}
		}
		a, aClosed := add()
		b, bClosed := add()
		c, cClosed := add()
		a.Release()
		time.Sleep(20 * time.Second)
		b.Release()
		c.Release()
		if aClosed() || bClosed() || !cClosed() {
			t.Errorf("of two idle connections at most: %v, %v, %v are closed", aClosed(), bClosed(), cClosed())
		}
		time.Sleep(40*time.Second - 1)
		if aClosed() {
			t.Error("it is closed before a minute")
		}
		time.Sleep(time.Nanosecond)
		if !aClosed() || bClosed() {
			t.Errorf("after a minute %v, and before it %v", aClosed(), bClosed())
		}
		if got := p.Take(); got != b {
			t.Error("an idle connection is not taken")
		}
		if p.Take() != nil {
			t.Error("there is another one")
		}
		p.Close()
		b.Release()
		if !bClosed() {
			t.Error("a connection is kept by a pool that is closed")
		}
		d, dClosed := add()
		p.Take()
		d.Release()
		if dClosed() {
			t.Error("a request after Close leaves no idle connection")
		}
		p.Close()
		if !dClosed() {
			t.Error("an idle connection is left by Close")
		}
	})
}

// halfConn writes as it is told.
type halfConn struct {
	net.Conn
	n   int
	err error
}

func (c halfConn) Write([]byte) (int, error) { return c.n, c.err }

// A write counts unless no byte of it left.
func TestWritesCount(t *testing.T) {
	fault := errors.New("a fault")
	for _, tt := range []struct {
		before bool
		n      int
		err    error
		want   bool
	}{{false, 3, nil, true}, {false, 3, fault, true}, {false, 0, fault, false}, {true, 0, fault, true}} {
		s := newSocket(halfConn{n: tt.n, err: tt.err})
		s.wrote.Store(tt.before)
		if n, err := s.Write([]byte("abc")); n != tt.n || err != tt.err || s.wrote.Load() != tt.want {
			t.Errorf("%+v: %v", tt, s.wrote.Load())
		}
	}
}

// The bytes of a request are those of net/http.
func TestBytes(t *testing.T) {
	got := make(chan string, 1)
	cl := newClient(t, host(t, func(c net.Conn, in *bufio.Reader) {
		var all bytes.Buffer
		r, _ := http.ReadRequest(bufio.NewReader(io.TeeReader(in, &all)))
		io.Copy(io.Discard, r.Body)
		got <- all.String()
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}))
	r := request("POST", "/a%2Fb?c=%20", "body")
	r.Header = http.Header{"User-Agent": {""}, "X-Two": {"1", "2"}}
	if _, _, _, err := cl.get(t, r); err != nil {
		t.Fatal(err)
	}
	if b, want := <-got, "POST /a%2Fb?c=%20 HTTP/1.1\r\nHost: host.test\r\nContent-Length: 4\r\nX-Two: 1\r\nX-Two: 2\r\n\r\nbody"; b != want {
		t.Errorf("sent %q, want %q", b, want)
	}
}

// A late connection has been closed by the other side, which still reads: what is written while
// this side closes it.
type late struct {
	net.Conn
	closing, written chan struct{}
}

func (*late) Read([]byte) (int, error)        { return 0, io.EOF }
func (*late) SetReadDeadline(time.Time) error { return nil }

func (l *late) Write(p []byte) (int, error) {
	close(l.written)
	return len(p), io.ErrClosedPipe
}

func (l *late) Close() error {
	close(l.closing)
	<-l.written
	return nil
}

// A lateBody comes when its connection is being closed.
type lateBody struct {
	io.Reader
	closing chan struct{}
}

func (b lateBody) Read(p []byte) (int, error) {
	<-b.closing
	return b.Reader.Read(p)
}

// A long request whose first byte leaves while its connection is closed has left.
func TestLongRequestThatLeavesLate(t *testing.T) {
	l := &late{closing: make(chan struct{}), written: make(chan struct{})}
	p := &Pool{MaxIdle: 1, IdleTimeout: time.Minute}
	c, err := p.Add(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := request("POST", "/", strings.Repeat("x", maxInline+1))
	req.Body = io.NopCloser(lateBody{req.Body, l.closing})
	if _, progress, err := c.RoundTrip(t.Context(), req, 0); err == nil || !progress.Wrote {
		t.Errorf("%v, %+v; want a request that has left", err, progress)
	}
}
