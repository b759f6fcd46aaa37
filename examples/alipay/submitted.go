package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// submitted is an http.RoundTripper over Submit and Wait: an SDK's request becomes
// a call that outlives its caller, and this process. The refund's number is its
// idempotency key: another run that makes the same refund gets the same call.
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
	r, ok := req.Context().Value(refundKey{}).(*refund)
	if !ok {
		return nil, errors.New("only refunds are submitted")
	}
	call, err := t.s.Submit(req.Context(), scheduler.Request{
		Upstream: "alipay", Method: req.Method, Target: req.URL.RequestURI(), Header: upstream.EndToEnd(req.Header), Body: body,
		IdempotencyKey: r.number,
	})
	if err != nil {
		return nil, err
	}
	r.call = call.ID
	// From here on the call does not depend on its caller.
	if call, err = t.s.Wait(req.Context(), call.ID); err != nil {
		return nil, err
	}
	if call.State == scheduler.Unknown || call.Response == nil {
		return nil, fmt.Errorf("call %s is %s", call.ID, call.State)
	}
	a := call.Response
	return &http.Response{StatusCode: a.Status, Header: a.Headers, Body: io.NopCloser(bytes.NewReader(a.Body)), Request: req}, nil
}

// refundKey is the context key of a request's refund.
type refundKey struct{}

func withRefund(ctx context.Context, r *refund) context.Context {
	return context.WithValue(ctx, refundKey{}, r)
}
