package gateway

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the platform of a REST.
type Kind string

const (
	AlipayV3  Kind = "alipay-v3"
	WechatPay Kind = "wechatpay-v3"
	Stripe    Kind = "stripe"
)

// RESTConfig describes a REST. Kind is required, and Client except for Stripe.
type RESTConfig struct {
	Kind   Kind
	Client string        // the caller's public key, PEM
	Keys   Keys          // the platform's own pair; zero: a new one
	Limit  Limit         // of all calls; zero: none
	Fresh  time.Duration // greatest age of a signature; zero: the platform's own bound
	// Fault, if set, is called for each call that passed the checks and the limit,
	// the n-th of its route, from 1. Of the answers in the platform's shape it may
	// return UnknownError, SystemError and AppLimited.
	Fault func(route string, n int) Fault
}

// A REST is an [http.Handler] that refunds as one of three platforms does. It
// verifies signatures, their age and that no nonce comes twice; it limits, signs
// its answers, and counts. The rest of the platforms' APIs is missing.
type REST struct {
	PublicKey string // verifies answers, PEM
	config    RESTConfig
	shape     shape
	client    *rsa.PublicKey
	private   *rsa.PrivateKey

	mu       sync.Mutex
	all      tally
	arrivals map[string]int    // by route
	admitted map[string]int    // by route
	refunds  map[string]int    // money moved, by number
	replay   map[string]reply  // Stripe: by idempotency key
	nonces   map[string]bool   // of earlier requests
	ages     []time.Duration   // of signatures on arrival
	known    map[string]string // request fingerprints, by number
}

// A reply is a status and a JSON object.
type reply struct {
	status int
	body   map[string]any
	header map[string]string
}

// A shape has the differences between the platforms.
type shape struct {
	refund, query string // path prefixes
	fresh         time.Duration
	limited       reply
	unknown       reply
	system        reply
	number        func(r *http.Request, body map[string]any) string
	authenticate  func(*REST, *http.Request, []byte) error
	sign          func(*REST, http.Header, []byte)
}

// NewREST returns a platform. The error names an unusable key.
func NewREST(c RESTConfig) (*REST, error) {
	p := &REST{
		config: c, shape: shapes[c.Kind], all: tally{limit: c.Limit},
		arrivals: make(map[string]int), admitted: make(map[string]int), refunds: make(map[string]int),
		replay: make(map[string]reply), nonces: make(map[string]bool), known: make(map[string]string),
	}
	if p.shape.refund == "" {
		return nil, fmt.Errorf("gateway: kind %q is unknown", c.Kind)
	}
	if p.config.Keys == (Keys{}) {
		p.config.Keys = NewKeys()
	}
	if p.config.Fresh == 0 {
		p.config.Fresh = p.shape.fresh
	}
	p.PublicKey = p.config.Keys.Public
	var err error
	if p.private, err = parsePrivate(p.config.Keys.Private); err != nil {
		return nil, fmt.Errorf("gateway: Keys.Private: %w", err)
	}
	if c.Kind != Stripe {
		if p.client, err = parsePublic(c.Client); err != nil {
			return nil, fmt.Errorf("gateway: Client: %w", err)
		}
	}
	return p, nil
}

func (p *REST) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now() // the instant of arrival, before the body is read
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	re, fault := p.handle(at, r, raw)
	body, _ := json.Marshal(re.body) // maps of texts and numbers always encode
	for name, v := range re.header {
		w.Header().Set(name, v)
	}
	w.Header().Set("Content-Type", "application/json")
	if p.shape.sign != nil {
		p.shape.sign(p, w.Header(), body)
	}
	respond(w, r, re.status, body, fault, 0)
}

func failed(status int, code string) reply {
	return reply{status, map[string]any{"code": code, "message": code, "error": map[string]any{"code": code, "message": code, "type": "invalid_request_error"}}, nil}
}

// handle checks one call and executes it.
func (p *REST) handle(at time.Time, r *http.Request, raw []byte) (reply, Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query := p.shape.query != "" && strings.HasPrefix(r.URL.Path, p.shape.query)
	refund := r.Method == http.MethodPost && r.URL.Path == p.shape.refund
	route := map[bool]string{true: "query", false: "refund"}[query && !refund]
	p.arrivals[route]++
	p.all.arrivals = append(p.all.arrivals, at)
	if err := p.shape.authenticate(p, r, raw); err != nil {
		return failed(http.StatusUnauthorized, "SIGN_ERROR: "+err.Error()), Fault{}
	}
	if !query && !refund {
		return failed(http.StatusNotFound, "NO_SUCH_ROUTE"), Fault{}
	}
	if !p.all.fits(at) {
		p.all.limited++
		return p.shape.limited, Fault{}
	}
	p.all.take(at)
	p.admitted[route]++

	body := readBody(r, raw)
	number := p.shape.number(r, body)
	if route == "query" && number == "" {
		number = r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	}
	key := r.Header.Get("Idempotency-Key")
	if stored, ok := p.replay[key]; ok && p.config.Kind == Stripe && key != "" {
		stored.header = map[string]string{"Idempotent-Replayed": "true"}
		return stored, Fault{}
	}
	var fault Fault
	if p.config.Fault != nil {
		fault = p.config.Fault(route, p.admitted[route])
	}
	re := reply{status: http.StatusOK, body: map[string]any{}}
	if fault.executes() {
		re = p.execute(route, number, string(raw))
	}
	switch fault.Answer {
	case AppLimited, MethodLimited:
		return p.shape.limited, Fault{Delay: fault.Delay}
	case UnknownError, SlowUnknown:
		re = p.shape.unknown
	case SystemError:
		re = p.shape.system
	}
	if p.config.Kind == Stripe && key != "" && fault.executes() {
		p.replay[key] = re
	}
	return re, fault
}

// execute makes the refund of a number once, or answers a query about it.
func (p *REST) execute(route, number, request string) reply {
	ok := map[string]any{
		"id": number, "object": "refund", "status": "SUCCESS", "refund_id": "50" + number, "out_refund_no": number,
		"out_request_no": number, "fund_change": "Y", "refund_status": "REFUND_SUCCESS", "refund_fee": "1.00",
	}
	if p.config.Kind == Stripe {
		ok["status"] = "succeeded"
	}
	_, done := p.known[number]
	switch {
	case route == "query" && !done && p.config.Kind == AlipayV3: // success without a status, like the gateway's
		return reply{http.StatusOK, map[string]any{"out_request_no": number}, nil}
	case route == "query" && !done:
		return failed(http.StatusNotFound, "RESOURCE_NOT_EXISTS")
	case route == "query":
	case number == "":
		return failed(http.StatusBadRequest, "PARAM_ERROR")
	case done && p.known[number] != request && p.config.Kind != Stripe:
		return failed(http.StatusBadRequest, "ACQ.DISCORDANT_REPEAT_REQUEST")
	case !done || p.config.Kind == Stripe: // Stripe recognises repeats by their key alone
		p.known[number] = request
		p.refunds[number]++
	}
	return reply{http.StatusOK, ok, nil}
}

func readBody(r *http.Request, raw []byte) map[string]any {
	body := make(map[string]any)
	if json.NewDecoder(bytes.NewReader(raw)).Decode(&body) == nil {
		return body
	}
	form, _ := url.ParseQuery(string(raw))
	for name := range form {
		body[name] = form.Get(name)
	}
	return body
}

// Refunds counts the executed refunds by their number: the merchant's own,
// for Stripe that of the charge.
func (p *REST) Refunds() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[string]int)
	for number, times := range p.refunds {
		n[number] = times
	}
	return n
}

// Arrivals returns the number of calls for "refund" or "query", refused ones included.
func (p *REST) Arrivals(route string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals[route]
}

// Tally returns the tally of all calls.
func (p *REST) Tally() Tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Tally{p.config.Limit, slices.SortedFunc(slices.Values(p.all.arrivals), time.Time.Compare), p.all.limited, len(p.refunds)}
}

// Oldest returns the age of the oldest signature on arrival, stale ones included.
func (p *REST) Oldest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Max(append(p.ages, 0))
}

var errStale = errors.New("the signature is too old")
