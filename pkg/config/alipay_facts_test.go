package config

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// accepted is an answer of Alipay's gateway with code 10000 and more fields.
func accepted(fields string) answer {
	return answered(200, `{"alipay_x_response":{"code":"10000","msg":"Success",`+fields+`},"sign":"s"}`)
}

// encrypted is a request whose answer only the caller can read.
func encrypted(method string) *upstream.Request {
	r := call(method, "c2VjcmV0")
	r.Body = append(r.Body, "&encrypt_type=AES"...)
	return r
}

// alipayMoney are the answers that leave open whether money has moved.
func alipayMoney() []fact {
	refund := call("alipay.trade.refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	apply := call("alipay.trade.refund.apply", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	pay := call("alipay.trade.pay", `{"out_trade_no":"T1","total_amount":"1.00"}`)
	cancel := call("alipay.trade.cancel", `{"out_trade_no":"T1"}`)
	closing := call("alipay.trade.close", `{"out_trade_no":"T1"}`)
	transfer := call("alipay.fund.trans.uni.transfer", `{"out_biz_no":"B1","trans_amount":"1.00"}`)
	back := call("alipay.fund.trans.refund", `{"order_id":"1","out_request_no":"R1"}`)
	freeze := call("alipay.fund.auth.order.freeze", `{"out_order_no":"F1","out_request_no":"F1"}`)
	settle := call("alipay.trade.order.settle", `{"trade_no":"2021","out_request_no":"S1","royalty_mode":"async"}`)
	settleNow := call("alipay.trade.order.settle", `{"trade_no":"2021","out_request_no":"S1"}`)
	ciphertext := answered(200, `{"alipay_trade_pay_response":"c2VjcmV0","sign":"s"}`)
	return []fact{
		{"bar code: 10000 is paid", pay, accepted(`"gmt_payment":"2026-01-01 00:00:00"`), nil, upstream.Done, nothing, 0},
		{"bar code: 10003 of a frozen sum", freeze, coded("10003", ""), nil, upstream.Unknown, query, 5 * time.Second},
		{"SDK: paid later", pay, accepted(`"async_payment_mode":"ASYNC_REALTIME_PAY"`), nil, upstream.Unknown, query, 5 * time.Second},
		{"SDK: paid at once", pay, accepted(`"async_payment_mode":"SYNC_DIRECT_PAY"`), nil, upstream.Done, nothing, 0},
		{"bar code: 40004 PAYMENT_UNKNOWN", pay, coded("40004", "ACQ.PAYMENT_UNKNOWN"), nil, upstream.Unknown, query, 5 * time.Second},
		{"bar code: the buyer has too little", pay, coded("40004", "ACQ.BUYER_BALANCE_NOT_ENOUGH"), nil, upstream.Failed, nothing, 0},

		{"bar code: cancelled, closed", cancel, accepted(`"retry_flag":"N","action":"close"`), nil, upstream.Done, nothing, 0},
		{"bar code: cancelled, refunded", cancel, accepted(`"retry_flag":"N","action":"refund"`), nil, upstream.Done, nothing, 0},
		{"SDK: cancel again", cancel, accepted(`"retry_flag":"Y"`), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"SDK: no trade to cancel", cancel, accepted(`"retry_flag":"N"`), nil, upstream.Unknown, query, 5 * time.Second},
		{"bar code: cancel, AQC.SYSTEM_ERROR", cancel, coded("40004", "AQC.SYSTEM_ERROR"), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"bar code: cancel, no answer", cancel, answer{}, errLost, upstream.Unknown, repeat, 3 * time.Second},
		{"1: closed already", closing, coded("40004", "ACQ.TRADE_HAS_CLOSE"), nil, upstream.Done, nothing, 0},
		{"1: close of a paid trade", closing, coded("40004", "ACQ.TRADE_STATUS_ERROR"), nil, upstream.Failed, nothing, 0},

		{"refunds: money moved", refund, accepted(`"fund_change":"Y"`), nil, upstream.Done, nothing, 0},
		{"refunds: no money moved", refund, accepted(`"fund_change":"N"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"refunds: no word of money", refund, accepted(`"refund_fee":"1.00"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"SDK: refund applied for", apply, accepted(`"refund_status":"REFUND_PROCESSING"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"SDK: refund applied for, made", apply, accepted(`"refund_status":"REFUND_SUCCESS"`), nil, upstream.Done, nothing, 0},

		{"SDK: transferred", transfer, accepted(`"status":"SUCCESS"`), nil, upstream.Done, nothing, 0},
		{"SDK: transfer failed", transfer, accepted(`"status":"FAIL"`), nil, upstream.Failed, nothing, 0},
		{"SDK: transfer sent back by the bank", transfer, accepted(`"status":"REFUND"`), nil, upstream.Failed, nothing, 0},
		{"SDK: transfer at work", transfer, accepted(`"status":"DEALING"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"no page: transfer without a status", transfer, accepted(`"order_id":"1"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: REQUEST_PROCESSING", transfer, coded("40004", "REQUEST_PROCESSING"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: PAYMENT_UNKNOW", transfer, coded("40004", "PAYMENT_UNKNOW"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: too many at once", transfer, coded("40004", "RESOURCE_LIMIT_EXCEED"), nil, upstream.NotExecuted, again, time.Second},
		{"transfers: number in use", transfer, coded("40004", "BIZ_UNIQUE_EXCEPTION"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: number in use for another", transfer, coded("40004", "PAYMENT_INFO_INCONSISTENCY"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: too little money", transfer, coded("40004", "PAYER_BALANCE_NOT_ENOUGH"), nil, upstream.Failed, nothing, 0},
		{"SDK: red packet returned", back, accepted(`"status":"SUCCESS"`), nil, upstream.Done, nothing, 0},
		{"SDK: red packet on its way back", back, accepted(`"status":"DEALING"`), nil, upstream.Unknown, person, 0},
		{"SDK: frozen", freeze, accepted(`"status":"SUCCESS"`), nil, upstream.Done, nothing, 0},
		{"SDK: not yet frozen", freeze, accepted(`"status":"INIT"`), nil, upstream.Unknown, query, 5 * time.Second},
		{"no page: frozen without a status", freeze, accepted(`"auth_no":"1"`), nil, upstream.Unknown, query, 5 * time.Second},
		{"SDK: shared later", settle, accepted(`"settle_no":"1"`), nil, upstream.Unknown, query, 10 * time.Second},
		{"SDK: shared at once", settleNow, accepted(`"settle_no":"1"`), nil, upstream.Done, nothing, 0},
		{"SDK: a query with a status", call("alipay.fund.trans.common.query", `{"out_biz_no":"B1"}`), accepted(`"status":"DEALING"`), nil, upstream.Done, nothing, 0},

		{"seen: a token has no code", call("alipay.system.oauth.token", ``), answered(200, `{"alipay_system_oauth_token_response":{"access_token":"a"},"sign":"s"}`), nil, upstream.Done, nothing, 0},
		{"seen: no token", call("alipay.system.oauth.token", ``), answered(200, `{"error_response":{"code":"40002","sub_code":"isv.code-invalid"}}`), nil, upstream.Failed, nothing, 0},
		{"seen: a page by redirect", call("alipay.trade.wap.pay", `{}`), answered(302, "", "Location", "https://m.alipay.com/"), nil, upstream.Done, nothing, 0},
		{"no page: encrypted answer", encrypted("alipay.trade.pay"), ciphertext, nil, upstream.Unknown, person, 0},
		{"no page: encrypted answer to a query", encrypted("alipay.trade.query"), ciphertext, nil, upstream.Done, nothing, 0},
		{"no page: joined requests", call("alipay.trade.pay#S#alipay.trade.pay", `{}#S#{}`), accepted(`"trade_no":"1"`), nil, upstream.Unknown, person, 0},
		{"1: joined requests, limited", call("alipay.trade.pay#S#alipay.trade.pay", `{}#S#{}`), answered(200, `{"error_response":{"code":"40005"}}`), nil, upstream.NotExecuted, again, time.Second},
		{"no page: no code", transfer, answered(200, `{"alipay_fund_trans_uni_transfer_response":{"status":"SUCCESS"}}`), nil, upstream.Unknown, query, 10 * time.Second},
	}
}

func alipayDecisions() []decision {
	refund := call("alipay.trade.refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	numberless := call("alipay.trade.refund", `{"out_trade_no":"T1","refund_amount":"1"}`)
	apply := call("alipay.trade.refund.apply", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":1}`)
	pay := call("alipay.trade.pay", `{"out_trade_no":"T1","total_amount":"1.00"}`)
	precreate := call("alipay.trade.precreate", `{"out_trade_no":"T1","total_amount":"1.00"}`)
	cancel := call("alipay.trade.cancel", `{"out_trade_no":"T1"}`)
	closing := call("alipay.trade.close", `{"out_trade_no":"T1"}`)
	transfer := call("alipay.fund.trans.uni.transfer", `{"out_biz_no":"B1","trans_amount":"1.00"}`)
	freeze := call("alipay.fund.auth.order.freeze", `{"out_order_no":"F1","out_request_no":"F1"}`)
	settle := call("alipay.trade.order.settle", `{"trade_no":"2021","out_request_no":"S1","royalty_mode":"async"}`)
	absent := coded("40004", "ACQ.TRADE_NOT_EXIST")
	return []decision{
		{"refunds: made", refund, accepted(`"refund_status":"REFUND_SUCCESS","refund_amount":"1.00"`), paid},
		{"refunds: made, no amount", refund, accepted(`"refund_status":"REFUND_SUCCESS"`), paid},
		{"no page: another refund has the number", refund, accepted(`"refund_status":"REFUND_SUCCESS","refund_amount":"2.00"`), stays},
		{"refunds: not received, or failed", refund, accepted(`"out_request_no":"R1"`), anew},
		{"refunds: no trade", refund, absent, anew},
		{"refunds: at work", refund, accepted(`"refund_status":"REFUND_PROCESSING"`), stays},
		{"refunds: without a number, made", numberless, accepted(`"refund_status":"REFUND_SUCCESS","refund_amount":"1.00"`), paid},
		{"refunds: without a number, not received", numberless, accepted(`"out_request_no":"T1"`), stays},
		{"SDK: applied for, failed", apply, accepted(`"error_code":"REFUND_FAIL"`), lost},
		{"SDK: applied for, made", apply, accepted(`"refund_status":"REFUND_SUCCESS","refund_amount":"1.00"`), paid},

		{"bar code: paid", pay, accepted(`"trade_status":"TRADE_SUCCESS","total_amount":"1.00"`), paid},
		{"bar code: finished", pay, accepted(`"trade_status":"TRADE_FINISHED"`), paid},
		{"no page: another sum is paid", pay, accepted(`"trade_status":"TRADE_SUCCESS","total_amount":"9.00"`), stays},
		{"bar code: the buyer types", pay, accepted(`"trade_status":"WAIT_BUYER_PAY","total_amount":"1.00"`), stays},
		{"bar code: closed", pay, accepted(`"trade_status":"TRADE_CLOSED"`), lost},
		{"bar code: no trade yet, a cancel may follow", pay, absent, stays},
		{"bar code: query unknown", pay, coded("20000", ""), stays},
		{"bar code: created", precreate, accepted(`"trade_status":"WAIT_BUYER_PAY","total_amount":"1.00"`), paid},
		{"bar code: not yet scanned", precreate, absent, stays},
		{"bar code: cancelled", cancel, accepted(`"trade_status":"TRADE_CLOSED"`), paid},
		{"bar code: still paid", cancel, accepted(`"trade_status":"TRADE_SUCCESS"`), stays},
		{"bar code: too late to cancel", cancel, accepted(`"trade_status":"TRADE_FINISHED"`), lost},
		{"bar code: nothing to cancel, yet", cancel, absent, stays},
		{"1: close comes too late", closing, accepted(`"trade_status":"TRADE_SUCCESS"`), lost},

		{"SDK: transferred", transfer, accepted(`"status":"SUCCESS"`), paid},
		{"no page: another sum is transferred", transfer, accepted(`"status":"SUCCESS","trans_amount":"2.00"`), stays},
		{"SDK: transfer failed", transfer, accepted(`"status":"FAIL"`), lost},
		{"SDK: transfer sent back", transfer, accepted(`"status":"REFUND"`), lost},
		{"SDK: transfer at work", transfer, accepted(`"status":"DEALING"`), stays},
		{"SDK: transfer waits for its payer", transfer, accepted(`"status":"WAIT_PAY"`), stays},
		{"transfers: not received", transfer, coded("40004", "ORDER_NOT_EXIST"), anew},

		{"SDK: frozen", freeze, accepted(`"status":"SUCCESS"`), paid},
		{"SDK: freeze closed", freeze, accepted(`"status":"CLOSED"`), lost},
		{"SDK: freeze begun", freeze, accepted(`"status":"INIT"`), stays},
		{"SDK: shared", settle, accepted(`"royalty_detail_list":[{"state":"SUCCESS"},{"state":"SUCCESS"}]`), paid},
		{"SDK: none shared", settle, accepted(`"royalty_detail_list":[{"state":"FAIL"}]`), lost},
		{"SDK: some shared", settle, accepted(`"royalty_detail_list":[{"state":"SUCCESS"},{"state":"FAIL"}]`), stays},
		{"SDK: sharing at work", settle, accepted(`"royalty_detail_list":[{"state":"PROCESSING"}]`), stays},
		{"no page: no detail", settle, accepted(`"royalty_detail_list":[]`), stays},
	}
}

// alipayV3Money are the answers that leave open whether money has moved.
func alipayV3Money() []fact {
	const v3 = "/v3/alipay/"
	refund := rest("POST", v3+"trade/refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	apply := rest("POST", v3+"trade/refund/apply", `{"out_trade_no":"T1","out_request_no":"R1"}`)
	pay := rest("POST", v3+"trade/pay", `{"out_trade_no":"T1","total_amount":"1.00"}`)
	cancel := rest("POST", v3+"trade/cancel", `{"out_trade_no":"T1"}`)
	closing := rest("POST", v3+"trade/close", `{"out_trade_no":"T1"}`)
	transfer := rest("POST", v3+"fund/trans/uni/transfer", `{"out_biz_no":"B1","trans_amount":"1.00"}`)
	freeze := rest("POST", v3+"fund/auth/order/freeze", `{"out_order_no":"F1","out_request_no":"F1"}`)
	settle := rest("POST", v3+"trade/order/settle", `{"trade_no":"2021","out_request_no":"S1","royalty_mode":"async"}`)
	bill := rest("GET", v3+"data/dataservice/bill/downloadurl/query", "")
	return []fact{
		{"SDK: paid", pay, answered(200, `{"gmt_payment":"2026-01-01 00:00:00"}`), nil, upstream.Done, nothing, 0},
		{"no page: no time of payment", pay, answered(200, `{"trade_no":"1"}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"2: payment accepted, 202", pay, answered(202, `{}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"2: paid already", pay, failure(400, "ACQ.TRADE_HAS_SUCCESS"), nil, upstream.Unknown, query, 5 * time.Second},
		{"2: number in use", pay, failure(400, "ACQ.CONTEXT_INCONSISTENT"), nil, upstream.Unknown, query, 5 * time.Second},
		{"2: the buyer has too little", pay, failure(400, "ACQ.BUYER_BALANCE_NOT_ENOUGH"), nil, upstream.Failed, nothing, 0},
		{"2: a repeated create", rest("POST", v3+"trade/create", `{"out_trade_no":"T1"}`), answer{}, errLost, upstream.Unknown, repeat, 3 * time.Second},

		{"SDK: cancelled", cancel, answered(200, `{"retry_flag":"N","action":"refund"}`), nil, upstream.Done, nothing, 0},
		{"SDK: cancel again", cancel, answered(200, `{"retry_flag":"Y","action":"close"}`), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"SDK: no trade to cancel", cancel, answered(200, `{"retry_flag":"N"}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"2: closed already", closing, failure(400, "ACQ.TRADE_HAS_CLOSE"), nil, upstream.Done, nothing, 0},

		{"refunds: no money moved", refund, answered(200, `{"fund_change":"N"}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"refunds: another sum", refund, failure(400, "ACQ.DISCORDANT_REPEAT_REQUEST"), nil, upstream.Unknown, query, 10 * time.Second},
		{"SDK: refund applied for", apply, answered(200, `{"refund_status":"REFUND_PROCESSING"}`), nil, upstream.Unknown, query, 10 * time.Second},

		{"SDK: transferred", transfer, answered(200, `{"status":"SUCCESS"}`), nil, upstream.Done, nothing, 0},
		{"SDK: transfer failed", transfer, answered(200, `{"status":"FAIL"}`), nil, upstream.Failed, nothing, 0},
		{"SDK: transfer at work", transfer, answered(200, `{"status":"DEALING"}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"no page: transfer without a status", transfer, answered(200, `{"order_id":"1"}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: in process", transfer, failure(400, "REQUEST_PROCESSING"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: too many at once", transfer, failure(400, "RESOURCE_LIMIT_EXCEED"), nil, upstream.NotExecuted, again, time.Second},
		{"transfers: number in use", transfer, failure(400, "BIZ_UNIQUE_EXCEPTION"), nil, upstream.Unknown, query, 10 * time.Second},
		{"transfers: too little money", transfer, failure(400, "PAYER_BALANCE_NOT_ENOUGH"), nil, upstream.Failed, nothing, 0},
		{"SDK: frozen", freeze, answered(200, `{"status":"SUCCESS"}`), nil, upstream.Done, nothing, 0},
		{"SDK: not yet frozen", freeze, answered(200, `{"status":"INIT"}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"SDK: shared later", settle, answered(200, `{"settle_no":"1"}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"no page: a transfer with 201", transfer, answered(201, `{}`), nil, upstream.Unknown, query, 10 * time.Second},
		{"no page: frozen without a status", freeze, answered(200, `{}`), nil, upstream.Unknown, query, 5 * time.Second},
		{"no page: success without JSON", closing, answered(200, `<html>`), nil, upstream.Unknown, repeat, 3 * time.Second},
		{"2: limited by status", bill, answered(429, ``), nil, upstream.NotExecuted, again, time.Second},
		{"2: 502 of a proxy", transfer, answered(502, `<html>`), nil, upstream.Unknown, query, 10 * time.Second},
	}
}

func alipayV3Decisions() []decision {
	const v3 = "/v3/alipay/"
	refund := rest("POST", v3+"trade/refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	numberless := rest("POST", v3+"trade/refund", `{"out_trade_no":"T1"}`)
	apply := rest("POST", v3+"trade/refund/apply", `{"out_trade_no":"T1","out_request_no":"R1"}`)
	pay := rest("POST", v3+"trade/pay", `{"out_trade_no":"T1","total_amount":1}`)
	cancel := rest("POST", v3+"trade/cancel", `{"out_trade_no":"T1"}`)
	closing := rest("POST", v3+"trade/close", `{"out_trade_no":"T1"}`)
	transfer := rest("POST", v3+"fund/trans/uni/transfer", `{"out_biz_no":"B1","trans_amount":"1.00"}`)
	unfreeze := rest("POST", v3+"fund/auth/order/unfreeze", `{"auth_no":"A1","out_request_no":"U1"}`)
	settle := rest("POST", v3+"trade/order/settle", `{"trade_no":"2021","out_request_no":"S1"}`)
	absent := failure(400, "ACQ.TRADE_NOT_EXIST")
	return []decision{
		{"refunds: made", refund, answered(200, `{"refund_status":"REFUND_SUCCESS","refund_amount":"1.00"}`), paid},
		{"no page: another refund has the number", refund, answered(200, `{"refund_status":"REFUND_SUCCESS","refund_amount":"2.00"}`), stays},
		{"refunds: not received, or failed", refund, answered(200, `{}`), anew},
		{"refunds: no trade", refund, absent, anew},
		{"refunds: without a number", numberless, answered(200, `{}`), stays},
		{"SDK: applied for, failed", apply, answered(200, `{"error_code":"X"}`), lost},
		{"bar code: paid", pay, answered(200, `{"trade_status":"TRADE_SUCCESS","total_amount":"1.00"}`), paid},
		{"no page: another sum is paid", pay, answered(200, `{"trade_status":"TRADE_SUCCESS","total_amount":"9.00"}`), stays},
		{"bar code: the buyer types", pay, answered(200, `{"trade_status":"WAIT_BUYER_PAY"}`), stays},
		{"bar code: closed", pay, answered(200, `{"trade_status":"TRADE_CLOSED"}`), lost},
		{"bar code: no trade yet, a cancel may follow", pay, absent, stays},
		{"bar code: cancelled", cancel, answered(200, `{"trade_status":"TRADE_CLOSED"}`), paid},
		{"bar code: too late to cancel", cancel, answered(200, `{"trade_status":"TRADE_FINISHED"}`), lost},
		{"bar code: close comes too late", closing, answered(200, `{"trade_status":"TRADE_SUCCESS"}`), lost},
		{"SDK: transferred", transfer, answered(200, `{"status":"SUCCESS"}`), paid},
		{"SDK: transfer failed", transfer, answered(200, `{"status":"FAIL"}`), lost},
		{"SDK: transfer at work", transfer, answered(200, `{"status":"DEALING"}`), stays},
		{"transfers: not received", transfer, failure(400, "ORDER_NOT_EXIST"), anew},
		{"SDK: unfrozen", unfreeze, answered(200, `{"status":"SUCCESS"}`), paid},
		{"SDK: not unfrozen", unfreeze, answered(200, `{"status":"CLOSED"}`), lost},
		{"SDK: shared", settle, answered(200, `{"royalty_detail_list":[{"state":"SUCCESS"}]}`), paid},
		{"SDK: none shared", settle, answered(200, `{"royalty_detail_list":[{"state":"FAIL"}]}`), lost},
		{"SDK: some shared", settle, answered(200, `{"royalty_detail_list":[{"state":"SUCCESS"},{"state":"PROCESSING"}]}`), stays},
	}
}
