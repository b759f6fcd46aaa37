package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// rig is a platform, a scheduler in front of it, and its two listeners.
type rig struct {
	s           *scheduler.Scheduler
	metrics     *Metrics
	data, admin *httptest.Server
	logs        *bytes.Buffer
}

func newRig(t *testing.T, u scheduler.Upstream, refusal Refusal, platform http.HandlerFunc) *rig {
	t.Helper()
	if platform != nil {
		p := httptest.NewServer(platform)
		t.Cleanup(p.Close)
		u.URL = p.URL
	}
	r := &rig{metrics: NewMetrics(), logs: &bytes.Buffer{}}
	var err error
	r.s, err = scheduler.New(scheduler.Config{
		Upstreams: map[string]scheduler.Upstream{"pay": u},
		Observe:   r.metrics.Observe,
		Log:       slog.New(slog.NewTextHandler(&lockedWriter{w: r.logs}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.metrics.Watch(r.s)
	data, err := NewData(r.s, "pay", "127.0.0.1:9090", refusal)
	if err != nil {
		t.Fatal(err)
	}
	r.data = httptest.NewServer(data)
	r.admin = httptest.NewServer(NewAdmin(r.s, r.metrics, func() error { return nil }))
	t.Cleanup(func() {
		r.s.Close()
		r.data.Close()
		r.admin.Close()
	})
	return r
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// send makes a request; header lines are "Name: value".
func send(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestBytesPassUnchangedBothWays looks at the raw bytes on both sides.
func TestBytesPassUnchangedBothWays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var raw bytes.Buffer
		req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw)))
		if err == nil {
			io.Copy(io.Discard, req.Body)
		}
		got <- raw.String()
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-Odd:  two  spaces \r\nConnection: X-Hop\r\nX-Hop: 1\r\nAlipay-Signature: a+b==\r\n\r\n\xc4\xe3{ }\r\n")
	}()
	r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: "http://" + l.Addr().String()}}, Refusal{}, nil)

	c, err := net.Dial("tcp", r.data.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /gateway.do?b=%7b&a=1&&x HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 5\r\nX-Custom: a,  b\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nThrottler-Priority: 5\r\nTE: trailers\r\n\r\n\xff&=\x00z")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	want := "POST /gateway.do?b=%7b&a=1&&x HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\nContent-Length: 5\r\nX-Custom: a,  b\r\n\r\n\xff&=\x00z"
	if g := <-got; g != want {
		t.Errorf("the upstream got\n%q\nwant\n%q", g, want)
	}
	if string(body) != "\xc4\xe3{ }\r\n" || resp.Header.Get("Alipay-Signature") != "a+b==" || resp.Header.Get("X-Hop") != "" || resp.Header.Get("Content-Type") != "" {
		t.Errorf("the client got %q with %v", body, resp.Header)
	}
	if resp.Header.Get("Throttler-Call") == "" || resp.Header.Get("Throttler-Wait") == "" || resp.Header.Get("Throttler-Outcome") != "done" {
		t.Errorf("Throttler's own headers: %v", resp.Header)
	}
}

func TestRefusals(t *testing.T) {
	u := scheduler.Upstream{
		MaxBody: 100, MaxWait: 500 * time.Millisecond,
		Limits: []scheduler.Limit{
			{Name: "app", PerKey: `param("app_id")`, Calls: 1, Window: time.Hour},
			{Name: "dear", When: `path == "/dear"`, Calls: 1, Window: time.Hour, Cost: "2"},
		},
	}
	alipay := Refusal{Header: http.Header{"Content-Type": {"text/html;charset=utf-8"}}, Body: func(p Problem) ([]byte, error) {
		return fmt.Appendf(nil, `{"error_response":{"code":"40005","sub_msg":"%s %d %s"}}`, p.Reason, p.Status, p.Outcome), nil
	}}
	tests := []struct {
		name, method, target, body string
		header                     []string
		status                     int
		reason                     string
	}{
		{"key", "GET", "/", "", nil, 400, "bad_key"},
		{"dots", "GET", "/a/%2e%2e/b?app_id=x", "", nil, 400, "bad_request"},
		{"max wait", "GET", "/?app_id=x", "", []string{"Throttler-Max-Wait: soon"}, 400, "bad_request"},
		{"deadline", "GET", "/?app_id=x", "", []string{"Throttler-Deadline: tomorrow"}, 400, "bad_request"},
		{"priority", "GET", "/?app_id=x", "", []string{"Throttler-Priority: 101"}, 400, "bad_request"},
		{"upgrade", "GET", "/?app_id=x", "", []string{"Upgrade: websocket"}, 400, "bad_request"},
		{"method", "TRACE", "/?app_id=x", "", nil, 400, "bad_request"},
		{"body", "POST", "/?app_id=x", strings.Repeat("x", 101), nil, 413, "too_large"},
		{"cost", "GET", "/dear?app_id=x", "", nil, 422, "cost_too_high"},
		{"past the deadline", "GET", "/?app_id=full", "", nil, 429, "past_deadline"},
		{"past its own", "GET", "/?app_id=full", "", []string{"Throttler-Max-Wait: 1h0m1s"}, 429, "past_deadline"},
	}
	for shape, refusal := range map[string]Refusal{"problem": {}, "platform": alipay} {
		r := newRig(t, u, refusal, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
		if resp, _ := send(t, "GET", r.data.URL+"/?app_id=full", ""); resp.StatusCode != 200 {
			t.Fatalf("the first call: %d", resp.StatusCode)
		}
		for _, tt := range tests {
			t.Run(shape+"/"+tt.name, func(t *testing.T) {
				began := time.Now()
				resp, body := send(t, tt.method, r.data.URL+tt.target, tt.body, tt.header...)
				if resp.StatusCode != tt.status || resp.Header.Get("Throttler-Outcome") != "not_executed" {
					t.Errorf("status %d, outcome %q: %s", resp.StatusCode, resp.Header.Get("Throttler-Outcome"), body)
				}
				if tt.status == 429 && (resp.Header.Get("Retry-After") == "" || time.Since(began) > 400*time.Millisecond) {
					t.Errorf("Retry-After %q after %v, want one at once", resp.Header.Get("Retry-After"), time.Since(began))
				}
				if shape == "platform" {
					if want := fmt.Sprintf(`{"error_response":{"code":"40005","sub_msg":"%s %d not_executed"}}`, tt.reason, tt.status); body != want {
						t.Errorf("body %s, want %s", body, want)
					}
					return
				}
				var p Problem
				if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
					t.Fatalf("%v in %s", err, body)
				}
				if p.Reason != tt.reason || p.Status != tt.status || p.Detail == "" || p.Title == "" {
					t.Errorf("problem %+v, want %s", p, tt.reason)
				}
			})
		}
	}
}

func TestUpstreamFaultsAtTheDataListener(t *testing.T) {
	u := scheduler.Upstream{Config: upstream.Config{Timeout: 200 * time.Millisecond}}
	u.Retry.Min, u.Retry.Max = 10*time.Millisecond, 10*time.Millisecond
	tests := []struct {
		name     string
		platform http.HandlerFunc // nil: nobody listens
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
		{"answers garbage", func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, "what?\r\n\r\n")
			c.Close()
		}, 504, "unknown", "no_answer"},
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
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				u.URL = "http://" + l.Addr().String()
				l.Close()
			}
			r := newRig(t, u, Refusal{}, tt.platform)
			resp, body := send(t, "POST", r.data.URL+"/?secret=canary", "secret=canary")
			if resp.StatusCode != tt.status || resp.Header.Get("Throttler-Outcome") != tt.outcome || !strings.Contains(body, tt.reason) {
				t.Errorf("status %d, outcome %s, body %s; want %d, %s, %s", resp.StatusCode, resp.Header.Get("Throttler-Outcome"), body, tt.status, tt.outcome, tt.reason)
			}
			_, call := send(t, "GET", r.admin.URL+"/v1/calls/"+resp.Header.Get("Throttler-Call"), "")
			if strings.Contains(body+call+r.logs.String(), "canary") {
				t.Errorf("a secret came out:\n%s\n%s\n%s", body, call, r.logs)
			}
		})
	}
}

// TestClientDisconnects goes away before the slot and after the first byte.
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
	until := func(what string, ok func(st scheduler.UpstreamStatus) bool) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for !ok(r.s.Upstreams()[0]) {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s; %+v", what, r.s.Upstreams()[0])
			}
			time.Sleep(time.Millisecond)
		}
	}
	firstCtx, leaveFirst := context.WithCancel(t.Context())
	first := get(firstCtx, "/first")
	<-inside
	secondCtx, leaveSecond := context.WithCancel(t.Context())
	second := get(secondCtx, "/second")
	until("the second waits", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 1 })
	leaveSecond()
	<-second
	until("the second is cancelled", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 0 })
	leaveFirst()
	<-first
	close(release)
	until("the first has ended", func(st scheduler.UpstreamStatus) bool { return st.Sending == 0 && st.Bytes == 0 })
	third := get(t.Context(), "/third")
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	calls, _ := r.s.List(scheduler.Filter{Max: 10})
	for _, c := range calls {
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
	if resp.StatusCode != 202 || resp.Header.Get("Preference-Applied") != "respond-async" || !strings.HasPrefix(resp.Header.Get("Location"), "http://127.0.0.1:9090/v1/calls/") {
		t.Fatalf("status %d, header %v: %s", resp.StatusCode, resp.Header, body)
	}
	var call scheduler.Call
	json.Unmarshal([]byte(body), &call)
	again, _ := send(t, "POST", r.data.URL+"/refund", "x=1", "Prefer: respond-async", "Idempotency-Key: k1")
	if again.Header.Get("Throttler-Call") != call.ID {
		t.Errorf("the same key gave call %s, want %s", again.Header.Get("Throttler-Call"), call.ID)
	}
	if other, _ := send(t, "POST", r.data.URL+"/refund", "x=2", "Prefer: respond-async", "Idempotency-Key: k1"); other.StatusCode != 422 {
		t.Errorf("the key for another request: %d, want 422", other.StatusCode)
	}
	resp, body = send(t, "GET", r.admin.URL+"/v1/calls/"+call.ID, "", "Prefer: wait=10")
	json.Unmarshal([]byte(body), &call)
	if resp.Header.Get("Preference-Applied") != "wait=10" || call.State != scheduler.Done || string(call.Response.Body) != "late answer" {
		t.Errorf("%v %s", resp.Header, body)
	}
}

func TestAdmin(t *testing.T) {
	got := make(chan string, 10)
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}}}
	r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("X-A"), " ", string(b))
		w.Header().Set("X-B", "2")
		w.WriteHeader(201)
		io.WriteString(w, "created")
	})
	base := r.admin.URL

	resp, body := send(t, "POST", base+"/v1/calls", `{"upstream":"pay","method":"POST","path":"/refunds?a=1","headers":{"X-A":"1"},"body":"x=1"}`)
	var call scheduler.Call
	if err := json.Unmarshal([]byte(body), &call); err != nil || resp.StatusCode != 202 || resp.Header.Get("Location") != "/v1/calls/"+call.ID || call.ETA.IsZero() || call.Priority != 0 {
		t.Fatalf("submit: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if g := <-got; g != "POST /refunds?a=1 1 x=1" {
		t.Errorf("the upstream got %q", g)
	}
	_, body = send(t, "GET", base+"/v1/calls/"+call.ID, "", "Prefer: wait=10")
	if !strings.Contains(body, `"state":"done"`) || !strings.Contains(body, `"response":{"status":201,"headers":{`) || !strings.Contains(body, `"body_base64":"Y3JlYXRlZA=="`) || !strings.Contains(body, `"attempts":[{"n":1,"sent_at":"`) {
		t.Errorf("get: %s", body)
	}

	_, body = send(t, "POST", base+"/v1/calls", `{"upstream":"pay","path":"/","body_base64":"AAE=","priority":7}`)
	var waiting scheduler.Call
	json.Unmarshal([]byte(body), &waiting)
	if waiting.State != scheduler.Waiting || waiting.WaitingFor == nil || waiting.WaitingFor.Limit != "app" || time.Until(waiting.ETA) < 59*time.Minute {
		t.Errorf("a call that waits: %s", body)
	}
	_, body = send(t, "GET", base+"/v1/calls?state=waiting&limit=1", "")
	if !strings.Contains(body, waiting.ID) || strings.Contains(body, call.ID) || strings.Contains(body, `"next"`) {
		t.Errorf("list: %s", body)
	}
	_, body = send(t, "GET", base+"/v1/calls?limit=1", "")
	var first Page
	json.Unmarshal([]byte(body), &first)
	_, body = send(t, "GET", base+"/v1/calls?limit=1&cursor="+first.Next, "")
	if len(first.Calls) != 1 || first.Calls[0].ID != call.ID || !strings.Contains(body, waiting.ID) {
		t.Errorf("pages: %+v, then %s", first, body)
	}
	for path, want := range map[string]string{
		"/v1/upstreams": `"name":"pay"`,
		"/v1/limits":    `"limit":"app","calls":1,"window":"1h0m0s"`,
		"/healthz":      "ok",
		"/readyz":       "ready",
		"/metrics":      `throttler_calls_waiting{upstream="pay"} 1`,
	} {
		if resp, body := send(t, "GET", base+path, ""); resp.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %q is missing in %s", path, resp.StatusCode, want, body)
		}
	}
	if resp, body := send(t, "DELETE", base+"/v1/calls/"+waiting.ID, ""); resp.StatusCode != 200 || !strings.Contains(body, `"state":"cancelled"`) {
		t.Errorf("cancel: %d %s", resp.StatusCode, body)
	}
	if resp, _ := send(t, "DELETE", base+"/v1/calls/"+call.ID, ""); resp.StatusCode != 409 {
		t.Errorf("cancelling what is done: %d, want 409", resp.StatusCode)
	}
	if resp, body := send(t, "POST", base+"/v1/upstreams/pay/pause", `{"for":"1h"}`); resp.StatusCode != 200 || !strings.Contains(body, `"state":"paused"`) {
		t.Errorf("pause: %d %s", resp.StatusCode, body)
	}
	if resp, body := send(t, "POST", base+"/v1/upstreams/pay/resume", ""); resp.StatusCode != 200 || !strings.Contains(body, `"state":"up"`) {
		t.Errorf("resume: %d %s", resp.StatusCode, body)
	}
	if err := testutil.CollectAndCompare(r.metrics.ended, strings.NewReader(`
# HELP throttler_calls_ended_total Calls that finished, or whose outcome is unknown.
# TYPE throttler_calls_ended_total counter
throttler_calls_ended_total{state="cancelled",upstream="pay"} 1
throttler_calls_ended_total{state="done",upstream="pay"} 1
`)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r.metrics, "throttler_calls_accepted_total", "throttler_calls_waiting", "throttler_limit_permits_out", "throttler_wait_seconds"); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

func TestAdminRefusesBadInput(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		want                     string
	}{
		{"empty", "POST", "/v1/calls", "", nil, 400, "the body is empty"},
		{"malformed JSON", "POST", "/v1/calls", `{"upstream":`, nil, 400, "not the JSON"},
		{"two objects", "POST", "/v1/calls", `{"upstream":"pay","path":"/"} {}`, nil, 400, "something follows"},
		{"unknown field", "POST", "/v1/calls", `{"upstrem":"pay"}`, nil, 400, `unknown field \"upstrem\"`},
		{"wrong type", "POST", "/v1/calls", `{"upstream":"pay","priority":"high"}`, nil, 400, "priority"},
		{"no upstream", "POST", "/v1/calls", `{"path":"/"}`, nil, 400, "upstream is missing"},
		{"unknown upstream", "POST", "/v1/calls", `{"upstream":"nope","path":"/"}`, nil, 404, `upstream \"nope\" is not configured`},
		{"no path", "POST", "/v1/calls", `{"upstream":"pay"}`, nil, 400, "must begin with a slash"},
		{"another host", "POST", "/v1/calls", `{"upstream":"pay","path":"http://evil/"}`, nil, 400, "must begin with a slash"},
		{"two bodies", "POST", "/v1/calls", `{"upstream":"pay","path":"/","body":"a","body_base64":"YQ=="}`, nil, 400, "body and body_base64"},
		{"bad base64", "POST", "/v1/calls", `{"upstream":"pay","path":"/","body_base64":"?"}`, nil, 400, "base64"},
		{"header smuggling", "POST", "/v1/calls", `{"upstream":"pay","path":"/","headers":{"X":"a\r\nY: b"}}`, nil, 400, "line break"},
		{"bad deadline", "POST", "/v1/calls", `{"upstream":"pay","path":"/","deadline":"soon"}`, nil, 400, "parsing time"},
		{"unknown call", "GET", "/v1/calls/nope", "", nil, 404, "is not known"},
		{"unknown state", "GET", "/v1/calls?state=lost", "", nil, 400, "state"},
		{"unknown parameter", "GET", "/v1/calls?stat=done", "", nil, 400, "stat"},
		{"bad limit", "GET", "/v1/calls?limit=0", "", nil, 400, "limit"},
		{"no such path", "GET", "/v2/calls", "", nil, 404, "/v2/calls"},
		{"pause without a time", "POST", "/v1/upstreams/pay/pause", `{}`, nil, 400, "until and for"},
		{"pause of a limit that is not there", "POST", "/v1/upstreams/pay/pause", `{"for":"1s","limit":"x"}`, nil, 404, "concurrency"},
		{"another origin", "POST", "/v1/calls", `{"upstream":"pay","path":"/"}`, []string{"Sec-Fetch-Site: cross-site"}, 403, "cross-origin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := send(t, tt.method, r.admin.URL+tt.path, tt.body, tt.header...)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s; want %d and %q", resp.StatusCode, body, tt.status, tt.want)
			}
		})
	}
	t.Run("a name that points to the loopback address", func(t *testing.T) {
		req, _ := http.NewRequest("GET", r.admin.URL+"/v1/upstreams", nil)
		req.Host = "evil.example"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 403 {
			t.Errorf("status %d, want 403", resp.StatusCode)
		}
	})
}
