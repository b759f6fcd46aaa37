// Package server puts a scheduler behind HTTP: a data listener for each upstream,
// through which ordinary clients and SDKs send their requests, and the admin API
// with its metrics.
//
//	data := &server.Data{Scheduler: s, Upstream: "alipay", Admin: adminAddr}
//	admin := server.NewAdmin(s, metrics, log, ready)
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
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Data serves the requests of one upstream's clients.
type Data struct {
	Scheduler *scheduler.Scheduler
	Upstream  string
	// Admin is the address at which the admin API listens, to which a 202 points.
	Admin string
	// Refusal is the shape of Throttler's own answers.
	Refusal Refusal
	// Observe, if not nil, is told of the refusals that the scheduler's own Observe
	// does not see. It is called by many goroutines.
	Observe func(scheduler.Event)
}

func (d *Data) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := d.request(w, r)
	switch {
	case err != nil:
		d.refuse(w, err)
	case prefers(r.Header, "respond-async") == "respond-async":
		d.submit(w, r, req)
	default:
		d.do(w, r, req)
	}
}

// do answers a client that waits.
func (d *Data) do(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	resp, call, err := d.Scheduler.Do(r.Context(), req)
	switch {
	case err == nil:
		defer resp.Body.Close()
		d.forward(w, r, resp, call)
	case r.Context().Err() == nil:
		d.refuse(w, err)
	} // else nobody is there to be told
}

// submit answers a client that does not want to wait.
func (d *Data) submit(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	req.Header.Del("Prefer")
	req.IdempotencyKey = r.Header.Get("Idempotency-Key")
	if err := checkIdempotencyKey(req.IdempotencyKey); err != nil {
		d.refuse(w, err)
		return
	}
	call, err := d.Scheduler.Submit(r.Context(), req)
	if err != nil {
		d.refuse(w, err)
		return
	}
	w.Header().Set("Preference-Applied", "respond-async")
	accepted(w, call, d.adminURL(r))
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
	for name, values := range scheduler.EndToEnd(resp.Header) {
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

func (d *Data) refuse(w http.ResponseWriter, err error) {
	d.Refusal.write(w, turnAway(d.Observe, d.Upstream, err))
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
