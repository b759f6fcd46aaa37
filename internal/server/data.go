// Package server puts a scheduler behind HTTP: a data listener for each upstream,
// through which ordinary clients and SDKs send their requests, and the admin API
// with its metrics.
//
//	data, err := server.NewData(s, "alipay", adminAddr, server.Refusal{})
//	admin := server.NewAdmin(s, metrics, ready)
//
// Requests and answers pass byte for byte. What Throttler itself has to say comes
// in Throttler-* headers, or, where there is no answer of the upstream, as a
// refusal in the shape that the platform's SDKs understand.
package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// atOnce is how long a call is given that must not wait at all.
const atOnce = 5 * time.Millisecond

// bodyTimeout is how long a client may take to send its body.
const bodyTimeout = 30 * time.Second

// Data serves the requests of one upstream's clients.
type Data struct {
	s        *scheduler.Scheduler
	upstream string
	maxBody  int64
	refusal  Refusal
	admin    string
	replay   bool
}

// Replay lets a client that sends an Idempotency-Key again have the stored answer:
// such calls are submitted, so that they outlive their client, and waited for.
func (d *Data) Replay() { d.replay = true }

// NewData returns the handler of an upstream's data listener. Admin is the
// address of the admin API, to which a 202 points.
func NewData(s *scheduler.Scheduler, upstream, admin string, refusal Refusal) (*Data, error) {
	maxBody, err := s.MaxBody(upstream)
	return &Data{s: s, upstream: upstream, maxBody: maxBody, refusal: refusal, admin: admin}, err
}

func (d *Data) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recover(w)
	req, err := d.request(w, r)
	if err != nil {
		d.refuse(w, &req, err)
		return
	}
	if prefers(r.Header, "respond-async") != "" {
		d.submit(w, r, req)
		return
	}
	if d.replay && r.Header.Get("Idempotency-Key") != "" {
		d.once(w, r, req)
		return
	}
	resp, call, err := d.s.Do(r.Context(), req)
	if err != nil {
		// Also where the client seems to have gone: one that has only closed its
		// half of the connection must not take an empty 200 for an answer.
		d.refuse(w, &req, gone(err, call))
		return
	}
	defer resp.Body.Close()
	d.forward(w, r, resp, call)
}

// request reads what the client sent.
func (d *Data) request(w http.ResponseWriter, r *http.Request) (scheduler.Request, error) {
	req := scheduler.Request{
		Upstream: d.upstream, Method: r.Method, Target: r.RequestURI,
		Header: scheduler.EndToEnd(r.Header), Priority: scheduler.DataPriority,
	}
	if r.URL.IsAbs() { // the absolute form, as clients of proxies send it
		req.Target = r.URL.RequestURI()
	}
	if r.Header.Get("Upgrade") != "" {
		return req, bad("Upgrade is not forwarded: a call is one request and one answer")
	}
	if err := schedule(&req, r.Header, time.Now()); err != nil {
		return req, err
	}
	deadline := http.NewResponseController(w)
	deadline.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, d.maxBody))
	// A deadline that passes while the client waits for its slot would look as if it had gone.
	deadline.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return req, &scheduler.Error{Reason: scheduler.TooLarge, Upstream: d.upstream, Detail: fmt.Sprintf("the body has more than %d bytes, the most that upstream %q takes (max_body)", d.maxBody, d.upstream)}
	case err != nil:
		return req, bad("the body could not be read: %v", err)
	}
	req.Body = body
	return req, nil
}

// schedule reads the request's wishes from its headers.
func schedule(req *scheduler.Request, h http.Header, now time.Time) error {
	if v := h.Get("Throttler-Max-Wait"); v != "" {
		wait, err := time.ParseDuration(v)
		if err != nil || wait < 0 {
			return bad("Throttler-Max-Wait %q is not a duration such as 1.5s or 300ms", v)
		}
		req.Deadline = now.Add(max(wait, atOnce))
	}
	if v := h.Get("Throttler-Deadline"); v != "" {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return bad("Throttler-Deadline %q is not an instant of RFC 3339 such as 2026-11-21T09:00:00Z", v)
		}
		if req.Deadline.IsZero() || at.Before(req.Deadline) {
			req.Deadline = at
		}
	}
	req.Callback = h.Get("Throttler-Callback")
	if v := h.Get("Throttler-Priority"); v != "" {
		p, err := strconv.Atoi(v)
		if err != nil || p < -scheduler.MaxPriority || p > scheduler.MaxPriority {
			return bad("Throttler-Priority %q is not a whole number from %d to %d", v, -scheduler.MaxPriority, scheduler.MaxPriority)
		}
		req.Priority = p
	}
	return nil
}

func bad(format string, args ...any) error {
	return &scheduler.Error{Reason: scheduler.BadRequest, Detail: fmt.Sprintf(format, args...)}
}

// submit answers a client that does not want to wait.
func (d *Data) submit(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	req.Header.Del("Prefer")
	req.IdempotencyKey = r.Header.Get("Idempotency-Key")
	call, err := d.s.Submit(r.Context(), req)
	if err != nil {
		d.refuse(w, &req, err)
		return
	}
	w.Header().Set("Preference-Applied", "respond-async")
	accepted(w, call, "http://"+d.admin)
}

// forward sends the upstream's answer to the client as it came.
func (d *Data) forward(w http.ResponseWriter, r *http.Request, resp *http.Response, call *scheduler.Call) {
	h := w.Header()
	for name, values := range scheduler.EndToEnd(resp.Header) {
		h[name] = values
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // keeps net/http from guessing
	}
	if length := resp.Header.Get("Content-Length"); length != "" {
		h.Set("Content-Length", length)
	}
	tell(h, call)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil && r.Context().Err() == nil {
		// What the client has must not look whole.
		panic(http.ErrAbortHandler)
	}
}

// gone is the error of a call whose client has gone: what became of the call.
func gone(err error, call *scheduler.Call) error {
	var e *scheduler.Error
	if errors.As(err, &e) {
		return err
	}
	e = &scheduler.Error{Reason: scheduler.Gone, Call: call, Detail: "the client closed its connection before the call was sent"}
	if call != nil && call.Last() != nil {
		e.Reason, e.Detail = scheduler.NoAnswer, "the client closed its connection while call "+call.ID+" was being sent"
	}
	return e
}

// recover answers where a bug would close the connection without an answer, upon
// which some clients send the request again.
func (d *Data) recover(w http.ResponseWriter) {
	bug := recover()
	if bug == nil {
		return
	}
	if bug == http.ErrAbortHandler {
		panic(bug)
	}
	slog.Error("BUG: a request's handler panicked", "upstream", d.upstream, "panic", bug, "stack", string(debug.Stack()))
	d.refuse(w, nil, &scheduler.Error{Reason: scheduler.NoAnswer, Upstream: d.upstream, Detail: "an internal error; the call may have been executed"})
}

func (d *Data) refuse(w http.ResponseWriter, r *scheduler.Request, err error) {
	d.refusal.write(w, asError(err), r)
}

// tell sets the headers that every answer has.
func tell(h http.Header, call *scheduler.Call) {
	if call == nil {
		return
	}
	h.Set("Throttler-Call", call.ID)
	h.Set("Throttler-Wait", strconv.FormatInt(call.Waited(time.Now()).Milliseconds(), 10))
	h.Set("Throttler-Outcome", string(call.Outcome()))
}

// prefers returns the value of a preference (RFC 7240): "" if it is not there, and
// its own name if it has no value.
func prefers(h http.Header, name string) string {
	for _, line := range h["Prefer"] {
		for p := range strings.SplitSeq(line, ",") {
			p, _, _ = strings.Cut(p, ";")
			key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			if strings.EqualFold(strings.TrimSpace(key), name) {
				if value = strings.Trim(strings.TrimSpace(value), `"`); value == "" {
					value = name
				}
				return value
			}
		}
	}
	return ""
}
