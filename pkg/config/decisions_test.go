package config

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Decisions of a query's answer.
const (
	paid  = "done"
	lost  = "failed"
	anew  = "sent again"
	stays = "unknown"
)

// A decision is an answer to a query about a call without an answer.
type decision struct {
	row    string // a name of sources, and the case
	call   *upstream.Request
	answer answer
	want   string
}

var decisions = map[string][]decision{"alipay": alipayDecisions(), "alipay-v3": alipayV3Decisions(), "wechatpay-v3": wechatDecisions()}

// TestDecisions sends each call once, without an answer. Each query about it gets the
// answer of the row. Each rule of a preset's queries decides a row.
func TestDecisions(t *testing.T) {
	for preset, rows := range decisions {
		var reasons []string
		for _, d := range rows {
			t.Run(preset+" "+d.row, func(t *testing.T) {
				if source, _, _ := strings.Cut(d.row, ":"); sources[source] == "" {
					t.Errorf("no source %q", source)
				}
				synctest.Test(t, func(t *testing.T) { reasons = append(reasons, testDecision(t, preset, d)) })
			})
		}
		c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(reasons, "\n")
		for _, r := range c.Scheduler.Upstreams["a"].Resolve {
			for _, rule := range r.Outcomes {
				if !strings.Contains(all, rule.When) {
					t.Errorf("%s: no row is decided by %s", preset, rule.When)
				}
			}
		}
	}
}

// testDecision returns the reason of the first attempt.
func testDecision(t *testing.T, preset string, d decision) string {
	var mu sync.Mutex
	var first *http.Request
	var sent, asked int
	s := facing(t, preset, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if first == nil {
			first = r
		}
		if first.Method == r.Method && first.URL.String() == r.URL.String() && string(body) == string(d.call.Body) {
			sent++
			return nil, errLost
		}
		asked++
		return d.answer.RoundTrip(r)
	}, `, idempotent: "", idempotency: {header: "", field: ""}, retry: {attempts: 2}`) // sent again after a query only
	made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: d.call.Method, Target: d.call.Target, Header: d.call.Header, Body: d.call.Body})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(65 * time.Second)
	synctest.Wait()
	c, err := s.Get(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	got := string(c.State)
	if sent > 1 {
		got = anew
	}
	if asked == 0 || got != d.want {
		t.Errorf("%s after %d queries and %d sendings, want %s: %+v", got, asked, sent, d.want, c.Attempts)
	}
	return c.Attempts[0].Reason
}

// A shop whose buyers all type their passwords has no broken upstream: the circuit breaker
// stays closed. It opens at as many answers of a server that fails.
func TestBreakerOverOpenPayments(t *testing.T) {
	for name, tt := range map[string]struct {
		preset string
		call   *upstream.Request
		answer answer
		opens  bool
	}{
		"waiting buyers":   {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("10003", ""), false},
		"numbers in use":   {"alipay-v3", rest("POST", "/v3/alipay/trade/pay", `{"out_trade_no":"T1"}`), failure(400, "ACQ.TRADE_HAS_SUCCESS"), false},
		"stored failures":  {"stripe", rest("POST", "/v1/refunds", "", "Idempotency-Key", "k"), answered(500, "{}", "Idempotent-Replayed", "true"), true},
		"a broken gateway": {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("20000", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 30
				var sent atomic.Int32
				s := facing(t, tt.preset, func(r *http.Request) (*http.Response, error) {
					sent.Add(1)
					return tt.answer.RoundTrip(r)
				}, ", concurrency: 1")
				for range calls {
					if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: tt.call.Method, Target: tt.call.Target, Header: tt.call.Header, Body: tt.call.Body}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if n := sent.Load(); (n < calls) != tt.opens {
					t.Errorf("%d of %d calls were sent within a second", n, calls)
				}
			})
		})
	}
}

// Each query goes to the place where the platform answers for the call's number.
func TestQueryTargets(t *testing.T) {
	const v3, wx = "/v3/alipay/", "/v3/pay/transactions/out-trade-no/T1?mchid=190"
	for _, tt := range []struct {
		preset, path, body, want string
	}{
		{"alipay-v3", v3 + "trade/refund", `{"out_trade_no":"T1"}`, v3 + "trade/fastpay/refund/query"},
		{"alipay-v3", v3 + "trade/pay", `{"out_trade_no":"T1"}`, v3 + "trade/query"},
		{"alipay-v3", v3 + "trade/cancel", `{"out_trade_no":"T1"}`, v3 + "trade/query"},
		{"alipay-v3", v3 + "fund/trans/uni/transfer", `{"out_biz_no":"B1","product_code":"p","biz_scene":"s"}`, v3 + "fund/trans/common/query?biz_scene=s&out_biz_no=B1&product_code=p"},
		{"alipay-v3", v3 + "fund/auth/order/unfreeze", `{"auth_no":"A1","out_request_no":"U1"}`, v3 + "fund/auth/operation/detail/query"},
		{"alipay-v3", v3 + "trade/order/settle", `{"trade_no":"4","out_request_no":"S1"}`, v3 + "trade/order/settle/query?out_request_no=S1&trade_no=4"},
		{"wechatpay-v3", wxRefunds, `{"out_refund_no":"R1"}`, wxRefunds + "/R1"},
		{"wechatpay-v3", wxRefunds, `{"sub_mchid":"2","out_refund_no":"R1"}`, wxRefunds + "/R1?sub_mchid=2"},
		{"wechatpay-v3", "/v3/ecommerce/refunds/apply", `{"sub_mchid":"2","out_refund_no":"R1"}`, "/v3/ecommerce/refunds/out-refund-no/R1?sub_mchid=2"},
		{"wechatpay-v3", "/v3/global/refunds", `{"mchid":"190","out_refund_no":"R1"}`, "/v3/global/refunds/out-refund-no/R1?mchid=190"},
		{"wechatpay-v3", wxCode, `{"mchid":"190","out_trade_no":"T1"}`, wx},
		{"wechatpay-v3", "/v3/pay/partner/transactions/codepay", `{"sp_mchid":"190","sub_mchid":"2","out_trade_no":"T1"}`, "/v3/pay/partner/transactions/out-trade-no/T1?sp_mchid=190&sub_mchid=2"},
		{"wechatpay-v3", "/v3/global/micropay/transactions/pay", `{"mchid":"190","out_trade_no":"T1"}`, "/v3/global/transactions/out-trade-no/T1?mchid=190"},
		{"wechatpay-v3", "/hk/v3/transactions/micropay", `{"mchid":"190","out_trade_no":"T1"}`, "/hk/v3/transactions/out-trade-no/T1?mchid=190"},
		{"wechatpay-v3", "/v3/global/papay/transactions", `{"mchid":"190","out_trade_no":"T1"}`, "/v3/global/papay/transactions/out-trade-no/T1?mchid=190"},
		{"wechatpay-v3", "/v3/pay/transactions/h5", `{"mchid":"190","out_trade_no":"T1"}`, wx},
		{"wechatpay-v3", "/v3/pay/partner/transactions/app", `{"sp_mchid":"190","sub_mchid":"2","out_trade_no":"T1"}`, "/v3/pay/partner/transactions/out-trade-no/T1?sp_mchid=190&sub_mchid=2"},
		{"wechatpay-v3", "/v3/combine-transactions/h5", `{"combine_out_trade_no":"C1"}`, "/v3/combine-transactions/out-trade-no/C1"},
		{"wechatpay-v3", wxOrder + "/reverse", `{"mchid":"190"}`, wx},
		{"wechatpay-v3", wxBills, `{"out_bill_no":"B1"}`, wxBills + "/out-bill-no/B1"},
		{"wechatpay-v3", wxBills + "/pre-transfer-with-authorization", `{"out_bill_no":"B1"}`, wxBills + "/out-bill-no/B1"},
		{"wechatpay-v3", "/v3/ecommerce/mch-transfer/transfer-bills", `{"sub_mchid":"2","out_bill_no":"B1"}`, "/v3/ecommerce/mch-transfer/transfer-bills/out-bill-no/B1?sub_mchid=2"},
		{"wechatpay-v3", wxBills + "/out-bill-no/B1/cancel", `{}`, wxBills + "/out-bill-no/B1"},
		{"wechatpay-v3", "/v3/partner-transfer/batches", `{"out_batch_no":"B1"}`, "/v3/partner-transfer/batches/out-batch-no/B1?need_query_detail=false"},
		{"wechatpay-v3", "/v3/profitsharing/orders", `{"transaction_id":"4","out_order_no":"P1"}`, "/v3/profitsharing/orders/P1?transaction_id=4"},
		{"wechatpay-v3", "/v3/profitsharing/return-orders", `{"out_order_no":"P1","out_return_no":"Q1"}`, "/v3/profitsharing/return-orders/Q1?out_order_no=P1"},
		{"wechatpay-v3", wxComplete, `{"appid":"wx","service_id":"5"}`, "/v3/payscore/serviceorder?appid=wx&out_order_no=S1&service_id=5"},
	} {
		t.Run(tt.preset+tt.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var targets []string
				s := facing(t, tt.preset, func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					targets = append(targets, r.URL.RequestURI())
					return nil, errLost
				}, `, idempotent: "", idempotency: {header: "", field: ""}, retry: {attempts: 2}`) // sent again after a query only
				if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: "POST", Target: tt.path, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(tt.body)}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(targets) < 2 || targets[1] != tt.want {
					t.Errorf("requests to %q, want %s second", targets, tt.want)
				}
			})
		})
	}
}

// A charge that takes as long as Stripe's SDKs wait is done, not of unknown outcome.
func TestSlowCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := facing(t, "stripe", func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(80 * time.Second):
				return answered(200, `{"id":"ch_1"}`).RoundTrip(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}, "")
		made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: "POST", Target: "/v1/charges"})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Wait(t.Context(), made.ID); err != nil || c.State != scheduler.Done {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
