package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

// TestTrace: a transport that is not our own reports the connection, the end of the request and
// the first byte of its answer.
func TestTrace(t *testing.T) {
	w := &wire{life: new(lifetime)}
	w.life.begin(t.Context(), time.Hour)
	defer w.life.end(nil)
	trace := w.trace()
	trace.GetConn("")
	if !w.asked || w.life.Err() != nil {
		t.Errorf("asked is %v, cancelled %v before the first connection", w.asked, w.life.Err())
	}
	before := time.Now()
	w.connected = true
	trace.GetConn("")
	if w.life.cause != errRepeat {
		t.Errorf("a second connection: cancelled %v", w.life.cause)
	}
	if w.wrote() != true || !w.beganAt().IsZero() {
		t.Error("a transport that reports nothing may have written, and no answer has begun")
	}
	trace.WroteRequest(httptrace.WroteRequestInfo{})
	later := time.Now().Add(time.Second)
	if at := w.writtenAt(later); at.Before(before) || at.After(time.Now()) {
		t.Errorf("written at %v", at)
	}
	trace.GotFirstResponseByte()
	if at := w.beganAt(); at.Before(before) {
		t.Errorf("begun at %v", at)
	}
	for n := range h1.MaxInterim + 1 {
		if err := trace.Got1xxResponse(102, nil); (err != nil) != (n == h1.MaxInterim) {
			t.Fatalf("interim answer %d: %v", n+1, err)
		}
	}
	if !w.beganAt().IsZero() {
		t.Error("an interim answer is the answer")
	}
}

// sharedConn returns a connection whose TLS has chosen HTTP/2.
func sharedConn(t *testing.T) net.Conn {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	here, there := net.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() { tls.Server(there, s.TLS).Read(make([]byte, 1)) })
	c := tls.Client(here, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		serving.Wait()
	})
	return c
}

// TestRefusedConnection: a connection that a request must not use is refused before a byte. It is
// closed, unless other requests share it.
func TestRefusedConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		wire *wire
		want error
	}{
		"stale":   {&wire{latest: time.Now().Add(-time.Second)}, errStale},
		"revoked": {&wire{revoked: new(atomic.Bool)}, errRevoked},
		"second":  {&wire{connected: true}, errRepeat},
		"in time": {&wire{latest: time.Now().Add(time.Hour)}, nil},
	} {
		if tt.wire.revoked != nil {
			tt.wire.revoked.Store(true)
		}
		for _, shared := range []bool{false, true} {
			w := &wire{life: new(lifetime), latest: tt.wire.latest, revoked: tt.wire.revoked, connected: tt.wire.connected}
			c, there := net.Pipe()
			if shared {
				c = sharedConn(t)
			}
			before := time.Now()
			w.got(httptrace.GotConnInfo{Conn: c})
			if cancelled := w.life.cause; cancelled != tt.want || w.shared != shared || !tt.wire.connected && w.at.Before(before) {
				t.Errorf("%s, shared is %v: cancelled %v, want %v; taken at %v", name, shared, cancelled, tt.want, w.at)
			}
			c.SetWriteDeadline(time.Now().Add(-time.Second))
			_, err := c.Write([]byte("x"))
			if closed := !errors.Is(err, os.ErrDeadlineExceeded); closed != (tt.want != nil && !shared) {
				t.Errorf("%s, shared is %v: closed is %v (%v)", name, shared, closed, err)
			}
			c.Close()
			there.Close()
		}
	}
}

// TestStaleRequestKeepsTheConnection: a request that is too late leaves its connection to others.
func TestStaleRequestKeepsTheConnection(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL})
	for _, latest := range []time.Time{{}, time.Now().Add(-time.Second), {}} {
		want := Done
		if !latest.IsZero() {
			want = NotExecuted
		}
		if r := do(t, u, &Request{Method: "GET", Target: "/", Latest: latest}); r.Outcome != want {
			t.Errorf("%s (%s), want %s", r.Outcome, r.Reason, want)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestConnectionsOfHTTP2: requests share one connection, which is the one that the first of them
// has opened; an upstream that stops to offer HTTP/2 gets HTTP/1.1.
func TestConnectionsOfHTTP2(t *testing.T) {
	var mu sync.Mutex
	states := make(map[net.Conn]http.ConnState)
	count := func(state http.ConnState, not bool) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range states {
			if (s == state) != not {
				n++
			}
		}
		return n
	}
	until := func(what string, is func() bool) { // sooner than the server gives a silent client up, after 10 s
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: did not come about", what)
			}
		}
	}
	var protocol atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol.Store(r.Proto) }))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states[c] = state
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig})
	own := u.transport.(*transport)
	ask := func(want string) {
		t.Helper()
		if r := do(t, u, &Request{Method: "GET", Target: "/"}); r.Outcome != Done || protocol.Load() != want {
			t.Fatalf("%s (%s) over %v, want %s", r.Outcome, r.Reason, protocol.Load(), want)
		}
	}
	ask("HTTP/2.0")
	ask("HTTP/2.0")
	if n := count(http.StateClosed, true); n != 1 || !own.shared.Load() {
		t.Errorf("%d connections for two requests, want 1", n)
	}
	own.shared.Store(false) // as if another request is the first one, too
	ask("HTTP/2.0")
	until("the connection that is not needed is closed", func() bool { return count(http.StateClosed, false) == 1 })
	if n := count(http.StateClosed, true); n != 1 {
		t.Errorf("%d connections are left, want 1", n)
	}
	u.Close()
	until("the idle connection is closed", func() bool { return count(http.StateClosed, true) == 0 })
	own.security.NextProtos = []string{"http/1.1"}
	ask("HTTP/1.1")
	ask("HTTP/1.1")
	until("one connection is left for requests over HTTP/1.1", func() bool { return count(http.StateClosed, true) == 1 })
	if own.shared.Load() {
		t.Error("requests go over HTTP/2 still")
	}
}
