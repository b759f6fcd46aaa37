package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A Result is the result of one attempt.
type Result struct {
	Outcome Outcome
	// Reason is the rule, status or error that decided, for people to read. It
	// holds no part of the request or of the answer's fields and body, but the media type of an
	// answer that proves nothing.
	Reason string
	// Unreachable is true if a connection was asked for and could not be made, by
	// DNS, dialling or TLS: the upstream is down.
	Unreachable bool
	// Unsigned is true if the signer failed for now. Until it works again, one call
	// at a time suffices to try it.
	Unsigned bool
	// Unprocessed is true if bytes have left, but the upstream did not process the
	// request: HTTP/2 reports so, or a 401 has refused credentials that the signer renews.
	Unprocessed bool
	// Key is the key of Idempotency that the request has had, empty for none.
	Key string
	// Sent is true if at least one byte may have left.
	Sent bool
	// Answered is true if the host that counts calls has answered.
	Answered bool
	// SentAt is the time at which the request got its connection, or was given to
	// a Transport that does not report it: its first byte left then, or a moment
	// later.
	SentAt time.Time
	// WrittenAt is the time at which the last byte of the request was written. It is
	// AnsweredAt if that was not before the answer, and SentAt if the Transport does not
	// report it.
	WrittenAt time.Time
	// AnsweredAt is the time at which the answer began, or the attempt was given up.
	AnsweredAt time.Time
	// Pause is the pause of a not_executed outcome; nil pauses the upstream, or
	// nothing if Alone.
	Pause *Pause
	// Alone is true if a not_executed answer concerns this call only.
	Alone bool
	// Park is true if a repeat would not clear an unknown outcome.
	Park bool
	// Open is true if the platform itself has answered, below status 500, and this one call is
	// unknown all the same: the upstream is well.
	Open bool
	// Ruled is true if a rule has given the outcome, and not the status alone.
	Ruled bool
	// Rule is the index among Config.Outcomes of the rule that has given the outcome (Ruled), or
	// that cannot be computed.
	Rule int
	// By names the rule that has given the outcome or cannot be computed, as Uncomputable does; empty if
	// the status alone decides.
	By string
	// Proven names the proof that a done answer has given, such as proof[0]; empty if none was asked.
	Proven string
	// Uncomputable is not nil if a rule, or the proof of success, has no value for this answer:
	// the outcome is then unknown, unless no byte has left.
	Uncomputable *Uncomputable
	// RetryAfter is the least wait before the call is sent again: the greater of Asked, but at most
	// MaxPause, and the rule's After; zero if there is neither.
	RetryAfter time.Duration
	// Asked is the wait that an answer asks for, if it is not_executed or unknown; see
	// [retryafter.Wait].
	Asked time.Duration
	// WaitErr is the reason why the rule's expression for the wait gave none, and the answer's fields
	// or the backoff take its place. It holds no part of the answer.
	WaitErr error

	// Response is the answer, nil if there is none. Its Body includes the
	// inspected bytes; the receiver of the result must close it.
	Response *http.Response
	// Answer is the part of the answer that the rules have read, nil if there is none. It holds
	// memory.
	Answer *Answer
	// Charges are the costs that the answer tells, one for each of Config.Charges; nil
	// without an answer or without expressions.
	Charges []Charge
	// Truncated is true if the body goes on after the inspected bytes.
	Truncated bool
	// Err is the reason why there is no whole answer.
	Err error
}

// Causes of a cancelled attempt.
var (
	errTimeout   = errors.New("the attempt's time-out has passed")
	errStale     = errors.New("the request's signature is too old to be sent")
	errRevoked   = errors.New("another call has ended it")
	errForbidden = errors.New("this process may send no calls now: its term of the store is over, or the server of the store is away")
	errRepeat    = errors.New("the connection broke and the request is not sent a second time")
)

// ErrStatus is the error of an answer with a status that no final answer has.
var ErrStatus = errors.New("not that of a final answer, 200 to 999")

// Do sends the request once. It returns when the answer's head and the first
// MaxInspect bytes of its body have arrived, or the attempt has failed.
func (u *Upstream) Do(ctx context.Context, r *Request) *Result { return u.attempt(ctx, r, 0) }

// Stream is Do for a waiting caller: it returns no later than InspectDelay after
// the answer's head. Rules read the bytes that have arrived until then, and the
// rest streams. Of calls that need a proof of success it waits as Do does.
func (u *Upstream) Stream(ctx context.Context, r *Request) *Result {
	return u.attempt(ctx, r, u.InspectDelay)
}

func (u *Upstream) attempt(ctx context.Context, r *Request, delay time.Duration) *Result {
	transport, err := u.certificates.transport(r, u.transport)
	if err != nil {
		return unsendable(err)
	}
	parts := new(struct { // in one allocation
		life lifetime
		wire wire
		in   Input
	})
	life, wire := &parts.life, &parts.wire
	life.begin(ctx, u.Timeout)
	if u.readsBody {
		r = offer(r)
	}
	r, err = u.sign(life, r)
	if err != nil {
		return unsigned(life.end(err))
	}
	if r.Revoked != nil && r.Revoked.Load() { // while it was signed
		life.end(nil)
		return &Result{Outcome: NotExecuted, Reason: "never sent: " + errRevoked.Error(), AnsweredAt: time.Now(), Err: errRevoked}
	}
	wire.life, wire.latest, wire.revoked, wire.allowed = life, r.Latest, r.Revoked, r.Allowed
	req, err := u.request(life, r)
	if err != nil {
		life.end(nil)
		return unsendable(err)
	}
	wire.at = time.Now() // until a connection is known
	resp, err := wire.exchange(transport, req)
	res := &Result{SentAt: wire.at, AnsweredAt: time.Now(), Response: resp}
	if err != nil && u.own && wire.unsendable(err) && life.Err() == nil {
		life.end(nil)
		return unsendable(err)
	}
	in := u.input(&parts.in, r)
	res.Key = in.key
	if err != nil {
		u.unanswered(res, in, wire, life.end(err))
		return res
	}
	if began := wire.beganAt(); !began.IsZero() {
		res.AnsweredAt = began
	}
	res.WrittenAt = wire.writtenAt(res.AnsweredAt)
	u.answered(res, in, life, delay)
	return res
}

// answered inspects the body of an answer, for at most delay if that is not zero, and decides the
// outcome. A success that needs a proof is held until its body is whole: half of it proves nothing.
func (u *Upstream) answered(res *Result, in *Input, life *lifetime, delay time.Duration) {
	resp := res.Response
	res.Sent, res.Answered = true, !fromGateway(resp.StatusCode)
	if delay > 0 && resp.StatusCode < http.StatusMultipleChoices && u.proofs.needWhole(in) {
		delay = 0
	}
	head, start := inspect(resp.Body, u.MaxInspect, resp.ContentLength, delay)
	ended, err := head.ended()
	switch {
	case ended && err != io.EOF:
		err = life.end(err)
		head.Close()
		u.broken(res, in, len(start), err)
		return
	case ended:
		life.end(nil)
		resp.Body.Close()
		resp.Body = newBody(start)
	default:
		// From here on BodyTimeout bounds each read, not Timeout the whole.
		res.Truncated = true
		life.timer.Reset(u.BodyTimeout)
		resp.Body = &tail{head: head, life: life, timeout: u.BodyTimeout}
	}
	if resp.StatusCode == http.StatusUnauthorized && u.renewed(in.r) { // certain, so no rule is asked
		res.Outcome, res.Unprocessed, res.Reason = NotExecuted, true, "status 401, and the signer renews its credentials"
		return
	}
	a := newAnswer(resp.StatusCode, resp.Header, start, res.Truncated, u.MaxInspect)
	res.Answer = &Answer{a}
	u.rules.decide(res, in, a)
	if res.Outcome == Done && !(res.Ruled && u.Outcomes[res.Rule].Preset == "") {
		u.proofs.ask(res, in, a)
	}
	res.heed(resp.Header, u.MaxPause)
	res.Charges = u.charges.of(in, a)
}

// sign returns a copy of the request that the signer has completed. A panic of
// the signer fails this attempt only.
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

// renewed reports whether a request with the answer 401 goes again with new credentials. A
// panic of the signer counts as false.
func (u *Upstream) renewed(r *Request) (again bool) {
	renewer, ok := u.Signer.(Renewer)
	if !ok || r.Renewed {
		return false
	}
	defer func() { _ = recover() }() // again is false then
	return renewer.Renew(r)
}

// ErrSigner is the error of an attempt whose signer failed; it wraps that of the signer too.
var ErrSigner = errors.New("signer")

// unsigned returns the result of an attempt after an error of the signer. After a
// time-out, or a temporary error, the call waits and is signed again.
func unsigned(err error) *Result {
	var temporary interface{ Temporary() bool }
	res := &Result{Outcome: Failed, AnsweredAt: time.Now(), Err: fmt.Errorf("%w: %w", ErrSigner, err)}
	switch {
	case errors.Is(err, context.Canceled): // the scheduler is stopping
		res.Outcome, res.RetryAfter = NotExecuted, time.Second
	case errors.Is(err, errTimeout), errors.As(err, &temporary) && temporary.Temporary():
		res.Outcome, res.Unsigned = NotExecuted, true
	}
	res.Reason = res.Err.Error()
	return res
}

// unsendable returns the result of a request that a transport does not take. That is the
// call's own fault and proves nothing about the upstream.
func unsendable(err error) *Result {
	return &Result{Outcome: Failed, Reason: plain(err).Error(), AnsweredAt: time.Now(), Err: err}
}

// unanswered decides the outcome of an attempt without an answer.
func (u *Upstream) unanswered(res *Result, in *Input, w *wire, err error) {
	var op *net.OpError
	dial := errors.As(err, &op) && op.Op == "dial"
	switch {
	case w.connected:
		res.Sent = w.wrote()
	default:
		res.Sent = !u.own && !dial && !w.lost && !w.refused // one that loses a connection reports them
		res.Unreachable = !res.Sent && (w.asked || dial) && !errors.Is(err, context.Canceled) && !withheld(err)
	}
	res.Err = err
	if errors.Is(err, errStale) || errors.Is(err, errForbidden) { // sent again at once, it would be held back again
		res.RetryAfter = time.Second
	}
	reason := "no answer: " + unquoted(err)
	res.Outcome = Unknown
	if !res.Sent {
		res.Outcome, reason = NotExecuted, "never sent: "+unquoted(err)
	}
	if res.Sent && w.unprocessed(err) { // certain, so no rule is asked
		res.Outcome, res.Unprocessed = NotExecuted, true
		res.Reason = "not processed: " + unquoted(err)
		return
	}
	u.rules.apply(res, in, &answer{failure: failure(err, res.Unreachable), sent: res.Sent})
	res.Reason = reason + res.uncomputed()
}

// broken decides the outcome of an attempt whose answer broke off after n bytes of its body.
func (u *Upstream) broken(res *Result, in *Input, n int, err error) {
	status, header := res.Response.StatusCode, res.Response.Header
	res.Response, res.Err = nil, err
	res.Outcome = Unknown
	u.rules.apply(res, in, &answer{status: status, header: header, partial: true, failure: "cut", sent: true})
	res.heed(header, u.MaxPause)
	res.Reason = fmt.Sprintf("status %d, but the answer broke off after %d bytes: %v", status, n, unquoted(err)) + res.uncomputed()
}

// failure returns the value of error in rules.
func failure(err error, unreachable bool) string {
	var timeout net.Error
	switch {
	case unreachable:
		return "dial"
	case errors.Is(err, errTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, context.Canceled), withheld(err):
		return "cancelled"
	case errors.Is(err, errRepeat), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(err.Error(), "stream error"):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "closed"):
		return "closed"
	}
	return "other"
}

// withheld reports whether a request was held back when it had its connection.
func withheld(err error) bool {
	return errors.Is(err, errStale) || errors.Is(err, errRevoked) || errors.Is(err, errForbidden)
}

// quotes matches where an error of net/http begins to quote an answer that it cannot read.
var quotes = regexp.MustCompile(`(?s)( got \[|encodings: \[|line: |debug="|").*`)

// plain removes the URL, which may hold secrets, from an error of net/http.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// unquoted returns the text of an error without its URL, and without bytes of the answer: a
// reason is stored and logged.
func unquoted(err error) string {
	err = plain(err)
	var op *net.OpError // of the connection: it has read nothing
	if errors.As(err, &op) {
		return err.Error()
	}
	switch text := strings.TrimRight(quotes.ReplaceAllString(err.Error(), ""), " :;,"); text {
	case "EOF", "unexpected EOF":
		return "the connection was closed"
	default:
		return text
	}
}

// request returns the request for a transport. Nothing is added to the caller's. Over connections of
// our own its header may be the caller's, which is not changed.
func (u *Upstream) request(ctx context.Context, r *Request) (*http.Request, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	header := r.Header
	if !u.own || !endToEnd(header) { // another transport may change it
		header = EndToEnd(header)
	}
	header = Spelt(header, r.Names)
	target := u.base.Path + r.Target
	path, query, hasQuery := strings.Cut(target, "?")
	// Opaque goes out unchanged; Path is for transports that read it.
	to := &url.URL{Scheme: u.base.Scheme, Host: u.base.Host, Opaque: path, RawPath: path, RawQuery: query, ForceQuery: hasQuery}
	to.Path, _ = url.PathUnescape(path)
	req := new(http.Request).WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header = r.Method, to, u.base.Host, header
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	req.ContentLength, req.Body = int64(len(r.Body)), http.NoBody
	if len(r.Body) > 0 {
		req.Body = newBody(r.Body)
	}
	return req, nil
}

// A memoryBody lies in memory.
type memoryBody struct{ bytes.Reader }

func newBody(b []byte) *memoryBody {
	in := new(memoryBody)
	in.Reset(b)
	return in
}

func (*memoryBody) Close() error { return nil }
