// Package gateway is a local payment gateway for the demo and the tests. It answers
// as Alipay's gateway.do does: it checks the app id, then the RSA2 signature, then
// its limits, and says all that it has to say with HTTP 200 and a signed JSON object.
//
//	app := gateway.NewKeys()
//	g, err := gateway.New(gateway.Config{
//		Apps:     map[string]string{"2021000000000001": app.Public},
//		AppLimit: gateway.Limit{Calls: 100, Window: time.Second},
//	})
//	srv, err := gateway.Start("", g) // srv.URL + gateway.Path is what an SDK is given
//	…
//	g.App("2021000000000001").Most() // most arrivals in any second, refused ones included
//
// # What it counts
//
// The instant of a call is taken when its handler begins, on the monotonic clock. Every
// call that names a known app arrives under two limits, the app's and the method's,
// whatever becomes of it: [Tally] keeps all arrivals. Windows are half-open, (t−W, t].
// A call goes through if no window then holds more than N calls that were let through;
// else it is answered with code 40005 and not executed, and counts as an arrival only.
//
// # What it executes
//
// [Refund], [Query] and [RefundQuery]; other methods are 40002 isv.invalid-method.
// Every trade number is a paid trade of 100.00. A refund is known by its trade number
// and out_request_no: a repeat succeeds and moves no money, one with another amount is
// ACQ.DISCORDANT_REPEAT_REQUEST, and a new out_request_no refunds again, which
// [Gateway.Refunds] shows, even beyond what was paid.
//
// [Config.Fault] makes it misbehave: lost answers, garbage, errors, slowness. It is no
// model of Alipay's business, keeps all it saw in memory for good, and is safe for
// concurrent use.
//
// [NewREST] makes platforms that speak HTTP as it is written: Alipay v3, WeChat Pay
// v3, Stripe. They refund, and count what they refunded.
package gateway

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"
)

// Path is where the gateway answers; everything else is a 404.
const Path = "/gateway.do"

// The methods that the gateway executes.
const (
	Refund      = "alipay.trade.refund"
	Query       = "alipay.trade.query"
	RefundQuery = "alipay.trade.fastpay.refund.query"
)

// Config says who may call and how often. Only Apps is required.
type Config struct {
	Apps         map[string]string // app id → the app's public key, PEM or bare base64 (PKIX)
	Keys         Keys              // the gateway's own pair; zero: a new one
	AppLimit     Limit             // per app id; zero: no limit
	MethodLimits map[string]Limit  // per app id and method; absent: no limit

	// Latency is waited before each answer, after the call was executed.
	Latency time.Duration

	// Fault, if set, is asked about each call that passed the checks and the limits: the
	// n-th of its app and method, from 1. It may be called from several goroutines.
	Fault func(method string, n int) Fault
}

// A Gateway is an [http.Handler]. Make one with [New], serve it with [Start].
type Gateway struct {
	// PublicKey is what clients verify answers with ("the Alipay public key"), PEM.
	PublicKey string

	config  Config
	private *rsa.PrivateKey
	apps    map[string]*rsa.PublicKey

	mu      sync.Mutex
	tallies map[party]*tally
	trades  map[tradeID]*trade

	signatures sync.Map // of refusals, by their bytes; see sign
}

// A party is whose arrivals a limit counts together; no method: the whole app.
type party struct{ app, method string }

// New returns a gateway, or says which key or limit of config is not usable.
func New(config Config) (*Gateway, error) {
	g := &Gateway{
		config:  config,
		apps:    make(map[string]*rsa.PublicKey),
		tallies: make(map[party]*tally),
		trades:  make(map[tradeID]*trade),
	}
	if g.config.Keys == (Keys{}) {
		g.config.Keys = NewKeys()
	}
	g.PublicKey = g.config.Keys.Public

	var errs []error
	var err error
	if g.private, err = parsePrivate(g.config.Keys.Private); err != nil {
		errs = append(errs, fmt.Errorf("gateway: Keys.Private: %w", err))
	}
	for id, key := range config.Apps {
		if g.apps[id], err = parsePublic(key); err != nil {
			errs = append(errs, fmt.Errorf("gateway: Apps[%q]: %w", id, err))
		}
	}
	limits := maps.Clone(config.MethodLimits)
	if limits == nil {
		limits = make(map[string]Limit)
	}
	limits["the whole app"] = config.AppLimit
	for name, l := range limits {
		if l != (Limit{}) && (l.Calls < 1 || l.Window <= 0) {
			errs = append(errs, fmt.Errorf("gateway: limit of %s: %d calls per %v", name, l.Calls, l.Window))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return g, nil
}

// ServeHTTP answers one call.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now() // the instant that counts, before anything is read
	if r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	p, err := readParams(w, r)
	a, fault := g.handle(at, p, err)
	g.write(w, r, g.encode(p["method"], a), fault)
}

// handle takes one call through the checks, in the platform's order, and executes it.
func (g *Gateway) handle(at time.Time, p params, unreadable error) (answer, Fault) {
	key := g.apps[p["app_id"]]
	switch {
	case p["app_id"] == "" && unreadable != nil:
		return invalid("parameter").unsigned(), Fault{}
	case p["app_id"] == "":
		return missing("app-id").unsigned(), Fault{}
	case key == nil:
		return invalid("app-id").unsigned(), Fault{}
	}
	g.arrive(at, p)

	if unreadable != nil {
		return invalid("parameter"), Fault{}
	}
	if refusal, ok := p.check(key); !ok {
		return refusal, Fault{}
	}
	if methods[p["method"]] == nil {
		return invalid("method"), Fault{}
	}
	n, refusal, ok := g.admit(at, p)
	if !ok {
		return refusal, Fault{}
	}

	var fault Fault
	if g.config.Fault != nil {
		fault = g.config.Fault(p["method"], n)
	}
	var a answer
	if fault.executes() {
		a = g.execute(p)
	}
	if wrong, ok := wrongAnswers[fault.Answer]; ok {
		a = wrong
	}
	return a, fault
}
