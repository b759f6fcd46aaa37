package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// answer is a RoundTripper that gives one answer.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// outcome returns the result of an answer for an upstream with a preset, and the index
// of the rule that decided, -1 if none.
func outcome(t *testing.T, preset, more string, r *upstream.Request, a answer) (*upstream.Result, int) {
	t.Helper()
	up := upstreamOf(t, preset, more, a)
	res := up.Do(t.Context(), r)
	if res.Response != nil {
		res.Response.Body.Close()
	}
	return res, slices.IndexFunc(up.Outcomes, func(rule upstream.Rule) bool { return rule.When == res.Reason })
}

// upstreamOf returns an upstream with a preset and more keys.
func upstreamOf(t *testing.T, preset, more string, transport http.RoundTripper) *upstream.Upstream {
	t.Helper()
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + more + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	config := c.Scheduler.Upstreams["a"].Config
	config.Transport = transport
	up, err := upstream.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// call returns a request in the gateway form, all parameters in the body as in
// smartwalle's SDK.
func call(method, content string) *upstream.Request {
	form := url.Values{"app_id": {"2021"}, "method": {method}, "biz_content": {content}}
	return &upstream.Request{
		Method: "POST", Target: "/gateway.do", Body: []byte(form.Encode()),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded;charset=utf-8"}},
	}
}

func TestAlipayRefusal(t *testing.T) {
	refusal := refusalOf(t, "preset: alipay")
	if refusal.Status != 200 || refusal.Header.Get("Content-Type") != "text/html;charset=utf-8" {
		t.Errorf("status %d, header %v", refusal.Status, refusal.Header)
	}
	tests := []struct {
		problem   Problem
		code, sub string
	}{
		{Problem{Status: 429, Outcome: upstream.NotExecuted}, "40005", "isv.app-call-limited"},
		{Problem{Status: 503, Outcome: upstream.NotExecuted, RetryAfter: 3}, "40005", "isv.app-call-limited"},
		{Problem{Status: 504, Outcome: upstream.Unknown}, "20000", "isp.unknow-error"},
		{Problem{Status: 400, Outcome: upstream.NotExecuted}, "40002", "isv.invalid-parameter"},
		{Problem{Status: 413, Outcome: upstream.NotExecuted}, "40002", "isv.invalid-parameter"},
		{Problem{Status: 422, Outcome: upstream.NotExecuted}, "40002", "isv.invalid-parameter"},
	}
	for _, tt := range tests {
		tt.problem.Detail = `limit "app": "x" </script>`
		tt.problem.Request = call("alipay.trade.refund", "{}")
		body, err := refusal.Body(tt.problem)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]map[string]string
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		e := got["alipay_trade_refund_response"]
		if e["code"] != tt.code || e["sub_code"] != tt.sub || e["sub_msg"] != tt.problem.Detail || e["msg"] == "" || len(e) != 4 {
			t.Errorf("status %d: %s", tt.problem.Status, body)
		}
	}
}

// The refusal is an error object also without a method, or with one that needs escaping.
func TestAlipayRefusalOfNoMethod(t *testing.T) {
	refusal := refusalOf(t, "preset: alipay")
	for _, r := range []*upstream.Request{nil, call("", ""), call(`a":{"code":"10000"},"b`, "")} {
		body, err := refusal.Body(Problem{Status: 429, Outcome: upstream.NotExecuted, Request: r})
		var got map[string]map[string]string
		if err != nil || json.Unmarshal(body, &got) != nil || len(got) != 1 {
			t.Errorf("%v: %s", err, body)
		}
		for _, e := range got {
			if e["code"] != "40005" {
				t.Errorf("%s", body)
			}
		}
	}
}

func refusalOf(t *testing.T, keys string) *Refusal {
	t.Helper()
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', listen: ':0', " + keys + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Listeners["a"].Refusal
}

// The generic preset leaves refusals as they are.
func TestGenericRefusal(t *testing.T) {
	refusal := refusalOf(t, "")
	if _, err := refusal.Body(Problem{Status: 429}); !errors.Is(err, errors.ErrUnsupported) || refusal.Status != 0 || len(refusal.Header) != 0 {
		t.Errorf("refusal %+v, error %v", refusal, err)
	}
}

// Each key of a preset can be overridden; the others stay.
func TestPresetIsOverridden(t *testing.T) {
	limited := answer{200, nil, `{"error_response":{"code":"40005"}}`}
	if got, rule := outcome(t, "alipay", `, outcomes: [{when: 'status == 200', is: failed}]`, call("", ""), limited); got.Outcome != upstream.Failed || rule != 0 {
		t.Errorf("the file's rule does not come first: %s by rule %d", got.Outcome, rule)
	}
	if got, _ := outcome(t, "alipay", `, outcomes: [{when: 'status == 500', is: failed}]`, call("", ""), limited); got.Outcome != upstream.NotExecuted {
		t.Errorf("the preset's rules do not come after the file's: %s", got.Outcome)
	}
	c, err := Parse([]byte(`
upstreams:
  a: {url: "http://a.test", preset: alipay, resend: false, idempotent: "", retry: {min: 4s}}
  b: {url: "http://b.test", preset: alipay, retry: }
`))
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Scheduler.Upstreams["a"], c.Scheduler.Upstreams["b"]
	if a.Resend || a.Idempotent != "" || a.Retry.Min.Seconds() != 4 || a.Retry.Max.Seconds() != 60 {
		t.Errorf("overridden: %+v", a)
	}
	if !b.Resend || b.Idempotent == "" || b.Retry.Min.Seconds() != 3 {
		t.Errorf("another upstream, with an empty section: %+v", b)
	}

	refusal := refusalOf(t, `preset: alipay, refusal: {status: 0, headers: {X-Why: busy}, body: '{"busy":true}'}`)
	body, err := refusal.Body(Problem{Status: 429})
	if refusal.Status != 0 || len(refusal.Header) != 2 || string(body) != `{"busy":true}` || err != nil {
		t.Errorf("refusal %d %v %s %v", refusal.Status, refusal.Header, body, err)
	}
}

// TestSameTellsAccountsApart: under one Idempotency-Key no merchant is told the answer to another
// one, though their requests are equal; a request that is signed anew is a repeat.
func TestSameTellsAccountsApart(t *testing.T) {
	const order, capture = "/v2/checkout/orders", "/v2/checkout/orders/5O190127TN364715T/capture"
	post := func(target, body, header, value string) *upstream.Request {
		h := make(http.Header)
		h.Set(header, value)
		return &upstream.Request{Method: "POST", Target: target, Header: h, Body: []byte(body)}
	}
	gateway := func(params string) *upstream.Request {
		return post("/gateway.do", params, "Content-Type", "application/x-www-form-urlencoded")
	}
	xml := func(elements string) *upstream.Request {
		return post("/pay/micropay", "<xml>"+elements+"</xml>", "Content-Type", "text/xml")
	}
	for _, tt := range []struct {
		preset, name string
		a, b         *upstream.Request
		same         bool
	}{
		{"adyen", "keys of two accounts", post("/v71/payments", "{}", "X-API-Key", "a"), post("/v71/payments", "{}", "X-API-Key", "b"), false},
		{"alipay", "two apps", gateway("app_id=1&biz_content=c"), gateway("app_id=2&biz_content=c"), false},
		{"alipay", "signed anew", gateway("app_id=1&timestamp=1&sign=a"), gateway("app_id=1&timestamp=2&sign=b"), true},
		{"alipay-v3", "two apps", post("/v3/alipay/trade/pay", "{}", "Authorization", "ALIPAY-SHA256withRSA app_id=1,nonce=a"), post("/v3/alipay/trade/pay", "{}", "Authorization", "ALIPAY-SHA256withRSA app_id=2,nonce=a"), false},
		{"alipay-v3", "signed anew", post("/v3/alipay/trade/pay", "{}", "Authorization", "ALIPAY-SHA256withRSA app_id=1,nonce=a"), post("/v3/alipay/trade/pay", "{}", "Authorization", "ALIPAY-SHA256withRSA app_id=1,nonce=b"), true},
		{"antom", "two clients", post("/ams/api/v1/payments/pay", "{}", "Client-Id", "a"), post("/ams/api/v1/payments/pay", "{}", "Client-Id", "b"), false},
		{"antom", "signed anew", post("/ams/api/v1/payments/pay", "{}", "Signature", "a"), post("/ams/api/v1/payments/pay", "{}", "Signature", "b"), true},
		{"idempotency-key", "two accounts", post("/payments", "{}", "Authorization", "a"), post("/payments", "{}", "Authorization", "b"), false},
		{"idempotency-key", "signed anew", post("/payments", "{}", "Tl-Signature", "a"), post("/payments", "{}", "Tl-Signature", "b"), true},
		{"paypal", "two accounts", post(order, "{}", "Authorization", "Bearer a"), post(order, "{}", "Authorization", "Bearer b"), false},
		{"paypal", "two sellers", post(capture, "{}", "PayPal-Auth-Assertion", "a"), post(capture, "{}", "PayPal-Auth-Assertion", "b"), false},
		{"paypal", "a renewed token for an order of PayPal's", post(capture, "{}", "Authorization", "Bearer a"), post(capture, "{}", "Authorization", "Bearer b"), true},
		{"stripe", "two connected accounts", post("/v1/charges", "", "Stripe-Account", "a"), post("/v1/charges", "", "Stripe-Account", "b"), false},
		{"wechatpay-v2", "two merchants", xml("<mch_id>1</mch_id>"), xml("<mch_id>2</mch_id>"), false},
		{"wechatpay-v2", "signed anew", xml("<mch_id>1</mch_id><sign>a</sign>"), xml("<sign>b</sign><mch_id>1</mch_id>"), true},
		{"wechatpay-v3", "two merchants", post("/v3/pay/transactions/jsapi", "{}", "Authorization", `WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a"`), post("/v3/pay/transactions/jsapi", "{}", "Authorization", `WECHATPAY2-SHA256-RSA2048 mchid="2",nonce_str="a"`), false},
		{"wechatpay-v3", "signed anew", post("/v3/pay/transactions/jsapi", "{}", "Authorization", `WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a"`), post("/v3/pay/transactions/jsapi", "{}", "Authorization", `WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="b"`), true},
	} {
		if up := upstreamOf(t, tt.preset, "", nil); (up.Fingerprint(tt.a) == up.Fingerprint(tt.b)) != tt.same {
			t.Errorf("%s: %s: the same is %v, want %v", tt.preset, tt.name, !tt.same, tt.same)
		}
	}
}

// TestUploadsFit: a picture of 2 MB and a video of 5 MB pass to WeChat Pay v3, with the form around them.
func TestUploadsFit(t *testing.T) {
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', listen: ':0', preset: wechatpay-v3}, b: {url: 'http://b.test', listen: ':0', preset: wechatpay-v3, max_body: 2MiB}}"))
	if err != nil {
		t.Fatal(err)
	}
	if most := c.Listeners["a"].MaxBody; most < 5<<20+10_000 || most != c.Scheduler.Upstreams["a"].MaxBody {
		t.Errorf("max_body is %d", most)
	}
	if most := c.Listeners["b"].MaxBody; most != 2<<20 {
		t.Errorf("the file's max_body is %d", most)
	}
}

func TestPresets(t *testing.T) {
	if got := Presets(); !slices.Equal(got, []string{"adyen", "alipay", "alipay-v3", "antom", "generic", "idempotency-key", "paypal", "stripe", "wechatpay-v2", "wechatpay-v3"}) {
		t.Errorf("Presets() = %q", got)
	}
	for _, name := range Presets() {
		if text, err := Preset(name); err != nil || !bytes.Contains(text, []byte("outcomes:")) {
			t.Errorf("Preset(%q) = %q, %v", name, text, err)
		}
	}
	if _, err := Preset("../config"); err == nil {
		t.Error("a preset outside presets/")
	}
}

// TestRulesOfPresets: the rules of a file are told from its preset's, which need a proof of success.
func TestRulesOfPresets(t *testing.T) {
	cfg, err := Parse([]byte(`
store: memory
upstreams:
  pay:
    url: https://api.example.com
    preset: stripe
    outcomes: [{when: 'status == 200', is: done}, {when: 'status == 201', is: done}]
    proof: [{media: [application/json]}, {when: 'method == "GET"', format: any, holds: 'status == 200', after: 3s}]
`))
	if err != nil {
		t.Fatal(err)
	}
	pay := cfg.Scheduler.Upstreams["pay"]
	if len(pay.Outcomes) < 5 {
		t.Fatalf("%d rules", len(pay.Outcomes))
	}
	for i, rule := range pay.Outcomes {
		if want := map[bool]string{false: "stripe"}[i < 2]; rule.Preset != want {
			t.Errorf("outcomes[%d] is of preset %q, want %q", i, rule.Preset, want)
		}
	}
	want := []upstream.Proof{{Media: []string{"application/json"}}, {When: `method == "GET"`, Format: "any", Holds: "status == 200", After: 3 * time.Second}}
	if !reflect.DeepEqual(pay.Proof, want) {
		t.Errorf("%+v, want %+v", pay.Proof, want)
	}
}
