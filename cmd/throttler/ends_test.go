package main

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// A counter is a platform in Alipay's shape whose answer to each payment says nothing. It
// cancels an order, and does not know it from then on.
type counter struct {
	mu  sync.Mutex
	got []string // pay, cancel and query, as they came
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := strings.TrimPrefix(r.FormValue("method"), "alipay.trade.")
	c.mu.Lock()
	c.got = append(c.got, method)
	cancelled := slices.Contains(c.got, "cancel")
	c.mu.Unlock()
	answer := map[string]string{
		"pay":    `"code":"20000","sub_code":"ACQ.SYSTEM_ERROR"`,
		"cancel": `"code":"10000","retry_flag":"N","action":"close"`,
		"query":  `"code":"40004","sub_code":"ACQ.TRADE_NOT_EXIST"`,
	}[method]
	if method == "query" && !cancelled {
		answer = `"code":"10000","trade_status":"WAIT_BUYER_PAY"`
	}
	fmt.Fprintf(w, `{"alipay_trade_%s_response":{%s},"sign":"x"}`, method, answer)
}

func (c *counter) count(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.got {
		if m == method {
			n++
		}
	}
	return n
}

// gateway sends a request, as Alipay's gateway takes it, to the sidecar.
func (p *process) gateway(t *testing.T, method, content string, header ...string) answer {
	t.Helper()
	form := url.Values{"app_id": {appID}, "method": {method}, "charset": {"utf-8"}, "sign_type": {"RSA2"}, "version": {"1.0"}, "biz_content": {content}}
	return send(t, http.MethodPost, p.data+"/gateway.do", form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded;charset=utf-8")...)
}

// trade sends a request about an order.
func (p *process) trade(t *testing.T, method, prefer, order string) answer {
	t.Helper()
	return p.gateway(t, "alipay.trade."+method, `{"out_trade_no":"`+order+`","total_amount":"1.00"}`, "Prefer", prefer)
}

// TestCancelEndsThePayment: a payment without an answer whose order is then cancelled is sent
// once, though each query says that it does not exist, and the file sends it again then; also if
// the sidecar is killed meanwhile. Without ends it is sent again, as often as attempts allow.
func TestCancelEndsThePayment(t *testing.T) {
	const queries = 6 // that show that nothing follows
	for _, tt := range []struct {
		name       string
		ends, kill bool
		payments   int
	}{{"the preset", true, false, 1}, {"the preset, killed", true, true, 1}, {"no ends", false, false, 4}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			platform := &counter{}
			yaml := oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "alipay", serve(t, platform), fmt.Sprintf(`
    preset: alipay
    signer: {kind: alipay, key: 'file:%s'}
    retry: {attempts: 4}
    resolve:
      - when: 'param("method") == "alipay.trade.pay"'
        method: POST
        target: path
        headers: {content-type: '"application/x-www-form-urlencoded"'}
        body: 'urlencode({"app_id": param("app_id"), "method": "alipay.trade.query", "biz_content": param("biz_content")})'
        after: 100ms
        every: 100ms
        queries: 10000
        outcomes: [{when: 'body("*_response.sub_code") == "ACQ.TRADE_NOT_EXIST"', is: not_executed}]
`, keyFile(t, gateway.NewKeys())))
			if !tt.ends {
				yaml += `    ends: ""
`
			}
			p := launch(t, yaml)
			id := p.trade(t, "pay", "respond-async", "T1").call()
			p.until(t, "in doubt", func() bool { return p.call(id).State == api.Unknown })
			cancelled := p.trade(t, "cancel", "", "T1")
			if outcome := cancelled.outcome(); outcome != "done" {
				t.Fatalf("the cancel is %s", outcome)
			}
			if tt.kill {
				p.kill9()
				p = launch(t, yaml)
			}
			p.until(t, "through with its payments", func() bool { return platform.count("pay") >= tt.payments })
			before := platform.count("query")
			p.until(t, "through with its queries", func() bool { return platform.count("query") >= before+queries })
			var call api.Call
			p.until(t, "decided", func() bool {
				call = p.call(id)
				return call.State == api.Unknown
			})
			if n := platform.count("pay"); n != tt.payments {
				t.Errorf("%d payments, want %d", n, tt.payments)
			}
			if !tt.ends {
				return
			}
			if call.EndedBy != cancelled.call() || call.Numbers["order"] != "T1" {
				t.Errorf("ended by %q of order %q, want call %s of T1", call.EndedBy, call.Numbers["order"], cancelled.call())
			}
			again := p.trade(t, "pay", "", "T1")
			if platform.count("pay") != tt.payments || again.outcome() != "not_executed" {
				t.Errorf("a payment after the cancel is %s, %d in all", again.outcome(), platform.count("pay"))
			}
			text, err := p.throttler(t, "calls", "get", id).CombinedOutput()
			if err != nil || !strings.Contains(string(text), `order "T1"`) || !strings.Contains(string(text), call.EndedBy) {
				t.Errorf("%v, %s", err, text)
			}
		})
	}
}

// TestCancelEndsThePaymentThatWaits: a bar-code payment that waits for its slot while its order is
// cancelled is never sent, with the preset alone; also if the sidecar is killed meanwhile, and
// when a client sends the payment again.
func TestCancelEndsThePaymentThatWaits(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", kill), func(t *testing.T) {
			t.Parallel()
			platform := &counter{}
			yaml := oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "alipay", serve(t, platform), fmt.Sprintf(`
    preset: alipay
    signer: {kind: alipay, key: 'file:%s'}
    limits: [{name: pay, when: 'param("method") == "alipay.trade.pay"', calls: 1, window: 1h}]
`, keyFile(t, gateway.NewKeys())))
			p := launch(t, yaml)
			p.trade(t, "pay", "respond-async", "T0")
			p.until(t, "in doubt", func() bool { return platform.count("pay") == 1 })
			id := p.trade(t, "pay", "respond-async", "T1").call()
			cancelled := p.trade(t, "cancel", "", "T1")
			if outcome := cancelled.outcome(); outcome != "done" {
				t.Fatalf("the cancel is %s", outcome)
			}
			if kill {
				p.kill9()
				p = launch(t, yaml)
			}
			call := p.call(id)
			// A kill may come after the end of the order was stored, and before that of the call: then the call
			// waits on, and its intent would be refused.
			stays := kill && call.State == api.Waiting
			if !stays {
				p.until(t, "ended", func() bool {
					call = p.call(id)
					return call.State == api.Cancelled
				})
			}
			if !stays && call.EndedBy != cancelled.call() || len(call.Attempts) > 0 || call.Numbers["order"] != "T1" {
				t.Errorf("ended by %q after %+v of order %q, want call %s of T1", call.EndedBy, call.Attempts, call.Numbers["order"], cancelled.call())
			}
			if again := p.trade(t, "pay", "", "T1"); again.outcome() != "not_executed" || platform.count("pay") != 1 {
				t.Errorf("a payment after the cancel is %s, %d in all", again.outcome(), platform.count("pay"))
			}
		})
	}
}
