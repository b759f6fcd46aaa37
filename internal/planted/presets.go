package main

var (
	byFacts     = []string{"-run", "TestFacts$"}
	byDecisions = []string{"-run", "TestDecisions$"}
)

// presetBugs put the rules of presets back that lost money.
var presetBugs = []bug{
	{"alipay: a payment that waits for its buyer is done", "pkg/config/presets/alipay.yaml",
		`"10003"', is: unknown, park: true}`, `"10003"', is: done}`, byFacts},
	{"alipay: a transfer at work is done", "pkg/config/presets/alipay.yaml",
		`? "" : "SUCCESS")) != "SUCCESS"', is: unknown, park: true}`, `? "" : "SUCCESS")) != "SUCCESS"', is: done}`, byFacts},
	{"alipay: a failed transfer is done", "pkg/config/presets/alipay.yaml",
		`and body("*_response.status") in ["FAIL", "CLOSED", "REFUND"]', is: failed}
  - {when: 'body("*_response.code") == "10000" and param("method") matches`, `and body("*_response.status") in ["FAIL", "CLOSED", "REFUND"]', is: done}
  - {when: 'body("*_response.code") == "10000" and param("method") matches`, byFacts},
	{"alipay: a refund that moved no money is done", "pkg/config/presets/alipay.yaml",
		`body("*_response.fund_change") != "Y"', is: unknown, park: true}`, `body("*_response.fund_change") != "Y"', is: done}`, byFacts},
	{"alipay: a cancel to be made again is done", "pkg/config/presets/alipay.yaml",
		`body("*_response.retry_flag") == "Y"', is: unknown, after: 3s}`, `body("*_response.retry_flag") == "Y"', is: done}`, byFacts},
	{"alipay: a cancel is not repeated", "pkg/config/presets/alipay.yaml",
		`in ["alipay.trade.close", "alipay.trade.cancel", `, `in ["alipay.trade.close", `, byFacts},
	{"alipay: a transfer in process is failed", "pkg/config/presets/alipay.yaml",
		`"(?i)SYSTEM_ERROR|UNKNOW|PROCESSING|IN_?PROCESS"`, `"SYSTEM_ERROR"`, byFacts},
	{"alipay: too many transfers at once are failed", "pkg/config/presets/alipay.yaml",
		`, "RESOURCE_LIMIT_EXCEED"]`, `]`, byFacts},
	{"alipay: a number in use is free", "pkg/config/presets/alipay.yaml",
		`|BIZ_UNIQUE|PAYMENT_INFO_INCONSISTENCY"`, `"`, byFacts},
	{"alipay: paid already is failed", "pkg/config/presets/alipay.yaml",
		`'body("*_response.sub_code") matches "TRADE_HAS_`, `'repeat and body("*_response.sub_code") matches "TRADE_HAS_`, byFacts},
	{"alipay: a payment goes out after its cancel", "pkg/config/presets/alipay.yaml",
		`      - {when: 'body("*_response.trade_status") == "TRADE_CLOSED"', is: failed}
`, `      - {when: 'body("*_response.trade_status") == "TRADE_CLOSED"', is: failed}
      - {when: 'body("*_response.sub_code") == "ACQ.TRADE_NOT_EXIST"', is: not_executed}
`, byDecisions},
	{"alipay: the payment of another call is its own", "pkg/config/presets/alipay.yaml",
		`          and float(body("*_response.total_amount") ?? mine ?? 0) == float(mine ?? body("*_response.total_amount") ?? 0)
`, "", byDecisions},
	{"alipay: a refund without a number is made again", "pkg/config/presets/alipay.yaml",
		`(body("*_response.refund_status") ?? "") == "" and (fromJSON(param("biz_content")).out_request_no ?? "") != ""', is: not_executed}`, `(body("*_response.refund_status") ?? "") == ""', is: not_executed}`, byDecisions},
	{"alipay: a token is unknown", "pkg/config/presets/alipay.yaml",
		`  - {when: 'body("*_response.access_token") != nil', is: done}
`, "", byFacts},
	{"alipay: a page by redirect is failed", "pkg/config/presets/alipay.yaml",
		`status in [200, 302] and`, `status == 200 and`, byFacts},
	{"alipay: joined requests are one", "pkg/config/presets/alipay.yaml",
		`  - {when: 'param("method") contains "#S#" and body("error_response.code") == nil', is: unknown, park: true}
`, "", byFacts},
	{"alipay-v3: a payment without a time is done", "pkg/config/presets/alipay-v3.yaml",
		`(body("gmt_payment") ?? "") == ""', is: unknown, park: true}`, `(body("gmt_payment") ?? "") == ""', is: done}`, byFacts},
	{"alipay-v3: a transfer at work is done", "pkg/config/presets/alipay-v3.yaml",
		`? "" : "SUCCESS")) != "SUCCESS"', is: unknown, park: true}`, `? "" : "SUCCESS")) != "SUCCESS"', is: done}`, byFacts},
	{"alipay-v3: a refund that moved no money is done", "pkg/config/presets/alipay-v3.yaml",
		`body("fund_change") != "Y"', is: unknown, park: true}`, `body("fund_change") != "Y"', is: done}`, byFacts},
	{"alipay-v3: a transfer in process is failed", "pkg/config/presets/alipay-v3.yaml",
		`"(?i)SYSTEM_ERROR|UNKNOW|PROCESSING|IN_?PROCESS"`, `"SYSTEM_ERROR"`, byFacts},
	{"alipay-v3: paid already is failed", "pkg/config/presets/alipay-v3.yaml",
		`'body("code") matches "TRADE_HAS_`, `'repeat and body("code") matches "TRADE_HAS_`, byFacts},
	{"alipay-v3: a payment goes out after its cancel", "pkg/config/presets/alipay-v3.yaml",
		`      - {when: 'body("trade_status") == "TRADE_CLOSED"', is: failed}
`, `      - {when: 'body("trade_status") == "TRADE_CLOSED"', is: failed}
      - {when: 'body("code") == "ACQ.TRADE_NOT_EXIST"', is: not_executed}
`, byDecisions},
	{"waiting buyers open the circuit breaker", "pkg/scheduler/attempt.go",
		"	case r.Outcome == upstream.Unknown && !r.Open:\n", "	case r.Outcome == upstream.Unknown:\n", []string{"-run", "TestBreakerOverOpenPayments"}},
	{"stored failures keep the circuit breaker closed", "pkg/upstream/outcome.go",
		` && a.status < http.StatusInternalServerError`, ``, []string{"-run", "TestBreakerOverOpenPayments"}},
	{"wechatpay-v3: paid already is failed", "pkg/config/presets/wechatpay-v3.yaml",
		`'(body("code") ?? body("xml.err_code") ?? "") matches "^(ORDER`, `'repeat and (body("code") ?? body("xml.err_code") ?? "") matches "^(ORDER`, byFacts},
	{"wechatpay-v3: a v2 code payment in the bank's hands is failed", "pkg/config/presets/wechatpay-v3.yaml",
		`["SYSTEM_ERROR", "SYSTEMERROR", "BANK_ERROR", "BANKERROR", "USERPAYING", "USER_PAYING"]`, `["SYSTEM_ERROR", "SYSTEMERROR"]`, byFacts},
	{"wechatpay-v3: a code payment that waits for its buyer is done", "pkg/config/presets/wechatpay-v3.yaml",
		`(body("transaction_id") ?? body("id")) == nil)', is: unknown, park: true}`, `(body("transaction_id") ?? body("id")) == nil)', is: done}`, byFacts},
	{"wechatpay-v3: a failed code payment is done", "pkg/config/presets/wechatpay-v3.yaml",
		`body("trade_state") in ["PAYERROR", "REVOKED", "CLOSED"]', is: failed}
  - {when: 'method == "POST"`, `body("trade_state") in ["PAYERROR", "REVOKED", "CLOSED"]', is: done}
  - {when: 'method == "POST"`, byFacts},
	{"wechatpay-v3: a code payment is repeated", "pkg/config/presets/wechatpay-v3.yaml",
		`or not (path matches "refund|/(codepay|micropay|facepay)(/|$)|/papay/transactions$")`, `or not (path matches "refund")`, byFacts},
	{"wechatpay-v3: an order that is not paid yet is a paid code", "pkg/config/presets/wechatpay-v3.yaml",
		`in ["SUCCESS", "REFUND"]
`, `in ["SUCCESS", "NOTPAY", "USERPAYING", "REFUND"]
`, byDecisions},
	{"wechatpay-v3: a refused transfer is failed", "pkg/config/presets/wechatpay-v3.yaml",
		`and status >= 300', is: unknown, park: true}`, `and status >= 300', is: failed}`, byFacts},
	{"wechatpay-v3: a transfer that is being cancelled has failed", "pkg/config/presets/wechatpay-v3.yaml",
		`      - {when: 'status == 200 and body("state") in ["FAIL", "CANCELLED"]', is: failed}
`, `      - {when: 'status == 200 and body("state") in ["FAIL", "CANCELLED", "CANCELING"]', is: failed}
`, byDecisions},
	{"wechatpay-v3: a failed transfer is done", "pkg/config/presets/wechatpay-v3.yaml",
		`and status == 200 and body("state") in ["FAIL", "CANCELLED"]', is: failed}
  - `, `and status == 200 and body("state") in ["FAIL", "CANCELLED"]', is: done}
  - `, byFacts},
	{"wechatpay-v3: a transfer that waits for its user is done", "pkg/config/presets/wechatpay-v3.yaml",
		`body("state") != "SUCCESS"', is: unknown, park: true}`, `body("state") != "SUCCESS"', is: done}`, byFacts},
	{"wechatpay-v3: a limited refund abroad was not executed", "pkg/config/presets/wechatpay-v3.yaml",
		`  - {when: 'method == "POST" and path matches "refund" and not (path matches "refundquery") and (status == 429`, `  - {when: 'method == "POST" and path == "/v3/refund/domestic/refunds" and (status == 429`, byFacts},
	{"wechatpay-v3: an abnormal refund has failed", "pkg/config/presets/wechatpay-v3.yaml",
		`      - {when: 'status == 200 and body("status") == "CLOSED"', is: failed}
`, `      - {when: 'status == 200 and body("status") in ["CLOSED", "ABNORMAL"]', is: failed}
`, byDecisions},
	{"wechatpay-v3: a closed refund is done", "pkg/config/presets/wechatpay-v3.yaml",
		`and status == 200 and body("status") == "CLOSED"', is: failed}
  - `, `and status == 200 and body("status") == "CLOSED"', is: done}
  - `, byFacts},
	{"wechatpay-v3: an accepted refund is done", "pkg/config/presets/wechatpay-v3.yaml",
		`body("status") != "SUCCESS"', is: unknown, park: true}`, `body("status") != "SUCCESS"', is: done}`, byFacts},
	{"wechatpay-v3: a v2 refund that needs a retry is failed", "pkg/config/presets/wechatpay-v3.yaml",
		`path == "/secapi/pay/refund" and body("xml.err_code") in ["SYSTEMERROR", "BIZERR_NEED_RETRY", "ERROR"]`, `path == "/secapi/pay/refund" and body("xml.err_code") in ["SYSTEMERROR"]`, byFacts},
	{"wechatpay-v3: too many invalid requests are failed", "pkg/config/presets/wechatpay-v3.yaml",
		`, "INVALID_REQ_TOO_MUCH"]`, `]`, byFacts},
	{"wechatpay-v3: a reverse to be made again is done", "pkg/config/presets/wechatpay-v3.yaml",
		` or (body("xml.recall") ?? body("recall")) in ["Y", true])`, `)`, byFacts},
	{"wechatpay-v3: a v2 red packet with FAIL has failed", "pkg/config/presets/wechatpay-v3.yaml",
		`^/mmpaymkttransfers/(promotion/|send)|`, ``, byFacts},
	{"wechatpay-v3: limits of one order pause all", "pkg/config/presets/wechatpay-v3.yaml",
		`path matches "/out-trade-no/")', is: not_executed, after: 1s}`, `path matches "/out-trade-no/")', is: not_executed, pause: {for: 1s}}`, byFacts},
	{"wechatpay-v3: a second close is for a person", "pkg/config/presets/wechatpay-v3.yaml",
		`matches "^ORDER_?CLOSED$"', is: done}`, `matches "^ORDER_?CLOSED$"', is: unknown, park: true}`, byFacts},
	{"wechatpay-v3: an abnormal refund is repeated", "pkg/config/presets/wechatpay-v3.yaml",
		`or path matches "/refunds(/apply)?$" and`, `or path matches "refund" and`, byFacts},
	{"wechatpay-v3: a page of a proxy is success", "pkg/config/presets/wechatpay-v3.yaml",
		` and status != 204 and body("@this") == nil`, ` and status == 599`, byFacts},
	{"alipay-v3: a page of a proxy is success", "pkg/config/presets/alipay-v3.yaml",
		`'method == "POST" and status < 300 and body("@this") == nil'`, `'method == "POST" and status == 599'`, byFacts},
	{"wechatpay-v3: sharing at work is done", "pkg/config/presets/wechatpay-v3.yaml",
		`any(body("receivers.#.result") ?? [], # != "SUCCESS"))', is: unknown, park: true}`, `any(body("receivers.#.result") ?? [], # != "SUCCESS"))', is: done}`, byFacts},
	{"stripe: 503 with Retry-After was not executed", "pkg/config/presets/stripe.yaml",
		"  - {when: 'status >= 500', is: unknown}\n", "", byFacts},
	{"stripe: an answer that SDKs send again is failed", "pkg/config/presets/stripe.yaml",
		`'status >= 400 and header("Stripe-Should-Retry") == "true"', is: unknown, after: 1s}`, `'status >= 400 and header("Stripe-Should-Retry") == "true"', is: failed}`, byFacts},
	{"stripe: v2 replays failures", "pkg/config/presets/stripe.yaml",
		`"true" and not (path startsWith "/v2/")`, `"true"`, byFacts},
	{"stripe: a slow charge times out", "pkg/config/presets/stripe.yaml",
		"timeout: 90s\n", "timeout: 30s\n", []string{"-run", "TestSlowCharge"}},
	{"generic: a 409 under a key is failed", "pkg/config/presets/generic.yaml",
		`status == 409 and (keyed or header("Retry-After") != "")`, `status == 409 and header("Retry-After") != ""`, byFacts},
	{"generic: a 409 without a key is unknown", "pkg/upstream/idempotency.go",
		"	in.keyed = u.keyed(in)\n", "	in.keyed = true\n", byFacts},
	{"generic: a payment with 503 and Retry-After was not executed", "pkg/config/presets/generic.yaml",
		` and method in ["GET", "HEAD", "OPTIONS"]`, ``, byFacts},
	{"generic: 408 is failed", "pkg/config/presets/generic.yaml",
		`'status == 408', is: unknown`, `'status == 408', is: failed`, byFacts},
	{"generic: 425 is failed", "pkg/config/presets/generic.yaml",
		`'status == 425', is: not_executed, after: 1s`, `'status == 425', is: failed`, byFacts},
	{"generic: 423 under a key is failed", "pkg/config/presets/generic.yaml",
		`status == 423 and keyed`, `status == 999 and keyed`, byFacts},
	{"generic: 303 to a POST is failed", "pkg/config/presets/generic.yaml",
		`'status == 303 and method == "POST"', is: unknown, park: true`, `'status == 303 and method == "POST"', is: failed`, byFacts},
}

// signerBugs make signatures that a platform refuses.
var signerBugs = []bug{
	{"alipay-v3: an upload is signed whole", "pkg/signer/alipay.go",
		"	if isMultipart(r) {\n", "	if false {\n", []string{"-run", "TestAlipayV3"}},
	{"alipay: an SM2 request is signed as RSA2", "pkg/signer/alipay.go",
		`kind == "SM2"`, `kind == "none"`, []string{"-run", "TestAlipaySM2"}},
}
