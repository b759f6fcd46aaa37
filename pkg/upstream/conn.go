package upstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

var errSurplus = errors.New("bytes came on the connection before a request")

// conn is a connection to an upstream. It counts the writes that may have put a byte on the
// wire, and keeps an answer that no request has asked for from the next request: net/http puts a
// connection back first, and looks for surplus bytes then.
//
// A surplus answer over TLS that comes while the next request is being written cannot be told
// from its answer: records of the handshake come at any time.
type conn struct {
	net.Conn
	writes atomic.Int64

	mu      sync.Mutex
	changed *sync.Cond // reading or closed
	reading bool       // net/http waits for bytes: it has used those that came
	closed  bool
	user    *wire // the request that has the connection; nil if it is idle
	quiet   bool  // no byte may come: the request's first one has not been written
	surplus bool  // bytes came while it was quiet
}

func newConn(c net.Conn) *conn {
	own := &conn{Conn: c}
	own.changed = sync.NewCond(&own.mu)
	return own
}

// take gives the connection to a request, when net/http has used or refused all bytes that came
// before. The bytes of a plain connection, without TLS, are watched until the request is written.
func (c *conn) take(w *wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = w
	for !c.reading && !c.closed {
		c.changed.Wait()
	}
	c.quiet = w.plain
}

// release notes that the connection is idle, unless another request has it already.
func (c *conn) release(w *wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.user == w {
		c.user, c.quiet = nil, w.plain
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.reading = true
	c.changed.Broadcast()
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if n > 0 && c.quiet {
		c.surplus = true
		return 0, errSurplus
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.speak(); err != nil {
		return 0, err
	}
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}

// speak ends the quiet before the first byte of a request, or refuses it. On a closed connection
// no write is counted, not even until it has failed.
func (c *conn) speak() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quiet = false
	switch {
	case c.surplus:
		return errSurplus
	case c.closed:
		return net.ErrClosed
	}
	return nil
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Conn.Close()
}
