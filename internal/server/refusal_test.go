package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestRefusals(t *testing.T) {
	u := scheduler.Upstream{
		MaxBody: 100, MaxWait: 500 * time.Millisecond,
		Limits: []scheduler.Limit{
			{Name: "app", PerKey: `param("app_id")`, Calls: 1, Window: time.Hour},
			{Name: "dear", When: `path == "/dear"`, Calls: 1, Window: time.Hour, Cost: "2"},
		},
	}
	alipay := Refusal{Header: http.Header{"Content-Type": {"text/html;charset=utf-8"}}, Body: func(p api.Problem, _ *upstream.Request) ([]byte, error) {
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
		{"idempotency key", "POST", "/?app_id=x", "", []string{"Prefer: respond-async", "Idempotency-Key: " + strings.Repeat("k", 256)}, 400, "bad_request"},
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
				resp, body := send(t, tt.method, r.data.URL+tt.target, tt.body, tt.header...)
				if resp.StatusCode != tt.status || resp.Header.Get("Throttler-Outcome") != "not_executed" {
					t.Errorf("status %d, outcome %q: %s", resp.StatusCode, resp.Header.Get("Throttler-Outcome"), body)
				}
				if tt.status == 429 && resp.Header.Get("Retry-After") == "" {
					t.Error("Retry-After is missing")
				}
				if _, err := strconv.ParseUint(resp.Header.Get("Throttler-Wait"), 10, 64); err != nil || resp.Header.Get("Throttler-Call") == "" {
					t.Errorf("Throttler's own headers: %v", resp.Header)
				}
				if shape == "platform" {
					if want := fmt.Sprintf(`{"error_response":{"code":"40005","sub_msg":"%s %d not_executed"}}`, tt.reason, tt.status); body != want {
						t.Errorf("body %s, want %s", body, want)
					}
					return
				}
				var p api.Problem
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

type signFunc func(*upstream.Request) error

func (f signFunc) Sign(_ context.Context, r *upstream.Request) error { return f(r) }

// TestOutcomesOfRefusals: the outcome of Throttler's own answer is not_executed or
// unknown, also of a call that cannot be signed, and of one that is done but without a
// stored response.
func TestOutcomesOfRefusals(t *testing.T) {
	u := scheduler.Upstream{}
	u.MaxInspect = 10
	u.Signer = signFunc(func(r *upstream.Request) error {
		if r.Target == "/unsigned" {
			return errors.New("no such app")
		}
		return nil
	})
	r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "more than ten bytes") })
	srv := httptest.NewServer(&Data{Scheduler: r.s, Upstream: "pay", Replay: true})
	defer srv.Close()
	for _, tt := range []struct {
		path, header string
		status       int
		outcome      string
	}{
		{"/unsigned", "X-A: b", 500, "not_executed"},
		{"/unsigned", "Idempotency-Key: k1", 500, "not_executed"},
		{"/long", "Idempotency-Key: k2", 504, "unknown"},
	} {
		resp, body := send(t, "POST", srv.URL+tt.path, "a", tt.header)
		var p api.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != tt.status || p.Outcome != tt.outcome || resp.Header.Get("Throttler-Outcome") != tt.outcome {
			t.Errorf("%s: %d, %s, %s, %v; want %d, %s", tt.path, resp.StatusCode, resp.Header.Get("Throttler-Outcome"), body, err, tt.status, tt.outcome)
		}
	}
}

func TestUnknownCallback(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	if resp, body := send(t, "POST", r.data.URL+"/", "a", "Prefer: respond-async", "Throttler-Callback: shop"); resp.StatusCode != 400 || !strings.Contains(body, `callback \"shop\" is not one of`) {
		t.Errorf("data: %d %s", resp.StatusCode, body)
	}
	if resp, body := send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/","callback":"shop"}`); resp.StatusCode != 400 {
		t.Errorf("admin: %d %s", resp.StatusCode, body)
	}
}

type signerDownError struct{}

func (signerDownError) Error() string   { return "no such file" }
func (signerDownError) Temporary() bool { return true }

// TestRefusalsNameTheirReason: a refusal names the one bound that the call would pass, and a
// signer that is down is not taken for an upstream that is.
func TestRefusalsNameTheirReason(t *testing.T) {
	u := scheduler.Upstream{MaxWait: time.Minute, MaxAge: 10 * time.Minute, Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}}}
	u.Retry.Min, u.Retry.Max = 10*time.Millisecond, 10*time.Millisecond
	u.Signer = signFunc(func(r *upstream.Request) error {
		if r.Target == "/unsigned" {
			return signerDownError{}
		}
		return nil
	})
	r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	for _, tt := range []struct {
		path, header string
		status       int
		title, want  string
	}{
		{"/unsigned", "X-A: b", 502, "The signer fails for now", `: signer: no such file; nothing was executed","reason":"signer_down"`},
		{"/", "X-A: b", 200, "", ""},
		{"/", "X-A: b", 429, "No slot in time", `Z: max_wait of upstream \"pay\", 1m0s): all permits of limit`},
		{"/", "Throttler-Max-Wait: 1s", 429, "No slot in time", `Z: the deadline that its caller set)`},
		{"/", "Prefer: respond-async", 429, "No slot in time", `Z: max_age of upstream \"pay\", 10m0s)`},
	} {
		r.until(t, "up", func(u scheduler.UpstreamStatus) bool { return u.State == "up" || tt.status == 200 })
		resp, body := send(t, "GET", r.data.URL+tt.path, "", tt.header)
		if resp.StatusCode != tt.status || tt.title != "" && !strings.Contains(body, `"title":"`+tt.title+`"`) || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s; want %d, %q, %s", tt.path, tt.header, resp.StatusCode, body, tt.status, tt.title, tt.want)
		}
	}
}

// TestETAIsNotBeforeNotBefore: clocks are read one after the other, which shows in nanoseconds.
func TestETAIsNotBeforeNotBefore(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	for range 50 {
		_, body := send(t, "POST", r.admin.URL+"/v1/calls", fmt.Sprintf(`{"upstream":"pay","method":"GET","path":"/","not_before":%q}`, at.Format(time.RFC3339)))
		var call api.Call
		if err := json.Unmarshal([]byte(body), &call); err != nil || call.ETA.Before(at) || call.ETA.Sub(at) > time.Millisecond || call.WaitingFor == nil || call.WaitingFor.Until.Before(at) {
			t.Fatalf("%v in %s", err, body)
		}
	}
}
