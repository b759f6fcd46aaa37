package main

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/seed-30fe103d/throttler/api/client"
)

// TestAPIClient: the generated client submits, finds, decides and pauses through the binary.
func TestAPIClient(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "paid")
	}))
	p := start(t, url, "preset: generic", "retry: {attempts: 1}")
	c, err := client.New(p.admin, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	submit := func(target, key string) *client.Call {
		t.Helper()
		accepted, err := c.SubmitCallWithResponse(ctx, &client.SubmitCallParams{IdempotencyKey: key}, client.Submission{Upstream: "alipay", Method: "POST", Target: target, Body: "x"})
		if err != nil || accepted.JSON202 == nil {
			t.Fatalf("%+v, %v", accepted, err)
		}
		return accepted.JSON202
	}
	ended := func(id string) *client.Call {
		t.Helper()
		call, err := c.GetCallWithResponse(ctx, id, &client.GetCallParams{Prefer: "wait=30", Include: new(client.GetCallParamsInclude("response"))})
		if err != nil || call.JSON200 == nil {
			t.Fatalf("%+v, %v", call, err)
		}
		return call.JSON200
	}

	call := submit("/pay", "k1")
	if again := submit("/pay", "k1"); again.Id != call.Id {
		t.Errorf("a repeat is call %s, want %s", again.Id, call.Id)
	}
	if done := ended(call.Id); done.State != client.StateDone || string(done.Response.BodyBase64) != "paid" || done.FinishedAt.IsZero() {
		t.Errorf("the call: %+v", done)
	}
	list, err := c.ListCallsWithResponse(ctx, &client.ListCallsParams{State: &[]client.ListCallsParamsState{client.ListCallsParamsStateDone}, PageSize: new(10)})
	if err != nil || len(list.JSON200.Calls) != 1 || list.JSON200.Calls[0].Id != call.Id || list.JSON200.Calls[0].AttemptCount != 1 {
		t.Errorf("the list: %+v, %v", list, err)
	}

	lost := ended(submit("/lost", "k2").Id)
	if lost.State != client.StateUnknown {
		t.Fatalf("a call without an answer: %+v", lost)
	}
	var refused *client.Error
	if _, err := c.RetryCallWithResponse(ctx, lost.Id, client.Retry{Attempt: 1, Reason: "no idea"}); !errors.As(err, &refused) || refused.Problem.Reason != "may_execute_twice" || refused.Status != 422 {
		t.Errorf("a blind retry: %v", err)
	}
	if _, err := c.ResolveCallWithResponse(ctx, lost.Id, client.Resolution{Outcome: client.OutcomeDone, Attempt: 2, Reason: "the bill"}); !errors.As(err, &refused) || refused.Problem.Reason != "changed_since" || refused.Status != 412 {
		t.Errorf("a decision about another attempt: %v", err)
	}
	resolved, err := c.ResolveCallWithResponse(ctx, lost.Id, client.Resolution{Outcome: client.OutcomeFailed, Attempt: 1, Reason: "not in the statement"})
	if err != nil || resolved.JSON200.State != client.StateFailed {
		t.Errorf("resolved: %+v, %v", resolved, err)
	}
	if _, err := c.SubmitCallWithResponse(ctx, nil, client.Submission{Priority: 7}); !errors.As(err, &refused) || len(refused.Problem.Errors) != 3 {
		t.Errorf("a submission with three faults: %v", err)
	}
	paused, err := c.AddPauseWithResponse(ctx, client.PauseRequest{Upstream: "alipay", For: "1h", Reason: "maintenance"})
	if err != nil || paused.JSON201.Who != "loopback" || paused.JSON201.Reason != "maintenance" {
		t.Fatalf("paused: %+v, %v", paused, err)
	}
	if ended, err := c.EndPauseWithResponse(ctx, paused.JSON201.Id, nil); err != nil || ended.JSON200.Id != paused.JSON201.Id {
		t.Errorf("the end of the pause: %+v, %v", ended, err)
	}
	if log, err := c.ListAuditWithResponse(ctx, &client.ListAuditParams{Action: new("resolve")}); err != nil || len(log.JSON200.Records) != 3 || log.JSON200.Records[0].After != "failed, seen attempt 1" {
		t.Errorf("the audit: %+v, %v", log, err)
	}
	if limits, err := c.ListLimitsWithResponse(ctx, nil); err != nil || limits.JSON200 == nil || len(limits.JSON200.Limits) == 0 {
		t.Errorf("limits: %+v, %v", limits, err)
	}
}
