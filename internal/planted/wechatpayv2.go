package main

const v2Preset = "pkg/config/presets/wechatpay-v2.yaml"

var byCasesOfV2 = []string{"-run", "TestCases$"}

// v2Bugs lose money by the rules for WeChat Pay v2.
var v2Bugs = []bug{
	{"wechatpay-v2: a payment of unknown result is failed", v2Preset,
		`"APPID_MCHID_NOT_MATCH", "TRADE_ERROR"]', is: failed}`, `"APPID_MCHID_NOT_MATCH", "TRADE_ERROR", "BANKERROR"]', is: failed}`, byCasesOfV2},
	{"wechatpay-v2: a code without a page is a failure", v2Preset,
		`  - {when: 'path matches "^/pay/(micropay|facepay|(partner/)?pappayapply)$"', is: unknown, park: true}`, `  - {when: 'path matches "^/pay/(micropay|facepay|(partner/)?pappayapply)$"', is: failed}`, byCasesOfV2},
	{"wechatpay-v2: a deduction is done when it is accepted", v2Preset,
		`  - {when: 'path matches "^/pay/(micropay|facepay)$" and body("xml.return_code")`, `  - {when: 'path matches "^/pay/(micropay|facepay|pappayapply)$" and body("xml.return_code")`, byCasesOfV2},
	{"wechatpay-v2: a limited sharing was not executed", v2Preset,
		`profitsharing" and status != 200'`, `profitsharing" and status == 599'`, byCasesOfV2},
	{"wechatpay-v2: a reverse of a payment that is refunded in part is done", v2Preset,
		`["REVOKED", "CLOSED"]', is: done}`, `["REVOKED", "CLOSED", "REFUND"]', is: done}`, byCasesOfV2},
	{"wechatpay-v2: an accepted refund is done", v2Preset,
		`  - {when: 'path matches "^/secapi/pay/refund(v2)?$"', is: unknown, park: true}`, `  - {when: 'path matches "^/secapi/pay/refund(v2)?$"', is: done}`, byCasesOfV2},
	{"wechatpay-v2: a refund goes again at once", v2Preset,
		`body("xml.result_code") != "SUCCESS"', is: unknown, after: 1m}`, `body("xml.result_code") != "SUCCESS"', is: unknown}`, byCasesOfV2},
	{"wechatpay-v2: a transfer is done without its query", v2Preset,
		`  - {when: 'path matches "^/mmpaymkttransfers/(promotion/(transfers|pay)|send)|^/mmpaysptrans/pay_bank$"', is: unknown, park: true}`,
		`  - {when: 'body("xml.result_code") == "FAIL" and path matches "^/mmpaymkttransfers/(promotion/(transfers|pay)|send)|^/mmpaysptrans/pay_bank$"', is: unknown, park: true}`, byCasesOfV2},
	{"wechatpay-v2: a refused transfer is failed", v2Preset,
		`  - {when: 'path matches "^/mmpaymkttransfers/(promotion/(transfers|pay)|send)|^/mmpaysptrans/pay_bank$"', is: unknown, park: true}`,
		`  - {when: 'path matches "^/mmpaymkttransfers/(promotion/(transfers|pay)|send)|^/mmpaysptrans/pay_bank$"', is: failed}`, byCasesOfV2},
	{"wechatpay-v2: paid already is failed", v2Preset,
		`["ORDERPAID", "ORDERCLOSED", "ORDERREVERSED", "OUT_TRADE_NO_USED"]', is: unknown, park: true}`, `["ORDERPAID", "ORDERCLOSED", "ORDERREVERSED", "OUT_TRADE_NO_USED"]', is: failed}`, byCasesOfV2},
	{"wechatpay-v2: a payment is sent a second time", v2Preset,
		`  or path == "/pay/unifiedorder" and`, `  or path in ["/pay/unifiedorder", "/pay/micropay"] and`, byCasesOfV2},
	{"wechatpay-v2: an order that is not found allows another payment", v2Preset,
		`      - {when: 'body("xml.result_code") == "SUCCESS" and body("xml.trade_state") in ["PAYERROR", "REVOKED", "CLOSED"]', is: failed}
`, `      - {when: 'body("xml.result_code") == "SUCCESS" and body("xml.trade_state") in ["PAYERROR", "REVOKED", "CLOSED"]', is: failed}
      - {when: 'body("xml.err_code") == "ORDERNOTEXIST"', is: not_executed}
`, byCasesOfV2},
	{"wechatpay-v2: the refund of another call is its own", v2Preset,
		` and body("xml.refund_fee_0") == xml("refund_fee")`, ``, byCasesOfV2},
	{"wechatpay-v2: a part that comes back is all", v2Preset,
		` and body("xml.refund_amount") == xml("total_amount")`, ``, byCasesOfV2},
	{"wechatpay-v2: a sharing that some have is done", v2Preset,
		`and all(fromJSON(body("xml.receivers") ?? "[]"), #.result == "SUCCESS")`, ``, byCasesOfV2},
	{"wechatpay-v2: two parts of a refund are one", v2Preset,
		`(finish)?$" ? "sharing" : "";
  let number = kind == "" ? "" : xml({"pay": "out_trade_no", "refund": "out_refund_no"`, `(finish)?$" ? "sharing" : "";
  let number = kind == "" ? "" : xml({"pay": "out_trade_no", "refund": "out_trade_no"`, byCasesOfV2},
	{"wechatpay-v2: a payment goes out after its reverse", v2Preset,
		`path in ["/pay/closeorder", "/secapi/pay/reverse"] ?`, `path == "/pay/closeorder" ?`, byCasesOfV2},
	{"wechatpay-v2: the query of another order settles a payment", v2Preset,
		` and (xml("transaction_id") ?? "") == "" ?`, ` ?`, []string{"-run", "TestQueriesOfPresets"}},
	{"wechatpay-v2: the query of another refund settles it", v2Preset,
		` and (xml("refund_id") ?? "") == "" ?`, ` ?`, []string{"-run", "TestQueriesOfPresets"}},
	{"wechatpay-v2: the payments of two shops are one", v2Preset,
		`join([kind, xml("mch_id") ?? xml("mchid") ?? "", xml("sub_mch_id") ?? "", number], " ")`, `join([kind, xml("mch_id") ?? xml("mchid") ?? "", "", number], " ")`, byCasesOfV2},
}

// xmlBugs read another request than the platform does.
var xmlBugs = []bug{
	{"XML: the first of two elements counts", "pkg/upstream/xml.go", `			if found != nil {
				return nil, errTwiceElement
			}
`, `			if found != nil {
				continue
			}
`, []string{"-run", "TestXML"}},
	{"XML: an element in another case is none", "pkg/upstream/xml.go", `		if !match.Match(found.Name, name) {
			return nil, errSpelling
		}
`, `		if !match.Match(found.Name, name) {
			return nil, nil
		}
`, []string{"-run", "TestXML"}},
	{"XML: broken XML of a form is none", "pkg/upstream/xml.go", `	case text[0] != '<' && !strings`, `	case (text[0] != '<' || kind == urlencodedForm) && !strings`, []string{"-run", "TestXML"}},
}

var v2SignerBugs = []bug{
	{"wechatpay-v2: a request of another merchant is signed", "pkg/signer/wechatpayv2.go", `	case got != s.merchant:`, `	case false:`, []string{"-run", "TestWechatPayV2"}},
	{"wechatpay-v2: two elements are signed as one", "pkg/signer/wechatpayv2.go", `		case seen[e.Name]:`, `		case false:`, []string{"-run", "TestWechatPayV2"}},
}
