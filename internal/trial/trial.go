// Package trial describes one request as the sidecar would take it, and judges an answer of the
// platform to it. Nothing is sent.
//
//	router, err := scheduler.NewRouter("alipay", cfg.Scheduler.Upstreams["alipay"])
//	…
//	t, err := trial.Of(router, request)
//	a := trial.Judge(router, request, 200, header, body)
//
// The permits, the flow and the business numbers are those of the scheduler's own compiler;
// an answer is judged by the upstream's own rules, as if it had come over the network. A
// [scheduler.Error] says why the request would be refused.
package trial

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Trial is a call of a request as the scheduler would take it.
type Trial struct {
	Permits  []Permit          `json:"permits"`
	Flow     string            `json:"flow,omitempty"`
	Weight   float64           `json:"weight,omitempty"` // of the flow, among all flows of the upstream
	Numbers  map[string]string `json:"numbers,omitempty"`
	Identity string            `json:"identity,omitempty"` // calls of one identity mean one operation
	// Repeatable tells that the upstream itself recognises a repeat.
	Repeatable bool `json:"repeatable"`
	Signed     bool `json:"signed"` // anew, for each attempt
}

// A Permit is the part of one limit that each attempt takes.
type Permit struct {
	Limit    string `json:"limit"`
	Key      string `json:"key,omitempty"`
	Cost     int    `json:"cost"`
	Capacity string `json:"capacity"` // such as 100 / 1s, or 3 at once
}

// Of describes the call of a request.
func Of(r *scheduler.Router, request *upstream.Request) (*Trial, error) {
	d, err := r.Describe(request)
	if err != nil {
		return nil, err
	}
	up := r.Upstream()
	t := &Trial{
		Numbers: d.Numbers, Identity: d.Identity, Repeatable: d.Repeatable, Signed: up.Signer != nil,
	}
	if up.ShareBy != "" {
		t.Flow, t.Weight = d.Flow, r.Weight(d.Flow)
	}
	for _, p := range d.Permits {
		i := slices.IndexFunc(up.Limits, func(l scheduler.Limit) bool { return l.Name == p.Limit })
		t.Permits = append(t.Permits, Permit{p.Limit, p.Key, p.Cost, capacity(&up.Limits[i])})
	}
	return t, nil
}

// capacity words the permits of a limit.
func capacity(l *scheduler.Limit) string {
	if l.Concurrency > 0 {
		return fmt.Sprintf("%d at once", l.Concurrency)
	}
	return fmt.Sprintf("%d / %v", l.Calls, l.Kind())
}

// A Verdict is the meaning of an answer for a call.
type Verdict struct {
	Outcome upstream.Outcome `json:"outcome"`
	// Rule names the rule that decides or cannot be computed, such as limited[0], or outcomes[3] of preset
	// stripe; empty if the status alone decides, or a proof of success that the answer lacks.
	Rule string `json:"rule,omitempty"`
	// Proven names the proof that a done answer has given, such as proof[0]; empty for none.
	Proven string `json:"proven,omitempty"`
	When   string `json:"when"` // of the rule; else the status, or the reason
	// Uncomputable names the rule that has no value for the answer, empty if all have one.
	Uncomputable string `json:"uncomputable,omitempty"`

	Pauses     string         `json:"pauses,omitempty"`
	RetryAfter time.Duration  `json:"retry_after,omitempty"` // nanoseconds
	Step       scheduler.Step `json:"step"`
	Then       string         `json:"then"` // the step in words
}

// answer is a transport that gives every request one answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	return &http.Response{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, StatusCode: a.status, Status: http.StatusText(a.status), Header: a.header,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}, nil
}

// Judge judges an answer to a request. The error is that of a configuration that
// cannot be used for it.
func Judge(r *scheduler.Router, request *upstream.Request, status int, header http.Header, body []byte) (*Verdict, error) {
	up := r.Upstream()
	c := up.Config
	c.Transport, c.TLS, c.Signer = answer{status, header, body}, nil, nil
	u, err := upstream.New(c)
	if err != nil {
		return nil, err
	}
	res := u.Do(context.Background(), request)
	if res.Response != nil {
		res.Response.Body.Close()
	}
	step, why := r.Follow(time.Now(), request, res) // which may change the outcome
	v := &Verdict{Outcome: res.Outcome, Step: step, Proven: res.Proven, When: res.Reason, RetryAfter: res.RetryAfter}
	if res.Uncomputable != nil {
		v.Uncomputable = res.Uncomputable.Rule
	}
	if res.Ruled || v.Uncomputable == res.By {
		v.Rule = res.By
	}
	v.Pauses = pauses(&up, res)
	v.Then = then(step, &up, why)
	return v, nil
}

// pauses names the pause that an answer makes, empty for none.
func pauses(up *scheduler.Upstream, res *upstream.Result) string {
	if res.Outcome != upstream.NotExecuted || res.Alone {
		return ""
	}
	of, length := "upstream "+up.Name, res.RetryAfter
	if p := res.Pause; p != nil {
		if p.Limit != "" {
			of = "limit " + p.Limit
		}
		if length == 0 {
			length = p.For
		}
	}
	switch {
	case length == 0 && res.WaitErr != nil:
		return fmt.Sprintf("%s for its backoff, because %v", of, res.WaitErr)
	case length == 0:
		return of + " for its backoff"
	case res.WaitErr != nil:
		return fmt.Sprintf("%s for %v, and not by the rule, because %v", of, length, res.WaitErr)
	case res.Asked > length:
		return fmt.Sprintf("%s for %v, which is max_pause; the answer asks for %v", of, length, res.Asked)
	}
	return of + " for " + length.String()
}

// then words a step.
func then(step scheduler.Step, up *scheduler.Upstream, why error) string {
	switch step {
	case scheduler.StepAgain, scheduler.StepAlone:
		if up.Signer != nil || up.Resend {
			return "the call goes again, and burns no attempt"
		}
		return "a submitted call goes again, and burns no attempt; a client that waits gets the answer"
	case scheduler.StepRepeat:
		return "the call is sent again with backoff: the platform recognises the repeat"
	case scheduler.StepQuery:
		return "a query asks the platform; until it says more the call stays unknown"
	case scheduler.StepPerson:
		if why != nil {
			return fmt.Sprintf("the call waits for a person: no query asks the platform, because %v", why)
		}
		return "the call waits for a person: it may have been executed, and neither a repeat nor a query can settle it"
	}
	return "the call ends"
}
