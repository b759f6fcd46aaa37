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
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/http1"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// raw returns a platform that answers with bytes of its own and closes the connection.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(c, answer)
		c.Close()
	}
}

func TestUpstreamFaultsAtTheDataListener(t *testing.T) {
	u := scheduler.Upstream{Config: upstream.Config{Timeout: 200 * time.Millisecond}}
	u.Retry.Min, u.Retry.Max = 10*time.Millisecond, 10*time.Millisecond
	tests := []struct {
		name     string
		platform http.HandlerFunc // nil: no listener
		status   int
		outcome  string
		reason   string
	}{
		{"down", nil, 502, "not_executed", "unreachable"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() }, 504, "unknown", "no_answer"},
		{"resets", func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}, 504, "unknown", "no_answer"},
		{"answers garbage", raw("what?\r\n\r\n"), 504, "unknown", "no_answer"},
		{"answers with a status that HTTP does not have", raw("HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n"), 502, "unknown", "bad_answer"},
		{"answers with a status below 100", raw("HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nok"), 502, "unknown", "bad_answer"},
		{"switches protocols", raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes"), 502, "unknown", "bad_answer"},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half")
		}, 504, "unknown", "no_answer"},
		{"fails with a page", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>oops</h1>", 500) }, 500, "unknown", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := u
			if tt.platform == nil {
				u.URL = "http://127.0.0.1:1"
			}
			r := newRig(t, u, Refusal{}, tt.platform)
			resp, body := send(t, "POST", r.data.URL+"/?secret=canary", "secret=canary")
			if resp.StatusCode != tt.status || resp.Header.Get("Throttler-Outcome") != tt.outcome || !strings.Contains(body, tt.reason) {
				t.Errorf("status %d, outcome %s, body %s; want %d, %s, %s", resp.StatusCode, resp.Header.Get("Throttler-Outcome"), body, tt.status, tt.outcome, tt.reason)
			}
			if strings.Contains(r.logs.String(), "BUG:") {
				t.Errorf("the answer is taken for a bug:\n%s", r.logs)
			}
			_, call := send(t, "GET", r.admin.URL+"/v1/calls/"+resp.Header.Get("Throttler-Call"), "")
			if strings.Contains(body+call+r.logs.String(), "canary") {
				t.Errorf("a secret came out:\n%s\n%s\n%s", body, call, r.logs)
			}
		})
	}
}

// TestClientDisconnects disconnects before the slot and after the first byte.
func TestClientDisconnects(t *testing.T) {
	var mu sync.Mutex
	var arrived []string
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "one", Concurrency: 1}}}
	release := make(chan struct{})
	inside := make(chan struct{}, 10)
	r := newRig(t, u, Refusal{}, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived = append(arrived, r.URL.Path)
		mu.Unlock()
		inside <- struct{}{}
		<-release
	})
	get := func(ctx context.Context, path string) chan error {
		done := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", r.data.URL+path, nil)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			done <- err
		}()
		return done
	}
	firstCtx, leaveFirst := context.WithCancel(t.Context())
	first := get(firstCtx, "/first")
	<-inside
	secondCtx, leaveSecond := context.WithCancel(t.Context())
	second := get(secondCtx, "/second")
	r.until(t, "the second waits", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 1 })
	leaveSecond()
	<-second
	r.until(t, "the second is cancelled", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 0 })
	leaveFirst()
	<-first
	close(release)
	r.until(t, "the first has ended", func(st scheduler.UpstreamStatus) bool { return st.Sending == 0 && st.Bytes == 0 })
	third := get(t.Context(), "/third")
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	page, err := r.s.List(t.Context(), scheduler.Filter{Oldest: true, Max: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range page.Calls {
		states[string(c.State)]++
	}
	if got := strings.Join(arrived, " "); got != "/first /third" || states["done"] != 2 || states["cancelled"] != 1 {
		t.Errorf("arrived %q, states %v; want the second never sent, and the first recorded as done", got, states)
	}
}

func TestAsyncOnTheDataListener(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Prefer") != "" {
			t.Error("the preference went further")
		}
		io.WriteString(w, "late answer")
	})
	resp, body := send(t, "POST", r.data.URL+"/refund", "x=1", "Prefer: respond-async, wait=5", "Idempotency-Key: k1")
	if resp.StatusCode != 202 || resp.Header.Get("Preference-Applied") != "respond-async" || !strings.HasPrefix(resp.Header.Get("Location"), r.admin.URL+"/v1/calls/") || resp.Header.Get("Throttler-Outcome") != "accepted" {
		t.Fatalf("status %d, header %v: %s", resp.StatusCode, resp.Header, body)
	}
	var call api.Call
	json.Unmarshal([]byte(body), &call)
	again, _ := send(t, "POST", r.data.URL+"/refund", "x=1", "Prefer: respond-async", "Idempotency-Key: k1")
	if again.Header.Get("Throttler-Call") != call.ID {
		t.Errorf("the same key gave call %s, want %s", again.Header.Get("Throttler-Call"), call.ID)
	}
	if other, _ := send(t, "POST", r.data.URL+"/refund", "x=2", "Prefer: respond-async", "Idempotency-Key: k1"); other.StatusCode != 422 {
		t.Errorf("the key for another request: %d, want 422", other.StatusCode)
	}
	resp, body = send(t, "GET", r.admin.URL+"/v1/calls/"+call.ID+"?include=response", "", "Prefer: wait=10")
	json.Unmarshal([]byte(body), &call)
	if resp.Header.Get("Preference-Applied") != "wait=10" || call.State != api.Done || string(call.Response.Body) != "late answer" {
		t.Errorf("%v %s", resp.Header, body)
	}
}

// TestOwnHeaders: a header that is meant for Throttler, and counts for nothing, is refused.
func TestOwnHeaders(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Throttler-") {
				t.Errorf("%s went further", name)
			}
		}
	})
	for header, want := range map[string]string{
		"Throttler-Prio: 9":        "header Throttler-Prio is unknown; there are Throttler-Max-Wait, Throttler-Deadline, Throttler-Priority, Throttler-Callback",
		"throttler-maxwait: 1s":    "header Throttler-Maxwait is unknown",
		"Throttler-Callback: shop": "send Prefer: respond-async",
		"Throttler-Priority: 9":    "",
		"Throttler-Call: x":        "", // copied from an answer
	} {
		resp, body := send(t, "POST", r.data.URL+"/", "", header)
		if (resp.StatusCode == 400) != (want != "") || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", header, resp.StatusCode, body, want)
		}
	}
}

// TestAdminURL: the Location of a 202 is an address that the client can reach.
func TestAdminURL(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8081}
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
	for admin, want := range map[string]string{
		"http://127.0.0.1:9090": "http://127.0.0.1:9090",
		"http://[::]:9090":      "http://192.0.2.7:9090",
		"https://0.0.0.0:9090":  "https://192.0.2.7:9090",
		"http://[::1]:9090":     "http://[::1]:9090",
		"":                      "",
	} {
		if got := (&Data{Admin: admin}).adminURL(r); got != want {
			t.Errorf("admin %s: %s, want %s", admin, got, want)
		}
	}
}

// TestHalfClosedClientIsRefused: a client that has closed its half of the connection
// still reads, and must not take an empty 200 for a response.
func TestHalfClosedClientIsRefused(t *testing.T) {
	sent, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, scheduler.Upstream{Concurrency: 1}, Refusal{}, func(http.ResponseWriter, *http.Request) {
		sent <- struct{}{}
		<-release
	})
	defer close(release)
	sending := r.begin(t, "/first")
	<-sent
	waiting := r.begin(t, "/second")
	r.until(t, "the second waits", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 1 })
	for _, tt := range []struct {
		c       net.Conn
		status  int
		outcome string
	}{{waiting, 503, "not_executed"}, {sending, 504, "unknown"}} {
		tt.c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(tt.c), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status || resp.Header.Get("Throttler-Outcome") != tt.outcome {
			t.Errorf("status %d, outcome %q; want %d, %s", resp.StatusCode, resp.Header.Get("Throttler-Outcome"), tt.status, tt.outcome)
		}
	}
}

// TestABugIsAnswered: after a closed connection a client may send the request again.
func TestABugIsAnswered(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	d := &Data{Upstream: "pay", Log: log} // without a scheduler
	afterAWait := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http1.Detach(w)
		go (&client{data: d, w: w, r: r}).resume(nil, nil, nil)
	})
	for _, h := range []http.Handler{d, afterAWait} {
		resp, body := send(t, "GET", serve(t, h, log).URL+"/", "")
		if resp.StatusCode != 504 || resp.Header.Get("Throttler-Outcome") != "unknown" || !strings.Contains(body, "internal error") {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
		}
	}
	other := httptest.NewServer(d) // of another package
	defer other.Close()
	if resp, body := send(t, "GET", other.URL+"/", ""); resp.StatusCode != 504 || !strings.Contains(body, "internal error") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestClientsThatWait: no goroutine waits with a client, and its connection lives on after the answer.
func TestClientsThatWait(t *testing.T) {
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	r := newRig(t, scheduler.Upstream{Concurrency: 1}, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, r.URL.Path)
	})
	defer free()
	const clients = 50
	var conns []net.Conn
	for n := range clients {
		c, err := net.Dial("tcp", r.data.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", n)
		conns = append(conns, c)
	}
	r.until(t, "all but one wait", func(st scheduler.UpstreamStatus) bool { return st.Waiting == clients-1 })
	stacks := make([]byte, 1<<22)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "http1.(*conn).serve(")
		if n == 1 {
			break
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d goroutines serve clients, want 1 for the call that is being sent", n)
		}
	}
	free()
	for n, c := range conns {
		in := bufio.NewReader(c)
		for range 2 {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != fmt.Sprintf("/%d", n) || err != nil || resp.Header.Get("Throttler-Outcome") != "done" {
				t.Fatalf("client %d: %q, %v, %v", n, b, resp.Header, err)
			}
			fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", n)
		}
	}
}

// TestHalfClosedConnection: a client that sends its request and closes its half of the
// connection is answered in one way, whenever that is noticed.
func TestHalfClosedConnection(t *testing.T) {
	answer := make(chan struct{})
	r := newRig(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "one", Concurrency: 1}}}, Refusal{}, func(http.ResponseWriter, *http.Request) { <-answer })
	defer close(answer)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", r.data.URL, nil)
	go http.DefaultClient.Do(req)
	r.until(t, "one call being sent", func(u scheduler.UpstreamStatus) bool { return u.Sending == 1 })
	exchange := func(addr, text string) (status int, body string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err.Error()
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, err.Error()
		}
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	const body = `{"upstream":"pay","method":"GET","path":"/"}`
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 10 {
				if status, text := exchange(r.data.addr, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); status != 503 || !strings.Contains(text, `"not_executed"`) || !strings.Contains(text, `"gone"`) {
					t.Errorf("a call that waits: %d %s", status, text)
				}
				if status, text := exchange(r.data.addr, "GET / HTTP/1.1\r\nHost: localhost\r\nPrefer: respond-async\r\n\r\n"); status != 202 {
					t.Errorf("a submission: %d %s", status, text)
				}
				if status, text := exchange(r.admin.addr, fmt.Sprintf("POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)); status != 202 {
					t.Errorf("a submission by the admin API: %d %s", status, text)
				}
			}
		})
	}
	clients.Wait()
}

// field returns a field of an answer's head.
func field(answer []byte, name string) string {
	_, rest, _ := strings.Cut(string(answer), "\r\n"+name+": ")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// TestClientIsGoneBeforeItsCall: of a call that its client would wait for nothing is
// executed, and the answer says so. A submission is taken.
func TestClientIsGoneBeforeItsCall(t *testing.T) {
	sent := make(chan string, 10)
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(_ http.ResponseWriter, r *http.Request) { sent <- r.URL.Path })
	data := &Data{Scheduler: r.s, Upstream: "pay"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func(target, prefer string) *httptest.ResponseRecorder {
		w, req := httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost"+target, nil)
		req.Header.Set("Prefer", prefer)
		data.ServeHTTP(w, req.WithContext(ctx))
		return w
	}
	if w := ask("/waits", ""); w.Code != 503 || w.Header().Get("Throttler-Outcome") != "not_executed" || !strings.Contains(w.Body.String(), `"gone"`) {
		t.Errorf("a call whose client has gone: %d %s", w.Code, w.Body)
	}
	if w := ask("/submitted", "respond-async"); w.Code != 202 {
		t.Errorf("a submission whose client has gone: %d %s", w.Code, w.Body)
	}
	if got := <-sent; got != "/submitted" {
		t.Errorf("%s was sent", got)
	}
}
