package ledger

import (
	"net/http"
	"strings"
)

// Adyen: payments, their refunds, and transfers. It knows repeats by their key alone, and gives
// its first answer again. A webhook tells the end of a refund, so no answer does.

var adyen = Dialect{
	Name: "adyen", Preset: "adyen",
	Kinds: []Kind{Pay, Refund, Transfer, QueryPay},
	Write: writeAdyen, Read: readAdyen, Say: sayAdyen,
	Recognises: func(op Operation) bool { return op.Key != "" },
	Unit:       byKey, Keeps: true, Replays: true,
}

const (
	adyenPayments  = "/v71/payments"
	adyenTransfers = "/btl/v4/transfers"
)

func writeAdyen(op Operation) Request {
	r := Request{"POST", adyenPayments, map[string]string{"Content-Type": "application/json", "X-API-Key": "k"}, ""}
	body := map[string]any{"merchantAccount": "M", "reference": op.Order, "amount": map[string]any{"value": op.Amount, "currency": "EUR"}}
	switch op.Kind {
	case Refund:
		r.Target += "/" + op.Order + "/refunds"
		body["reference"] = op.Refund
	case Transfer:
		r.Target = adyenTransfers
	case QueryPay: // of a link, as payments have no query
		return Request{"GET", "/v71/paymentLinks/" + op.Order, r.Header, ""}
	}
	if op.Key != "" {
		r.Header["Idempotency-Key"] = op.Key
	}
	r.Body = encode(body)
	return r
}

func readAdyen(r Request) Operation {
	body := object(r.Body)
	sum, _ := body["amount"].(map[string]any)
	value, _ := sum["value"].(float64)
	op := Operation{Kind: Pay, Order: text(body, "reference"), Amount: int(value), Key: r.Header["Idempotency-Key"]}
	switch {
	case r.Method == "GET":
		op.Kind, op.Order = QueryPay, strings.TrimPrefix(r.Target, "/v71/paymentLinks/")
	case r.Target == adyenTransfers:
		op.Kind = Transfer
	case r.Target != adyenPayments:
		op.Kind, op.Refund = Refund, op.Order
		op.Order = strings.TrimSuffix(strings.TrimPrefix(r.Target, adyenPayments+"/"), "/refunds")
	}
	return op
}

func adyenError(status int, code string) Answer {
	return asJSON(status, map[string]any{"status": status, "errorCode": code, "message": "m"})
}

// transient marks an error after which the same key may come again.
func transient(a Answer) Answer {
	a.Header["Transient-Error"] = "true"
	return a
}

func sayAdyen(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited: // it is not executed, and its answer is not kept
		if s.Pick%2 == 0 {
			return transient(adyenError([]int{422, 500}[s.Pick/2%2], "702"))
		}
		return Answer{http.StatusTooManyRequests, nil, ""}
	case Busy:
		return adyenError([]int{409, 422}[s.Pick%2], "704")
	case Duplicate: // the key belongs to other content; no page has this case
		return adyenError(422, "704")
	case Refused:
		return refusedAdyen(op, s)
	case Vague:
		return vagueAdyen(op, s)
	}
	switch op.Kind {
	case Refund:
		return asJSON(201, map[string]any{"pspReference": "R", "status": "received"})
	case Transfer:
		return asJSON([]int{200, 202}[s.Pick%2], map[string]any{"id": "T", "status": "booked"})
	case QueryPay:
		return asJSON(200, map[string]any{"id": op.Order, "status": "active"})
	}
	return asJSON(200, map[string]any{"pspReference": "P", "resultCode": "Authorised"})
}

// refusedAdyen is a refusal. Only a payment or transfer without effect gets it as a stored state.
func refusedAdyen(op Operation, s Saying) Answer {
	if s.Pick%2 == 0 && (s.State == None || s.State == Failed) {
		switch op.Kind {
		case Pay:
			return asJSON(200, map[string]any{"resultCode": []string{"Refused", "Cancelled", "Error"}[s.Pick/2%3]})
		case Transfer:
			return asJSON(200, map[string]any{"status": []string{"refused", "failed", "notEnoughBalance"}[s.Pick/2%3]})
		}
	}
	return adyenError([]int{400, 401, 403, 422}[s.Pick/2%4], "14_012")
}

func vagueAdyen(op Operation, s Saying) Answer {
	switch s.Pick % 6 {
	case 0:
		return asJSON(202, map[string]any{})
	case 1:
		return Answer{200, map[string]string{"Content-Type": "text/html"}, "<html></html>"}
	case 2:
		return transient(adyenError([]int{422, 500, 503}[s.Pick/6%3], "702"))
	case 3:
		return Answer{303, map[string]string{"Location": "/p/1"}, ""}
	case 4:
		switch op.Kind {
		case Pay:
			return asJSON(200, map[string]any{"resultCode": []string{"Pending", "Received", "RedirectShopper", "PartiallyAuthorised"}[s.Pick/6%4]})
		case Transfer:
			return asJSON(200, map[string]any{"status": []string{"received", "authorised", "pendingApproval"}[s.Pick/6%3]})
		}
	}
	return adyenError([]int{500, 503, 408}[s.Pick/6%3], "905")
}
