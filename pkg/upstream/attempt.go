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
	// Sent tells that at least one byte may have left.
	Sent bool
	// Answered tells that the host that counts calls has answered.
	Answered bool
	// AnsweredAt is when the answer began, or when the attempt was given up.
	AnsweredAt time.Time
	// Pause says what a not_executed answer shuts; nil means the upstream.
	Pause *Pause
	// RetryAfter is what the answer asks for; zero if nothing.
	RetryAfter time.Duration

	// Response is the answer, nil if there is none. Its Body has been read up to
	// Config.MaxInspect bytes and begins anew; whoever gets the result closes it.
	Response *http.Response
	// Truncated tells that the body goes on after what was inspected.
	Truncated bool
	// Err is why there is no whole answer.
	Err error
}

// Causes of a cancelled attempt.
var (
	errTimeout = errors.New("the attempt's time-out has passed")
	errRepeat  = errors.New("the connection broke and the request is not sent a second time")
)

// Do sends the request once. It returns when the answer's head and the first
// MaxInspect bytes of its body are there, or when there will be none.
func (u *Upstream) Do(ctx context.Context, r *Request) *Result {
	if u.Signer != nil {
		r = r.Clone()
		if err := u.Signer.Sign(ctx, r); err != nil {
			err = fmt.Errorf("signer: %w", err)
			return &Result{Outcome: Failed, Reason: err.Error(), AnsweredAt: time.Now(), Err: err}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timeout := time.AfterFunc(u.Timeout, func() { cancel(errTimeout) })
	wire := &wire{cancel: cancel}
	req, err := u.request(httptrace.WithClientTrace(ctx, wire.trace()), r)
	if err != nil {
		cancel(nil)
		return &Result{Outcome: Failed, Reason: err.Error(), AnsweredAt: time.Now(), Err: err}
	}
	resp, err := u.transport.RoundTrip(req)
	res := &Result{AnsweredAt: time.Now(), Response: resp}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		timeout.Stop()
		u.unanswered(res, wire, err)
		return res
	}
	res.Sent, res.Answered = true, !fromGateway(resp.StatusCode)
	head, err := io.ReadAll(io.LimitReader(resp.Body, u.MaxInspect+1))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		timeout.Stop()
		resp.Body.Close()
		res.Response, res.Outcome, res.Err = nil, Unknown, err
		res.Reason = fmt.Sprintf("status %d, but the answer broke off after %d bytes: %v", resp.StatusCode, len(head), plain(err))
		return res
	}
	if int64(len(head)) <= u.MaxInspect {
		cancel(nil)
		timeout.Stop()
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(head))
	} else {
		// The rest may take as long as it moves.
		res.Truncated = true
		resp.Body = &tail{Reader: io.MultiReader(bytes.NewReader(head), resp.Body), body: resp.Body, cancel: cancel, idle: timeout, timeout: u.Timeout}
	}
	res.RetryAfter = retryAfter(resp.Header, res.AnsweredAt)
	res.Outcome, res.Pause, res.Reason = u.judge(NewInput(r), resp.StatusCode, resp.Header, u.inspect(resp.Header, head))
	return res
}

// unanswered decides the outcome of an attempt that has no answer.
func (u *Upstream) unanswered(res *Result, w *wire, err error) {
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	switch {
	case w.connected:
		res.Sent = w.wrote()
	default:
		res.Sent = !u.own && !dial
		res.Unreachable = !res.Sent && !errors.Is(err, context.Canceled)
	}
	res.Err = err
	if res.Sent {
		res.Outcome, res.Reason = Unknown, "no answer: "+plain(err).Error()
	} else {
		res.Outcome, res.Reason = NotExecuted, "never sent: "+plain(err).Error()
	}
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

// inspect returns the body as rules see it: unpacked, if it came packed.
func (u *Upstream) inspect(header http.Header, body []byte) []byte {
	if !strings.EqualFold(header.Get("Content-Encoding"), "gzip") {
		return body
	}
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	plain, _ := io.ReadAll(io.LimitReader(zr, u.MaxInspect)) // what can be unpacked of it
	return plain
}

// tail is a long body: each read gives it new time.
type tail struct {
	io.Reader
	body    io.Closer
	cancel  context.CancelCauseFunc
	idle    *time.Timer
	timeout time.Duration
}

func (t *tail) Read(p []byte) (int, error) {
	t.idle.Reset(t.timeout)
	return t.Reader.Read(p)
}

func (t *tail) Close() error {
	t.idle.Stop()
	t.cancel(nil)
	return t.body.Close()
}
