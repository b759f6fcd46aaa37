package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Changes of calls. Each is recorded before it takes effect.

// maxAsk bounds the wait for the answer of a platform that is asked about a call.
const maxAsk = 5 * time.Minute

// cancelCall takes an empty body for one without a reason.
func cancelCall(a *Admin, r request[api.Cancellation]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkReason(in.Reason, f)
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	if err := visible(a, r.Request, r.PathValue("id")); err != nil {
		return nil, err
	}
	return withCall(cancelOne(a, r.Request, r.PathValue("id"), in.Reason))
}

func cancelOne(a *Admin, r *http.Request, id, reason string) (*scheduler.Call, error) {
	return changed(a, r, scheduler.AuditRecord{Action: "cancel", Call: id, After: "taken back", Reason: reason}, func(ctx context.Context) (*scheduler.Call, error) {
		return a.Scheduler.Cancel(ctx, id)
	})
}

// withCall returns the result of a method of the scheduler, without the response.
func withCall(c *scheduler.Call, err error) (*api.Call, error) {
	if err != nil {
		return nil, err
	}
	out := APICall(c)
	out.Response = nil
	return out, nil
}

func resolveCall(a *Admin, r request[api.Resolution]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkOutcome(in.Outcome, f)
		checkAttempt(in.Attempt, f)
		needReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return withCall(resolveOne(a, r.Request, r.PathValue("id"), in))
}

func resolveOne(a *Admin, r *http.Request, id string, in api.Resolution) (*scheduler.Call, error) {
	d := scheduler.Decision{By: callerName(r), Attempt: in.Attempt, As: upstream.Outcome(in.Outcome), Reason: in.Reason}
	record := scheduler.AuditRecord{Action: "resolve", Call: id, After: fmt.Sprintf("%s, seen attempt %d", in.Outcome, in.Attempt), Reason: in.Reason}
	return changed(a, r, record, func(ctx context.Context) (*scheduler.Call, error) { return a.Scheduler.Resolve(ctx, id, d) })
}

func retryCall(a *Admin, r request[api.Retry]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkAttempt(in.Attempt, f)
		needReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	d := scheduler.Decision{By: callerName(r.Request), Attempt: in.Attempt, As: upstream.Unknown, Reason: in.Reason, AcceptDuplicate: in.AcceptDuplicate}
	record := scheduler.AuditRecord{Action: "retry", Call: id, After: fmt.Sprintf("sent again, seen attempt %d", in.Attempt), Reason: in.Reason}
	if in.AcceptDuplicate {
		record.After += ", a duplicate is accepted"
	}
	return withCall(changed(a, r.Request, record, func(ctx context.Context) (*scheduler.Call, error) { return a.Scheduler.Retry(ctx, id, d) }))
}

// askCall asks the platform about an unknown call, and returns the call as it is after the answer.
// It takes an empty body for one without a reason.
func askCall(a *Admin, r request[api.Ask]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkReason(in.Reason, f)
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	return withCall(askOne(a, r.Request, r.PathValue("id"), in.Reason, time.Now().Add(maxAsk)))
}

// askOne asks about a call, and waits for the answer until an instant; the query then goes on.
func askOne(a *Admin, r *http.Request, id, reason string, until time.Time) (*scheduler.Call, error) {
	return changed(a, r, scheduler.AuditRecord{Action: "ask", Call: id, Reason: reason}, func(ctx context.Context) (*scheduler.Call, error) {
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		return a.Scheduler.Ask(ctx, id, callerName(r))
	})
}

func editCall(a *Admin, r request[api.Edit]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		if in.Priority == nil && in.NotBefore == nil && in.Deadline == nil {
			f.add("", "nothing is to be changed; send priority, not_before or deadline")
		}
		checkReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	e, after := scheduler.Edit{Priority: in.Priority}, ""
	if in.Priority != nil {
		after = fmt.Sprintf("priority %d", *in.Priority)
	}
	set := func(name string, from *api.Instant, to **time.Time) {
		if from != nil {
			*to = &from.Time
			after = joined(after, name+" "+from.Format(time.RFC3339Nano))
		}
	}
	set("not_before", in.NotBefore, &e.NotBefore)
	set("deadline", in.Deadline, &e.Deadline)
	record := scheduler.AuditRecord{Action: "edit", Call: id, After: after, Reason: in.Reason}
	return withCall(changed(a, r.Request, record, func(ctx context.Context) (*scheduler.Call, error) { return a.Scheduler.Edit(ctx, id, e) }))
}

func joined(texts, text string) string {
	if texts == "" {
		return text
	}
	return texts + ", " + text
}

func checkAttempt(n int, f *faults) {
	if n < 1 {
		f.add("/attempt", "attempt is missing; give n of the call's last attempt as you saw it, so that the decision is not about a later one")
	}
}

// needReason refuses a decision about money without a word on where it comes from.
func needReason(reason string, f *faults) {
	if reason == "" {
		f.add("/reason", "reason is missing; say where the outcome was seen, such as the bill of a day")
	}
	checkReason(reason, f)
}

// changed records a change of a call, with its state before, and does it. The ctx of do does not end
// when the client leaves: a change that has begun is made, and its outcome is known.
func changed(a *Admin, r *http.Request, record scheduler.AuditRecord, do func(ctx context.Context) (*scheduler.Call, error)) (call *scheduler.Call, err error) {
	before, err := a.Scheduler.Get(r.Context(), record.Call)
	if err != nil {
		return nil, a.Refusals.explain(record.Call, err)
	}
	record.Upstream, record.Before = before.Upstream, string(before.State)
	if last := before.Last(); last != nil {
		record.Before += fmt.Sprintf(" after attempt %d", last.N)
	}
	err = audited(a, r, record, func() (err error) {
		call, err = do(context.WithoutCancel(r.Context()))
		return err
	})
	return call, err
}
