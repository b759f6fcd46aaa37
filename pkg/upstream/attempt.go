package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// A Result is what one attempt came to.
type Result struct {
	Outcome Outcome
	// Reason says for people what decided: a rule, a status, an error. It holds no
	// part of the request or of the answer's body.
	Reason string
	// Unreachable tells that no connection could be had: the upstream is down.
	Unreachable bool
	// Unsigned tells that the signer could not complete the request for now: until it
	// can, it need not be asked for every call.
	Unsigned bool
	// Unprocessed tells that HTTP/2 has taken the request back: bytes have left,
	// and the upstream did nothing with them.
	Unprocessed bool
	// Sent tells that at least one byte may have left.
	Sent bool
	// Answered tells that the host that counts calls has answered.
	Answered bool
	// SentAt is when the request had its connection, or was handed to a Transport
	// that does not tell: its first byte left then, or a moment later.
	SentAt time.Time
	// AnsweredAt is when the answer began, or when the attempt was given up.
	AnsweredAt time.Time
	// Pause says what a not_executed answer shuts; nil means the upstream, or
	// nothing if Alone.
	Pause *Pause
	// Alone tells that a not_executed answer concerns this call only.
	Alone bool
	// Park tells that a repeat would not clear an unknown outcome.
	Park bool
	// RetryAfter is how long the call waits at least: what the answer asks for, or
	// the rule's After; zero if neither says.
	RetryAfter time.Duration

	// Response is the answer, nil if there is none. Its Body begins at the
	// beginning, whatever was inspected of it; whoever gets the result closes it.
	Response *http.Response
	// Truncated tells that the body goes on after what was inspected.
	Truncated bool
	// Err is why there is no whole answer.
	Err error
}

// Causes of a cancelled attempt.
var (
	errTimeout = errors.New("the attempt's time-out has passed")
	errStale   = errors.New("the request's signature is too old to be sent")
	errRepeat  = errors.New("the connection broke and the request is not sent a second time")
)

// Do sends the request once. It returns when the answer's head and the first
// MaxInspect bytes of its body are there, or when there will be none.
func (u *Upstream) Do(ctx context.Context, r *Request) *Result { return u.attempt(ctx, r, 0) }

// Stream is Do for a caller who waits for the answer: it returns no later than
// InspectDelay after the answer's head. Rules then see what has come until then,
// and the rest streams.
func (u *Upstream) Stream(ctx context.Context, r *Request) *Result {
	return u.attempt(ctx, r, u.InspectDelay)
}

func (u *Upstream) attempt(ctx context.Context, r *Request, delay time.Duration) *Result {
	ctx, cancel := context.WithCancelCause(ctx)
	timeout := time.AfterFunc(u.Timeout, func() { cancel(errTimeout) })
	end := func() {
		cancel(nil)
		timeout.Stop()
	}
	r, err := u.sign(ctx, r)
	if err != nil {
		err = causeOf(ctx, err)
		end()
		return unsigned(err)
	}
	wire := &wire{cancel: cancel, latest: r.Latest}
	req, err := u.request(httptrace.WithClientTrace(ctx, wire.trace()), r)
	if err != nil {
		end()
		return &Result{Outcome: Failed, Reason: err.Error(), AnsweredAt: time.Now(), Err: err}
	}
	wire.at = time.Now() // until a connection is known
	resp, err := u.transport.RoundTrip(req)
	res := &Result{SentAt: wire.at, AnsweredAt: time.Now(), Response: resp}
	if err != nil {
		err = causeOf(ctx, err)
		end()
		u.unanswered(res, NewInput(r), wire, err)
		return res
	}
	if began := wire.began.Load(); began != nil {
		res.AnsweredAt = *began
	}
	res.Sent, res.Answered = true, !fromGateway(resp.StatusCode)
	head, start := inspect(resp.Body, u.MaxInspect, delay)
	ended, err := head.ended()
	switch {
	case ended && err != io.EOF:
		err = causeOf(ctx, err)
		end()
		head.Close()
		u.broken(res, NewInput(r), len(start), err)
		return res
	case ended:
		end()
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(start))
	default:
		// The rest may take as long as it moves.
		res.Truncated = true
		timeout.Reset(u.BodyTimeout)
		resp.Body = &tail{head: head, cancel: cancel, idle: timeout, timeout: u.BodyTimeout}
	}
	res.RetryAfter = retryAfter(resp.Header, res.AnsweredAt)
	body, whole := u.unpack(resp.Header, start)
	u.judge(res, NewInput(r), &answer{status: resp.StatusCode, header: resp.Header, body: body, partial: res.Truncated || !whole, sent: true})
	return res
}

// sign returns the request as the signer completes a copy of it. A signer that
// panics harms this attempt alone.
func (u *Upstream) sign(ctx context.Context, r *Request) (signed *Request, err error) {
	if u.Signer == nil {
		return r, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked: %v", v)
		}
	}()
	signed = r.Clone()
	return signed, u.Signer.Sign(ctx, signed)
}

// unsigned is the result of an attempt whose request the signer did not complete.
// One that took too long, or says of itself that it is temporary, is asked again;
// the call lives on.
func unsigned(err error) *Result {
	var temporary interface{ Temporary() bool }
	res := &Result{Outcome: Failed, AnsweredAt: time.Now(), Err: fmt.Errorf("signer: %w", err)}
	switch {
	case errors.Is(err, context.Canceled): // the scheduler is stopping
		res.Outcome, res.RetryAfter = NotExecuted, time.Second
	case errors.Is(err, errTimeout), errors.As(err, &temporary) && temporary.Temporary():
		res.Outcome, res.Unsigned = NotExecuted, true
	}
	res.Reason = res.Err.Error()
	return res
}

// causeOf returns why an attempt was cancelled, where that is what an error means.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// unanswered decides the outcome of an attempt that has no answer.
func (u *Upstream) unanswered(res *Result, in *Input, w *wire, err error) {
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	switch {
	case w.connected:
		res.Sent = w.wrote()
	default:
		res.Sent = !u.own && !dial
		res.Unreachable = !res.Sent && !errors.Is(err, context.Canceled) && !errors.Is(err, errStale)
	}
	res.Err = err
	if errors.Is(err, errStale) { // it will not get younger: whoever asks again need not hurry
		res.RetryAfter = time.Second
	}
	reason := "no answer: " + plain(err).Error()
	res.Outcome = Unknown
	if !res.Sent {
		res.Outcome, reason = NotExecuted, "never sent: "+plain(err).Error()
	}
	if res.Sent && w.unprocessed(err) { // no rule knows better
		res.Outcome, res.Unprocessed = NotExecuted, true
		res.Reason = "not processed: " + plain(err).Error()
		return
	}
	u.rule(res, in, &answer{failure: failure(err, res.Unreachable), sent: res.Sent})
	res.Reason = reason
}

// broken decides the outcome of an attempt whose answer broke off after n bytes of its body.
func (u *Upstream) broken(res *Result, in *Input, n int, err error) {
	status, header := res.Response.StatusCode, res.Response.Header
	res.Response, res.Err = nil, err
	res.Outcome = Unknown
	u.rule(res, in, &answer{status: status, header: header, failure: "cut", sent: true})
	res.Reason = fmt.Sprintf("status %d, but the answer broke off after %d bytes: %v", status, n, plain(err))
}

// failure names what kept an answer away, for rules.
func failure(err error, unreachable bool) string {
	var timeout net.Error
	switch {
	case unreachable:
		return "dial"
	case errors.Is(err, errTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, errStale):
		return "cancelled"
	case errors.Is(err, errRepeat), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(err.Error(), "stream error"):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "closed"):
		return "closed"
	}
	return "other"
}

// plain takes the URL, which may hold secrets, out of an error of net/http.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// request builds what goes on the wire. Nothing is added to what the caller gave.
func (u *Upstream) request(ctx context.Context, r *Request) (*http.Request, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	header := r.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	if header.Get("User-Agent") == "" {
		header["User-Agent"] = []string{""} // keeps net/http from adding its own
	}
	target := u.base.Path + r.Target
	path, query, hasQuery := strings.Cut(target, "?")
	to := &url.URL{Scheme: u.base.Scheme, Host: u.base.Host, RawPath: path, RawQuery: query, ForceQuery: hasQuery}
	to.Path, _ = url.PathUnescape(path)
	if !strings.HasPrefix(path, "//") { // such a one would be taken for a host
		to.Opaque = path // goes out as it is; Path is for transports that look at it
	}
	req := &http.Request{
		Method: r.Method, URL: to, Host: u.base.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.Body)), Body: http.NoBody,
	}
	if len(r.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(r.Body))
	}
	return req.WithContext(ctx), nil
}

// unpack returns the body as rules see it, unpacked if it came packed, and whether
// that is all of it.
func (u *Upstream) unpack(header http.Header, body []byte) (plain []byte, whole bool) {
	switch encoding := header.Get("Content-Encoding"); {
	case encoding == "" || strings.EqualFold(encoding, "identity"):
		return body, true
	case !strings.EqualFold(encoding, "gzip"):
		return nil, false
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, true
	}
	plain, err = io.ReadAll(io.LimitReader(zr, u.MaxInspect)) // what can be unpacked of it
	return plain, err == nil && int64(len(plain)) < u.MaxInspect
}
