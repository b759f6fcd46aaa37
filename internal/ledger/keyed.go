package ledger

import (
	"net/url"
	"strings"
)

// Platforms that recognise a request by its idempotency key: Stripe, and APIs that follow HTTP.

var stripe = Dialect{
	Name: "stripe", Preset: "stripe",
	Kinds: []Kind{Pay, Refund, QueryPay},
	Write: writeStripe, Read: readStripe, Say: sayStripe,
	Recognises: func(op Operation) bool { return op.Key != "" },
	Unit:       byKey, Keeps: true, Replays: true,
}

func writeStripe(op Operation) Request {
	r := Request{"POST", "/v1/payment_intents", map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Authorization": "Bearer sk_test"}, ""}
	form := url.Values{"amount": {yuan(op.Amount)}, "currency": {"usd"}}
	switch op.Kind {
	case Refund:
		r.Target = "/v1/refunds"
		form.Set("payment_intent", "pi_"+op.Order)
	case QueryPay:
		r.Method, r.Target = "GET", "/v1/payment_intents/pi_"+op.Order
		return r
	default:
		form.Set("confirm", "true")
		form.Set("metadata[order_id]", op.Order)
	}
	r.Body = form.Encode()
	if op.Key != "" {
		r.Header["Idempotency-Key"] = op.Key
	}
	return r
}

func readStripe(r Request) Operation {
	form, err := url.ParseQuery(r.Body)
	if err != nil {
		return Operation{}
	}
	op := Operation{Kind: Pay, Order: form.Get("metadata[order_id]"), Amount: cents(form.Get("amount")), Key: r.Header["Idempotency-Key"]}
	switch {
	case r.Method == "GET":
		op.Kind, op.Order = QueryPay, r.Target[strings.LastIndex(r.Target, "_")+1:]
	case r.Target == "/v1/refunds":
		op.Kind, op.Order = Refund, strings.TrimPrefix(form.Get("payment_intent"), "pi_")
	}
	return op
}

func stripeError(status int, kind, code string) Answer {
	return asJSON(status, map[string]any{"error": map[string]any{"type": kind, "code": code, "message": "m"}})
}

func sayStripe(op Operation, s Saying) Answer {
	var a Answer
	switch s.Sense {
	case Limited:
		a = stripeError(429, "invalid_request_error", "rate_limit")
		if s.Pick%3 == 0 {
			return stripeError(429, "invalid_request_error", "lock_timeout")
		}
		a.Header["Stripe-Rate-Limited-Reason"] = []string{"global-rate", "resource-specific"}[s.Pick%2]
	case Busy:
		a = stripeError(409, "idempotency_error", "idempotency_key_in_use")
	case Duplicate: // the key of another content
		a = stripeError(400, "idempotency_error", "idempotency_key_in_use")
	case Refused:
		a = stripeError(402, "card_error", "card_declined")
	case Vague:
		a = stripeError(500, "api_error", "")
		if s.Pick%2 == 0 {
			a.Header["Idempotent-Replayed"] = "true"
		}
	default:
		a = asJSON(200, map[string]any{"id": "pi_" + op.Order, "object": "payment_intent", "status": "succeeded"})
		if op.Kind == Refund {
			a = asJSON(200, map[string]any{"id": "re_" + op.Order, "object": "refund", "status": "succeeded"})
		}
	}
	return a
}

// genericProof is written by the user of an API that no preset knows.
const genericProof = `    proof: [{holds: 'body("state") == "paid"'}]`

var generic = Dialect{
	Name: "generic", Preset: "generic", More: genericProof,
	Kinds: []Kind{Pay, Refund, QueryPay},
	Write: writeGeneric, Read: readGeneric, Say: sayGeneric,
	Recognises: func(op Operation) bool { return false },
	Unit:       func(op Operation) string { return "by " + op.Tag },
	Replays:    true,
}

var genericKeyed = Dialect{
	Name: "generic with keys", Preset: "generic", More: "    idempotency: {header: Idempotency-Key, retention: 24h}\n" + genericProof,
	Kinds: []Kind{Pay, Refund, QueryPay},
	Write: writeGeneric, Read: readGeneric, Say: sayGeneric,
	Recognises: func(op Operation) bool { return op.Key != "" },
	Unit:       byKey, Keeps: true, Replays: true,
}

func writeGeneric(op Operation) Request {
	r := Request{"POST", "/payments", map[string]string{"Content-Type": "application/json"}, encode(map[string]any{"order": op.Order, "amount": yuan(op.Amount)})}
	switch op.Kind {
	case Refund:
		r.Target = "/refunds"
	case QueryPay:
		return Request{"GET", "/payments/" + op.Order, nil, ""}
	}
	if op.Key != "" {
		r.Header = map[string]string{"Content-Type": "application/json", "Idempotency-Key": op.Key}
	}
	return r
}

func readGeneric(r Request) Operation {
	body := object(r.Body)
	op := Operation{Kind: Pay, Order: text(body, "order"), Amount: cents(body["amount"]), Key: r.Header["Idempotency-Key"]}
	switch {
	case r.Method == "GET":
		op.Kind, op.Order = QueryPay, strings.TrimPrefix(r.Target, "/payments/")
	case r.Target == "/refunds":
		op.Kind = Refund
	}
	return op
}

func sayGeneric(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		if s.Pick%2 == 0 {
			return Answer{425, nil, ""}
		}
		return Answer{429, map[string]string{"Retry-After": "1"}, ""}
	case Busy:
		return Answer{[]int{409, 423}[s.Pick%2], nil, ""}
	case Duplicate:
		return Answer{422, nil, ""}
	case Refused:
		return Answer{[]int{400, 402, 403, 404}[s.Pick%4], nil, ""}
	case Vague:
		switch s.Pick % 4 {
		case 0:
			return Answer{503, map[string]string{"Retry-After": "1"}, ""}
		case 1:
			return Answer{408, nil, ""}
		case 2:
			return Answer{303, map[string]string{"Location": "/payments/1"}, ""}
		}
		return Answer{500, nil, ""}
	}
	if op.Kind == QueryPay && s.State == None {
		return Answer{404, nil, ""}
	}
	return asJSON([]int{200, 201}[s.Pick%2], map[string]any{"order": op.Order, "state": "paid"})
}
