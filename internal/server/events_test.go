package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// newEventRig returns a scheduler with a platform, its events, and the URL of its admin
// API.
func newEventRig(t *testing.T, u scheduler.Upstream, answer http.HandlerFunc) (*scheduler.Scheduler, *Events, string) {
	t.Helper()
	platform := httptest.NewServer(answer)
	t.Cleanup(platform.Close)
	u.URL = platform.URL
	events := NewEvents()
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}, Observe: events.Observe})
	if err != nil {
		t.Fatal(err)
	}
	admin := httptest.NewServer(newAdmin(s, NewMetrics("1.0"), events, slog.New(slog.DiscardHandler), nil))
	t.Cleanup(func() {
		s.Close()
		events.Close()
		admin.Close()
	})
	return s, events, admin.URL
}

// subscribe reads the events of a stream into a channel until the test ends.
func subscribe(t *testing.T, url string, header ...string) <-chan sse.Event {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s, %s", url, resp.Status, resp.Header.Get("Content-Type"))
	}
	ch := make(chan sse.Event, 100)
	go func() {
		defer close(ch)
		defer resp.Body.Close()
		for ev, err := range sse.Read(resp.Body, nil) {
			if err != nil {
				return
			}
			ch <- ev
		}
	}()
	return ch
}

func next(t *testing.T, ch <-chan sse.Event) (sse.Event, api.Event) {
	t.Helper()
	select {
	case ev, ok := <-ch:
		if !ok {
			t.Fatal("the stream has ended")
		}
		var e api.Event
		if ev.Type != "lost" {
			if err := json.Unmarshal([]byte(ev.Data), &e); err != nil {
				t.Fatalf("%s: %v", ev.Data, err)
			}
		}
		return ev, e
	case <-time.After(30 * time.Second):
		t.Fatal("no event came")
	}
	panic("unreachable")
}

// TestEventsOfALife submits two calls; the second waits for the permit of the first.
func TestEventsOfALife(t *testing.T) {
	answer := make(chan struct{})
	s, _, url := newEventRig(t, scheduler.Upstream{Concurrency: 1, Numbers: map[string]string{"order": "path"}}, func(http.ResponseWriter, *http.Request) { <-answer })
	ch := subscribe(t, url+"/v1/events")
	one, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	take := func(n int) (last api.Event) {
		for range n {
			raw, e := next(t, ch)
			if raw.Type != e.Event || raw.LastEventID == "" || e.Upstream != "pay" || e.At.IsZero() {
				t.Errorf("event %+v, %+v", raw, e)
			}
			call := "two"
			if want := map[bool]string{true: "/1", false: "/2"}[e.Call == one.ID]; e.Numbers["order"] != want {
				t.Errorf("event %+v, want order %s", e, want)
			}
			if e.Call == one.ID {
				call = "one"
			}
			got = append(got, call+" "+e.Event+" "+string(e.State))
			last = e
		}
		return last
	}
	take(2)
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/2"}); err != nil {
		t.Fatal(err)
	}
	take(1)
	close(answer)
	take(5)
	slices.Sort(got[3:]) // the end of one and the sending of two come in either order
	want := []string{
		"one accepted waiting", "one sending sending", "two accepted waiting",
		"one attempt sending", "one ended done", "two attempt sending", "two ended done", "two sending sending",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q\nwant   %q", got, want)
	}
}

func TestEventsTellTheETAAndThePause(t *testing.T) {
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}}}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	s, _, url := newEventRig(t, u, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(429)
	})
	ch := subscribe(t, url+"/v1/events?upstream=pay")
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"accepted", "sending", "attempt", "paused", "waiting"} {
		_, e := next(t, ch)
		if e.Event != want {
			t.Fatalf("event %+v, want %s", e, want)
		}
		switch e.Event {
		case "attempt":
			if e.Attempt == nil || e.Attempt.Status != 429 || e.Attempt.Outcome != "not_executed" {
				t.Errorf("attempt %+v", e.Attempt)
			}
		case "paused":
			if in := time.Until(e.Until.Time); in < 50*time.Second || in > time.Minute {
				t.Errorf("paused for %v, want about a minute", in)
			}
		case "waiting":
			if in := time.Until(e.ETA.Time); in < 50*time.Second {
				t.Errorf("the ETA is in %v, want it after the pause", in)
			}
		}
	}
}

func TestEventsOfOneCall(t *testing.T) {
	s, _, url := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	later := time.Now().Add(time.Hour)
	one, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/", NotBefore: later})
	if err != nil {
		t.Fatal(err)
	}
	if resp, body := send(t, "GET", url+"/v1/events?call=none", ""); resp.StatusCode != 404 {
		t.Errorf("a call that is not known: %s\n%s", resp.Status, body)
	}
	ch := subscribe(t, url+"/v1/events?call="+one.ID)
	if _, e := next(t, ch); e.Call != one.ID || e.Event != "state" || e.State != api.Waiting || e.ETA.Before(later.Add(-time.Second)) {
		t.Errorf("event %+v, want the state of %s", e, one.ID)
	}
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/"}); err != nil {
		t.Fatal(err)
	}
	all := subscribe(t, url+"/v1/events")
	if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "pay", Until: later.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	_, e := next(t, all)
	for e.Call != "" { // events of the other call
		_, e = next(t, all)
	}
	if e.Event != "paused" || e.Upstream != "pay" || e.Until != api.At(later.Add(time.Hour)) {
		t.Errorf("event %+v, want the pause", e)
	}
	if _, e := next(t, ch); e.Call != one.ID || e.Event != "state" || e.ETA.Before(later.Add(time.Hour-time.Second)) {
		t.Errorf("event %+v, want that %s goes after the pause", e, one.ID)
	}
	if _, err := s.Cancel(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	if _, e := next(t, ch); e.Call != one.ID || e.Event != "ended" || e.State != api.Cancelled {
		t.Errorf("event %+v, want the end of %s", e, one.ID)
	}
}

// TestLostEvents overruns the ring, and counts the events that are lost.
func TestLostEvents(t *testing.T) {
	_, events, url := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	observe := func(n int) {
		for range n {
			events.Observe(scheduler.Event{Kind: scheduler.EventSending, Call: &scheduler.Call{ID: "c", Upstream: "pay", State: scheduler.Sending}})
		}
	}
	observe(1)
	first, _ := next(t, subscribe(t, url+"/v1/events", "Last-Event-ID: "+events.epoch+"-999"))
	if first.Type != "lost" || !strings.Contains(first.Data, `"restarted":true`) {
		t.Errorf("an id of another process: %+v, want a restart", first)
	}
	observe(ringSize + 10)
	ch := subscribe(t, url+"/v1/events", "Last-Event-ID: "+events.epoch+"-0")
	lost, _ := next(t, ch)
	if lost.Type != "lost" || lost.Data != `{"lost":10}` {
		t.Errorf("got %+v, want a loss of 10", lost)
	}
	for i := range ringSize {
		if raw, _ := next(t, ch); i == 0 && raw.LastEventID != events.epoch+"-11" || raw.Type == "lost" {
			t.Fatalf("event %d: %+v", i, raw)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	_, events, url := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	var gone []context.CancelFunc
	for range maxSubscribers {
		ctx, cancel := context.WithCancel(t.Context())
		gone = append(gone, cancel)
		req, _ := http.NewRequestWithContext(ctx, "GET", url+"/v1/events", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		defer resp.Body.Close()
	}
	if resp, body := send(t, "GET", url+"/v1/events", ""); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "at most 64") {
		t.Errorf("one too many: %s\n%s", resp.Status, body)
	}
	gone[0]()
	for left := maxSubscribers; left == maxSubscribers; time.Sleep(time.Millisecond) {
		events.mu.Lock()
		left = events.subscribers
		events.mu.Unlock()
	}
	if resp, body := send(t, "GET", url+"/v1/events?cal=1", ""); resp.StatusCode != 400 {
		t.Errorf("an unknown parameter: %s\n%s", resp.Status, body)
	}
	subscribe(t, url+"/v1/events") // there is room again
}

// TestHeldRequestsLeaveRoom: requests that are held open leave connections to others. One
// too many is refused, or, for a long poll, which is a wish, answered at once.
func TestHeldRequestsLeaveRoom(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "one", Calls: 1, Window: time.Hour}}}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	a := newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil)
	a.held.left.Store(1)
	admin := httptest.NewServer(a)
	defer admin.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", admin.URL+"/v1/events", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp, body := send(t, "GET", admin.URL+"/v1/events", ""); resp.StatusCode != 503 {
		t.Errorf("one subscription too many: %s\n%s", resp.Status, body)
	}
	var waits *scheduler.Call
	for range 2 {
		if waits, err = r.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/"}); err != nil {
			t.Fatal(err)
		}
	}
	if resp, body := send(t, "GET", admin.URL+"/v1/calls/"+waits.ID, "", "Prefer: wait=60"); resp.StatusCode != 200 || resp.Header.Get("Preference-Applied") != "" {
		t.Errorf("one long poll too many: %s %v\n%s", resp.Status, resp.Header, body)
	}
	cancel()
	for a.held.left.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if resp, _ := send(t, "GET", admin.URL+"/v1/calls/"+waits.ID, "", "Prefer: wait=1"); resp.Header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("a long poll when there is room again: %s %v", resp.Status, resp.Header)
	}
}

// TestFollowedPagesAreHeld: a page that a browser follows takes a place of the requests that are held
// open, so that tabs leave connections to others.
func TestFollowedPagesAreHeld(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	a := newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil)
	a.held.left.Store(2)
	a.Mount("/ui/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ui/live" {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	admin := httptest.NewServer(a)
	defer admin.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		req, _ := http.NewRequestWithContext(ctx, "GET", admin.URL+"/ui/live?at=/ui/", nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	for _, path := range []string{"/ui/live?at=/ui/", "/v1/events"} {
		quick, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		req, _ := http.NewRequestWithContext(quick, "GET", admin.URL+path, nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s beside two pages: %s, Retry-After %q", path, resp.Status, resp.Header.Get("Retry-After"))
		}
	}
	if resp, _ := send(t, "GET", admin.URL+"/ui/", ""); resp.StatusCode != 200 {
		t.Errorf("a page beside two that are followed: %s", resp.Status)
	}
	cancel()
	for a.held.left.Load() != 2 {
		time.Sleep(time.Millisecond)
	}
}

// TestEventsEndWithTheProcess: a stream must not delay the stop of its listener.
func TestEventsEndWithTheProcess(t *testing.T) {
	s, events, url := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/events", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/", NotBefore: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	events.Close()
	var lines []string
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	if !slices.Contains(lines, "event: accepted") {
		t.Errorf("the stream ended with %q, want the events before", lines)
	}
	if _, _, err := events.subscribe(""); !isReason(err, scheduler.Stopping) {
		t.Errorf("a subscriber after the end: %v", err)
	}
}

func isReason(err error, want scheduler.Reason) bool {
	var e *scheduler.Error
	return errors.As(err, &e) && e.Reason == want
}

// TestLatestEvents: the newest first, through the filters, also after the ring has begun anew.
func TestLatestEvents(t *testing.T) {
	e := NewEvents()
	call := &scheduler.Call{Upstream: "pay"}
	for i := range ringSize + 10 {
		call.ID = fmt.Sprint(i)
		kind := scheduler.EventAccepted
		if i%2 == 1 {
			kind = scheduler.EventEnded
		}
		e.Observe(scheduler.Event{Kind: kind, Call: call})
	}
	ids := func(f eventFilter, max int) (all []string) {
		for _, ev := range e.latest(&f, max) {
			all = append(all, ev.Call)
		}
		return all
	}
	last := ringSize + 9
	for _, c := range []struct {
		name   string
		filter eventFilter
		max    int
		want   []string
	}{
		{"all", eventFilter{}, 3, []string{fmt.Sprint(last), fmt.Sprint(last - 1), fmt.Sprint(last - 2)}},
		{"one kind", eventFilter{kinds: []string{"accepted"}}, 2, []string{fmt.Sprint(last - 1), fmt.Sprint(last - 3)}},
		{"one call", eventFilter{call: "10"}, 2, []string{"10"}},
		{"a call whose events were overwritten", eventFilter{call: "9"}, 2, nil},
		{"another upstream", eventFilter{upstream: "other"}, 2, nil},
	} {
		if got := ids(c.filter, c.max); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if n := len(e.latest(&eventFilter{}, ringSize+10)); n != ringSize {
		t.Errorf("%d events, the ring has %d", n, ringSize)
	}
}

// TestFleetEvents: a subscription to all events has a take-over; one to an upstream, or to a call, has not.
func TestFleetEvents(t *testing.T) {
	_, events, url := newEventRig(t, scheduler.Upstream{}, func(http.ResponseWriter, *http.Request) {})
	all := subscribe(t, url+"/v1/events")
	chosen := subscribe(t, url+"/v1/events?kind=commits_lost")
	events.Tell(api.Event{Event: api.EventTookOver, Reason: "crash"})
	events.Tell(api.Event{Event: api.EventCommitsLost})
	for _, tt := range []struct {
		from         <-chan sse.Event
		kind, reason string
	}{{all, "took_over", "crash"}, {all, "commits_lost", ""}, {chosen, "commits_lost", ""}} {
		ev := <-tt.from
		var e api.Event
		if err := json.Unmarshal([]byte(ev.Data), &e); err != nil || ev.Type != tt.kind || e.Event != tt.kind || e.Reason != tt.reason || e.At.IsZero() {
			t.Errorf("%+v, %v, want %s %s", ev, err, tt.kind, tt.reason)
		}
	}
	for query, want := range map[string]int{"": 2, "?kind=took_over": 1, "?upstream=pay": 0, "?limit=app": 0} {
		var list api.EventList
		_, body := send(t, "GET", url+"/v1/events/latest"+query, "")
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Events) != want {
			t.Errorf("%q: %s, %v; want %d", query, body, err, want)
		}
	}
}
