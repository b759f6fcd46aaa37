package ledger

import "strings"

// Platforms with a header for an idempotency key, each with a header of its own: payments as
// TrueLayer and Mercado Pago spell them, refunds and payouts as Razorpay does.

var idempotencyKey = Dialect{
	Name: "idempotency-key", Preset: "idempotency-key",
	Kinds: []Kind{Pay, Refund, Transfer, QueryPay},
	Write: writeKeyHeader, Read: readKeyHeader, Say: sayKeyHeader,
	Recognises: func(op Operation) bool { return op.Key != "" },
	Unit:       byKey, Keeps: true, Replays: true,
}

// keyHeaders are the names of the header, by the kind of the request.
var keyHeaders = map[Kind]string{Pay: "Idempotency-Key", Refund: "X-Refund-Idempotency", Transfer: "X-Payout-Idempotency"}

func writeKeyHeader(op Operation) Request {
	r := Request{"POST", "/v3/payments", map[string]string{"Content-Type": "application/json", "Authorization": "Bearer t"}, ""}
	body := map[string]any{"reference": op.Order, "amount": op.Amount}
	switch op.Kind {
	case Refund:
		r.Target = "/v1/payments/pay_" + op.Order + "/refund"
		body = map[string]any{"receipt": op.Refund, "amount": op.Amount}
	case Transfer:
		r.Target = "/v1/payouts"
		body["reference_id"] = op.Order
	case QueryPay:
		r.Method, r.Target = "GET", "/v3/payments/"+op.Order
		return r
	}
	r.Body = encode(body)
	if op.Key != "" {
		r.Header[keyHeaders[op.Kind]] = op.Key
	}
	return r
}

func readKeyHeader(r Request) Operation {
	body := object(r.Body)
	units, _ := body["amount"].(float64)
	op := Operation{Kind: Pay, Order: text(body, "reference"), Amount: int(units)}
	switch {
	case r.Method == "GET":
		op.Kind, op.Order = QueryPay, strings.TrimPrefix(r.Target, "/v3/payments/")
	case r.Target == "/v1/payouts":
		op.Kind = Transfer
	case r.Target != "/v3/payments":
		order := strings.TrimPrefix(strings.TrimSuffix(r.Target, "/refund"), "/v1/payments/pay_")
		op.Kind, op.Order, op.Refund = Refund, order, text(body, "receipt")
	}
	op.Key = r.Header[keyHeaders[op.Kind]]
	return op
}

func sayKeyHeader(op Operation, s Saying) Answer {
	switch s.Sense {
	case Limited:
		return Answer{[]int{429, 425}[s.Pick%2], nil, ""}
	case Busy:
		if s.Pick%3 == 0 { // Checkout.com
			return asJSON(429, map[string]any{"error_type": "duplicate_request"})
		}
		return asJSON([]int{409, 423}[s.Pick%2], map[string]any{"title": "Idempotency-Key Concurrency Conflict"})
	case Duplicate: // the key of another content
		if op.Kind == Pay {
			return asJSON(422, map[string]any{"title": "Idempotency-Key Reuse"})
		}
		return asJSON(400, map[string]any{"error": map[string]any{"code": "BAD_REQUEST_ERROR",
			"description": "Different request with the same idempotency key has already been processed."}})
	case Refused:
		// Only a payment without effect gets a stored state.
		if s.Pick%2 == 0 && (s.State == None || s.State == Failed) && op.Kind.moves() {
			return asJSON(201, map[string]any{"status": []string{"rejected", "failed", "Declined", "cancelled", "reversed"}[s.Pick/2%5]})
		}
		return asJSON([]int{400, 401, 403, 404, 422}[s.Pick/2%5], map[string]any{"title": "refused"})
	case Vague:
		return vagueKeyHeader(op, s)
	}
	if op.Kind == QueryPay && s.State == None {
		return asJSON(404, map[string]any{})
	}
	return asJSON([]int{200, 201}[s.Pick%2], map[string]any{"status": map[Kind]string{Pay: "approved", QueryPay: "approved", Refund: "processed", Transfer: "processed"}[op.Kind]})
}

func vagueKeyHeader(op Operation, s Saying) Answer {
	switch s.Pick % 6 {
	case 0:
		return Answer{503, map[string]string{"Retry-After": "3"}, ""}
	case 1:
		return Answer{408, nil, ""}
	case 2:
		return Answer{303, map[string]string{"Location": "/v3/payments/1"}, ""}
	case 3:
		return asJSON(202, map[string]any{"action_id": "a"})
	case 4:
		if op.Kind.moves() { // at work, and told so for good
			return asJSON(201, map[string]any{"status": []string{"pending", "in_process", "queued", "processing", "scheduled"}[s.Pick/6%5]})
		}
	}
	return asJSON(500, map[string]any{})
}
