package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestUnansweredPermitIsHeldUntilLate(t *testing.T) {
	u := Upstream{Limits: perSecond(1), Late: 5 * sec}
	u.Timeout = 2 * sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: time.Hour}
			}
			return answer{}
		}
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		sameTimes(t, f.at(), 0, 2*sec+5*sec+sec) // time-out, late, window
	})
}

// TestReceiverCountsLater: a receiver that counts an attempt later than Late exceeds its
// limit; its answer and the permits of attempts without an answer show that.
func TestReceiverCountsLater(t *testing.T) {
	var log bytes.Buffer
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: 10 * sec}}, Late: sec}
	u.Timeout, u.Outcomes = 2*sec, []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), serve: func(n int, _ *http.Request) answer {
			switch n {
			case 1:
				return answer{after: time.Hour}
			case 2: // at 13 s; the receiver counted the first at 4 s
				return answer{status: 429}
			}
			return answer{}
		}}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		limits, err := s.Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range limits {
			if l.Unanswered != 1 {
				t.Errorf("limit %s: %d permits of attempts without an answer, want 1", l.Limit, l.Unanswered)
			}
		}
	})
	if !strings.Contains(log.String(), "although its limits had room here") {
		t.Errorf("the log does not tell:\n%s", &log)
	}
}

// A receiver serves HTTP and counts requests. While it stalls it reads nothing:
// written bytes stay in the buffers of its connections, also of connections that the
// client has closed. After the stall it reads and counts all of them.
type receiver struct {
	mu      sync.Mutex
	stalled chan struct{} // closed at the end of the stall; nil if there is none
	arrived []time.Time
}

func (r *receiver) stall(d time.Duration) {
	over := make(chan struct{})
	r.mu.Lock()
	r.stalled = over
	r.mu.Unlock()
	time.Sleep(d)
	close(over)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	r.arrived = append(r.arrived, time.Now())
	r.mu.Unlock()
	time.Sleep(5 * ms)
	io.WriteString(w, "ok")
}

// most returns the largest number of arrivals within a window.
func (r *receiver) most(w time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return most(r.arrived, w)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrived)
}

// slowListener accepts connections from which the receiver does not read while it
// stalls.
type slowListener struct {
	net.Listener
	r *receiver
}

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return slowConn{c, l.r}, nil
}

type slowConn struct {
	net.Conn
	r *receiver
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.r.mu.Lock()
	stalled := c.r.stalled
	c.r.mu.Unlock()
	if stalled != nil { // bytes of a read in progress count as buffered
		<-stalled
	}
	return n, err
}

// stallOnce sends a backlog to a receiver that stalls in the middle of it.
func stallOnce(t *testing.T, u Upstream, r *receiver, calls int, before, stall time.Duration) {
	t.Helper()
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []string
	for i := range calls {
		ids = append(ids, submit(t, s, Request{Method: "POST", Target: fmt.Sprintf("/%d", i), Body: []byte("amount=1")}).ID)
	}
	time.Sleep(before)
	r.stall(stall)
	states := map[State]int{}
	for _, id := range ids {
		states[wait(t, s, id).State]++
	}
	if states[Done]+states[Unknown] != calls || states[Unknown] == 0 {
		t.Errorf("the calls are %v; want those that met the stall unknown, the others done", states)
	}
}

// TestReceiverReadsLate stalls a receiver for 3 s, after which it reads and counts
// all requests, also those that timed out after 1 s. A late of 5 s keeps the limit. A
// late shorter than the stall exceeds it, which shows that the receiver can detect
// the difference.
func TestReceiverReadsLate(t *testing.T) {
	for late, over := range map[time.Duration]bool{5 * sec: false, ms: true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls, perWindow = 60, 10
				r, l := new(receiver), newWire()
				server := &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
				go server.Serve(slowListener{l, r})
				defer server.Close()
				transport := &http.Transport{DialContext: l.dial}
				defer transport.CloseIdleConnections()
				u := Upstream{Limits: []Limit{{Name: "app", Calls: perWindow, Window: sec}}, Late: late}
				u.URL, u.Transport, u.Timeout = "http://api.test", transport, sec
				stallOnce(t, u, r, calls, 500*ms, 3*sec)
				time.Sleep(10 * sec)
				if n := r.count(); n != calls {
					t.Errorf("%d requests were counted, want all %d", n, calls)
				}
				if n := r.most(sec); n > perWindow != over {
					t.Errorf("%d requests were counted within a second, %d may; over should be %v", n, perWindow, over)
				}
			})
		})
	}
}

// TestReceiverReadsLateOnLoopback is the same test on a real network, in less time.
func TestReceiverReadsLateOnLoopback(t *testing.T) {
	const calls, perWindow, window = 60, 10, 200 * ms
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := new(receiver)
	server := &http.Server{Handler: r, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(slowListener{tcp, r}) }()
	defer func() {
		server.Close()
		<-served
	}()
	u := Upstream{Limits: []Limit{{Name: "app", Calls: perWindow, Window: window}}, Late: 2 * sec}
	u.URL, u.Timeout = "http://"+tcp.Addr().String(), 250*ms
	stallOnce(t, u, r, calls, window/2, 600*ms)
	if n := r.most(window); n > perWindow {
		t.Errorf("%d requests were counted within %v, %d may", n, window, perWindow)
	}
	if n := r.count(); n < calls-perWindow {
		t.Errorf("%d requests were counted of %d", n, calls)
	}
}

// A wire is a network in a bubble. Like TCP, and unlike net.Pipe, it keeps written
// bytes until they are read, also after the writer has closed.
type wire struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), done: make(chan struct{})} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	there, back := newBuffer(), newBuffer()
	select {
	case w.conns <- end{in: there, out: back}:
		return end{in: back, out: there}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { w.once.Do(func() { close(w.done) }); return nil }
func (w *wire) Addr() net.Addr { return &net.TCPAddr{} }

// An end is one of the two ends of a connection.
type end struct{ in, out *buffer }

func (e end) Read(b []byte) (int, error)  { return e.in.read(b) }
func (e end) Write(b []byte) (int, error) { return e.out.write(b) }
func (e end) Close() error {
	e.in.shut(true)
	e.out.shut(false)
	return nil
}
func (e end) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (e end) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (e end) SetDeadline(at time.Time) error     { return e.SetReadDeadline(at) }
func (e end) SetReadDeadline(at time.Time) error { e.in.until(at); return nil }
func (e end) SetWriteDeadline(time.Time) error   { return nil }

// A buffer is one direction of a connection.
type buffer struct {
	mu       sync.Mutex
	some     *sync.Cond
	data     bytes.Buffer
	ended    bool // the writer has closed
	gone     bool // the reader has closed
	deadline time.Time
}

func newBuffer() *buffer {
	b := new(buffer)
	b.some = sync.NewCond(&b.mu)
	return b
}

func (b *buffer) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.gone:
			return 0, net.ErrClosed
		case !b.deadline.IsZero() && !time.Now().Before(b.deadline):
			return 0, os.ErrDeadlineExceeded
		case b.data.Len() > 0:
			return b.data.Read(p)
		case b.ended:
			return 0, io.EOF
		}
		b.some.Wait()
	}
}

func (b *buffer) write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.gone {
		return 0, errors.New("connection reset")
	}
	b.some.Broadcast()
	return b.data.Write(p)
}

func (b *buffer) shut(reader bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.ended = b.gone || reader, b.ended || !reader
	b.some.Broadcast()
}

func (b *buffer) until(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = at
	b.some.Broadcast()
	if !at.IsZero() {
		time.AfterFunc(time.Until(at), b.some.Broadcast)
	}
}
