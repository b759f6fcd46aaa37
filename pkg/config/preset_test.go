package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

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
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + more + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	config := c.Scheduler.Upstreams["a"].Config
	config.Transport = a
	up, err := upstream.New(config)
	if err != nil {
		t.Fatal(err)
	}
	res := up.Do(t.Context(), r)
	if res.Response != nil {
		res.Response.Body.Close()
	}
	return res, slices.IndexFunc(config.Outcomes, func(rule upstream.Rule) bool { return rule.When == res.Reason })
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

func TestAlipayOutcomes(t *testing.T) {
	refund := func(code, sub string) string {
		return `{"alipay_trade_refund_response":{"code":"` + code + `","msg":"m","sub_code":"` + sub + `"},"sign":"s"}`
	}
	const html = "<html><body>\xd6\xa7\xb8\xb6</body></html>"
	tests := []struct {
		name   string
		method string
		status int
		body   string
		want   upstream.Outcome
	}{
		{"success", "alipay.trade.query", 200, refund("10000", ""), upstream.Done},
		{"waits for the buyer", "alipay.trade.pay", 200, refund("10003", ""), upstream.Unknown},
		{"app limited", "alipay.trade.refund", 200, refund("40005", "isv.app-call-limited"), upstream.NotExecuted},
		{"method limited", "alipay.trade.refund", 200, refund("40005", "isv.method-call-limited"), upstream.NotExecuted},
		{"limited, as an error", "alipay.trade.refund", 200, `{"error_response":{"code":"40005","msg":"Call Limited"}}`, upstream.NotExecuted},
		{"system rate limit", "alipay.data.bill.query", 200, refund("40004", "SYSTEM_RATE_LIMIT"), upstream.NotExecuted},
		{"user rate limit", "alipay.data.bill.query", 200, refund("40004", "USER_RATE_LIMIT"), upstream.NotExecuted},
		{"service unknown", "alipay.trade.refund", 200, refund("20000", "isp.unknow-error"), upstream.Unknown},
		{"system error", "alipay.trade.refund", 200, refund("40004", "ACQ.SYSTEM_ERROR"), upstream.Unknown},
		{"system error, bare", "alipay.trade.refund", 200, refund("40004", "SYSTEM_ERROR"), upstream.Unknown},
		{"system error, long", "alipay.trade.refund", 200, refund("40004", "aop.ACQ.SYSTEM_ERROR"), upstream.Unknown},
		{"system error, misspelt", "alipay.trade.refund", 200, refund("40004", "AQC.SYSTEM_ERROR"), upstream.Unknown},
		{"token", "alipay.trade.refund", 200, refund("20001", "aop.invalid-auth-token"), upstream.Failed},
		{"missing", "alipay.trade.refund", 200, refund("40001", "isv.missing-method"), upstream.Failed},
		{"invalid", "alipay.trade.refund", 200, refund("40002", "isv.invalid-signature"), upstream.Failed},
		{"authorization", "alipay.trade.refund", 200, refund("40003", "isv.missing-signature-config"), upstream.Failed},
		{"business", "alipay.trade.refund", 200, refund("40004", "ACQ.TRADE_NOT_EXIST"), upstream.Failed},
		{"business without detail", "alipay.trade.refund", 200, `{"alipay_trade_refund_response":{"code":"40004"}}`, upstream.Failed},
		{"permissions", "alipay.trade.refund", 200, refund("40006", "isv.insufficient-isv-permissions"), upstream.Failed},
		{"page", "alipay.trade.page.pay", 200, html, upstream.Done},
		{"wap page", "alipay.trade.wap.pay", 200, html, upstream.Done},
		{"page that was limited", "alipay.trade.page.pay", 200, refund("40005", ""), upstream.NotExecuted},
		{"page of another method", "alipay.trade.refund", 200, html, upstream.Unknown},
		{"no code", "alipay.trade.refund", 200, `{"alipay_trade_refund_response":{}}`, upstream.Unknown},
		{"an unknown code", "alipay.trade.refund", 200, refund("10001", ""), upstream.Unknown},
		{"cut off", "alipay.trade.refund", 200, `{"alipay_trade_refund_response":{"code":"100`, upstream.Unknown},
		{"nothing", "alipay.trade.refund", 204, "", upstream.Unknown},
		{"redirect", "alipay.trade.refund", 302, "", upstream.Failed},
		{"gateway down", "alipay.trade.refund", 502, html, upstream.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := outcome(t, "alipay", "", call(tt.method, "{}"), answer{tt.status, nil, tt.body})
			if got.Outcome != tt.want {
				t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Reason, tt.want)
			}
			if pauses := got.Outcome == upstream.NotExecuted; (got.Pause != nil) != pauses || pauses && got.Pause.For.Seconds() != 1 {
				t.Errorf("pause %+v", got.Pause)
			}
		})
	}
	for _, sub := range []string{"ACQ.TRADE_HAS_SUCCESS", "ACQ.TRADE_HAS_CLOSE", "ACQ.CONTEXT_INCONSISTENT", "ACQ.DISCORDANT_REPEAT_REQUEST"} {
		for _, repeat := range []bool{true, false} {
			c := call("alipay.trade.pay", "{}")
			c.Repeat = repeat
			if got, _ := outcome(t, "alipay", "", c, answer{200, nil, refund("40004", sub)}); got.Outcome != upstream.Unknown || !got.Park {
				t.Errorf("%s, repeat %v: %s", sub, repeat, got.Outcome)
			}
		}
	}
}

func TestAlipayIdempotent(t *testing.T) {
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: alipay}}"))
	if err != nil {
		t.Fatal(err)
	}
	up, err := upstream.New(c.Scheduler.Upstreams["a"].Config)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		method, content string
		want            bool
	}{
		{"alipay.trade.query", `{"out_trade_no":"1"}`, true},
		{"alipay.trade.fastpay.refund.query", `{"out_trade_no":"1"}`, true},
		{"alipay.data.dataservice.bill.downloadurl.query", `{}`, true},
		{"alipay.trade.query", "not JSON", true},
		{"alipay.trade.close", `{"out_trade_no":"1"}`, true},
		{"alipay.trade.refund", `{"out_trade_no":"1","refund_amount":"1.00","out_request_no":"r1"}`, true},
		{"alipay.trade.refund", `{"out_trade_no":"1","refund_amount":"1.00","out_request_no":""}`, false},
		{"alipay.trade.refund", `{"out_trade_no":"1","refund_amount":"1.00"}`, false}, // a repeat would be a second refund
		{"alipay.trade.refund", "encrypted", false},
		{"alipay.trade.refund", "", false},
		{"alipay.trade.pay", `{"out_trade_no":"1"}`, false},
		{"alipay.trade.precreate", `{"out_trade_no":"1"}`, true},
		{"alipay.trade.cancel", `{"out_trade_no":"1"}`, true},
		{"alipay.fund.trans.uni.transfer", `{"out_biz_no":"1"}`, false},
		{"", "", false},
	}
	for _, tt := range tests {
		if got := up.Repeatable(upstream.NewInput(call(tt.method, tt.content))); got != tt.want {
			t.Errorf("%s %s: repeatable %v, want %v", tt.method, tt.content, got, tt.want)
		}
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

func TestGenericPreset(t *testing.T) {
	after := http.Header{"Retry-After": {"3"}}
	tests := []struct {
		name   string
		answer answer
		want   upstream.Outcome
		rule   int
	}{
		{"done", answer{200, nil, "{}"}, upstream.Done, -1},
		{"redirect", answer{302, nil, ""}, upstream.Failed, -1},
		{"refused", answer{404, nil, ""}, upstream.Failed, -1},
		{"limited", answer{429, nil, ""}, upstream.NotExecuted, 0},
		{"busy until", answer{503, after, ""}, upstream.NotExecuted, 1},
		{"busy", answer{503, nil, ""}, upstream.Unknown, -1},
		{"broken", answer{500, after, ""}, upstream.Unknown, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, rule := outcome(t, "generic", "", &upstream.Request{Method: "GET", Target: "/"}, tt.answer)
			if got.Outcome != tt.want || rule != tt.rule {
				t.Errorf("outcome %s by rule %d (%s), want %s by rule %d", got.Outcome, rule, got.Reason, tt.want, tt.rule)
			}
		})
	}

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

func TestPresets(t *testing.T) {
	if got := Presets(); !slices.Equal(got, []string{"alipay", "alipay-v3", "generic", "stripe", "wechatpay-v3"}) {
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
