package ledger

import (
	"encoding/json"
	"strings"
)

// WeChat Pay v3: code payments, which are reversed; refunds; transfers to users.

var wechatV3 = Dialect{
	Name: "wechatpay-v3", Preset: "wechatpay-v3",
	Kinds: []Kind{Pay, Cancel, Refund, Transfer, Recall, QueryPay},
	Write: writeWechat, Read: readWechat, Say: sayWechat,
	Recognises: func(op Operation) bool { return op.Kind == Refund && op.Refund != "" || op.Kind == Transfer },
	Unit:       byNumber, Keeps: true,
	// The state of a limited refund is not clear, nor that of a transfer with any other
	// status than 200.
	Loose: func(k Kind, w Sense) bool { return k == Transfer || k == Refund && w == Limited },
}

const wechatTransfer = "/v3/fund-app/mch-transfer/transfer-bills"

func writeWechat(op Operation) Request {
	r := Request{"POST", "", map[string]string{"Content-Type": "application/json", "Accept": "application/json",
		"Authorization": `WECHATPAY2-SHA256-RSA2048 mchid="190",nonce_str="` + op.Tag + `",timestamp="1",serial_no="5157",signature="s"`}, ""}
	body := map[string]any{"mchid": "190"}
	switch op.Kind {
	case Pay:
		r.Target = "/v3/pay/transactions/codepay"
		body["out_trade_no"], body["amount"] = op.Order, map[string]any{"total": op.Amount}
	case Cancel:
		r.Target = "/v3/pay/transactions/out-trade-no/" + op.Order + "/reverse"
	case Refund:
		r.Target = "/v3/refund/domestic/refunds"
		body = map[string]any{"out_trade_no": op.Order, "amount": map[string]any{"refund": op.Amount, "total": 10000, "currency": "CNY"}}
		if op.Refund != "" {
			body["out_refund_no"] = op.Refund
		}
	case Transfer:
		r.Target = wechatTransfer
		body = map[string]any{"out_bill_no": op.Order, "transfer_amount": op.Amount, "openid": "o1"}
	case Recall:
		r.Target = wechatTransfer + "/out-bill-no/" + op.Order + "/cancel"
		return r
	default:
		r.Method, r.Target = "GET", "/v3/pay/transactions/out-trade-no/"+op.Order+"?mchid=190"
		return r
	}
	r.Body = encode(body)
	return r
}

func readWechat(r Request) Operation {
	path, _ := target(r.Target)
	var body struct {
		Trade    string `json:"out_trade_no"`
		Refund   string `json:"out_refund_no"`
		Bill     string `json:"out_bill_no"`
		Transfer int    `json:"transfer_amount"`
		Amount   struct{ Total, Refund int }
	}
	if r.Body != "" && json.Unmarshal([]byte(r.Body), &body) != nil {
		return Operation{}
	}
	last := path[strings.LastIndex(path, "/")+1:]
	switch {
	case strings.HasSuffix(path, "/codepay"):
		return Operation{Kind: Pay, Order: body.Trade, Amount: body.Amount.Total}
	case strings.HasSuffix(path, "/reverse"):
		return Operation{Kind: Cancel, Order: strings.Split(path, "/")[5]}
	case path == "/v3/refund/domestic/refunds":
		return Operation{Kind: Refund, Order: body.Trade, Refund: body.Refund, Amount: body.Amount.Refund}
	case strings.HasPrefix(path, "/v3/refund/domestic/refunds/"):
		order, _, _ := strings.Cut(last, "-") // refunds of the tests are numbered order-refund
		return Operation{Kind: QueryRefund, Order: order, Refund: last}
	case path == wechatTransfer:
		return Operation{Kind: Transfer, Order: body.Bill, Amount: body.Transfer}
	case last == "cancel":
		return Operation{Kind: Recall, Order: strings.Split(path, "/")[6]}
	case strings.HasPrefix(path, wechatTransfer):
		return Operation{Kind: QueryTransfer, Order: last}
	}
	return Operation{Kind: QueryPay, Order: last}
}

func wechatError(status int, code string) Answer {
	return asJSON(status, map[string]any{"code": code, "message": "m"})
}

func sayWechat(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		return wechatError(429, []string{"RATELIMIT_EXCEEDED", "RATE_LIMITED", "FREQUENCY_LIMITED"}[s.Pick%3])
	case Vague:
		switch {
		case s.Pick%3 == 0:
			return asJSON(202, map[string]any{})
		case s.Pick%3 == 1 && op.Kind == Cancel:
			return asJSON(200, map[string]any{"out_trade_no": op.Order, "recall": "Y"})
		case s.Pick%3 == 1 && op.Kind == Recall:
			return asJSON(200, map[string]any{"out_bill_no": op.Order, "state": "CANCELING"})
		case s.Pick%3 == 1 && op.Kind == Pay:
			return wechatError(400, []string{"BANK_ERROR", "USERPAYING"}[s.Pick/3%2])
		}
		return wechatError(500, "SYSTEM_ERROR")
	case Refused:
		return wechatError([]int{403, 400, 401}[s.Pick%3], []string{"NOT_ENOUGH", "PARAM_ERROR", "SIGN_ERROR"}[s.Pick%3])
	}
	switch op.Kind {
	case Pay, QueryPay:
		return wechatPayment(op, s)
	case Refund, QueryRefund:
		return wechatRefund(op, s)
	case Transfer, QueryTransfer:
		return wechatBill(op, s)
	case Recall:
		if s.State == Closed {
			return asJSON(200, map[string]any{"out_bill_no": op.Order, "state": []string{"CANCELLED", "CANCELING"}[s.Pick%2]})
		}
		return wechatError(400, "INVALID_REQUEST")
	}
	switch s.State { // of a reverse
	case None, Failed:
		return wechatError(404, "ORDER_NOT_EXIST")
	}
	return asJSON(200, map[string]any{"out_trade_no": op.Order, "recall": "N"})
}

func wechatPayment(op Operation, s Saying) Answer {
	if s.Sense == Duplicate {
		switch {
		case s.State == Closed, s.State == Reversed:
			return wechatError(400, "ORDER_CLOSED")
		case s.Amount != op.Amount, s.State != Executed:
			return wechatError(403, "OUT_TRADE_NO_USED")
		}
		return wechatError(400, []string{"ORDERPAID", "ORDER_PAID"}[s.Pick%2])
	}
	if s.State == None {
		return wechatError(404, "ORDER_NOT_EXIST")
	}
	body := map[string]any{"out_trade_no": op.Order, "amount": map[string]any{"total": s.Amount}, "trade_state": map[State]string{
		Executed: []string{"SUCCESS", "REFUND"}[oneIf(s.Refunded)], Processing: []string{"USERPAYING", "NOTPAY"}[s.Pick%2], Failed: "PAYERROR", Closed: "CLOSED", Reversed: []string{"REVOKED", "CLOSED"}[s.Pick%2]}[s.State]}
	if s.State == Executed {
		body["transaction_id"] = "42"
	}
	return asJSON(200, body)
}

func wechatRefund(op Operation, s Saying) Answer {
	switch {
	case op.Kind == QueryRefund && s.State == None:
		return wechatError(404, "RESOURCE_NOT_EXISTS")
	case s.Sense == Duplicate && s.Amount != op.Amount:
		return wechatError(400, "INVALID_REQUEST")
	}
	return asJSON(200, map[string]any{"out_refund_no": op.Refund, "refund_id": "50", "amount": map[string]any{"refund": s.Amount}, "status": map[State]string{
		Executed: []string{"SUCCESS", "PROCESSING"}[s.Pick%2*oneIf(op.Kind == Refund)], Processing: "PROCESSING", None: "PROCESSING", Failed: "CLOSED", Closed: "CLOSED"}[s.State]})
}

// oneIf returns 1 if ok, else 0.
func oneIf(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

func wechatBill(op Operation, s Saying) Answer {
	switch {
	case op.Kind == QueryTransfer && s.State == None:
		return wechatError(404, "NOT_FOUND")
	case s.Sense == Duplicate && s.Amount != op.Amount:
		return wechatError(400, "ALREADY_EXISTS")
	}
	return asJSON(200, map[string]any{"out_bill_no": op.Order, "transfer_bill_no": "13", "transfer_amount": s.Amount, "state": map[State]string{
		Executed: "SUCCESS", Processing: []string{"ACCEPTED", "PROCESSING", "WAIT_USER_CONFIRM", "TRANSFERING"}[s.Pick%4], None: "ACCEPTED", Failed: "FAIL", Closed: "CANCELLED"}[s.State]})
}
