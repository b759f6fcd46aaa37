package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// described returns the permits of a call by their limits, or why it is refused.
func described(t *testing.T, keys string, r *upstream.Request) (map[string]int, *scheduler.Error) {
	t.Helper()
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', " + keys + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	router, err := scheduler.NewRouter("a", c.Scheduler.Upstreams["a"])
	if err != nil {
		t.Fatal(err)
	}
	d, err := router.Describe(r)
	var refused *scheduler.Error
	if errors.As(err, &refused) {
		return nil, refused
	}
	if err != nil {
		t.Fatal(err)
	}
	costs := make(map[string]int)
	for _, p := range d.Permits {
		costs[p.Limit] = p.Cost
	}
	return costs, nil
}

// TestCostOfAnUpstream is the default of the cost of its limits with calls.
func TestCostOfAnUpstream(t *testing.T) {
	costs, refused := described(t, `cost: 3, limits: [{name: app, calls: 9, window: 1s}, {name: own, calls: 9, window: 1s, cost: 2}, {name: slots, concurrency: 2}]`,
		&upstream.Request{Method: "POST", Target: "/"})
	if refused != nil || costs["app"] != 3 || costs["own"] != 2 || costs["slots"] != 1 {
		t.Errorf("costs %v, %v", costs, refused)
	}
}

// TestJoinedCallsCount: of requests to Alipay that are joined by #S# each one takes a permit, and
// they are refused where they cannot be counted.
func TestJoinedCallsCount(t *testing.T) {
	const two = `preset: alipay, limits: [{name: app, per_key: app, calls: 2, window: 1s}]`
	pay := "alipay.trade.pay"
	for method, want := range map[string]int{pay: 1, pay + "#S#" + pay: 2} {
		if costs, refused := described(t, two, call(method, "{}")); refused != nil || costs["app"] != want {
			t.Errorf("%s: costs %v, %v; want %d", method, costs, refused, want)
		}
	}
	three := call(pay+"#S#"+pay+"#S#alipay.trade.refund", "{}#S#{}#S#{}")
	if _, refused := described(t, two, three); refused == nil || refused.Reason != scheduler.CostTooHigh {
		t.Errorf("three joined under a limit of 2: %v", refused)
	}
	if costs, refused := described(t, strings.Replace(two, "alipay", "alipay, cost: 1", 1), three); refused != nil || costs["app"] != 1 {
		t.Errorf("the file's cost does not count: %v, %v", costs, refused)
	}
	wantRefusal(t, `preset: alipay, limits: [{name: methods, per_key: method, calls: 9, window: 1s}]`, three, `limit "methods": per_key: `, "joins several by #S#")
}

// TestEncryptedCallsAreRefused by name where a limit reads their content.
func TestEncryptedCallsAreRefused(t *testing.T) {
	r := call("alipay.trade.refund", "c2VjcmV0")
	r.Body = append(r.Body, "&encrypt_type=AES"...)
	wantRefusal(t, `preset: alipay, limits: [{name: trade, per_key: trade, calls: 1, window: 3s}]`, r, `limit "trade": per_key: `, "encrypt_type")
	wantRefusal(t, `preset: alipay, limits: [{name: own, per_key: 'fromJSON(param("biz_content")).out_trade_no', calls: 1, window: 3s}]`, r, `limit "own": per_key: `, "no JSON, such as an encrypted one")
	v3 := &upstream.Request{Method: "POST", Target: "/v3/alipay/trade/refund", Header: map[string][]string{"Alipay-Encrypt-Type": {"AES"}}, Body: []byte("c2VjcmV0")}
	wantRefusal(t, `preset: alipay-v3, limits: [{name: trade, per_key: trade, calls: 1, window: 3s}]`, v3, "alipay-encrypt-type")
}

func wantRefusal(t *testing.T, keys string, r *upstream.Request, parts ...string) {
	t.Helper()
	_, refused := described(t, keys, r)
	if refused == nil || refused.Reason != scheduler.BadKey {
		t.Errorf("%s: not refused: %v", keys, refused)
		return
	}
	for _, part := range parts {
		if !strings.Contains(refused.Detail, part) {
			t.Errorf("%s: %q, want %q in it", keys, refused.Detail, part)
		}
	}
	if strings.Contains(refused.Detail, "c2VjcmV0") {
		t.Errorf("%s: %q has a value of the request", keys, refused.Detail)
	}
}
