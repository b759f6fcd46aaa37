package server

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// bounded serves h in a bubble, on a listener with at most so many connections. Dial
// opens one, and returns when nothing moves.
func bounded(t *testing.T, most int, h http.HandlerFunc, test func(l *Listener, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn, 100)}
		l, srv, ended := Bound(p, most), New(h, slog.New(slog.DiscardHandler)), make(chan struct{})
		go func() {
			defer close(ended)
			srv.Serve(l)
		}()
		var opened []net.Conn
		test(l, func() net.Conn {
			here, there := net.Pipe()
			opened = append(opened, here)
			p.conns <- there
			synctest.Wait()
			return here
		})
		srv.Close()
		<-ended
		for _, c := range opened {
			c.Close()
		}
	})
}

// exchange sends a request and reads the whole answer.
func exchange(c net.Conn) error {
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return err
}

// TestPlaceOfAClientThatLeft: a client that leaves while its call is being sent gives up its
// connection at once, and its place on the listener.
func TestPlaceOfAClientThatLeft(t *testing.T) {
	sent, release := make(chan struct{}, 3), make(chan struct{})
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			sent <- struct{}{}
			<-release
		}
	})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := New(&Data{Scheduler: r.s, Upstream: "pay", Log: slog.New(slog.DiscardHandler)}, slog.New(slog.DiscardHandler))
	l := Bound(socket, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		srv.Serve(l)
	}()
	defer func() {
		srv.Close()
		close(release) // the server waits for its handlers
		<-ended
	}()
	for range 3 {
		c, err := net.Dial("tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, "GET /hangs HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-sent
		c.(*net.TCPConn).CloseWrite()
		if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 504 ") || !strings.HasSuffix(string(answer), "}\n") {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	c, err := net.Dial("tcp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := exchange(c); err != nil {
		t.Errorf("a client after three that have left: %v", err)
	}
}

// readAll is a handler that reads the body.
func readAll(w http.ResponseWriter, r *http.Request) {
	if _, release, err := readBody(w, r, 1<<20, func(int64) (func(), error) { return func() {}, nil }); err == nil {
		release()
	}
}

// TestRestingConnectionsAreReplaced: neither idle sockets nor half heads, nor clients
// that keep their connections, shut others out. The one that rests longest goes, when it
// has rested for a while.
func TestRestingConnectionsAreReplaced(t *testing.T) {
	bounded(t, 3, readAll, func(l *Listener, dial func() net.Conn) {
		idle, half, kept := dial(), dial(), dial()
		gone := func(name string, c net.Conn) {
			t.Helper()
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: %v, want EOF", name, err)
			}
		}
		answered := func(name string, c net.Conn, after time.Duration) {
			t.Helper()
			began := time.Now()
			if err := exchange(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took != after {
				t.Errorf("%s was answered after %v, want %v", name, took, after)
			}
			synctest.Wait()
		}
		io.WriteString(half, "GET / HTTP/1.1\r\nHost: local")
		time.Sleep(restTime / 2)
		answered("a client that keeps its connection", kept, 0)
		answered("a client beside three others", dial(), restTime/2)
		gone("an idle socket", idle)
		answered("a client after it", dial(), 0)
		gone("half a head", half)
		answered("a client beside three that rest since they were answered", dial(), restTime/2)
		gone("a connection that was kept", kept)

		slow := dial()
		io.WriteString(slow, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\nhalf")
		time.Sleep(restTime)
		for range 3 {
			answered("a client beside half a body", dial(), 0)
		}
		gone("half a body", slow)
	})
}

// TestConnectionsWithRequestsStay: a connection with a request is never replaced, and
// further ones wait.
func TestConnectionsWithRequestsStay(t *testing.T) {
	var now atomic.Int64
	var answer chan struct{}
	h := func(http.ResponseWriter, *http.Request) {
		now.Add(1)
		<-answer
	}
	bounded(t, 3, h, func(l *Listener, dial func() net.Conn) {
		answer = make(chan struct{}) // of the bubble
		var clients sync.WaitGroup
		for range 7 {
			c := dial()
			clients.Go(func() {
				if err := exchange(c); err != nil {
					t.Errorf("a client was not answered: %v", err)
				}
			})
		}
		serves := func(want int64) {
			t.Helper()
			time.Sleep(10 * restTime)
			if n := now.Load(); n != want {
				t.Errorf("%d requests are being served, want %d", n, want)
			}
		}
		serves(3)
		l.SetMost(5)
		serves(5)
		close(answer)
		clients.Wait()
	})
}

// TestListenerEndsWhileOneWaits: a connection that waits for a place does not hold up the
// end of the server: the bubble would be deadlocked.
func TestListenerEndsWhileOneWaits(t *testing.T) {
	began := 0
	h := func(_ http.ResponseWriter, r *http.Request) {
		began++
		<-r.Context().Done()
	}
	bounded(t, 1, h, func(l *Listener, dial func() net.Conn) {
		io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		dial()
	})
	if began != 1 {
		t.Errorf("%d requests began, want 1", began)
	}
}

// TestReplacedRequestIsNotServed: the client of a connection that is replaced gets no
// answer, so its request must do nothing.
func TestReplacedRequestIsNotServed(t *testing.T) {
	for name, body := range map[string]string{"a head": "", "a body": "x"} {
		served := 0
		h := claimHandler{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			readAll(w, r)
			served++
		})}
		c := &conn{of: Bound(nil, 1)}
		request := func() *http.Request {
			r := httptest.NewRequest("POST", "/", strings.NewReader(body))
			return r.WithContext(withConn(r.Context(), c))
		}
		h.ServeHTTP(httptest.NewRecorder(), request())
		c.gone = true
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler || served != 1 {
					t.Errorf("%s: %d requests were served, want 1, and the other one aborted", name, served)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), request())
		}()
	}
}
