package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// faults returns all faults, each with the refund executed and not executed.
func faults() []gateway.Fault {
	var all []gateway.Fault
	for _, executed := range []bool{true, false} {
		all = append(all,
			gateway.Fault{Answer: gateway.Cut, Executed: executed},
			gateway.Fault{Answer: gateway.Reset, Executed: executed},
			gateway.Fault{Answer: gateway.HTML, Status: 502, Executed: executed},
			gateway.Fault{Answer: gateway.HTML, Status: 500, Executed: executed},
			gateway.Fault{Answer: gateway.SystemError, Executed: executed},
			gateway.Fault{Answer: gateway.UnknownError, Executed: executed},
			gateway.Fault{Answer: gateway.Hang, Executed: executed},
			gateway.Fault{Answer: gateway.AppLimited}, // not executed, by its own text
			gateway.Fault{Answer: gateway.SlowUnknown, Delay: 100 * time.Millisecond, Executed: executed},
			gateway.Fault{Answer: gateway.SlowUnknown, Delay: time.Minute, Executed: executed},
			gateway.Fault{Answer: gateway.Slow, Delay: 100 * time.Millisecond}, // a late, but right answer
			gateway.Fault{Answer: gateway.Slow, Delay: time.Minute},
			gateway.Fault{Answer: gateway.Truncated},
		)
	}
	return all
}

// refundCall returns the submission of a refund.
func refundCall(number, callback string) []byte {
	trade := strings.TrimPrefix(number, "R")
	form := url.Values{
		"app_id": {appID}, "method": {gateway.Refund}, "charset": {"utf-8"}, "version": {"1.0"},
		"biz_content": {fmt.Sprintf(`{"out_trade_no":"T%s","out_request_no":"%s","refund_amount":"1.00"}`, trade, number)},
	}
	body, _ := json.Marshal(map[string]any{
		"upstream": "alipay", "method": "POST", "path": gateway.Path, "body": form.Encode(), "callback": callback,
		"headers": map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
	})
	return body
}

// TestFaults submits refunds to a gateway that fails in every way. None is executed
// twice and none is lost: a refund that cannot be repeated ends in unknown, or is
// resolved by a query.
func TestFaults(t *testing.T) {
	t.Parallel()
	const repeat = `idempotent: 'param("method") == "alipay.trade.refund"'`
	const never = `idempotent: ""`
	const ask = `resolve: [{when: 'param("method") == "alipay.trade.refund"', signed: true, method: POST, target: path, after: 100ms, every: 200ms, queries: 100,
      headers: {content-type: '"application/x-www-form-urlencoded"'},
      body: 'urlencode({"app_id": param("app_id"), "method": "alipay.trade.fastpay.refund.query", "charset": "utf-8", "version": "1.0", "biz_content": param("biz_content")})',
      outcomes: [{when: 'body("*_response.refund_status") == "REFUND_SUCCESS"', is: done}, {when: 'body("*_response.code") == "10000"', is: not_executed}]}]`
	tests := []struct {
		name    string
		lines   []string
		unknown bool // whether calls stay unknown
	}{
		// A repeat that moves no money leaves open whether the first sending did: a query tells.
		{"repeats under the same number", []string{repeat, ask}, false},
		{"no repeats", []string{never, "resolve: []"}, true},
		{"no repeats, but queries", []string{never, ask}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := faults()
			keys := gateway.NewKeys()
			g, err := gateway.New(gateway.Config{Apps: map[string]string{appID: keys.Public}, Fault: func(method string, n int) gateway.Fault {
				if method == gateway.Refund && n <= len(list) {
					return list[n-1]
				}
				if method == gateway.RefundQuery && n%3 == 1 { // queries fail too
					return list[n%7]
				}
				return gateway.Fault{}
			}})
			if err != nil {
				t.Fatal(err)
			}
			p := start(t, serve(t, g), append([]string{
				"preset: alipay", "timeout: 400ms", "late: 10ms",
				"signer: {kind: alipay, key: 'file:" + keyFile(t, keys) + "'}",
				"retry: {attempts: 30, min: 20ms, max: 100ms, budget: 1}",
				`outcomes: [{when: 'body("*_response.code") == "40005"', is: not_executed, after: 50ms}, {when: 'body("*_response.code") == "20000" or body("*_response.sub_code") contains "SYSTEM_ERROR" or error != "" and sent or status >= 500', is: unknown}]`,
			}, tt.lines...)...)
			calls := len(list) + 4
			for i := range calls {
				resp, err := http.Post(p.admin+"/v1/calls", "application/json", bytes.NewReader(refundCall(fmt.Sprintf("R%d", i), "")))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusAccepted {
					t.Fatalf("status %d", resp.StatusCode)
				}
			}
			var states map[string]int
			p.until(t, "done with all refunds", func() bool {
				states = p.states(t)
				if tt.unknown {
					return states["done"]+states["unknown"] == calls
				}
				return states["done"] == calls
			})
			refunds := g.Refunds(appID)
			for trade, n := range refunds {
				if n != 1 {
					t.Errorf("%s was refunded %d times", trade, n)
				}
			}
			if !tt.unknown {
				if len(refunds) != calls {
					t.Errorf("%d of %d refunds were made", len(refunds), calls)
				}
				return
			}
			sent := len(g.Method(appID, gateway.Refund).Arrivals)
			if limited := 2; sent != calls+limited || states["unknown"] == 0 || len(refunds) < states["done"] {
				t.Errorf("%d requests for %d calls, %v, %d refunds; want each sent once, but for the %d that were limited", sent, calls, states, len(refunds), limited)
			}
		})
	}
}

// states counts the refunds by their state; queries about them are left out.
func (p *process) states(t *testing.T) map[string]int {
	t.Helper()
	var page struct {
		Calls []struct {
			State    string
			Resolves string
		}
	}
	if err := json.Unmarshal([]byte(p.body("/v1/calls?upstream=alipay&page_size=1000")), &page); err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, c := range page.Calls {
		if c.Resolves == "" {
			n[c.State]++
		}
	}
	return n
}
