// Package upstream sends one attempt of a call to a third-party API and
// decides its outcome.
//
// [New] compiles an upstream; [Upstream.Do] is one attempt; [Compile] compiles
// the request expressions that count calls and tell them apart.
//
//	up, err := upstream.New(upstream.Config{Name: "alipay", URL: "https://openapi.alipay.com"})
//	result := up.Do(ctx, &upstream.Request{Method: "POST", Target: "/gateway.do", Body: form})
//	switch result.Outcome { … }
//
// # Outcomes
//
// An attempt is done, failed (for good), not_executed (limited, or never sent) or
// unknown (it may have been executed). Rules decide in their order, each an expression
// over the answer, because platforms say "limited" and "we do not know" with status
// 200; then the status decides. A rule that cannot be computed, such as one that compares a text
// with a number, is not false: the outcome is unknown. Where Config.Proof asks for it, done is an
// answer in the platform's own format only. Without an answer the outcome is not_executed if no
// byte of the request can have left, or if HTTP/2 says that the upstream did not
// process it (RFC 9113, section 8.7), and unknown otherwise.
//
// # One Do is one sending
//
// Over HTTP/1.1 an attempt has a connection of package internal/h1, which sends no
// request twice. net/http, which speaks HTTP/2, sends a request again by itself when a
// reused connection breaks and the request looks repeatable: two refunds for one call.
// Do allows each attempt one stream, and stops net/http at the second; likewise a
// Transport of the config. At the attempt's end the stream is reset or the connection
// closed.
//
// # Bytes
//
// Target, header values and body go out unchanged; nothing is added and no
// redirect is followed. One field is the exception: where the rules need the body of an answer,
// codings that cannot be read are left out of Accept-Encoding, since a payment whose answer
// cannot be read stays unknown. Read are gzip, deflate (with the header of zlib or without), br
// and zstd. Rules read the first Config.MaxInspect bytes of an answer, as sent and as decoded.
// Do waits for them; Stream passes the answer on to a waiting caller no later than
// Config.InspectDelay after its head. The rest streams. The client gets the bytes as they came.
//
// An Upstream is safe for concurrent use.
package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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

// mostInspected is the greatest MaxInspect, bytes: that much of an answer lies in memory.
const mostInspected = 1 << 30

// A Config describes an upstream.
type Config struct {
	// Name is the upstream's name in messages.
	Name string
	// URL is the scheme, the host and, if any, the path in front of every target.
	URL string

	// Timeout bounds an attempt, from dialling to the end of the answer's inspection.
	Timeout time.Duration
	// ConnectTimeout bounds dialling, and once more the TLS handshake; zero means
	// Timeout, at most DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// HeadTimeout bounds the wait from the request's end to the answer's head;
	// zero leaves it to Timeout.
	HeadTimeout time.Duration
	// BodyTimeout bounds each wait for more of a streaming body; zero means Timeout.
	BodyTimeout time.Duration
	// IdleTimeout bounds the life of an idle connection.
	IdleTimeout time.Duration
	// MaxIdle is the number of idle connections kept.
	MaxIdle int

	// MaxInspect is the number of bytes of an answer's body that the rules can read, 1 GiB at
	// most.
	MaxInspect int64
	// MaxPause bounds the wait that an answer asks for; zero means DefaultMaxPause.
	MaxPause time.Duration
	// InspectDelay bounds the time that inspection holds an answer back from a waiting caller.
	InspectDelay time.Duration

	// Outcomes are the rules, in order; the first that holds decides.
	Outcomes []Rule
	// Proof says by which answers the calls that change something are proven to be done. The first
	// entry whose When is true counts; without one no proof is asked. It does not concern a done
	// that a rule of Outcomes without Preset has given.
	Proof []Proof
	// Charges are expressions over a whole answer, in the language of rules: the permits that
	// the call has cost, one expression for each limit of the caller. An empty one is not evaluated.
	Charges []string
	// Idempotent is a request expression, true if the upstream itself recognises a
	// repeat of the call. Empty means that it recognises none.
	Idempotent string
	// Idempotency describes other marks by which the upstream recognises a repeat.
	Idempotency Idempotency
	// Signer, if not nil, completes a request when it is sent.
	Signer Signer

	// TLS, if not nil, has roots and client certificates. The oldest version is TLS 1.2.
	TLS *tls.Config
	// Certificates are client certificates for some requests each, in place of those of
	// TLS, 1,000 at most. The first whose When holds is used; When sees the request before it
	// is signed. Each certificate has connections of its own, MaxIdle of them idle.
	Certificates []Certificate
	// OnlyCertified refuses a request that fits none of Certificates; otherwise it goes by TLS.
	OnlyCertified bool
	// HTTP1 keeps to HTTP/1.1 even if TLS offers HTTP/2.
	HTTP1 bool
	// Addresses, if any, are the only networks that may be dialled.
	Addresses []netip.Prefix
	// Transport, if not nil, replaces the transport of this package. A
	// *net.OpError of Op "dial" then counts as a failed dial; after any other
	// error the request counts as sent, unless the transport reports its
	// connections through net/http/httptrace.
	Transport http.RoundTripper
}

// A Signer completes a request for one attempt: time stamp, nonce, signature. It
// is called just before the request is sent, with a copy that it may change, and
// must be safe for concurrent use. If it returns an error, the call has failed.
// Exception: an error with a method Temporary() bool that returns true, itself or
// wrapped. Then the call waits and is signed again (see Result.Unsigned).
type Signer interface {
	Sign(ctx context.Context, r *Request) error
}

// A Renewer is a Signer with credentials that the upstream may refuse before their time,
// such as access tokens. It must be safe for concurrent use.
type Renewer interface {
	Signer
	// Renew drops the credentials of a signed request that the upstream answered with 401,
	// and reports whether the request would get others now. It is then sent again, once:
	// the upstream has not applied it (RFC 9110, section 15.5.2).
	Renew(signed *Request) bool
}

// An Upstream is a compiled Config.
type Upstream struct {
	Config
	base       *url.URL
	rules      *Rules
	proofs     proofs
	charges    charges
	idempotent *Expr
	same       *Expr
	transport  http.RoundTripper
	own        bool // transport is from newTransport: it reports every connection

	certificates certificates
	readsBody    bool // of answers, by rules, proofs or charges
}

// New compiles a config. The error joins all faults of the config, each a
// [*FieldError].
func New(c Config) (*Upstream, error) {
	c.timeouts()
	if c.MaxInspect == 0 {
		c.MaxInspect = DefaultMaxInspect
	}
	if c.MaxIdle == 0 {
		c.MaxIdle = DefaultMaxIdle
	}
	if c.MaxPause == 0 {
		c.MaxPause = DefaultMaxPause
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
		"max_pause":             c.MaxPause,
		"idempotency.retention": c.Idempotency.Retention,
	} {
		if d < 0 {
			fault(field, fmt.Errorf("%v must be positive", d))
		}
	}
	if c.MaxInspect < 1 || c.MaxInspect > mostInspected {
		fault("inspect.bytes", fmt.Errorf("is %d, must be from 1 to %d", c.MaxInspect, int64(mostInspected)))
	}
	u.rules, err = CompileRules("outcomes", c.Outcomes)
	for _, err := range parts(err) {
		var f *FieldError
		if errors.As(err, &f) {
			fault("outcomes"+f.Field, f.Err)
		}
	}
	u.proofs = compileProofs(c.Proof, fault)
	u.charges = compileCharges(c.Charges, fault)
	u.readsBody = u.rules.useBody() || u.proofs.useBody() || u.charges.useBody()
	if c.Idempotent != "" {
		u.idempotent, err = Compile(c.Idempotent, Condition)
		fault("idempotent", err)
	}
	if c.Idempotency.Same != "" {
		u.same, err = Compile(c.Idempotency.Same, Same)
		fault("idempotency.same", err)
	}
	if u.transport == nil {
		u.transport, u.own = newTransport(c, u.base), true
	}
	u.certificates = compileCertificates(c, u.base, fault)
	return u, errors.Join(errs...)
}

// A FieldError is a fault of one field of a config.
type FieldError struct {
	Field string // path as in YAML, for instance outcomes[2].when
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// parts returns the errors of an errors.Join.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

// ShownURL returns a URL as people may see it: its scheme and its host, and … for the rest, which
// may hold a secret. It is empty for a text that is no URL.
func ShownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	text := u.Scheme + "://" + u.Host
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		text += "/…"
	}
	return text
}

func parseBase(s string) (*url.URL, error) {
	if s == "" {
		return nil, errors.New("is missing; give the API's scheme and host, for instance https://openapi.alipay.com")
	}
	if !strings.Contains(s, "://") {
		return nil, errors.New("lacks its scheme; " + withScheme(s))
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("cannot be parsed as a URL; write scheme, host and path, such as https://api.example.com/v1") // the error of url.Parse quotes the URL, and a password in it
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("scheme is %q, must be http or https", u.Scheme)
	case u.Host == "":
		return nil, errors.New("has no host; write it after the scheme, such as https://api.example.com")
	case u.User != nil:
		return nil, errors.New("holds a user name; credentials belong to the caller or to a signer")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("has a query or a fragment; only scheme, host and path are used")
	case strings.HasPrefix(u.EscapedPath(), "//"):
		return nil, errors.New("has a path that begins with two slashes; one is enough")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.EscapedPath(), "/"), ""
	return u, nil
}

// withScheme returns the next step for a URL that has a host first. It shows the URL
// unless that may hold a password.
func withScheme(s string) string {
	host, _, _ := strings.Cut(s, "/")
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	scheme := "https://"
	if net.ParseIP(strings.Trim(name, "[]")) != nil || name == "localhost" {
		scheme = "http://"
	}
	if strings.ContainsAny(s, "@?# ") || len(s) > 100 {
		return "write " + scheme + " in front of it"
	}
	return "write " + scheme + s
}

// Host returns the host, and port if any, that attempts go to.
func (u *Upstream) Host() string { return u.base.Host }

// Target returns the target of a request whose attempts go to a URL; false if the URL does
// not begin with the upstream's, with a slash after it.
func (u *Upstream) Target(to *url.URL) (target string, ok bool) {
	if to.Scheme != u.base.Scheme || !strings.EqualFold(hostPort(to), hostPort(u.base)) {
		return "", false
	}
	target, ok = strings.CutPrefix(to.RequestURI(), u.base.Path)
	return target, ok && strings.HasPrefix(target, "/")
}

// hostPort returns the host of a URL and its port, which may be that of the scheme.
func hostPort(u *url.URL) string {
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
}

// Certified returns an error if no client certificate fits the request. It is nil if one of
// Certificates fits, or if requests that fit none go by TLS.
func (u *Upstream) Certified(in *Input) error {
	_, err := u.certificates.choose(in)
	return err
}

// Close closes idle connections.
func (u *Upstream) Close() {
	if t, ok := u.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	u.certificates.close()
}
