package server

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/http1"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// atOnce is the time that a call with a max wait of 0 gets to be sent in.
const atOnce = 5 * time.Millisecond

// maxIdempotencyKey bounds an idempotency key, in bytes.
const maxIdempotencyKey = 255

// request reads a client's request.
func (d *Data) request(w http.ResponseWriter, r *http.Request) (scheduler.Request, error) {
	req := scheduler.Request{
		Upstream: d.Upstream, Method: r.Method, Target: target(r),
		Header: upstream.EndToEnd(r.Header), Names: fieldNames(r), Priority: scheduler.DataPriority, NoCopy: true, Origin: scheduler.OriginData,
	}
	u, known := d.Scheduler.Upstream(d.Upstream)
	if !known {
		return req, notConfigured(d.Upstream)
	}
	if err := cmp.Or(crossSite(r), rebound(r, len(d.Hosts) > 0, func() []string { return d.names(u.URL) })); err != nil {
		return req, err
	}
	body, release, err := readBody(w, r, min(u.MaxBody, u.MaxWaitingBytes), d.reserve)
	if err != nil {
		return req, err
	}
	release() // from here on the call itself counts as waiting
	req.Body = body
	if r.Header.Get("Upgrade") != "" {
		return req, badRequest("Upgrade is not forwarded: a call is one request and one answer")
	}
	if err := cmp.Or(knownHeaders(r.Header), schedule(&req, r.Header, time.Now())); err != nil {
		return req, err
	}
	if req.Callback != "" && !submits(r.Header) {
		return req, badRequest("Throttler-Callback is for calls that are submitted; send Prefer: respond-async with it")
	}
	return req, nil
}

// fieldNames returns the names of fields that the client has spelt otherwise than the keys of r.Header.
func fieldNames(r *http.Request) []string {
	if p := link.From(r.Context()); p != nil {
		return p.Names
	}
	return http1.Names(r)
}

// reserve reserves memory for a part of a body. After a stop, that of requests that wait for the next replica has room for
// it: the whole request goes on there.
func (d *Data) reserve(bytes int64) (release func(), err error) {
	release, err = d.Scheduler.Reserve(d.Upstream, bytes)
	if d.Standby != nil && errors.Is(err, scheduler.Stopping) {
		return d.Standby.Room.reserve(bytes)
	}
	return release, err
}

// ownHeaders are the headers that tell Throttler how to treat a request.
var ownHeaders = []string{"Throttler-Max-Wait", "Throttler-Deadline", "Throttler-Priority", "Throttler-Callback"}

// knownHeaders refuses headers that are meant for Throttler and that it does not know: a
// misspelt one would count for nothing. Headers of its answers may come back.
func knownHeaders(h http.Header) error {
	for name := range h {
		if strings.HasPrefix(name, "Throttler-") && !slices.Contains(ownHeaders, name) && !slices.Contains(answerHeaders, name) {
			return badRequest("header %s is unknown; there are %s", name, strings.Join(ownHeaders, ", "))
		}
	}
	return nil
}

// answerHeaders are those of every answer to a call; a client that copies headers from one
// request to the next may send them.
var answerHeaders = []string{"Throttler-Call", "Throttler-Wait", "Throttler-Outcome"}

// names returns the host names of the listener. Clients that take it for a proxy send the
// upstream's own.
func (d *Data) names(upstream string) []string {
	names := slices.Clone(d.Hosts)
	if u, err := url.Parse(upstream); err == nil {
		names = append(names, access.Hostname(u.Host))
	}
	return names
}

// target returns the request target in its origin form, byte for byte. Clients of
// proxies send the absolute form.
func target(r *http.Request) string {
	t := r.RequestURI
	if r.URL.Scheme == "" || !strings.HasPrefix(t[len(r.URL.Scheme):], "://") {
		return t
	}
	t = t[len(r.URL.Scheme)+len("://"):]
	if i := strings.IndexAny(t, "/?#"); i < 0 {
		return "/"
	} else if t = t[i:]; t[0] != '/' {
		return "/" + t
	}
	return t
}

// schedule reads the deadline, the callback and the priority from the headers.
func schedule(req *scheduler.Request, h http.Header, now time.Time) error {
	if v := h.Get("Throttler-Max-Wait"); v != "" {
		wait, err := time.ParseDuration(v)
		if err != nil || wait < 0 {
			return badRequest("Throttler-Max-Wait %q is not a duration such as 1.5s or 300ms", v)
		}
		req.Deadline = now.Add(max(wait, atOnce))
	}
	if v := h.Get("Throttler-Deadline"); v != "" {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return badRequest("Throttler-Deadline %q is not an instant of RFC 3339 such as 2026-11-21T09:00:00Z", v)
		}
		if req.Deadline.IsZero() || at.Before(req.Deadline) {
			req.Deadline = at
		}
	}
	req.Callback = h.Get("Throttler-Callback")
	if v := h.Get("Throttler-Priority"); v != "" {
		p, err := strconv.Atoi(v)
		if err != nil || p < -scheduler.MaxPriority || p > scheduler.MaxPriority {
			return badRequest("Throttler-Priority %q is not a whole number from %d to %d", v, -scheduler.MaxPriority, scheduler.MaxPriority)
		}
		req.Priority = p
	}
	return nil
}

func checkIdempotencyKey(key string) error {
	if len(key) > maxIdempotencyKey {
		return badRequest("the idempotency key has %d bytes, at most %d are taken; a UUID has 36", len(key), maxIdempotencyKey)
	}
	return nil
}
