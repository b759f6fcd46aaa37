package scheduler_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A site is an upstream whose answers a test chooses. Calls to /query ask about others.
type site struct {
	mu      sync.Mutex
	pay     int // status of its answers
	query   int
	paths   []string
	notices []string // bodies of webhooks
}

func (w *site) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths = append(w.paths, r.URL.Path)
	status := w.pay
	switch {
	case r.URL.Path == "/hook":
		body, _ := io.ReadAll(r.Body)
		w.notices = append(w.notices, string(body))
		status = 200
	case strings.HasPrefix(r.URL.Path, "/query"):
		status = w.query
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"the":"answer"}`)), Request: r}, nil
}

func (w *site) answer(pay, query int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pay, w.query = pay, query
}

// forget drops the requests that came.
func (w *site) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths, w.notices = nil, nil
}

// sent returns how many requests had a path.
func (w *site) sent(path string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.paths {
		if p == path {
			n++
		}
	}
	return n
}

// upstream has queries if resolve is set.
func (w *site) upstream(resolve bool) map[string]scheduler.Upstream {
	u := scheduler.Upstream{Breaker: retry.Trip{Unknown: -1}, NoBody: `path == "/card"`}
	u.URL, u.Transport = "http://api.test", w
	u.Callbacks = map[string]scheduler.Callback{"shop": {Config: upstream.Config{URL: "http://shop.test/hook", Signer: unsigned{}, Transport: w}}}
	if resolve {
		u.Resolve = []scheduler.Resolve{{
			When: `path == "/pay"`, Target: `"/query"`, Queries: 2,
			Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}, {When: "status == 404", Is: upstream.NotExecuted}},
		}}
	}
	return map[string]scheduler.Upstream{"api": u}
}

func hand(t *testing.T, s *scheduler.Scheduler, target string) *scheduler.Call {
	t.Helper()
	c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: target, Callback: "shop", Body: bytes.Repeat([]byte("b"), 100)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func state(t *testing.T, s *scheduler.Scheduler, id string) scheduler.State {
	t.Helper()
	c, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.State
}

// counts checks how many calls are unknown, and in memory, and how many bytes all calls of
// the upstream hold.
func counts(t *testing.T, s *scheduler.Scheduler, when string, unknown, inMemory int, bytes int64) {
	t.Helper()
	st, err := s.Status(t.Context(), "api")
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if st.Unknown != unknown || st.Waiting != 0 || s.InMemory() != inMemory || st.Bytes != bytes {
		t.Errorf("%s: %d unknown, %d waiting, %d in memory, %d bytes; want %d, 0, %d and %d",
			when, st.Unknown, st.Waiting, s.InMemory(), st.Bytes, unknown, inMemory, bytes)
	}
}

const handed = 100 + int64(len("/pay")) // bytes of a call of hand

// TestUnknownCallsLeaveMemory: a stored call of unknown outcome is on disk only. It counts
// exactly until it is decided, also over a restart, and each decision about it takes effect
// as about a call in memory.
func TestUnknownCallsLeaveMemory(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, _ := start(w.upstream(false))
		var ids []string
		for range 200 {
			ids = append(ids, hand(t, s, "/pay").ID)
		}
		for _, id := range ids {
			if c, err := s.Wait(t.Context(), id); err != nil || c.State != scheduler.Unknown || string(c.Response.Body) != `{"the":"answer"}` {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		time.Sleep(10 * time.Second) // webhooks go
		counts(t, s, "unknown", 200, 0, 200*handed)
		for _, as := range []upstream.Outcome{upstream.Done, upstream.Failed} {
			c, err := s.Resolve(t.Context(), ids[0], scheduler.Decision{As: as, Reason: "it is in the list"})
			if err != nil || c.State != scheduler.State(as) || string(c.Response.Body) != `{"the":"answer"}` {
				t.Errorf("resolved as %s: %+v, %v", as, c, err)
			}
			ids = ids[1:]
		}
		if _, err := s.Cancel(t.Context(), ids[0]); err == nil || state(t, s, ids[0]) != scheduler.Unknown {
			t.Error("an unknown call was cancelled")
		}
		time.Sleep(time.Second)
		counts(t, s, "two are decided", 198, 0, 198*handed)
		w.answer(200, 0)
		if _, err := s.Resolve(t.Context(), ids[0], scheduler.Decision{As: upstream.NotExecuted}); err != nil {
			t.Error(err)
		}
		if c, err := s.Wait(t.Context(), ids[0]); err != nil || c.State != scheduler.Done || len(c.Attempts) != 2 {
			t.Errorf("sent again: %+v, %v", c, err)
		}
		time.Sleep(10 * time.Second)
		counts(t, s, "one was sent again", 197, 0, 197*handed)
		w.answer(500, 0)
		if _, err := s.Resolve(t.Context(), ids[1], scheduler.Decision{As: upstream.NotExecuted}); err != nil {
			t.Error(err)
		}
		if c, err := s.Wait(t.Context(), ids[1]); err != nil || c.State != scheduler.Unknown || len(c.Attempts) != 2 {
			t.Errorf("sent again, in vain: %+v, %v", c, err)
		}
		time.Sleep(10 * time.Second)
		counts(t, s, "one is unknown again", 197, 0, 197*handed)
		for id, want := range map[string]string{ids[0]: ".done.2", ids[1]: ".unknown.2"} {
			if !strings.Contains(strings.Join(w.notices, " "), `"id":"`+id+`"`) {
				t.Errorf("no webhook tells of %s%s", id, want)
			}
		}
		if n := strings.Count(strings.Join(w.notices, " "), `"body_base64":"eyJ0aGUiOiJhbnN3ZXIifQ=="`); n != 200+2+2 {
			t.Errorf("%d of %d webhooks have the answer, want 204", n, len(w.notices))
		}
		s.Close()

		s, _ = start(w.upstream(false))
		time.Sleep(10 * time.Second)
		counts(t, s, "after a restart", 197, 0, 197*handed)
		for _, id := range ids[1:] {
			if _, err := s.Resolve(t.Context(), id, scheduler.Decision{As: upstream.Failed}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		counts(t, s, "all are decided", 0, 0, 0)
		s.Close()
	})
}

// TestRequest reads requests until their calls end, in memory and on disk. One that stays out of
// the store is not shown.
func TestRequest(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, _ := start(w.upstream(false))
		defer s.Close()
		late, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/pay", Body: bytes.Repeat([]byte("b"), 100), NotBefore: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		unknown, card := hand(t, s, "/pay"), hand(t, s, "/card")
		time.Sleep(10 * time.Second)
		for _, id := range []string{late.ID, unknown.ID} {
			if r, err := s.Request(t.Context(), id); err != nil || r.Target != "/pay" || len(r.Body) != 100 {
				t.Errorf("the request of a call that is %s: %+v, %v", state(t, s, id), r, err)
			}
		}
		if _, err := s.Cancel(t.Context(), late.ID); err != nil {
			t.Error(err)
		}
		if _, err := s.Resolve(t.Context(), unknown.ID, scheduler.Decision{As: upstream.Done, Reason: "it is in the list"}); err != nil {
			t.Error(err)
		}
		for name, id := range map[string]string{"cancelled": late.ID, "done": unknown.ID, "a card": card.ID, "no call": "none"} {
			var known *scheduler.Error
			if r, err := s.Request(t.Context(), id); !errors.As(err, &known) || known.Reason != scheduler.NotFound {
				t.Errorf("the request of a call: %s: %+v, %v", name, r, err)
			}
		}
	})
}

// TestRequestOfACard: the request of a client's call that is unknown, which memory keeps for its
// identity, is not shown if it stays out of the store.
func TestRequestOfACard(t *testing.T) {
	w := &site{pay: 500}
	upstreams := w.upstream(false)
	u := upstreams["api"]
	u.Identity = `"card " + path`
	upstreams["api"] = u
	s, err := scheduler.New(scheduler.Config{Upstreams: upstreams})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, c, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/card", Body: []byte("4242")})
	if err != nil || c.State != scheduler.Unknown {
		t.Fatalf("%+v, %v", c, err)
	}
	var known *scheduler.Error
	if r, err := s.Request(t.Context(), c.ID); !errors.As(err, &known) || known.Reason != scheduler.NotFound {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMemoryOfUnknownCalls: 2,000 unknown calls take less than a sixth of the memory that
// they took until the process was started anew.
func TestMemoryOfUnknownCalls(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, _ := start(w.upstream(false))
		defer s.Close()
		heap := func(calls int) int64 {
			for range calls {
				hand(t, s, "/pay")
			}
			time.Sleep(time.Minute)
			if n := s.InMemory(); n != 0 {
				t.Errorf("%d calls are in memory", n)
			}
			w.forget()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap(500) // caches are full
		const calls = 2000
		if took := heap(calls) - before; took > calls<<10 {
			t.Errorf("%d unknown calls take %d KiB", calls, took>>10)
		} else {
			t.Logf("%d KiB", took>>10)
		}
	})
}

// TestQueriesKeepACallInMemory: a call stays in memory while it is queried, once. It leaves when no
// query has decided, and a decision about it ends the queries.
func TestQueriesKeepACallInMemory(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500, query: 503}
		s, _ := start(w.upstream(true))
		answer := int64(len(`{"the":"answer"}`))
		undecided, decided := hand(t, s, "/pay").ID, hand(t, s, "/pay").ID
		time.Sleep(5 * time.Second)
		s.TakeUp("api")                                                              // late: the calls became unknown in this process
		for _, as := range []upstream.Outcome{upstream.NotExecuted, upstream.Done} { // unknown again, and queried anew
			if st, _ := s.Status(t.Context(), "api"); st.Unknown != 2 || s.InMemory() != 2 || st.Bytes < 2*(handed+answer) {
				t.Errorf("%+v and %d in memory, want two unknown calls", st, s.InMemory())
			}
			if _, err := s.Resolve(t.Context(), decided, scheduler.Decision{As: as}); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second)
		}
		time.Sleep(2 * time.Minute)
		if n := w.sent("/query"); n != 2 {
			t.Errorf("%d queries, want the two about the call that no person decided", n)
		}
		counts(t, s, "no query has decided", 1, 0, handed)
		s.Close()

		s, _ = start(w.upstream(true)) // the next process queries anew
		time.Sleep(5 * time.Second)
		if s.InMemory() != 1 {
			t.Errorf("%d calls in memory, want the unknown one", s.InMemory())
		}
		w.answer(200, 404)
		time.Sleep(time.Minute)
		if got := state(t, s, undecided); got != scheduler.Done || w.sent("/pay") != 4 {
			t.Errorf("it is %s after %d requests; want it sent again, as the query said that it was not executed", got, w.sent("/pay"))
		}
		counts(t, s, "a query has decided", 0, 0, 0)
		s.Close()
	})
}

// TestUnknownCallsOfARemovedUpstream: an upstream that a reload removes keeps its counts
// while a call of it is unknown. A decision about the call is told, and the upstream then
// goes with the next reload.
func TestUnknownCallsOfARemovedUpstream(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, _ := start(w.upstream(false))
		first, second := hand(t, s, "/pay").ID, hand(t, s, "/pay").ID
		synctest.Wait()
		other := map[string]scheduler.Upstream{"other": upstreamAt("other")}
		reload := func(ups map[string]scheduler.Upstream) {
			t.Helper()
			if err := s.Reload(t.Context(), scheduler.Config{Upstreams: ups}); err != nil {
				t.Fatal(err)
			}
		}
		reload(other)
		counts(t, s, "removed", 2, 0, 2*handed)
		if _, err := s.Resolve(t.Context(), first, scheduler.Decision{As: upstream.Done}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		counts(t, s, "one is decided", 1, 0, handed)
		if n := w.sent("/hook"); n != 3 {
			t.Errorf("%d webhooks, want two of unknown calls and one of the decision", n)
		}
		if _, err := s.Resolve(t.Context(), second, scheduler.Decision{As: upstream.NotExecuted}); err == nil || !strings.Contains(err.Error(), "is not configured") {
			t.Errorf("a call of an upstream that is not configured goes again: %v", err)
		}
		reload(w.upstream(false))
		counts(t, s, "there again", 1, 0, handed)
		reload(other)
		if _, err := s.Resolve(t.Context(), second, scheduler.Decision{As: upstream.Failed}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		reload(other)
		if _, err := s.Status(t.Context(), "api"); err == nil || s.InMemory() != 0 {
			t.Errorf("the upstream is there, %v, and %d calls are in memory", err, s.InMemory())
		}
		s.Close()
	})
}

// TestDecisionsOnDisk: a decision about a call whose request is not there, or whose upstream
// is not configured, lowers the counts too.
func TestDecisionsOnDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, _ := start(w.upstream(false))
		card, pay := hand(t, s, "/card").ID, hand(t, s, "/pay").ID
		time.Sleep(time.Second)
		if st, _ := s.Status(t.Context(), "api"); st.Unknown != 2 || s.InMemory() != 1 {
			t.Errorf("%+v and %d calls in memory, want the one whose request is nowhere else", st, s.InMemory())
		}
		s.Close()

		s, _ = start(map[string]scheduler.Upstream{"other": upstreamAt("other")})
		if _, err := s.Resolve(t.Context(), pay, scheduler.Decision{As: upstream.Done}); err != nil {
			t.Error(err)
		}
		if err := s.Reload(t.Context(), scheduler.Config{Upstreams: w.upstream(false)}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		counts(t, s, "one of two is decided", 1, 0, handed+int64(len("card")-len("pay")))
		if _, err := s.Resolve(t.Context(), card, scheduler.Decision{As: upstream.NotExecuted}); err == nil {
			t.Error("a call whose request is nowhere waits again")
		}
		if _, err := s.Resolve(t.Context(), card, scheduler.Decision{As: upstream.Failed}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		counts(t, s, "both are decided", 0, 0, 0)
		if n := w.sent("/hook"); n != 4 {
			t.Errorf("%d webhooks, want two of unknown calls and two of decisions", n)
		}
		s.Close()
	})
}

// TestDecisionsInTurn: a call is sent again, and is unknown again, while its row is read for
// another decision. That decision is about the new row.
func TestDecisionsInTurn(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500}
		s, disk := start(w.upstream(false))
		defer s.Close()
		id := hand(t, s, "/pay").ID
		again := func() {
			t.Helper()
			if _, err := s.Resolve(t.Context(), id, scheduler.Decision{As: upstream.NotExecuted}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		synctest.Wait()
		disk.fetched = again
		again()
		if c, err := s.Get(t.Context(), id); err != nil || c.State != scheduler.Unknown || len(c.Attempts) != 3 {
			t.Errorf("%+v, %v; want it unknown after three attempts", c, err)
		}
		counts(t, s, "unknown again", 1, 0, handed)
	})
}
