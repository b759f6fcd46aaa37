package main

var (
	byProofs = []string{"-run", "TestSuccessIsProven"}
	byCosts  = []string{"-run", "TestCostOfAnUpstream|TestJoinedCallsCount|TestEncryptedCallsAreRefused"}
)

// proofBugs take an answer for a success that the platform has not given.
var proofBugs = []bug{
	{"stripe: a refund is done without its state", "pkg/config/presets/stripe.yaml",
		`body("object") == "refund" and body("status") == "succeeded" or`, `body("object") == "refund" or`, byProofs},
	{"stripe: a page of a gateway is success", "pkg/config/presets/stripe.yaml",
		`  - {format: json}`, `  - {format: any}`, byFacts},
	{"stripe: a payment is proven by another object", "pkg/config/presets/stripe.yaml",
		`body("object") == "payment_intent" and body("status") == "canceled"`, `body("status") == "canceled"`, byProofs},
	{"stripe: the limit of an endpoint pauses the account", "pkg/config/presets/stripe.yaml",
		`startsWith "endpoint"', is: not_executed, after: 1s}`, `startsWith "endpoint"', is: not_executed, pause: {for: 1s}}`, byFacts},
	{"adyen: a payment without a result is made", adyenPreset,
		`    holds: 'body("resultCode") in ["Authorised", "AuthenticationFinished", "AuthenticationNotRequired"]'
`, "", byProofs},
	{"adyen: a modification is made by any answer", adyenPreset,
		`    holds: 'false'
`, "", byProofs},
	{"paypal: a payment below an order is not looked at", paypalPreset,
		`len(c) + len(a) > 0 and all(c, # == "COMPLETED") and all(a, # == "CREATED")`, `true`, byProofs},
	{"paypal: a capture is done without its state", paypalPreset,
		`holds: 'let c = flatten(body("purchase_units.#.payments.captures.#.status") ?? []); len(c) > 0 and all(c, # == "COMPLETED")'`, `holds: 'true'`, byProofs},
	{"paypal: a sale below a payment is not looked at", paypalPreset,
		` and all(s, # == "completed")`, ``, byProofs},
	{"antom: a result of another type is success", antomPreset,
		`holds: 'body("result.resultStatus") == "S"'`, `holds: 'body("result.resultStatus") != nil'`, byProofs},
	{"antom: each JSON is success", antomPreset,
		`{when: 'true', holds: 'body("result.resultStatus") == "S"', after: 3s}`, `{when: 'true', after: 3s}`, byProofs},
	{"alipay: a GET moves no money", "pkg/config/presets/alipay.yaml",
		`  - {when: 'true', media: *media`, `  - {media: *media`, byFacts},
	{"alipay: a refund is done without its change of funds", "pkg/config/presets/alipay.yaml",
		`    holds: 'body("*_response.code") == "10000" and body("*_response.fund_change") == "Y"'
`, "", byProofs},
	{"alipay: the platform's media type is another one's", "pkg/config/presets/alipay.yaml",
		`    media: &media [text/html, application/json, text/plain]`, `    media: &media [application/json, text/plain]`, byProofs},
	{"alipay: joined requests count once", "pkg/config/presets/alipay.yaml",
		`cost: 'len(split(param("method"), "#S#"))'`, `cost: 1`, byCosts},
	{"alipay: joined requests are counted as one of another method", "pkg/config/presets/alipay.yaml",
		`param("method") contains "#S#" ? refuse("its method joins several by #S#") : `, ``, byCosts},
	{"alipay: an encrypted trade is refused without its reason", "pkg/config/presets/alipay.yaml",
		`param("encrypt_type") != "" ? refuse("its biz_content is encrypted (encrypt_type)") : fromJSON`, `fromJSON`, byCosts},
	{"alipay-v3: a payment is proven by any member", "pkg/config/presets/alipay-v3.yaml",
		`    holds: 'type(body("gmt_payment")) == "string" and body("gmt_payment") != ""'
`, "", byProofs},
	{"alipay-v3: a close is proven by each JSON", "pkg/config/presets/alipay-v3.yaml",
		`    holds: 'type(body("trade_no") ?? body("out_trade_no")) == "string" or body("code") contains "TRADE_HAS_CLOSE"'
`, "", byProofs},
	{"wechatpay-v3: XML that is cut off is success", "pkg/config/presets/wechatpay-v3.yaml",
		`    format: xml
`, "    format: any\n", byProofs},
	{"wechatpay-v3: a prepaid order is proven by each JSON", "pkg/config/presets/wechatpay-v3.yaml",
		`    holds: 'type(body("prepay_id") ?? body("code_url") ?? body("h5_url") ?? body("mweb_url")) == "string"'
`, "", byProofs},
	{"wechatpay-v3: an order of the score is not repeated", "pkg/config/presets/wechatpay-v3.yaml",
		`  or path == "/v3/payscore/serviceorder" and (json("out_order_no") ?? "") != ""
`, "", byFacts},
	{"wechatpay-v3: a video is too large", "pkg/config/presets/wechatpay-v3.yaml",
		"max_body: 6MiB\n", "", []string{"-run", "TestUploadsFit"}},
	{"wechatpay-v2: a reverse is done without its recall", v2Preset,
		` and body("xml.recall") == "N"'`, `'`, byProofs},
	{"idempotency-key: states below an object are not looked at", keyPreset,
		`holds: >-
      let s = map(concat(filter([body("status"), body("state"), body("transaction_status"), body("payment.status"), body("refund.status"), body("payout.status"), body("transfer.status"), body("payments.status"), body("refunds.status"), body("order.state")], # != nil),
      body("transactions.payments.#.status") ?? [], body("transactions.refunds.#.status") ?? [], body("payouts.#.status") ?? [], body("items.#.status") ?? []), lower(string(#)));
      len(s) > 0 and (body`, `holds: >-
      let s = map(filter([body("status"), body("state"), body("transaction_status")], # != nil), lower(string(#)));
      len(s) == 0 or (body`, byProofs},
	{"idempotency-key: an answer without a state is success", keyPreset,
		`      len(s) > 0 and (body("fraud_status")`, `      (body("fraud_status")`, byProofs},
	{"idempotency-key: a key in the body is none", keyPreset,
		"  field: idempotency_key ", "  #", byFacts},
	{"idempotency-key: the number of a refund is that of an order", keyPreset,
		`(path matches "(?i)/refunds?(/|$)" ? "" : json("reference_id")`, `(false ? "" : json("reference_id")`, byFacts},
	{"the cost of an upstream counts for no limit", "pkg/config/upstreams.go",
		"			limit.Cost = costs\n", "			_ = costs\n", byCosts},
}
