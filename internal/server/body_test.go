package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const chunked = "Transfer-Encoding: chunked"

// A sender is a client that sends the head of a request, and parts of its body.
type sender struct {
	net.Conn
	answer chan *http.Response
}

// announce sends a head, and so many bytes of the body, and returns when nothing moves.
func announce(c net.Conn, length string, bytes int) *sender {
	return announceTo(c, "/v1/calls", length, bytes)
}

func announceTo(c net.Conn, path, length string, bytes int) *sender {
	s := &sender{c, make(chan *http.Response, 1)}
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
		}
		s.answer <- resp
	}()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, length)
	if length == chunked && bytes > 0 {
		head += fmt.Sprintf("%x\r\n", 1<<20)
	}
	s.send(append([]byte(head), make([]byte, bytes)...))
	return s
}

// send sends bytes as far as they are taken.
func (s *sender) send(b []byte) {
	go s.Write(b)
	synctest.Wait()
}

// status returns the status of the answer, 0 if there is none yet.
func (s *sender) status() int {
	select {
	case resp := <-s.answer:
		s.Close()
		synctest.Wait()
		return resp.StatusCode
	default:
		return 0
	}
}

// TestBodiesBeingReadAreBounded: a body takes room as it comes and not when it is
// announced, and one that does not fit beside others is refused, so that those go on.
func TestBodiesBeingReadAreBounded(t *testing.T) {
	up := scheduler.Upstream{MaxBody: 60_000, MaxWaitingBytes: 100_000, Config: upstream.Config{Transport: platform(0)}}
	bubbleOf(t, up, false, func(t *testing.T, s *scheduler.Scheduler, dial func() net.Conn) {
		holds := func(want int64) {
			t.Helper()
			synctest.Wait()
			if all, err := s.Upstreams(t.Context()); err != nil || all[0].Bytes != want {
				t.Errorf("%d bytes are in memory, want %d; %v", all[0].Bytes, want, err)
			}
		}
		gets := func(want int, length string, bytes int) {
			t.Helper()
			if got := announce(dial(), length, bytes).status(); got != want {
				t.Errorf("%s, %d bytes: status %d, want %d", length, bytes, got, want)
			}
		}
		for range 50 { // three million bytes by their heads
			announce(dial(), "Content-Length: 60000", 0)
			announce(dial(), chunked, 0)
			announce(dial(), "Content-Length: 60000", 4095)
		}
		gets(200, "Content-Length: 60000", 60_000)
		holds(0)
		gets(413, "Content-Length: 60001", 0)
		first := announce(dial(), "Content-Length: 60000", 4097)
		holds(8192)
		first.send(make([]byte, 40_000))
		holds(60_000)
		gets(503, "Content-Length: 60000", 40_000)
		gets(503, chunked, 40_000)
		holds(60_000)
		gets(200, "Content-Length: 20000", 20_000)
		second := announce(dial(), chunked, 20_000)
		holds(60_000 + 32_768)
		gets(200, "Content-Length: 4096", 4096) // a sixteenth of the room is for such
		gets(503, "Content-Length: 8000", 8000)
		first.Close()
		second.Close()
		holds(0)
		last := announce(dial(), chunked, 60_000)
		holds(60_000)
		last.send([]byte("x"))
		if got := last.status(); got != 413 {
			t.Errorf("a chunked body above max_body: status %d, want 413", got)
		}
		holds(0)
		s.Close()
		gets(503, "Content-Length: 50000", 5000)
	})
}

// TestAdminBodiesAreBounded does the same at the admin API.
func TestAdminBodiesAreBounded(t *testing.T) {
	up := scheduler.Upstream{MaxBody: 10 << 20, Config: upstream.Config{Transport: platform(0)}}
	bubbleOf(t, up, true, func(t *testing.T, _ *scheduler.Scheduler, dial func() net.Conn) {
		const most = 21 << 20 // for an upstream's 10 MiB
		if got := announce(dial(), fmt.Sprintf("Content-Length: %d", most+1), 0).status(); got != 413 {
			t.Errorf("a body above max_body: %d, want 413", got)
		}
		length := fmt.Sprintf("Content-Length: %d", most)
		for range 20 {
			announce(dial(), length, 0)
		}
		for range bodiesAtOnce {
			if got := announce(dial(), length, most-1).status(); got != 0 {
				t.Errorf("one that fits got %d before it was sent", got)
			}
		}
		if got := announce(dial(), length, 10_000).status(); got != 503 {
			t.Errorf("the one too many got %d, want 503", got)
		}
		small := dial()
		const body = `{"upstream":"pay","method":"GET","path":"/"}`
		go fmt.Fprintf(small, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if resp, err := http.ReadResponse(bufio.NewReader(small), nil); err != nil || resp.StatusCode != 202 {
			t.Errorf("a small submission beside them: %+v, %v", resp, err)
		}
	})
}

// TestBodiesOfStreams: a request that takes no body gets none, so that streams do not hold the memory of
// submissions.
func TestBodiesOfStreams(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "one", Calls: 1, Window: time.Hour}}}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	a := newAdmin(r.s, NewMetrics("1.0"), NewEvents(), slog.New(slog.DiscardHandler), nil)
	a.Mount("/ui/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	admin := serve(t, a, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, path := range []string{"/ui/live?at=/ui/", "/v1/events"} {
		for range 16 {
			req, _ := http.NewRequestWithContext(ctx, "GET", admin.URL+path, strings.NewReader(strings.Repeat(" ", 1_000_000)))
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != 400 {
				t.Errorf("GET %s with a body: %s", path, resp.Status)
			} else if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), "takes no body; send the request without one") {
				t.Errorf("GET %s with a body: %s", path, text)
			}
		}
	}
	body := `{"upstream": "pay", "method": "POST", "path": "/", "body": "` + strings.Repeat("x", 20_000) + `"}`
	if resp, text := send(t, "POST", admin.URL+"/v1/calls", body); resp.StatusCode != 202 {
		t.Errorf("a submission beside streams: %s %.300s", resp.Status, text)
	}
	req, _ := http.NewRequestWithContext(ctx, "GET", admin.URL+"/v1/events", io.MultiReader(strings.NewReader("{}")))
	if resp, text := do(t, req); resp.StatusCode != 400 || !strings.Contains(text, "takes no body") {
		t.Errorf("GET /v1/events with a body in chunks: %s %s", resp.Status, text)
	}
	for _, request := range []string{"DELETE /v1/session", "DELETE /ui/", "POST /v1/config/reload", "GET /v1/info"} {
		method, path, _ := strings.Cut(request, " ")
		if resp, text := send(t, method, admin.URL+path, "{}"); resp.StatusCode != 400 || !strings.Contains(text, "takes no body") {
			t.Errorf("%s with a body: %s %s", request, resp.Status, text)
		}
	}
}
