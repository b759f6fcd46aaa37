package security

import (
	"fmt"
	"strings"
	"testing"
)

// A repeat is a second request under the Idempotency-Key of a first, often by another caller.
type repeat struct {
	name, upstream string
	first, second  request
	status         int // of the second answer: 200 if it is the stored one, 422 if it is refused
}

type request struct {
	method, target, body string
	lines                []string
}

func auth(value string) request {
	return request{"POST", "/pay", "a=1", got("Content-Type: "+form, "Authorization: "+value)}
}

func field(line string) request {
	return request{"POST", "/pay", "a=1", got("Content-Type: "+form, line)}
}

func paying(target, body string) request {
	return request{"POST", target, body, got("Content-Type: " + form)}
}

var repeats = []repeat{
	{"another token", "generic", auth("Bearer a"), auth("Bearer b"), 422},
	{"another password", "generic", auth("Basic YTpi"), auth("Basic YTpj"), 422},
	{"another Token", "generic", auth("Token a"), auth("Token b"), 422},
	{"another ApiKey", "generic", auth("ApiKey a"), auth("ApiKey b"), 422},
	{"another DPoP", "generic", auth("DPoP a"), auth("DPoP b"), 422},
	{"another key of HMAC", "generic", auth("HMAC keyId=1,signature=x"), auth("HMAC keyId=2,signature=x"), 422},
	{"another signature of an unknown scheme", "generic", auth("HMAC keyId=1,signature=x"), auth("HMAC keyId=1,signature=y"), 422},
	{"another key of AWS", "generic", auth("AWS4-HMAC-SHA256 Credential=AKIA1/20260101/r/s/aws4_request, SignedHeaders=host, Signature=x"), auth("AWS4-HMAC-SHA256 Credential=AKIA2/20260101/r/s/aws4_request, SignedHeaders=host, Signature=x"), 422},
	{"another merchant of WeChat Pay", "generic", auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a",timestamp="1",serial_no="s",signature="x"`), auth(`WECHATPAY2-SHA256-RSA2048 mchid="2",nonce_str="b",timestamp="2",serial_no="s",signature="y"`), 422},
	{"another app of Alipay v3", "generic", auth("ALIPAY-SHA256withRSA app_id=1,nonce=a,timestamp=1,sign=x"), auth("ALIPAY-SHA256withRSA app_id=2,nonce=b,timestamp=2,sign=y"), 422},
	{"another key of HTTP signatures", "generic", auth(`Signature keyId="1",signature="x"`), auth(`Signature keyId="2",signature="y"`), 422},
	{"another scheme", "generic", auth("Bearer a"), auth("bearer b"), 422},
	{"no credentials", "generic", auth("Bearer a"), paying("/pay", "a=1"), 422},
	{"credentials added", "generic", paying("/pay", "a=1"), auth("Bearer a"), 422},
	{"another cookie", "generic", field("Cookie: session=a"), field("Cookie: session=b"), 422},
	{"another key field", "generic", field("X-Api-Key: a"), field("X-Api-Key: b"), 422},
	{"another tenant", "generic", field("X-Tenant: a"), field("X-Tenant: b"), 422},
	{"two lines of credentials", "generic", auth("Bearer a"), request{"POST", "/pay", "a=1", got("Content-Type: "+form, "Authorization: Bearer a", "Authorization: Bearer b")}, 422},
	{"another body", "generic", paying("/pay", "a=1"), paying("/pay", "a=2"), 422},
	{"another path", "generic", paying("/pay", "a=1"), paying("/pay/", "a=1"), 422},
	{"another query", "generic", paying("/pay?a", "a=1"), paying("/pay?b", "a=1"), 422},
	{"another method", "generic", paying("/pay", "a=1"), request{"PUT", "/pay", "a=1", got("Content-Type: " + form)}, 422},
	{"another type", "generic", paying("/pay", "a=1"), request{"POST", "/pay", "a=1", got("Content-Type: text/plain")}, 422},
	{"bytes moved from the body to the query", "generic", paying("/pay?a=1", "b=2"), paying("/pay", "a=1&b=2"), 422},
	{"the same, signed anew by WeChat Pay", "generic", auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a",timestamp="1",serial_no="s",signature="x"`), auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="b",timestamp="2",serial_no="s",signature="y"`), 200},
	{"the same at another time", "generic", field("Date: Mon, 01 Jan 2024 00:00:00 GMT"), field("Date: Tue, 02 Jan 2024 00:00:00 GMT"), 200},
	{"another amount at Alipay", "alipay", paying("/gateway.do?method=x", "biz_content=1&timestamp=1&sign=a"), paying("/gateway.do?method=x", "biz_content=2&timestamp=2&sign=b"), 422},
	{"another app at Alipay", "alipay", paying("/gateway.do?app_id=1", "biz_content=1&timestamp=1&sign=a"), paying("/gateway.do?app_id=2", "biz_content=1&timestamp=2&sign=b"), 422},
	{"another token at Alipay", "alipay", paying("/gateway.do?app_auth_token=a", "biz_content=1&sign=a"), paying("/gateway.do?app_auth_token=b", "biz_content=1&sign=b"), 422},
	{"parameter twice at Alipay", "alipay", paying("/gateway.do?a=1", "biz_content=1"), paying("/gateway.do?a=1&a=2", "biz_content=1"), 422},
	{"the same at Alipay, signed anew", "alipay", paying("/gateway.do", "biz_content=1&timestamp=1&sign=a"), paying("/gateway.do", "biz_content=1&timestamp=2&sign=b"), 200},
}

// TestReplay asks for the stored answer of another caller. Nothing but the first request
// reaches the platform, and only an honest repeat gets its answer.
func TestReplay(t *testing.T) {
	f := newFamily(t, "replay", 8)
	p := newPlatform(t, func(a arrival) (string, bool) { // a success at Alipay, too
		return withBody("X-Secret: of the first\r\n", `{"x_response":{"code":"10000"}}`), true
	})
	s := start(t, fmt.Sprintf("  generic: {listen: '127.0.0.1:0', url: 'http://%s', replay: true}\n  alipay: {listen: '127.0.0.1:0', url: 'http://%s', preset: alipay}\n", p.addr, p.addr))
	for i, tt := range repeats {
		f.attack(tt.name, func(t *testing.T) {
			key := fmt.Sprintf("Idempotency-Key: key-%d", i)
			do := func(r request) reply {
				return ask(t, r.method, s.data(t, tt.upstream), r.target, r.body, append(append([]string{}, r.lines...), key)...)
			}
			if r := do(tt.first); r.status != 200 || r.outcome() != "done" || r.header.Get("X-Secret") == "" {
				t.Fatalf("the first: %+v", r)
			}
			r := do(tt.second)
			status, stored := r.status, r.header.Get("X-Secret") != "" && r.header.Get("Idempotent-Replayed") == "true"
			if tt.upstream == "alipay" && strings.Contains(r.body, `"40002"`) { // the platform's shape has status 200
				status = 422
			}
			if status != tt.status || stored != (tt.status == 200) || tt.status != 200 && r.outcome() != "not_executed" {
				t.Errorf("%+v, want %d", r, tt.status)
			}
			if n := len(p.take()); n != 1 {
				t.Errorf("%d requests reached the platform, want 1", n)
			}
			s.alive(t)
		})
	}
}
