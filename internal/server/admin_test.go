package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

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
	var call api.Call
	if err := json.Unmarshal([]byte(body), &call); err != nil || resp.StatusCode != 202 || resp.Header.Get("Location") != "/v1/calls/"+call.ID || call.ETA.IsZero() || call.Priority != 0 {
		t.Fatalf("submit: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if g := <-got; g != "POST /refunds?a=1 1 x=1" {
		t.Errorf("the upstream got %q", g)
	}
	_, body = send(t, "GET", base+"/v1/calls/"+call.ID+"?include=response", "", "Prefer: wait=10")
	if !strings.Contains(body, `"state":"done"`) || !strings.Contains(body, `"response":{"status":201,"headers":{`) || !strings.Contains(body, `"body_base64":"Y3JlYXRlZA=="`) || !strings.Contains(body, `"attempts":[{"n":1,"sent_at":"`) {
		t.Errorf("get: %s", body)
	}

	_, body = send(t, "POST", base+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/","body_base64":"AAE=","priority":7}`)
	var waiting api.Call
	json.Unmarshal([]byte(body), &waiting)
	if waiting.State != api.Waiting || waiting.WaitingFor == nil || waiting.WaitingFor.Limit != "app" || time.Until(waiting.ETA.Time) < 59*time.Minute {
		t.Errorf("a call that waits: %s", body)
	}
	_, body = send(t, "GET", base+"/v1/calls?state=waiting&page_size=2", "")
	if !strings.Contains(body, waiting.ID) || strings.Contains(body, call.ID) || strings.Contains(body, `"next"`) {
		t.Errorf("list: %s", body)
	}
	_, body = send(t, "GET", base+"/v1/calls?page_size=1", "")
	var first api.Calls
	json.Unmarshal([]byte(body), &first)
	_, body = send(t, "GET", base+"/v1/calls?page_size=1&cursor="+first.Next, "")
	if len(first.Calls) != 1 || first.Calls[0].ID != waiting.ID || !strings.Contains(body, call.ID) {
		t.Errorf("pages, the newest call first: %+v, then %s", first, body)
	}
	for path, want := range map[string]string{
		"/v1/upstreams": `"name":"pay"`,
		"/v1/limits":    `"limit":"app","kind":"sliding","permits":1,"window_ms":3600000`,
		"/healthz":      "ok",
		"/readyz":       "ready",
		"/metrics":      `throttler_calls_waiting{upstream="pay"} 1`,
	} {
		if resp, body := send(t, "GET", base+path, ""); resp.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %q is missing in %s", path, resp.StatusCode, want, body)
		}
	}
	if resp, body := send(t, "POST", base+"/v1/calls/"+waiting.ID+"/cancel", `{"reason":"ordered twice"}`); resp.StatusCode != 200 || !strings.Contains(body, `"state":"cancelled"`) {
		t.Errorf("cancel: %d %s", resp.StatusCode, body)
	}
	resp, body = send(t, "POST", base+"/v1/calls/"+call.ID+"/cancel", "")
	if resp.StatusCode != 409 || resp.Header.Get("Throttler-Call") != call.ID || resp.Header.Get("Throttler-Outcome") != "" || strings.Contains(body, `"outcome"`) {
		t.Errorf("cancelling a call that is done: %d, %v, %s", resp.StatusCode, resp.Header, body)
	}
	_, body = send(t, "POST", base+"/v1/pauses", `{"upstream":"pay","for":"1h"}`)
	var paused api.Pause
	if json.Unmarshal([]byte(body), &paused); paused.Upstream != "pay" || r.upstream(t).State != "paused" {
		t.Errorf("pause: %s; the upstream is %s", body, r.upstream(t).State)
	}
	if body := talk(t, r.admin.addr, "DELETE /v1/pauses/"+paused.ID+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"); !strings.HasPrefix(body, "HTTP/1.1 200 ") || r.upstream(t).State != "up" {
		t.Errorf("the end of a pause, with an empty chunked body: %s; the upstream is %s", body, r.upstream(t).State)
	}
	if resp, body := send(t, "POST", base+"/v1/config/reload", ""); resp.StatusCode != 200 || body != `{"changes":[]}`+"\n" {
		t.Errorf("reload: %d %s", resp.StatusCode, body)
	}
	for _, want := range []string{
		`msg="admin: cancel" by=anyone from=127.0.0.1:`,
		` upstream=pay call=` + waiting.ID + ` before=waiting after="taken back" reason="ordered twice"`,
		`msg="admin: pause" by=anyone from=127.0.0.1:`,
		` upstream=pay after="until `,
		`msg="admin: resume" by=anyone from=127.0.0.1:`,
		` upstream=pay before="paused until `,
		`msg="a call has ended" call=` + call.ID + " upstream=pay state=done outcome=done wait=",
	} {
		if !strings.Contains(r.logs.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, r.logs)
		}
	}
}

// TestListsAreSmall: a list has no responses, in which 1,000 calls may have gigabytes.
func TestListsAreSmall(t *testing.T) {
	answer := strings.Repeat("x", 100_000)
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) })
	var call api.Call
	for range 20 {
		_, body := send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/"}`)
		json.Unmarshal([]byte(body), &call)
		_, body = send(t, "GET", r.admin.URL+"/v1/calls/"+call.ID+"?include=response", "", "Prefer: wait=10")
		if json.Unmarshal([]byte(body), &call); call.State != api.Done || call.Response == nil || string(call.Response.Body) != answer {
			t.Fatalf("one call is %s, and has %d bytes", call.State, len(body))
		}
	}
	_, list := send(t, "GET", r.admin.URL+"/v1/calls", "")
	var page api.Calls
	if err := json.Unmarshal([]byte(list), &page); err != nil || len(page.Calls) != 20 || len(list) > 20_000 {
		t.Fatalf("%d calls in %d bytes, %v", len(page.Calls), len(list), err)
	}
	last := page.Calls[0]
	if last.ID != call.ID || last.AttemptCount != 1 || last.LastAttempt.Status != 200 {
		t.Errorf("the last call: %+v", last)
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
		{"two objects", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/"} {}`, nil, 400, "something follows"},
		{"unknown field", "POST", "/v1/calls", `{"upstrem":"pay"}`, nil, 400, `unknown field \"upstrem\"`},
		{"wrong type", "POST", "/v1/calls", `{"upstream":"pay","priority":"high"}`, nil, 400, "priority cannot be a JSON string"},
		{"no object", "POST", "/v1/calls", `[]`, nil, 400, "it is a JSON array"},
		{"a header of the connection", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","headers":{"host":"evil"}}`, nil, 400, "Host cannot be given"},
		{"a length", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","headers":{"Content-Length":"1"}}`, nil, 400, "Content-Length cannot be given"},
		{"a long idempotency key", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","idempotency_key":"` + strings.Repeat("k", 256) + `"}`, nil, 400, "has 256 bytes"},
		{"no upstream", "POST", "/v1/calls", `{"path":"/"}`, nil, 400, "upstream is missing"},
		{"unknown upstream", "POST", "/v1/calls", `{"upstream":"nope","method":"GET","path":"/"}`, nil, 404, `upstream \"nope\" is not configured`},
		{"no path", "POST", "/v1/calls", `{"upstream":"pay","method":"GET"}`, nil, 400, "target is missing"},
		{"no method", "POST", "/v1/calls", `{"upstream":"pay","path":"/"}`, nil, 400, "method is missing"},
		{"an unknown member", "POST", "/v1/calls", `{"upstream":"pay","url":"/"}`, nil, 400, `unknown field \"url\"; there are upstream, method, target, path, headers, body,`},
		{"an unknown member of a pause", "POST", "/v1/pauses", `{"upstream":"pay","for":"1h","because":"x"}`, nil, 400, `unknown field \"because\"; there are upstream, limit, key, until, for, reason`},
		{"an empty pause", "POST", "/v1/pauses", "", nil, 400, "the body is empty; send a JSON object; its members are upstream, limit, key, until, for, reason"},
		{"a pause for a number", "POST", "/v1/pauses", `{"upstream":"pay","for":3600}`, nil, 400, "for cannot be a JSON number, must be a text"},
		{"a pause with a long reason", "POST", "/v1/pauses", `{"upstream":"pay","for":"1h","reason":"` + strings.Repeat("x", 501) + `"}`, nil, 400, "reason has 501 bytes; at most 500 are kept"},
		{"a pause with a reason for terminals", "POST", "/v1/pauses", `{"upstream":"pay","for":"1h","reason":"\u001b[2J"}`, nil, 400, "without control characters"},
		{"another host", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"http://evil/"}`, nil, 400, "must begin with a slash"},
		{"two bodies", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","body":"a","body_base64":"YQ=="}`, nil, 400, "body and body_base64"},
		{"bad base64", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","body_base64":"?"}`, nil, 400, "base64"},
		{"header smuggling", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","headers":{"X":"a\r\nY: b"}}`, nil, 400, "line break"},
		{"bad deadline", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/","deadline":"soon"}`, nil, 400, `\"soon\" is not an instant`},
		{"unknown call", "GET", "/v1/calls/nope", "", nil, 404, "is not known"},
		{"unknown state", "GET", "/v1/calls?state=lost", "", nil, 400, "state"},
		{"unknown parameter", "GET", "/v1/calls?stat=done", "", nil, 400, "stat"},
		{"unknown parameter of limits", "GET", "/v1/limits?page_size=1", "", nil, 400, "there are: upstream"},
		{"unknown parameter of upstreams", "GET", "/v1/upstreams?name=pay", "", nil, 400, "there are no parameters here"},
		{"unknown parameter of a call", "GET", "/v1/calls/nope?wait=10", "", nil, 400, "send the header Prefer: wait=10"},
		{"limits of an unknown upstream", "GET", "/v1/limits?upstream=nope", "", nil, 404, `upstream \"nope\" is not configured`},
		{"bad limit", "GET", "/v1/calls?page_size=0", "", nil, 400, "page_size"},
		{"limit twice", "GET", "/v1/calls?page_size=1&page_size=500", "", nil, 400, "2 times"},
		{"cursor that is none", "GET", "/v1/calls?cursor=x", "", nil, 400, "cursor"},
		{"calls of no upstream", "GET", "/v1/calls?upstream=nope", "", nil, 404, "nope"},
		{"wrong method", "PUT", "/v1/calls", "", nil, 405, "takes GET, HEAD, POST"},
		{"no such path", "GET", "/v2/calls", "", nil, 404, "/v2/calls"},
		{"pause without a time", "POST", "/v1/pauses", `{"upstream":"pay"}`, nil, 400, "until and for"},
		{"pause with two times", "POST", "/v1/pauses", `{"upstream":"pay","for":"1s","until":"2999-01-01T00:00:00Z"}`, nil, 400, "until and for are both there"},
		{"pause in the past", "POST", "/v1/pauses", `{"upstream":"pay","until":"2001-01-01T00:00:00Z"}`, nil, 400, "has passed"},
		{"pause of a key of nothing", "POST", "/v1/pauses", `{"upstream":"pay","for":"1s","key":"k"}`, nil, 400, "without a limit"},
		{"pause of no upstream", "POST", "/v1/pauses", `{"for":"1h"}`, nil, 400, "upstream is missing"},
		{"pause of an unknown upstream", "POST", "/v1/pauses", `{"upstream":"nope","for":"1h"}`, nil, 404, "not configured"},
		{"end of an unknown pause", "DELETE", "/v1/pauses/nope", "", nil, 404, "there is no pause nope"},
		{"end of a pause with a long reason", "DELETE", "/v1/pauses/nope?reason=" + strings.Repeat("x", 501), "", nil, 400, "reason has 501 bytes"},
		{"pause with a wrong type", "POST", "/v1/pauses", `{"upstream":"pay","limit":1}`, nil, 400, ": limit cannot be a JSON number"},
		{"pause of a limit that is not there", "POST", "/v1/pauses", `{"upstream":"pay","for":"1s","limit":"x"}`, nil, 404, "concurrency"},
		{"another origin", "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/"}`, []string{"Sec-Fetch-Site: cross-site"}, 403, "cross-origin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := send(t, tt.method, r.admin.URL+tt.path, tt.body, tt.header...)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s; want %d and %q", resp.StatusCode, body, tt.status, tt.want)
			}
			if resp.Header.Get("Content-Type") != "application/problem+json" || resp.Header.Get("Throttler-Outcome") != "" || strings.Contains(body, `"outcome"`) {
				t.Errorf("%v, %s: want a problem without an outcome", resp.Header, body)
			}
			if allow := resp.Header.Get("Allow"); (allow != "") != (tt.status == 405) {
				t.Errorf("Allow %q", allow)
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
		if resp.StatusCode != 421 {
			t.Errorf("status %d, want 421", resp.StatusCode)
		}
	})
}

// TestCallsThatCannotBeSent: calls whose signed requests are malformed fail one by one,
// however many and urgent they are. The upstream stays up, and its clients get answers.
func TestCallsThatCannotBeSent(t *testing.T) {
	u := scheduler.Upstream{}
	u.Signer = signs(func(r *upstream.Request) {
		if r.Target == "/bad" {
			r.Header.Set("X-Note", "a\x01b")
		}
	})
	r := newRig(t, u, Refusal{}, func(_ http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/bad" {
			t.Error("a malformed call was sent")
		}
	})
	var ids []string
	for range 1051 {
		c, err := r.s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Target: "/bad", Header: http.Header{"X-A": {"1"}}, Priority: scheduler.MaxPriority})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			if resp, body := send(t, "GET", r.data.URL+"/good", "", "Throttler-Max-Wait: 5s"); resp.StatusCode != 200 {
				t.Errorf("a client got %d: %s", resp.StatusCode, body)
			}
		})
	}
	clients.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, id := range ids {
		c, err := r.s.Wait(ctx, id)
		if err != nil || c.State != scheduler.Failed || len(c.Attempts) != 1 || c.Last().Outcome != upstream.NotExecuted || !strings.Contains(c.Last().Reason, "X-Note") {
			t.Fatalf("a malformed call ended as %+v, %v", c, err)
		}
	}
	if st := r.upstream(t); st.State != "up" {
		t.Errorf("the upstream is %s", st.State)
	}
	resp, body := send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/x","headers":{"X-Note":"a\u0001b"}}`)
	if resp.StatusCode != 400 || !strings.Contains(body, "X-Note") {
		t.Errorf("a submission with a control byte: %d %s", resp.StatusCode, body)
	}
}

type signs func(*upstream.Request)

func (f signs) Sign(_ context.Context, r *upstream.Request) error { f(r); return nil }
