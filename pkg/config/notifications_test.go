package config

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestNotificationNumbers: the presets read the numbers of a call from a notification about
// it: of the order, and of a refund, a transfer or a sharing.
func TestNotificationNumbers(t *testing.T) {
	t.Setenv("WHSEC", "whsec_x")
	form := func(pairs ...string) *upstream.Request {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return &upstream.Request{Method: "POST", Target: "/notify", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded;charset=utf-8"}}, Body: []byte(v.Encode())}
	}
	text := func(body string) *upstream.Request {
		return &upstream.Request{Method: "POST", Target: "/notify", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	}
	for _, tt := range []struct {
		presets []string
		name    string
		notice  *upstream.Request
		want    string
	}{
		{[]string{"alipay", "alipay-v3"}, "payment", form("out_trade_no", "T1", "trade_no", "2026"), "map[order:T1 trade:2026]"},
		{[]string{"alipay", "alipay-v3"}, "refund", form("out_trade_no", "T1", "trade_no", "2026", "out_biz_no", "R1", "refund_fee", "1.00"), "map[order:T1 refund:R1 trade:2026]"},
		{[]string{"alipay", "alipay-v3"}, "transfer", form("msg_method", "alipay.fund.trans.order.changed", "biz_content", `{"out_biz_no":"B1"}`), "map[transfer:B1]"},
		{[]string{"alipay", "alipay-v3"}, "refund to a bank card", form("biz_content", `{"out_trade_no":"T1","out_request_no":"R1"}`), "map[order:T1 refund:R1]"},
		{[]string{"alipay", "alipay-v3"}, "no numbers", form("notify_type", "x"), "map[]"},
		{[]string{"wechatpay-v3"}, "payment", text(`{"out_trade_no":"T1","trade_state":"SUCCESS"}`), "map[order:T1]"},
		{[]string{"wechatpay-v3"}, "combined payment", text(`{"combine_out_trade_no":"C1"}`), "map[order:C1]"},
		{[]string{"wechatpay-v3"}, "refund", text(`{"out_trade_no":"T1","out_refund_no":"R1"}`), "map[order:T1 refund:R1]"},
		{[]string{"wechatpay-v3"}, "transfer", text(`{"out_bill_no":"B1"}`), "map[transfer:B1]"},
		{[]string{"wechatpay-v3"}, "batch", text(`{"out_batch_no":"B2"}`), "map[transfer:B2]"},
		{[]string{"wechatpay-v3"}, "sharing", text(`{"out_order_no":"S1"}`), "map[sharing:S1]"},
		{[]string{"stripe"}, "payment intent", text(`{"data":{"object":{"object":"payment_intent","id":"pi_1","metadata":{"order_id":"T1"}}}}`), "map[order:T1 payment:pi_1]"},
		{[]string{"stripe"}, "refund", text(`{"data":{"object":{"object":"refund","id":"re_1","payment_intent":"pi_1"}}}`), "map[payment:pi_1]"},
		{[]string{"paypal"}, "capture of an order", text(`{"event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"C1","invoice_id":"I1","supplementary_data":{"related_ids":{"order_id":"O1"}}}}`), "map[order:O1]"},
		{[]string{"paypal"}, "capture of an authorization", text(`{"event_type":"PAYMENT.CAPTURE.DECLINED","resource":{"id":"C1","supplementary_data":{"related_ids":{"order_id":"O1","authorization_id":"A1"}}}}`), "map[order:O1 payment:A1]"},
		{[]string{"paypal"}, "authorization", text(`{"event_type":"PAYMENT.AUTHORIZATION.CREATED","resource":{"id":"A1","supplementary_data":{"related_ids":{"order_id":"O1"}}}}`), "map[order:O1 payment:A1]"},
		{[]string{"paypal"}, "void", text(`{"event_type":"PAYMENT.AUTHORIZATION.VOIDED","resource":{"id":"A1"}}`), "map[payment:A1]"},
		{[]string{"paypal"}, "order", text(`{"event_type":"CHECKOUT.ORDER.COMPLETED","resource":{"id":"O1","purchase_units":[{"invoice_id":"I1"}]}}`), "map[order:O1]"},
		{[]string{"paypal"}, "refund", text(`{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource":{"id":"R1","invoice_id":"I1"}}`), "map[]"},
		{[]string{"paypal"}, "subscription", text(`{"event_type":"BILLING.SUBSCRIPTION.ACTIVATED","resource":{"id":"S1"}}`), "map[]"},
		{[]string{"paypal"}, "no event", text(`{"event_type":7,"resource":{"id":"S1"}}`), "map[]"},
	} {
		for _, preset := range tt.presets {
			c, err := Parse(fmt.Appendf(nil, `upstreams: {pay: {url: 'https://api.test', preset: %s, notifications: {listen: '127.0.0.1:8091', forward: 'http://127.0.0.1:9000', verify: {kind: stripe, keys: [env:WHSEC]}}}}`, preset))
			if err != nil {
				t.Fatal(err)
			}
			n, got := c.Notifications["pay"], make(map[string]string)
			for name, e := range n.Numbers {
				if v, err := e.OptionalKey(upstream.NewInput(tt.notice)); err == nil && v != "" {
					got[name] = v
				}
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("%s, %s: %v, want %s", preset, tt.name, got, tt.want)
			}
			if n.Concurrency != 64 || n.Forward.Timeout != 10*time.Second || n.Listen != "127.0.0.1:8091" || n.Path != "" {
				t.Errorf("%+v", n)
			}
		}
	}
}

// TestNotificationsAreOptional: numbers of a preset alone are no listener, and one of them
// may be taken away or replaced.
func TestNotificationsAreOptional(t *testing.T) {
	t.Setenv("WHSEC", "whsec_x")
	c, err := Parse([]byte(`upstreams:
  a: {url: 'https://a.test', preset: alipay}
  b: {url: 'https://b.test', preset: alipay, notifications: {numbers: {trade: ""}}}
  c: {url: 'https://c.test', preset: alipay, notifications: {listen: '127.0.0.1:8091', path: '/n?x=1', forward: 'http://127.0.0.1:9000', timeout: 3s, concurrency: 2, numbers: {trade: "", order: 'json("x")'}, verify: {kind: stripe, keys: [env:WHSEC]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notifications) != 1 {
		t.Fatalf("%v", c.Notifications)
	}
	n := c.Notifications["c"]
	if names := maps.Keys(n.Numbers); n.Concurrency != 2 || n.Forward.Timeout != 3*time.Second || n.Path != "/n?x=1" || len(n.Numbers) != 3 || n.Numbers["trade"] != nil {
		t.Errorf("%+v %v", n, names)
	}
}
