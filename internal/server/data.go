// Package server puts a scheduler behind HTTP: a data listener for each upstream,
// through which ordinary clients and SDKs send their requests, and the admin API
// with its metrics.
//
//	data := &server.Data{Scheduler: s, Upstream: "alipay", Admin: adminAddr}
//	admin := server.NewAdmin(s, metrics, log, observe, ready)
//	go server.New(data, log).Serve(listener)
//
// Requests and answers pass byte for byte. What Throttler itself has to say comes
// in Throttler-* headers, or, where there is no answer of the upstream, as a
// refusal in the shape that the platform's SDKs understand.
//
// # What does not pass
//
// One hop's own: the fields of RFC 9110, section 7.6.1, interim answers (1xx), and
// trailers in either direction. What cannot be read as a request at all, such as
// the target /%zz or a head above 16 KiB, net/http answers by itself, in plain text.
package server

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Data serves the requests of one upstream's clients.
type Data struct {
	Scheduler *scheduler.Scheduler
	Upstream  string
	// Admin is the address at which the admin API listens, to which a 202 points.
	Admin string
	// Refusal is the shape of Throttler's own answers.
	Refusal Refusal
	// Replay lets a client that sends an Idempotency-Key again have the stored answer:
	// such calls are submitted, so that they outlive their client, and waited for.
	Replay bool
	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
	// Observe, if not nil, is told of the refusals that the scheduler's own Observe
	// does not see. It is called by many goroutines.
	Observe func(scheduler.Event)
}

func (d *Data) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recover(w)
	req, err := d.request(w, r)
	switch {
	case err != nil:
		d.refuse(w, &req, err)
	case prefers(r.Header, "respond-async") == "respond-async":
		d.submit(w, r, req)
	case d.Replay && r.Header.Get("Idempotency-Key") != "":
		d.once(w, r, req)
	default:
		d.do(w, r, req)
	}
}

// do answers a client that waits.
func (d *Data) do(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	req.IdempotencyKey = r.Header.Get("Idempotency-Key") // counts for durable calls only
	began := time.Now()
	resp, call, err := d.Scheduler.Do(r.Context(), req)
	if err != nil {
		// Also where the client seems to have gone: one that has only closed its
		// half of the connection must not take an empty 200 for an answer.
		d.refuse(w, &req, gone(err, call))
		return
	}
	defer resp.Body.Close()
	if call.AcceptedAt.Before(began) { // another request with the key had it made
		w.Header().Set(replayed, "true")
	}
	d.forward(w, r, resp, call)
}

// gone is the error of a call whose client has gone: what became of the call.
func gone(err error, call *scheduler.Call) error {
	var e *scheduler.Error
	if errors.As(err, &e) {
		return err
	}
	e = &scheduler.Error{Reason: scheduler.NoAnswer, Detail: "the client closed its connection before the answer came; the call may have been executed"}
	if call == nil { // nobody can tell any more
		return e
	}
	if e.Call = undecided(call); e.Call.Outcome() == notExecuted {
		e.Reason, e.Detail = scheduler.Gone, "the client closed its connection before the call was sent"
	}
	return e
}

// undecided returns a call as its client is told of it who does not see its end:
// what has not finished may yet be executed.
func undecided(call *scheduler.Call) *scheduler.Call {
	told := *call
	if !told.State.Finished() {
		told.State = scheduler.Unknown
	}
	return &told
}

// submit answers a client that does not want to wait.
func (d *Data) submit(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	req.Header.Del("Prefer")
	call, err := d.handOver(r, req)
	if err != nil {
		d.refuse(w, &req, err)
		return
	}
	w.Header().Set("Preference-Applied", "respond-async")
	accepted(w, call, d.adminURL(r))
}

// handOver submits a call under the request's Idempotency-Key.
func (d *Data) handOver(r *http.Request, req scheduler.Request) (*scheduler.Call, error) {
	req.IdempotencyKey = r.Header.Get("Idempotency-Key")
	if err := checkIdempotencyKey(req.IdempotencyKey); err != nil {
		return nil, err
	}
	return d.Scheduler.Submit(r.Context(), req)
}

// adminURL returns where the client of a request finds the admin API. One that
// listens everywhere is also at the address that the client has reached.
func (d *Data) adminURL(r *http.Request) string {
	host, port, err := net.SplitHostPort(d.Admin)
	if err != nil {
		return "http://" + d.Admin
	}
	ip, err := netip.ParseAddr(host)
	if everywhere := host == "" || err == nil && ip.IsUnspecified(); everywhere {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			host, _, _ = net.SplitHostPort(local.String())
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// forward sends the upstream's answer to the client as it came.
func (d *Data) forward(w http.ResponseWriter, r *http.Request, resp *http.Response, call *scheduler.Call) {
	h := w.Header()
	h["Content-Type"], h["Date"] = nil, nil // keeps net/http from adding its own
	for name, values := range upstream.EndToEnd(resp.Header) {
		h[name] = values
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
	cmp.Or(d.Log, slog.Default()).Error("BUG: a request's handler panicked", "upstream", d.Upstream, "panic", bug, "stack", string(debug.Stack()))
	if w.Header().Get("Throttler-Call") != "" { // the answer has begun, and must not look whole
		panic(http.ErrAbortHandler)
	}
	d.refuse(w, nil, &scheduler.Error{Reason: scheduler.NoAnswer, Upstream: d.Upstream, Detail: "an internal error; the call may have been executed"})
}

// refuse gives an answer that is Throttler's own. Whoever gets one knows of the call
// that it was not executed, or else must query: also of one that is known to be
// done, of which this is not the answer.
func (d *Data) refuse(w http.ResponseWriter, r *scheduler.Request, err error) {
	e := turnAway(d.Observe, d.Upstream, err)
	if e.Call.Outcome() != notExecuted {
		told := *e.Call
		told.State = scheduler.Unknown
		e.Call = &told
	}
	d.Refusal.write(w, e, r)
}

// tell sets the headers that every answer to a call has.
func tell(h http.Header, call *scheduler.Call) {
	if call == nil {
		return
	}
	h.Set("Throttler-Call", call.ID)
	h.Set("Throttler-Wait", strconv.FormatInt(call.Waited(time.Now()).Milliseconds(), 10))
	h.Set("Throttler-Outcome", string(call.Outcome()))
}
