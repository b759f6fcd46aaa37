package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Transport returns an http.RoundTripper that sends requests as calls of an
// upstream and waits for the answer; see [Scheduler.Do]. Scheme and host of a
// request are replaced by the upstream's, whatever the client has configured.
// The deadline of a request's context is that of its call. Errors are [*Error]s.
func (s *Scheduler) Transport(upstream string) http.RoundTripper {
	return &transport{s, upstream}
}

type transport struct {
	s        *Scheduler
	upstream string
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := t.body(req)
	if err != nil {
		return nil, err
	}
	resp, _, err := t.s.Do(req.Context(), Request{
		Upstream: t.upstream, Method: req.Method, Target: req.URL.RequestURI(),
		Header: EndToEnd(req.Header), Body: body, Priority: DataPriority,
	})
	if err != nil {
		return nil, err
	}
	resp.Request = req
	return resp, nil
}

func (t *transport) body(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	// Whoever waits for a body that does not come is not held by it.
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	defer func() {
		if stop() {
			req.Body.Close()
		}
	}()
	most := int64(DefaultMaxBody)
	if sv := t.s.service(t.upstream); sv != nil {
		most = sv.MaxBody
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, most+1)) // one more byte is refused by Do
	if cause := req.Context().Err(); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("reading the request's body: %w", err)
	}
	return body, nil
}

// MaxBody returns how many bytes the body of a call to an upstream may have.
func (s *Scheduler) MaxBody(upstream string) (int64, error) {
	if sv := s.service(upstream); sv != nil {
		return sv.MaxBody, nil
	}
	return 0, errors.New("no such upstream")
}

// MaxWait returns how long a caller of an upstream waits for its slot, at most.
func (s *Scheduler) MaxWait(upstream string) (time.Duration, error) {
	if sv := s.service(upstream); sv != nil {
		return sv.MaxWait, nil
	}
	return 0, errors.New("no such upstream")
}

// ShutUntil returns until when nothing can be sent to an upstream, by a pause or
// because it is down; zero if something can, or it is not configured.
func (s *Scheduler) ShutUntil(upstream string) (until time.Time) {
	s.ask(func(now time.Time) {
		if p := s.loop.planners[upstream]; p != nil {
			if at := p.shutUntil(now); at.After(now) {
				until = at
			}
		}
	})
	return until
}

// hopByHop are the fields of RFC 9110, section 7.6.1, and those that describe the
// one connection that a request came by.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Host", "Expect",
}

// EndToEnd returns a copy of a header without what concerns one hop: the
// hop-by-hop fields, those that Connection names, and Throttler's own.
func EndToEnd(h http.Header) http.Header {
	out := h.Clone()
	if out == nil {
		out = make(http.Header)
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	for name := range out {
		if strings.HasPrefix(name, "Throttler-") {
			delete(out, name)
		}
	}
	return out
}
