package scheduler

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Transport returns an http.RoundTripper that sends requests as calls of an upstream and
// waits for the answer; see [Scheduler.Do]. The upstream's URL replaces scheme and host of a
// request, so that an SDK may have any base address.
//
// With an empty name a request goes to the upstream whose URL its own begins with; of
// several, to that with the longest. If there is none, or two have the same URL, the
// request is refused, as is a redirect to another host.
//
// The deadline of a request's context is that of its call. Errors are [*Error]s. An answer
// has the headers of [Call.SetHeaders]. The http.RoundTripper may be used concurrently.
func (s *Scheduler) Transport(name string) http.RoundTripper {
	return &transport{s, name}
}

type transport struct {
	s        *Scheduler
	upstream string // empty: by the URL
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	name, target := t.upstream, req.URL.RequestURI()
	if name == "" {
		sv, rest, err := t.s.route(req.URL)
		if err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		name, target = sv.Name, rest
	}
	body, err := t.s.readBody(name, req)
	if err != nil {
		return nil, err
	}
	resp, call, err := t.s.Do(req.Context(), Request{
		Upstream: name, Method: req.Method, Target: target,
		Header: upstream.EndToEnd(req.Header), Body: body, Priority: DataPriority,
	})
	if err != nil {
		return nil, err
	}
	resp.Header = resp.Header.Clone() // the store may have the other
	call.SetHeaders(resp.Header, time.Now())
	resp.Request = req
	return resp, nil
}

// route returns the upstream whose URL another URL begins with, and the target there.
func (s *Scheduler) route(to *url.URL) (found *service, target string, err error) {
	services := *s.services.Load()
	var urls []string
	twin := "" // has the same URL as found
	for _, name := range slices.Sorted(maps.Keys(services)) {
		sv := services[name]
		if sv.webhook != nil {
			continue
		}
		urls = append(urls, sv.URL)
		switch rest, ok := sv.up.Target(to); {
		case !ok || found != nil && len(rest) > len(target):
		case found != nil && len(rest) == len(target):
			twin = name
		default:
			found, target, twin = sv, rest, ""
		}
	}
	switch {
	case found == nil:
		return nil, "", &Error{Reason: NotFound, Detail: fmt.Sprintf("no upstream has the URL of this request to %s://%s; the upstreams' are %s", to.Scheme, to.Host, strings.Join(urls, ", "))}
	case twin != "":
		return nil, "", badRequest("", "%s is the URL of upstream %q and of %q; use Transport with a name", found.URL, found.Name, twin)
	}
	return found, target, nil
}

// readBody reads the body of a request to an upstream.
func (s *Scheduler) readBody(name string, req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	// A body that does not come must not hold its caller.
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	defer func() {
		if stop() {
			req.Body.Close()
		}
	}()
	most := Defaults().MaxBody
	if u, ok := s.Upstream(name); ok {
		most = u.MaxBody
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
