package config

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The step after an attempt.
const (
	nothing = "nothing"          // the call is done or failed
	again   = "again"            // the call is sent again, after a pause of its limit or upstream
	alone   = "again, alone"     // the call is sent again, without a pause
	repeat  = "repeat"           // the call is sent again, and the platform recognises the repeat
	query   = "query"            // a query resolves the call
	person  = "a person decides" // the call stays unknown
)

// A fact is an answer of a payment platform, with its outcome and the next step.
type fact struct {
	row     string // a name of sources, and the case
	call    *upstream.Request
	answer  answer
	err     error // instead of an answer
	outcome upstream.Outcome
	next    string
	after   time.Duration // least wait before the next step
}

var (
	errLost = io.ErrUnexpectedEOF
	errGone = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
)

func rest(method, target, body string, headers ...string) *upstream.Request {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &upstream.Request{Method: method, Target: target, Header: h, Body: []byte(body)}
}

// answered is an answer; headers are names and values.
func answered(status int, body string, headers ...string) answer {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return answer{status, h, body}
}

// coded is an answer of Alipay's gateway.
func coded(code, sub string) answer {
	return answered(200, `{"alipay_trade_refund_response":{"code":"`+code+`","msg":"m","sub_code":"`+sub+`"},"sign":"s"}`)
}

func failure(status int, code string, headers ...string) answer {
	return answered(status, `{"code":"`+code+`","message":"m"}`, headers...)
}

// sources say which page tells a row. A copy reproduces a page that needs a login.
var sources = map[string]string{
	"1":        "opendocs.alipay.com/common/02km9f, codes of the gateway",
	"2":        "opendocs.alipay.com/open-v3/054fcv, codes and signature",
	"3":        "pay.weixin.qq.com/doc/v3/merchant/4012081726, and the error tables of each method",
	"4":        "docs.stripe.com/rate-limits and /api/idempotent_requests; the other platforms' pages on limits and keys",
	"5":        "what follows from 1 to 4 for each kind of call",
	"RFC 9110": "rfc-editor.org/rfc/rfc9110",
	"RFC 4918": "rfc-editor.org/rfc/rfc4918",
	"RFC 8470": "rfc-editor.org/rfc/rfc8470",
	"keys":     "razorpay.com/docs/api/refunds/normal-refunds-idempotent: 409 while the first is at work, without Retry-After; so docs.truelayer.com/docs/idempotency",
	"errors":   "docs.stripe.com/error-low-level and /api/idempotent_requests",

	"bar code":    "opendocs.alipay.com/open/02e7go: poll for half a minute, then cancel",
	"transfers":   "copies of docs.open.alipay.com/api_28/alipay.fund.trans.uni.transfer; developer.aliyun.com/article/710938",
	"refunds":     "developer.aliyun.com/article/707647; AlipayTradeFastpayRefundQueryResponse of alipay-sdk-java-all, 2024-05",
	"SDK":         "comments of the fields in alipay-sdk-java-all, 2024-03 to 2024-10",
	"bill":        "pay.wechatpay.cn/doc/v3/merchant/4012716434, 2025-03: no status but 200 tells the state; FAIL of the query alone allows another number",
	"refund":      "pay.weixin.qq.com/doc/v3/merchant/4013071031, 2025-06; query each minute, then more and more rarely; a bank card takes three working days",
	"global":      "pay.weixin.qq.com/doc/global/v3 4012354972 and api_external/en/apis/chapter3_4_3: the answer to a refund says only that it was accepted",
	"code":        "pay.weixin.qq.com/doc/v3/merchant/4012382150 and docs/merchant/apis/code-payment-v3: query, then reverse",
	"global code": "pay.weixin.qq.com/doc/global/v3/zh/4013010527, 2025-03",
	"v2 code":     "pay.weixin.qq.com/doc/v2/merchant/4011937125: USERPAYING, BANKERROR and SYSTEMERROR are queried",
	"v2 refund":   "error table of v2's refund: the same number and parameters again; developers.weixin.qq.com thread 00008e642887882ceffbc290e54409",
	"v2 transfer": "codeprj.com/zh/blog/56163e1.html, a copy of tools/mch_pay.php 14_2: result FAIL was paid days later",
	"sharing":     "pay.wechatpay.cn/doc/v3/merchant/4012525210, 2025-09: one number is one sharing; PROCESSING, FINISHED",
	"score":       "pay.weixin.qq.com, states of orders of the payment score (from memory): DONE is paid",

	"seen":    "answers of the platform, seen by users",
	"no page": "no page tells: the side on which no money is lost",
}

// mores are keys of the file beside the preset.
var mores = map[string]string{"generic": ", idempotency: {header: Idempotency-Key, retention: 24h}"}

// Known answers of payment platforms.
var facts = map[string][]fact{
	"alipay": slices.Concat(alipayFacts(), alipayMoney()), "alipay-v3": slices.Concat(alipayV3Facts(), alipayV3Money()), "wechatpay-v3": slices.Concat(wechatFacts(), wechatMoney()), "stripe": stripeFacts(),
	// PayPal, Adyen, Square, Razorpay, Checkout.com, Klarna and Vipps follow
	// HTTP; the file names the header that makes their calls repeatable.
	"generic": genericFacts(),
}

func alipayFacts() []fact {
	refund := call("alipay.trade.refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	pay := call("alipay.trade.pay", `{"out_trade_no":"T1"}`)
	precreate := call("alipay.trade.precreate", `{"out_trade_no":"T1"}`)
	transfer := call("alipay.fund.trans.uni.transfer", `{"out_biz_no":"B1"}`)
	ask := call("alipay.trade.query", `{"out_trade_no":"T1"}`)
	closing := call("alipay.trade.close", `{"out_trade_no":"T1"}`)
	bill := call("alipay.data.dataservice.bill.downloadurl.query", `{}`)
	numberless := call("alipay.trade.refund", `{"out_trade_no":"T1","refund_amount":"1.00"}`)
	return []fact{
		{"1: 10000", ask, coded("10000", ""), nil, upstream.Done, nothing, 0},
		{"1: 10003 waits for the buyer", pay, coded("10003", ""), nil, upstream.Unknown, query, 5 * time.Second},
		{"1: 20000", refund, coded("20000", "isp.unknow-error"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 20000 aop", refund, coded("20000", "aop.unknow-error"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 20001 token", refund, coded("20001", "aop.invalid-auth-token"), nil, upstream.Failed, nothing, 0},
		{"1: 40001", refund, coded("40001", "isv.missing-method"), nil, upstream.Failed, nothing, 0},
		{"1: 40002", refund, coded("40002", "isv.invalid-timestamp"), nil, upstream.Failed, nothing, 0},
		{"1: 40003", refund, coded("40003", "isv.missing-signature-config"), nil, upstream.Failed, nothing, 0},
		{"1: 40004", refund, coded("40004", "ACQ.TRADE_NOT_EXIST"), nil, upstream.Failed, nothing, 0},
		{"1: 40004 ACQ.SYSTEM_ERROR", refund, coded("40004", "ACQ.SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 40004 SYSTEM_ERROR", refund, coded("40004", "SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 40004 aop.ACQ.SYSTEM_ERROR", refund, coded("40004", "aop.ACQ.SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 40004 AQC.SYSTEM_ERROR", refund, coded("40004", "AQC.SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"1: 40004 SYSTEM_RATE_LIMIT", bill, coded("40004", "SYSTEM_RATE_LIMIT"), nil, upstream.NotExecuted, again, time.Second},
		{"1: 40004 USER_RATE_LIMIT", bill, coded("40004", "USER_RATE_LIMIT"), nil, upstream.NotExecuted, again, time.Second},
		{"1: 40005 app", refund, coded("40005", "isv.app-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"1: 40005 method", refund, coded("40005", "isv.method-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"1: 40005 as error_response", refund, answered(200, `{"error_response":{"code":"40005"}}`), nil, upstream.NotExecuted, again, time.Second},
		{"1: 40006", refund, coded("40006", "isv.insufficient-isv-permissions"), nil, upstream.Failed, nothing, 0},
		{"1: a page", call("alipay.trade.page.pay", `{}`), answered(200, "<html>\xd6\xa7</html>"), nil, upstream.Done, nothing, 0},
		{"1: unsigned error for an unknown app", ask, answered(200, `{"error_response":{"code":"40002","sub_code":"isv.invalid-app-id"}}`), nil, upstream.Failed, nothing, 0},
		{"1: idempotency, discordant", refund, coded("40004", "ACQ.DISCORDANT_REPEAT_REQUEST"), nil, upstream.Unknown, query, 10 * time.Second},
		{"1: idempotency, inconsistent", pay, coded("40004", "ACQ.CONTEXT_INCONSISTENT"), nil, upstream.Unknown, query, 5 * time.Second},
		{"1: idempotency, paid already", pay, coded("40004", "ACQ.TRADE_HAS_SUCCESS"), nil, upstream.Unknown, query, 5 * time.Second},
		{"1: a new number refunds again", numberless, coded("20000", "isp.unknow-error"), nil, upstream.Unknown, query, 10 * time.Second},

		{"5: query limited", ask, coded("40005", ""), nil, upstream.NotExecuted, again, time.Second},
		{"5: query unknown", ask, answer{}, errLost, upstream.Unknown, repeat, 0},
		{"5: close limited", closing, coded("40005", ""), nil, upstream.NotExecuted, again, time.Second},
		{"5: close unknown", closing, answered(502, "<html>"), nil, upstream.Unknown, repeat, 0},
		{"5: bill URL unknown", bill, coded("20000", ""), nil, upstream.Unknown, repeat, 0},
		{"5: pay limited", pay, coded("40005", ""), nil, upstream.NotExecuted, again, time.Second},
		{"5: pay unknown", pay, coded("20000", ""), nil, upstream.Unknown, query, 5 * time.Second},
		{"5: pay unknown, no answer", pay, answer{}, errLost, upstream.Unknown, query, 5 * time.Second},
		{"5: precreate unknown", precreate, coded("20000", ""), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"5: create unknown", call("alipay.trade.create", `{"out_trade_no":"T1"}`), coded("20000", ""), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"5: refund limited", refund, coded("40005", ""), nil, upstream.NotExecuted, again, time.Second},
		{"5: refund unknown, no answer", refund, answer{}, errLost, upstream.Unknown, repeat, 3 * time.Second},
		{"5: refund unknown, 5xx", refund, answered(504, ""), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"5: transfer limited", transfer, coded("40005", ""), nil, upstream.NotExecuted, again, time.Second},
		{"5: transfer unknown (overload is 20000)", transfer, coded("20000", ""), nil, upstream.Unknown, query, 10 * time.Second},
		{"5: never sent", refund, answer{}, errGone, upstream.NotExecuted, again, 250 * time.Millisecond},
	}
}

func alipayV3Facts() []fact {
	auth := []string{"Authorization", "ALIPAY-SHA256withRSA app_id=2021,timestamp=1,nonce=n,sign=s"}
	refund := rest("POST", "/v3/alipay/trade/refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`, auth...)
	pay := rest("POST", "/v3/alipay/trade/pay", `{"out_trade_no":"T1"}`, auth...)
	transfer := rest("POST", "/v3/alipay/fund/trans/uni/transfer", `{"out_biz_no":"B1"}`, auth...)
	ask := rest("POST", "/v3/alipay/trade/query", `{"out_trade_no":"T1"}`, auth...)
	return []fact{
		{"2: success", refund, answered(200, `{"fund_change":"Y","refund_fee":"1.00"}`), nil, upstream.Done, nothing, 0},
		{"2: app-call-limited", refund, failure(429, "app-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"2: method-call-limited", refund, failure(429, "method-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"2: limited, another status", refund, failure(400, "app-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"2: unknow-error 500", refund, failure(500, "unknow-error"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"2: unknow-error 400", refund, failure(400, "unknow-error"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"2: ACQ.SYSTEM_ERROR 400", refund, failure(400, "ACQ.SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"2: missing-timestamp", refund, failure(400, "missing-timestamp"), nil, upstream.Failed, nothing, 0},
		{"2: 202", refund, answered(202, `{}`), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"5: query unknown", ask, answer{}, errLost, upstream.Unknown, repeat, 0},
		{"5: bill URL, a GET", rest("GET", "/v3/alipay/data/dataservice/bill/downloadurl/query?bill_type=trade", "", auth...), failure(500, "unknow-error"), nil, upstream.Unknown, repeat, 0},
		{"5: close unknown", rest("POST", "/v3/alipay/trade/close", `{"out_trade_no":"T1"}`, auth...), answer{}, errLost, upstream.Unknown, repeat, 0},
		{"5: pay limited", pay, failure(429, "method-call-limited"), nil, upstream.NotExecuted, again, time.Second},
		{"5: pay unknown", pay, failure(500, "unknow-error"), nil, upstream.Unknown, query, 5 * time.Second},
		{"5: transfer unknown", transfer, answer{}, errLost, upstream.Unknown, query, 10 * time.Second},
		{"5: a refund without a number", rest("POST", "/v3/alipay/trade/refund", `{"out_trade_no":"T1"}`, auth...), answer{}, errLost, upstream.Unknown, query, 10 * time.Second},
	}
}

func wechatFacts() []fact {
	const refunds = "/v3/refund/domestic/refunds"
	refund := rest("POST", refunds, `{"out_trade_no":"T1","out_refund_no":"R1"}`)
	pay := rest("POST", "/v3/pay/transactions/jsapi", `{"mchid":"190","out_trade_no":"T1"}`)
	transfer := rest("POST", "/v3/fund-app/mch-transfer/transfer-bills", `{"out_bill_no":"B1"}`)
	ask := rest("GET", "/v3/pay/transactions/out-trade-no/T1?mchid=190", "")
	v2 := &upstream.Request{Method: "POST", Target: "/pay/unifiedorder", Header: http.Header{"Content-Type": {"text/xml"}}, Body: []byte("<xml><out_trade_no>T1</out_trade_no></xml>")}
	return []fact{
		{"3: success", pay, answered(200, `{"prepay_id":"p"}`), nil, upstream.Done, nothing, 0},
		{"3: close, no content", rest("POST", "/v3/pay/transactions/out-trade-no/T1/close", `{"mchid":"190"}`), answered(204, ""), nil, upstream.Done, nothing, 0},
		{"3: SIGN_ERROR", pay, failure(401, "SIGN_ERROR"), nil, upstream.Failed, nothing, 0},
		{"3: RATELIMIT_EXCEEDED", pay, failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.NotExecuted, again, time.Second},
		{"3: RATE_LIMITED", ask, failure(429, "RATE_LIMITED"), nil, upstream.NotExecuted, again, time.Second},
		{"3: FREQUENCY_LIMITED, another status", pay, failure(400, "FREQUENCY_LIMITED"), nil, upstream.NotExecuted, alone, time.Second},
		{"3: paid already", pay, failure(400, "ORDERPAID"), nil, upstream.Unknown, query, 5 * time.Second},
		{"3: FREQUENCY_LIMITED", pay, failure(429, "FREQUENCY_LIMITED"), nil, upstream.NotExecuted, alone, time.Second},
		{"3: limited in v2", v2, answered(200, `<xml><return_code>SUCCESS</return_code><result_code>FAIL</result_code><err_code><![CDATA[FREQUENCY_LIMITED]]></err_code></xml>`), nil, upstream.NotExecuted, again, time.Second},
		{"3: failed in v2", v2, answered(200, `<xml><return_code>FAIL</return_code></xml>`), nil, upstream.Failed, nothing, 0},
		{"3: SYSTEMERROR in v2", v2, answered(200, `<xml><result_code>FAIL</result_code><err_code>SYSTEMERROR</err_code></xml>`), nil, upstream.Unknown, person, 0},
		{"3: 429 of a refund is not clear", refund, failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.Unknown, repeat, time.Minute},
		{"3: 429 of a refund query", rest("GET", refunds+"/R1", ""), failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.NotExecuted, again, time.Second},
		{"3: SYSTEM_ERROR", pay, failure(500, "SYSTEM_ERROR"), nil, upstream.Unknown, repeat, time.Second},
		{"3: SYSTEM_ERROR of a refund", refund, failure(500, "SYSTEM_ERROR"), nil, upstream.Unknown, repeat, time.Minute},
		{"3: SERVICE_UNAVAILABLE 503", pay, failure(503, "SERVICE_UNAVAILABLE"), nil, upstream.NotExecuted, again, time.Second},
		{"3: SERVICE_UNAVAILABLE 502", refund, failure(502, "SERVICE_UNAVAILABLE"), nil, upstream.NotExecuted, again, time.Second},
		{"3: 202", transfer, answered(202, "{}"), nil, upstream.Unknown, repeat, time.Second},
		{"5: query unknown", ask, answer{}, errLost, upstream.Unknown, repeat, 0},
		{"5: pay unknown, no answer", pay, answer{}, errLost, upstream.Unknown, repeat, time.Second},
		{"5: refund unknown, no answer", refund, answer{}, errLost, upstream.Unknown, repeat, time.Minute},
		{"5: transfer unknown", transfer, answer{}, errLost, upstream.Unknown, repeat, time.Second},
		{"5: no number", rest("POST", "/v3/marketing/favor/stocks", `{}`), answer{}, errLost, upstream.Unknown, person, 0},
	}
}

func stripeFacts() []fact {
	pay := rest("POST", "/v1/payment_intents", "", "Idempotency-Key", "k1")
	keyless := rest("POST", "/v1/payment_intents", "")
	payV2 := rest("POST", "/v2/core/accounts", "{}", "Idempotency-Key", "k1")
	limited := func(headers ...string) answer {
		return answered(429, `{"error":{"type":"invalid_request_error","code":"rate_limit"}}`, headers...)
	}
	return []fact{
		{"4: success", pay, answered(200, `{"id":"pi_1"}`), nil, upstream.Done, nothing, 0},
		{"4: declined", pay, answered(402, `{"error":{"code":"card_declined"}}`), nil, upstream.Failed, nothing, 0},
		{"4: global-rate", pay, limited("Stripe-Rate-Limited-Reason", "global-rate"), nil, upstream.NotExecuted, again, time.Second},
		{"4: endpoint-rate", pay, limited("Stripe-Rate-Limited-Reason", "endpoint-rate"), nil, upstream.NotExecuted, again, time.Second},
		{"4: global-concurrency", pay, limited("Stripe-Rate-Limited-Reason", "global-concurrency"), nil, upstream.NotExecuted, again, time.Second},
		{"4: endpoint-concurrency", pay, limited("Stripe-Rate-Limited-Reason", "endpoint-concurrency"), nil, upstream.NotExecuted, again, time.Second},
		{"4: resource-specific", pay, limited("Stripe-Rate-Limited-Reason", "resource-specific"), nil, upstream.NotExecuted, alone, 5 * time.Second},
		{"4: lock_timeout is an object lock", pay, answered(429, `{"error":{"code":"lock_timeout"}}`), nil, upstream.NotExecuted, alone, time.Second},
		{"4: a 429 saves nothing", keyless, limited(), nil, upstream.NotExecuted, again, time.Second},
		{"4: other parameters", pay, answered(400, `{"error":{"type":"idempotency_error"}}`), nil, upstream.Failed, nothing, 0},
		{"4: key in use", pay, answered(409, `{"error":{"code":"idempotency_key_in_use"}}`), nil, upstream.Unknown, repeat, 2 * time.Second},
		{"errors: 409 without a key", keyless, answered(409, `{}`), nil, upstream.Unknown, person, 0},
		{"errors: an SDK would retry a 400", pay, answered(400, `{}`, "Stripe-Should-Retry", "true"), nil, upstream.Unknown, repeat, time.Second},
		{"errors: an SDK would retry a 400 without a key", keyless, answered(400, `{}`, "Stripe-Should-Retry", "true"), nil, upstream.Unknown, person, 0},
		{"errors: an SDK would not retry a 400", pay, answered(400, `{}`, "Stripe-Should-Retry", "false"), nil, upstream.Failed, nothing, 0},
		{"errors: a stored 402", pay, answered(402, `{}`, "Idempotent-Replayed", "true"), nil, upstream.Failed, nothing, 0},
		{"no page: 503 with Retry-After, without a key", keyless, answered(503, ``, "Retry-After", "2"), nil, upstream.Unknown, person, 0},
		{"no page: 503 with Retry-After and a key", pay, answered(503, ``, "Retry-After", "2"), nil, upstream.Unknown, repeat, 2 * time.Second},
		{"errors: 500 replayed under v2", payV2, answered(500, `{}`, "Idempotent-Replayed", "true"), nil, upstream.Unknown, repeat, 0},
		{"errors: 500 under v2", payV2, answered(500, `{}`, "Stripe-Should-Retry", "false"), nil, upstream.Unknown, repeat, 0},
		{"errors: 401", pay, answered(401, `{}`), nil, upstream.Failed, nothing, 0},
		{"errors: 404", keyless, answered(404, `{}`), nil, upstream.Failed, nothing, 0},
		{"errors: a redirect", keyless, answered(301, ``), nil, upstream.Failed, nothing, 0},
		{"errors: a DELETE, no answer", rest("DELETE", "/v1/customers/cus_1", ""), answer{}, errLost, upstream.Unknown, repeat, 0},
		{"4: 500", pay, answered(500, `{"error":{"type":"api_error"}}`), nil, upstream.Unknown, repeat, 0},
		{"4: 500 replayed", pay, answered(500, `{"error":{"type":"api_error"}}`, "Idempotent-Replayed", "true"), nil, upstream.Unknown, person, 0},
		{"4: should not be retried", pay, answered(500, `{}`, "Stripe-Should-Retry", "false"), nil, upstream.Unknown, person, 0},
		{"5: limited, with a key", pay, limited(), nil, upstream.NotExecuted, again, time.Second},
		{"5: unknown, with a key", pay, answer{}, errLost, upstream.Unknown, repeat, 0},
		{"5: unknown, without", keyless, answer{}, errLost, upstream.Unknown, person, 0},
		{"5: unknown, a GET", rest("GET", "/v1/charges", ""), answer{}, errLost, upstream.Unknown, repeat, 0},
	}
}

func genericFacts() []fact {
	plain := rest("POST", "/payments", `{}`)
	keyed := rest("POST", "/payments", `{}`, "Idempotency-Key", "k1")
	return []fact{
		{"4: success", plain, answered(201, `{}`), nil, upstream.Done, nothing, 0},
		{"4: refused", plain, answered(422, `{}`), nil, upstream.Failed, nothing, 0},
		{"4: PayPal RATE_LIMIT_REACHED", plain, answered(429, `{"name":"RATE_LIMIT_REACHED"}`, "Retry-After", "7"), nil, upstream.NotExecuted, again, 7 * time.Second},
		{"4: PayPal 5xx may have been executed", plain, answered(503, `{}`), nil, upstream.Unknown, person, 0},
		{"4: PayPal, unknown", rest("POST", "/v2/payments", `{}`, "PayPal-Request-Id", "k"), answered(500, `{}`), nil, upstream.Unknown, person, 0},
		{"4: Adyen, no signal known", plain, answered(500, `{}`), nil, upstream.Unknown, person, 0},
		{"4: Square RATE_LIMITED", plain, answered(429, `{"errors":[{"code":"RATE_LIMITED"}]}`), nil, upstream.NotExecuted, again, 0},
		{"4: Razorpay", plain, answered(429, `{}`), nil, upstream.NotExecuted, again, 0},
		{"keys: Razorpay, the first is at work", keyed, answered(409, `{}`), nil, upstream.Unknown, repeat, time.Second},
		{"keys: at work, with Retry-After", keyed, answered(409, `{}`, "Retry-After", "7"), nil, upstream.Unknown, repeat, 7 * time.Second},
		{"RFC 9110: conflict without a key", plain, answered(409, `{}`), nil, upstream.Failed, nothing, 0},
		{"no page: conflict without a key, to be tried later", plain, answered(409, `{}`, "Retry-After", "1"), nil, upstream.Unknown, person, 0},
		{"RFC 4918: locked, with a key", keyed, answered(423, ``), nil, upstream.Unknown, repeat, time.Second},
		{"RFC 4918: locked, without", plain, answered(423, ``), nil, upstream.Failed, nothing, 0},
		{"RFC 9110: 408", plain, answered(408, ``), nil, upstream.Unknown, person, 0},
		{"RFC 9110: 408, with a key", keyed, answered(408, ``), nil, upstream.Unknown, repeat, 0},
		{"RFC 8470: 425", plain, answered(425, ``), nil, upstream.NotExecuted, alone, time.Second},
		{"RFC 9110: 303 to a POST", plain, answered(303, ``, "Location", "/p/1"), nil, upstream.Unknown, person, 0},
		{"RFC 9110: 303 to a GET", rest("GET", "/payments", ""), answered(303, ``, "Location", "/p/1"), nil, upstream.Failed, nothing, 0},
		{"RFC 9110: 503 with Retry-After to a POST", plain, answered(503, ``, "Retry-After", "3"), nil, upstream.Unknown, person, 0},
		{"RFC 9110: 503 with Retry-After and a key", keyed, answered(503, ``, "Retry-After", "3"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"RFC 9110: 202 without resolve", plain, answered(202, `{}`), nil, upstream.Done, nothing, 0},
		{"RFC 9110: 401", plain, answered(401, ``), nil, upstream.Failed, nothing, 0},
		{"4: Checkout.com", plain, answered(429, ``), nil, upstream.NotExecuted, again, 0},
		{"4: Klarna, until the reset", plain, answered(429, ``, "RateLimit", `"writes";r=0;t=11`), nil, upstream.NotExecuted, again, 11 * time.Second},
		{"4: Vipps MobilePay", plain, answered(429, ``, "Retry-After", "60"), nil, upstream.NotExecuted, again, time.Minute},
		{"RFC 9110: 503 with Retry-After to a GET", rest("GET", "/payments", ""), answered(503, ``, "Retry-After", "3"), nil, upstream.NotExecuted, again, 3 * time.Second},
		{"5: unknown", plain, answer{}, errLost, upstream.Unknown, person, 0},
	}
}

// signs is a signer without effect: the presets' queries need one.
type signs struct{}

func (signs) Sign(context.Context, *upstream.Request) error { return nil }

// TestFacts sends each call through the whole scheduler with the preset. The first
// answer is that of the row, and the request after it, if any, is the next step. Each rule
// of a preset decides a row.
func TestFacts(t *testing.T) {
	for preset, rows := range facts {
		decided := make(map[string]bool)
		for _, f := range rows {
			t.Run(preset+" "+f.row, func(t *testing.T) {
				if source, _, _ := strings.Cut(f.row, ":"); sources[source] == "" {
					t.Errorf("no source %q", source)
				}
				synctest.Test(t, func(t *testing.T) { decided[testFact(t, preset, mores[preset], f)] = true })
			})
		}
		c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range c.Scheduler.Upstreams["a"].Outcomes {
			if !decided[rule.When] {
				t.Errorf("%s: no row is decided by %s", preset, rule.When)
			}
		}
	}
}

// Other platforms, with an idempotency key that the file names.
func TestFactsOfKeys(t *testing.T) {
	for name, header := range map[string]string{
		"PayPal": "PayPal-Request-Id", "Adyen": "Idempotency-Key", "Razorpay payouts": "X-Payout-Idempotency",
		"Razorpay refunds": "X-Refund-Idempotency", "Checkout.com": "Cko-Idempotency-Key", "Vipps": "Idempotency-Key",
	} {
		f := fact{name, rest("POST", "/payments", "{}", header, "k1"), answer{}, errLost, upstream.Unknown, repeat, 0}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFact(t, "generic", ", idempotency: {header: "+header+", retention: 24h}", f) })
		})
	}
	t.Run("Square", func(t *testing.T) {
		f := fact{"", rest("POST", "/v2/payments", `{"idempotency_key":"k1"}`), answer{}, errLost, upstream.Unknown, repeat, 0}
		synctest.Test(t, func(t *testing.T) { testFact(t, "generic", ", idempotency: {field: idempotency_key}", f) })
	})
}

// testFact returns the reason of the first outcome.
func testFact(t *testing.T, preset, more string, f fact) string {
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + more + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []*http.Request
	var at []time.Duration
	start := time.Now()
	up := c.Scheduler.Upstreams["a"]
	if preset != "stripe" && preset != "generic" {
		up.Signer = signs{}
	}
	up.Transport = transport(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if seen, at = append(seen, r), append(at, time.Since(start)); len(seen) > 1 {
			return nil, errLost
		} else if f.err != nil {
			return nil, f.err
		}
		return f.answer.RoundTrip(r)
	})
	c.Scheduler.Upstreams["a"] = up
	c.Scheduler.Log = slog.New(slog.DiscardHandler)
	var paused atomic.Bool
	c.Scheduler.Observe = func(e scheduler.Event) {
		if e.Kind == scheduler.EventPaused {
			paused.Store(true)
		}
	}
	s, err := scheduler.New(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: f.call.Method, Target: f.call.Target, Header: f.call.Header, Body: f.call.Body})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	first, err := s.Get(t.Context(), made.ID)
	if err != nil || len(first.Attempts) == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if got := first.Attempts[0]; got.Outcome != f.outcome {
		t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Reason, f.outcome)
	}
	wasPaused := paused.Load() || f.err == errGone
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	next, after := nothing, time.Duration(0)
	switch {
	case len(seen) == 1 && first.State == scheduler.Unknown:
		next = person
	case len(seen) == 1:
	case !same(seen[0], seen[1]):
		next = query
	case f.outcome == upstream.Unknown:
		next = repeat
	case wasPaused:
		next = again
	default:
		next = alone
	}
	if len(seen) > 1 {
		after = at[1]
	}
	if next != f.next || after < f.after {
		t.Errorf("then %s after %v, want %s after %v", next, after, f.next, f.after)
	}
	return first.Attempts[0].Reason
}

// A refusal such as "already paid" may be the effect of an earlier sending: of the same
// call, or of another one. The call is not failed then: a query asks the platform. A
// payment that a query does not find yet is not sent again; a prepay may be.
func TestAlreadyDone(t *testing.T) {
	wechat := rest("POST", "/v3/pay/transactions/jsapi", `{"mchid":"190","out_trade_no":"T1"}`)
	for _, tt := range []struct {
		name, preset string
		call         *upstream.Request
		query        string // part of the query's target or body
		absent, paid answer // to the query
		already      answer
		sent         int // times if the call is refused at once; with a lost answer before, one more where it is repeated
		repeated     bool
	}{
		{"alipay", "alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), "alipay.trade.query", coded("40004", "ACQ.TRADE_NOT_EXIST"),
			answered(200, `{"alipay_trade_query_response":{"code":"10000","trade_status":"TRADE_SUCCESS"}}`), coded("40004", "ACQ.TRADE_HAS_SUCCESS"), 1, false},
		{"alipay, closed", "alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), "alipay.trade.query", coded("40004", "ACQ.TRADE_NOT_EXIST"),
			answered(200, `{"alipay_trade_query_response":{"code":"10000","trade_status":"TRADE_SUCCESS"}}`), coded("40004", "ACQ.TRADE_HAS_CLOSE"), 1, false},
		{"alipay-v3", "alipay-v3", rest("POST", "/v3/alipay/trade/pay", `{"out_trade_no":"T1"}`), "/v3/alipay/trade/query", failure(400, "ACQ.TRADE_NOT_EXIST"),
			answered(200, `{"trade_status":"TRADE_SUCCESS"}`), failure(400, "ACQ.TRADE_HAS_SUCCESS"), 1, false},
		{"wechatpay-v3", "wechatpay-v3", wechat, "/v3/pay/transactions/out-trade-no/T1", failure(404, "ORDER_NOT_EXIST"),
			answered(200, `{"trade_state":"SUCCESS"}`), failure(400, "ORDERPAID"), 2, true},
	} {
		for _, first := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: ", at once", false: ", to a repeat"}[first], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					sent, asked := 0, 0
					s := facing(t, tt.preset, func(r *http.Request) (*http.Response, error) {
						mu.Lock()
						defer mu.Unlock()
						body, _ := io.ReadAll(r.Body)
						switch {
						case strings.Contains(r.URL.Path+string(body), tt.query):
							if asked++; asked == 1 {
								return tt.absent.RoundTrip(r) // the payment is not visible yet
							}
							return tt.paid.RoundTrip(r)
						case first || sent > 0:
							sent++
							return tt.already.RoundTrip(r)
						}
						sent++
						return nil, errLost
					}, "")
					c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: tt.call.Method, Target: tt.call.Target, Header: tt.call.Header, Body: tt.call.Body})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
					want := tt.sent
					if tt.repeated && !first {
						want++
					}
					if c, err = s.Get(t.Context(), c.ID); err != nil || c.State != scheduler.Done || sent != want {
						t.Errorf("%s after %d attempts and %d queries, want done after %d: %+v", c.State, sent, asked, want, c.Attempts)
					}
				})
			})
		}
	}
}

// facing starts a scheduler with one upstream, "a", with a preset, more keys and a signer.
func facing(t *testing.T, preset string, serve transport, more string) *scheduler.Scheduler {
	t.Helper()
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + more + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	up := c.Scheduler.Upstreams["a"]
	up.Signer, up.Transport = signs{}, serve
	c.Scheduler.Upstreams["a"] = up
	c.Scheduler.Log = slog.New(slog.DiscardHandler)
	s, err := scheduler.New(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// same reports whether two requests are the same call. At Alipay's gateway,
// only the body distinguishes a query.
func same(a, b *http.Request) bool {
	method := func(r *http.Request) string {
		text, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(text))
		return form.Get("method")
	}
	return a.Method == b.Method && a.URL.String() == b.URL.String() && strings.EqualFold(method(a), method(b))
}
