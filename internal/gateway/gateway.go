// Package gateway is a local payment gateway for the demo and the tests. It answers
// as Alipay's gateway.do does: it checks the app id, then the RSA2 signature, then
// its limits. All answers are signed JSON objects with HTTP 200.
//
//	app := gateway.NewKeys()
//	g, err := gateway.New(gateway.Config{
//		Apps:     map[string]string{"2021000000000001": app.Public},
//		AppLimit: gateway.Limit{Calls: 100, Window: time.Second},
//	})
//	srv, err := gateway.Start("", g) // an SDK's gateway is srv.URL + gateway.Path
//	…
//	g.App("2021000000000001").Most() // most arrivals in any second, refused ones included
//
// # Counting
//
// The instant of a call is the begin of its handler, on the monotonic clock. Every call
// that names a known app arrives under two limits, the app's and the method's, refused
// calls too: [Tally] keeps all arrivals. Windows are half-open, (t−W, t]. A call is
// admitted if no window then holds more than N admitted calls. Otherwise it is answered
// with code 40005 and not executed, and counts as an arrival only.
//
// # Execution
//
// [Refund], [Query] and [RefundQuery]; other methods are 40002 isv.invalid-method.
// Every trade number is a paid trade of 100.00. A refund is identified by its trade
// number and out_request_no: a repeat succeeds and moves no money, one with another
// amount is ACQ.DISCORDANT_REPEAT_REQUEST. A new out_request_no refunds again, even
// beyond the paid amount; [Gateway.Refunds] counts the refunds.
//
// [Config.Fault] makes the gateway misbehave: lost answers, garbage, errors, slowness.
// The gateway is no model of Alipay's business. It never forgets a call, and is safe
// for concurrent use.
//
// [NewREST] makes platforms with REST APIs: Alipay v3, WeChat Pay v3, Stripe. They
// refund, and count their refunds. [NewWeChatPayV2] takes code payments and refunds as WeChat Pay
// v2 does.
package gateway

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// Path is the path of the gateway; any other path is a 404.
const Path = "/gateway.do"

// The methods that the gateway executes.
const (
	Refund      = "alipay.trade.refund"
	Query       = "alipay.trade.query"
	RefundQuery = "alipay.trade.fastpay.refund.query"
)

// Config has the apps that may call, and their limits. Only Apps is required.
type Config struct {
	Apps         map[string]string // app id → the app's public key, PEM or bare base64 (PKIX)
	Keys         Keys              // the gateway's own pair; zero: a new one
	AppLimit     Limit             // per app id; zero: no limit
	MethodLimits map[string]Limit  // per app id and method; absent: no limit

	// Latency is a wait before each answer, after the call was executed.
	Latency time.Duration

	// Fault, if set, is called for each call that passed the checks and the limits: the
	// n-th of its app and method, from 1. It may be called concurrently.
	Fault func(method string, n int) Fault
}

// A Gateway is an [http.Handler]. Make one with [New], serve it with [Start].
type Gateway struct {
	// PublicKey verifies answers ("the Alipay public key"), PEM.
	PublicKey string

	config  Config
	apps    map[string]*rsa.PublicKey
	signer  signer
	tallies tallies
	trades  trades
}

// New returns a gateway. The error names the unusable keys and limits of config.
func New(config Config) (*Gateway, error) {
	g := &Gateway{
		config:  config,
		apps:    make(map[string]*rsa.PublicKey),
		tallies: tallies{config: config, byParty: make(map[party]*tally)},
		trades:  trades{byID: make(map[tradeID]*trade)},
	}
	if g.config.Keys == (Keys{}) {
		g.config.Keys = NewKeys()
	}
	g.PublicKey = g.config.Keys.Public

	var errs []error
	var err error
	if g.signer.key, err = parsePrivate(g.config.Keys.Private); err != nil {
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
	at := time.Now() // the instant of arrival, before the request is read
	if r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	p, err := readParams(w, r)
	a, fault := g.handle(at, p, err)
	w.Header().Set("Content-Type", "text/html;charset=utf-8")
	respond(w, r, http.StatusOK, g.signer.encode(p["method"], a), fault, g.config.Latency)
}

// handle checks one call, in the platform's order, and executes it.
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
	g.tallies.arrive(at, p)

	if unreadable != nil {
		return invalid("parameter"), Fault{}
	}
	if refusal, ok := p.check(key); !ok {
		return refusal, Fault{}
	}
	if methods[p["method"]] == nil {
		return invalid("method"), Fault{}
	}
	n, refusal, ok := g.tallies.admit(at, p)
	if !ok {
		return refusal, Fault{}
	}

	var fault Fault
	if g.config.Fault != nil {
		fault = g.config.Fault(p["method"], n)
	}
	var a answer
	if fault.executes() {
		var executed bool
		if a, executed = g.trades.execute(p); executed {
			g.tallies.execute(p)
		}
	}
	if wrong, ok := wrongAnswers[fault.Answer]; ok {
		a = wrong
	}
	return a, fault
}

// App returns the tally of an app, all its methods together.
func (g *Gateway) App(appID string) Tally { return g.tallies.snapshot(party{appID, ""}) }

// Method returns the tally of one method of an app.
func (g *Gateway) Method(appID, method string) Tally {
	return g.tallies.snapshot(party{appID, method})
}

// Refunds returns the number of refunds of each trade of an app, without repeats.
func (g *Gateway) Refunds(appID string) map[string]int { return g.trades.refunds(appID) }
