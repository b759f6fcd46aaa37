package config

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// v2 is a call of WeChat Pay's XML API.
func v2(path string) *upstream.Request {
	return &upstream.Request{Method: "POST", Target: path, Header: http.Header{"Content-Type": {"text/xml"}}, Body: []byte("<xml><out_trade_no>T1</out_trade_no><out_refund_no>R1</out_refund_no></xml>")}
}

// refused is an answer of the XML API with an error.
func refused(code string) answer {
	return answered(200, `<xml><return_code>SUCCESS</return_code><result_code>FAIL</result_code><err_code><![CDATA[`+code+`]]></err_code></xml>`)
}

// granted is an answer of the XML API without an error.
func granted(more string) answer {
	return answered(200, `<xml><return_code>SUCCESS</return_code><result_code>SUCCESS</result_code>`+more+`</xml>`)
}

// Targets of WeChat Pay.
const (
	wxRefunds  = "/v3/refund/domestic/refunds"
	wxBills    = "/v3/fund-app/mch-transfer/transfer-bills"
	wxOrder    = "/v3/pay/transactions/out-trade-no/T1"
	wxCode     = "/v3/pay/transactions/codepay"
	wxComplete = "/v3/payscore/serviceorder/S1/complete"
)

// wechatMoney are the answers that leave open whether money has moved.
func wechatMoney() []fact {
	refund := rest("POST", wxRefunds, `{"out_trade_no":"T1","out_refund_no":"R1"}`)
	shop := rest("POST", "/v3/ecommerce/refunds/apply", `{"sub_mchid":"2","out_trade_no":"T1","out_refund_no":"R1"}`)
	global := rest("POST", "/v3/global/refunds", `{"mchid":"190","out_trade_no":"T1","out_refund_no":"R1"}`)
	hk := rest("POST", "/hk/v3/refunds", `{"mchid":"190","out_trade_no":"T1","out_refund_no":"R1"}`)
	code := rest("POST", wxCode, `{"mchid":"190","out_trade_no":"T1"}`)
	partner := rest("POST", "/v3/pay/partner/transactions/codepay", `{"sp_mchid":"190","sub_mchid":"2","out_trade_no":"T1"}`)
	abroad := rest("POST", "/v3/global/micropay/transactions/pay", `{"mchid":"190","out_trade_no":"T1"}`)
	hkCode := rest("POST", "/hk/v3/transactions/micropay", `{"mchid":"190","out_trade_no":"T1"}`)
	deduct := rest("POST", "/v3/global/papay/transactions", `{"mchid":"190","out_trade_no":"T1"}`)
	reverse := rest("POST", wxOrder+"/reverse", `{"mchid":"190"}`)
	bill := rest("POST", wxBills, `{"out_bill_no":"B1"}`)
	cancel := rest("POST", wxBills+"/out-bill-no/B1/cancel", ``)
	batch := rest("POST", "/v3/transfer/batches", `{"out_batch_no":"B1"}`)
	partnerBatch := rest("POST", "/v3/partner-transfer/batches", `{"out_batch_no":"B1"}`)
	share := rest("POST", "/v3/profitsharing/orders", `{"transaction_id":"4","out_order_no":"P1"}`)
	back := rest("POST", "/v3/profitsharing/return-orders", `{"out_order_no":"P1","out_return_no":"Q1"}`)
	complete := rest("POST", wxComplete, `{"appid":"wx","service_id":"5"}`)
	closing := rest("POST", wxOrder+"/close", `{"mchid":"190"}`)
	state := func(s string) answer { return answered(200, `{"state":"`+s+`"}`) }
	trade := func(s string) answer { return answered(200, `{"trade_state":"`+s+`"}`) }
	status := func(s string) answer { return answered(200, `{"status":"`+s+`"}`) }
	return []fact{
		{"v2 code: USERPAYING", v2("/pay/micropay"), refused("USERPAYING"), nil, upstream.Unknown, person, 0},
		{"v2 code: BANKERROR", v2("/pay/micropay"), refused("BANKERROR"), nil, upstream.Unknown, person, 0},
		{"v2 code: SYSTEMERROR", v2("/pay/micropay"), refused("SYSTEMERROR"), nil, upstream.Unknown, person, 0},
		{"v2 code: no answer", v2("/pay/micropay"), answer{}, errLost, upstream.Unknown, person, 0},
		{"v2 code: the code is too old", v2("/pay/micropay"), refused("AUTHCODEEXPIRE"), nil, upstream.Failed, nothing, 0},
		{"v2 code: paid", v2("/pay/micropay"), granted("<transaction_id>4</transaction_id>"), nil, upstream.Done, nothing, 0},
		{"v2 code: paid already", v2("/pay/micropay"), refused("ORDERPAID"), nil, upstream.Unknown, person, 0},
		{"v2 code: reverse again", v2("/secapi/pay/reverse"), granted("<recall>Y</recall>"), nil, upstream.Unknown, repeat, 5 * time.Second},
		{"v2 code: reverse, SYSTEMERROR", v2("/secapi/pay/reverse"), refused("SYSTEMERROR"), nil, upstream.Unknown, repeat, 5 * time.Second},
		{"v2 code: reversed", v2("/secapi/pay/reverse"), granted("<recall>N</recall>"), nil, upstream.Done, nothing, 0},

		{"code: paid", code, trade("SUCCESS"), nil, upstream.Done, nothing, 0},
		{"code: paid, by its number", code, answered(200, `{"transaction_id":"4"}`), nil, upstream.Done, nothing, 0},
		{"code: USERPAYING", code, trade("USERPAYING"), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: NOTPAY", code, trade("NOTPAY"), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: no state", code, answered(200, `{}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: PAYERROR", code, trade("PAYERROR"), nil, upstream.Failed, nothing, 0},
		{"code: USERPAYING as an error", code, failure(400, "USERPAYING"), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: BANK_ERROR", code, failure(500, "BANK_ERROR"), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: SYSTEM_ERROR is not repeated", code, failure(500, "SYSTEM_ERROR"), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: no answer", code, answer{}, errLost, upstream.Unknown, query, 5 * time.Second},
		{"code: 202", code, answered(202, `{}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"code: of a partner", partner, trade("USERPAYING"), nil, upstream.Unknown, query, 5 * time.Second},
		{"global code: USERPAYING", abroad, trade("USERPAYING"), nil, upstream.Unknown, query, 5 * time.Second},
		{"global code: Hong Kong", hkCode, trade("USERPAYING"), nil, upstream.Unknown, query, 5 * time.Second},
		{"global code: deduction, no answer", deduct, answer{}, errLost, upstream.Unknown, query, 5 * time.Second},
		{"code: reverse again", reverse, answered(200, `{"recall":"Y"}`), nil, upstream.Unknown, repeat, 5 * time.Second},
		{"code: reversed", reverse, answered(200, `{"recall":"N"}`), nil, upstream.Done, nothing, 0},

		{"refund: made", refund, status("SUCCESS"), nil, upstream.Done, nothing, 0},
		{"refund: at work", refund, status("PROCESSING"), nil, upstream.Unknown, query, time.Minute},
		{"refund: closed", refund, status("CLOSED"), nil, upstream.Failed, nothing, 0},
		{"refund: the money lies in between", refund, status("ABNORMAL"), nil, upstream.Unknown, query, time.Minute},
		{"refund: limited by code", refund, failure(400, "FREQUENCY_LIMITED"), nil, upstream.Unknown, repeat, time.Minute},
		{"refund: of a shop, limited", shop, failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.Unknown, repeat, time.Minute},
		{"refund: of a shop, accepted", shop, answered(200, `{"refund_id":"5"}`), nil, upstream.Unknown, query, time.Minute},
		{"global: limited", global, failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.Unknown, repeat, time.Minute},
		{"global: accepted", global, answered(200, `{"id":"5"}`), nil, upstream.Unknown, query, time.Minute},
		{"global: Hong Kong, limited", hk, failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.Unknown, repeat, time.Minute},
		{"no page: an abnormal refund, limited", rest("POST", wxRefunds+"/5/apply-abnormal-refund", `{"out_refund_no":"R1"}`), failure(429, "RATELIMIT_EXCEEDED"), nil, upstream.Unknown, person, 0},
		{"no page: a transfer with 201", bill, answered(201, ``), nil, upstream.Unknown, query, 10 * time.Second},
		{"no page: success without JSON", rest("POST", "/v3/pay/transactions/native", `{"mchid":"190","out_trade_no":"T1"}`), answered(200, `<html>`), nil, upstream.Unknown, repeat, time.Second},
		{"v2 refund: BIZERR_NEED_RETRY", v2("/secapi/pay/refund"), refused("BIZERR_NEED_RETRY"), nil, upstream.Unknown, repeat, time.Minute},
		{"v2 refund: ERROR", v2("/secapi/pay/refund"), refused("ERROR"), nil, upstream.Unknown, repeat, time.Minute},
		{"v2 refund: INVALID_REQ_TOO_MUCH", v2("/secapi/pay/refund"), refused("INVALID_REQ_TOO_MUCH"), nil, upstream.Unknown, repeat, time.Minute},
		{"v2 refund: FREQUENCY_LIMITED", v2("/secapi/pay/refund"), refused("FREQUENCY_LIMITED"), nil, upstream.Unknown, repeat, time.Minute},
		{"v2 refund: too little money", v2("/secapi/pay/refund"), refused("NOTENOUGH"), nil, upstream.Failed, nothing, 0},
		{"v2 refund: accepted", v2("/secapi/pay/refund"), granted(""), nil, upstream.Unknown, person, 0},
		{"v2 refund: query limited", v2("/pay/refundquery"), refused("FREQUENCY_LIMITED"), nil, upstream.NotExecuted, again, time.Second},

		{"bill: SUCCESS", bill, state("SUCCESS"), nil, upstream.Done, nothing, 0},
		{"bill: FAIL", bill, state("FAIL"), nil, upstream.Failed, nothing, 0},
		{"bill: the user has to confirm", bill, state("WAIT_USER_CONFIRM"), nil, upstream.Unknown, query, 10 * time.Second},
		{"bill: NOT_ENOUGH", bill, failure(403, "NOT_ENOUGH"), nil, upstream.Unknown, query, 10 * time.Second},
		{"bill: a new code", bill, failure(400, "SOMETHING_NEW"), nil, upstream.Unknown, query, 10 * time.Second},
		{"bill: PARAM_ERROR, no list of safe codes", bill, failure(400, "PARAM_ERROR"), nil, upstream.Unknown, query, 10 * time.Second},
		{"bill: limited", bill, failure(429, "FREQUENCY_LIMITED"), nil, upstream.Unknown, repeat, 5 * time.Second},
		{"bill: 503", bill, failure(503, "SERVICE_UNAVAILABLE"), nil, upstream.Unknown, repeat, 5 * time.Second},
		{"bill: cancel accepted", cancel, state("CANCELING"), nil, upstream.Unknown, query, 10 * time.Second},
		{"bill: cancelled", cancel, state("CANCELLED"), nil, upstream.Done, nothing, 0},
		{"bill: batch accepted", batch, answered(200, `{"batch_id":"1","batch_status":"ACCEPTED"}`), nil, upstream.Unknown, query, time.Minute},
		{"bill: batch of a partner, refused", partnerBatch, failure(403, "NO_AUTH"), nil, upstream.Unknown, query, time.Minute},
		{"v2 transfer: FAIL", v2("/mmpaymkttransfers/promotion/transfers"), refused("SEND_FAILED"), nil, upstream.Unknown, person, 0},
		{"v2 transfer: red packet", v2("/mmpaymkttransfers/sendredpack"), refused("PROCESSING"), nil, upstream.Unknown, person, 0},
		{"no page: bank card accepted", v2("/mmpaysptrans/pay_bank"), granted(""), nil, upstream.Unknown, person, 0},
		{"v2 transfer: query", v2("/mmpaymkttransfers/gettransferinfo"), refused("NOT_FOUND"), nil, upstream.Failed, nothing, 0},

		{"sharing: at work", share, state("PROCESSING"), nil, upstream.Unknown, query, 10 * time.Second},
		{"sharing: all have it", share, answered(200, `{"state":"FINISHED","receivers":[{"result":"SUCCESS"}]}`), nil, upstream.Done, nothing, 0},
		{"sharing: one has not", share, answered(200, `{"state":"FINISHED","receivers":[{"result":"SUCCESS"},{"result":"CLOSED"}]}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"sharing: no answer", share, answer{}, errLost, upstream.Unknown, repeat, time.Second},
		{"sharing: return at work", back, answered(200, `{"result":"PROCESSING"}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"sharing: returned", back, answered(200, `{"result":"SUCCESS"}`), nil, upstream.Done, nothing, 0},
		{"sharing: not returned", back, answered(200, `{"result":"FAILED"}`), nil, upstream.Failed, nothing, 0},
		{"score: not yet paid", complete, state("DOING"), nil, upstream.Unknown, query, 10 * time.Second},
		{"score: paid", complete, state("DONE"), nil, upstream.Done, nothing, 0},

		{"3: closed already", closing, failure(400, "ORDER_CLOSED"), nil, upstream.Done, nothing, 0},
		{"3: closed already in v2", v2("/pay/closeorder"), refused("ORDERCLOSED"), nil, upstream.Done, nothing, 0},
		{"3: limited on one order", closing, failure(429, "FREQUENCY_LIMITED"), nil, upstream.NotExecuted, alone, time.Second},
		{"3: limited without an order", rest("GET", "/v3/bill/tradebill", ""), failure(400, "FREQUENCY_LIMITED"), nil, upstream.NotExecuted, again, time.Second},
		{"3: number in use", rest("POST", "/v3/pay/transactions/native", `{"mchid":"190","out_trade_no":"T1"}`), failure(403, "OUT_TRADE_NO_USED"), nil, upstream.Unknown, query, 5 * time.Second},
		{"3: combined, no answer", rest("POST", "/v3/combine-transactions/app", `{"combine_out_trade_no":"C1"}`), answer{}, errLost, upstream.Unknown, repeat, time.Second},
	}
}

func wechatDecisions() []decision {
	refund := rest("POST", wxRefunds, `{"out_refund_no":"R1","amount":{"refund":100,"total":100}}`)
	shop := rest("POST", "/v3/ecommerce/refunds/apply", `{"sub_mchid":"2","out_refund_no":"R1"}`)
	global := rest("POST", "/v3/global/refunds", `{"sp_mchid":"190","sub_mchid":"2","out_refund_no":"R1"}`)
	code := rest("POST", wxCode, `{"mchid":"190","out_trade_no":"T1","amount":{"total":100}}`)
	pay := rest("POST", "/v3/pay/transactions/jsapi", `{"mchid":"190","out_trade_no":"T1","amount":{"total":100}}`)
	partner := rest("POST", "/v3/pay/partner/transactions/native", `{"sp_mchid":"190","sub_mchid":"2","out_trade_no":"T1"}`)
	combined := rest("POST", "/v3/combine-transactions/app", `{"combine_out_trade_no":"C1"}`)
	reverse := rest("POST", wxOrder+"/reverse", `{"mchid":"190"}`)
	bill := rest("POST", wxBills, `{"out_bill_no":"B1","transfer_amount":100}`)
	cancel := rest("POST", wxBills+"/out-bill-no/B1/cancel", ``)
	batch := rest("POST", "/v3/transfer/batches", `{"out_batch_no":"B1"}`)
	share := rest("POST", "/v3/profitsharing/orders", `{"transaction_id":"4","out_order_no":"P1"}`)
	unfreeze := rest("POST", "/v3/profitsharing/orders/unfreeze", `{"transaction_id":"4","out_order_no":"P2"}`)
	back := rest("POST", "/v3/profitsharing/return-orders", `{"out_order_no":"P1","out_return_no":"Q1"}`)
	complete := rest("POST", wxComplete, `{"appid":"wx","service_id":"5"}`)
	state := func(s string) answer { return answered(200, `{"state":"`+s+`"}`) }
	trade := func(s string) answer { return answered(200, `{"trade_state":"`+s+`","amount":{"total":100}}`) }
	status := func(s string) answer { return answered(200, `{"status":"`+s+`","amount":{"refund":100}}`) }
	ended := func(status string, done, failed string) answer {
		return answered(200, `{"transfer_batch":{"batch_status":"`+status+`","total_num":2,"success_num":`+done+`,"fail_num":`+failed+`}}`)
	}
	shared := func(results string) answer {
		return answered(200, `{"state":"FINISHED","receivers":[`+results+`]}`)
	}
	return []decision{
		{"refund: made", refund, status("SUCCESS"), paid},
		{"refund: at work", refund, status("PROCESSING"), stays},
		{"refund: the money lies in between", refund, status("ABNORMAL"), stays},
		{"refund: closed", refund, status("CLOSED"), lost},
		{"refund: not received", refund, failure(404, "RESOURCE_NOT_EXISTS"), anew},
		{"no page: another refund has the number", refund, answered(200, `{"status":"SUCCESS","amount":{"refund":7}}`), stays},
		{"refund: of a shop", shop, status("SUCCESS"), paid},
		{"global: made", global, status("SUCCESS"), paid},
		{"code: paid", code, trade("SUCCESS"), paid},
		{"code: NOTPAY decides nothing", code, trade("NOTPAY"), stays},
		{"code: USERPAYING decides nothing", code, trade("USERPAYING"), stays},
		{"code: reversed", code, trade("REVOKED"), lost},
		{"code: PAYERROR", code, trade("PAYERROR"), lost},
		{"code: no order yet, a reverse may follow", code, failure(404, "ORDER_NOT_EXIST"), stays},
		{"no page: another sum is paid", code, answered(200, `{"trade_state":"SUCCESS","amount":{"total":7}}`), stays},
		{"global code: paid", rest("POST", "/v3/global/micropay/transactions/pay", `{"mchid":"190","out_trade_no":"T1"}`), trade("SUCCESS"), paid},
		{"3: order made", pay, trade("NOTPAY"), paid},
		{"3: order paid", pay, trade("SUCCESS"), paid},
		{"3: order closed", pay, trade("CLOSED"), lost},
		{"3: no order", pay, failure(404, "ORDER_NOT_EXIST"), anew},
		{"no page: an order of another sum", pay, answered(200, `{"trade_state":"NOTPAY","amount":{"total":7}}`), stays},
		{"3: order of a partner", partner, trade("NOTPAY"), paid},
		{"3: combined order made", combined, answered(200, `{"sub_orders":[{"trade_state":"NOTPAY"},{"trade_state":"SUCCESS"}]}`), paid},
		{"3: combined order closed", combined, answered(200, `{"sub_orders":[{"trade_state":"CLOSED"}]}`), lost},
		{"code: it is reversed", reverse, trade("REVOKED"), paid},
		{"code: it is still paid", reverse, trade("SUCCESS"), stays},
		{"bill: SUCCESS", bill, answered(200, `{"state":"SUCCESS","transfer_amount":100}`), paid},
		{"bill: FAIL", bill, state("FAIL"), lost},
		{"bill: CANCELLED", bill, state("CANCELLED"), lost},
		{"bill: CANCELING is not final", bill, state("CANCELING"), stays},
		{"bill: the user has to confirm", bill, state("WAIT_USER_CONFIRM"), stays},
		{"bill: not found is not failed", bill, failure(404, "NOT_FOUND"), stays},
		{"no page: another sum is transferred", bill, answered(200, `{"state":"SUCCESS","transfer_amount":7}`), stays},
		{"bill: it is cancelled", cancel, state("CANCELLED"), paid},
		{"bill: cancel came too late", cancel, state("SUCCESS"), lost},
		{"bill: batch paid", batch, ended("FINISHED", "2", "0"), paid},
		{"bill: part of a batch paid", batch, ended("FINISHED", "1", "1"), stays},
		{"bill: batch closed", batch, ended("CLOSED", "0", "2"), lost},
		{"bill: batch not found may be at work", batch, failure(404, "NOT_FOUND"), stays},
		{"sharing: all have it", share, shared(`{"result":"SUCCESS"},{"result":"SUCCESS"}`), paid},
		{"sharing: none has it", share, shared(`{"result":"CLOSED"}`), lost},
		{"sharing: some have it", share, shared(`{"result":"CLOSED"},{"result":"SUCCESS"}`), stays},
		{"sharing: unfrozen", unfreeze, state("FINISHED"), paid},
		{"sharing: at work", share, state("PROCESSING"), stays},
		{"sharing: returned", back, answered(200, `{"result":"SUCCESS"}`), paid},
		{"sharing: not returned", back, answered(200, `{"result":"FAILED"}`), lost},
		{"score: paid", complete, state("DONE"), paid},
		{"score: revoked", complete, state("REVOKED"), lost},
		{"score: not yet paid", complete, state("DOING"), stays},
	}
}
