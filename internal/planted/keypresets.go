package main

var (
	byCaseFile = []string{"-run", "TestCases$"}
	byNotice   = []string{"-run", "TestNotificationNumbers"}
)

const (
	antomPreset  = "pkg/config/presets/antom.yaml"
	paypalPreset = "pkg/config/presets/paypal.yaml"
	adyenPreset  = "pkg/config/presets/adyen.yaml"
	keyPreset    = "pkg/config/presets/idempotency-key.yaml"
)

// keyPresetBugs are in the presets of platforms with numbers or keys of the caller.
var keyPresetBugs = []bug{
	{"antom: a payment in process is done", antomPreset,
		`contains "IN_PROCESS")', is: unknown, park: true}`, `contains "IN_PROCESS")', is: done}`, byCaseFile},
	{"antom: a limited refund was not executed", antomPreset,
		`'status == 429 or body("result.resultCode") == "REQUEST_TRAFFIC_EXCEED_LIMIT"', is: unknown, after: 3s}`,
		`'status == 429 or body("result.resultCode") == "REQUEST_TRAFFIC_EXCEED_LIMIT"', is: not_executed}`, byCaseFile},
	{"antom: a number in use is failed", antomPreset,
		`"REPEAT_REQ_INCONSISTENT|ORDER_IS_|SYSTEM_ERROR"`, `"SYSTEM_ERROR"`, byCaseFile},
	{"antom: a cancel that finds no payment is failed", antomPreset,
		`body("result.resultCode") == "ORDER_NOT_EXIST"', is: unknown, park: true}`, `body("result.resultCode") == "ORDER_NOT_EXIST"', is: failed}`, byCaseFile},
	{"antom: an answer without a result is judged by its status", antomPreset,
		`  - {when: 'status >= 300', is: unknown, after: 3s}
`, "", byCaseFile},
	{"antom: a payment is repeated", antomPreset,
		`  or path endsWith "/payments/cancel"
`, `  or path endsWith "/payments/cancel" or path endsWith "/payments/pay"
`, byCaseFile},
	{"antom: a refund without a number is repeated", antomPreset,
		`  or path endsWith "/payments/refund" and (json("refundRequestId") ?? "") != ""
`, `  or path endsWith "/payments/refund"
`, byCaseFile},
	{"antom: the payment of another call is its own", antomPreset,
		`          and string(body("paymentAmount.value") ?? json("paymentAmount.value") ?? "") == string(json("paymentAmount.value") ?? body("paymentAmount.value") ?? "")
`, "", byCaseFile},
	{"antom: merchants of one client share their numbers", antomPreset,
		`join([kind, header("Client-Id"), header("Agent-Token"), number], " ")`, `join([kind, header("Client-Id"), "", number], " ")`, byCaseFile},
	{"antom: a payment goes out after its cancel", antomPreset,
		`number == "" ? "" : join(["payment", header`, `number != "" ? "" : join(["payment", header`, byCaseFile},
	{"antom: a query by the platform's number settles a payment", antomPreset,
		`about == "" or (json(about + "Id") ?? "") != "" ? ""`, `about == "" ? ""`, byCaseFile},
	{"antom: a query of another client settles a payment", antomPreset,
		`join([about, header("Client-Id"), `, `join([about, "C1", `, byCaseFile},

	{"idempotency-key: a required key that was sent is a failure", "pkg/config/presets/idempotency-key.yaml",
		` and not keyed and toJSON`, ` and toJSON`, byCaseFile},
	{"paypal: a query of any order settles a capture", paypalPreset,
		`"order " + split(path, "/orders/")[1] : ""'`, `"order 5O190127TN364715T" : ""'`, byCaseFile},
	{"paypal: a capture that is pending is done", paypalPreset,
		`      or not all(flatten(body("purchase_units.#.payments.captures.#.status") ?? []), # == "COMPLETED"))
`, `      )
`, byCaseFile},
	{"paypal: a declined capture is done", paypalPreset,
		`in ["DECLINED", "FAILED"])
    is: failed
`, `in ["DECLINED", "FAILED"])
    is: done
`, byCaseFile},
	{"paypal: captured already is failed", paypalPreset,
		`"_ALREADY_|_FULLY_REFUNDED|`, `"_FULLY_REFUNDED|`, byCaseFile},
	{"paypal: a request at work is failed", paypalPreset,
		`'status == 409', is: unknown, after: 5s}`, `'status == 409', is: failed}`, byCaseFile},
	{"paypal: a pending refund is done", paypalPreset,
		`(body("status") ?? "COMPLETED") != "COMPLETED"', is: unknown, park: true}`, `(body("status") ?? "COMPLETED") != "COMPLETED"', is: done}`, byCaseFile},
	{"paypal: an accepted payout is paid", paypalPreset,
		`(body("batch_header.batch_status") ?? "SUCCESS") != "SUCCESS"', is: unknown, park: true}`, `(body("batch_header.batch_status") ?? "SUCCESS") != "SUCCESS"', is: done}`, byCaseFile},
	{"paypal: a batch whose number is in use is failed", paypalPreset,
		`matches "USER_BUSINESS_ERROR|`, `matches "`, byCaseFile},
	{"paypal: requests without a key are repeated", paypalPreset,
		`idempotent: 'method == "GET" or`, `idempotent: 'method in ["GET", "POST"] or`, byCaseFile},
	{"paypal: two accounts with one id are one", paypalPreset,
		`header("PayPal-Request-Id") + " " + header("Authorization") : ""`, `header("PayPal-Request-Id") : ""`, byCaseFile},
	{"paypal: an order of two accounts under one key is one", paypalPreset,
		`? "" : header("Authorization")]`, `? "" : ""]`, []string{"-run", "TestSameTellsAccountsApart"}},
	{"paypal: an order is captured once for each token", paypalPreset,
		`(checkout/orders|payments/[a-z]+)`, `(payments/[a-z]+)`, byCaseFile},
	{"paypal: two parts of a capture are one refund", paypalPreset,
		`path + " " + header("PayPal-Request-Id")`, `path + " "`, byCaseFile},
	{"paypal: a notification of a capture names its order by the capture", paypalPreset,
		`startsWith "CHECKOUT.ORDER." ?`, `startsWith "" ?`, byNotice},
	{"paypal: a notification of a refund is one of an authorization", paypalPreset,
		`startsWith "PAYMENT.AUTHORIZATION." ?`, `startsWith "PAYMENT." ?`, byNotice},

	{"adyen: a payment that waits is done", adyenPreset,
		`"AuthenticationNotRequired"]', is: unknown, park: true}`, `"AuthenticationNotRequired"]', is: done}`, byCaseFile},
	{"adyen: a received refund is made", adyenPreset,
		`contains "-received")', is: unknown, park: true}`, `contains "-received")', is: done}`, byCaseFile},
	{"adyen: a request at work is failed", adyenPreset,
		`'status == 409 or body("errorCode") == "704"'`, `'status == 409'`, byCaseFile},
	{"adyen: a transient error is failed", adyenPreset,
		`lower(header("Transient-Error")) == "true"`, `false`, byCaseFile},
	{"adyen: an error that is not transient is repeated", adyenPreset,
		`  - {when: 'status >= 500 and keyed', is: unknown, park: true}
`, "", byCaseFile},
	{"adyen: a POST is idempotent by itself", adyenPreset,
		`idempotent: 'method in ["GET", "PUT", "DELETE"]'`, `idempotent: 'method in ["GET", "PUT", "DELETE", "POST"]'`, byCaseFile},

	{"idempotency-key: the first request at work is failed", keyPreset,
		`'status in [409, 423]', is: unknown, after: 1s}`, `'status in [409, 423]', is: failed}`, byCaseFile},
	{"idempotency-key: a duplicate was not executed", keyPreset,
		`matches "(?i)duplicate|idempoten"', is: unknown, after: 1s}`, `matches "(?i)duplicate|idempoten"', is: not_executed}`, byCaseFile},
	{"idempotency-key: a key of another request is failed", keyPreset,
		`"(?i)idempotency.?key"', is: unknown, park: true}`, `"(?i)idempotency.?key"', is: failed}`, byCaseFile},
	{"idempotency-key: an error without a kept key is repeated", keyPreset,
		`  - {when: 'status >= 500 and header("Cko-Request-Id") != ""', is: unknown, park: true}
`, "", byCaseFile},
	{"idempotency-key: a payout in the queue is paid", keyPreset,
		`|processing|queued|`, `|processing|`, byCaseFile},
	{"idempotency-key: a cancelled payout has failed to be cancelled", keyPreset,
		`and not (path matches "(?i)cancel|void|reject|deny")
      and len(s) > 0`, `
      and len(s) > 0`, byCaseFile},
	{"idempotency-key: an accepted capture is made", keyPreset,
		`'status == 202 and method == "POST"', is: unknown, park: true}`, `'status == 202 and method == "POST"', is: done}`, byCaseFile},
}

var antomSignerBugs = []bug{
	{"antom: the signature is not escaped", "pkg/signer/antom.go",
		`url.QueryEscape(signature)`, `url.PathEscape(signature)`, []string{"-run", "TestAntom$"}},
	{"antom: the key of another client signs", "pkg/signer/antom.go",
		`case s.client != "" && client != s.client:`, `case s.client == "" && client != s.client:`, []string{"-run", "TestAntom$"}},
	{"antom: an old time is signed again", "pkg/signer/antom.go",
		`stamp := strconv.FormatInt(time.Now().UnixMilli(), 10)`, `stamp := cmp.Or(r.Header.Get("Request-Time"), strconv.FormatInt(time.Now().UnixMilli(), 10))`, []string{"-run", "TestAntom$"}},
}
