package config

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileUpstream struct {
	// Listen is the address of the data listener, host:port. Without it calls come
	// only by the admin API, or from the program that embeds the scheduler.
	Listen address `key:"listen"`
	// Hosts are names, without ports, by which clients reach the data listener, beside
	// localhost and the URL's host. Default none: names are checked at loopback addresses
	// only; with hosts they are checked at every address.
	Hosts []string `key:"hosts"`
	// URL is the API's scheme and host, and the path in front of every target, if any.
	URL string `key:"url"`
	// Preset names the preset that gives the defaults of this upstream. Default generic.
	Preset string `key:"preset"`

	// Timeout bounds an attempt, from dialling to the answer's end. Default 30s.
	Timeout *duration `key:"timeout"`
	// Late bounds the time from the end of an unanswered attempt until the upstream
	// counts it: its permit comes back that much later. Default 5s.
	Late *duration `key:"late"`
	// MaxWait bounds a caller's wait for its slot. Default 30s.
	MaxWait *duration `key:"max_wait"`
	// ClientTimeout is the time-out of the clients: a call is sent only if its usual answer
	// would come earlier. Default: none.
	ClientTimeout *duration `key:"client_timeout"`
	// MaxAge bounds the time from a call's acceptance to its sending. Default 24h.
	MaxAge *duration `key:"max_age"`
	// MaxPause bounds the wait that an answer asks for, also those of queries, of webhooks'
	// targets and, below an hour, of the token endpoint. Default 24h.
	MaxPause *duration `key:"max_pause"`
	// MaxWaiting is the greatest number of waiting calls. Default 10000.
	MaxWaiting *int `key:"max_waiting"`
	// MaxWaitingBytes is the greatest size of all waiting calls together. Default 64MiB.
	MaxWaitingBytes *size `key:"max_waiting_bytes"`
	// MaxBody is the greatest size of a request's body. Default 1MiB.
	MaxBody *size `key:"max_body"`
	// Concurrency is the greatest number of attempts in flight. Default 1024.
	Concurrency *int        `key:"concurrency"`
	Breaker     fileBreaker `key:"breaker"`

	// Durable is true, false or a request expression, true for calls that are stored
	// although their caller waits. Default false.
	Durable *condition `key:"durable"`
	// NoBody is true, false or a request expression, true for calls to be stored without
	// their request. Such a call ends with the process, and is reported. Default false.
	NoBody *condition `key:"no_body"`

	// Numbers are request expressions, by name, for business numbers that are kept and
	// shown with a call. Default: the preset's; an empty text is none.
	Numbers map[string]string `key:"numbers"`
	// Identity is a request expression for an operation and its number: a second call of
	// one value is a repeat of the first. Default: the preset's; an empty text is none.
	Identity string `key:"identity"`
	// Ends is a request expression for the identity of the calls that a call ends, such as
	// the payment that a cancel names. Default: the preset's; an empty text is none.
	Ends string `key:"ends"`
	// Asks is a request expression for the identity of the call that a caller's query asks
	// about. Default: the preset's; an empty text is none.
	Asks string `key:"asks"`

	// ShareBy is a request expression; calls of one value are one flow, and flows
	// share fairly. Default: all calls are one flow.
	ShareBy string `key:"share_by"`
	// Weights are the shares of flows, above 0; a flow not named has 1. A flow named
	// here is the same in any case.
	Weights map[string]float64 `key:"weights"`
	Spacing fileSpacing        `key:"spacing"`

	// Outcomes are evaluated in order, before those of the preset; the first that
	// holds decides.
	Outcomes []fileRule `key:"outcomes"`
	// Proof says by which answers calls are proven to be done; the first entry whose when is
	// true counts. It is not asked of a done that a rule of the file gives. Default: the
	// preset's; an empty list asks for none.
	Proof []fileProof `key:"proof"`
	// Limited are the answers by which the platform limits, besides those of the preset: statuses
	// from 400 to 599, expressions as those of outcomes, or both. Such a call has not been executed, and
	// what limits it pauses. Statuses that also come after a call that was executed (408, 499, and 500 and
	// above but 503, 509 and 529) need an expression, such as 'status == 500'. They are evaluated after outcomes and before the rules of the preset.
	// Default: none.
	Limited limited `key:"limited"`
	// Idempotent is a request expression, true if the upstream itself recognises a
	// repeat of the call. An empty text is false for all. Default: the preset's.
	Idempotent string `key:"idempotent"`
	// Resend allows a waiting caller's call to be sent again with the same bytes.
	// Default: the preset's.
	Resend      bool            `key:"resend"`
	Idempotency fileIdempotency `key:"idempotency"`
	Retry       fileRetry       `key:"retry"`
	Signature   fileSignature   `key:"signature"`
	Signer      fileSigner      `key:"signer"`
	// Resolve are queries about calls of unknown outcome; the first with
	// a when that holds is sent. Default: the preset's.
	Resolve []fileResolve `key:"resolve"`
	// Callbacks are the targets, by name, that a submitted call may name for its webhook.
	Callbacks map[string]fileCallback `key:"callbacks"`
	// Notifications is the listener for the notifications of the platform. Default: none.
	Notifications fileNotifications `key:"notifications"`
	// Replay gives the stored answer to a client that sends an Idempotency-Key a second
	// time. Default: the preset's.
	Replay  bool        `key:"replay"`
	Refusal fileRefusal `key:"refusal"`

	Timeouts fileTimeouts `key:"timeouts"`
	Inspect  fileInspect  `key:"inspect"`
	// HTTP2 is used if TLS offers it. Default true.
	HTTP2 *bool   `key:"http2"`
	TLS   fileTLS `key:"tls"`
	// Addresses, as IP or CIDR, are the only ones that may be dialled. Default: any,
	// except that a name must not lead to this host or its link.
	Addresses []string `key:"addresses"`

	// Keys are names for request expressions: a limit's per_key, or share_by, may
	// be one of them. Default: the preset's.
	Keys map[string]string `key:"keys"`
	// Cost is the default of the cost of the limits with calls: the permits that a call takes, a
	// number or a request expression. Default: the preset's, else 1.
	Cost *cost `key:"cost"`
	// Limits all hold at once.
	Limits []fileLimit `key:"limits"`
}

type fileSpacing struct {
	// Burst spreads calls evenly inside sliding windows without counts; so many may be
	// sent at once. Default: calls are sent as soon as permits are free.
	Burst *int `key:"burst"`
}

// A fileBreaker says when the circuit breaker opens for an upstream that can be reached.
type fileBreaker struct {
	// Unknown of the last Of calls open it if their outcomes are unknown; repeats under one key
	// or identity count once. Default 10; 0: never.
	Unknown *int `key:"unknown"`
	// Of is the number of last calls that count. Default 20, or unknown if that is more.
	Of *int `key:"of"`
	// Silent is the time without an answer, while so many attempts are in flight, that
	// opens it. Default: four times the 99th percentile of the last answers, at least 5s.
	Silent *duration `key:"silent"`
}

func (f fileBreaker) convert(faults *faultList, path string) (t retry.Trip) {
	if f.Unknown != nil && *f.Unknown == 0 {
		t.Unknown = -1
	} else {
		positive(faults, path+".unknown", f.Unknown, &t.Unknown)
	}
	positive(faults, path+".of", f.Of, &t.Of)
	positive(faults, path+".silent", f.Silent, &t.Silent)
	return t
}

func (f fileUpstream) convert(faults *faultList, path string) scheduler.Upstream {
	u := scheduler.Upstream{
		Config:  upstream.Config{URL: f.URL, Idempotent: f.Idempotent},
		Durable: f.Durable.source(),
		NoBody:  f.NoBody.source(),
		Resend:  f.Resend,
		Weights: f.Weights,
		Numbers: f.numbers(), Identity: f.Identity, Ends: f.Ends, Asks: f.Asks,
	}
	f.connection(faults, path, &u.Config)
	positive(faults, path+".late", f.Late, &u.Late)
	atMost(faults, path+".late", u.Late, quota.MaxWindow)
	positive(faults, path+".max_wait", f.MaxWait, &u.MaxWait)
	positive(faults, path+".client_timeout", f.ClientTimeout, &u.ClientTimeout)
	positive(faults, path+".max_age", f.MaxAge, &u.MaxAge)
	positive(faults, path+".max_pause", f.MaxPause, &u.MaxPause)
	positive(faults, path+".max_waiting", f.MaxWaiting, &u.MaxWaiting)
	positive(faults, path+".max_waiting_bytes", f.MaxWaitingBytes, &u.MaxWaitingBytes)
	positive(faults, path+".max_body", f.MaxBody, &u.MaxBody)
	positive(faults, path+".concurrency", f.Concurrency, &u.Concurrency)
	u.Breaker = f.Breaker.convert(faults, path+".breaker")
	positive(faults, path+".spacing.burst", f.Spacing.Burst, &u.Burst)

	u.Outcomes = convertRules(faults, path+".outcomes", f.Outcomes)
	for i, proof := range f.Proof {
		u.Proof = append(u.Proof, proof.convert(faults, index(path+".proof", i)))
	}
	u.Idempotency = f.Idempotency.convert(faults, path+".idempotency")
	u.Retry = f.Retry.convert(faults, path+".retry")
	u.Signature.Once = f.Signature.Once
	positive(faults, path+".signature.life", f.Signature.Life, &u.Signature.Life)
	u.Signer = f.Signer.convert(faults, path+".signer", u.TLS, u.MaxPause)
	for i, query := range f.Resolve {
		u.Resolve = append(u.Resolve, query.convert(faults, index(path+".resolve", i)))
	}
	if len(f.Callbacks) > 0 {
		u.Callbacks = make(map[string]scheduler.Callback)
	}
	for name, callback := range f.Callbacks {
		u.Callbacks[name] = callback.convert(faults, path+".callbacks."+name)
	}
	f.checkExpressions(faults, path)
	u.ShareBy = f.expression(faults, path+".share_by", f.ShareBy)
	costs := f.costs(faults, path+".cost")
	for i, limit := range f.Limits {
		at := index(path+".limits", i)
		limit.PerKey = f.expression(faults, at+".per_key", limit.PerKey)
		if limit.Cost == nil && limit.Concurrency == nil {
			limit.Cost = costs
		}
		u.Limits = append(u.Limits, limit.convert(faults, at))
	}
	return u
}

func (f fileUpstream) checkExpressions(faults *faultList, path string) {
	for _, name := range slices.Sorted(maps.Keys(f.Keys)) {
		if _, err := upstream.Compile(f.Keys[name], upstream.Key); err != nil {
			faults.add(path+".keys."+name, "%w", err)
		}
	}
}

// costs returns the default of the limits' cost, nil if there is none.
func (f fileUpstream) costs(faults *faultList, path string) *cost {
	if f.Cost == nil {
		return nil
	}
	n, err := strconv.Atoi(string(*f.Cost))
	if err == nil && n < 1 {
		faults.add(path, "is %d, must be at least 1", n)
		return nil // else each limit repeats the fault
	}
	if _, err := upstream.Compile(string(*f.Cost), upstream.Cost); err != nil {
		faults.add(path, "%w", err)
		return nil
	}
	return f.Cost
}

// identifier matches a text that is written like a name in keys.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// expression returns the expression of a name in keys. Another text is an expression
// itself.
func (f fileUpstream) expression(faults *faultList, path, text string) string {
	if e, ok := f.Keys[text]; ok {
		return e
	}
	if _, err := upstream.Compile(text, upstream.Key); err != nil && identifier.MatchString(text) {
		names := slices.Collect(maps.Keys(f.Keys))
		given := "the keys are " + hint.List(names) + hint.Meant(text, names)
		if len(names) == 0 {
			given = "no keys are given, by the file or the preset"
		}
		faults.add(path, "%q is neither an expression, such as param(%q), nor the name of one; %s", text, text, given)
	}
	return text
}

// numbers returns the expressions of numbers. An empty one removes that of the preset, also for
// notifications.
func (f fileUpstream) numbers() map[string]string {
	for name, expression := range f.Numbers {
		if expression == "" {
			delete(f.Numbers, name)
			delete(f.Notifications.Numbers, name)
		}
	}
	return f.Numbers
}
