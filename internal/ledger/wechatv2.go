package ledger

import (
	"encoding/xml"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// WeChat Pay v2: XML, with status 200 also for errors. Code payments, which are reversed or
// closed; refunds and transfers, whose end the query alone tells.

var wechatV2 = Dialect{
	Name: "wechatpay-v2", Preset: "wechatpay-v2",
	Kinds: []Kind{Pay, Cancel, Close, Refund, Transfer, QueryPay, QueryRefund},
	Write: writeWechatV2, Read: readWechatV2, Say: sayWechatV2,
	Recognises: func(op Operation) bool { return op.Kind == Refund && op.Refund != "" || op.Kind == Transfer },
	Unit:       byNumber, Keeps: true,
	// The state of a limited payment or refund is not clear, nor that of a transfer with an
	// error.
	Loose: func(k Kind, w Sense) bool {
		return (k == Pay || k == Refund) && w == Limited || k == Transfer && w == Refused
	},
}

var wechatV2Paths = map[Kind]string{
	Pay: "/pay/micropay", Cancel: "/secapi/pay/reverse", Close: "/pay/closeorder", Refund: "/secapi/pay/refund",
	Transfer: "/mmpaymkttransfers/promotion/transfers", QueryPay: "/pay/orderquery", QueryRefund: "/pay/refundquery",
	QueryTransfer: "/mmpaymkttransfers/gettransferinfo",
}

// flatXML writes elements inside one.
func flatXML(elements map[string]string) string {
	var b strings.Builder
	b.WriteString("<xml>")
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		b.WriteString("<" + name + ">")
		xml.EscapeText(&b, []byte(elements[name]))
		b.WriteString("</" + name + ">")
	}
	return b.String() + "</xml>"
}

// readXML reads the elements inside one; none if it is no XML.
func readXML(s string) map[string]string {
	var body struct {
		Elements []struct {
			XMLName xml.Name
			Text    string `xml:",chardata"`
		} `xml:",any"`
	}
	if xml.Unmarshal([]byte(s), &body) != nil {
		return nil
	}
	all := make(map[string]string)
	for _, e := range body.Elements {
		all[e.XMLName.Local] = e.Text
	}
	return all
}

func writeWechatV2(op Operation) Request {
	e := map[string]string{"appid": "wx1", "mch_id": "190", "out_trade_no": op.Order, "nonce_str": op.Tag, "sign": "s"}
	sum := strconv.Itoa(op.Amount)
	switch op.Kind {
	case Pay:
		e["total_fee"], e["auth_code"] = sum, "13"
	case Refund:
		e["total_fee"], e["refund_fee"] = "10000", sum
		if op.Refund != "" {
			e["out_refund_no"] = op.Refund
		}
	case QueryRefund:
		delete(e, "out_trade_no")
		e["out_refund_no"] = op.Refund
	case Transfer:
		e = map[string]string{"mch_appid": "wx1", "mchid": "190", "partner_trade_no": op.Order, "amount": sum, "openid": "o1", "nonce_str": op.Tag, "sign": "s"}
	}
	return Request{"POST", wechatV2Paths[op.Kind], map[string]string{"Content-Type": "text/xml;charset=utf-8"}, flatXML(e)}
}

func readWechatV2(r Request) Operation {
	e := readXML(r.Body)
	op := Operation{Order: e["out_trade_no"], Refund: e["out_refund_no"]}
	for kind, path := range wechatV2Paths {
		if path == r.Target {
			op.Kind = kind
		}
	}
	sum := e["total_fee"]
	switch op.Kind {
	case Refund:
		sum = e["refund_fee"]
	case QueryRefund:
		op.Order, _, _ = strings.Cut(op.Refund, "-") // refunds of the tests are numbered order-refund
	case Transfer, QueryTransfer:
		op.Order, sum = e["partner_trade_no"], e["amount"]
	}
	op.Amount, _ = strconv.Atoi(sum)
	return op
}

func asXML(elements map[string]string) Answer {
	return Answer{200, map[string]string{"Content-Type": "text/xml"}, flatXML(elements)}
}

func wechatV2Error(code string) Answer {
	return asXML(map[string]string{"return_code": "SUCCESS", "result_code": "FAIL", "err_code": code})
}

// wechatV2Result is a result with other elements.
func wechatV2Result(elements map[string]string) Answer {
	e := map[string]string{"return_code": "SUCCESS", "result_code": "SUCCESS"}
	maps.Copy(e, elements)
	return asXML(e)
}

func sayWechatV2(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		return limitedWechatV2(op, s)
	case Vague:
		return vagueWechatV2(op, s)
	case Refused:
		return refusedWechatV2(op, s)
	}
	switch op.Kind {
	case Pay:
		return wechatV2Payment(op, s)
	case Cancel:
		if s.State == None || s.State == Failed {
			return wechatV2Error([]string{"TRADE_ERROR", "INVALID_TRANSACTIONID"}[s.Pick%2])
		}
		return wechatV2Result(map[string]string{"recall": "N"})
	case Close:
		switch s.State {
		case None, Failed:
			return wechatV2Error("ORDERNOTEXIST")
		case Closed, Reversed:
			if s.Pick%2 == 0 {
				return wechatV2Error("ORDERCLOSED")
			}
		}
	case Refund, Transfer: // accepted
		if s.Sense == Duplicate && (s.Amount != op.Amount || s.State == Failed || s.State == Closed) {
			return wechatV2Error([]string{"INVALID_REQUEST", "ERROR"}[s.Pick%2])
		}
	default:
		return wechatV2Query(op, s)
	}
	return wechatV2Result(nil)
}

func limitedWechatV2(op Operation, s Saying) Answer {
	switch {
	case op.Kind == Transfer:
		return wechatV2Error("FREQ_LIMIT")
	case s.Pick%3 == 0 && (op.Kind == Pay || op.Kind == Refund):
		return Answer{429, nil, ""}
	}
	return wechatV2Error("FREQUENCY_LIMITED")
}

func vagueWechatV2(op Operation, s Saying) Answer {
	codes := map[Kind][]string{
		Pay:      {"USERPAYING", "BANKERROR", "INVALID_REQUEST", "SOMETHING_NEW"},
		Refund:   {"BIZERR_NEED_RETRY", "INVALID_REQ_TOO_MUCH", "ERROR", "SOMETHING_NEW"},
		Cancel:   {"USERPAYING", "SOMETHING_NEW"},
		Transfer: {"SEND_FAILED", "SOMETHING_NEW"},
	}[op.Kind]
	switch {
	case s.Pick%4 == 0 || len(codes) == 0:
		return wechatV2Error("SYSTEMERROR")
	case s.Pick%4 == 1 && op.Kind == Cancel:
		return wechatV2Result(map[string]string{"recall": "Y"})
	case s.Pick%4 == 1:
		return asXML(map[string]string{"return_code": "FAIL", "return_msg": "busy"})
	}
	return wechatV2Error(codes[s.Pick/4%len(codes)])
}

func refusedWechatV2(op Operation, s Saying) Answer {
	if s.Pick%3 == 0 && op.Kind != Transfer {
		return asXML(map[string]string{"return_code": "FAIL", "return_msg": "签名失败"})
	}
	switch op.Kind {
	case Close:
		if s.State == Executed {
			return wechatV2Error("ORDERPAID")
		}
	case Cancel:
		return wechatV2Error([]string{"REVERSE_EXPIRE", "PARAM_ERROR"}[s.Pick%2])
	case Transfer:
		return wechatV2Error([]string{"NOTENOUGH", "PARAM_ERROR", "NAME_MISMATCH"}[s.Pick%3])
	}
	return wechatV2Error([]string{"NOTENOUGH", "PARAM_ERROR", "NOAUTH"}[s.Pick/3%3])
}

func wechatV2Payment(op Operation, s Saying) Answer {
	switch {
	case s.Sense != Duplicate && s.State == Executed:
		return wechatV2Result(map[string]string{"transaction_id": "42", "total_fee": strconv.Itoa(s.Amount)})
	case s.Sense != Duplicate:
		return wechatV2Error("USERPAYING")
	case s.State == Closed, s.State == Reversed:
		return wechatV2Error([]string{"ORDERCLOSED", "ORDERREVERSED"}[s.Pick%2])
	case s.Amount != op.Amount, s.State != Executed:
		return wechatV2Error([]string{"OUT_TRADE_NO_USED", "INVALID_REQUEST"}[s.Pick%2])
	}
	return wechatV2Error("ORDERPAID")
}

func wechatV2Query(op Operation, s Saying) Answer {
	sum := strconv.Itoa(s.Amount)
	switch {
	case s.State == None:
		return wechatV2Error(map[Kind]string{QueryPay: "ORDERNOTEXIST", QueryRefund: "REFUNDNOTEXIST", QueryTransfer: "NOT_FOUND"}[op.Kind])
	case op.Kind == QueryRefund:
		return wechatV2Result(map[string]string{"refund_fee_0": sum, "refund_status_0": map[State]string{
			Executed: "SUCCESS", Processing: []string{"PROCESSING", "CHANGE"}[s.Pick%2], Failed: "REFUNDCLOSE", Closed: "REFUNDCLOSE"}[s.State]})
	case op.Kind == QueryTransfer:
		return wechatV2Result(map[string]string{"payment_amount": sum, "status": map[State]string{
			Executed: "SUCCESS", Processing: "PROCESSING", Failed: "FAILED", Closed: "FAIL"}[s.State]})
	}
	return wechatV2Result(map[string]string{"total_fee": sum, "trade_state": map[State]string{
		Executed: []string{"SUCCESS", "REFUND"}[oneIf(s.Refunded)], Processing: []string{"USERPAYING", "NOTPAY"}[s.Pick%2], Failed: "PAYERROR", Closed: "CLOSED", Reversed: "REVOKED"}[s.State]})
}
