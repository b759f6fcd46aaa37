package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// replayed is the header of a response that an earlier request with the same
// Idempotency-Key had already, as in the IETF's draft and at Stripe.
const replayed = "Idempotent-Replayed"

// replay submits a call under its Idempotency-Key and waits for its end. A second
// request with the key waits for the same call, or gets its stored response.
func (d *Data) replay(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	u, known := d.Scheduler.Upstream(d.Upstream)
	if !known {
		d.refuse(w, r, &req, notConfigured(d.Upstream))
		return
	}
	wait := u.MaxWait
	if u.ClientTimeout > 0 {
		wait = min(wait, u.ClientTimeout/2) // the other half is for the answer
	}
	if latest := time.Now().Add(wait); req.Deadline.IsZero() || latest.Before(req.Deadline) {
		req.Deadline = latest
	}
	call, err := d.submitWithKey(r, req)
	if err != nil {
		d.refuse(w, r, &req, err)
		return
	}
	again := call.Repeated
	now, err := d.Scheduler.Wait(r.Context(), call.ID)
	if err == nil {
		call = now
	}
	switch {
	case errors.Is(err, scheduler.Stopping) && d.goOn(w, r, &req, call, stay{doubt: true}): // it finds the call by its key
	case call.Answer() != nil:
		writeStored(w, call, again)
	case call.State.Finished() || call.State == scheduler.Unknown:
		d.refuse(w, nil, &req, d.withoutResponse(r.Context(), call))
	default: // the client has disconnected, or Throttler stops
		d.refuse(w, nil, &req, &scheduler.Error{Reason: scheduler.NoAnswer, Upstream: d.Upstream, Call: unfinishedAsUnknown(call), Detail: fmt.Sprintf("call %s has not ended, and may be executed; send the same request with the same Idempotency-Key for its answer", call.ID)})
	}
}

// writeStored writes the stored response of a call.
func writeStored(w http.ResponseWriter, call *scheduler.Call, again bool) {
	h := w.Header()
	for name, values := range upstream.Fields(call.Response.Headers) {
		h[name] = values
	}
	setCallHeaders(h, call)
	if again {
		h.Set(replayed, "true")
	}
	w.WriteHeader(call.Response.Status)
	w.Write(call.Response.Body)
}

// withoutResponse returns the error of a call that has ended and has no complete
// response. A call that expired in a pause is refused as paused while the pause lasts.
func (d *Data) withoutResponse(ctx context.Context, call *scheduler.Call) error {
	e := &scheduler.Error{Reason: scheduler.PastDeadline, Upstream: call.Upstream, Call: call, Detail: fmt.Sprintf("call %s is %s; nothing was executed", call.ID, call.State)}
	switch {
	case call.State == scheduler.Unknown:
		e.Reason, e.Detail = scheduler.NoAnswer, fmt.Sprintf("call %s was sent and may have been executed; query before you send it again", call.ID)
	case call.State == scheduler.Cancelled && call.EndedBy != "":
		e.Reason, e.Detail = scheduler.WrongState, fmt.Sprintf("call %s has ended call %s (ends) before that was sent; nothing was executed", call.EndedBy, call.ID)
	case call.State == scheduler.Failed && call.Outcome() == upstream.NotExecuted:
		e.Reason, e.Detail = scheduler.NotSent, fmt.Sprintf("call %s was not sent: %s", call.ID, call.Last().Reason)
	case call.Outcome() != upstream.NotExecuted: // it was too long, or a query has decided the call
		e.Reason, e.Detail = scheduler.NoAnswer, fmt.Sprintf("call %s is %s, but no answer that says so was kept; query it for its details", call.ID, call.State)
	case call.State == scheduler.Expired:
		if st, err := d.Scheduler.Status(ctx, call.Upstream); err == nil && !st.PausedUntil.IsZero() {
			until := st.PausedUntil
			e.Reason, e.RetryAfter = scheduler.Paused, time.Until(until)
			e.Detail = fmt.Sprintf("call %s could wait no longer, and upstream %q is %s until %s (%s: %s); nothing was executed: send it again then", call.ID, call.Upstream, st.State, until.UTC().Format(time.RFC3339), st.Cause, st.Reason)
		}
	}
	return e
}
