package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Refusal is the shape of the answers that are Throttler's own. Its zero value
// is application/problem+json (RFC 9457).
type Refusal struct {
	// Status, if not 0, replaces the status.
	Status int
	// Header is set on the answer.
	Header http.Header
	// Body, if not nil, makes the body; if it fails, the problem is told in JSON.
	Body func(Problem) ([]byte, error)
}

// A Problem is what the body of a refusal can tell. The embedded members are
// those of RFC 9457.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail"`
	Reason           string   `json:"reason"`
	Outcome          string   `json:"outcome,omitempty"`     // what the call came to so far; empty if there is no call
	Call             string   `json:"call,omitempty"`        // its id
	RetryAfter       int      `json:"retry_after,omitempty"` // seconds
	ViolatedPolicies []string `json:"violated-policies,omitempty"`

	Request *scheduler.Request `json:"-"` // that is refused; nil if it was not read
}

// Reasons that only HTTP knows.
const (
	bodyTimedOut scheduler.Reason = "body_timeout"
	forbidden    scheduler.Reason = "forbidden"
	notAllowed   scheduler.Reason = "method_not_allowed"
	badConfig    scheduler.Reason = "bad_config"
)

// statuses of the reasons, with the titles of their problems.
var statuses = map[scheduler.Reason]struct {
	status int
	title  string
}{
	scheduler.BadRequest:   {http.StatusBadRequest, "The request is malformed"},
	scheduler.BadKey:       {http.StatusBadRequest, "A limit cannot read its key or cost from the request"},
	forbidden:              {http.StatusForbidden, "The request is not allowed to come from there"},
	scheduler.NotFound:     {http.StatusNotFound, "Not found"},
	notAllowed:             {http.StatusMethodNotAllowed, "The method is not allowed here"},
	bodyTimedOut:           {http.StatusRequestTimeout, "The body did not come in time"},
	scheduler.WrongState:   {http.StatusConflict, "The call is in another state"},
	scheduler.TooLarge:     {http.StatusRequestEntityTooLarge, "The body is too large"},
	badConfig:              {http.StatusUnprocessableEntity, "The configuration cannot be taken"},
	scheduler.CostTooHigh:  {http.StatusUnprocessableEntity, "The call costs more than its limit has"},
	scheduler.KeyReused:    {http.StatusUnprocessableEntity, "The idempotency key was used for another request"},
	scheduler.PastDeadline: {http.StatusTooManyRequests, "The call's slot is later than it may wait"},
	scheduler.Unreachable:  {http.StatusBadGateway, "The upstream cannot be reached"},
	scheduler.Full:         {http.StatusServiceUnavailable, "Too many calls wait"},
	scheduler.Stopping:     {http.StatusServiceUnavailable, "Throttler is stopping"},
	scheduler.Paused:       {http.StatusServiceUnavailable, "The upstream is shut for now"},
	scheduler.NoAnswer:     {http.StatusGatewayTimeout, "There is no answer; the call may have been executed"},
	scheduler.Gone:         {http.StatusServiceUnavailable, "The client has gone"},
	scheduler.NotSent:      {http.StatusInternalServerError, "The request could not be completed for sending"},
	scheduler.StoreFailed:  {http.StatusInternalServerError, "The call could not be stored"},
	scheduler.DiskFull:     {http.StatusInsufficientStorage, "There is no room to store the call"},
}

// Problem types of draft-ietf-httpapi-ratelimit-headers.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problemOf tells an error. Of execution it says what is known of its call.
func problemOf(e *scheduler.Error) Problem {
	s, ok := statuses[e.Reason]
	if !ok {
		s.status, s.title = http.StatusInternalServerError, "Internal error"
	}
	p := Problem{
		Type: "about:blank", Title: s.title, Status: s.status, Detail: e.Detail, Reason: string(e.Reason),
		RetryAfter: int((e.RetryAfter + time.Second - 1) / time.Second),
	}
	switch s.status {
	case http.StatusTooManyRequests:
		p.Type = quotaExceeded
		if e.Limit != "" {
			p.ViolatedPolicies = []string{e.Limit}
		}
	case http.StatusServiceUnavailable:
		p.Type = reducedCapacity
		p.RetryAfter = max(p.RetryAfter, 1) // it passes; nobody knows when
	}
	if e.Call != nil {
		p.Call, p.Outcome = e.Call.ID, string(e.Call.Outcome())
	}
	return p
}

// asError returns an error as the scheduler's; others are our own fault.
func asError(err error) *scheduler.Error {
	var e *scheduler.Error
	if errors.As(err, &e) {
		return e
	}
	return &scheduler.Error{Detail: err.Error()}
}

// turnAway makes an error the answer to a request that is a call. One that never
// came to the scheduler's loop has no call yet, and nobody has observed it.
func turnAway(observe func(scheduler.Event), upstream string, err error) *scheduler.Error {
	e := *asError(err)
	if e.Call != nil {
		return &e
	}
	e.Call = &scheduler.Call{ID: uuid.Must(uuid.NewV7()).String(), Upstream: upstream, AcceptedAt: time.Now()}
	switch {
	case e.Reason == scheduler.NoAnswer: // it was not turned away
		e.Call.State = scheduler.Unknown
	case observe != nil:
		observe(scheduler.Event{Kind: scheduler.EventRefused, Call: e.Call, Reason: e.Reason})
	}
	return &e
}

// write answers with an error; r is the request that it is about, nil if there is none.
func (f Refusal) write(w http.ResponseWriter, e *scheduler.Error, r *scheduler.Request) {
	p := problemOf(e)
	p.Request = r
	status := p.Status
	if f.Status != 0 {
		status = f.Status
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	for name, values := range f.Header {
		h[name] = values
	}
	tell(h, e.Call)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	var body []byte
	err := errors.ErrUnsupported
	if f.Body != nil {
		body, err = f.Body(p)
	}
	if err != nil {
		h.Set("Content-Type", "application/problem+json")
		var plain bytes.Buffer
		encoder := json.NewEncoder(&plain)
		encoder.SetEscapeHTML(false)
		encoder.Encode(p)
		body = plain.Bytes()
	}
	w.WriteHeader(status)
	w.Write(body)
}
