package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// An operation is a request of a preset that moves money, or prepares or stops that, and the answer
// of its platform that says that it is made.
type operation struct {
	preset, name string
	request      *upstream.Request
	answer       answer
	// state are the members of the answer, by their paths, of which each one must be right.
	state []string
	// accepted is true if the answer says only that the request was taken in: it is never done.
	accepted bool
}

// asking returns a request. A body that begins with { is JSON, one that begins with < is XML.
func asking(target, body string) *upstream.Request {
	h := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Idempotency-Key": {"k1"}}
	switch {
	case strings.HasPrefix(body, "{"):
		h.Set("Content-Type", "application/json")
	case strings.HasPrefix(body, "<"):
		h.Set("Content-Type", "text/xml")
	}
	return &upstream.Request{Method: "POST", Target: target, Header: h, Body: []byte(body)}
}

// made returns an operation of a platform with one media type.
func made(preset, media, name string, request *upstream.Request, body string, state ...string) operation {
	a := answer{200, http.Header{"Content-Type": {media}}, body}
	if body == "" {
		a = answer{204, nil, ""}
	}
	return operation{preset, name, request, a, state, false}
}

// onlyAccepted returns the operation as one whose answer never proves that it is made.
func (o operation) onlyAccepted() operation {
	o.accepted = true
	return o
}

func stripeOperations() []operation {
	made := func(name, target, body string, state ...string) operation {
		return made("stripe", "application/json", name, asking(target, ""), body, state...)
	}
	return []operation{
		made("payment", "/v1/payment_intents", `{"id":"pi_1","object":"payment_intent","amount":1000,"status":"succeeded"}`, "object", "status"),
		made("confirm", "/v1/payment_intents/pi_1/confirm", `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`, "object", "status"),
		made("capture", "/v1/payment_intents/pi_1/capture", `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`, "object", "status"),
		made("increment", "/v1/payment_intents/pi_1/increment_authorization", `{"id":"pi_1","object":"payment_intent","status":"requires_capture"}`, "object", "status"),
		made("balance", "/v1/payment_intents/pi_1/apply_customer_balance", `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`, "object", "status"),
		made("cancel", "/v1/payment_intents/pi_1/cancel", `{"id":"pi_1","object":"payment_intent","status":"canceled"}`, "object", "status"),
		made("charge", "/v1/charges", `{"id":"ch_1","object":"charge","paid":true,"status":"succeeded"}`, "object", "status"),
		made("capture of a charge", "/v1/charges/ch_1/capture", `{"id":"ch_1","object":"charge","captured":true,"status":"succeeded"}`, "object", "status"),
		made("refund", "/v1/refunds", `{"id":"re_1","object":"refund","amount":1000,"status":"succeeded"}`, "object", "status"),
		made("refund below a charge", "/v1/charges/ch_1/refunds", `{"id":"re_1","object":"refund","status":"succeeded"}`, "object", "status"),
		made("older refund", "/v1/charges/ch_1/refund", `{"id":"ch_1","object":"charge","amount_refunded":1000,"refunded":true,"status":"succeeded"}`, "object", "amount_refunded"),
		made("cancel of a refund", "/v1/refunds/re_1/cancel", `{"id":"re_1","object":"refund","status":"canceled"}`, "object", "status"),
		made("payout", "/v1/payouts", `{"id":"po_1","object":"payout","status":"pending"}`, "object", "status"),
		made("reverse", "/v1/payouts/po_1/reverse", `{"id":"po_2","object":"payout","status":"pending"}`, "object", "status"),
		made("cancel of a payout", "/v1/payouts/po_1/cancel", `{"id":"po_1","object":"payout","status":"canceled"}`, "object", "status"),
		made("top-up", "/v1/topups", `{"id":"tu_1","object":"topup","status":"pending"}`, "object", "status"),
		made("cancel of a top-up", "/v1/topups/tu_1/cancel", `{"id":"tu_1","object":"topup","status":"canceled"}`, "object", "status"),
		made("transfer", "/v1/transfers", `{"id":"tr_1","object":"transfer","amount":400}`, "object", "id", "amount"),
		made("reversal", "/v1/transfers/tr_1/reversals", `{"id":"trr_1","object":"transfer_reversal","amount":400}`, "object", "id", "amount"),
		made("refund of a fee", "/v1/application_fees/fee_1/refunds", `{"id":"fr_1","object":"fee_refund","amount":100}`, "object", "id", "amount"),
		made("customer balance", "/v1/customers/cus_1/balance_transactions", `{"id":"cbtxn_1","object":"customer_balance_transaction","amount":-500}`, "object", "id", "amount"),
		made("outbound payment", "/v1/treasury/outbound_payments", `{"id":"obp_1","object":"treasury.outbound_payment","status":"processing"}`, "object", "status"),
		made("outbound transfer of v2", "/v2/money_management/outbound_transfers", `{"id":"obt_1","object":"v2.money_management.outbound_transfer","status":"posted"}`, "object", "status"),
		made("invoice", "/v1/invoices/in_1/pay", `{"id":"in_1","object":"invoice","status":"paid"}`, "object", "status"),
		made("credit note", "/v1/credit_notes", `{"id":"cn_1","object":"credit_note","status":"issued"}`, "object", "status"),
		made("accepted dispute", "/v1/disputes/dp_1/close", `{"id":"dp_1","object":"dispute","status":"lost"}`, "object", "status"),
		made("subscription", "/v1/subscriptions", `{"id":"sub_1","object":"subscription","status":"active"}`, "object", "status"),
	}
}

func adyenOperations() []operation {
	made := func(name, target, body string, state ...string) operation {
		return made("adyen", "application/json;charset=UTF-8", name, asking(target, "{}"), body, state...)
	}
	return []operation{
		made("payment", "/v71/payments", `{"pspReference":"P","resultCode":"Authorised"}`, "resultCode"),
		made("details", "/v71/payments/details", `{"pspReference":"P","resultCode":"Authorised"}`, "resultCode"),
		made("older payment", "/pal/servlet/Payment/v68/authorise", `{"pspReference":"P","resultCode":"Authorised"}`, "resultCode"),
		made("older payout", "/pal/servlet/Payout/v68/payout", `{"pspReference":"P","resultCode":"Authorised"}`, "resultCode"),
		made("transfer", "/btl/v4/transfers", `{"id":"T","status":"booked"}`, "status"),
		made("donation", "/v71/donations", `{"id":"D","status":"completed"}`, "status"),
		made("order", "/v71/orders", `{"pspReference":"P","resultCode":"Success"}`, "resultCode"),
		made("capture", "/v71/payments/V4HZ4RBFJGXXGN82/captures", `{"pspReference":"C","status":"received"}`, "status").onlyAccepted(),
		made("refund", "/v71/payments/V4HZ4RBFJGXXGN82/refunds", `{"pspReference":"R","status":"received"}`, "status").onlyAccepted(),
		made("cancel", "/v71/payments/V4HZ4RBFJGXXGN82/cancels", `{"pspReference":"C","status":"received"}`, "status").onlyAccepted(),
		made("cancel by reference", "/v71/cancels", `{"pspReference":"C","status":"received"}`, "status").onlyAccepted(),
		made("reversal", "/v71/payments/V4HZ4RBFJGXXGN82/reversals", `{"pspReference":"R","status":"received"}`, "status").onlyAccepted(),
		made("amount update", "/v71/payments/V4HZ4RBFJGXXGN82/amountUpdates", `{"pspReference":"A","status":"received"}`, "status").onlyAccepted(),
		made("cancel of an order", "/v71/orders/cancel", `{"pspReference":"O","resultCode":"Received"}`, "resultCode").onlyAccepted(),
		made("older refund", "/pal/servlet/Payment/v68/refund", `{"pspReference":"R","response":"[refund-received]"}`, "response").onlyAccepted(),
		made("older capture", "/pal/servlet/Payment/v68/capture", `{"pspReference":"C","response":"[capture-received]"}`, "response").onlyAccepted(),
		made("payout to be confirmed", "/pal/servlet/Payout/v68/storeDetailAndSubmitThirdParty", `{"pspReference":"P","resultCode":"[payout-submit-received]"}`, "resultCode").onlyAccepted(),
		made("confirmed payout", "/pal/servlet/Payout/v68/confirmThirdParty", `{"pspReference":"P","response":"[payout-confirm-received]"}`, "response").onlyAccepted(),
	}
}

func paypalOperations() []operation {
	made := func(name, target, body string, state ...string) operation {
		return made("paypal", "application/json", name, asking(target, "{}"), body, state...)
	}
	const order = "/v2/checkout/orders/5O190127TN364715T"
	captured := `{"id":"5O","status":"COMPLETED","purchase_units":[{"payments":{"captures":[{"id":"X","status":"COMPLETED"}]}}]}`
	authorized := `{"id":"5O","status":"COMPLETED","purchase_units":[{"payments":{"authorizations":[{"id":"X","status":"CREATED"}]}}]}`
	return []operation{
		made("order", "/v2/checkout/orders", `{"id":"5O","status":"CREATED"}`, "id", "status"),
		made("order that is paid at once", "/v2/checkout/orders", captured, "id", "status", "purchase_units.0.payments.captures.0.status", "purchase_units.0.payments.captures"),
		made("capture", order+"/capture", captured, "purchase_units.0.payments.captures.0.status", "purchase_units.0.payments.captures", "purchase_units"),
		made("authorization", order+"/authorize", authorized, "purchase_units.0.payments.authorizations.0.status", "purchase_units.0.payments.authorizations", "purchase_units"),
		made("capture of an authorization", "/v2/payments/authorizations/0VF52814937998046/capture", `{"id":"X","status":"COMPLETED"}`, "status"),
		made("authorization again", "/v2/payments/authorizations/0VF52814937998046/reauthorize", `{"id":"X","status":"CREATED"}`, "status"),
		made("void", "/v2/payments/authorizations/0VF52814937998046/void", ""),
		made("void with a body", "/v2/payments/authorizations/0VF52814937998046/void", `{"id":"X","status":"VOIDED"}`, "status"),
		made("refund", "/v2/payments/captures/2GG279541U471931P/refund", `{"id":"X","status":"COMPLETED"}`, "status"),
		made("payout", "/v1/payments/payouts", `{"batch_header":{"payout_batch_id":"B","batch_status":"SUCCESS"}}`, "batch_header.batch_status", "batch_header"),
		made("cancel of a payout", "/v1/payments/payouts-item/5KUDKLF8SDC7S/cancel", `{"payout_item_id":"5K","transaction_status":"RETURNED"}`, "transaction_status"),
		made("referenced payout", "/v1/payments/referenced-payouts-items", `{"item_id":"I","processing_state":{"status":"SUCCESS"}}`, "processing_state.status", "processing_state"),
		made("capture of a subscription", "/v1/billing/subscriptions/I-BW452GLLEP1G/capture", `{"id":"X","status":"COMPLETED"}`, "status"),
		made("older payment", "/v1/payments/payment/PAY-1/execute", `{"id":"P","state":"approved","transactions":[{"related_resources":[{"sale":{"id":"S","state":"completed"}}]}]}`, "state", "transactions.0.related_resources.0.sale.state"),
		made("older refund", "/v1/payments/sale/36C38912MN9658832/refund", `{"id":"R","state":"completed"}`, "state"),
		made("older capture", "/v1/payments/authorization/2DC87612EK520411B/capture", `{"id":"C","state":"completed"}`, "state"),
		made("older void", "/v1/payments/authorization/2DC87612EK520411B/void", `{"id":"C","state":"voided"}`, "state"),
	}
}

func antomOperations() []operation {
	made := func(name, target, body string, state ...string) operation {
		return made("antom", "application/json; charset=UTF-8", name, asking("/ams/api/v1/"+target, `{"paymentRequestId":"P1","refundRequestId":"R1","captureRequestId":"C1"}`), body, state...)
	}
	const success = `{"result":{"resultStatus":"S","resultCode":"SUCCESS"},"paymentId":"1"}`
	return []operation{
		made("payment", "payments/pay", success, "result.resultStatus", "result"),
		made("capture", "payments/capture", success, "result.resultStatus", "result"),
		made("refund", "payments/refund", success, "result.resultStatus", "result"),
		made("cancel", "payments/cancel", success, "result.resultStatus", "result"),
		made("session", "payments/createPaymentSession", success, "result.resultStatus", "result"),
		made("transfer", "funds/createDirect", success, "result.resultStatus", "result").onlyAccepted(),
		made("payout", "funds/createPayout", success, "result.resultStatus", "result").onlyAccepted(),
	}
}

func alipayOperations() (all []operation) {
	const content = `{"out_trade_no":"T1","out_request_no":"R1","out_biz_no":"B1","refund_amount":"1.00"}`
	for _, o := range []struct{ method, members, state string }{
		{"alipay.trade.pay", `"trade_no":"2021","gmt_payment":"2026-01-01 00:00:00"`, ""},
		{"alipay.trade.create", `"trade_no":"2021"`, ""},
		{"alipay.trade.precreate", `"qr_code":"https://qr.alipay.com/1"`, ""},
		{"alipay.trade.refund", `"fund_change":"Y"`, "fund_change"},
		{"alipay.trade.refund.apply", `"refund_status":"REFUND_SUCCESS"`, "refund_status"},
		{"alipay.trade.cancel", `"retry_flag":"N","action":"close"`, "action"},
		{"alipay.trade.close", `"trade_no":"2021"`, ""},
		{"alipay.trade.order.settle", `"settle_no":"1"`, ""},
		{"alipay.fund.trans.uni.transfer", `"order_id":"1","status":"SUCCESS"`, "status"},
		{"alipay.fund.trans.refund", `"refund_order_id":"1","status":"SUCCESS"`, "status"},
		{"alipay.fund.auth.order.freeze", `"auth_no":"1","status":"SUCCESS"`, "status"},
		{"alipay.fund.auth.order.unfreeze", `"auth_no":"1","status":"SUCCESS"`, "status"},
		{"alipay.fund.auth.operation.cancel", `"auth_no":"1","action":"close"`, ""},
	} {
		name := strings.ReplaceAll(o.method, ".", "_") + "_response"
		state := []string{name + ".code", name}
		if o.state != "" {
			state = append(state, name+"."+o.state)
		}
		all = append(all, made("alipay", "text/html;charset=utf-8", o.method, call(o.method, content),
			fmt.Sprintf(`{%q:{"code":"10000","msg":"Success",%s},"sign":"s"}`, name, o.members), state...))
	}
	paid := all[0]
	paid.name, paid.answer.header = "in GBK", http.Header{"Content-Type": {"text/html;charset=GBK"}}
	paid.answer.body = strings.Replace(paid.answer.body, `"Success"`, "\"\xb3\xc9\xb9\xa6\"", 1)
	return append(all, paid)
}

func alipayV3Operations() []operation {
	made := func(path, body string, state ...string) operation {
		return made("alipay-v3", "application/json;charset=utf-8", path, asking("/v3/alipay/"+path, `{"out_trade_no":"T1","out_request_no":"R1","out_biz_no":"B1"}`), body, state...)
	}
	return []operation{
		made("trade/pay", `{"trade_no":"2021","gmt_payment":"2026-01-01 00:00:00"}`, "gmt_payment"),
		made("trade/create", `{"trade_no":"2021","out_trade_no":"T1"}`, "trade_no"),
		made("trade/precreate", `{"qr_code":"https://qr.alipay.com/1"}`, "qr_code"),
		made("trade/refund", `{"trade_no":"2021","fund_change":"Y"}`, "fund_change"),
		made("trade/refund/apply", `{"trade_no":"2021","refund_status":"REFUND_SUCCESS"}`, "refund_status"),
		made("trade/cancel", `{"trade_no":"2021","retry_flag":"N","action":"close"}`, "action"),
		made("trade/close", `{"trade_no":"2021"}`, "trade_no"),
		made("trade/order/settle", `{"settle_no":"1"}`, "settle_no"),
		made("fund/trans/uni/transfer", `{"order_id":"1","status":"SUCCESS"}`, "status"),
		made("fund/trans/refund", `{"order_id":"1","status":"SUCCESS"}`, "status"),
		made("fund/auth/order/freeze", `{"auth_no":"1","status":"SUCCESS"}`, "status"),
		made("fund/auth/order/unfreeze", `{"auth_no":"1","status":"SUCCESS"}`, "status"),
		made("fund/auth/operation/cancel", `{"auth_no":"1","operation_id":"1"}`, "operation_id"),
	}
}

func wechatOperations() []operation {
	made := func(name, target, body string, state ...string) operation {
		return made("wechatpay-v3", "application/json; charset=utf-8", name, asking(target, `{"out_trade_no":"T1","out_refund_no":"R1","out_bill_no":"B1","out_order_no":"S1","out_return_no":"S2"}`), body, state...)
	}
	paid := `{"out_trade_no":"T1","transaction_id":"42","trade_state":"SUCCESS"}`
	shared := `{"order_id":"1","state":"FINISHED","receivers":[{"result":"SUCCESS"}]}`
	return []operation{
		made("code payment", "/v3/pay/transactions/codepay", paid, "trade_state"),
		made("code payment of a partner", "/v3/pay/partner/transactions/codepay", paid, "trade_state"),
		made("code payment abroad", "/v3/global/micropay/transactions/pay", `{"id":"42"}`, "id"),
		made("code payment in Hong Kong", "/hk/v3/transactions/micropay", paid, "trade_state"),
		made("deduction", "/v3/papay/transactions", paid, "trade_state"),
		made("parking", "/v3/vehicle/transactions/parking", paid, "trade_state"),
		made("ride", "/v3/qrcode/transactions", paid, "trade_state"),
		made("school", "/v3/edu-papay/transactions", "").onlyAccepted(),
		made("refund", "/v3/refund/domestic/refunds", `{"refund_id":"50","status":"SUCCESS"}`, "status"),
		made("refund of a shop", "/v3/ecommerce/refunds/apply", `{"refund_id":"50","status":"SUCCESS"}`, "status"),
		made("refund abroad", "/v3/global/refunds", `{"id":"50","status":"SUCCESS"}`, "status"),
		made("transfer", "/v3/fund-app/mch-transfer/transfer-bills", `{"out_bill_no":"B1","state":"SUCCESS"}`, "state"),
		made("batch", "/v3/transfer/batches", `{"out_batch_no":"B1","batch_id":"1"}`, "batch_id").onlyAccepted(),
		made("cancel of a transfer", "/v3/fund-app/mch-transfer/transfer-bills/out-bill-no/B1/cancel", `{"out_bill_no":"B1","state":"CANCELLED"}`, "state"),
		made("sharing", "/v3/profitsharing/orders", shared, "state", "receivers.0.result"),
		made("end of sharing", "/v3/profitsharing/orders/unfreeze", shared, "state", "receivers.0.result"),
		made("return of a sharing", "/v3/profitsharing/return-orders", `{"return_id":"1","result":"SUCCESS"}`, "result"),
		made("end of a shop's sharing", "/v3/ecommerce/profitsharing/finish-order", `{"order_id":"1"}`, "order_id"),
		made("score order", "/v3/payscore/serviceorder", `{"order_id":"1","state":"CREATED"}`, "order_id"),
		made("end of a score order", "/v3/payscore/serviceorder/S1/complete", `{"order_id":"1","state":"DONE"}`, "state"),
		made("cancel of a score order", "/v3/payscore/serviceorder/S1/cancel", `{"order_id":"1"}`, "order_id"),
		made("subsidy", "/v3/ecommerce/subsidies/create", `{"subsidy_id":"1","result":"SUCCESS"}`, "result"),
		made("withdrawal", "/v3/ecommerce/fund/withdraw", `{"withdraw_id":"1"}`, "withdraw_id"),
		made("reverse", "/v3/pay/transactions/out-trade-no/T1/reverse", `{"out_trade_no":"T1","recall":"N"}`, "recall"),
		made("close", "/v3/pay/transactions/out-trade-no/T1/close", ""),
		made("prepay", "/v3/pay/transactions/jsapi", `{"prepay_id":"wx1"}`, "prepay_id"),
		made("prepay by code", "/v3/pay/partner/transactions/native", `{"code_url":"weixin://wxpay/1"}`, "code_url"),
		made("prepay of several", "/v3/combine-transactions/jsapi", `{"prepay_id":"wx1"}`, "prepay_id"),
	}
}

func wechatV2Operations() (all []operation) {
	const request = "<xml><mch_id>1</mch_id><out_trade_no>T1</out_trade_no><out_refund_no>R1</out_refund_no><partner_trade_no>B1</partner_trade_no><mch_billno>M1</mch_billno><out_order_no>S1</out_order_no><out_return_no>S2</out_return_no></xml>"
	const both = "<return_code><![CDATA[SUCCESS]]></return_code><result_code>SUCCESS</result_code>"
	for _, o := range []struct{ path, members, state string }{
		{"/pay/micropay", "<transaction_id>42</transaction_id>", ""},
		{"/pay/facepay", "<transaction_id>42</transaction_id>", ""},
		{"/pay/unifiedorder", "<prepay_id>wx1</prepay_id>", ""},
		{"/pay/closeorder", "", ""},
		{"/secapi/pay/reverse", "<recall>N</recall>", "recall"},
		{"/secapi/pay/profitsharingreturn", "<result>SUCCESS</result>", "result"},
		{"/pay/pappayapply", "", "accepted"},
		{"/secapi/pay/refund", "<refund_id>50</refund_id>", "accepted"},
		{"/secapi/pay/refundv2", "<refund_id>50</refund_id>", "accepted"},
		{"/mmpaymkttransfers/promotion/transfers", "<payment_no>1</payment_no>", "accepted"},
		{"/mmpaymkttransfers/sendredpack", "<send_listid>1</send_listid>", "accepted"},
		{"/mmpaymkttransfers/sendgroupredpack", "<send_listid>1</send_listid>", "accepted"},
		{"/mmpaysptrans/pay_bank", "<payment_no>1</payment_no>", "accepted"},
		{"/secapi/pay/profitsharing", "<order_id>1</order_id>", "accepted"},
		{"/secapi/pay/multiprofitsharing", "<order_id>1</order_id>", "accepted"},
		{"/secapi/pay/profitsharingfinish", "<order_id>1</order_id>", "accepted"},
	} {
		for _, preset := range []string{"wechatpay-v2", "wechatpay-v3"} {
			op := made(preset, "text/plain", o.path, asking(o.path, request), "<xml>"+both+o.members+"</xml>", "return_code", "result_code")
			switch o.state {
			case "":
			case "accepted":
				op = op.onlyAccepted()
			default:
				if op.accepted = preset == "wechatpay-v3" && o.path == "/secapi/pay/profitsharingreturn"; !op.accepted { // no v2 query here
					op.state = append(op.state, o.state)
				}
			}
			all = append(all, op)
		}
	}
	return all
}

func keyOperations() []operation {
	made := func(name, target, media, body string, state ...string) operation {
		return made("idempotency-key", media, name, asking(target, "{}"), body, state...)
	}
	const plain = "application/json"
	cancelled := made("PUT of Mercado Pago", "/v1/payments/1", plain, `{"id":1,"status":"cancelled"}`, "status")
	cancelled.request.Method = "PUT"
	return []operation{
		made("payment of Checkout.com", "/payments", plain, `{"id":"pay_1","approved":true,"status":"Authorized"}`, "status"),
		made("capture of Razorpay", "/v1/payments/pay_1/capture", plain, `{"id":"pay_1","entity":"payment","status":"captured"}`, "status"),
		made("refund of Razorpay", "/v1/payments/pay_1/refund", plain, `{"id":"rfnd_1","entity":"refund","status":"processed"}`, "status"),
		made("payout of Razorpay", "/v1/payouts", plain, `{"id":"pout_1","entity":"payout","status":"processed"}`, "status"),
		made("cancel of Razorpay", "/v1/payouts/pout_1/cancel", plain, `{"id":"pout_1","status":"cancelled"}`, "status"),
		made("transfers of Razorpay", "/v1/payments/pay_1/transfers", plain, `{"entity":"collection","items":[{"id":"trf_1","status":"processed"}]}`, "items.0.status", "items"),
		made("reversal of Razorpay", "/v1/transfers/trf_1/reversals", plain, `{"id":"rvrsl_1","entity":"reversal","amount":100}`, "id", "entity"),
		made("payment of Mercado Pago", "/v1/payments", plain, `{"id":1,"status":"approved"}`, "status"),
		made("refund of Mercado Pago", "/v1/payments/1/refunds", plain, `{"id":2,"status":"approved"}`, "status"),
		made("order of Mercado Pago", "/v1/orders", plain, `{"id":"ORD1","status":"processed","transactions":{"payments":[{"id":"PAY1","status":"processed"}]}}`, "transactions.payments.0.status"),
		made("order of Mercado Pago that is paid later", "/v1/orders", plain, `{"id":"ORD1","status":"created"}`, "status"),
		made("payment of TrueLayer", "/v3/payments", plain, `{"id":"1","status":"authorization_required"}`, "status"),
		made("payment of Square", "/v2/payments", plain, `{"payment":{"id":"1","status":"COMPLETED"}}`, "payment.status", "payment"),
		made("end of a payment of Square", "/v2/payments/1/complete", plain, `{"payment":{"id":"1","status":"COMPLETED"}}`, "payment.status", "payment"),
		made("cancel of Square", "/v2/payments/1/cancel", plain, `{"payment":{"id":"1","status":"CANCELED"}}`, "payment.status", "payment"),
		made("refund of Square", "/v2/refunds", plain, `{"refund":{"id":"1","status":"COMPLETED"}}`, "refund.status", "refund"),
		made("payment of GoCardless", "/payments", plain, `{"payments":{"id":"PM1","status":"confirmed"}}`, "payments.status", "payments"),
		made("cancel of GoCardless", "/payments/PM1/actions/cancel", plain, `{"payments":{"id":"PM1","status":"cancelled"}}`, "payments.status", "payments"),
		made("charge of Midtrans", "/v2/charge", plain, `{"status_code":"200","transaction_status":"capture","fraud_status":"accept"}`, "transaction_status", "fraud_status"),
		made("refund of Midtrans", "/v2/T1/refund", plain, `{"status_code":"200","transaction_status":"refund"}`, "transaction_status"),
		made("refund of Mollie", "/v2/payments/tr_1/refunds", "application/hal+json", `{"resource":"refund","id":"re_1","status":"refunded"}`, "status"),
		cancelled,
		made("capture of Checkout.com", "/payments/pay_1/captures", plain, `{"action_id":"act_1"}`, "action_id").with(202).onlyAccepted(),
		made("payout of TrueLayer", "/v3/payouts", plain, `{"id":"1"}`, "id").with(202).onlyAccepted(),
		made("payment of GoCardless at work", "/payments", plain, `{"payments":{"id":"PM1","status":"pending_submission"}}`, "payments.status").onlyAccepted(),
	}
}

// with returns the operation with another status of its answer.
func (o operation) with(status int) operation {
	o.answer.status = status
	return o
}

// operations are those of all presets but generic, which knows no API.
func operations() []operation {
	return slices.Concat(stripeOperations(), adyenOperations(), paypalOperations(), antomOperations(), alipayOperations(),
		alipayV3Operations(), wechatOperations(), wechatV2Operations(), keyOperations())
}

// TestSuccessIsProven: of each operation that moves money the platform's own answer is done. A page of
// a gateway in between, an answer without its end, one of another service, and one whose member has
// another type are unknown.
func TestSuccessIsProven(t *testing.T) {
	judged := make(map[string]int)
	ups, given := make(map[string]*upstream.Upstream), new(lastAnswer)
	for _, preset := range Presets() {
		ups[preset] = upstreamOf(t, preset, "", given)
	}
	outcome := func(op operation, a answer) *upstream.Result {
		given.answer = a
		res := ups[op.preset].Do(t.Context(), op.request)
		if res.Response != nil {
			res.Response.Body.Close()
		}
		return res
	}
	for _, op := range operations() {
		want := upstream.Done
		if op.accepted {
			want = upstream.Unknown
		}
		if res := outcome(op, op.answer); res.Outcome != want {
			t.Errorf("%s: %s: %d %s: %s, want %s: %s", op.preset, op.name, op.answer.status, op.answer.body, res.Outcome, want, res.Reason)
		}
		faulty := op.faulty(t)
		for _, name := range slices.Sorted(maps.Keys(faulty)) {
			a := faulty[name]
			res := outcome(op, a)
			if judged[op.preset]++; res.Outcome != upstream.Unknown || res.Reason == "" {
				t.Errorf("%s: %s: %s: %d %s: %s, want unknown: %s", op.preset, op.name, name, a.status, a.body, res.Outcome, res.Reason)
			}
		}
	}
	for _, preset := range Presets() {
		if judged[preset] == 0 && preset != "generic" {
			t.Errorf("%s: no answer was judged", preset)
		}
	}
	t.Logf("%d operations; faulty answers: %v", len(operations()), judged)
}

// A lastAnswer is a RoundTripper whose answer changes.
type lastAnswer struct{ answer }

// faulty returns answers that do not prove the operation, by their faults.
func (o operation) faulty(t *testing.T) map[string]answer {
	page := http.Header{"Content-Type": {"text/html"}}
	alike := func(body string) answer { return answer{200, o.answer.header, body} }
	all := map[string]answer{
		"a page":            {200, page, "<!DOCTYPE html>\n<html><head><meta charset=utf-8><title>OK</title></head><body>OK<br></body></html>"},
		"a page of XHTML":   {200, page, "<html><body><status>succeeded</status></body></html>"},
		"a page as its own": alike("<html><body>OK</body></html>"),
		"nothing":           alike(""),
		"a space":           alike(" \r\n"),
		"another JSON":      {200, http.Header{"Content-Type": {"application/json"}}, `{"ok":true}`},
		"another XML":       {200, http.Header{"Content-Type": {"text/xml"}}, `<xml><ok>true</ok></xml>`},
		"an empty object":   alike(`{}`),
		"a list":            alike(`[]`),
		"null":              alike(`null`),
		"a text":            alike(`"succeeded"`),
	}
	body := o.answer.body
	if body == "" {
		return all
	}
	for _, at := range []int{1, len(body) / 3, len(body) / 2, len(body) - 1} {
		all[fmt.Sprintf("cut after %d", at)] = alike(body[:at])
	}
	all["more than its end"] = alike(body + body)
	all["another media type"] = answer{200, http.Header{"Content-Type": {"image/png"}}, body}
	for _, path := range o.state {
		for _, other := range []string{`1`, `true`, `null`, `""`, `"SOMETHING_NEW"`, `{"value":"SUCCESS"}`, `["SUCCESS"]`} {
			if changed, ok := o.changed(t, path, other); ok {
				all[path+": "+other] = alike(changed)
			}
		}
	}
	return all
}

// changed returns the answer with another value of a member; false if that value would prove it too.
func (o operation) changed(t *testing.T, path, value string) (string, bool) {
	body := o.answer.body
	if strings.HasPrefix(body, "<") {
		_, rest, _ := strings.Cut(body, "<"+path+">")
		was, _, found := strings.Cut(rest, "</"+path+">")
		if !found {
			t.Fatalf("%s: %s: no %s in %s", o.preset, o.name, path, body)
		}
		return strings.Replace(body, "<"+path+">"+was, "<"+path+">"+url.QueryEscape(value), 1), true
	}
	var doc any
	if err := json.Unmarshal([]byte(strings.ToValidUTF8(body, "?")), &doc); err != nil {
		t.Fatal(err)
	}
	var before, other any
	if err := json.Unmarshal([]byte(value), &other); err != nil {
		t.Fatal(err)
	}
	set(t, doc, strings.Split(path, "."), other, &before)
	_, wasText := before.(string)
	_, wasNumber := before.(float64)
	_, isText := other.(string)
	_, isNumber := other.(float64)
	switch last := path[strings.LastIndex(path, ".")+1:]; {
	case wasNumber && isNumber: // another amount
		return "", false
	case wasText && isText && anyText[last]:
		return "", false
	case other == nil && mayBeAbsent[o.preset+": "+path]:
		return "", false
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), true
}

// anyText are the members that may have any text: numbers and addresses of the platform, and states
// that are not waited for.
var anyText = map[string]bool{"id": true, "trade_no": true, "qr_code": true, "settle_no": true, "operation_id": true, "order_id": true,
	"withdraw_id": true, "prepay_id": true, "code_url": true, "gmt_payment": true}

// mayBeAbsent are members without which an answer proves its operation by another member.
var mayBeAbsent = map[string]bool{"wechatpay-v3: trade_state": true, "idempotency-key: fraud_status": true}

// set puts a value in the place of another one, which it returns in before.
func set(t *testing.T, doc any, path []string, value any, before *any) {
	t.Helper()
	switch d := doc.(type) {
	case map[string]any:
		if len(path) == 1 {
			*before, d[path[0]] = d[path[0]], value
			return
		}
		set(t, d[path[0]], path[1:], value, before)
	case []any:
		if len(path) == 1 {
			*before, d[0] = d[0], value
			return
		}
		set(t, d[0], path[1:], value, before)
	default:
		t.Fatalf("no member %q in %v", path, doc)
	}
}
