package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func (a *Admin) submit(r request[api.Submission]) (*api.Call, error) {
	s, err := r.body()
	var call *scheduler.Call
	if err == nil {
		var req scheduler.Request
		if req, err = submitted(&s); err == nil {
			req.SubmittedBy, req.Origin = access.From(r.Context()).Name, scheduler.OriginAdmin
			call, err = a.Scheduler.Submit(context.WithoutCancel(r.Context()), req) // as in Data
		}
	}
	if err != nil {
		name := s.Upstream
		if _, known := a.Scheduler.Upstream(name); !known {
			name = "" // labels of metrics are names of the configuration
		}
		refused(a.Observe, name, err)
		return nil, err
	}
	setAccepted(r.responseHeader, call, "")
	return APICall(call), nil
}

// submitted returns the request of a submission.
func submitted(s *api.Submission) (scheduler.Request, error) {
	req := scheduler.Request{
		Upstream: s.Upstream, Method: s.Method, Target: s.Path, Header: upstream.EndToEnd(http.Header(s.Headers)), Body: s.BodyBase64,
		Priority: s.Priority, NotBefore: s.NotBefore.Time, Deadline: s.Deadline.Time, IdempotencyKey: s.IdempotencyKey, Callback: s.Callback,
		NoCopy: true, Origin: scheduler.OriginAdmin,
	}
	if s.Upstream == "" {
		return req, badRequest("upstream is missing; name one of the configuration's upstreams")
	}
	if s.Method == "" {
		return req, badRequest("method is missing; give GET, POST or another one")
	}
	if s.Path == "" {
		return req, badRequest("path is missing; give the path, and the query if there is one, such as /v1/refunds?page=2")
	}
	if s.Body != nil {
		if s.BodyBase64 != nil {
			return req, badRequest("body and body_base64 are both there; send one of them")
		}
		req.Body = []byte(*s.Body)
	}
	for name := range s.Headers {
		if _, kept := req.Header[name]; !kept {
			return req, badRequest("headers: %s cannot be given; Throttler sets it, or it concerns one connection only", name)
		}
	}
	return req, checkIdempotencyKey(s.IdempotencyKey)
}

// get returns a call, after a long poll if the request prefers one and there is room for it.
func (a *Admin) get(r request[none]) (*api.Call, error) {
	id := r.PathValue("id")
	if _, err := parseQuery(r.Request); err != nil {
		return nil, badRequest("%v; to wait for the end of the call, send the header Prefer: wait=10", err)
	}
	if err := visible(a, r.Request, id); err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseUint(preference(r.Header, "wait"), 10, 31)
	if err != nil {
		return withCall(a.Scheduler.Get(r.Context(), id))
	}
	release, ok := a.held.take(1)
	if !ok {
		return withCall(a.Scheduler.Get(r.Context(), id))
	}
	defer release()
	wait := min(time.Duration(seconds)*time.Second, maxLongPoll)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	call, err := a.Scheduler.Wait(ctx, id)
	if err == nil {
		r.responseHeader.Set("Preference-Applied", fmt.Sprintf("wait=%d", wait/time.Second))
	}
	return withCall(call, err)
}

// withCall returns the result of a method of the scheduler.
func withCall(c *scheduler.Call, err error) (*api.Call, error) {
	if err != nil {
		return nil, err
	}
	return APICall(c), nil
}

func (a *Admin) list(r request[none]) (*api.Page, error) {
	f, err := a.filter(r.Request)
	if err != nil {
		return nil, err
	}
	list, err := a.Scheduler.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	if len(list.Calls) == 0 { // a removed upstream may have finished calls
		if err := a.known(r.Request, f.Upstream); err != nil {
			return nil, err
		}
	}
	page := &api.Page{Calls: []*api.Call{}, Next: list.Next}
	for _, c := range list.Calls {
		page.Calls = append(page.Calls, APICall(c))
	}
	return page, nil
}

// filter reads the parameters of a list.
func (a *Admin) filter(r *http.Request) (f scheduler.Filter, err error) {
	q, err := parseQuery(r, "upstream", "state", "limit", "cursor")
	if err != nil {
		return f, err
	}
	f = scheduler.Filter{Upstream: q.Get("upstream"), Oldest: true, After: q.Get("cursor"), Max: defaultPage}
	if state := scheduler.State(q.Get("state")); state != "" {
		if f.States = []scheduler.State{state}; !slices.Contains(scheduler.States, state) {
			return f, badRequest("state %q is unknown; there are %v", state, scheduler.States)
		}
	}
	if v := q.Get("limit"); v != "" {
		if f.Max, err = strconv.Atoi(v); err != nil || f.Max < 1 || f.Max > maxPage {
			return f, badRequest("limit %q is not a whole number from 1 to %d", v, maxPage)
		}
	}
	if f.After != "" && uuid.Validate(f.After) != nil {
		return f, badRequest("cursor %q is none of ours; take next of the page before", f.After)
	}
	return f, nil
}

func (a *Admin) cancel(r request[none]) (*api.Call, error) {
	if err := visible(a, r.Request, r.PathValue("id")); err != nil {
		return nil, err
	}
	call, err := a.Scheduler.Cancel(r.Context(), r.PathValue("id"))
	if err == nil {
		a.audit(r.Request, "a call was cancelled", "call", call.ID, "upstream", call.Upstream)
	}
	return withCall(call, err)
}

// retry takes an empty body for one without a reason.
func (a *Admin) retry(r request[api.Retry]) (*api.Call, error) {
	in, err := r.body()
	if err != nil && !errors.Is(err, errEmpty) {
		return nil, err
	}
	d := scheduler.Decision{As: upstream.Unknown, By: r.RemoteAddr, Reason: cmp.Or(in.Reason, "sent again by request"), AcceptDuplicate: true}
	return a.decide(r.Request, a.Scheduler.Retry, d)
}

func (a *Admin) resolve(r request[api.Resolution]) (*api.Call, error) {
	resolution, err := r.body()
	if err != nil {
		return nil, err
	}
	d := scheduler.Decision{As: upstream.Outcome(resolution.As), By: r.RemoteAddr, Reason: resolution.Reason}
	if resolution.As == api.Waiting {
		d.As = upstream.NotExecuted
	}
	return a.decide(r.Request, a.Scheduler.Resolve, d)
}

// decide decides an unknown call.
func (a *Admin) decide(r *http.Request, how func(context.Context, string, scheduler.Decision) (*scheduler.Call, error), d scheduler.Decision) (*api.Call, error) {
	call, err := how(r.Context(), r.PathValue("id"), d)
	if err == nil {
		a.audit(r, "an unknown call was resolved", "call", call.ID, "upstream", call.Upstream, "as", d.As, "reason", d.Reason)
	}
	return withCall(call, err)
}
