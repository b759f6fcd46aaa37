package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// A client that waits gets the platform's answer unchanged, and an outcome that neither
// calls a payment failed that may be made, nor made one that is not. The answers are those
// of platforms: pkg/config has them all, with their sources.
func TestPresetOutcomes(t *testing.T) {
	const json, xml, form = "application/json", "text/xml", "application/x-www-form-urlencoded;charset=utf-8"
	alipay := func(method, content string) string {
		return url.Values{"app_id": {appID}, "method": {method}, "biz_content": {content}}.Encode()
	}
	said := func(code, more string) string {
		return `{"alipay_x_response":{"code":"` + code + `",` + more + `"msg":"m"},"sign":"s"}`
	}
	failed := func(code string) string {
		return `<xml><return_code>SUCCESS</return_code><result_code>FAIL</result_code><err_code>` + code + `</err_code></xml>`
	}
	const transfer, refund, pay, cancel = "alipay.fund.trans.uni.transfer", "alipay.trade.refund", "alipay.trade.pay", "alipay.trade.cancel"
	const bills, v3 = "/v3/fund-app/mch-transfer/transfer-bills", "/v3/pay/transactions/"
	tests := []struct {
		preset, target, kind, request string
		status                        int
		answer                        string
		header                        string // of the answer: name, colon, value
		want                          string
	}{
		{"wechatpay-v3", "/pay/micropay", xml, "<xml/>", 200, failed("USERPAYING"), "", "unknown"},
		{"wechatpay-v3", "/pay/micropay", xml, "<xml/>", 200, failed("BANKERROR"), "", "unknown"},
		{"wechatpay-v3", v3 + "codepay", json, `{"out_trade_no":"1"}`, 200, `{"trade_state":"USERPAYING"}`, "", "unknown"},
		{"wechatpay-v3", v3 + "codepay", json, `{"out_trade_no":"1"}`, 200, `{"trade_state":"PAYERROR"}`, "", "failed"},
		{"wechatpay-v3", bills, json, `{"out_bill_no":"1"}`, 403, `{"code":"NOT_ENOUGH"}`, "", "unknown"},
		{"wechatpay-v3", bills, json, `{"out_bill_no":"1"}`, 400, `{"code":"SOMETHING_NEW"}`, "", "unknown"},
		{"wechatpay-v3", bills, json, `{"out_bill_no":"1"}`, 200, `{"state":"FAIL"}`, "", "failed"},
		{"wechatpay-v3", "/v3/global/refunds", json, `{"out_refund_no":"1"}`, 429, `{"code":"RATELIMIT_EXCEEDED"}`, "", "unknown"},
		{"wechatpay-v3", "/v3/ecommerce/refunds/apply", json, `{"out_refund_no":"1"}`, 429, `{"code":"RATELIMIT_EXCEEDED"}`, "", "unknown"},
		{"wechatpay-v3", "/hk/v3/refunds", json, `{"out_refund_no":"1"}`, 429, `{"code":"RATELIMIT_EXCEEDED"}`, "", "unknown"},
		{"wechatpay-v3", "/v3/refund/domestic/refunds", json, `{"out_refund_no":"1"}`, 200, `{"status":"CLOSED"}`, "", "failed"},
		{"wechatpay-v3", "/secapi/pay/refund", xml, "<xml/>", 200, failed("BIZERR_NEED_RETRY"), "", "unknown"},
		{"wechatpay-v3", "/secapi/pay/refund", xml, "<xml/>", 200, failed("INVALID_REQ_TOO_MUCH"), "", "unknown"},
		{"wechatpay-v3", "/secapi/pay/reverse", xml, "<xml/>", 200, `<xml><result_code>SUCCESS</result_code><recall>Y</recall></xml>`, "", "unknown"},
		{"wechatpay-v3", v3 + "jsapi", json, `{"out_trade_no":"1"}`, 400, `{"code":"ORDERPAID"}`, "", "unknown"},

		{"alipay", "/gateway.do", form, alipay(transfer, `{"out_biz_no":"1"}`), 200, said("40004", `"sub_code":"REQUEST_PROCESSING",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(transfer, `{"out_biz_no":"1"}`), 200, said("40004", `"sub_code":"PAYMENT_UNKNOWN",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(transfer, `{"out_biz_no":"1"}`), 200, said("40004", `"sub_code":"BIZ_UNIQUE_EXCEPTION",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(transfer, `{"out_biz_no":"1"}`), 200, said("10000", `"status":"FAIL",`), "", "failed"},
		{"alipay", "/gateway.do", form, alipay(transfer, `{"out_biz_no":"1"}`), 200, said("10000", `"status":"DEALING",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(refund, `{"out_trade_no":"1"}`), 200, said("10000", `"fund_change":"N",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(refund, `{"out_trade_no":"1"}`), 200, said("10000", `"fund_change":"Y",`), "", "done"},
		{"alipay", "/gateway.do", form, alipay(pay, `{"out_trade_no":"1"}`), 200, said("10003", ``), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(pay, `{"out_trade_no":"1"}`), 200, said("40004", `"sub_code":"ACQ.TRADE_HAS_SUCCESS",`), "", "unknown"},
		{"alipay", "/gateway.do", form, alipay(cancel, `{"out_trade_no":"1"}`), 200, said("10000", `"retry_flag":"N","action":"close",`), "", "done"},
		{"alipay", "/gateway.do", form, alipay("alipay.system.oauth.token", ``), 200, `{"alipay_system_oauth_token_response":{"access_token":"a"},"sign":"s"}`, "", "done"},
		{"alipay", "/gateway.do", form, alipay("alipay.trade.page.pay", `{}`), 302, ``, "Location: /pay", "done"},

		{"generic", "/payments", json, `{}`, 409, `{}`, "", "unknown"},
		{"generic", "/payments", json, `{}`, 408, `{}`, "", "unknown"},
		{"generic", "/payments", json, `{}`, 423, `{}`, "", "unknown"},
		{"generic", "/payments", json, `{}`, 303, ``, "Location: /payments/1", "unknown"},
		{"generic", "/payments", json, `{}`, 503, ``, "Retry-After: 1", "unknown"},
		{"generic", "/payments", json, `{}`, 425, ``, "", "not_executed"},
		{"stripe", "/v1/charges", form, ``, 503, ``, "Retry-After: 1", "unknown"},
		{"stripe", "/v1/charges", form, ``, 400, `{}`, "Stripe-Should-Retry: true", "unknown"},
		{"stripe", "/v1/charges", form, ``, 409, `{}`, "", "unknown"},
	}
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.Header.Get("X-Row"))
		if err != nil {
			t.Errorf("row %q", r.Header.Get("X-Row"))
			return
		}
		if name, value, ok := strings.Cut(tests[n].header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(tests[n].status)
		io.WriteString(w, tests[n].answer)
	}))
	yaml := "admin: 127.0.0.1:0\nstore: memory\nupstreams:\n"
	for name, more := range map[string]string{"alipay": "", "wechatpay-v3": "", "stripe": ", resend: false", "generic": ", idempotency: {header: Idempotency-Key, retention: 24h}"} {
		yaml += "  " + name + ": {listen: '127.0.0.1:0', url: '" + platform + "', preset: " + name + ", breaker: {unknown: 0}" + more + "}\n"
	}
	p := launch(t, yaml)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for n, tt := range tests {
		r := httptest.NewRequest("POST", p.url(t, "upstreams."+tt.preset+".listen")+tt.target, strings.NewReader(tt.request))
		r.RequestURI = ""
		r.Header.Set("Content-Type", tt.kind)
		r.Header.Set("X-Row", strconv.Itoa(n))
		if tt.preset == "generic" {
			r.Header.Set("Idempotency-Key", "key-"+strconv.Itoa(n))
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := resp.Header.Get("Throttler-Outcome"); err != nil || got != tt.want || resp.StatusCode != tt.status || string(body) != tt.answer {
			t.Errorf("%s %s: %d %s gives %s with %d %s, want %s", tt.preset, tt.target, tt.status, tt.answer, got, resp.StatusCode, body, tt.want)
		}
	}
}
