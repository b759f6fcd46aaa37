package ledger

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// Dialects are the platforms of the tests: one row for each preset, or for each way to
// use one.
var Dialects = []Dialect{alipay, alipayV3, wechatV3, stripe, generic, genericKeyed, idempotencyKey, paypal, adyen, antom, wechatV2}

// byNumber is the Unit of platforms that know payments by the number of their order. A
// refund without a number is one by itself.
func byNumber(op Operation) string {
	switch {
	case op.Kind != Refund && op.Kind != QueryRefund:
		return op.Order
	case op.Refund == "":
		return op.Order + " without number " + op.Tag
	}
	return op.Order + "/" + op.Refund
}

// byKey is the Unit of platforms that know requests by a key alone.
func byKey(op Operation) string {
	if op.Key == "" {
		return "without key " + op.Tag
	}
	return op.Key
}

// yuan writes cents as platforms do that count in units.
func yuan(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// cents reads the text of yuan, as a text or a number of JSON.
func cents(v any) int {
	f, _ := strconv.ParseFloat(fmt.Sprint(v), 64)
	return int(math.Round(f * 100))
}

// text reads a member of an object; empty for none.
func text(o map[string]any, name string) string {
	s, _ := o[name].(string)
	return s
}

// object reads JSON; empty if it is none.
func object(s string) map[string]any {
	o := make(map[string]any)
	if json.Unmarshal([]byte(s), &o) != nil {
		return map[string]any{}
	}
	return o
}

func encode(v any) string {
	s, err := json.Marshal(v)
	if err != nil {
		panic(err) // of a literal
	}
	return string(s)
}

// asJSON is an answer of JSON.
func asJSON(status int, v any) Answer {
	return Answer{status, map[string]string{"Content-Type": "application/json"}, encode(v)}
}

// target splits a request's target.
func target(s string) (path string, query url.Values) {
	path, raw, _ := strings.Cut(s, "?")
	query, _ = url.ParseQuery(raw)
	return path, query
}
