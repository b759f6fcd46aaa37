package config

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestQueriesOfPresets sends a call of unknown outcome and then a query of the caller, both without
// a signer, and looks what has become of the call.
func TestQueriesOfPresets(t *testing.T) {
	const merchant = `WECHATPAY2-SHA256-RSA2048 mchid="190",nonce_str="n",signature="s=",timestamp="1",serial_no="5"`
	const app = `ALIPAY-SHA256withRSA app_id=2021,app_cert_sn=50,nonce=1,timestamp=2,sign=s`
	wechat := func(method, target, body string) *upstream.Request {
		return rest(method, target, body, "Authorization", merchant)
	}
	// Merchant 191 signs it.
	wechat191 := func(method, target, body string) *upstream.Request {
		return rest(method, target, body, "Authorization", strings.Replace(merchant, `"190"`, `"191"`, 1))
	}
	v3 := func(method, target, body string) *upstream.Request {
		return rest(method, "/v3/alipay/"+target, body, "Authorization", app)
	}
	pay := call("alipay.trade.pay", `{"out_trade_no":"T1","total_amount":"1.00"}`)
	open, unclear := coded("10003", ""), answered(500, `{"code":"SYSTEM_ERROR"}`)
	refund := call("alipay.trade.refund", `{"trade_no":"2026","out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	transfer := call("alipay.fund.trans.uni.transfer", `{"out_biz_no":"B1","trans_amount":"1.00"}`)
	freeze := call("alipay.fund.auth.order.freeze", `{"out_request_no":"Q1"}`)
	code := wechat("POST", "/v3/pay/transactions/codepay", `{"mchid":"190","out_trade_no":"T1","amount":{"total":1}}`)
	v2 := func(path, elements string) *upstream.Request {
		return &upstream.Request{Method: "POST", Target: path, Header: http.Header{"Content-Type": {"text/xml"}}, Body: []byte("<xml><mch_id>190</mch_id>" + elements + "</xml>")}
	}
	granted := func(elements string) answer {
		return answered(200, "<xml><return_code>SUCCESS</return_code><result_code>SUCCESS</result_code>"+elements+"</xml>")
	}
	busy := answered(200, "<xml><return_code>SUCCESS</return_code><result_code>FAIL</result_code><err_code>SYSTEMERROR</err_code></xml>")
	cash := v2("/pay/micropay", "<out_trade_no>T1</out_trade_no><total_fee>1</total_fee>")
	back := v2("/secapi/pay/refund", "<out_trade_no>T1</out_trade_no><out_refund_no>R1</out_refund_no><refund_fee>1</refund_fee>")
	wage := v2("/mmpaymkttransfers/promotion/transfers", "<mchid>190</mchid><partner_trade_no>P1</partner_trade_no><amount>1</amount>")
	ask := func(content string) *upstream.Request { return call("alipay.trade.query", content) }
	for _, tt := range []struct {
		row, preset string
		call        *upstream.Request
		answer      answer
		query       *upstream.Request
		told        answer
		want        scheduler.State
	}{
		// opendocs.alipay.com/open/02e7go: the buyer types the password (10003), and a query tells the end.
		{"P6: 10003, paid", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), accepted(`"trade_status":"TRADE_SUCCESS","total_amount":"1.00"`), scheduler.Done},
		{"P6: 10003, closed", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), accepted(`"trade_status":"TRADE_CLOSED"`), scheduler.Failed},
		{"P6: 10003, not paid yet", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), accepted(`"trade_status":"WAIT_BUYER_PAY"`), scheduler.Unknown},
		{"P3: 20000, does not exist", "alipay", pay, coded("20000", ""), ask(`{"out_trade_no":"T1"}`), coded("40004", "ACQ.TRADE_NOT_EXIST"), scheduler.Unknown},
		{"another amount", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), accepted(`"trade_status":"TRADE_SUCCESS","total_amount":"2.00"`), scheduler.Unknown},
		{"another order", "alipay", pay, open, ask(`{"out_trade_no":"T2"}`), accepted(`"trade_status":"TRADE_SUCCESS"`), scheduler.Unknown},
		{"another trade", "alipay", pay, open, ask(`{"out_trade_no":"T1","trade_no":"2027"}`), accepted(`"trade_status":"TRADE_SUCCESS"`), scheduler.Unknown},
		{"another merchant", "alipay", pay, open, with("alipay.trade.query", `{"out_trade_no":"T1"}`, "app_auth_token", "2015BB"), accepted(`"trade_status":"TRADE_SUCCESS"`), scheduler.Unknown},
		{"a query that is refused", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), coded("40002", "isv.invalid-signature"), scheduler.Unknown},
		{"a query that is limited", "alipay", pay, open, ask(`{"out_trade_no":"T1"}`), coded("40005", ""), scheduler.Unknown},
		{"a query without a content", "alipay", pay, open, ask(""), accepted(`"trade_status":"TRADE_SUCCESS"`), scheduler.Unknown},
		{"an encrypted query", "alipay", pay, open, encrypted("alipay.trade.query"), accepted(`"trade_status":"TRADE_SUCCESS"`), scheduler.Unknown},
		{"a refund", "alipay", refund, accepted(`"fund_change":"N"`), call("alipay.trade.fastpay.refund.query", `{"trade_no":"2026","out_request_no":"R1"}`), accepted(`"refund_status":"REFUND_SUCCESS","refund_amount":"1.00"`), scheduler.Done},
		{"a refund without a state", "alipay", refund, accepted(`"fund_change":"N"`), call("alipay.trade.fastpay.refund.query", `{"trade_no":"2026","out_request_no":"R1"}`), accepted(`"out_request_no":"R1"`), scheduler.Unknown},
		{"a refund of another trade", "alipay", refund, accepted(`"fund_change":"N"`), call("alipay.trade.fastpay.refund.query", `{"out_trade_no":"T1","out_request_no":"R1"}`), accepted(`"refund_status":"REFUND_SUCCESS"`), scheduler.Unknown},
		{"P6: a transfer, DEALING, SUCCESS", "alipay", transfer, accepted(`"status":"DEALING"`), call("alipay.fund.trans.common.query", `{"out_biz_no":"B1"}`), accepted(`"status":"SUCCESS","trans_amount":"1.00"`), scheduler.Done},
		{"P6: a transfer, DEALING, FAIL", "alipay", transfer, accepted(`"status":"DEALING"`), call("alipay.fund.trans.common.query", `{"out_biz_no":"B1"}`), accepted(`"status":"FAIL"`), scheduler.Failed},
		{"a transfer, DEALING still", "alipay", transfer, accepted(`"status":"DEALING"`), call("alipay.fund.trans.common.query", `{"out_biz_no":"B1"}`), accepted(`"status":"DEALING"`), scheduler.Unknown},
		{"a transfer, by another number", "alipay", transfer, accepted(`"status":"DEALING"`), call("alipay.fund.trans.common.query", `{"out_biz_no":"B1","order_id":"2026"}`), accepted(`"status":"FAIL"`), scheduler.Unknown},
		{"a freeze", "alipay", freeze, accepted(`"status":"INIT"`), call("alipay.fund.auth.operation.detail.query", `{"out_request_no":"Q1","operation_type":"FREEZE"}`), accepted(`"status":"SUCCESS"`), scheduler.Done},
		{"a freeze, asked about its unfreeze", "alipay", freeze, accepted(`"status":"INIT"`), call("alipay.fund.auth.operation.detail.query", `{"out_request_no":"Q1","operation_type":"UNFREEZE"}`), accepted(`"status":"SUCCESS"`), scheduler.Unknown},
		{"a sharing", "alipay", call("alipay.trade.order.settle", `{"trade_no":"2026","out_request_no":"S1","royalty_mode":"async"}`), accepted(`"trade_no":"2026"`), call("alipay.trade.order.settle.query", `{"trade_no":"2026","out_request_no":"S1"}`), accepted(`"royalty_detail_list":[{"state":"FAIL"}]`), scheduler.Failed},

		{"USERPAYING, paid", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T1</out_trade_no>"), granted("<trade_state>SUCCESS</trade_state><total_fee>1</total_fee>"), scheduler.Done},
		{"USERPAYING, reversed", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T1</out_trade_no>"), granted("<trade_state>REVOKED</trade_state>"), scheduler.Failed},
		{"USERPAYING still", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T1</out_trade_no>"), granted("<trade_state>USERPAYING</trade_state>"), scheduler.Unknown},
		{"another order", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T2</out_trade_no>"), granted("<trade_state>REVOKED</trade_state>"), scheduler.Unknown},
		{"another number of the platform", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T1</out_trade_no><transaction_id>4</transaction_id>"), granted("<trade_state>REVOKED</trade_state>"), scheduler.Unknown},
		{"another shop", "wechatpay-v2", cash, busy, v2("/pay/orderquery", "<out_trade_no>T1</out_trade_no><sub_mch_id>2</sub_mch_id>"), granted("<trade_state>REVOKED</trade_state>"), scheduler.Unknown},
		{"a refund", "wechatpay-v2", back, granted(""), v2("/pay/refundquery", "<out_refund_no>R1</out_refund_no>"), granted("<refund_status_0>SUCCESS</refund_status_0><refund_fee_0>1</refund_fee_0>"), scheduler.Done},
		{"a refund by the platform's number", "wechatpay-v2", back, granted(""), v2("/pay/refundquery", "<out_refund_no>R1</out_refund_no><refund_id>5</refund_id>"), granted("<refund_status_0>REFUNDCLOSE</refund_status_0>"), scheduler.Unknown},
		{"a refund that is asked for by its order", "wechatpay-v2", back, granted(""), v2("/pay/refundquery", "<out_trade_no>T1</out_trade_no>"), granted("<refund_status_0>REFUNDCLOSE</refund_status_0>"), scheduler.Unknown},
		{"a transfer", "wechatpay-v2", wage, granted(""), v2("/mmpaymkttransfers/gettransferinfo", "<partner_trade_no>P1</partner_trade_no>"), granted("<status>FAILED</status>"), scheduler.Failed},

		{"paid", "alipay-v3", v3("POST", "trade/pay", `{"out_trade_no":"T1"}`), unclear, v3("POST", "trade/query", `{"out_trade_no":"T1"}`), answered(200, `{"trade_status":"TRADE_SUCCESS"}`), scheduler.Done},
		{"closed", "alipay-v3", v3("POST", "trade/pay", `{"out_trade_no":"T1"}`), unclear, v3("POST", "trade/query", `{"out_trade_no":"T1"}`), answered(200, `{"trade_status":"TRADE_CLOSED"}`), scheduler.Failed},
		{"not found", "alipay-v3", v3("POST", "trade/pay", `{"out_trade_no":"T1"}`), unclear, v3("POST", "trade/query", `{"out_trade_no":"T1"}`), answered(404, `{"code":"ACQ.TRADE_NOT_EXIST"}`), scheduler.Unknown},
		{"another trade", "alipay-v3", v3("POST", "trade/pay", `{"out_trade_no":"T1"}`), unclear, v3("POST", "trade/query", `{"out_trade_no":"T1","trade_no":"2027"}`), answered(200, `{"trade_status":"TRADE_SUCCESS"}`), scheduler.Unknown},
		{"a refund", "alipay-v3", v3("POST", "trade/refund", `{"out_trade_no":"T1","out_request_no":"R1"}`), answered(200, `{"fund_change":"N"}`), v3("POST", "trade/fastpay/refund/query", `{"out_trade_no":"T1","out_request_no":"R1"}`), answered(200, `{"refund_status":"REFUND_SUCCESS"}`), scheduler.Done},
		{"a transfer", "alipay-v3", v3("POST", "fund/trans/uni/transfer", `{"out_biz_no":"B1"}`), answered(200, `{"status":"DEALING"}`), v3("GET", "fund/trans/common/query?out_biz_no=B1", ""), answered(200, `{"status":"FAIL"}`), scheduler.Failed},
		{"a freeze", "alipay-v3", v3("POST", "fund/auth/order/freeze", `{"out_request_no":"Q1"}`), answered(200, `{"status":"INIT"}`), v3("POST", "fund/auth/operation/detail/query", `{"out_request_no":"Q1","operation_type":"FREEZE"}`), answered(200, `{"status":"SUCCESS"}`), scheduler.Done},
		{"a sharing", "alipay-v3", v3("POST", "trade/order/settle", `{"trade_no":"2026","out_request_no":"S1","royalty_mode":"async"}`), answered(200, `{}`), v3("GET", "trade/order/settle/query?trade_no=2026&out_request_no=S1", ""), answered(200, `{"royalty_detail_list":[{"state":"SUCCESS"}]}`), scheduler.Done},

		// v3/merchant/4012382150: a code payment is queried for half a minute, then reversed.
		{"P2: USERPAYING, paid", "wechatpay-v3", code, answered(200, `{"trade_state":"USERPAYING"}`), wechat("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(200, `{"trade_state":"SUCCESS","amount":{"total":1}}`), scheduler.Done},
		{"P2: USERPAYING, PAYERROR", "wechatpay-v3", code, answered(200, `{"trade_state":"USERPAYING"}`), wechat("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(200, `{"trade_state":"PAYERROR"}`), scheduler.Failed},
		{"P2: USERPAYING still", "wechatpay-v3", code, answered(200, `{"trade_state":"USERPAYING"}`), wechat("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(200, `{"trade_state":"USERPAYING"}`), scheduler.Unknown},
		{"P2: NOTPAY", "wechatpay-v3", code, unclear, wechat("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(200, `{"trade_state":"NOTPAY"}`), scheduler.Unknown},
		{"not found", "wechatpay-v3", code, unclear, wechat("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(404, `{"code":"ORDER_NOT_EXIST"}`), scheduler.Unknown},
		{"another merchant", "wechatpay-v3", code, unclear, wechat191("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=191", ""), answered(200, `{"trade_state":"SUCCESS"}`), scheduler.Unknown},
		{"another merchant that names this one", "wechatpay-v3", code, unclear, wechat191("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", ""), answered(200, `{"trade_state":"PAYERROR"}`), scheduler.Unknown},
		{"partner", "wechatpay-v3", wechat("POST", "/v3/pay/partner/transactions/codepay", `{"sp_mchid":"190","sub_mchid":"7","out_trade_no":"T1"}`), unclear, wechat("GET", "/v3/pay/partner/transactions/out-trade-no/T1?sp_mchid=190&sub_mchid=7", ""), answered(200, `{"trade_state":"SUCCESS"}`), scheduler.Done},
		{"Hong Kong", "wechatpay-v3", wechat("POST", "/hk/v3/transactions/micropay", `{"mchid":"190","out_trade_no":"T|1"}`), unclear, wechat("GET", "/hk/v3/transactions/out-trade-no/T%7C1?mchid=190", ""), answered(200, `{"trade_state":"SUCCESS"}`), scheduler.Done},
		{"a refund at work", "wechatpay-v3", wechat("POST", "/v3/refund/domestic/refunds", `{"out_refund_no":"R1"}`), answered(200, `{"status":"PROCESSING"}`), wechat("GET", "/v3/refund/domestic/refunds/R1", ""), answered(200, `{"status":"SUCCESS"}`), scheduler.Done},
		{"P8: a refund, ABNORMAL", "wechatpay-v3", wechat("POST", "/v3/refund/domestic/refunds", `{"out_refund_no":"R1"}`), answered(200, `{"status":"PROCESSING"}`), wechat("GET", "/v3/refund/domestic/refunds/R1", ""), answered(200, `{"status":"ABNORMAL"}`), scheduler.Unknown},
		{"a refund, partner", "wechatpay-v3", wechat("POST", "/v3/ecommerce/refunds/apply", `{"sub_mchid":"7","out_refund_no":"R1"}`), answered(200, `{"status":"PROCESSING"}`), wechat("GET", "/v3/ecommerce/refunds/out-refund-no/R1?sub_mchid=7", ""), answered(200, `{"status":"CLOSED"}`), scheduler.Failed},
		{"P4: a transfer, FAIL", "wechatpay-v3", wechat("POST", "/v3/fund-app/mch-transfer/transfer-bills", `{"out_bill_no":"B1"}`), answered(403, `{"code":"NOT_ENOUGH"}`), wechat("GET", "/v3/fund-app/mch-transfer/transfer-bills/out-bill-no/B1", ""), answered(200, `{"state":"FAIL"}`), scheduler.Failed},
		{"P4: a transfer, CANCELING", "wechatpay-v3", wechat("POST", "/v3/fund-app/mch-transfer/transfer-bills", `{"out_bill_no":"B1"}`), answered(403, `{"code":"NOT_ENOUGH"}`), wechat("GET", "/v3/fund-app/mch-transfer/transfer-bills/out-bill-no/B1", ""), answered(200, `{"state":"CANCELING"}`), scheduler.Unknown},
		{"a batch", "wechatpay-v3", wechat("POST", "/v3/transfer/batches", `{"out_batch_no":"B1"}`), answered(200, `{"out_batch_no":"B1"}`), wechat("GET", "/v3/transfer/batches/out-batch-no/B1?need_query_detail=false", ""), answered(200, `{"transfer_batch":{"batch_status":"FINISHED","success_num":2,"total_num":2}}`), scheduler.Done},
		{"a sharing", "wechatpay-v3", wechat("POST", "/v3/profitsharing/orders", `{"out_order_no":"S1"}`), answered(200, `{"state":"PROCESSING"}`), wechat("GET", "/v3/profitsharing/orders/S1?transaction_id=4", ""), answered(200, `{"state":"FINISHED","receivers":[{"result":"SUCCESS"}]}`), scheduler.Done},
		{"a return of a sharing", "wechatpay-v3", wechat("POST", "/v3/profitsharing/return-orders", `{"out_order_no":"S1","out_return_no":"Q1"}`), answered(200, `{"result":"PROCESSING"}`), wechat("GET", "/v3/profitsharing/return-orders/Q1?out_order_no=S1", ""), answered(200, `{"result":"FAILED"}`), scheduler.Failed},
	} {
		t.Run(tt.preset+" "+tt.row, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := tt.answer
				s := facingBy(t, tt.preset, nil, func(r *http.Request) (*http.Response, error) { return told.RoundTrip(r) }, "")
				do := func(r *upstream.Request) string {
					resp, c, err := s.Do(t.Context(), scheduler.Request{Upstream: "a", Method: r.Method, Target: r.Target, Header: r.Header, Body: r.Body})
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					return c.ID
				}
				id := do(tt.call)
				if c, err := s.Get(t.Context(), id); err != nil || c.State != scheduler.Unknown {
					t.Fatalf("the call is %+v, %v; want it unknown", c, err)
				}
				time.Sleep(time.Second)
				told = tt.told
				do(tt.query)
				if c, err := s.Get(t.Context(), id); err != nil || c.State != tt.want {
					t.Errorf("the call is %s, %v; want %s: %s", c.State, err, tt.want, c.Last().Reason)
				}
			})
		})
	}
}

// TestPresetsKeepBelowTheTimeOutsOfSDKs: a client that waits as long as it may still gets an answer
// that takes as long as is usual.
func TestPresetsKeepBelowTheTimeOutsOfSDKs(t *testing.T) {
	for preset, sdk := range map[string]struct{ gives, usual, platform time.Duration }{
		"alipay":       {5 * time.Second, 2 * time.Second, 15 * time.Second}, // alipay-sdk for Node; for Java
		"alipay-v3":    {5 * time.Second, 2 * time.Second, 15 * time.Second},
		"wechatpay-v2": {8 * time.Second, 3 * time.Second, 30 * time.Second},   // WXPay-SDK-Java
		"wechatpay-v3": {10 * time.Second, 3 * time.Second, 30 * time.Second},  // wechatpay-java; wechatpay-go
		"stripe":       {80 * time.Second, 45 * time.Second, 80 * time.Second}, // stripe-go
	} {
		c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		u := c.Scheduler.Upstreams["a"]
		if u.MaxWait+sdk.usual > sdk.gives || u.Timeout < sdk.platform {
			t.Errorf("%s: max_wait %v and an answer of %v, for clients that give up after %v; timeout %v, want at least %v", preset, u.MaxWait, sdk.usual, sdk.gives, u.Timeout, sdk.platform)
		}
	}
}
