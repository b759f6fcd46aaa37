package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func submitCall(a *Admin, r request[api.Submission]) (*api.Call, error) {
	s, f := r.body()
	call, err := submit(a, r.Request, &s, r.Header["Idempotency-Key"], f)
	if err != nil {
		return nil, err
	}
	setAccepted(r.responseHeader, call, a.Prefix)
	if call.Repeated {
		r.responseHeader.Set(replayed, "true")
	}
	return withCall(call, nil)
}

// submit hands over the call of a submission of a request, which was read with the faults f. It does
// not end with its client, as in [Data].
func submit(a *Admin, r *http.Request, s *api.Submission, keys []string, f *faults) (*scheduler.Call, error) {
	by := access.From(r.Context())
	req, err := submitted(s, keys, f)
	var call *scheduler.Call
	if err == nil {
		req.Origin, req.SubmittedBy = scheduler.OriginAdmin, by.Name
		call, err = a.Scheduler.Submit(context.WithoutCancel(r.Context()), req)
	}
	if err != nil {
		if e := asError(err); e.Reason == scheduler.KeyReused && by.Own() { // without the id of the other call
			err = keyOfAnother(e.Upstream)
		}
		name := s.Upstream
		if _, known := a.Scheduler.Upstream(name); !known {
			name = "" // labels of metrics are names of the configuration
		}
		a.Refusals.add(refused(a.Observe, name, err))
		return nil, err
	}
	if !by.Sees(call.SubmittedBy) {
		return nil, keyOfAnother(call.Upstream)
	}
	return call, nil
}

// keyOfAnother refuses a submission with the key of a call of which its caller is told nothing.
func keyOfAnother(upstream string) error {
	return &scheduler.Error{Reason: scheduler.KeyReused, Upstream: upstream, Detail: "the idempotency key, or the identity, of the request is that of another request or of another caller; nothing was accepted"}
}

// submitted returns the request of a submission. The idempotency key may be a header field.
func submitted(s *api.Submission, keys []string, f *faults) (scheduler.Request, error) {
	given, names := upstream.Canonical(http.Header(s.Headers))
	req := scheduler.Request{
		Upstream: s.Upstream, Method: s.Method, Target: s.Target, Header: upstream.EndToEnd(given), Names: names, Body: s.BodyBase64,
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
	for name := range given {
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
	if err := visible(a, r.Request, r.PathValue("id")); err != nil {
		return nil, err
	}
	call, err := call(a, r)
	if err != nil {
		return nil, err
	}
	out := APICall(call)
	if config, ok := a.Scheduler.Upstream(call.Upstream); ok && !call.State.Finished() {
		out.SignatureUntil = api.At(config.SignatureUntil(call.AcceptedAt))
	}
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
	most, _ := preference(r.Header, "wait")
	seconds, err := strconv.ParseUint(most, 10, 31)
	release, ok := func() {}, false
	if err == nil {
		release, ok = hold(a, r.caller())
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

// hold takes a place for a long poll; false if there is none.
func hold(a *Admin, caller access.Caller) (release func(), ok bool) {
	if !caller.Own() {
		return a.held.take(1)
	}
	own, ok := a.polls.take(1)
	if !ok {
		return nil, false
	}
	all, ok := a.held.take(1)
	if !ok {
		own()
		return nil, false
	}
	return func() {
		all()
		own()
	}, true
}

// mayRead refuses the bodies of a call to all but its submitter and callers with the scope.
func mayRead(caller access.Caller, c *scheduler.Call) error {
	if caller.May(access.Bodies) || caller.Name != "" && caller.Name == c.SubmittedBy {
		return nil
	}
	return &scheduler.Error{Reason: notPermitted, Detail: fmt.Sprintf("the bodies of call %s are for its submitter, and for callers with the scope %s", c.ID, access.Bodies)}
}

// getCallResponse writes the body of a call's response.
func getCallResponse(a *Admin, w http.ResponseWriter, r request[none]) error {
	if err := visible(a, r.Request, r.PathValue("id")); err != nil {
		return err
	}
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
	h.Set("Throttler-Status", strconv.Itoa(call.Response.Status))
	if call.Response.Truncated {
		h.Set("Throttler-Truncated", "true")
	}
	return attach(w, call.ID, call.Response.Headers, call.Response.Body)
}

// getCallRequest writes the body of a call's request.
func getCallRequest(a *Admin, w http.ResponseWriter, r request[none]) error {
	id := r.PathValue("id")
	if err := visible(a, r.Request, id); err != nil {
		return err
	}
	call, err := a.Scheduler.Get(r.Context(), id)
	if err == nil {
		err = mayRead(r.caller(), call)
	}
	if err != nil {
		return a.Refusals.explain(id, err)
	}
	request, err := a.Scheduler.Request(r.Context(), id)
	if err != nil {
		return err
	}
	return attach(w, id, request.Header, request.Body)
}

// attach writes the body of a message of a call, by the header of the message. A browser shows
// none of it and runs none.
func attach(w http.ResponseWriter, id string, header http.Header, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment; filename="+id)
	h.Set("Content-Security-Policy", "sandbox")
	if kind := header["Content-Type"]; len(kind) > 0 {
		h.Set("Throttler-Content-Type", kind[0])
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body)
	return nil
}
