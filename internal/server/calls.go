package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// submission is the body of POST /v1/calls.
type submission struct {
	Upstream       string  `json:"upstream"`
	Method         string  `json:"method"`
	Path           string  `json:"path"`
	Headers        headers `json:"headers"`
	Body           *string `json:"body"`
	BodyBase64     []byte  `json:"body_base64"`
	NotBefore      instant `json:"not_before"`
	Deadline       instant `json:"deadline"`
	Priority       int     `json:"priority"`
	IdempotencyKey string  `json:"idempotency_key"`
	Callback       string  `json:"callback"`
}

func (a *Admin) submit(r *http.Request) (*reply, error) {
	var s submission
	call, err := (*scheduler.Call)(nil), readJSON(r, &s)
	if err == nil {
		var req scheduler.Request
		if req, err = s.request(); err == nil {
			call, err = a.s.Submit(r.Context(), req)
		}
	}
	if err != nil {
		name := s.Upstream
		if _, known := a.s.Upstream(name); !known {
			name = "" // what is observed has names of the configuration only
		}
		turnAway(a.observe, name, err)
		return nil, err
	}
	return &reply{status: http.StatusAccepted, call: call}, nil
}

// request returns the call that is submitted.
func (s *submission) request() (scheduler.Request, error) {
	req := scheduler.Request{
		Upstream: s.Upstream, Method: s.Method, Target: s.Path, Header: upstream.EndToEnd(http.Header(s.Headers)), Body: s.BodyBase64,
		Priority: s.Priority, NotBefore: s.NotBefore.Time, Deadline: s.Deadline.Time, IdempotencyKey: s.IdempotencyKey, Callback: s.Callback,
	}
	if s.Upstream == "" {
		return req, bad("upstream is missing; name one of the configuration's upstreams")
	}
	if s.Body != nil {
		if s.BodyBase64 != nil {
			return req, bad("body and body_base64 are both there; send one of them")
		}
		req.Body = []byte(*s.Body)
	}
	for name := range s.Headers {
		if _, kept := req.Header[name]; !kept {
			return req, bad("headers: %s cannot be given; Throttler sets it, or it concerns one connection only", name)
		}
	}
	return req, checkIdempotencyKey(s.IdempotencyKey)
}

func (a *Admin) get(r *http.Request) (*reply, error) {
	id, re := r.PathValue("id"), &reply{}
	var call *scheduler.Call
	var err error
	if v := prefers(r.Header, "wait"); v != "" {
		seconds, bad := strconv.ParseUint(v, 10, 31)
		if bad == nil {
			wait := min(time.Duration(seconds)*time.Second, maxLongPoll)
			ctx, cancel := context.WithTimeout(r.Context(), wait)
			defer cancel()
			call, err = a.s.Wait(ctx, id)
			re.applied = fmt.Sprintf("wait=%d", wait/time.Second)
		}
	}
	if re.applied == "" {
		call, err = a.s.Get(r.Context(), id)
	}
	re.body = call
	return re, err
}

// Page is the body of GET /v1/calls.
type Page struct {
	Calls []*scheduler.Call `json:"calls"`
	Next  string            `json:"next,omitempty"` // the cursor of the next page
}

func (a *Admin) list(r *http.Request) (*reply, error) {
	f, err := a.filter(r)
	if err != nil {
		return nil, err
	}
	f.Max++ // one more tells whether there is a next page
	calls, err := a.s.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	p := Page{Calls: calls}
	if len(calls) == f.Max {
		p.Calls = calls[:f.Max-1]
		p.Next = p.Calls[f.Max-2].ID
	}
	if p.Calls == nil {
		p.Calls = []*scheduler.Call{}
	}
	return &reply{body: p}, nil
}

// filter reads the parameters of a list.
func (a *Admin) filter(r *http.Request) (f scheduler.Filter, err error) {
	q, err := a.query(r, "upstream", "state", "limit", "cursor")
	if err != nil {
		return f, err
	}
	f = scheduler.Filter{Upstream: q.Get("upstream"), State: scheduler.State(q.Get("state")), After: q.Get("cursor"), Max: defaultPage}
	if f.State != "" && !slices.Contains(scheduler.States, f.State) {
		return f, bad("state %q is unknown; there are %v", f.State, scheduler.States)
	}
	if v := q.Get("limit"); v != "" {
		if f.Max, err = strconv.Atoi(v); err != nil || f.Max < 1 || f.Max > maxPage {
			return f, bad("limit %q is not a whole number from 1 to %d", v, maxPage)
		}
	}
	if f.After != "" && uuid.Validate(f.After) != nil {
		return f, bad("cursor %q is none of ours; take next of the page before", f.After)
	}
	return f, nil
}

func (a *Admin) cancel(r *http.Request) (*reply, error) {
	call, err := a.s.Cancel(r.Context(), r.PathValue("id"))
	if err == nil {
		a.audit(r, "a call was cancelled", "call", call.ID, "upstream", call.Upstream)
	}
	return &reply{body: call}, err
}

func (a *Admin) retry(r *http.Request) (*reply, error) {
	return a.decide(r, scheduler.Waiting, "sent again by request")
}

func (a *Admin) resolve(r *http.Request) (*reply, error) {
	var body struct {
		As     scheduler.State `json:"as"`
		Reason string          `json:"reason"`
	}
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	return a.decide(r, body.As, body.Reason)
}

// decide resolves an unknown call.
func (a *Admin) decide(r *http.Request, as scheduler.State, reason string) (*reply, error) {
	call, err := a.s.Resolve(r.Context(), r.PathValue("id"), as, reason)
	if err == nil {
		a.audit(r, "an unknown call was resolved", "call", call.ID, "upstream", call.Upstream, "as", as, "reason", reason)
	}
	return &reply{body: call}, err
}
