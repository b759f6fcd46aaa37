package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// An opener is a platform whose payments stay open until a test ends them. Its answers are
// those of one preset.
type opener struct {
	open, pending, final string // the answer to a payment; to a query before its end, and after it
	isQuery              func(*http.Request) bool

	mu            sync.Mutex
	pays, queries int
	ends          int // the query from which on the payment is final
}

func (o *opener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := o.isQuery(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := o.open
	switch {
	case !query:
		o.pays++
	case o.queries+1 < o.ends:
		o.queries++
		answer = o.pending
	default:
		o.queries++
		answer = o.final
	}
	io.WriteString(w, answer)
}

func (o *opener) counts() (pays, queries int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pays, o.queries
}

// A purchase is a payment that its platform leaves open, and the query about it.
type purchase struct {
	row, preset     string
	signer, resolve string
	pay, query      func(*testing.T, *process) answer
	platform        opener
	state           api.State // in the end
}

// gatewayForm sends a request to Alipay's gateway.
func gatewayForm(method, content string) func(*testing.T, *process) answer {
	return func(t *testing.T, p *process) answer { return p.gateway(t, method, content) }
}

// merchantCall sends a request to WeChat Pay v3.
func merchantCall(method, target, body string) func(*testing.T, *process) answer {
	return func(t *testing.T, p *process) answer {
		return send(t, method, p.data+target, body, "Content-Type", "application/json",
			"Authorization", `WECHATPAY2-SHA256-RSA2048 mchid="190",nonce_str="n",signature="cw==",timestamp="1",serial_no="5"`)
	}
}

// purchases are P2 and P6 of the rows that presets got wrong: an answer that leaves the payment open
// was called done. Sources: opendocs.alipay.com/open/02e7go and pay.weixin.qq.com/doc/v3/merchant/4012382150.
func purchases() []*purchase {
	alipay := func(row, method, content, query, open, pending, final string, state api.State) *purchase {
		answer := func(of, fields string) string {
			return `{"` + strings.ReplaceAll(of, ".", "_") + `_response":{` + fields + `},"sign":"x"}`
		}
		return &purchase{row: row, preset: "alipay", pay: gatewayForm(method, content), query: gatewayForm(query, content), state: state,
			signer: "kind: alipay",
			resolve: `when: 'param("method") == "` + method + `"', method: POST, target: path, headers: {content-type: '"application/x-www-form-urlencoded"'},
        body: 'urlencode({"app_id": param("app_id"), "method": "` + query + `", "biz_content": param("biz_content")})',
        outcomes: [{when: 'body("*_response.trade_status") == "TRADE_SUCCESS"', is: done}, {when: 'body("*_response.status") == "FAIL"', is: failed}]`,
			platform: opener{open: answer(method, open), pending: answer(query, pending), final: answer(query, final),
				isQuery: func(r *http.Request) bool { return strings.HasSuffix(r.FormValue("method"), "query") }}}
	}
	const order = "/v3/pay/transactions/"
	return []*purchase{
		alipay("P6: 10003, paid later", "alipay.trade.pay", `{"out_trade_no":"T1","total_amount":"1.00"}`, "alipay.trade.query",
			`"code":"10003"`, `"code":"10000","trade_status":"WAIT_BUYER_PAY"`, `"code":"10000","trade_status":"TRADE_SUCCESS","total_amount":"1.00"`, api.Done),
		alipay("P6: DEALING, failed later", "alipay.fund.trans.uni.transfer", `{"out_biz_no":"B1"}`, "alipay.fund.trans.common.query",
			`"code":"10000","status":"DEALING"`, `"code":"10000","status":"DEALING"`, `"code":"10000","status":"FAIL"`, api.Failed),
		{row: "P2: USERPAYING, paid later", preset: "wechatpay-v3", state: api.Done,
			pay:    merchantCall("POST", order+"codepay", `{"mchid":"190","out_trade_no":"T1","amount":{"total":1}}`),
			query:  merchantCall("GET", order+"out-trade-no/T1?mchid=190", ""),
			signer: "kind: wechatpay-v3, merchant: '190', serial: '5157'",
			resolve: `when: 'path endsWith "/codepay"', target: '"` + order + `out-trade-no/" + json("out_trade_no") + "?mchid=" + json("mchid")',
        outcomes: [{when: 'body("trade_state") == "SUCCESS"', is: done}]`,
			platform: opener{open: `{"trade_state":"USERPAYING"}`, pending: `{"trade_state":"USERPAYING"}`, final: `{"trade_state":"SUCCESS","amount":{"total":1}}`,
				isQuery: func(r *http.Request) bool { return r.Method == http.MethodGet }}},
	}
}

// TestOpenPaymentIsSettledByItsClient: without a signer the answer of an open payment passes
// unchanged as unknown, and the client's own query settles it, also after a crash.
func TestOpenPaymentIsSettledByItsClient(t *testing.T) {
	for _, durable := range []bool{false, true} {
		for _, pu := range purchases() {
			t.Run(fmt.Sprintf("%s, stored and killed %v", pu.row, durable), func(t *testing.T) {
				t.Parallel()
				o := &pu.platform
				o.ends = 2
				yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: '%s', preset: %s, durable: %v}\n",
					filepath.Join(t.TempDir(), "throttler.db"), serve(t, o), pu.preset, durable)
				p := launch(t, yaml)
				paid := pu.pay(t, p)
				if paid.body != o.open || paid.outcome() != "unknown" {
					t.Fatalf("the payment: %s, %s", paid.body, paid.outcome())
				}
				id := paid.call()
				if durable {
					p.kill9()
					p = launch(t, yaml)
				}
				if got := pu.query(t, p); got.body != o.pending || p.call(id).State != api.Unknown {
					t.Errorf("the first query: %s, and the payment is %s", got.body, p.call(id).State)
				}
				if again := pu.pay(t, p); again.call() != id || again.outcome() != "unknown" {
					t.Errorf("a repeat of the open payment: call %s, %s; want %s, unknown", again.call(), again.outcome(), id)
				}
				if got := pu.query(t, p); got.body != o.final || p.call(id).State != pu.state {
					t.Errorf("the last query: %s, and the payment is %s", got.body, p.call(id).State)
				}
				want := 1
				if pu.state == api.Failed { // the number is free again
					want = 2
				}
				again := pu.pay(t, p)
				if pays, _ := o.counts(); pays != want || again.body != o.open {
					t.Errorf("a repeat of the settled payment: %s; %d were sent, want %d", again.body, pays, want)
				}
			})
		}
	}
}

// TestOpenPaymentIsAskedAbout: with a signer the sidecar asks while the client waits. The client
// gets the answer of its payment, and the outcome that a query has found.
func TestOpenPaymentIsAskedAbout(t *testing.T) {
	for _, pu := range purchases() {
		t.Run(pu.row, func(t *testing.T) {
			t.Parallel()
			o := &pu.platform
			o.ends = 4
			p := launch(t, askingYAML(t, pu, o, "60s"))
			paid := pu.pay(t, p)
			if state := p.call(paid.call()).State; paid.body != o.open || paid.outcome() != string(pu.state) || state != pu.state {
				t.Errorf("the payment: %s, %s, it is %s; want its own answer and %s", paid.body, paid.outcome(), state, pu.state)
			}
			if pays, queries := o.counts(); pays != 1 || queries != 4 {
				t.Errorf("%d payments and %d queries", pays, queries)
			}
		})
	}
}

// TestKilledWhileAsking: a payment about which the sidecar asks while it is killed is unknown then,
// and is not sent again. The client's query settles it.
func TestKilledWhileAsking(t *testing.T) {
	for _, pu := range purchases() {
		t.Run(pu.row, func(t *testing.T) {
			t.Parallel()
			o := &pu.platform
			o.ends = 1 << 30
			yaml := askingYAML(t, pu, o, "1h")
			p := launch(t, yaml)
			told := make(chan string, 1)
			go func(p *process) { told <- pu.pay(t, p).outcome() }(p)
			p.until(t, "asking", func() bool { _, queries := o.counts(); return queries >= 3 })
			p.kill9()
			if outcome := <-told; outcome != "" {
				t.Errorf("the client was told %s", outcome)
			}
			p = launch(t, yaml)
			_, queries := o.counts()
			o.mu.Lock()
			o.ends = 0
			o.mu.Unlock()
			var page struct{ Calls []api.Call }
			if err := json.Unmarshal([]byte(p.body("/v1/calls?state=unknown")), &page); err != nil || len(page.Calls) != 1 {
				t.Fatalf("%d unknown calls, %v, after %d queries", len(page.Calls), err, queries)
			}
			id := page.Calls[0].ID
			if got := pu.query(t, p); got.body != o.final || p.call(id).State != pu.state {
				t.Errorf("the query: %s, and the payment is %s", got.body, p.call(id).State)
			}
			if pays, _ := o.counts(); pays != 1 {
				t.Errorf("%d payments", pays)
			}
		})
	}
}

// askingYAML has the preset with a signer, and with quick queries in place of its own.
func askingYAML(t *testing.T, pu *purchase, o *opener, maxWait string) string {
	return oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "alipay", serve(t, o), fmt.Sprintf(`
    preset: %s
    max_wait: %s
    durable: true
    signer: {%s, key: 'file:%s'}
    resolve:
      - {%s,
        after: 100ms, every: 100ms, queries: 10000}
`, pu.preset, maxWait, pu.signer, keyFile(t, gateway.NewKeys()), pu.resolve))
}
