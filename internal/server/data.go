package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/http1"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Data serves the requests of one upstream's clients.
type Data struct {
	Scheduler *scheduler.Scheduler
	Upstream  string
	// Admin is the URL of the admin listener, such as http://127.0.0.1:9090, for the Location
	// of a 202; if it is empty, the Location is a path.
	Admin string
	// Refusal is the shape of Throttler's own answers.
	Refusal Refusal
	// Hosts are names, in lower case and without ports, by which clients may reach the
	// listener beside the upstream's own. With none, only requests to a loopback address
	// are checked.
	Hosts []string
	// Replay answers a repeated Idempotency-Key with the stored response. A call with
	// a key is then submitted, so that it outlives its client.
	Replay bool
	// Refusals, if not nil, keep the refused calls for the admin API.
	Refusals *Refusals
	// Log gets errors for the operator; nil means slog.Default().
	Log *slog.Logger
	// Observe, if not nil, gets the refusals that the scheduler's own Observe does not
	// see. Many goroutines call it.
	Observe func(scheduler.Event)
	// Standby, if not nil, passes the requests that a stop leaves unsent on to the next replica.
	Standby *Standby
}

func (d *Data) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recover(w)
	if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0) {
		// A Content-Length beside chunks is gone by now, and so are chunks of HTTP/1.0. A
		// proxy in front that has gone by the other one would take the rest for the next
		// request: RFC 9112, 6.1.
		w.Header().Set("Connection", "close")
	}
	req, err := d.request(w, r)
	switch {
	case err != nil: // its body may not have been read
		d.refuse(w, nil, &req, told(r, err))
	case submits(r.Header):
		d.submit(w, r, req)
	case d.Replay && r.Header.Get("Idempotency-Key") != "":
		d.replay(w, r, req)
	default:
		d.do(w, r, req)
	}
}

// do answers a client that waits for the response. While its call waits, no goroutine does.
func (d *Data) do(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	c := &client{data: d, w: w, r: r, req: req}
	c.req.IdempotencyKey = r.Header.Get("Idempotency-Key") // counts for durable calls only
	c.req.Client = c
	if !http1.Detaches(w) {
		c.answer(d.Scheduler.Do(r.Context(), c.req))
		return
	}
	waits, resp, call, err := d.Scheduler.Begin(r.Context(), c.req, c.resume)
	if waits {
		http1.Detach(w)
		return
	}
	c.answer(resp, call, err)
}

// A client waits for the response to its request. It implements the Client of a [scheduler.Request].
type client struct {
	data *Data
	w    http.ResponseWriter
	r    *http.Request
	req  scheduler.Request
	left bool // and Leave has answered it
}

// resume answers a client that has waited.
func (c *client) resume(resp *http.Response, call *scheduler.Call, err error) {
	http1.Resume(c.w, func() {
		defer c.data.recover(c.w)
		c.answer(resp, call, err)
	})
}

// answer answers with the results of a call.
func (c *client) answer(resp *http.Response, call *scheduler.Call, err error) {
	switch {
	case c.left:
		return
	case err != nil:
		// Also where the client seems to have disconnected: one that has only closed
		// its half of the connection must not take an empty 200 for a response.
		c.data.refuse(c.w, c.r, &c.req, disconnected(err, call))
		return
	}
	defer resp.Body.Close()
	if call.Repeated { // another request with the same key created it
		c.w.Header().Set(replayed, "true")
	}
	if err := forward(c.w, resp, call); err != nil {
		// The client must not take a part of the body for all of it. It may be there though the context has ended.
		panic(http.ErrAbortHandler)
	}
}

// Left reports whether the client has closed its connection, or its half of it.
func (c *client) Left() bool { return http1.Left(c.r) }

// Leave refuses the request and closes its connection, while the handler goes on with the attempt.
func (c *client) Leave(call *scheduler.Call, err error) {
	c.left = true
	now := http.NewResponseController(c.w)
	defer func() {
		if bug := recover(); bug != nil {
			c.data.logBug(bug)
		}
		if conn, _, err := now.Hijack(); err == nil {
			conn.Close()
		}
	}()
	c.data.refuse(c.w, nil, &c.req, disconnected(err, call))
	now.Flush()
}

// disconnected returns the error of a call after its client has disconnected. Errors
// of the scheduler stay as they are.
func disconnected(err error, call *scheduler.Call) error {
	var e *scheduler.Error
	if errors.As(err, &e) {
		return err
	}
	e = &scheduler.Error{Reason: scheduler.NoAnswer, Detail: "the client closed its connection before the answer came; the call may have been executed"}
	if call == nil { // the scheduler no longer has it
		return e
	}
	if e.Call = unfinishedAsUnknown(call); e.Call.Outcome() == upstream.NotExecuted {
		e.Reason, e.Detail = scheduler.Gone, "the client closed its connection before the call was sent"
	}
	return e
}

// unfinishedAsUnknown returns a copy for a client that does not see the end of the
// call: an unfinished call may yet be executed.
func unfinishedAsUnknown(call *scheduler.Call) *scheduler.Call {
	c := *call
	if !c.State.Finished() {
		c.State = scheduler.Unknown
	}
	return &c
}

// submit answers a client that does not wait for the response.
func (d *Data) submit(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	if kept := withoutAsync(req.Header["Prefer"]); kept != nil {
		req.Header["Prefer"] = kept
	} else {
		delete(req.Header, "Prefer")
	}
	call, err := d.submitWithKey(r, req)
	if err != nil {
		d.refuse(w, r, &req, err)
		return
	}
	w.Header().Set("Preference-Applied", "respond-async")
	setAccepted(w.Header(), call, d.adminURL(r))
	writeJSON(w, http.StatusAccepted, APICall(call))
}

// submitWithKey submits a call under the request's Idempotency-Key.
func (d *Data) submitWithKey(r *http.Request, req scheduler.Request) (*scheduler.Call, error) {
	req.IdempotencyKey = r.Header.Get("Idempotency-Key")
	if err := checkIdempotencyKey(req.IdempotencyKey); err != nil {
		return nil, err
	}
	// Not the request's context: a client that has closed its half of the connection
	// still reads the answer.
	return d.Scheduler.Submit(context.WithoutCancel(r.Context()), req)
}

// adminURL returns the base URL of the admin API for the client of a request. A
// listener on all addresses is reached at the local address of the connection.
func (d *Data) adminURL(r *http.Request) string {
	scheme, addr, _ := strings.Cut(d.Admin, "://")
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return d.Admin
	}
	ip, err := netip.ParseAddr(host)
	if unspecified := host == "" || err == nil && ip.IsUnspecified(); unspecified {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			host, _, _ = net.SplitHostPort(local.String())
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// forward sends a response to the client unchanged, with the headers of its call, if any.
func forward(w http.ResponseWriter, resp *http.Response, call *scheduler.Call) error {
	h := w.Header()
	h["Date"] = nil // the upstream's, if it has one
	for name, values := range upstream.Spelt(upstream.EndToEnd(resp.Header), upstream.AnswerNames(resp)) {
		h[name] = values
	}
	if length := resp.Header["Content-Length"]; len(length) > 0 && length[0] != "" {
		h["Content-Length"] = length[:1:1]
	}
	setCallHeaders(h, call)
	w.WriteHeader(resp.StatusCode)
	return passOn(w, resp.Body)
}

// passOn copies a body to the client. A body in memory is an [io.WriterTo] and goes as a
// whole. Of one that streams, head and bytes are sent as they come: a client that sees
// nothing for long may send its request again.
func passOn(w http.ResponseWriter, body io.Reader) error {
	if whole, ok := body.(io.WriterTo); ok {
		_, err := whole.WriteTo(w)
		return err
	}
	now := http.NewResponseController(w)
	chunk := make([]byte, chunkSize)
	for {
		if err := now.Flush(); err != nil {
			return err
		}
		n, err := body.Read(chunk)
		if _, failed := w.Write(chunk[:n]); failed != nil {
			return failed
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// recover answers a request after its handler has panicked. Some clients send a request
// again when the connection is closed without an answer.
func (d *Data) recover(w http.ResponseWriter) {
	bug := recover()
	if bug == nil {
		return
	}
	if bug == http.ErrAbortHandler {
		panic(bug)
	}
	d.logBug(bug)
	if w.Header().Get("Throttler-Call") != "" { // the response has begun: the client must not take it for complete
		panic(http.ErrAbortHandler)
	}
	d.refuse(w, nil, nil, &scheduler.Error{Reason: scheduler.NoAnswer, Upstream: d.Upstream, Detail: "an internal error; the call may have been executed"})
}

func (d *Data) logBug(bug any) {
	cmp.Or(d.Log, slog.Default()).Error("BUG: a request's handler panicked", "upstream", d.Upstream, "panic", bug, "stack", string(debug.Stack()))
}

// refuse writes an answer of Throttler's own. Its outcome is not_executed or
// unknown, never done: the response of a call that is done is another one. A request that a stop
// has left unsent goes on to the next replica, if there are several: from is the request of the client, nil if it cannot
// go on, because it was not read, or its call has ended.
func (d *Data) refuse(w http.ResponseWriter, from *http.Request, r *scheduler.Request, err error) {
	if from != nil {
		if e := asError(err); goesOn(e) && d.goOn(w, from, r, e.Call, stay{joined: joins(e)}) {
			return
		}
		err = told(from, err)
	}
	e := refused(d.Observe, d.Upstream, err)
	d.Refusals.add(e)
	if e.Outcome() != upstream.NotExecuted || e.Call.Outcome() != upstream.NotExecuted {
		call := *e.Call
		call.State = scheduler.Unknown
		e.Call = &call
	}
	var about *upstream.Request
	if r != nil {
		about = &upstream.Request{Method: r.Method, Target: r.Target, Header: r.Header, Body: r.Body}
	}
	d.Refusal.write(w, e, about)
}

// goOn leaves a request that a stop has left unsent to the next replica; false if there is none. A request that
// another replica has passed on to this one is left to that. At tells whether a call stands for it.
func (d *Data) goOn(w http.ResponseWriter, r *http.Request, req *scheduler.Request, call *scheduler.Call, at stay) (passed bool) {
	switch {
	case overLink(r):
		leave(w, at)
		return true
	case d.Standby == nil:
		return false
	}
	before := stayOf(r)
	at.doubt, at.joined = at.doubt || before.doubt, at.joined || before.joined
	at.since = time.Now()
	if call != nil {
		at.since = call.AcceptedAt
	}
	at.latest = d.Standby.latest(r.Header, at.since)
	if call != nil && !call.Deadline.IsZero() && call.Deadline.Before(at.latest) {
		at.latest = call.Deadline
	}
	d.Standby.pass(w, r, req.Body, at)
	return true
}

// setAccepted sets the headers of a 202; base is the URL of the admin API, or its prefix. The outcome of
// a call that waits is accepted: not_executed would tell the client to send it again.
func setAccepted(h http.Header, call *scheduler.Call, base string) {
	h.Set("Location", base+"/v1/calls/"+call.ID)
	setCallHeaders(h, call)
	if call.State == scheduler.Waiting || call.State == scheduler.Sending {
		h.Set("Throttler-Outcome", standing)
	}
}

// setCallHeaders sets the headers of every answer to a call.
func setCallHeaders(h http.Header, call *scheduler.Call) {
	if call != nil {
		call.SetHeaders(h, time.Now())
	}
}
