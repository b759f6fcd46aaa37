package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// replayed marks an answer that another request with the same Idempotency-Key had
// already, as the IETF's draft and Stripe do.
const replayed = "Idempotent-Replayed"

// once hands a call over under its Idempotency-Key and waits for its end. A second
// request with the key waits for the same call, or gets its stored answer.
func (d *Data) once(w http.ResponseWriter, r *http.Request, req scheduler.Request) {
	u, known := d.Scheduler.Upstream(d.Upstream)
	if !known {
		d.refuse(w, &req, notConfigured(d.Upstream))
		return
	}
	began := time.Now()
	if latest := began.Add(u.MaxWait); req.Deadline.IsZero() || latest.Before(req.Deadline) {
		req.Deadline = latest
	}
	call, err := d.handOver(r, req)
	if err != nil {
		d.refuse(w, &req, err)
		return
	}
	again := call.AcceptedAt.Before(began)
	if now, err := d.Scheduler.Wait(r.Context(), call.ID); err == nil {
		call = now
	}
	switch {
	case call.Response != nil && !call.Response.Truncated && (call.State.Finished() || call.State == scheduler.Unknown && call.Last().Outcome == call.Outcome()):
		d.stored(w, call, again)
	case call.State.Finished() || call.State == scheduler.Unknown:
		d.refuse(w, &req, d.ended(r.Context(), call))
	default: // the client has gone, or Throttler stops
		d.refuse(w, &req, &scheduler.Error{Reason: scheduler.NoAnswer, Upstream: d.Upstream, Call: undecided(call), Detail: fmt.Sprintf("call %s has not ended, and may be executed; send the same request with the same Idempotency-Key for its answer", call.ID)})
	}
}

// stored writes the answer of a call as it was kept.
func (d *Data) stored(w http.ResponseWriter, call *scheduler.Call, again bool) {
	h := w.Header()
	for name, values := range upstream.EndToEnd(call.Response.Headers) {
		h[name] = values
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // keeps net/http from guessing
	}
	tell(h, call)
	if again {
		h.Set(replayed, "true")
	}
	w.WriteHeader(call.Response.Status)
	w.Write(call.Response.Body)
}

// ended says why a call has no answer that could be handed out. One that could not
// wait until the upstream opens is told so as long as it is shut.
func (d *Data) ended(ctx context.Context, call *scheduler.Call) error {
	e := &scheduler.Error{Reason: scheduler.PastDeadline, Upstream: call.Upstream, Call: call, Detail: fmt.Sprintf("call %s is %s; nothing was executed", call.ID, call.State)}
	switch {
	case call.State == scheduler.Unknown:
		e.Reason, e.Detail = scheduler.NoAnswer, fmt.Sprintf("call %s was sent and may have been executed; query before you send it again", call.ID)
	case call.State == scheduler.Failed && call.Response == nil:
		e.Reason, e.Detail = scheduler.NotSent, fmt.Sprintf("call %s was not sent: %s", call.ID, call.Last().Reason)
	case call.Response != nil: // too long to be kept
		e.Reason, e.Detail = scheduler.NoAnswer, fmt.Sprintf("call %s is %s, but its answer was too long to be kept", call.ID, call.State)
	case call.State == scheduler.Expired:
		if st, err := d.Scheduler.Status(ctx, call.Upstream); err == nil && !st.PausedUntil.IsZero() {
			until := st.PausedUntil
			e.Reason, e.RetryAfter = scheduler.Paused, time.Until(until)
			e.Detail = fmt.Sprintf("call %s could wait no longer, and upstream %q is shut until %s; nothing was executed: send it again then", call.ID, call.Upstream, until.UTC().Format(time.RFC3339))
		}
	}
	return e
}
