package scheduler

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Transport returns an http.RoundTripper that sends requests as calls of an
// upstream and waits for the answer; see [Scheduler.Do]. Scheme and host of a
// request are replaced by the upstream's, whatever the client has configured.
// The deadline of a request's context is that of its call. Errors are [*Error]s.
func (s *Scheduler) Transport(name string) http.RoundTripper {
	return &transport{s, name}
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
		Header: upstream.EndToEnd(req.Header), Body: body, Priority: DataPriority,
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
	// A body that does not come must not hold its caller.
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	defer func() {
		if stop() {
			req.Body.Close()
		}
	}()
	most := Defaults().MaxBody
	if u, ok := t.s.Upstream(t.upstream); ok {
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
