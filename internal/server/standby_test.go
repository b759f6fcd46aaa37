package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// owners are the replicas that have the calls, one after the other.
type owners struct {
	mu      sync.Mutex
	peer    *link.Peer
	changed chan struct{}
}

func (o *owners) Peer() (*link.Peer, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.peer, o.changed
}

func (o *owners) set(p *link.Peer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.peer = p
	close(o.changed)
	o.changed = make(chan struct{})
}

// A passing is a standby whose owners are handlers behind real links.
type passing struct {
	*testing.T
	own    *link.Identity
	owners *owners
	door   *Standby
	url    string
}

func newPassing(t *testing.T) *passing {
	own, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	p := &passing{T: t, own: own, owners: &owners{changed: make(chan struct{})}}
	client := link.NewClient(own, time.Second)
	t.Cleanup(client.Close)
	p.door = &Standby{
		Owner: p.owners, Link: client, Listener: "upstreams.pay.listen", Local: func() http.Handler { return nil }, Room: NewRoom(DataRoom),
		Upstream: "pay", MaxWait: 20 * time.Second, MaxBody: 1 << 20,
	}
	front := httptest.NewServer(p.door)
	t.Cleanup(front.Close)
	p.url = front.URL
	return p
}

// owner starts a replica with a handler, which can be ended before the test is.
func (p *passing) owner(h http.HandlerFunc) (peer *link.Peer, end func()) {
	p.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	own, err := link.NewIdentity()
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		known := func(pin string) bool { return pin == p.own.Pin }
		link.Serve(ctx, l, own, known, Receive(func(string) http.Handler { return h }), 0, slog.New(slog.DiscardHandler))
	}()
	end = sync.OnceFunc(func() { cancel(); <-ended })
	p.Cleanup(end)
	return &link.Peer{Address: l.Addr().String(), Pin: own.Pin}, end
}

// send sends a request to the standby.
func (p *passing) send(method, path, body string, header ...string) answered {
	p.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Error(err)
		return answered{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Error(err)
	}
	return answered{resp.StatusCode, resp.Header, string(text)}
}

// An answered is an answer with its body.
type answered struct {
	status int
	header http.Header
	body   string
}

// TestStandbyPassesOn: a request comes to the owner as it came, and its answer back, also one that comes in parts.
func TestStandbyPassesOn(t *testing.T) {
	p := newPassing(t)
	more := make(chan struct{})
	peer, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.RequestURI != "/a%2fb?x=1&&" || r.Method != "PUT" || string(body) != "a body" || r.Header.Get("X-A") != "1" || r.Header.Get("Connection") != "" {
			t.Errorf("%s %s %v %q", r.Method, r.RequestURI, r.Header, body)
		}
		if wait, err := time.ParseDuration(r.Header.Get("Throttler-Max-Wait")); err != nil || wait <= 19*time.Second || wait > 20*time.Second {
			t.Errorf("it may still wait %v, %v", wait, err)
		}
		w.Header().Set("Throttler-Call", "c1")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "first ")
		http.NewResponseController(w).Flush()
		<-more
		io.WriteString(w, "second")
	})
	p.owners.set(peer)
	time.AfterFunc(50*time.Millisecond, func() { close(more) })
	got := p.send("PUT", "/a%2fb?x=1&&", "a body", "X-A", "1", "Connection", "X-Hop", "X-Hop", "1")
	if got.status != http.StatusTeapot || got.body != "first second" || got.header.Get("Throttler-Call") != "c1" || got.header.Get(link.Taken) != "" {
		t.Errorf("%+v", got)
	}
}

// TestStandbyHeaders: the headers for Throttler go along, also a wrong one, which the owner refuses; of the longest wait goes
// what is left of it. A submitted call may wait longer than max_wait.
func TestStandbyHeaders(t *testing.T) {
	p := newPassing(t)
	got := make(chan http.Header, 1)
	peer, _ := p.owner(func(w http.ResponseWriter, r *http.Request) { got <- r.Header })
	time.AfterFunc(100*time.Millisecond, func() { p.owners.set(peer) })
	p.send("POST", "/", "x", "Prefer", "respond-async", "Throttler-Max-Wait", "10m", "Throttler-Priority", "50", "Throttler-Callback", "shop", "Throttler-Deadline", "2100-01-01T00:00:00Z")
	h := <-got
	if wait, err := time.ParseDuration(h.Get("Throttler-Max-Wait")); err != nil || wait < 9*time.Minute || wait > 10*time.Minute-50*time.Millisecond {
		t.Errorf("it may still wait %v, %v", wait, err)
	}
	if h.Get("Throttler-Priority") != "50" || h.Get("Throttler-Callback") != "shop" || h.Get("Throttler-Deadline") != "2100-01-01T00:00:00Z" {
		t.Errorf("%v", h)
	}
	p.send("POST", "/", "x", "Prefer", "respond-async", "Throttler-Priority", "high")
	if h = <-got; h.Get("Throttler-Priority") != "high" || h.Get("Throttler-Max-Wait") != "" {
		t.Errorf("%v", h)
	}
}

// TestStandbyWaits: a request waits while no replica has the calls, or the one that has them does not take it, no longer
// than it may; its age counts at each replica.
func TestStandbyWaits(t *testing.T) {
	p := newPassing(t)
	refuses := 3
	peer, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
		if refuses--; refuses >= 0 {
			link.NotTaken(w.Header())
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if wait, err := time.ParseDuration(r.Header.Get("Throttler-Max-Wait")); err != nil || wait > 4800*time.Millisecond {
			t.Errorf("it may still wait %v after 250 ms of 5 s, %v", wait, err)
		}
		io.WriteString(w, "taken")
	})
	time.AfterFunc(150*time.Millisecond, func() { p.owners.set(peer) })
	if got := p.send("POST", "/", "x", "Throttler-Max-Wait", "5s"); got.body != "taken" {
		t.Errorf("%+v", got)
	}
	p.owners.set(nil)
	began := time.Now()
	got := p.send("POST", "/", "x", "Throttler-Max-Wait", "100ms")
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"reason":"no_owner"`) || got.header.Get("Throttler-Outcome") != "not_executed" || got.header.Get("Retry-After") == "" {
		t.Errorf("no replica has the calls: %+v", got)
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("it has waited %v, might wait 100 ms", took)
	}
	gone := &link.Peer{Address: "127.0.0.1:1", Pin: p.own.Pin}
	p.owners.set(gone)
	if got := p.send("POST", "/", "x", "Throttler-Max-Wait", "100ms"); !strings.Contains(got.body, `"reason":"no_owner"`) || got.header.Get("Throttler-Outcome") != "not_executed" {
		t.Errorf("the owner cannot be reached: %+v", got)
	}
}

// TestStandbyTellsUnknown: of a request that the owner may have taken, and that has no answer, the outcome is unknown; one
// that is recognised when it comes again goes to the next owner.
func TestStandbyTellsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		door   func(*Standby)
		method string
		path   string
		header []string
		want   string
		first  bool // the configuration of the first owner differs
		second bool
	}{
		{"a call", nil, "POST", "/", nil, "unknown", false, false},
		{"a call whose key goes to the upstream alone", nil, "POST", "/", []string{"Idempotency-Key", "k"}, "unknown", false, false},
		{"a call that is submitted", nil, "POST", "/", []string{"Prefer", "respond-async"}, "unknown", false, false},
		{"a call that is submitted with a key", nil, "POST", "/", []string{"Prefer", "respond-async", "Idempotency-Key", "k"}, "passed on again", false, false},
		{"a call whose answer is replayed", func(s *Standby) { s.Replay = true }, "POST", "/", []string{"Idempotency-Key", "k"}, "passed on again", false, false},
		{"a call whose answer the first owner does not keep", func(s *Standby) { s.Replay = true }, "POST", "/", []string{"Idempotency-Key", "k"}, "unknown", true, false},
		{"a call whose answer the second owner does not keep", func(s *Standby) { s.Replay = true }, "POST", "/", []string{"Idempotency-Key", "k"}, "unknown", false, true},
		{"a call that is submitted with a key where files differ", nil, "POST", "/", []string{"Prefer", "respond-async", "Idempotency-Key", "k"}, "passed on again", true, true},
		{"a GET of the admin API", admin, "GET", "/v1/calls", nil, "passed on again", false, false},
		{"a submission", admin, "POST", "/v1/calls", nil, "unknown", false, false},
		{"a submission with a key", admin, "POST", "/v1/calls", []string{"Idempotency-Key", "k"}, "passed on again", false, false},
		{"a decision", admin, "POST", "/v1/calls/1/resolve", []string{"Idempotency-Key", "k"}, "unknown", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPassing(t)
			if tt.door != nil {
				tt.door(p.door)
			}
			second, _ := p.owner(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the second owner") })
			first, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
				p.owners.set(second)
				panic(http.ErrAbortHandler)
			})
			first.Differs, second.Differs = tt.first, tt.second
			p.owners.set(first)
			got := p.send(tt.method, tt.path, "x", tt.header...)
			again := got.status == http.StatusOK && got.body == "the second owner"
			unknown := got.status == http.StatusGatewayTimeout && strings.Contains(got.body, `"reason":"no_answer"`) &&
				(p.door.Upstream == "" || strings.Contains(got.body, `"outcome":"unknown"`))
			if tt.want == "unknown" && !unknown || tt.want == "passed on again" && !again {
				t.Errorf("%+v, want it %s", got, tt.want)
			}
		})
	}
}

// TestStandbyInDoubt: a request that a replica may have taken is not told as not executed later, when no other one takes it.
func TestStandbyInDoubt(t *testing.T) {
	p := newPassing(t)
	key := []string{"Prefer", "respond-async", "Idempotency-Key", "k", "Throttler-Max-Wait", "200ms"}
	dies, _ := p.owner(func(http.ResponseWriter, *http.Request) {
		p.owners.set(nil)
		panic(http.ErrAbortHandler)
	})
	p.owners.set(dies)
	if got := p.send("POST", "/", "x", key...); !strings.Contains(got.body, `"outcome":"unknown"`) {
		t.Errorf("its owner has died: %+v", got)
	}
	stops, _ := p.owner(func(w http.ResponseWriter, _ *http.Request) { // it has accepted the call, and stops
		link.NotTaken(w.Header())
		w.Header().Set("Throttler-Outcome", "unknown")
		w.WriteHeader(http.StatusGatewayTimeout)
	})
	p.owners.set(stops)
	if got := p.send("POST", "/", "x", key...); !strings.Contains(got.body, `"outcome":"unknown"`) {
		t.Errorf("its owner has accepted it: %+v", got)
	}
	cut, _ := p.owner(func(http.ResponseWriter, *http.Request) {
		p.owners.set(&link.Peer{ID: "without a link"})
		panic(http.ErrAbortHandler)
	})
	p.owners.set(cut)
	if got := p.send("POST", "/", "x", key...); !strings.Contains(got.body, `"outcome":"unknown"`) {
		t.Errorf("its owner has died, and the next one cannot be reached: %+v", got)
	}
}

// admin makes a standby one of the admin API.
func admin(s *Standby) {
	s.Upstream, s.Listener, s.Guard = "", "admin", access.NewGuard(nil)
}

// TestStandbyBecomesOwner: a request that waits is served here when this replica has the calls, whole and with what is left of
// its wait.
func TestStandbyBecomesOwner(t *testing.T) {
	p := newPassing(t)
	var mu sync.Mutex
	var local http.Handler
	p.door.Local = func() http.Handler {
		mu.Lock()
		defer mu.Unlock()
		return local
	}
	time.AfterFunc(100*time.Millisecond, func() {
		mu.Lock()
		local = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", string(body), " ", r.Host != "", " ", r.Header["Throttler-Max-Wait"] != nil)
		})
		mu.Unlock()
		p.owners.set(nil)
	})
	if got := p.send("POST", "/here", "a body"); got.body != "POST /here a body true true" {
		t.Errorf("%+v", got)
	}
}

// TestStandbyRefuses: requests are not passed on twice, nor without a link, nor beyond the bounds.
func TestStandbyRefuses(t *testing.T) {
	p := newPassing(t)
	peer, _ := p.owner(p.door.ServeHTTP) // it has the calls no more
	p.owners.set(peer)
	if got := p.send("POST", "/", "x", "Throttler-Max-Wait", "200ms"); !strings.Contains(got.body, `"reason":"no_owner"`) {
		t.Errorf("in a circle: %+v", got)
	}
	if got := p.send("POST", "/", strings.Repeat("x", 1<<20+1)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d", got.status)
	}
	p.door.Guard = access.NewGuard(&config.Access{}) // to which the caller is a stranger
	p.door.MaxBody = 4 * maxForm
	if got := p.send("POST", "/", strings.Repeat("x", maxForm+1)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of a stranger: %d", got.status)
	}
	p.door.Guard = nil
	p.door.Room.left.Store(8 << 10)
	if got := p.send("POST", "/", strings.Repeat("x", 64<<10)); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "too many large requests") {
		t.Errorf("without room: %+v", got)
	}
	var told []string
	p.door.Passed = func(result string) { told = append(told, result) }
	p.door.Link = nil
	if got := p.send("POST", "/", "x"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "no fleet.listen") {
		t.Errorf("without a link: %+v", got)
	}
	if !slices.Equal(told, []string{"refused"}) {
		t.Errorf("told %v", told)
	}
}

// TestOwnerAgain: a client waits while the calls leave this replica, and come back to it, several times. It gets one answer, that
// of the platform, and its connection lives on.
func TestOwnerAgain(t *testing.T) {
	platform := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }
	var lives []*rig
	next := func() *rig {
		r := newRig(t, scheduler.Upstream{MaxWait: 2 * time.Hour}, Refusal{}, platform)
		if err := r.s.Pause(t.Context(), scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour), Reason: "the call waits"}); err != nil {
			t.Fatal(err)
		}
		lives = append(lives, r)
		return r
	}
	var mu sync.Mutex
	var local http.Handler
	door := &Standby{Owner: &owners{changed: make(chan struct{})}, Room: NewRoom(DataRoom), Upstream: "pay", MaxWait: 2 * time.Hour, MaxBody: 1 << 20, Local: func() http.Handler {
		mu.Lock()
		defer mu.Unlock()
		return local
	}}
	begin := func(r *rig) {
		mu.Lock()
		defer mu.Unlock()
		local = &Data{Scheduler: r.s, Upstream: "pay", Hosts: []string{"x"}, Standby: door}
	}
	first := next()
	begin(first)
	front := serve(t, door, slog.New(slog.DiscardHandler))
	c, err := net.Dial("tcp", front.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	waits := func(u scheduler.UpstreamStatus) bool { return u.Waiting == 1 }
	for range 3 {
		io.WriteString(c, "POST /back HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
		now := lives[len(lives)-1]
		for range 3 {
			now.until(t, "the call waits", waits)
			after := next()
			mu.Lock()
			local = nil
			mu.Unlock()
			now.s.Close()
			begin(after)
			now = after
		}
		now.until(t, "the call waits here again", waits)
		now.until(t, "the call waits here again", waits)
		if err := now.s.Resume(t.Context(), "pay", "", ""); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || string(body) != "/back" || resp.Header.Get("Throttler-Outcome") != "done" {
			t.Fatalf("%d %q, %v, %v", resp.StatusCode, body, resp.Header, err)
		}
		begin(next())
	}
}

// TestStreamAtAStop: an event stream that was passed on ends with the process, whole, and other answers go on.
func TestStreamAtAStop(t *testing.T) {
	p := newPassing(t)
	admin(p.door)
	stopping, stop := context.WithCancel(t.Context())
	p.door.Stopping = stopping
	more := make(chan struct{})
	peer, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		io.WriteString(w, "a part, ")
		w.(http.Flusher).Flush()
		select {
		case <-more:
			io.WriteString(w, "the rest")
		case <-r.Context().Done():
		}
	})
	p.owners.set(peer)
	bodies := make(map[string]*http.Response)
	for _, path := range []string{"/v1/events", "/v1/calls"} {
		resp, err := http.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		part := make([]byte, len("a part, "))
		if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "a part, " {
			t.Fatalf("%s: %q, %v", path, part, err)
		}
		bodies[path] = resp
	}
	stop()
	if text, err := io.ReadAll(bodies["/v1/events"].Body); len(text) > 0 || err != nil {
		t.Errorf("the rest of the stream: %q, %v", text, err)
	}
	close(more)
	if text, err := io.ReadAll(bodies["/v1/calls"].Body); string(text) != "the rest" || err != nil {
		t.Errorf("the other answer: %q, %v", text, err)
	}
}
