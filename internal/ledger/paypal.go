package ledger

import (
	"fmt"
	"strconv"
	"strings"
)

// PayPal: captures or authorizations of orders, as their intent says; refunds of captures;
// batches of payouts. An order is captured or authorized once, and a batch is paid once. Only
// its PayPal-Request-Id makes a refund a repeat.

var paypal = Dialect{
	Name: "paypal", Preset: "paypal",
	Kinds: []Kind{Pay, Refund, Transfer, QueryPay},
	Write: writePaypal, Read: readPaypal, Say: sayPaypal,
	Recognises: func(op Operation) bool { return op.Kind != Refund || op.Key != "" },
	Unit:       paypalUnit, Keyed: true,
}

// paypalUnit: an order has its amount before its capture, so another amount is another order.
func paypalUnit(op Operation) string {
	switch {
	case op.Kind == Refund:
		return byKey(op)
	case op.Kind == Transfer, op.Amount == 0, op.Amount == 10_000:
		return op.Order
	}
	return fmt.Sprint(op.Order, " of ", op.Amount)
}

const (
	paypalOrders   = "/v2/checkout/orders/ORDER-"
	paypalCaptures = "/v2/payments/captures/CAPTURE-"
	paypalPayouts  = "/v1/payments/payouts"
)

// paypalIntent is that of an order: order C is authorized alone.
func paypalIntent(op Operation) string {
	if op.Order == "C" {
		return "authorize"
	}
	return "capture"
}

func writePaypal(op Operation) Request {
	r := Request{"POST", "", map[string]string{"Content-Type": "application/json", "Authorization": "Bearer t"}, "{}"}
	if op.Key != "" {
		r.Header["PayPal-Request-Id"] = op.Key
	}
	switch op.Kind {
	case Pay:
		r.Target = fmt.Sprintf("%s%05d-%s/%s", paypalOrders, op.Amount, op.Order, paypalIntent(op))
	case Refund:
		r.Target = paypalCaptures + op.Order + "/refund"
		r.Body = encode(map[string]any{"amount": map[string]any{"value": yuan(op.Amount), "currency_code": "USD"}, "note_to_payer": op.Refund})
	case Transfer:
		r.Target = paypalPayouts
		r.Body = encode(map[string]any{"sender_batch_header": map[string]any{"sender_batch_id": op.Order},
			"items": []any{map[string]any{"amount": map[string]any{"value": yuan(op.Amount), "currency": "USD"}}}})
	default:
		r.Method, r.Target, r.Body = "GET", fmt.Sprintf("%s%05d-%s", paypalOrders, op.Amount, op.Order), ""
	}
	return r
}

func readPaypal(r Request) Operation {
	op := Operation{Key: r.Header["Paypal-Request-Id"]}
	body := object(r.Body)
	switch {
	case strings.HasPrefix(r.Target, paypalOrders):
		id, wish, _ := strings.Cut(strings.TrimPrefix(r.Target, paypalOrders), "/")
		of, order, _ := strings.Cut(id, "-")
		op.Kind, op.Order = QueryPay, order
		op.Amount, _ = strconv.Atoi(of)
		if wish != "" {
			op.Kind = Pay
		}
	case strings.HasPrefix(r.Target, paypalCaptures):
		sum, _ := body["amount"].(map[string]any)
		op.Kind, op.Order, op.Refund, op.Amount = Refund, strings.TrimSuffix(strings.TrimPrefix(r.Target, paypalCaptures), "/refund"), text(body, "note_to_payer"), cents(sum["value"])
	default:
		header, _ := body["sender_batch_header"].(map[string]any)
		items, _ := body["items"].([]any)
		op.Kind, op.Order = Transfer, text(header, "sender_batch_id")
		if len(items) > 0 {
			item, _ := items[0].(map[string]any)
			sum, _ := item["amount"].(map[string]any)
			op.Amount = cents(sum["value"])
		}
	}
	return op
}

func paypalError(status int, name, issue string) Answer {
	return asJSON(status, map[string]any{"name": name, "details": []any{map[string]any{"issue": issue}}, "debug_id": "d"})
}

func sayPaypal(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		return paypalError(429, "RATE_LIMIT_REACHED", "")
	case Vague:
		switch s.Pick % 6 {
		case 0:
			return paypalError(409, "RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS")
		case 1:
			return Answer{503, map[string]string{"Retry-After": "1"}, ""}
		case 2:
			return Answer{408, nil, ""}
		case 3:
			if op.Kind == Pay {
				return asJSON(201, map[string]any{"status": "COMPLETED"}) // without its capture
			}
		case 4:
			return Answer{303, map[string]string{"Location": "/v2/checkout/orders/1"}, ""}
		}
		return paypalError(500, "INTERNAL_SERVER_ERROR", "")
	case Refused:
		return refusedPaypal(op, s)
	case Duplicate:
		if a, told := duplicatePaypal(op, s); told {
			return a
		}
	}
	return paypalState(op, s)
}

func refusedPaypal(op Operation, s Saying) Answer {
	switch {
	case s.Pick%3 == 0:
		return paypalError(401, "AUTHENTICATION_FAILURE", "")
	case s.Pick%3 == 1:
		return paypalError(400, "INVALID_REQUEST", "INVALID_PARAMETER_SYNTAX")
	case op.Kind == Refund:
		return paypalError(422, "UNPROCESSABLE_ENTITY", "REFUND_FAILED_INSUFFICIENT_FUNDS")
	case op.Kind == Transfer:
		if s.State == None && s.Pick/3%2 == 0 {
			return asJSON(201, map[string]any{"batch_header": map[string]any{"batch_status": "DENIED"}})
		}
		return paypalError(422, "INSUFFICIENT_FUNDS", "")
	}
	return paypalError(422, "UNPROCESSABLE_ENTITY", []string{"INSTRUMENT_DECLINED", "ORDER_NOT_APPROVED"}[s.Pick/3%2])
}

// duplicatePaypal gives the error about an earlier operation; false if its latest state is
// told instead, as to a repeat with its key.
func duplicatePaypal(op Operation, s Saying) (a Answer, told bool) {
	switch {
	case op.Kind == Transfer:
		return paypalError(400, "USER_BUSINESS_ERROR", ""), true
	case s.State == Processing && s.Pick%3 == 0:
		return paypalError(409, "RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"), true
	case op.Kind == Refund && s.Amount != op.Amount:
		return paypalError(422, "UNPROCESSABLE_ENTITY", "DUPLICATE_REQUEST_ID"), true
	case op.Kind == Pay && (op.Key == "" || s.Pick%3 == 1):
		return paypalError(422, "UNPROCESSABLE_ENTITY", map[string]string{"capture": "ORDER_ALREADY_CAPTURED", "authorize": "ORDER_ALREADY_AUTHORIZED"}[paypalIntent(op)]), true
	}
	return Answer{}, false
}

// paypalState tells the state of a refund, of a batch, or of an order's capture or authorization.
func paypalState(op Operation, s Saying) Answer {
	switch op.Kind {
	case Refund:
		return asJSON(201, map[string]any{"id": "1", "status": map[State]string{
			Executed: "COMPLETED", Processing: "PENDING", None: "PENDING", Failed: "FAILED", Closed: "CANCELLED"}[s.State]})
	case Transfer:
		return asJSON(201, map[string]any{"batch_header": map[string]any{"batch_status": map[State]string{
			Executed: []string{"SUCCESS", "PENDING"}[s.Pick%2], Processing: []string{"PENDING", "PROCESSING", "NEW"}[s.Pick%3], None: "PENDING", Failed: "DENIED", Closed: "CANCELED"}[s.State]}})
	case QueryPay:
		if s.State == None { // approved by its payer, and not captured
			return asJSON(200, map[string]any{"status": "APPROVED", "purchase_units": []any{map[string]any{}}})
		}
	}
	return paypalOrder(op, s)
}

func paypalOrder(op Operation, s Saying) Answer {
	made, status := "captures", map[State]string{Executed: "COMPLETED", Processing: "PENDING", None: "PENDING", Failed: "DECLINED", Closed: "FAILED"}[s.State]
	later := []string{"COMPLETED", "PARTIALLY_REFUNDED", "REFUNDED"}
	if paypalIntent(op) == "authorize" {
		made, status = "authorizations", map[State]string{Executed: "CREATED", Processing: "PENDING", None: "PENDING", Failed: "DENIED", Closed: "DENIED"}[s.State]
		later = []string{"CREATED", "PARTIALLY_CAPTURED", "CAPTURED"}
	}
	if op.Kind == QueryPay && s.State == Executed {
		status = later[s.Pick%3]
	}
	return asJSON(201-oneIf(op.Kind == QueryPay), map[string]any{"status": "COMPLETED", "purchase_units": []any{
		map[string]any{"payments": map[string]any{made: []any{map[string]any{"id": "X", "status": status}}}}}})
}
