package http1

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	bufferSize  = 4 << 10                // bytes, of a buffer for reading, and for writing
	writeSize   = 16 << 10               // bytes that a client must take within WriteTimeout
	lingerPause = 500 * time.Millisecond // a client that has been answered may go on sending, with such pauses
	lingerTime  = 30 * time.Second       // so long
)

// coarse is how much too early a deadline that is set again and again may be: to set one costs
// more than to read the clock.
const coarse = time.Second

// A conn is the connection of a client. One goroutine at a time serves it; that of [Server.watch] looks at
// its socket, and a handler may take it over from another one.
type conn struct {
	server  *Server
	raw     net.Conn
	socket  syscall.RawConn // nil if raw is none
	remote  string          // address
	started time.Time

	ctx   context.Context // of its requests: it ends when the client leaves
	leave context.CancelFunc
	state atomic.Int32

	in          *bufio.Reader // nil while nothing is read
	names       []string      // of the fields of the last request; see Names
	answered    int           // requests
	post        bool          // the last one was a POST
	readBy, set time.Time     // the deadline for reading, and the one that raw has
	writes      time.Time     // the deadline for writing was set
	ownDeadline bool          // by the handler, for writing
}

// States of a connection.
const (
	fresh   int32 = iota // before its first request
	idle                 // between two requests
	reading              // the head of a request
	serving              // a handler has a request
	retired              // closed while it was idle
	taken                // by the handler
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{server: s, raw: raw, remote: raw.RemoteAddr().String(), started: time.Now()}
	if socket, ok := raw.(syscall.Conn); ok {
		c.socket, _ = socket.SyscallConn()
	}
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, raw.LocalAddr())
	ctx = context.WithValue(ctx, connKey{}, c)
	if s.Context != nil {
		ctx = s.Context(ctx, raw)
	}
	c.ctx, c.leave = context.WithCancel(ctx)
	return c
}

// serve answers the requests of the connection, one after another, until it ends, or a handler
// leaves a request to [Resume].
func (c *conn) serve() {
	for c.await() {
		req, err := c.request()
		if err != nil {
			c.refuse(err)
			break
		}
		w := c.respond(req)
		if !w.do(func() { c.server.Handler.ServeHTTP(w, req) }) {
			return
		}
		if !c.finish(w) {
			break
		}
	}
	c.close()
}

// resume serves the connection from here on.
func (c *conn) resume(w *response) {
	if c.finish(w) {
		c.serve()
	} else {
		c.close()
	}
}

func (c *conn) close() {
	if c.state.Load() != taken {
		c.raw.Close()
	}
	c.leave()
	c.server.remove(c)
}

// await waits for a request to begin; false if none does.
func (c *conn) await() bool {
	c.attach()
	quiet, begins := fresh, 1
	c.readBy = c.started.Add(c.server.HeaderTimeout)
	if c.answered > 0 {
		quiet, begins = idle, 4 // bytes, as net/http has it
		c.readBy = time.Now().Add(c.server.IdleTimeout)
	}
	c.state.Store(quiet)
	if c.server.stopping() && c.retire() {
		return false
	}
	if early := c.readBy.Sub(c.set); 0 <= early && early < coarse {
		c.readBy = c.set
	}
	start, err := c.in.Peek(begins)
	if err == nil && c.post { // some clients end a POST with an empty line: RFC 9112, 2.2
		c.in.Discard(len(start) - len(bytes.TrimLeft(start, "\r\n")))
		_, err = c.in.Peek(1)
	}
	return c.state.CompareAndSwap(quiet, reading) && err == nil
}

// retire reports whether the connection is to be closed now because the server stops; no request
// of it is served then.
func (c *conn) retire() bool {
	return c.state.CompareAndSwap(idle, retired) ||
		time.Since(c.started) >= newTime && c.state.CompareAndSwap(fresh, retired)
}

// waiting reports whether the client waits for an answer.
func (c *conn) waiting() bool { return c.socket != nil && c.state.Load() == serving }

// Left reports whether the client of a request has closed its connection, or its half of it. The
// context of the request has ended then. It is for the handler, and false for a request of another
// server.
func Left(r *http.Request) bool {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil || c.socket == nil || !left(c.socket) {
		return false
	}
	c.leave()
	return true
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// attach gives the connection a buffer to read with.
func (c *conn) attach() {
	if c.in == nil {
		c.in = readers.Get().(*bufio.Reader)
		c.in.Reset(source{c})
	}
}

// detach gives the buffer back if no byte is in it.
func (c *conn) detach() {
	if c.in.Buffered() > 0 {
		return
	}
	c.in.Reset(nil)
	if c.in.Size() == bufferSize {
		readers.Put(c.in)
	}
	c.in = nil
}

// A source reads for the buffer of a connection.
type source struct{ *conn }

func (s source) Read(p []byte) (int, error) {
	if s.readBy != s.set {
		s.set = s.readBy
		s.raw.SetReadDeadline(s.readBy)
	}
	return s.raw.Read(p)
}

// A sink writes an answer to a connection.
type sink struct{ *conn }

func (s sink) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		if now := time.Now(); !s.ownDeadline && now.Sub(s.writes) >= coarse {
			s.writes = now
			s.raw.SetWriteDeadline(now.Add(s.server.WriteTimeout))
		}
		var m int
		m, err = s.raw.Write(p[n:min(n+writeSize, len(p))])
		n += m
	}
	return n, err
}

// respond begins the answer to a request.
func (c *conn) respond(req *http.Request) *response {
	w := &response{conn: c, req: req, method: req.Method, length: unknown}
	c.post = req.Method == http.MethodPost
	b := &w.body
	if req.Body != http.NoBody {
		b.of, b.from = c, req.Body
		b.ask = req.ProtoAtLeast(1, 1) && expectsContinue(req)
		req.Body = b
	} else {
		b.ended = true
		c.detach()
	}
	c.rest()
	c.state.Store(serving)
	return w
}

// finish ends the answer to a request, unless its handler panicked; false if the connection carries
// no other one.
func (c *conn) finish(w *response) bool {
	if w.failed || !c.state.CompareAndSwap(serving, reading) {
		return false
	}
	again := w.finish()
	c.rest()
	if w.err == nil && !w.body.ended {
		c.linger()
	}
	c.answered++
	return again
}

func (c *conn) rest() {
	if c.server.Rests != nil {
		c.server.Rests(c.raw)
	}
}

// handle does a part of the work of a handler; false if it panicked, with [http.ErrAbortHandler] or
// by mistake.
func (c *conn) handle(work func()) (ok bool) {
	defer func() {
		bug := recover()
		if bug != nil && bug != http.ErrAbortHandler {
			c.server.Log.Error("BUG: a handler panicked", "panic", bug, "stack", string(debug.Stack()))
		}
	}()
	work()
	return true
}

// Detaches reports whether the handler of a request may leave it by [Detach].
func Detaches(w http.ResponseWriter) bool {
	_, ok := w.(*response)
	return ok
}

// Detach lets the handler of a request return before it has answered, or the function of a [Resume]. Nothing else may
// follow in it, and another Resume must. It panics where [Detaches] is false.
func Detach(w http.ResponseWriter) {
	r := w.(*response)
	r.mu.Lock()
	r.detached++
	r.mu.Unlock()
}

// Resume answers a request whose handler has left it by [Detach], or is about to. It is called once for each Detach,
// on a goroutine of its own: when the request is answered it serves the next ones of the connection.
func Resume(w http.ResponseWriter, answer func()) {
	r := w.(*response)
	if r.do(answer) {
		r.conn.resume(r)
	}
}

// linger takes what the client still sends, however much: bytes that nothing reads would reset the
// connection before the client has read the last answer. RFC 9112, 9.6.
func (c *conn) linger() {
	half, ok := c.raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	rest := make([]byte, bufferSize)
	for began := time.Now(); time.Since(began) < lingerTime && !c.server.stopping(); {
		c.raw.SetReadDeadline(time.Now().Add(lingerPause))
		if _, err := c.raw.Read(rest); err != nil {
			return
		}
	}
}
