package signer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const (
	// renewAhead is how long before its end a token is no longer used: a request is on its
	// way for a while. Of a short life it is a quarter.
	renewAhead = 30 * time.Second
	// young is the age below which a refused token is not replaced: the refusal is the
	// platform's answer then, to a missing permission for instance.
	young = 10 * time.Second
	// longestPause bounds the pause that the endpoint may ask for: no call goes meanwhile.
	longestPause = time.Hour
	// maxToken is the size of the largest access token, in bytes. An answer has 1 MiB at most.
	maxToken = 16 << 10
)

// bearer is the signer of kind oauth2. It sets an access token, which it fetches with the
// client's credentials (RFC 6749, section 4.4) and keeps in memory until shortly before its
// end. Calls that lack a token wait for one fetch. A fetch runs on the goroutine of the call
// that begins it. The circuit breaker of the upstream spaces fetches that fail.
//
// A request with an Authorization of another scheme than Bearer stays as it is, and so does
// one for the token endpoint's path: SDKs fetch their own tokens through the sidecar.
type bearer struct {
	config *clientcredentials.Config
	client *http.Client
	host   string // of the token endpoint
	path   string // likewise

	timeout, interval time.Duration
	maxPause          time.Duration

	mu       sync.Mutex // guards the fields below
	token    *accessToken
	fetching *fetch // nil if none is under way

	nextAt time.Time // of the fetch that is under way: not before
}

// An accessToken is a token and the part of its life in which it is used.
type accessToken struct {
	text    string
	fetched time.Time
	until   time.Time // zero: the endpoint names no end
}

// A fetch is one request for a token. Its fields are set when done is closed.
type fetch struct {
	done  chan struct{}
	token *accessToken
	err   error
}

func (s *bearer) Sign(ctx context.Context, r *upstream.Request) error {
	if !s.replaces(r) {
		return nil
	}
	t, err := s.usable(ctx)
	if err != nil {
		return later{fmt.Errorf("token endpoint %s: %w", s.host, err)}
	}
	setHeader(r, "Authorization", "Bearer "+t.text)
	return nil
}

// Renew drops the token of a request that the API answered with 401. See [upstream.Renewer].
func (s *bearer) Renew(signed *upstream.Request) bool {
	if !s.replaces(signed) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t := s.token; {
	case t == nil || signed.Header.Get("Authorization") != "Bearer "+t.text:
		return true // it has been replaced meanwhile, or will be
	case time.Since(t.fetched) < young:
		return false
	}
	s.token = nil
	return true
}

// replaces reports whether a request gets a token.
func (s *bearer) replaces(r *upstream.Request) bool {
	path, _, _ := strings.Cut(r.Target, "?")
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return path != s.path && (scheme == "" || strings.EqualFold(scheme, "Bearer"))
}

// usable returns the token, or fetches one.
func (s *bearer) usable(ctx context.Context) (*accessToken, error) {
	s.mu.Lock()
	if t := s.token; t != nil && (t.until.IsZero() || time.Now().Before(t.until)) {
		s.mu.Unlock()
		return t, nil
	}
	f := s.fetching
	if f == nil {
		f = &fetch{done: make(chan struct{}), err: errors.New("the fetch of a token broke off")}
		s.fetching = f
		s.mu.Unlock()
		s.run(ctx, f)
		return f.token, f.err
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, errors.New("no token came in time")
	}
}

// run fetches a token, and wakes the calls that wait for it.
func (s *bearer) run(ctx context.Context, f *fetch) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetching = nil
		if f.err == nil {
			s.token = f.token
		}
		close(f.done)
	}()
	wait := max(0, time.Until(s.nextAt))
	if wait > s.timeout {
		f.err = fmt.Errorf("the next fetch may begin in %v (min_interval, or its Retry-After)", wait.Round(time.Second))
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		f.err = errors.New("no token came in time")
		return
	}
	f.token, f.err = s.fetch(ctx)
}

// fetch asks the token endpoint once.
func (s *bearer) fetch(ctx context.Context) (*accessToken, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, s.client), s.timeout)
	defer cancel()
	t, err := s.config.Token(ctx)
	now := time.Now()
	s.nextAt = s.next(now, err)
	if err != nil {
		return nil, s.reason(err)
	}
	if len(t.AccessToken) > maxToken || strings.ContainsFunc(t.AccessToken, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, fmt.Errorf("its access_token is longer than %d bytes, or no visible ASCII (RFC 6749, appendix A.12)", maxToken)
	}
	token := &accessToken{text: t.AccessToken, fetched: now}
	if !t.Expiry.IsZero() {
		life := t.Expiry.Sub(now)
		if life <= 0 {
			return nil, errors.New("its token has ended already (expires_in)")
		}
		token.until = t.Expiry.Add(-min(renewAhead, life/4))
	}
	return token, nil
}

// errorCodes are those of RFC 6749, section 5.2. Another text may be anything.
var errorCodes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope"}

// reason returns why there is no token, without any part of the endpoint's answer but the
// status and a code that the standard knows: the answer may hold secrets.
func (s *bearer) reason(err error) error {
	var refused *oauth2.RetrieveError
	var network *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused) && slices.Contains(errorCodes, refused.ErrorCode):
		return fmt.Errorf("status %d, %s; look at client_id, client_secret and scopes", refused.Response.StatusCode, refused.ErrorCode)
	case errors.As(err, &refused):
		return fmt.Errorf("status %d", refused.Response.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v (timeout)", s.timeout)
	case errors.As(err, &network):
		return network
	case errors.As(err, &certificate):
		return certificate
	}
	return errors.New("its answer is no token response (RFC 6749, section 5.1)")
}

// next returns when the fetch may begin that follows one, whose end and error are given: so
// the endpoint receives no two fetches within the interval.
func (s *bearer) next(now time.Time, err error) time.Time {
	wait := s.interval
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		limited := refused.Response.StatusCode == http.StatusTooManyRequests
		wait = max(wait, min(retryafter.Wait(refused.Response.Header, now, limited), s.maxPause))
	}
	return now.Add(wait)
}

// Bounds of the configuration of oauth2.
const (
	maxInterval   = time.Hour
	maxScopes     = 100
	maxParameters = 32
	maxText       = 4096 // bytes of a scope, a parameter, or client_id
)

// newBearer returns a signer of kind oauth2, and adds the fault of its secret.
func newBearer(c Config, found *faults) upstream.Signer {
	secret := ""
	if c.ClientSecret != "" && !found.has("client_secret") {
		var err error
		secret, err = Secret(c.ClientSecret)
		found.add("client_secret", err)
	}
	u, _ := tokenURL(c.TokenURL) // check has its fault
	style := oauth2.AuthStyleInHeader
	if c.AuthStyle == "params" {
		style = oauth2.AuthStyleInParams
	}
	params := make(url.Values)
	for _, param := range c.EndpointParams {
		name, value, _ := strings.Cut(param, "=")
		params.Add(name, value)
	}
	return &bearer{
		config: &clientcredentials.Config{
			TokenURL: c.TokenURL, ClientID: c.ClientID, ClientSecret: secret,
			Scopes: c.Scopes, EndpointParams: params, AuthStyle: style,
		},
		client: &http.Client{
			Transport:     wholeSeconds{&http.Transport{TLSClientConfig: tokenTLS(c.TLS), DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 20}}, // fetches are hours apart
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		host: u.Host, path: u.EscapedPath(), timeout: c.Timeout, interval: cmp.Or(c.MinInterval, time.Second), maxPause: min(cmp.Or(c.MaxPause, longestPause), longestPause),
	}
}

// tokenTLS returns the TLS configuration of the token endpoint, which has a name of its own.
func tokenTLS(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.ServerName = ""
	return c
}

// tokenURL reads the URL of a token endpoint. The client's secret goes there.
func tokenURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return &url.URL{}, nil // check reports that it is missing
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		return &url.URL{}, errors.New("is not a URL with https, a host and no user name, such as https://api.example.com/oauth2/token")
	case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
		return u, fmt.Errorf("sends the client's secret to %s in clear; write https (http is for addresses of this host only)", u.Host)
	}
	return u, nil
}

// checkOAuth2 adds the faults of the values that only oauth2 has.
func checkOAuth2(c Config, found *faults) {
	if c.ClientSecret != "" {
		found.add("client_secret", CheckReference(c.ClientSecret))
	}
	_, err := tokenURL(c.TokenURL)
	found.add("token_url", err)
	if c.AuthStyle != "" && c.AuthStyle != "header" && c.AuthStyle != "params" {
		found.add("auth_style", fmt.Errorf("%q is unknown, must be header or params", c.AuthStyle))
	}
	if c.MinInterval < 0 || c.MinInterval > maxInterval {
		found.add("min_interval", fmt.Errorf("is %v, must be positive, and at most %v", c.MinInterval, maxInterval))
	}
	if len(c.ClientID) > maxText {
		found.add("client_id", fmt.Errorf("has %d bytes, at most %d", len(c.ClientID), maxText))
	}
	if len(c.Scopes) > maxScopes {
		found.add("scopes", fmt.Errorf("are %d, at most %d", len(c.Scopes), maxScopes))
	}
	for i, scope := range c.Scopes {
		if scope == "" || len(scope) > maxText || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			found.add(fmt.Sprintf("scopes[%d]", i), fmt.Errorf("is no scope: 1 to %d visible ASCII signs, no space, quote or backslash; give each scope as an item (RFC 6749, section 3.3)", maxText))
		}
	}
	if len(c.EndpointParams) > maxParameters {
		found.add("endpoint_params", fmt.Errorf("are %d, at most %d", len(c.EndpointParams), maxParameters))
	}
	for i, param := range c.EndpointParams {
		field := fmt.Sprintf("endpoint_params[%d]", i)
		switch name, _, ok := strings.Cut(param, "="); {
		case !ok || name == "":
			found.add(field, errors.New("is no parameter; write NAME=VALUE"))
		case name == "client_id" || name == "client_secret":
			found.add(field, fmt.Errorf("belongs to %s; for a body that has it, write auth_style: params", name))
		case name == "scope":
			found.add(field, errors.New("belongs to scopes"))
		case len(param) > maxText:
			found.add(field, fmt.Errorf("has %d bytes, at most %d", len(param), maxText))
		}
	}
}
