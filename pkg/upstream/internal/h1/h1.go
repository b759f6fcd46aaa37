// Package h1 sends requests over HTTP/1.1 connections of its own (RFC 9112).
//
// A [Pool] keeps the idle connections to one host. [Pool.Take] takes one of them, [Pool.Add]
// adds a new one, and [Conn.RoundTrip] writes one request and reads the head of its answer, on
// the caller's goroutine. A connection never sends a request twice, and reports which bytes of
// it may have left. net/http parses the answers.
package h1

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// MaxHead bounds the head of an answer, bytes; interim answers included.
const MaxHead = 256 << 10

// MaxInterim bounds the 1xx answers before the answer. Some hosts send one every second of a
// long call.
const MaxInterim = 1000

// bufferSize is the size of the buffer of a connection, and of that of a request, bytes.
const bufferSize = 8 << 10

// maxInline is the size of a body, bytes, that is written before the answer is read: the
// buffers of two sockets hold it. A longer one is written while the answer is read, as the
// upstream may answer before it has read all of it.
const maxInline = 16 << 10

var (
	// ErrSurplus is the error of a connection with bytes that no request has asked for.
	ErrSurplus = errors.New("bytes came on the connection before a request")

	errHead    = fmt.Errorf("the head of the answer is longer than %d bytes", MaxHead)
	errInterim = fmt.Errorf("more than %d interim answers (1xx)", MaxInterim)
)

// A Conn is a connection to an upstream. One goroutine uses it at a time.
type Conn struct {
	pool   *Pool
	top    net.Conn // the socket, or TLS over it
	socket *socket
	abort  func() // of socket
	in     *bufio.Reader
	idle   time.Time // since when it is idle
	bound  int       // bytes that the head of the answer may yet have, below zero: no bound
	one    [1]byte
}

// Progress is how far a request came.
type Progress struct {
	Wrote   bool      // a byte of it may have left
	Written time.Time // its last byte was written; zero if it was not
	Began   time.Time // the first byte of the answer came; zero if none came
}

// Read reads for in. It fails when a head is too long.
func (c *Conn) Read(p []byte) (n int, err error) {
	switch {
	case c.bound == 0:
		return 0, errHead
	case c.bound > 0:
		p = p[:min(len(p), c.bound)]
		n, err = c.top.Read(p)
		c.bound -= n
		return n, err
	}
	return c.top.Read(p)
}

// check returns an error if the other side has closed the idle connection, or has sent bytes
// that no request asked for. It does not wait.
func (c *Conn) check() error {
	if c.in.Buffered() > 0 {
		return ErrSurplus
	}
	c.socket.poll = true
	n, err := c.top.Read(c.one[:])
	c.socket.poll = false
	switch {
	case n > 0:
		return ErrSurplus
	case err == errNothing:
		return nil
	}
	return err
}

// Release gives back a connection that no request has used.
func (c *Conn) Release() { c.pool.put(c) }

// Close closes the connection.
func (c *Conn) Close() error { return c.top.Close() }

// RoundTrip sends a request and returns its answer. The connection goes back to its pool when
// the body of the answer has been read to its end, and is closed if it is closed before, or when
// ctx ends. Wait bounds the time from the end of the request to the head of the answer; zero is
// no bound.
func (c *Conn) RoundTrip(ctx context.Context, req *http.Request, wait time.Duration) (*http.Response, Progress, error) {
	if err := ctx.Err(); err != nil {
		c.Release()
		return nil, Progress{}, err
	}
	e := &exchange{conn: c}
	c.socket.wrote.Store(false)
	e.stop = afterFunc(ctx, c.abort)
	resp, began, err := e.roundTrip(req, wait)
	if err != nil {
		e.end(false) // no byte leaves any more
	}
	p := Progress{Wrote: c.socket.wrote.Load(), Began: began}
	if e.whole.Load() {
		p.Written = e.written
	}
	if err != nil {
		return nil, p, err
	}
	if resp.Body == http.NoBody {
		e.end(true)
		return resp, p, nil
	}
	e.ReadCloser, resp.Body = resp.Body, e
	return resp, p, nil
}

// afterFunc is [context.AfterFunc]. It calls the AfterFunc of a context that has one, which saves
// the context that the other would make.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	}); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}

// An exchange is a request on a connection, and the body of its answer.
type exchange struct {
	io.ReadCloser // of net/http
	conn          *Conn
	stop          func() bool // of the context
	whole         atomic.Bool // the request is written
	written       time.Time   // set before
	last          bool        // the connection carries no other request
	once          sync.Once
	closed        atomic.Bool // the body

	// Of a long request, which is written while its answer is read.
	writing  chan struct{} // closed when it is written, or has failed; nil for a short one
	failed   error         // set before
	mu       sync.Mutex
	answered bool // no read waits for the head any more
}

func (e *exchange) roundTrip(req *http.Request, wait time.Duration) (resp *http.Response, began time.Time, err error) {
	if req.ContentLength <= maxInline {
		if err := e.write(req); err != nil {
			return nil, began, err
		}
		e.expect(wait)
	} else {
		e.writing = make(chan struct{})
		go func() {
			defer close(e.writing)
			if e.failed = e.write(req); e.failed != nil {
				e.expect(lastWords) // an answer that is on its way may tell why
				return
			}
			e.expect(wait)
		}()
	}
	resp, began, err = e.read(req)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answered = true
	if wait > 0 || e.writing != nil {
		e.conn.top.SetReadDeadline(time.Time{})
	}
	if err != nil && e.writing != nil {
		select {
		case <-e.writing:
			err = cmp.Or(e.failed, err)
		default:
		}
	}
	return resp, began, err
}

// lastWords is how long an answer may take to come to a request that could not be written, and
// lastBytes how long a request may still be written when its answer has come to its end: its
// connection carries no other request then.
const (
	lastWords = time.Second
	lastBytes = 50 * time.Millisecond
)

// write writes the request.
func (e *exchange) write(req *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(e.conn.top)
	defer w.Reset(nil)
	err := writeRequest(w, req)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		e.written = time.Now()
		e.whole.Store(true)
	}
	return err
}

// expect bounds the wait for the head of the answer.
func (e *exchange) expect(wait time.Duration) {
	if wait == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.answered {
		e.conn.top.SetReadDeadline(time.Now().Add(wait))
	}
}

// read reads the head of the answer.
func (e *exchange) read(req *http.Request) (resp *http.Response, began time.Time, err error) {
	c := e.conn
	c.bound = MaxHead
	defer func() { c.bound = -1 }()
	for range MaxInterim + 1 {
		if _, err := c.in.Peek(1); err != nil {
			return nil, time.Time{}, err
		}
		began = time.Now()
		names := c.fieldNames()
		if resp, err = http.ReadResponse(c.in, req); err != nil && c.bound == 0 {
			return nil, began, errHead // its last line is cut
		} else if err != nil {
			return nil, began, err
		}
		final := resp.StatusCode < 100 || resp.StatusCode > 199
		if upgrade := resp.StatusCode == http.StatusSwitchingProtocols; final || upgrade {
			e.last = resp.Close || upgrade
			if names != nil {
				resp.Request = req.WithContext(context.WithValue(req.Context(), namesKey{}, names))
			}
			return resp, began, nil
		}
	}
	return nil, time.Time{}, errInterim
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

// Read reads the body of the answer.
func (e *exchange) Read(p []byte) (int, error) {
	if e.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.end(err == io.EOF)
	}
	return n, err
}

// Arrived reports whether n more bytes of the answer can be read without waiting. No other
// method may run meanwhile.
func (e *exchange) Arrived(n int64) bool { return int64(e.conn.in.Buffered()) >= n }

// Close closes the body: the connection too, unless it has been read to its end.
func (e *exchange) Close() error {
	e.closed.Store(true)
	e.end(false)
	return nil
}

// end gives the connection back after a whole answer, if it can carry another request.
func (e *exchange) end(whole bool) {
	e.once.Do(func() {
		c := e.conn
		if whole && e.writing != nil {
			select {
			case <-e.writing:
			case <-time.After(lastBytes):
			}
		}
		if e.stop() && whole && !e.last && e.whole.Load() {
			c.pool.put(c)
			return
		}
		c.socket.abort()
		if e.writing != nil {
			<-e.writing
		}
	})
}
