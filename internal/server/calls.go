package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func isControl(r rune) bool { return unicode.IsControl(r) }

func submitCall(a *Admin, r request[api.Submission]) (*api.Call, error) {
	s, f := r.body()
	var call *scheduler.Call
	req, err := submitted(&s, r.Header["Idempotency-Key"], f)
	if err == nil {
		req.Origin, req.SubmittedBy = scheduler.OriginAdmin, r.caller().Name
		call, err = a.Scheduler.Submit(context.WithoutCancel(r.Context()), req) // as in Data
	}
	if err != nil {
		name := s.Upstream
		if _, known := a.Scheduler.Upstream(name); !known {
			name = "" // labels of metrics are names of the configuration
		}
		a.Refusals.add(refused(a.Observe, name, err))
		return nil, err
	}
	setAccepted(r.responseHeader, call, "")
	if call.Repeated {
		r.responseHeader.Set(replayed, "true")
	}
	return APICall(call), nil
}

// submitted returns the request of a submission. The idempotency key may be a header field.
func submitted(s *api.Submission, keys []string, f *faults) (scheduler.Request, error) {
	req := scheduler.Request{
		Upstream: s.Upstream, Method: s.Method, Target: s.Target, Header: upstream.EndToEnd(http.Header(s.Headers)), Body: s.BodyBase64,
		Priority: s.Priority, NotBefore: s.NotBefore.Time, Deadline: s.Deadline.Time, IdempotencyKey: s.IdempotencyKey, Callback: s.Callback,
		NoCopy: true,
	}
	if f.empty {
		return req, f
	}
	if s.Upstream == "" {
		f.add("/upstream", "upstream is missing; name one of the configuration's upstreams")
	}
	if s.Method == "" {
		f.add("/method", "method is missing; give GET, POST or another one")
	}
	switch {
	case s.Target == "" && s.Path == "":
		f.add("/target", "target is missing; give the path, and the query if there is one, such as /v1/refunds?page=2")
	case s.Target != "" && s.Path != "":
		f.add("/path", "path and target are both there, and mean the same; send target")
	case s.Target == "":
		req.Target = s.Path
	}
	if s.Body != nil {
		if s.BodyBase64 != nil {
			f.add("/body", "body and body_base64 are both there; send one of them")
		}
		req.Body = []byte(*s.Body)
	}
	for name := range s.Headers {
		if _, kept := req.Header[name]; !kept {
			f.add("/headers/"+pointed(name), "headers: %s cannot be given; Throttler sets it, or it concerns one connection only", name)
		}
	}
	if len(keys) > 0 {
		if len(keys) > 1 || s.IdempotencyKey != "" && s.IdempotencyKey != keys[0] {
			f.add("/idempotency_key", "the header Idempotency-Key and idempotency_key give several keys; send one")
		}
		req.IdempotencyKey = keys[0]
	}
	if err := checkIdempotencyKey(req.IdempotencyKey); err != nil {
		f.add("/idempotency_key", "%s", asError(err).Detail)
	}
	return req, f.err()
}

// getCall returns a call. Its response comes only if it is asked for.
func getCall(a *Admin, r request[none]) (*api.Call, error) {
	call, err := call(a, r)
	if err != nil {
		return nil, err
	}
	out := APICall(call)
	if r.query.Get("include") == "" {
		out.Response = nil
	} else if err := mayRead(r.caller(), call); err != nil {
		return nil, err
	}
	return out, nil
}

// call returns the call of a path, after a long poll if the request prefers one and there is
// room for it.
func call(a *Admin, r request[none]) (*scheduler.Call, error) {
	id := r.PathValue("id")
	seconds, err := strconv.ParseUint(preference(r.Header, "wait"), 10, 31)
	release, ok := func() {}, false
	if err == nil {
		release, ok = a.held.take(1)
	}
	if !ok {
		call, err := a.Scheduler.Get(r.Context(), id)
		return call, a.Refusals.explain(id, err)
	}
	defer release()
	wait := min(time.Duration(seconds)*time.Second, maxLongPoll)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	call, err := a.Scheduler.Wait(ctx, id)
	if err == nil {
		r.responseHeader.Set("Preference-Applied", fmt.Sprintf("wait=%d", wait/time.Second))
	}
	return call, a.Refusals.explain(id, err)
}

// mayRead refuses the bodies of a call to all but its submitter and callers with the scope.
func mayRead(caller access.Caller, c *scheduler.Call) error {
	if caller.May(access.Bodies) || caller.Own() && caller.Name != "" && caller.Name == c.SubmittedBy {
		return nil
	}
	return &scheduler.Error{Reason: forbidden, Detail: fmt.Sprintf("the response to call %s is for its submitter, and for callers with the scope %s", c.ID, access.Bodies)}
}

// getCallResponse writes the body of a call's response. A browser shows none of it and runs none.
func getCallResponse(a *Admin, w http.ResponseWriter, r request[none]) error {
	call, err := call(a, r)
	if err == nil {
		err = mayRead(r.caller(), call)
	}
	if err != nil {
		return err
	}
	if call.Response == nil {
		return &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("call %s is %s, and there is no response to it", call.ID, call.State)}
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment; filename="+call.ID)
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Throttler-Status", strconv.Itoa(call.Response.Status))
	if kind := call.Response.Headers["Content-Type"]; len(kind) > 0 {
		h.Set("Throttler-Content-Type", kind[0])
	}
	if call.Response.Truncated {
		h.Set("Throttler-Truncated", "true")
	}
	h.Set("Content-Length", strconv.Itoa(len(call.Response.Body)))
	w.WriteHeader(http.StatusOK)
	w.Write(call.Response.Body)
	return nil
}

func listCalls(a *Admin, r request[none]) (*api.Calls, error) {
	f := scheduler.Filter{Upstream: r.query.Get("upstream"), State: scheduler.State(r.query.Get("state"))}
	size := r.op.number(r.query, "page_size")
	var err error
	if f.After, err = after(f, r.query.Get("cursor")); err != nil {
		return nil, err
	}
	f.Max = size + 1 // one call more tells whether there is a next page
	calls, err := a.Scheduler.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 { // a removed upstream may have finished calls
		if err := a.known(r.Request, f.Upstream); err != nil {
			return nil, err
		}
	}
	page := &api.Calls{Calls: []api.CallSummary{}}
	if len(calls) > size {
		calls = calls[:size]
		page.Next = cursor(f, calls[size-1].ID)
	}
	for _, c := range calls {
		page.Calls = append(page.Calls, apiSummary(c))
	}
	return page, nil
}

// cursor returns the text by which a list goes on after a call. It is good for one filter.
func cursor(f scheduler.Filter, id string) string {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(fingerprint(f), parsed[:]...))
}

// after returns the id at which a list goes on.
func after(f scheduler.Filter, text string) (id string, err error) {
	if text == "" {
		return "", nil
	}
	bytes, err := base64.RawURLEncoding.Strict().DecodeString(text)
	want := fingerprint(f)
	if err != nil || len(bytes) != len(want)+16 {
		return "", badRequest("cursor %q is none of ours; take next of the page before", text)
	}
	if string(bytes[:len(want)]) != string(want) {
		return "", badRequest("cursor %q is of a list with another filter; take next of the page before, and its filter", text)
	}
	return uuid.UUID(bytes[len(want):]).String(), nil
}

// fingerprint tells filters apart.
func fingerprint(f scheduler.Filter) []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q", f.Upstream, f.State)
	return h.Sum(nil)
}

// cancelCall takes an empty body for one without a reason.
func cancelCall(a *Admin, r request[api.Cancellation]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkReason(in.Reason, f)
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	return withCall(cancelOne(a, r.Request, r.PathValue("id"), in.Reason))
}

func cancelOne(a *Admin, r *http.Request, id, reason string) (*scheduler.Call, error) {
	call, err := a.Scheduler.Cancel(r.Context(), id)
	if err == nil {
		a.audit(r, "a call was cancelled", "call", call.ID, "upstream", call.Upstream, "reason", reason)
	}
	return call, err
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
		checkReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return withCall(decide(a, r.Request, r.PathValue("id"), decision{as: in.Outcome, attempt: in.Attempt, reason: in.Reason}))
}

func retryCall(a *Admin, r request[api.Retry]) (*api.Call, error) {
	in, f := r.body()
	if !f.empty {
		checkAttempt(in.Attempt, f)
		checkReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return withCall(decide(a, r.Request, r.PathValue("id"), decision{as: "unknown", attempt: in.Attempt, reason: in.Reason, acceptDuplicate: in.AcceptDuplicate}))
}

func checkAttempt(n int, f *faults) {
	if n < 1 {
		f.add("/attempt", "attempt is missing; give n of the call's last attempt as you saw it, so that the decision is not about a later one")
	}
}

// A decision is about an unknown call. As unknown sends the call again.
type decision struct {
	as              api.Outcome
	attempt         int
	reason          string
	acceptDuplicate bool
}

// decide resolves an unknown call, if it still is as the person saw it.
func decide(a *Admin, r *http.Request, id string, d decision) (*scheduler.Call, error) {
	seen, err := a.Scheduler.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if last := seen.Last(); last != nil && last.N != d.attempt {
		return nil, &scheduler.Error{Reason: changedSince, Upstream: seen.Upstream, Detail: fmt.Sprintf("call %s is %s after attempt %d, and the decision is about attempt %d; look at it again", id, seen.State, last.N, d.attempt)}
	}
	as, reason := scheduler.State(d.as), d.reason
	switch {
	case d.as == "not_executed":
		as = scheduler.Waiting
	case d.as == "unknown" && seen.State == scheduler.Unknown && !d.acceptDuplicate && (seen.Pending == nil || !seen.Pending.RepeatIsSafe):
		return nil, &scheduler.Error{Reason: mayExecuteTwice, Upstream: seen.Upstream, Detail: fmt.Sprintf("call %s may have been executed, and upstream %q may not recognise a repeat: it may then be executed twice; find its outcome out and resolve it, or send accept_duplicate", id, seen.Upstream)}
	case d.as == "unknown":
		if as = scheduler.Waiting; reason == "" {
			reason = "sent again by request"
		}
	}
	call, err := a.Scheduler.Resolve(r.Context(), id, as, reason)
	if err == nil {
		a.audit(r, "an unknown call was resolved", "call", call.ID, "upstream", call.Upstream, "as", as, "attempt", d.attempt, "reason", reason)
	}
	return call, err
}
