package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// submitted is an http.RoundTripper over Submit and Wait: what an SDK sends becomes
// a call that outlives its caller.
type submitted struct{ s *scheduler.Scheduler }

func (t submitted) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	call, err := t.s.Submit(req.Context(), scheduler.Request{
		Upstream: "alipay", Method: req.Method, Target: req.URL.RequestURI(), Header: scheduler.EndToEnd(req.Header), Body: body,
	})
	if err != nil {
		return nil, err
	}
	if id, ok := req.Context().Value(callKey{}).(*string); ok {
		*id = call.ID
	}
	// It is under way, whatever becomes of its caller: without a durable store it
	// would be lost if this program ended now.
	if call, err = t.s.Wait(context.WithoutCancel(req.Context()), call.ID); err != nil {
		return nil, err
	}
	if call.State == scheduler.Unknown || call.Response == nil {
		return nil, fmt.Errorf("call %s is %s", call.ID, call.State)
	}
	r := call.Response
	return &http.Response{StatusCode: r.Status, Header: r.Headers, Body: io.NopCloser(bytes.NewReader(r.Body)), Request: req}, nil
}

// callKey is where a context says who wants to know the id of the call.
type callKey struct{}

func withCall(ctx context.Context, id *string) context.Context {
	return context.WithValue(ctx, callKey{}, id)
}
