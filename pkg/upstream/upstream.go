// Package upstream sends one attempt of a call to somebody else's API and says
// what it came to.
//
// [New] compiles an upstream; [Upstream.Do] is one attempt; [Compile] makes the
// request expressions by which calls are counted and told apart.
//
//	up, err := upstream.New(upstream.Config{Name: "alipay", URL: "https://openapi.alipay.com"})
//	result := up.Do(ctx, &upstream.Request{Method: "POST", Target: "/gateway.do", Body: form})
//	switch result.Outcome { … }
//
// # Outcomes
//
// An attempt is done, failed (for good), not_executed (limited, or never sent)
// or unknown (it may have been executed). Rules decide in their order, each an
// expression over the answer, because platforms say "limited" and "we do not
// know" with status 200; then the status decides. Without an answer the outcome
// is not_executed if not one byte of the request can have left, or if HTTP/2 says
// that the upstream did nothing with it (RFC 9113, section 8.7), and unknown otherwise.
//
// # One Do is one sending
//
// net/http sends a request again by itself when a reused connection breaks and
// the request looks repeatable to it: two refunds for one call. Do allows each
// attempt one connection, or one HTTP/2 stream, and stops net/http at the second.
// At the attempt's end the stream is reset or the connection closed.
//
// # Bytes
//
// Target, header values and body go out as they are given; nothing is added and
// no redirect is followed. Rules look into the first Config.MaxInspect bytes of
// an answer. Do waits for them; Stream, for a caller who waits, passes the answer
// on at the latest Config.InspectDelay after its head. What follows streams.
//
// An Upstream is safe for concurrent use.
package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Defaults of a [Config] whose fields are zero.
const (
	DefaultTimeout        = 30 * time.Second
	DefaultConnectTimeout = 10 * time.Second
	DefaultIdleTimeout    = 90 * time.Second
	DefaultMaxInspect     = 1 << 20
	DefaultInspectDelay   = time.Second
	DefaultMaxIdle        = 100
)

// A Config describes an upstream.
type Config struct {
	// Name is how messages call it.
	Name string
	// URL is the scheme, the host and, if any, the path in front of every target.
	URL string

	// Timeout bounds an attempt, from dialling to the end of what is inspected of the answer.
	Timeout time.Duration
	// ConnectTimeout bounds dialling, and once more the TLS handshake; zero means
	// Timeout, at most DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// HeadTimeout bounds the wait from the request's end to the answer's head;
	// zero leaves it to Timeout.
	HeadTimeout time.Duration
	// BodyTimeout bounds each wait for more of what streams; zero means Timeout.
	BodyTimeout time.Duration
	// IdleTimeout is how long an idle connection is kept.
	IdleTimeout time.Duration
	// MaxIdle is how many idle connections are kept.
	MaxIdle int

	// MaxInspect is how many bytes of an answer's body the rules can see.
	MaxInspect int64
	// InspectDelay is how long the rules may keep an answer from a waiting caller.
	InspectDelay time.Duration

	// Outcomes are the rules, in order; the first that holds decides.
	Outcomes []Rule
	// Idempotent is a request expression, true for calls whose repeat the upstream
	// itself recognises. Empty means none is known to be.
	Idempotent string
	// Idempotency tells by what else the upstream recognises a repeat.
	Idempotency Idempotency
	// Signer, if not nil, completes a request when it is sent.
	Signer Signer

	// TLS, if not nil, has roots and client certificates. TLS 1.2 is the least.
	TLS *tls.Config
	// HTTP1 keeps to HTTP/1.1 where TLS offers HTTP/2.
	HTTP1 bool
	// Addresses, if any, are the only ones that may be dialled.
	Addresses []netip.Prefix
	// Transport, if not nil, replaces the connections made here. A failed dial is
	// then known by a *net.OpError of Op "dial"; other errors count as sent
	// unless the transport reports no connection through net/http/httptrace.
	Transport http.RoundTripper
}

// Idempotency is how an upstream recognises a repeat. Its zero value is not at all.
type Idempotency struct {
	// Header is that of an idempotency key: calls that have it are repeatable.
	Header string
	// Field is a parameter, or a JSON path of the body: calls that have it are repeatable.
	Field string
	// Retention is how long after the first sending a repeat is recognised, for
	// all calls that are repeatable; zero means for good.
	Retention time.Duration
	// Same is an expression over a request that gives anything: two requests under
	// one idempotency key are the same if it gives the same, and else the second
	// one is refused. Beside what request expressions see it sees target, payload
	// (the body) and params(without...), all parameters but those named. It must
	// tell apart whatever the upstream would; if it fails, or is empty, all of
	// method, target, body and header counts, but for fields that say when, by which
	// client and under which trace a request was made, and for signatures.
	Same string
}

// A Signer completes a request for one attempt: time stamp, nonce, signature. It
// is called just before the request is sent, with a copy that it may change, and
// must be safe for concurrent use. A call that it fails to complete has failed,
// unless the error, or one that it wraps, has a method Temporary() bool that says
// otherwise: then the call waits and is signed again (see Result.Unsigned).
type Signer interface {
	Sign(ctx context.Context, r *Request) error
}

// An Upstream is a compiled Config.
type Upstream struct {
	Config
	base       *url.URL
	rules      *Rules
	idempotent *Expr
	same       *Expr
	transport  http.RoundTripper
	own        bool // transport is ours: it reports every connection
}

// New compiles a config. The error joins everything that is wrong with it, each
// part a [*FieldError].
func New(c Config) (*Upstream, error) {
	c.timeouts()
	if c.MaxInspect == 0 {
		c.MaxInspect = DefaultMaxInspect
	}
	if c.MaxIdle == 0 {
		c.MaxIdle = DefaultMaxIdle
	}
	u := &Upstream{Config: c, transport: c.Transport}
	var errs []error
	fault := func(field string, err error) {
		if err != nil {
			errs = append(errs, &FieldError{field, err})
		}
	}
	var err error
	u.base, err = parseBase(c.URL)
	fault("url", err)
	for field, d := range map[string]time.Duration{
		"timeout": c.Timeout, "timeouts.connect": c.ConnectTimeout, "timeouts.head": c.HeadTimeout,
		"timeouts.body": c.BodyTimeout, "timeouts.idle": c.IdleTimeout, "inspect.delay": c.InspectDelay,
		"idempotency.retention": c.Idempotency.Retention,
	} {
		if d < 0 {
			fault(field, fmt.Errorf("%v must be positive", d))
		}
	}
	u.rules, err = CompileRules(c.Outcomes)
	for _, err := range parts(err) {
		var f *FieldError
		if errors.As(err, &f) {
			fault("outcomes"+f.Field, f.Err)
		}
	}
	if c.Idempotent != "" {
		u.idempotent, err = Compile(c.Idempotent, Condition)
		fault("idempotent", err)
	}
	if c.Idempotency.Same != "" {
		u.same, err = Compile(c.Idempotency.Same, Same)
		fault("idempotency.same", err)
	}
	if u.transport == nil {
		host := ""
		if u.base != nil {
			host = u.base.Hostname()
		}
		u.transport, u.own = newTransport(c, host), true
	}
	return u, errors.Join(errs...)
}

// A FieldError tells which field of a config is wrong.
type FieldError struct {
	Field string // as in YAML, for instance outcomes[2].when
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// parts undoes errors.Join.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

func parseBase(s string) (*url.URL, error) {
	if s == "" {
		return nil, errors.New("is missing; give the API's scheme and host, for instance https://openapi.alipay.com")
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("cannot be parsed as a URL") // the error of url.Parse quotes it, and with it a password
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("scheme is %q, must be http or https", u.Scheme)
	case u.Host == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("holds a user name; credentials belong to the caller or to a signer")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("has a query or a fragment; only scheme, host and path are used")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/"), ""
	return u, nil
}

// Repeatable reports whether the upstream itself recognises a repeat of the
// request, within Idempotency.Retention of its first sending.
func (u *Upstream) Repeatable(in *Input) bool {
	by := u.Idempotency
	if by.Header != "" && in.r.Header.Get(by.Header) != "" {
		return true
	}
	if by.Field != "" && in.has(by.Field) {
		return true
	}
	if u.idempotent == nil {
		return false
	}
	ok, err := u.idempotent.Bool(in)
	return err == nil && ok
}

// Host returns the host, and port if any, that attempts go to.
func (u *Upstream) Host() string { return u.base.Host }

// Close closes idle connections.
func (u *Upstream) Close() {
	if t, ok := u.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
