package web

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A follower is a browser that follows a page.
type follower struct {
	leave context.CancelFunc
	gone  chan struct{}
	got   *httptest.ResponseRecorder // to be read when it is gone
}

func follow(p *Pages, at string, header ...string) *follower {
	ctx, leave := context.WithCancel(context.Background())
	f := &follower{leave, make(chan struct{}), httptest.NewRecorder()}
	r := httptest.NewRequest("GET", "/ui/live?at="+at, nil).WithContext(ctx)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(f.gone)
		p.ServeHTTP(f.got, r)
	}()
	return f
}

// TestFollowersShareAPage: 60 browsers that show one page cost one rendering a second, each gets
// every change, and the page is not rendered any more when the last one has left.
func TestFollowersShareAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting}
		p := New(Config{API: s.handler()})
		defer p.Close()
		var all []*follower
		for range 60 {
			all = append(all, follow(p, "/ui/calls/7"))
		}
		time.Sleep(9*time.Second + time.Millisecond)
		synctest.Wait()
		rendered := s.asked.Load()
		if rendered < 9 || rendered > 11 {
			t.Errorf("60 followers of one page: rendered %d times in 9 s, want once a second", rendered)
		}
		// Another language and another page are pages of their own.
		other := []*follower{follow(p, "/ui/calls/7", "Accept-Language", "zh"), follow(p, "/ui/calls/8")}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.asked.Load() - rendered; n < 29 || n > 33 {
			t.Errorf("three pages: rendered %d times in 10 s, want three times a second", n)
		}
		for _, f := range append(all, other...) {
			f.leave()
			<-f.gone
			if text := f.got.Body.String(); !strings.Contains(text, "event: page") || !strings.Contains(text, "R-1") {
				t.Fatalf("a follower got %.200q", text)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		last := s.asked.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.asked.Load(); n != last || len(p.live.feeds) != 0 || p.live.count != 0 {
			t.Errorf("without followers it was rendered %d times; %d feeds and %d followers are left", n-last, len(p.live.feeds), p.live.count)
		}
		t.Logf("60 followers: %d renderings in 9 s", rendered)
	})
}

// TestNoStalePage: a browser that has just loaded a page gets no rendering that began before,
// not even while another browser follows the page; and each browser gets each page once.
func TestNoStalePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "T-OLD", Name: "oncall", State: api.Waiting, Wait: 100 * time.Millisecond}
		p := New(Config{API: s.handler()})
		first := follow(p, "/ui/calls/7")
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		s.Text = "T-NEW"
		second := follow(p, "/ui/calls/7")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		third := follow(p, "/ui/calls/7") // of a page that has not changed since
		time.Sleep(5 * time.Second)
		p.Close()
		for name, f := range map[string]*follower{"first": first, "second": second, "third": third} {
			<-f.gone
			text := f.got.Body.String()
			if had := strings.Contains(text, "T-OLD"); had != (f == first) {
				t.Errorf("the %s browser got the page of before: %v", name, had)
			}
			if !strings.Contains(text, "T-NEW") {
				t.Errorf("the %s browser did not get the page of now", name)
			}
		}
		if n := strings.Count(third.got.Body.String(), "event: page"); n < 1 || n > 7 {
			t.Errorf("a page was sent %d times in 5 s", n)
		}
	})
}

// TestCloseWaits: Close ends the pages that are followed, and returns when no page is being rendered.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting, Wait: 5 * time.Second}
		p := New(Config{API: s.handler()})
		f := follow(p, "/ui/calls/7")
		time.Sleep(7 * time.Second) // it asks for the caller first
		synctest.Wait()
		start := time.Now()
		p.Close()
		if took := time.Since(start); took < 3*time.Second || took > time.Minute {
			t.Errorf("Close took %v, though an answer of the API takes 5s", took)
		}
		<-f.gone
		late := follow(p, "/ui/calls/7")
		<-late.gone
		if late.got.Code != 503 {
			t.Errorf("a follower after Close gets %d", late.got.Code)
		}
	})
}

// TestFollowNothing holds that only pages are followed.
func TestFollowNothing(t *testing.T) {
	p := newPages(t, &stub{})
	for _, at := range []string{"", "/", "/v1/calls", "/ui/live", "/ui/live?at=/ui/live", "//evil.example/ui/", "/ui/static/style.css", "https://evil.example/ui/", "/ui/preferences", "/ui/none"} {
		if w := ask(t, p, "/ui/live?at="+strings.ReplaceAll(at, "?", "%3F"), nil); w.Code < 400 || w.Code >= 500 {
			t.Errorf("at %q: %d", at, w.Code)
		}
	}
}

// TestMostFollowers holds the bounds of followers: of all callers, and of one.
func TestMostFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting}
		p := New(Config{API: s.handler()})
		refused := func(of string) {
			t.Helper()
			f := follow(p, "/ui/calls/7")
			<-f.gone
			if f.got.Code != 503 || f.got.Header().Get("Retry-After") == "" {
				t.Errorf("a follower too many of %s gets %d, Retry-After %q", of, f.got.Code, f.got.Header().Get("Retry-After"))
			}
		}
		var all []*follower
		for _, s.Name = range []string{"a", "b", "c", "d"} {
			for range maxFollowers / 4 {
				all = append(all, follow(p, "/ui/calls/7"))
			}
			synctest.Wait()
			refused("one caller")
		}
		s.Name = "e"
		refused("all callers")
		all[0].leave()
		<-all[0].gone
		f := follow(p, "/ui/calls/7")
		synctest.Wait()
		p.Close()
		<-f.gone
		if f.got.Code != 200 {
			t.Errorf("a follower after another one has left gets %d", f.got.Code)
		}
		for _, f := range all {
			<-f.gone
		}
		if len(p.live.of) != 0 || p.live.count != 0 {
			t.Errorf("after all have left, %d callers and %d followers are counted", len(p.live.of), p.live.count)
		}
	})
}

// TestPanicOfAFeed: a panic of a page or of the API while a page is rendered is a page about it, once
// in the log; the other pages go on, and so does the process.
func TestPanicOfAFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting}
		var panics atomic.Bool
		var log bytes.Buffer
		h := s.handler()
		p := New(Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if panics.Load() && strings.HasSuffix(r.URL.Path, "/8") {
				panic("fault of call 8")
			}
			h.ServeHTTP(w, r)
		}), Log: slog.New(slog.NewTextHandler(&log, nil))})
		faulty, other := follow(p, "/ui/calls/8"), follow(p, "/ui/calls/7")
		time.Sleep(2500 * time.Millisecond)
		panics.Store(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		rendered := s.asked.Load()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := s.asked.Load() - rendered; n < 4 {
			t.Errorf("beside a page that panics, the other one was rendered %d times in 5 s", n)
		}
		panics.Store(false)
		time.Sleep(2 * time.Second)
		p.Close()
		<-faulty.gone
		<-other.gone
		pages := strings.Split(faulty.got.Body.String(), "event: page")
		if len(pages) < 3 || !strings.Contains(faulty.got.Body.String(), "This page has a fault") || !strings.Contains(pages[len(pages)-1], "R-1") {
			t.Errorf("%d pages, with the fault: %v; the last one: %.300s", len(pages), strings.Contains(faulty.got.Body.String(), "This page has a fault"), pages[len(pages)-1])
		}
		if strings.Contains(other.got.Body.String(), "fault") {
			t.Error("the other page shows the fault")
		}
		if n := strings.Count(log.String(), "fault of call 8"); n != 1 || !strings.Contains(log.String(), "/ui/calls/{id}") || !strings.Contains(log.String(), "stack=") {
			t.Errorf("%d lines in the log: %.500s", n, log.String())
		}
	})
}

// TestStreamEndsWithItsSession: the page about the end of a session is the last one of the stream, so that
// it does not keep a place.
func TestStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting}
		var ended atomic.Bool
		h := s.handler()
		p := New(Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ended.Load() {
				w.WriteHeader(401)
				return
			}
			h.ServeHTTP(w, r)
		})})
		defer p.Close()
		all := []*follower{follow(p, "/ui/calls/7"), follow(p, "/ui/calls/7")}
		time.Sleep(2500 * time.Millisecond)
		ended.Store(true)
		began := time.Now()
		for _, f := range all {
			select {
			case <-f.gone:
			case <-time.After(time.Minute):
				t.Fatal("the stream goes on a minute after the session has ended")
			}
			if text := f.got.Body.String(); !strings.Contains(text, "You are not logged in any more.") {
				t.Errorf("the browser got %.300q", text)
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the streams ended after %v", took)
		}
		if p.live.count != 0 {
			t.Errorf("%d followers are left", p.live.count)
		}
	})
}

// TestPanicOfAllTheAPI: the page about a panic asks the API nothing.
func TestPanicOfAllTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Text: "R-1", State: api.Waiting}
		var panics atomic.Bool
		h := s.handler()
		p := New(Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if panics.Load() {
				panic("fault")
			}
			h.ServeHTTP(w, r)
		}), Log: slog.New(slog.DiscardHandler)})
		f := follow(p, "/ui/calls/7")
		time.Sleep(1500 * time.Millisecond)
		panics.Store(true)
		time.Sleep(3 * time.Second)
		p.Close()
		<-f.gone
		if !strings.Contains(f.got.Body.String(), "This page has a fault") {
			t.Errorf("the browser got %.300q", f.got.Body.String())
		}
	})
}

// TestIdlePageOverHTTP2: a page that is followed over HTTP/2, as over a link between replicas, lives on while it does not change.
func TestIdlePageOverHTTP2(t *testing.T) {
	defer func(was time.Duration) { sendTimeout = was }(sendTimeout)
	sendTimeout = renderInterval * 7 / 10
	p := New(Config{API: (&stub{Text: "R-1", State: api.Waiting}).handler()})
	s := httptest.NewUnstartedServer(p)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	defer p.Close()
	resp, err := s.Client().Get(s.URL + "/ui/live?at=/ui/calls/7")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for pages := 0; pages < 2; { // each one comes when the deadline of the last one is over
		if !in.Scan() {
			t.Fatalf("the stream ends after %d pages: %v", pages, in.Err())
		}
		if in.Text() == "event: page" {
			pages++
		}
	}
}

// TestStreamedAnswer: the API may flush its answer to a page, as a replica does that passes the request on.
func TestStreamedAnswer(t *testing.T) {
	h := (&stub{Text: "R-1", State: api.Waiting}).handler()
	p := New(Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	})})
	defer p.Close()
	if w := ask(t, p, "/ui/calls/7", nil); w.Code != 200 || !strings.Contains(w.Body.String(), "R-1") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}
