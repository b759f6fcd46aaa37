package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Refusal is the shape of Throttler's own answers. Its zero value is
// application/problem+json (RFC 9457).
type Refusal struct {
	// Status, if not 0, replaces the status.
	Status int
	// Header is set on the answer.
	Header http.Header
	// Body, if not nil, renders the body; if it fails, the body is the problem in
	// JSON. The request is the one that is refused, nil if it was not read.
	Body func(p api.Problem, r *upstream.Request) ([]byte, error)
}

// Reasons of this package, beside the scheduler's.
const (
	bodyTimedOut scheduler.Reason = "body_timeout"
	forbidden    scheduler.Reason = "forbidden"
	notAllowed   scheduler.Reason = "method_not_allowed"
	badConfig    scheduler.Reason = "bad_config"
	badAnswer    scheduler.Reason = "bad_answer"
	signerDown   scheduler.Reason = "signer_down"
	unauthorized scheduler.Reason = "unauthorized"
	noMerchant   scheduler.Reason = "no_merchant"

	misdirected     scheduler.Reason = access.Misdirected
	unauthenticated scheduler.Reason = access.Unauthenticated
	notPermitted    scheduler.Reason = access.NotPermitted
	tooManyWrong    scheduler.Reason = access.TooManyWrong
	tooManyLogins   scheduler.Reason = access.TooManyLogins
	wrongMedia      scheduler.Reason = "unsupported_media_type"
	refusedCall     scheduler.Reason = "refused"
)

// statuses are the status codes of the reasons, with the titles of their problems.
var statuses = map[scheduler.Reason]struct {
	status int
	title  string
}{
	scheduler.BadRequest:      {http.StatusBadRequest, "The request is malformed"},
	scheduler.BadKey:          {http.StatusBadRequest, "A limit cannot read its key or cost from the request"},
	unauthorized:              {http.StatusUnauthorized, "The notification is not verified"},
	forbidden:                 {http.StatusForbidden, "The request is not allowed to come from there"},
	unauthenticated:           {http.StatusUnauthorized, "The caller is not known"},
	notPermitted:              {http.StatusForbidden, "The caller may not do this"},
	misdirected:               {http.StatusMisdirectedRequest, "The request is for another host"},
	tooManyWrong:              {http.StatusTooManyRequests, "Too many wrong tokens"},
	tooManyLogins:             {http.StatusTooManyRequests, "Too many logins"},
	scheduler.NotFound:        {http.StatusNotFound, "Not found"},
	notAllowed:                {http.StatusMethodNotAllowed, "The method is not allowed here"},
	bodyTimedOut:              {http.StatusRequestTimeout, "The body did not come in time"},
	scheduler.WrongState:      {http.StatusConflict, "The call is in another state"},
	scheduler.ChangedSince:    {http.StatusPreconditionFailed, "The call, or the file, has changed since it was looked at"},
	scheduler.TooLarge:        {http.StatusRequestEntityTooLarge, "The body is too large"},
	badConfig:                 {http.StatusUnprocessableEntity, "The configuration cannot be taken"},
	scheduler.MayExecuteTwice: {http.StatusUnprocessableEntity, "The call may be executed twice"},
	scheduler.CostTooHigh:     {http.StatusUnprocessableEntity, "The call costs more than its limit has"},
	scheduler.KeyReused:       {http.StatusUnprocessableEntity, "The idempotency key was used for another request"},
	scheduler.PastDeadline:    {http.StatusTooManyRequests, "No slot in time"},
	noMerchant:                {http.StatusBadGateway, "The merchant gives no answer"},
	signerDown:                {http.StatusBadGateway, "The signer fails for now"},
	scheduler.Unreachable:     {http.StatusBadGateway, "The upstream cannot be reached"},
	scheduler.Full:            {http.StatusServiceUnavailable, "Too many calls wait"},
	scheduler.Stopping:        {http.StatusServiceUnavailable, "Throttler is stopping"},
	scheduler.Paused:          {http.StatusServiceUnavailable, "The upstream is paused or down"},
	scheduler.NoAnswer:        {http.StatusGatewayTimeout, "There is no answer; the call may have been executed"},
	badAnswer:                 {http.StatusBadGateway, "The answer is not one of HTTP; the call may have been executed"},
	scheduler.Gone:            {http.StatusServiceUnavailable, "The client has gone"},
	scheduler.NotSent:         {http.StatusInternalServerError, "The request could not be completed for sending"},
	scheduler.StoreFailed:     {http.StatusInternalServerError, "The call could not be stored"},
	scheduler.DiskFull:        {http.StatusInsufficientStorage, "There is no room to store the call"},
	scheduler.NoOwner:         {http.StatusServiceUnavailable, "Another replica has the calls"},
	wrongMedia:                {http.StatusUnsupportedMediaType, "The body is of another media type"},
	refusedCall:               {http.StatusNotFound, "The call was refused"},
}

// Problem types of draft-ietf-httpapi-ratelimit-headers.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

func badRequest(format string, args ...any) error {
	return &scheduler.Error{Reason: scheduler.BadRequest, Detail: fmt.Sprintf(format, args...)}
}

func notConfigured(name string) error {
	return &scheduler.Error{Reason: scheduler.NotFound, Upstream: name, Detail: fmt.Sprintf("upstream %q is not configured", name)}
}

// asError returns an error as the scheduler's. Any other one is an internal error.
func asError(err error) *scheduler.Error {
	var e *scheduler.Error
	if errors.As(err, &e) {
		return e
	}
	var refusal *access.Error
	if errors.As(err, &refusal) {
		return &scheduler.Error{Reason: scheduler.Reason(refusal.Reason), Detail: refusal.Detail, RetryAfter: refusal.RetryAfter}
	}
	return &scheduler.Error{Detail: err.Error()}
}

// refused returns the error of a request to the named upstream, with a call. A request
// that was refused before the scheduler's loop has no call yet, and was not observed.
func refused(observe func(scheduler.Event), name string, err error) *scheduler.Error {
	e := *asError(err)
	if errors.Is(err, upstream.ErrStatus) {
		e.Reason = badAnswer
	}
	if errors.Is(err, upstream.ErrSigner) {
		e.Reason = signerDown
	}
	if e.Call != nil {
		return &e
	}
	e.Call = &scheduler.Call{ID: uuid.Must(uuid.NewV7()).String(), Upstream: name, AcceptedAt: time.Now()}
	switch {
	case e.Reason == scheduler.NoAnswer: // that is no refusal
		e.Call.State = scheduler.Unknown
	case observe != nil:
		observe(scheduler.Event{Kind: scheduler.EventRefused, Call: e.Call, Reason: e.Reason})
	}
	return &e
}

// write answers with an error about a request; nil if the error is about none.
func (f Refusal) write(w http.ResponseWriter, e *scheduler.Error, r *upstream.Request) {
	p := apiProblem(e)
	status := p.Status
	if f.Status != 0 {
		status = f.Status
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	for name, values := range f.Header {
		h[name] = values
	}
	setCallHeaders(h, e.Call)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	var body []byte
	err := errors.ErrUnsupported
	if f.Body != nil {
		body, err = f.Body(p, r)
	}
	if err != nil {
		h.Set("Content-Type", "application/problem+json")
		var plain bytes.Buffer
		encodeJSON(&plain, p)
		body = plain.Bytes()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
