package link_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/link"
)

var quiet = slog.New(slog.DiscardHandler)

func identity(t testing.TB) *link.Identity {
	t.Helper()
	i, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// serve serves a handler for replicas with some pins, until the test ends.
func serve(t testing.TB, h http.HandlerFunc, pins ...string) link.Peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := identity(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- link.Serve(ctx, l, own, func(pin string) bool { return strings.Contains(strings.Join(pins, " "), pin) }, h, 0, quiet)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return link.Peer{Address: l.Addr().String(), Pin: own.Pin}
}

func client(t testing.TB, own *link.Identity) *link.Client {
	c := link.NewClient(own, time.Second)
	t.Cleanup(c.Close)
	return c
}

// TestPassage: a request comes to the handler as it came to the other replica.
func TestPassage(t *testing.T) {
	own := identity(t)
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	peer := serve(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body <- string(text)
		got <- r
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(299) // without a Content-Type
		io.WriteString(w, "the answer")
	}, own.Pin)
	sent := link.Passage{Listener: "upstreams.pay.listen", Target: []byte("//pay/%2f?a=%20b&&\xb8\xb6"), Remote: "192.0.2.1:1234", Local: "192.0.2.2:8081", Names: []string{"SOAPAction"}, Caller: &link.Credential{Name: "eve", Role: "viewer", Via: "socket"}}
	resp, wrote, err := client(t, own).Send(t.Context(), peer, "PURGE", http.Header{"Host": {"pay.example.com"}, "X-Several": {"1", "2"}}, []byte("a body"), sent)
	if err != nil || !wrote {
		t.Fatal(wrote, err)
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(answer) != "the answer" || resp.StatusCode != 299 || resp.Header.Get("X-Answer") != "yes" || !link.WasTaken(resp) {
		t.Errorf("%d %v %q, %v", resp.StatusCode, resp.Header, answer, err)
	}
	if _, typed := resp.Header["Content-Type"]; typed || resp.Header["Date"] != nil {
		t.Errorf("the answer has fields of its own: %v", resp.Header)
	}
	r := <-got
	if agent, has := r.Header["User-Agent"]; has {
		t.Errorf("the request has a User-Agent, %v", agent)
	}
	if text := <-body; text != "a body" || r.Method != "PURGE" || r.Host != "pay.example.com" || r.RequestURI != string(sent.Target) || r.RemoteAddr != sent.Remote || r.TLS != nil || len(r.Header["X-Several"]) != 2 {
		t.Errorf("%q %+v", text, r)
	}
	if local := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String(); local != sent.Local {
		t.Errorf("local address %s", local)
	}
	if p := link.From(r.Context()); p == nil || p.Listener != sent.Listener || !slices.Equal(p.Names, sent.Names) || *p.Caller != *sent.Caller {
		t.Errorf("passage %+v", p)
	}
	if link.From(t.Context()) != nil {
		t.Error("a request that came by no link has a passage")
	}
}

// TestPins: neither side takes one whose key is not in the registry, and nothing is sent to it.
func TestPins(t *testing.T) {
	var served atomic.Int32
	own := identity(t)
	h := func(http.ResponseWriter, *http.Request) { served.Add(1) }
	peer, stranger := serve(t, h, own.Pin), identity(t)
	other := peer
	other.Pin = stranger.Pin
	for name, send := range map[string]func() (*http.Response, bool, error){
		"a stranger": func() (*http.Response, bool, error) {
			return client(t, stranger).Send(t.Context(), peer, "GET", nil, nil, link.Passage{Target: []byte("/")})
		},
		"an impostor": func() (*http.Response, bool, error) {
			return client(t, own).Send(t.Context(), other, "GET", nil, nil, link.Passage{Target: []byte("/")})
		},
	} {
		if _, _, err := send(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	plain := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	if resp, err := plain.Get("http://" + peer.Address); err == nil && resp.StatusCode < 400 {
		t.Error("plain HTTP is answered")
	}
	if served.Load() > 0 {
		t.Error("a request of a stranger was served")
	}
}

// TestSent: after an error it is known whether the request may have been taken.
func TestSent(t *testing.T) {
	own := identity(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	if _, sent, err := client(t, own).Send(t.Context(), link.Peer{Address: nobody.Addr().String(), Pin: own.Pin}, "POST", nil, []byte("x"), link.Passage{Target: []byte("/")}); sent || err == nil {
		t.Errorf("to a replica that is gone: sent %v, %v", sent, err)
	}
	peer := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, own.Pin)
	if _, sent, err := client(t, own).Send(t.Context(), peer, "POST", nil, []byte("x"), link.Passage{Target: []byte("/")}); !sent || err == nil {
		t.Errorf("to a replica that dies: sent %v, %v", sent, err)
	}
}

// TestSilence: a replica that is frozen, or whose network is, is given up.
func TestSilence(t *testing.T) {
	own, frozen := identity(t), make(chan struct{})
	peer := serve(t, func(w http.ResponseWriter, r *http.Request) { <-frozen }, own.Pin)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	defer close(frozen)
	came := make(chan struct{})
	go func() { // passes on what the client sends, and of the answers the first ones
		in, err := front.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.Dial("tcp", peer.Address)
		if err != nil {
			return
		}
		defer out.Close()
		go io.Copy(out, in)
		go func() {
			<-came
			out.SetReadDeadline(time.Now())
		}()
		io.Copy(in, out)
		<-frozen
	}()
	c := link.NewClient(own, 100*time.Millisecond)
	defer c.Close()
	time.AfterFunc(500*time.Millisecond, func() { close(came) })
	began := time.Now()
	if _, sent, err := c.Send(t.Context(), link.Peer{Address: front.Addr().String(), Pin: peer.Pin}, "POST", nil, []byte("x"), link.Passage{Target: []byte("/")}); !sent || err == nil {
		t.Errorf("sent %v, %v", sent, err)
	}
	if time.Since(began) < 500*time.Millisecond {
		t.Error("a replica that answered pings was given up")
	}
}

func Example() {
	one, _ := link.NewIdentity()
	two, _ := link.NewIdentity()
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		known := func(pin string) bool { return pin == one.Pin }
		link.Serve(ctx, listener, two, known, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s of %s, at %s", r.RequestURI, r.RemoteAddr, link.From(r.Context()).Listener)
		}), time.Second, quiet)
	}()
	c := link.NewClient(one, time.Second)
	resp, _, err := c.Send(ctx, link.Peer{Address: listener.Addr().String(), Pin: two.Pin}, "GET", nil, nil, link.Passage{Listener: "admin", Target: []byte("/v1/calls"), Remote: "192.0.2.1:5555"})
	if err != nil {
		fmt.Println(err)
		return
	}
	io.Copy(Stdout{}, resp.Body)
	resp.Body.Close()
	c.Close()
	stop()
	<-ended
	// Output: /v1/calls of 192.0.2.1:5555, at admin
}

// Stdout writes to the standard output as it is at the time.
type Stdout struct{}

func (Stdout) Write(p []byte) (int, error) { return fmt.Print(string(p)) }

// A counted listener counts its connections.
type counted struct {
	net.Listener
	accepted atomic.Int32
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// herd sends 50 requests together to a replica, and calls begun when all of them look for a connection. It returns how many
// have failed.
func herd(t *testing.T, own *link.Identity, to link.Peer, begun func()) (failed int32) {
	const requests = 50
	var looking, lost atomic.Int32
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(string) {
		if looking.Add(1) == requests {
			begun()
		}
	}})
	c := client(t, own)
	var sending sync.WaitGroup
	for range requests {
		sending.Go(func() {
			resp, _, err := c.Send(ctx, to, "POST", nil, []byte("x"), link.Passage{Target: []byte("/")})
			if err != nil {
				lost.Add(1)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	sending.Wait()
	return lost.Load()
}

// TestHerd: requests that come together have one connection.
func TestHerd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own, other, at := identity(t), identity(t), &counted{Listener: l}
	ctx, cancel := context.WithCancel(t.Context())
	all, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		known := func(string) bool { <-all; return true } // handshakes wait
		link.Serve(ctx, at, other, known, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "an answer") }), 0, quiet)
	}()
	failed := herd(t, own, link.Peer{Address: l.Addr().String(), Pin: other.Pin}, func() { close(all) })
	cancel()
	<-ended
	if n := at.accepted.Load(); failed > 0 || n != 1 {
		t.Errorf("%d requests have failed, over %d connections", failed, n)
	}
}

// TestHerdFails: requests that wait for a connection together fail together, and not one after the other.
func TestHerdFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, at, all := identity(t), &counted{Listener: l}, make(chan struct{})
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			go func() {
				<-all
				c.Close()
			}()
		}
	}()
	if failed := herd(t, own, link.Peer{Address: l.Addr().String(), Pin: own.Pin}, func() { close(all) }); failed != 50 || at.accepted.Load() != 1 {
		t.Errorf("%d of 50 requests have failed, over %d connections", failed, at.accepted.Load())
	}
}

// TestAnswerThatWaits: of an answer whose client does not read it a replica takes a part. One that is read comes whole.
func TestAnswerThatWaits(t *testing.T) {
	own := identity(t)
	const size = 8 << 20
	wrote := make(chan int, 1)
	peer := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/unread" {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		}
		n := 0
		for chunk := make([]byte, 16<<10); n < size; {
			m, err := w.Write(chunk)
			if n += m; err != nil {
				break
			}
		}
		wrote <- n
	}, own.Pin)
	c := client(t, own)
	unread, _, err := c.Send(t.Context(), peer, "GET", nil, nil, link.Passage{Target: []byte("/unread")})
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Body.Close()
	if n := <-wrote; n > 256<<10 {
		t.Errorf("%d bytes of an answer are taken that is not read", n)
	}
	for range 4 {
		resp, _, err := c.Send(t.Context(), peer, "GET", nil, nil, link.Passage{Target: []byte("/read")})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n != size || <-wrote != size || err != nil {
			t.Errorf("%d bytes have come, %v", n, err)
		}
	}
}
