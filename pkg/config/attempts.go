package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The keys of an upstream that concern its attempts: connections, signatures, and
// what follows an attempt of unknown outcome.

type fileIdempotency struct {
	// Header is that of an idempotency key: calls that have it are repeatable.
	Header string `key:"header"`
	// Field is a parameter, or a JSON path of the body: calls that have it are repeatable.
	Field string `key:"field"`
	// Retention is how long after the first sending a repeat is recognised. Default: for good.
	Retention *duration `key:"retention"`
	// Same is an expression that tells which requests under one idempotency key are
	// the same: those for which it gives the same. Default: the whole request, but for
	// its time, client, trace and signature.
	Same string `key:"same"`
}

type fileSignature struct {
	// Life is how long after its acceptance a call without a signer is sent at
	// most: its signature would be stale. Default: no bound.
	Life *duration `key:"life"`
	// Once tells that the same bytes are good for one sending: they hold a nonce.
	// Default: the preset's.
	Once bool `key:"once"`
}

type fileSigner struct {
	// Kind is alipay, alipay-v3, wechatpay-v3, exec or http. Default: none.
	Kind string `key:"kind"`
	// Key refers to the private RSA key: file:PATH (mode 0600) or env:NAME.
	Key string `key:"key"`
	// AppID is whose calls the key signs. Default: as the request says.
	AppID string `key:"app_id"`
	// CertSN is app_cert_sn of alipay-v3 in certificate mode. Default: as the request says.
	CertSN string `key:"cert_sn"`
	// Merchant is mchid of wechatpay-v3, and Serial the number of its certificate.
	Merchant string `key:"merchant"`
	Serial   string `key:"serial"`
	// Command is the program of exec, with its arguments.
	Command []string `key:"command"`
	// URL is the service of http.
	URL string `key:"url"`
	// Timeout bounds one answer of a program or service. Default 5s.
	Timeout *duration `key:"timeout"`
}

type fileTimeouts struct {
	// Connect bounds dialling, and the TLS handshake. Default 10s.
	Connect *duration `key:"connect"`
	// Head bounds the wait for the answer's head. Default: timeout.
	Head *duration `key:"head"`
	// Body bounds each wait for more of a body that streams. Default: timeout.
	Body *duration `key:"body"`
	// Idle is how long an idle connection is kept. Default 90s.
	Idle *duration `key:"idle"`
}

type fileInspect struct {
	// Bytes is how much of an answer's body the rules can see. Default 1MiB.
	Bytes *size `key:"bytes"`
	// Delay is how long that may keep an answer from a waiting caller. Default 1s.
	Delay *duration `key:"delay"`
}

type fileTLS struct {
	// CA is a PEM file with the only authorities that are trusted. Default: the system's.
	CA string `key:"ca"`
	// Cert is a PEM file with the client certificate and its chain; Key refers to
	// its private key: file:PATH (mode 0600) or env:NAME.
	Cert string `key:"cert"`
	Key  string `key:"key"`
	// ServerName is what the upstream's certificate must be for. Default: the URL's host.
	ServerName string `key:"server_name"`
}

type fileResolve struct {
	// When is a request expression: the unknown calls that it settles. Default: all.
	When string `key:"when"`
	// Signed tells that the query is nothing without a signer. Default false.
	Signed bool `key:"signed"`
	// Method is the query's. Default GET.
	Method string `key:"method"`
	// Target, Headers and Body are request expressions over the unknown call that
	// give a text. Default none, but for Target.
	Target  string            `key:"target"`
	Headers map[string]string `key:"headers"`
	Body    string            `key:"body"`
	// Outcomes are rules over the query's answer, and the unknown call's request.
	Outcomes []fileVerdict `key:"outcomes"`
	// After is the wait before the first query. Default 10s.
	After *duration `key:"after"`
	// Every is the wait between queries. Default 30s.
	Every *duration `key:"every"`
	// Queries is how many there are at most. Default 10.
	Queries *int `key:"queries"`
}

type fileVerdict struct {
	// When is an expression over status, header(name) and body(path) of the query's
	// answer, and method, path, query, form, param and json of the unknown call.
	When string `key:"when"`
	// Is is done, failed, not_executed (it goes again) or unknown.
	Is string `key:"is"`
}

type fileCallback struct {
	// URL is the target's, whole.
	URL string `key:"url"`
	// Secret refers to the secret of Standard Webhooks: file:PATH (mode 0600) or env:NAME.
	Secret string `key:"secret"`
	// Timeout bounds an attempt. Default 30s.
	Timeout *duration `key:"timeout"`
	// PerSecond is how many are sent in a second at most. Default 50.
	PerSecond *int              `key:"per_second"`
	Retry     fileCallbackRetry `key:"retry"`
}

type fileCallbackRetry struct {
	// Attempts is how often a webhook is sent at most. Default 12.
	Attempts  *int `key:"attempts"`
	fileCurve `key:",squash"`
}

// attempts converts what concerns attempts.
func (r *reader) attempts(path string, f fileUpstream, u *scheduler.Upstream) {
	positive(r, path+".timeouts.connect", f.Timeouts.Connect, &u.ConnectTimeout)
	positive(r, path+".timeouts.head", f.Timeouts.Head, &u.HeadTimeout)
	positive(r, path+".timeouts.body", f.Timeouts.Body, &u.BodyTimeout)
	positive(r, path+".timeouts.idle", f.Timeouts.Idle, &u.IdleTimeout)
	positive(r, path+".inspect.bytes", f.Inspect.Bytes, &u.MaxInspect)
	positive(r, path+".inspect.delay", f.Inspect.Delay, &u.InspectDelay)
	u.HTTP1 = f.HTTP2 != nil && !*f.HTTP2
	u.TLS = r.tls(path+".tls", f.TLS)
	for i, text := range f.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if ip, e := netip.ParseAddr(text); e == nil {
			prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			r.fault(index(path+".addresses", i), "%q is neither an IP address nor a CIDR such as 10.0.0.0/8", text)
		}
		u.Addresses = append(u.Addresses, prefix)
	}

	u.Idempotency = upstream.Idempotency{Header: f.Idempotency.Header, Field: f.Idempotency.Field, Same: f.Idempotency.Same}
	if h := f.Idempotency.Header; h != "" && !headerName.MatchString(h) {
		r.fault(path+".idempotency.header", "%q is not a header name", h)
	}
	positive(r, path+".idempotency.retention", f.Idempotency.Retention, &u.Idempotency.Retention)
	u.Signature.Once = f.Signature.Once
	positive(r, path+".signature.life", f.Signature.Life, &u.Signature.Life)
	u.Signer = r.signer(path+".signer", f.Signer)
	for i, from := range f.Resolve {
		at := index(path+".resolve", i)
		to := scheduler.Resolve{When: from.When, Signed: from.Signed, Method: from.Method, Target: from.Target, Header: from.Headers, Body: from.Body}
		for _, v := range from.Outcomes {
			to.Outcomes = append(to.Outcomes, upstream.Rule{When: v.When, Is: upstream.Outcome(v.Is)})
		}
		positive(r, at+".after", from.After, &to.After)
		positive(r, at+".every", from.Every, &to.Every)
		positive(r, at+".queries", from.Queries, &to.Queries)
		u.Resolve = append(u.Resolve, to)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Callbacks)) {
		if u.Callbacks == nil {
			u.Callbacks = make(map[string]scheduler.Callback)
		}
		u.Callbacks[name] = r.callback(path+".callbacks."+name, f.Callbacks[name])
	}
}

func (r *reader) rules(path string, from []fileRule) []upstream.Rule {
	var rules []upstream.Rule
	for i, f := range from {
		rule := upstream.Rule{When: f.When, Is: upstream.Outcome(f.Is), Park: f.Park}
		if f.Pause != nil {
			rule.Pause = &upstream.Pause{Limit: f.Pause.Limit}
			positive(r, index(path, i)+".pause.for", f.Pause.For, &rule.Pause.For)
		}
		positive(r, index(path, i)+".after", f.After, &rule.After)
		rules = append(rules, rule)
	}
	return rules
}

func (r *reader) retry(path string, f fileRetry, to *retry.Policy) {
	positive(r, path+".attempts", f.Attempts, &to.Attempts)
	r.curve(path, f.fileCurve, &to.Curve)
	if f.Limited != nil {
		to.Limited = new(retry.Curve)
		r.curve(path+".limited", *f.Limited, to.Limited)
	}
	if f.Budget != nil {
		if to.Share = *f.Budget; !(to.Share > 0) || to.Share > 1 {
			r.fault(path+".budget", "is %v, must be above 0 and at most 1: repeats per first sending", to.Share)
		}
	}
}

func (r *reader) curve(path string, f fileCurve, to *retry.Curve) {
	positive(r, path+".min", f.Min, &to.Min)
	positive(r, path+".max", f.Max, &to.Max)
	switch f.Backoff {
	case "", "exponential":
		to.Backoff = retry.Exponential
	case "linear":
		to.Backoff = retry.Linear
	case "decorrelated":
		to.Backoff = retry.Decorrelated
	default:
		r.oneOf(path+".backoff", f.Backoff, "exponential", "linear", "decorrelated")
	}
}

// named puts the expressions of keys where their names stand.
func (r *reader) named(path string, f *fileUpstream) {
	for _, name := range slices.Sorted(maps.Keys(f.Keys)) {
		if _, err := upstream.Compile(f.Keys[name], upstream.Key); err != nil {
			r.fault(path+".keys."+name, "%w", err)
		}
	}
	put := func(expression *string) {
		if e, ok := f.Keys[*expression]; ok {
			*expression = e
		}
	}
	put(&f.ShareBy)
	f.Limits = slices.Clone(f.Limits)
	for i := range f.Limits {
		put(&f.Limits[i].PerKey)
	}
}

func (r *reader) signer(path string, f fileSigner) upstream.Signer {
	c := signer.Config{
		Kind: f.Kind, Key: f.Key, AppID: f.AppID, CertSN: f.CertSN,
		Merchant: f.Merchant, Serial: f.Serial, Command: f.Command, URL: f.URL,
	}
	positive(r, path+".timeout", f.Timeout, &c.Timeout)
	if f.Kind == "" {
		if f.Key != "" || f.AppID != "" || f.Merchant != "" || f.Serial != "" || f.URL != "" || len(f.Command) > 0 {
			r.fault(path+".kind", "is missing; without it there is no signer")
		}
		return nil
	}
	s, err := signer.New(c)
	if err == nil {
		return s
	}
	for _, err := range split(err) {
		var field *upstream.FieldError
		if errors.As(err, &field) {
			r.fault(path+"."+field.Field, "%w", field.Err)
		}
	}
	return nil
}

func (r *reader) tls(path string, f fileTLS) *tls.Config {
	if f == (fileTLS{}) {
		return nil
	}
	c := &tls.Config{ServerName: f.ServerName}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			r.fault(path+".ca", "%w", err)
		} else if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			r.fault(path+".ca", "%s holds no certificate in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		r.fault(path, "cert and key belong together; give both or neither")
		return c
	}
	if f.Cert == "" {
		return c
	}
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		r.fault(path+".cert", "%w", err)
	}
	key, keyErr := signer.Secret(f.Key)
	if keyErr != nil {
		r.fault(path+".key", "%w", keyErr)
	}
	if err != nil || keyErr != nil {
		return c
	}
	pair, err := tls.X509KeyPair(cert, []byte(key))
	if err != nil {
		r.fault(path+".cert", "%s and the key do not make a pair in PEM", f.Cert)
	}
	c.Certificates = []tls.Certificate{pair}
	return c
}

func (r *reader) callback(path string, f fileCallback) scheduler.Callback {
	c := scheduler.Callback{Config: upstream.Config{URL: f.URL}}
	positive(r, path+".timeout", f.Timeout, &c.Timeout)
	positive(r, path+".per_second", f.PerSecond, &c.PerSecond)
	positive(r, path+".retry.attempts", f.Retry.Attempts, &c.Retry.Attempts)
	r.curve(path+".retry", f.Retry.fileCurve, &c.Retry.Curve)
	if f.Secret == "" {
		return c // the scheduler says that it is missing
	}
	s, err := signer.NewWebhook(f.Secret)
	if err != nil {
		r.fault(path+".secret", "%w", err)
		s = unusable{} // so that nothing else is said of it
	}
	c.Signer = s
	return c
}

// unusable stands for a signer that could not be made.
type unusable struct{ upstream.Signer }
