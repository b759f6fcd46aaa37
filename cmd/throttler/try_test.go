package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a command line and returns its output, its messages and its exit code.
func command(t *testing.T, args ...string) (out, messages string, code int) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = run(t.Context(), args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// file writes a file of a test.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const triedConfig = `
store: memory
upstreams:
  alipay:
    url: https://openapi.alipay.com
    preset: alipay
    share_by: param("app_id")
    weights: {shop7: 2}
    limits:
      - {name: app, per_key: param("app_id"), calls: 100, window: 1s}
      - {name: refund, when: 'param("method") == "alipay.trade.refund"', per_key: 'param("app_id")', calls: 20, window: 1s}
  wechat:
    url: https://api.mch.weixin.qq.com
    preset: wechatpay-v3
    limits: [{name: mch, calls: 600, window: minute, time_zone: Asia/Shanghai}]
  stripe:
    url: https://api.stripe.com
    preset: stripe
    outcomes: [{when: 'status == 418', is: failed}]
    limits: [{name: all, calls: 100, window: 1s}]
  shop:
    url: https://shop.example
    outcomes: [{when: 'body("errcode") > 0', is: failed}]
    proof: [{holds: 'body("state") == "paid"'}]
    limits: [{name: all, calls: 100, window: 1s}]
  jobs:
    url: https://jobs.example
    limits: [{name: all, calls: 100, window: 1s}]
    resolve:
      - when: 'status == 202 and answer_header("Location") != ""'
        target: location
        outcomes: [{when: 'body("state") == "made"', is: done}]
  limits:
    url: https://limits.example
    outcomes: [{when: 'status == 418', is: failed}]
    limited:
      - 401
      - 404
  limit:
    url: https://limit.example
    limited: 503
`

// TestTry compares the lines of throttler try for three platforms.
func TestTry(t *testing.T) {
	path := file(t, "throttler.yaml", triedConfig)
	refund := file(t, "refund.txt", `app_id=shop7&method=alipay.trade.refund&biz_content={"out_trade_no":"20261122001","out_request_no":"R-88123"}`)
	for _, tt := range []struct {
		name string
		args []string
		want []string // each in the output, without regard to the width of columns
	}{
		{"a refund of Alipay is limited", []string{"alipay", "/gateway.do", "-d", "@" + refund, "--answer", `200 {"alipay_trade_refund_response":{"code":"40005"}}`}, []string{
			`limits app key "shop7" cost 1 100 / 1s`,
			`refund key "shop7" cost 1 20 / 1s`,
			`flow shop7, weight 2`,
			`priority 10 at the data listener, 0 if it is submitted`,
			`order "20261122001"`, `refund "R-88123"`,
			`repeat recognised by the platform: idempotent (preset alipay:`,
			`answer not_executed, by outcomes[`, `of preset alipay:`,
			`pauses `,
		}},
		{"an order of WeChat Pay", []string{"wechat", "/v3/refund/domestic/refunds", "-d", `{"out_trade_no":"1","out_refund_no":"R-1"}`, "--answer", `429 {"code":"FREQUENCY_LIMITED"}`}, []string{
			`limits mch cost 1 600 / minute`, `refund "R-1"`, `answer unknown, by outcomes[`, `of preset wechatpay-v3:`, `the call waits for a person: `, // its signature is good for one sending

		}},
		{"Stripe, with a key and a rule of the file", []string{"stripe", "/v1/refunds", "-d", "charge=ch_1", "-H", "Idempotency-Key: k1", "--answer", "418 teapot"}, []string{
			`limits all cost 1 100 / 1s`, `repeat recognised by the platform: idempotency.header (preset stripe:`,
			`answer failed, by outcomes[0] of ` + path + `:19: status == 418`, `the call ends`,
		}},
		{"Stripe, without a key", []string{"stripe", "/v1/refunds", "-d", "charge=ch_1", "--answer", "500"}, []string{
			`repeat not recognised by the platform: it may be executed twice`,
			`answer unknown, by`, `the call waits for a person: it may have been executed, and neither a repeat nor a query can settle it`,
		}},
		{"a rule that cannot be computed", []string{"shop", "/pay", "-d", "a=1", "--answer", `200 {"errcode":"40001"}`}, []string{
			`answer unknown, by outcomes[0] of ` + path + `:23: rule outcomes[0] cannot be computed: a text is compared with a number (in 'body("errcode") > 0')`,
			`the call waits for a person: it may have been executed, and neither a repeat nor a query can settle it`,
		}},
		{"an answer that proves nothing", []string{"shop", "/pay", "-d", "a=1", "--answer", `200 {"state":"open"}`}, []string{
			`answer unknown, because of status 200, but the answer does not prove success: proof[0].holds is not true ('body("state") == "paid"')`,
		}},
		{"a page of a gateway", []string{"shop", "/pay", "-d", "a=1", "--answer", `200 <html></html>`, "--answer-header", "Content-Type: text/html"}, []string{
			`answer unknown, because of status 200, but the answer does not prove success: its media type is text/html, not application/json`,
		}},
		{"accepted, with a place to ask", []string{"jobs", "/jobs", "-d", "{}", "--answer", "202 {}", "--answer-header", "Location: jobs/7"}, []string{
			`answer unknown, because of status 202: accepted, and resolve asks for its end a query asks the platform; until it says more the call stays unknown`,
		}},
		{"accepted, with a place elsewhere", []string{"jobs", "/jobs", "-d", "{}", "--answer", "202 {}", "--answer-header", "Location: https://other.example/7"}, []string{
			`the call waits for a person: no query asks the platform, because location cannot be computed for this request: the Location of the answer to it leads to another host`,
		}},
		{"a query that is not about this answer", []string{"jobs", "/jobs", "-d", "{}", "--answer", "503", "--answer-header", "Retry-After: 5"}, []string{
			`: status == 503 and header("Retry-After") != "" the call waits for a person: it may have been executed, and neither a repeat nor a query can settle it`,
		}},
		{"a proven one", []string{"shop", "/pay", "-d", "a=1", "--answer", `200 {"state":"paid"}`}, []string{`answer done, by its status alone; proven by proof[0] of ` + path + `:24`}},
		{"one that a preset has proven", []string{"stripe", "/v1/refunds", "-d", "charge=ch_1", "--answer", `200 {"object":"refund","status":"succeeded"}`}, []string{`; proven by proof[0] of preset stripe:40`}},
		{"limited by the first of a list", []string{"limits", "/", "--answer", "401"}, []string{`answer not_executed, by limited[0] of ` + path + `:37: status == 401`}},
		{"limited by the second of a list", []string{"limits", "/", "--answer", "404"}, []string{`answer not_executed, by limited[1] of ` + path + `:38: status == 404`}},
		{"a preset's rule behind a list", []string{"limits", "/", "--answer", "408"}, []string{`answer unknown, by outcomes[6] of preset generic:24: status == 408`}},
		{"a preset's rule behind a list, with its line", []string{"limits", "/", "-d", "{}", "--answer", "503", "--answer-header", "Retry-After: 5"}, []string{`answer unknown, by outcomes[3] of preset generic:16: status == 503`}},
		{"limited by one status", []string{"limit", "/", "--answer", "503"}, []string{`answer not_executed, by limited[0] of ` + path + `:41: status == 503`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, messages, code := command(t, append([]string{"try", "-c", path}, tt.args...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, messages)
			}
			out = strings.Join(strings.Fields(out), " ")
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
		})
	}
}

// TestTryRefuses compares the messages of requests and flags that cannot be tried.
func TestTryRefuses(t *testing.T) {
	path := file(t, "throttler.yaml", triedConfig)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"alipai", "/"}, `upstream "alipai" is not in the configuration; there are alipay, jobs, limit, limits, shop, stripe, wechat; did you mean alipay?`},
		{[]string{"alipay"}, `TARGET is missing`},
		{[]string{"alipay", "/gateway.do"}, `the request would be refused: limit "app": per_key: param("app_id") is empty`},
		{[]string{"stripe", "/", "-H", "x"}, `-H is "x", must be a name and a value`},
		{[]string{"stripe", "/", "--answer", "ok"}, `--answer begins with "ok", must begin with a status from 200 to 599`},
		{[]string{"stripe", "/", "--answer-header", "Retry-After: 5"}, `--answer-header needs --answer`},
		{[]string{"stripe", "/", "-d", "@/nonexistent"}, `-d: open /nonexistent`},
		{[]string{"stripe", "v1"}, `must begin with a slash`},
	} {
		_, messages, code := command(t, append([]string{"try", "-c", path}, tt.args...)...)
		if code == 0 || !strings.Contains(messages, tt.want) {
			t.Errorf("%v: exit code %d, %q is not in %q", tt.args, code, tt.want, messages)
		}
	}
}

// TestConfigShow compares sources of values, and looks for secrets.
func TestConfigShow(t *testing.T) {
	t.Setenv("THROTTLER_UPSTREAMS_SHOP_TIMEOUT", "9s")
	t.Setenv("SHOP_SECRET", "whsec_"+strings.Repeat("c2VjcmV0", 4))
	const yaml = `admin: 127.0.0.1:9099
store: memory
upstreams:
  shop:
    url: https://shop.example/canary-path
    preset: stripe
    outcomes:
      - {when: status == 418, is: failed}
    limits:
      - {name: all, calls: 7, window: 1s}
    callbacks:
      hook: {url: 'https://hook.example/canary-hook', secret: 'env:SHOP_SECRET'}
`
	path := file(t, "throttler.yaml", yaml)
	out, messages, code := command(t, "config", "show", "-c", path, "--log-level", "debug")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, messages)
	}
	flat := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"admin " + path + ":1 127.0.0.1:9099",
		"log.level --log-level debug",
		"keep_calls default 168h",
		"grace default 35s",
		"upstreams.shop.timeout THROTTLER_UPSTREAMS_SHOP_TIMEOUT 9s",
		"upstreams.shop.late default 5s",
		"upstreams.shop.limits[all].calls " + path + ":10 7",
		"upstreams.shop.url " + path + ":5 https://shop.example/…",
		"upstreams.shop.outcomes[0].when " + path + ":8 status == 418",
		"upstreams.shop.outcomes[1].when preset stripe:",
		"upstreams.shop.idempotency.header preset stripe:",
		"upstreams.shop.callbacks.hook.secret " + path + ":12 env:SHOP_SECRET",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "canary") || strings.Contains(out, "whsec") {
		t.Errorf("a secret is shown:\n%s", out)
	}
	out, _, code = command(t, "config", "show", "-c", path, "-o", "json")
	if code != 0 || !strings.Contains(out, `{"path":"admin","value":"127.0.0.1:9099","source":"`+path+`:1"}`) || strings.Contains(out, "canary") {
		t.Errorf("exit code %d, JSON is %s", code, out)
	}

	p := launch(t, strings.Replace(yaml, ":9099", ":0", 1))
	shows := func(calls string) bool {
		t.Helper()
		out, messages, code := command(t, "config", "show", "--running", "--addr", p.admin)
		if code != 0 || strings.Contains(out, "canary") || strings.Contains(out, "whsec") {
			t.Fatalf("exit code %d: %s%s", code, out, messages)
		}
		flat := strings.Join(strings.Fields(out), " ")
		return strings.Contains(flat, "upstreams.shop.limits[all].calls "+p.file+":10 "+calls) && strings.Contains(flat, "upstreams.shop.timeout THROTTLER_UPSTREAMS_SHOP_TIMEOUT 9s")
	}
	if !shows("7 ") {
		t.Error("the configuration of the sidecar is not shown")
	}
	if err := os.WriteFile(p.file, []byte(strings.NewReplacer(":9099", ":0", "calls: 7", "calls: 8").Replace(yaml)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.until(t, "reloaded", func() bool { return shows("8 ") })
	if _, messages, code := command(t, "config", "show", "--running", "-c", path); code != exitUsage {
		t.Errorf("--running with -c: exit code %d: %s", code, messages)
	}
}
