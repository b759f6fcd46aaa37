package server

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// restTime is how long a connection rests at least before another one may replace it: a
// request may be on its way.
const restTime = 500 * time.Millisecond

// A Listener holds at most so many connections at a time, so that clients cannot use up
// the files of the process. If there are more, the new one replaces the one that rests
// longest: that has no whole request, head and body, and has sent least lately. If all have
// requests, the new one waits until one of them rests or ends. A server of [New] tells
// which ones rest.
type Listener struct {
	net.Listener

	mu      sync.Mutex
	changed sync.Cond // there may be room for a connection that waits
	most    int
	open    int
	resting list.List // of *conn, the one that rests longest first
	closed  bool
}

// Bound returns a listener with at most so many connections, 1 or more.
func Bound(l net.Listener, most int) *Listener {
	b := &Listener{Listener: l, most: most}
	b.changed.L = &b.mu
	return b
}

// SetMost changes the bound. Connections above it stay until they end, or are replaced.
func (l *Listener) SetMost(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	l.changed.Broadcast()
}

func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.most && !l.closed {
		l.replace()
	}
	if l.closed {
		accepted.Close()
		return nil, net.ErrClosed
	}
	l.open++
	c := &conn{Conn: accepted, of: l}
	l.rest(c)
	return c, nil
}

// replace closes the connection that has rested longest, or waits for a change if none has
// rested for long enough.
func (l *Listener) replace() {
	if oldest := l.resting.Front(); oldest != nil {
		c := oldest.Value.(*conn)
		more := restTime - time.Since(c.since)
		if more <= 0 {
			l.release(c)
			c.Conn.Close()
			return
		}
		defer time.AfterFunc(more, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed.Signal()
		}).Stop()
	}
	l.changed.Wait()
}

// rest counts a connection among those that may be replaced.
func (l *Listener) rest(c *conn) {
	c.since = time.Now()
	if c.place != nil {
		l.resting.MoveToBack(c.place)
	} else {
		c.place = l.resting.PushBack(c)
	}
	l.changed.Signal()
}

func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// release gives up the place of a connection, once.
func (l *Listener) release(c *conn) {
	if !c.gone {
		c.gone = true
		l.open--
		c.wake()
		l.changed.Signal()
	}
}

// A conn is a connection of a [Listener], whose mutex guards its fields.
type conn struct {
	net.Conn
	of    *Listener
	place *list.Element // among those that rest; nil while it has a whole request
	since time.Time     // it rests
	gone  bool          // closed
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.release(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection of the listener beneath.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite lets the server end a connection so that the client gets the last answer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn lets the server look whether the client has left.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (c *conn) wake() {
	if c.place != nil {
		c.of.resting.Remove(c.place)
		c.place = nil
	}
}

// rests notes that a connection has been answered, or has sent a head.
func rests(nc net.Conn) {
	if c, ok := nc.(*conn); ok {
		c.rest()
	}
}

// rest counts a connection as one that has sent something now, but no whole request.
func (c *conn) rest() {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.gone {
		c.of.rest(c)
	}
}

// claim counts a connection as one with a whole request, which is not replaced. It is
// false if the connection was replaced before: the client gets no answer, and must be able
// to send the request again.
func (c *conn) claim() bool {
	if c == nil {
		return true
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.wake()
	return !c.gone
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, nil if it is none of a [Listener].
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}
