package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// dies is an owner that has taken a request, and ends: then another one, or none, is the owner.
func (p *passing) dies(next func() *link.Peer, taken func(r *http.Request)) {
	peer, _ := p.owner(func(_ http.ResponseWriter, r *http.Request) {
		taken(r)
		p.owners.set(next())
		panic(http.ErrAbortHandler)
	})
	p.owners.set(peer)
}

// isUnknown reports whether an answer says that a call may be executed.
func (a answered) isUnknown() bool {
	return a.status == http.StatusGatewayTimeout && strings.Contains(a.body, `"reason":"no_answer"`) && a.header.Get("Throttler-Outcome") != "not_executed"
}

// TestRefusedInDoubt: a request that an owner has taken, and that the next one refuses, is not told as not executed: the
// first owner may have stored its call. The next owner is another replica, or this one.
func TestRefusedInDoubt(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	full := newRig(t, scheduler.Upstream{MaxWaiting: 1}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	if err := full.s.Pause(t.Context(), scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour), Reason: "a call waits"}); err != nil {
		t.Fatal(err)
	}
	if _, err := full.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/"}); err != nil {
		t.Fatal(err)
	}
	const unknown = `{"upstream":"none","method":"POST","target":"/"}`
	operator := access.NewGuard(&config.Access{Anyone: "admin"})
	for name, tt := range map[string]struct {
		next   http.Handler
		door   func(*Standby)
		method string
		path   string
		body   string
		header []string
		told   string // instead of unknown
	}{
		"a submission, where its upstream is not configured": {
			&Data{Scheduler: r.s, Upstream: "none", Hosts: []string{"x"}}, func(*Standby) {},
			"POST", "/", "x", []string{"Prefer", "respond-async", "Idempotency-Key", "k"}, "",
		},
		"a submission, at an owner that is full": {
			&Data{Scheduler: full.s, Upstream: "pay", Hosts: []string{"x"}}, func(*Standby) {},
			"POST", "/", "x", []string{"Prefer", "respond-async", "Idempotency-Key", "k"}, "",
		},
		"a submission by the admin API": {
			newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil), func(s *Standby) { admin(s); s.Guard = operator },
			"POST", "/v1/calls", unknown, []string{"Content-Type", "application/json", "Idempotency-Key", "k"}, "",
		},
		"a question": {
			newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil), func(s *Standby) { admin(s); s.Guard = operator },
			"GET", "/v1/calls/none", "", nil, `"reason":"not_found"`,
		},
	} {
		for _, local := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, local %v", name, local), func(t *testing.T) {
				p := newPassing(t)
				tt.door(p.door)
				next, _ := p.owner(tt.next.ServeHTTP)
				died := false
				p.door.Local = func() http.Handler {
					p.owners.mu.Lock()
					defer p.owners.mu.Unlock()
					if local && died {
						return tt.next
					}
					return nil
				}
				p.dies(func() *link.Peer {
					p.owners.mu.Lock()
					defer p.owners.mu.Unlock()
					died = true
					if local {
						return nil
					}
					return next
				}, func(*http.Request) {})
				got := p.send(tt.method, tt.path, tt.body, tt.header...)
				if tt.told == "" && !got.isUnknown() || tt.told != "" && !strings.Contains(got.body, tt.told) {
					t.Errorf("%d %v %s", got.status, got.header, got.body)
				}
			})
		}
	}
}

// TestEndedInDoubt: an owner that knows the call of a request in doubt, by its key, tells how that has ended.
func TestEndedInDoubt(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, scheduler.Upstream{Concurrency: 1}, Refusal{}, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	if _, err := r.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/first"}); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the first is being sent", func(st scheduler.UpstreamStatus) bool { return st.Sending == 1 })
	p := newPassing(t)
	p.door.Replay = true
	data := &Data{Scheduler: r.s, Upstream: "pay", Replay: true, Hosts: []string{"x"}}
	next, _ := p.owner(data.ServeHTTP)
	p.dies(func() *link.Peer { return next }, func(r *http.Request) {
		r.Header.Set("Prefer", "respond-async")
		w := httptest.NewRecorder()
		if data.ServeHTTP(w, r.WithContext(t.Context())); w.Code != http.StatusAccepted {
			t.Errorf("the first owner: %d %s", w.Code, w.Body)
		}
	})
	got := p.send("POST", "/", "x", "Idempotency-Key", "k", "Throttler-Max-Wait", "500ms")
	if got.header.Get("Throttler-Outcome") != "not_executed" || !strings.Contains(got.body, `"reason":"past_deadline"`) {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}

// TestJoined: a client waits for the call of another one with its key, when the owner stops. The next owner knows that call
// too, if its limits are the same; without one, or with others, nothing tells that it is not executed.
func TestJoined(t *testing.T) {
	p := newPassing(t)
	taken, _ := p.owner(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the answer of the call") })
	differs := *taken
	differs.Differs = true
	for name, next := range map[string]*link.Peer{"alike": taken, "differs": &differs, "none": nil} {
		t.Run(name, func(t *testing.T) {
			p.owners.set(next)
			r := newRig(t, scheduler.Upstream{Durable: "true"}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
			if err := r.s.Pause(t.Context(), scheduler.Pause{Upstream: "pay", Until: time.Now().Add(time.Hour), Reason: "the call waits"}); err != nil {
				t.Fatal(err)
			}
			owner := httptest.NewServer(&Data{Scheduler: r.s, Upstream: "pay", Standby: p.door})
			defer owner.Close()
			if resp, text := send(t, "POST", owner.URL, "x", "Idempotency-Key: k", "Prefer: respond-async"); resp.StatusCode != 202 {
				t.Fatalf("%d %s", resp.StatusCode, text)
			}
			p.url = owner.URL
			repeat := make(chan answered)
			go func() { repeat <- p.send("POST", "", "x", "Idempotency-Key", "k", "Throttler-Max-Wait", "2s") }()
			inStacks(t, "scheduler.(*Scheduler).join(")
			r.s.Close()
			got := <-repeat
			if name == "alike" && got.body != "the answer of the call" || name != "alike" && !got.isUnknown() {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
		})
	}
}

// inStacks waits until a goroutine is in a function.
func inStacks(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 1<<22)
	for begin := time.Now(); !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("no goroutine is in %s", function)
		}
	}
}

// TestLeftByOwner: a request that an owner has left goes on, if another replica would know the call that stands for it there.
func TestLeftByOwner(t *testing.T) {
	for name, tt := range map[string]struct {
		at       stay
		from, to bool // whose limits are others
		none     bool // there is no next owner, but for this replica after a doubt
		again    bool
	}{
		"not taken":                      {stay{}, false, false, false, true},
		"not taken, where files differ":  {stay{}, true, true, false, true},
		"joined":                         {stay{joined: true}, false, false, false, true},
		"joined, the first differs":      {stay{joined: true}, true, false, false, false},
		"joined, the next differs":       {stay{joined: true}, false, true, false, false},
		"joined, and no other comes":     {stay{joined: true}, false, false, true, false},
		"accepted, without a replay":     {stay{doubt: true}, false, false, false, false},
		"accepted, and this one is next": {stay{doubt: true}, false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPassing(t)
			next, _ := p.owner(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "taken") })
			next.Differs = tt.to
			if tt.none {
				next = nil
			}
			var owns atomic.Bool
			p.door.Local = func() http.Handler {
				if !owns.Load() {
					return nil
				}
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "taken here") })
			}
			first, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
				owns.Store(tt.none && tt.at.doubt)
				p.owners.set(next)
				leave(w, tt.at)
			})
			first.Differs = tt.from
			p.owners.set(first)
			got := p.send("POST", "/", "x", "Idempotency-Key", "k", "Throttler-Max-Wait", "300ms")
			if tt.again && got.body != "taken" || !tt.again && !got.isUnknown() {
				t.Errorf("%d %v %s", got.status, got.header, got.body)
			}
		})
	}
}

// TestBodyDuringAStop: a body that is coming in when the owner stops is read to its end, in the room of requests that
// wait, and goes on to the next owner.
func TestBodyDuringAStop(t *testing.T) {
	p := newPassing(t)
	got := make(chan string, 1)
	next, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		io.WriteString(w, "taken")
	})
	p.owners.set(next)
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	owner := serve(t, &Data{Scheduler: r.s, Upstream: "pay", Hosts: []string{"x"}, Standby: p.door}, slog.New(slog.DiscardHandler))
	c, err := net.Dial("tcp", owner.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	body := strings.Repeat("0123456789", 10_000)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:5000])
	r.until(t, "the body has room", func(st scheduler.UpstreamStatus) bool { return st.Bytes > 0 })
	r.s.Close()
	io.WriteString(c, body[5000:])
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || string(answer) != "taken" || resp.StatusCode != 200 {
		t.Fatalf("%d %s, %v", resp.StatusCode, answer, err)
	}
	if <-got != body {
		t.Error("the next owner got another body")
	}
	if left := p.door.Room.left.Load(); left != DataRoom {
		t.Errorf("%d bytes are left of the room", left)
	}
	p.door.Room.left.Store(8 << 10)
	if resp, text := send(t, "POST", owner.URL, body, "Host: x"); resp.StatusCode != 503 || !strings.Contains(text, "too many large requests") {
		t.Errorf("without room: %d %s", resp.StatusCode, text)
	}
}

// TestBatchDuringAStop: the lines of a batch that a stop leaves go on to the next owner together, and their results are in
// their places.
func TestBatchDuringAStop(t *testing.T) {
	p := newPassing(t)
	admin(p.door)
	p.door.Guard = access.NewGuard(&config.Access{Anyone: "admin"})
	first, second := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {}), newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	log := slog.New(slog.DiscardHandler)
	next, _ := p.owner(newAdmin(second.s, NewMetrics("1.0"), NewEvents(), log, nil).ServeHTTP)
	a := newAdmin(first.s, NewMetrics("1.0"), NewEvents(), log, nil)
	a.Standby = p.door
	owner := serve(t, a, log)
	first.s.Close()
	line := func(target string) string {
		return fmt.Sprintf(`{"upstream":"pay","method":"GET","target":%q,"idempotency_key":%q}`+"\n", target, target)
	}
	batch := func() (results []api.BatchResult) {
		resp, text := do(t, batchRequest(t, owner.URL+"/v1/calls/batch", line("/1")+"{}\n\n"+line("/4")+line("/1")))
		if resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		for in := json.NewDecoder(strings.NewReader(text)); in.More(); {
			var result api.BatchResult
			if err := in.Decode(&result); err != nil {
				t.Fatal(err)
			}
			results = append(results, result)
		}
		return results
	}
	p.owners.set(next)
	got := batch()
	if len(got) != 4 || got[1].Problem == nil || got[1].Problem.Reason != "bad_request" {
		t.Fatalf("%+v", got)
	}
	for i, want := range []struct {
		line int
		path string
	}{{1, "/1"}, {2, ""}, {4, "/4"}, {5, "/1"}} {
		if r := got[i]; r.Line != want.line || want.path != "" && (r.Call == nil || r.Call.Path != want.path) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if page, err := second.s.List(t.Context(), scheduler.Filter{Max: 10}); err != nil || len(page.Calls) != 2 {
		t.Errorf("the next owner has %+v, %v; want two calls", page, err)
	}
	dead, end := p.owner(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	defer end()
	p.owners.set(dead)
	for i, r := range batch() {
		if r.Problem == nil || r.Problem.Reason != []string{"no_answer", "bad_request", "no_answer", "no_answer"}[i] {
			t.Errorf("result %d, of an owner that has died: %+v", i, r.Problem)
		}
	}
}

// batchRequest returns a request with a batch.
func batchRequest(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", ndjson)
	return req
}

// TestPageDuringAStop: a page of an owner that stops, which was passed on to it, gets the answers of the next owner.
func TestPageDuringAStop(t *testing.T) {
	p, second := newPassing(t), newPassing(t)
	for _, door := range []*Standby{p.door, second.door} {
		admin(door)
		door.Guard = access.NewGuard(&config.Access{Anyone: "admin"})
	}
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	next, _ := second.owner(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "of the next owner") })
	second.owners.set(next)
	a := newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil)
	a.Standby = second.door
	a.Mount("/ui/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept, asked := httptest.NewRecorder(), r.Clone(r.Context())
		asked.URL.Path, asked.RequestURI = "/v1/upstreams", "/v1/upstreams"
		a.ServeHTTP(kept, asked)
		fmt.Fprintf(w, "a page %s", kept.Body)
	}))
	first, _ := p.owner(a.ServeHTTP)
	p.owners.set(first)
	r.s.Close()
	if got := p.send("GET", "/ui/", ""); got.body != "a page of the next owner" {
		t.Errorf("%+v", got)
	}
}

// TestHalfClosedAtAStandby: what changes something goes on without its client, as at the owner: one that has closed its half
// of the connection gets the answer.
func TestHalfClosedAtAStandby(t *testing.T) {
	for name, tt := range map[string]struct {
		door func(*Standby)
		head string
	}{
		"a submission": {func(*Standby) {}, "POST / HTTP/1.1\r\nPrefer: respond-async\r\n"},
		"a decision":   {admin, "POST /v1/calls/1/resolve HTTP/1.1\r\n"},
	} {
		for _, late := range []bool{false, true} { // the owner comes when the client has left
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				p := newPassing(t)
				tt.door(p.door)
				left := make(chan struct{})
				owner, _ := p.owner(func(w http.ResponseWriter, r *http.Request) {
					<-left
					w.WriteHeader(http.StatusAccepted)
				})
				if !late {
					p.owners.set(owner)
				}
				door := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					context.AfterFunc(r.Context(), func() {
						if late {
							p.owners.set(owner)
						}
						close(left)
					})
					p.door.ServeHTTP(w, r)
				}), slog.New(slog.DiscardHandler))
				c, err := net.Dial("tcp", door.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				io.WriteString(c, tt.head+"Host: localhost\r\nContent-Length: 1\r\n\r\nx")
				c.(*net.TCPConn).CloseWrite()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != http.StatusAccepted {
					t.Errorf("%+v, %v", resp, err)
				}
			})
		}
	}
}

// TestIdleStreamOverALink: a stream of events over a link lives on while there are none.
func TestIdleStreamOverALink(t *testing.T) {
	defer func(was time.Duration) { eventTimeout = was }(eventTimeout)
	eventTimeout = time.Second
	s, events, _ := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	p := newPassing(t)
	admin(p.door)
	p.door.Guard = access.NewGuard(&config.Access{Anyone: "admin"})
	peer, _ := p.owner(newAdmin(s, NewMetrics("1.0"), events, slog.New(slog.DiscardHandler), nil).ServeHTTP)
	p.owners.set(peer)
	ch := subscribe(t, p.url+"/v1/events?kind=accepted")
	for range 2 {
		if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/"}); err != nil {
			t.Fatal(err)
		}
		next(t, ch)
		time.Sleep(eventTimeout * 5 / 4) // until the deadline of the event would be over
	}
}

// TestRest: the first tries follow each other quickly, the later ones do not; another owner is tried at once.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owners{peer: &link.Peer{Pin: "one"}, changed: make(chan struct{})}
		s := &Standby{Owner: o}
		var all time.Duration
		for tries := 1; tries <= 20; tries++ {
			began := time.Now()
			if !s.rest(t.Context(), "one", tries) {
				t.Fatal("rest ends early")
			}
			pause := time.Since(began)
			if all += pause; tries <= againQuick && pause > againInterval || tries > 15 && pause < againMost/2 || pause > againMost {
				t.Errorf("it rests %v after try %d", pause, tries)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if s.rest(ctx, "one", 20) {
			t.Error("it can wait no longer, and rests")
		}
		time.AfterFunc(10*time.Millisecond, func() { o.set(&link.Peer{Pin: "one"}) }) // a beat
		time.AfterFunc(20*time.Millisecond, func() { o.set(&link.Peer{Pin: "two"}) })
		began := time.Now()
		if !s.rest(t.Context(), "one", 20) || time.Since(began) != 20*time.Millisecond {
			t.Errorf("another owner is there, and it rests for %v", time.Since(began))
		}
	})
}

// TestAgeCounts: a client may ask for more than max_wait, and does not get it anew at each replica. A submitted call does.
func TestAgeCounts(t *testing.T) {
	s := &Standby{Upstream: "pay", MaxWait: 20 * time.Second}
	for _, tt := range []struct {
		asked, prefer string
		least, most   time.Duration
	}{
		{"10m", "", 9 * time.Second, 10 * time.Second},
		{"15s", "", 4 * time.Second, 5 * time.Second},
		{"", "", 9 * time.Second, 10 * time.Second},
		{"10m", "respond-async", 9 * time.Minute, 10*time.Minute - 10*time.Second},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Prefer", tt.prefer)
		if tt.asked != "" {
			r.Header.Set("Throttler-Max-Wait", tt.asked)
		}
		got, err := time.ParseDuration(s.header(r, time.Now().Add(-10*time.Second)).Get("Throttler-Max-Wait"))
		if err != nil || got < tt.least || got > tt.most {
			t.Errorf("asked for %q, prefer %q: %v is left after 10 s, %v", tt.asked, tt.prefer, got, err)
		}
	}
}

// TestWithoutHost: a request without Host comes to the owner without one.
func TestWithoutHost(t *testing.T) {
	p := newPassing(t)
	peer, _ := p.owner(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "host %q", r.Host) })
	p.owners.set(peer)
	door := serve(t, p.door, slog.New(slog.DiscardHandler))
	for request, want := range map[string]string{
		"GET / HTTP/1.0\r\n\r\n":                   `host ""`,
		"GET / HTTP/1.1\r\nHost:\r\n\r\n":          `host ""`,
		"GET / HTTP/1.1\r\nHost: pay:8081\r\n\r\n": `host "pay:8081"`,
	} {
		c, err := net.Dial("tcp", door.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != want || err != nil {
			t.Errorf("%q: %s, %v", request, body, err)
		}
	}
}

// TestRefusalsOfAStandby: the id in a refusal of a standby leads to its reason.
func TestRefusalsOfAStandby(t *testing.T) {
	p := newPassing(t)
	p.door.Refusals = new(Refusals)
	got := p.send("POST", "/", "x", "Throttler-Max-Wait", "10ms")
	kept, _ := p.door.Refusals.list(refusalFilter{}, "", 10)
	if len(kept) != 1 || kept[0].id != got.header.Get("Throttler-Call") || kept[0].reason != scheduler.NoOwner || kept[0].upstream != "pay" {
		t.Errorf("%v, and %+v are kept", got.header, kept)
	}
}
