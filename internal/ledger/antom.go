package ledger

import "strings"

// Antom: payments with a code or on a page, their cancels, and refunds. It gives the result
// of a number again.

var antom = Dialect{
	Name: "antom", Preset: "antom",
	Kinds: []Kind{Pay, Cancel, Refund, QueryPay, QueryRefund},
	Write: writeAntom, Read: readAntom, Say: sayAntom,
	Recognises: func(op Operation) bool { return op.Kind != Refund || op.Refund != "" },
	Unit:       byNumber, Keeps: true,
	// The state of a limited request is unknown.
	Loose: func(k Kind, w Sense) bool { return w == Limited },
}

const antomPath = "/ams/api/v1/payments/"

var antomCalls = map[string]Kind{"pay": Pay, "cancel": Cancel, "refund": Refund, "inquiryPayment": QueryPay, "inquiryRefund": QueryRefund}

func writeAntom(op Operation) Request {
	r := Request{"POST", antomPath, map[string]string{"Content-Type": "application/json; charset=UTF-8", "Client-Id": "C1",
		"Request-Time": "1", "Signature": "algorithm=RSA256, keyVersion=1, signature=" + op.Tag}, ""}
	body := map[string]any{"paymentRequestId": op.Order}
	sum := map[string]any{"value": op.Amount, "currency": "USD"}
	for call, kind := range antomCalls {
		if kind == op.Kind {
			r.Target += call
		}
	}
	switch op.Kind {
	case Pay: // order B with a code, which is queried soon
		body["productCode"], body["paymentAmount"] = map[bool]string{true: "IN_STORE_PAYMENT", false: "CASHIER_PAYMENT"}[op.Order == "B"], sum
	case Refund:
		body = map[string]any{"paymentId": "pay-" + op.Order, "refundAmount": sum}
		if op.Refund != "" {
			body["refundRequestId"] = op.Refund
		}
	case QueryRefund:
		body = map[string]any{"refundRequestId": op.Refund}
	}
	r.Body = encode(body)
	return r
}

func readAntom(r Request) Operation {
	body := object(r.Body)
	op := Operation{Kind: antomCalls[strings.TrimPrefix(r.Target, antomPath)], Order: text(body, "paymentRequestId"), Refund: text(body, "refundRequestId")}
	name := "paymentAmount"
	switch op.Kind {
	case Refund:
		op.Order, name = strings.TrimPrefix(text(body, "paymentId"), "pay-"), "refundAmount"
	case QueryRefund:
		op.Order, _, _ = strings.Cut(op.Refund, "-") // refunds of the tests are numbered order-refund
	}
	sum, _ := body[name].(map[string]any)
	value, _ := sum["value"].(float64)
	op.Amount = int(value)
	return op
}

// antomResult is an answer with a result and other fields.
func antomResult(status, code string, fields map[string]any) Answer {
	if fields == nil {
		fields = make(map[string]any)
	}
	fields["result"] = map[string]any{"resultStatus": status, "resultCode": code, "resultMessage": "m"}
	return asJSON(200, fields)
}

func sayAntom(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		if s.Pick%3 == 0 {
			return Answer{429, nil, ""}
		}
		return antomResult("U", "REQUEST_TRAFFIC_EXCEED_LIMIT", nil)
	case Vague:
		switch s.Pick % 5 {
		case 0:
			return Answer{503, map[string]string{"Retry-After": "1"}, ""}
		case 1:
			return Answer{403, nil, ""}
		case 2:
			return antomResult("F", "SYSTEM_ERROR", nil)
		case 3:
			return antomResult("U", map[bool]string{true: "REFUND_IN_PROCESS", false: "PAYMENT_IN_PROCESS"}[op.Kind == Refund], nil)
		}
		return antomResult("U", "UNKNOWN_EXCEPTION", nil)
	case Refused:
		return antomResult("F", map[Kind]string{Pay: "USER_BALANCE_NOT_ENOUGH", Refund: "REFUND_AMOUNT_EXCEED", Cancel: "CANCEL_WINDOW_EXCEED"}[op.Kind], nil)
	}
	switch op.Kind {
	case Cancel:
		if s.State == None || s.State == Failed {
			return antomResult("F", "ORDER_NOT_EXIST", nil)
		}
		return antomResult("S", "SUCCESS", nil)
	case QueryPay, QueryRefund:
		return inquiryAntom(op, s)
	}
	return antomDone(op, s)
}

// antomDone tells the state of a payment or refund, also to a repeat.
func antomDone(op Operation, s Saying) Answer {
	switch {
	case s.Sense == Duplicate && s.Amount != op.Amount:
		return antomResult("F", "REPEAT_REQ_INCONSISTENT", nil)
	case s.Sense == Duplicate && (s.State == Closed || s.State == Reversed):
		return antomResult("F", []string{"ORDER_IS_CLOSED", "ORDER_IS_CANCELED"}[s.Pick%2], nil)
	case s.State == Executed:
		return antomResult("S", "SUCCESS", nil)
	case s.State == Failed:
		return antomResult("F", map[bool]string{true: "REFUND_WINDOW_EXCEED", false: "RISK_REJECT"}[op.Kind == Refund], nil)
	}
	return antomResult("U", map[bool]string{true: "REFUND_IN_PROCESS", false: "PAYMENT_IN_PROCESS"}[op.Kind == Refund], nil)
}

func inquiryAntom(op Operation, s Saying) Answer {
	status, sum := "paymentStatus", "paymentAmount"
	if op.Kind == QueryRefund {
		status, sum = "refundStatus", "refundAmount"
	}
	fields := map[string]any{status: map[State]string{Executed: "SUCCESS", Processing: []string{"PROCESSING", "PENDING"}[s.Pick%2*oneIf(op.Kind == QueryPay)],
		Failed: "FAIL", Closed: "CANCELLED", Reversed: "CANCELLED"}[s.State]}
	switch {
	case s.State == None:
		return antomResult("F", map[Kind]string{QueryPay: "ORDER_NOT_EXIST", QueryRefund: "REFUND_NOT_EXIST"}[op.Kind], nil)
	case op.Kind == QueryRefund && s.State == Closed:
		fields[status] = "FAIL"
	}
	fields[sum] = map[string]any{"value": s.Amount, "currency": "USD"}
	return antomResult("S", "SUCCESS", fields)
}
