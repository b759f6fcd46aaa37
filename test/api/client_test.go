package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
)

// TestClient decides about a lost call, and pauses an upstream, as a program does with the
// client that is generated from the document.
func TestClient(t *testing.T) {
	admin, _ := launch(t)
	c, err := client.New(admin, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a lost call", func(t *testing.T) { decideByClient(t, c) })
	t.Run("a batch", func(t *testing.T) { submitByClient(t, c) })
	t.Run("a pause", func(t *testing.T) { pauseByClient(t, c) })
}

// refusedAs reports an error that is no refusal with the status and the reason.
func refusedAs(t *testing.T, err error, status int, reason string) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != status || refused.Problem.Reason != reason || refused.Problem.Detail == "" {
		t.Errorf("the error %v (%+v), want %d %s", err, refused, status, reason)
	}
}

func decideByClient(t *testing.T, c *client.ClientWithResponses) {
	ctx := t.Context()
	submission := client.Submission{
		Upstream: "pay", Method: "POST", Target: "/lost", Headers: map[string][]string{"app": {"a"}},
		Body: `{"order":"R-88123"}`, Deadline: time.Now().Add(time.Hour),
	}
	accepted, err := c.SubmitCallWithResponse(ctx, &client.SubmitCallParams{IdempotencyKey: "R-88123"}, submission)
	if err != nil {
		t.Fatal(err)
	}
	id := accepted.JSON202.Id
	submission.IdempotencyKey = "R-88123"
	repeated, err := c.SubmitCallWithResponse(ctx, &client.SubmitCallParams{}, submission) // the header is left out
	if err != nil || repeated.JSON202.Id != id || repeated.HTTPResponse.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat of call %s: %+v, %v", id, repeated, err)
	}
	call, err := c.GetCallWithResponse(ctx, id, &client.GetCallParams{Prefer: "wait=30"})
	if err != nil || call.JSON200.State != client.StateUnknown || call.JSON200.Unknown == nil {
		t.Fatalf("the call: %+v, %v", call, err)
	}
	found, err := c.ListCallsWithResponse(ctx, &client.ListCallsParams{Number: new("R-88123"), State: &[]client.ListCallsParamsState{client.ListCallsParamsStateUnknown, client.ListCallsParamsStateWaiting}})
	if err != nil || len(found.JSON200.Calls) != 1 || found.JSON200.Calls[0].Id != id || found.JSON200.Calls[0].Numbers["order"] != "R-88123" {
		t.Fatalf("found by its number: %+v, %v", found, err)
	}

	seen := call.JSON200.Unknown.Attempt
	_, err = c.ResolveCallWithResponse(ctx, id, client.Resolution{Outcome: client.OutcomeDone, Attempt: seen + 1, Reason: "seen in the statement"})
	refusedAs(t, err, 412, "changed_since")
	_, err = c.RetryCallWithResponse(ctx, id, client.Retry{Attempt: seen, Reason: "the platform does not answer"})
	refusedAs(t, err, 422, "may_execute_twice")
	resolved, err := c.ResolveCallWithResponse(ctx, id, client.Resolution{Outcome: client.OutcomeDone, Attempt: seen, Reason: "seen in the statement"})
	if err != nil || resolved.JSON200.State != client.StateDone || !resolved.JSON200.State.Finished() {
		t.Fatalf("resolved: %+v, %v", resolved, err)
	}
	audit, err := c.ListAuditWithResponse(ctx, &client.ListAuditParams{Call: &id, Action: new("resolve")})
	if err != nil {
		t.Fatal(err)
	}
	last := audit.JSON200.Records[0]
	if last.Actor == "" || last.Reason != "seen in the statement" || !strings.HasPrefix(last.Before, "unknown") || !strings.HasPrefix(last.After, "done") {
		t.Errorf("the audit of the decision: %+v", last)
	}
}

// submitByClient submits a batch with a line that is refused, and finds that among the refusals.
func submitByClient(t *testing.T, c *client.ClientWithResponses) {
	ctx := t.Context()
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, header := range []map[string][]string{{"app": {"a"}}, nil} {
		if err := lines.Encode(client.Submission{Upstream: "pay", Method: "POST", Target: "/pay", Headers: header}); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := c.SubmitCallsWithBodyWithResponse(ctx, "application/x-ndjson", &body)
	if err != nil {
		t.Fatal(err)
	}
	var results [2]client.BatchResult
	answers := json.NewDecoder(bytes.NewReader(batch.Body))
	for i := range results {
		if err := answers.Decode(&results[i]); err != nil {
			t.Fatal(err)
		}
	}
	if first := results[0]; first.Line != 1 || first.Call == nil || first.Call.Id == "" || first.Problem != nil {
		t.Errorf("the first line: %+v", first)
	}
	if second := results[1]; second.Line != 2 || second.Call != nil || second.Problem == nil || second.Problem.Reason != "bad_key" {
		t.Errorf("the second line: %+v", second)
	}
	refusals, err := c.ListRefusalsWithResponse(ctx, &client.ListRefusalsParams{Upstream: new("pay")})
	if err != nil || len(refusals.JSON200.Refusals) == 0 || refusals.JSON200.Refusals[0].Reason != "bad_key" || refusals.JSON200.Refusals[0].Detail != results[1].Problem.Detail {
		t.Errorf("refusals: %+v, %v", refusals, err)
	}
}

func pauseByClient(t *testing.T, c *client.ClientWithResponses) {
	ctx := t.Context()
	paused, err := c.AddPauseWithResponse(ctx, client.PauseRequest{Upstream: "pay", For: "1h", Reason: "maintenance"})
	if err != nil {
		t.Fatal(err)
	}
	pause := *paused.JSON201
	if pause.By != "person" || pause.Reason != "maintenance" || !pause.Until.After(time.Now()) {
		t.Errorf("the pause: %+v", pause)
	}
	all, err := c.ListPausesWithResponse(ctx)
	if err != nil || len(all.JSON200.Pauses) != 1 || all.JSON200.Pauses[0] != pause {
		t.Errorf("pauses: %+v, %v; want %+v", all, err, pause)
	}
	upstream, err := c.GetUpstreamWithResponse(ctx, "pay", nil)
	if err != nil || upstream.JSON200.State != "paused" {
		t.Errorf("the upstream: %+v, %v", upstream, err)
	}
	ended, err := c.EndPauseWithResponse(ctx, pause.Id, &client.EndPauseParams{Reason: new("over")})
	if err != nil || ended.JSON200.Id != pause.Id {
		t.Errorf("the pause %s ends: %+v, %v", pause.Id, ended, err)
	}
	_, err = c.EndPauseWithResponse(ctx, pause.Id, nil)
	refusedAs(t, err, 404, "not_found")
	audit, err := c.ListAuditWithResponse(ctx, &client.ListAuditParams{Action: new("resume")})
	if err != nil || len(audit.JSON200.Records) != 1 || audit.JSON200.Records[0].Reason != "over" || audit.JSON200.Records[0].Upstream != "pay" {
		t.Errorf("the audit of the end: %+v, %v", audit, err)
	}
}
