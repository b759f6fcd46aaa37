package ledger

import (
	"maps"
	"net/url"
	"strings"
)

// Alipay, in its two forms. The gateway form has the method in a parameter and always
// status 200; v3 has it in the path, and codes of errors with a status.

var alipay = Dialect{
	Name: "alipay", Preset: "alipay",
	Kinds: []Kind{Pay, Cancel, Close, Refund, Transfer, QueryPay},
	Write: writeAlipay, Read: readAlipay, Say: sayAlipay,
	Recognises: alipayRecognises, Unit: byNumber,
}

var alipayV3 = Dialect{
	Name: "alipay-v3", Preset: "alipay-v3",
	Kinds: []Kind{Pay, Cancel, Close, Refund, Transfer, QueryPay},
	Write: writeAlipayV3, Read: readAlipayV3, Say: sayAlipayV3,
	Recognises: alipayRecognises, Unit: byNumber,
}

// alipayRecognises: refunds by out_request_no, transfers by out_biz_no. A payment must be
// queried before it is sent again.
func alipayRecognises(op Operation) bool {
	return op.Kind == Refund && op.Refund != "" || op.Kind == Transfer
}

var alipayMethods = map[Kind]string{
	Pay: "alipay.trade.pay", Cancel: "alipay.trade.cancel", Close: "alipay.trade.close", Refund: "alipay.trade.refund",
	Transfer: "alipay.fund.trans.uni.transfer", QueryPay: "alipay.trade.query", QueryRefund: "alipay.trade.fastpay.refund.query",
	QueryTransfer: "alipay.fund.trans.common.query",
}

func alipayKind(method string) Kind {
	for kind, m := range alipayMethods {
		if m == method {
			return kind
		}
	}
	return Kind(method)
}

func alipayContent(op Operation) map[string]any {
	switch op.Kind {
	case Pay:
		return map[string]any{"out_trade_no": op.Order, "total_amount": yuan(op.Amount), "auth_code": "28763443825664394", "subject": "tea"}
	case Refund:
		c := map[string]any{"out_trade_no": op.Order, "refund_amount": yuan(op.Amount)}
		if op.Refund != "" {
			c["out_request_no"] = op.Refund
		}
		return c
	case Transfer:
		return map[string]any{"out_biz_no": op.Order, "trans_amount": yuan(op.Amount), "product_code": "TRANS_ACCOUNT_NO_PWD", "biz_scene": "DIRECT_TRANSFER"}
	}
	return map[string]any{"out_trade_no": op.Order}
}

// alipayOperation reads the content of a request.
func alipayOperation(kind Kind, c map[string]any) Operation {
	op := Operation{Kind: kind, Order: text(c, "out_trade_no"), Refund: text(c, "out_request_no")}
	switch kind {
	case Pay:
		op.Amount = cents(c["total_amount"])
	case Refund:
		op.Amount = cents(c["refund_amount"])
	case Transfer, QueryTransfer:
		op.Order, op.Amount = text(c, "out_biz_no"), cents(c["trans_amount"])
	}
	return op
}

func writeAlipay(op Operation) Request {
	form := url.Values{
		"app_id": {"2021"}, "method": {alipayMethods[op.Kind]}, "charset": {"utf-8"}, "sign_type": {"RSA2"}, "version": {"1.0"},
		"timestamp": {"2026-01-01 00:00:00"}, "sign": {op.Tag}, "biz_content": {encode(alipayContent(op))},
	}
	return Request{"POST", "/gateway.do", map[string]string{"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"}, form.Encode()}
}

func readAlipay(r Request) Operation {
	form, err := url.ParseQuery(r.Body)
	if err != nil {
		return Operation{}
	}
	return alipayOperation(alipayKind(form.Get("method")), object(form.Get("biz_content")))
}

func sayAlipay(op Operation, s Saying) Answer {
	code, sub, fields := alipayResult(op, s)
	body := map[string]any{"code": code, "msg": "of a stand-in"}
	if sub != "" {
		body["sub_code"] = sub
	}
	maps.Copy(body, fields)
	method := strings.ReplaceAll(alipayMethods[op.Kind], ".", "_")
	return Answer{200, map[string]string{"Content-Type": "text/html;charset=utf-8"}, encode(map[string]any{method + "_response": body, "sign": "s"})}
}

func writeAlipayV3(op Operation) Request {
	return Request{"POST", "/v3/" + strings.ReplaceAll(alipayMethods[op.Kind], ".", "/"), map[string]string{
		"Content-Type": "application/json", "Authorization": "ALIPAY-SHA256withRSA app_id=2021,timestamp=1,nonce=" + op.Tag + ",sign=s",
	}, encode(alipayContent(op))}
}

func readAlipayV3(r Request) Operation {
	path, query := target(r.Target)
	c := object(r.Body)
	for name := range query {
		c[name] = query.Get(name)
	}
	return alipayOperation(alipayKind(strings.ReplaceAll(strings.TrimPrefix(path, "/v3/"), "/", ".")), c)
}

func sayAlipayV3(op Operation, s Saying) Answer {
	code, sub, fields := alipayResult(op, s)
	switch code {
	case "10000", "10003":
		if op.Kind == Pay && code == "10000" && fields["async_payment_mode"] == nil {
			fields["gmt_payment"] = "2026-01-01 00:00:00"
		}
		return asJSON(200, fields)
	case "40005":
		return asJSON(429, map[string]any{"code": "app-call-limited", "message": "m"})
	case "20000":
		if s.Pick%2 == 0 {
			return asJSON(202, map[string]any{})
		}
		return asJSON(500, map[string]any{"code": "unknow-error", "message": "m"})
	}
	return asJSON(400, map[string]any{"code": sub, "message": "m"})
}

// alipayResult gives the gateway's code, sub_code and business fields.
func alipayResult(op Operation, s Saying) (code, sub string, fields map[string]any) {
	fields = map[string]any{}
	switch s.Sense {
	case Limited:
		if op.Kind == Transfer && s.Pick%2 == 0 {
			return "40004", "RESOURCE_LIMIT_EXCEED", fields
		}
		return "40005", "isv.app-call-limited", fields
	case Vague:
		return alipayVague(op, s)
	case Refused:
		return "40004", []string{"ACQ.PAYMENT_FAIL", "ACQ.TRADE_STATUS_ERROR", "PAYER_BALANCE_NOT_ENOUGH", "isv.invalid-parameter"}[s.Pick%4], fields
	}
	if op.Kind.query() {
		return alipayQuery(op, s)
	}
	if s.Sense == Duplicate {
		if code, sub := alipayDuplicate(op, s); code != "" {
			return code, sub, fields
		}
	}
	return alipayDone(op, s)
}

func alipayVague(op Operation, s Saying) (code, sub string, fields map[string]any) {
	fields = map[string]any{}
	if op.Kind == Cancel && s.Pick%3 == 0 {
		fields["retry_flag"], fields["action"] = "Y", "close"
		return "10000", "", fields
	}
	if s.Pick%2 == 0 {
		return "20000", "isp.unknow-error", fields
	}
	if op.Kind == Transfer {
		return "40004", []string{"SYSTEM_ERROR", "REQUEST_PROCESSING", "PAYMENT_UNKNOWN"}[s.Pick%3], fields
	}
	return "40004", []string{"ACQ.SYSTEM_ERROR", "aop.ACQ.SYSTEM_ERROR", "AQC.SYSTEM_ERROR"}[s.Pick%3], fields
}

// alipayDuplicate gives the error about a number in use; empty if the state is told instead.
func alipayDuplicate(op Operation, s Saying) (code, sub string) {
	switch {
	case op.Kind == Transfer && (s.Amount != op.Amount || s.Pick%2 == 0):
		return "40004", []string{"BIZ_UNIQUE_EXCEPTION", "PAYMENT_INFO_INCONSISTENCY"}[s.Pick/2%2]
	case op.Kind == Refund && s.Amount != op.Amount:
		return "40004", "ACQ.DISCORDANT_REPEAT_REQUEST"
	case op.Kind != Pay:
	case s.State == Closed, s.State == Reversed:
		return "40004", "ACQ.TRADE_HAS_CLOSE"
	case s.Amount != op.Amount:
		return "40004", "ACQ.CONTEXT_INCONSISTENT"
	case s.State == Executed:
		return "40004", []string{"ACQ.TRADE_HAS_SUCCESS", "ACQ.TRADE_HAS_FINISHED"}[s.Pick%2]
	}
	return "", ""
}

// alipayDone tells the state in the fields of an accepted request.
func alipayDone(op Operation, s Saying) (code, sub string, fields map[string]any) {
	fields = map[string]any{"out_trade_no": op.Order}
	switch op.Kind {
	case Pay:
		switch {
		case s.State == Executed:
			fields["total_amount"], fields["trade_no"] = yuan(s.Amount), "2026"
		case s.State == Processing && s.Pick%4 == 0:
			fields["async_payment_mode"] = "NORMAL_ASYNC_PAY"
		case s.State == Processing:
			return "10003", "", fields
		default:
			return "40004", "ACQ.PAYMENT_FAIL", fields
		}
	case Refund:
		fields["fund_change"] = "N"
		if s.State == Executed && s.Sense == Truth {
			fields["fund_change"] = "Y"
		}
	case Transfer:
		fields["status"] = map[State]string{Executed: "SUCCESS", Processing: []string{"DEALING", "WAIT_PAY", "INIT"}[s.Pick%3], None: "DEALING", Failed: "FAIL", Closed: "CLOSED"}[s.State]
	case Cancel:
		switch s.State {
		case Closed:
			fields["action"], fields["retry_flag"] = "close", "N"
		case Reversed:
			fields["action"], fields["retry_flag"] = "refund", "N"
		}
	case Close:
		switch s.State {
		case None, Failed:
			return "40004", "ACQ.TRADE_NOT_EXIST", fields
		case Executed:
			return "40004", "ACQ.REASON_TRADE_STATUS_INVALID", fields
		case Closed, Reversed:
			if s.Pick%2 == 0 {
				return "40004", "ACQ.TRADE_HAS_CLOSE", fields
			}
		}
	}
	return "10000", "", fields
}

func alipayQuery(op Operation, s Saying) (code, sub string, fields map[string]any) {
	fields = map[string]any{"out_trade_no": op.Order}
	switch op.Kind {
	case QueryRefund:
		if s.State == Executed {
			fields["refund_status"], fields["refund_amount"] = "REFUND_SUCCESS", yuan(s.Amount)
		}
		return "10000", "", fields
	case QueryTransfer:
		if s.State == None {
			return "40004", "ORDER_NOT_EXIST", fields
		}
		fields["status"], fields["trans_amount"] = map[State]string{Executed: "SUCCESS", Processing: "DEALING", Failed: "FAIL", Closed: "CLOSED"}[s.State], yuan(s.Amount)
		return "10000", "", fields
	}
	fields["total_amount"] = yuan(s.Amount)
	switch s.State {
	case None:
		return "40004", "ACQ.TRADE_NOT_EXIST", map[string]any{}
	case Processing:
		fields["trade_status"] = "WAIT_BUYER_PAY"
	case Executed:
		fields["trade_status"] = []string{"TRADE_SUCCESS", "TRADE_FINISHED"}[s.Pick%2]
	default:
		fields["trade_status"] = "TRADE_CLOSED"
	}
	return "10000", "", fields
}
