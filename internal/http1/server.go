// Package http1 serves HTTP/1.1 (RFC 9112) to clients that may wait long for their answers.
//
// A goroutine serves each connection: it reads a request, calls the handler and writes the answer.
// net/http parses the requests. A handler that waits long may return before the answer ([Detach]):
// then the connection has no goroutine until another one gives the answer ([Resume]). One goroutine
// of the server looks at the sockets of all clients that wait, and ends the context of a request
// whose client has closed its connection, or its half of it.
//
// Left out, because no handler here needs it: interim answers other than 100 Continue, trailers,
// guessing a Content-Type, and other protocols than HTTP/1.
package http1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// watchInterval is the time between two looks at the clients that wait. After a look that took long
// it is watchShare times as long as that, up to watchMost.
const (
	watchInterval = 100 * time.Millisecond
	watchShare    = 50
	watchMost     = time.Second
)

// newTime is how long a connection may be without its first request while the server stops: the
// request may be on its way.
const newTime = 5 * time.Second

// stopInterval is the time between two looks at the connections of a server that stops.
const stopInterval = 50 * time.Millisecond

// A Server serves the connections of one listener. Its fields are set before Serve.
type Server struct {
	Handler       http.Handler  // the context of a request is that of its connection, which may live on
	HeaderTimeout time.Duration // for the first head of a connection, and for each other one once it has begun
	IdleTimeout   time.Duration // for the next head to begin
	WriteTimeout  time.Duration // for the client to take each 16 KiB of an answer
	MaxHeader     int           // bytes of the head of a request, its first line included
	Log           *slog.Logger

	// Context, if not nil, returns the context of a connection's requests.
	Context func(context.Context, net.Conn) context.Context
	// Rests, if not nil, is called when a connection has sent a head, and when it has been
	// answered.
	Rests func(net.Conn)

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	stopped  bool
	ended    chan struct{} // closed when Serve returns
	serving  sync.WaitGroup
}

// Serve serves the connections of a listener. After [Server.Stop] it returns
// [http.ErrServerClosed] when the last of them has ended; the error of a listener it returns at
// once.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin(l) {
		l.Close()
		return http.ErrServerClosed
	}
	defer close(s.ended)
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(over)
	}()
	defer func() {
		close(over)
		<-watched
	}()
	if err := s.accept(l); err != nil {
		return err
	}
	s.serving.Wait()
	return http.ErrServerClosed
}

func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.listener, s.conns, s.ended = l, make(map[*conn]struct{}), make(chan struct{})
	return true
}

// accept serves the connections that come, until the server is stopped; it returns the error of a
// listener that fails.
func (s *Server) accept(l net.Listener) error {
	var pause time.Duration
	for {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			if c := newConn(s, raw); s.add(c) {
				go c.serve()
			} else {
				raw.Close()
			}
		case s.stopping():
			return nil
		case temporary(err): // such as too many open files
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.Log.Warn("accept failed; trying again", "err", err, "in", pause.String())
			time.Sleep(pause)
		default:
			return err
		}
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// add counts a connection among those that are served; false if the server is stopped.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.serving.Done()
}

// watch ends the contexts of requests whose clients have left, until over is closed.
func (s *Server) watch(over <-chan struct{}) {
	next := time.NewTimer(watchInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-over:
			return
		}
		begun := time.Now()
		for _, c := range s.where((*conn).waiting) {
			if left(c.socket) {
				c.leave()
			}
		}
		next.Reset(min(max(watchInterval, watchShare*time.Since(begun)), watchMost))
	}
}

// where returns the connections of which a condition is true.
func (s *Server) where(condition func(*conn) bool) (found []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if condition(c) {
			found = append(found, c)
		}
	}
	return found
}

func (s *Server) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// Stop closes the listener and the idle connections. The others end with their answers. No request
// is served whose first byte comes afterwards, but the first one of a connection.
func (s *Server) Stop() {
	s.mu.Lock()
	if l := s.listener; l != nil && !s.stopped {
		l.Close()
	}
	s.stopped = true
	s.mu.Unlock()
	for _, c := range s.where((*conn).retire) {
		c.raw.Close()
	}
}

// Shutdown stops the server, and returns when its connections have ended, or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Stop()
	ended := s.end()
	if ended == nil { // it has not served
		return nil
	}
	again := time.NewTicker(stopInterval)
	defer again.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
			s.Stop()
		}
	}
}

func (s *Server) end() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Close stops the server and closes all connections; handlers see the end of their context.
func (s *Server) Close() error {
	s.Stop()
	for _, c := range s.where(func(*conn) bool { return true }) {
		c.leave()
		c.raw.Close()
	}
	return nil
}
