package upstream

import (
	"net/http"
	"strings"
	"testing"
)

func TestFingerprint(t *testing.T) {
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	req := func(target, body string, headers ...string) *Request {
		r := &Request{Method: "POST", Target: target, Header: http.Header{}, Body: []byte(body)}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		return r
	}
	post := func(target, body string) *Request {
		return &Request{Method: "POST", Target: target, Header: form, Body: []byte(body)}
	}
	part := func(boundary, file, sign string) *Request {
		body := strings.NewReplacer("\n", "\r\n", "B", boundary).Replace("--B\nContent-Disposition: form-data; name=\"sign\"\n\n" + sign +
			"\n--B\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\n\n" + file + "\n--B--\n")
		return req("/g", body, "Content-Type", "multipart/form-data; boundary="+boundary)
	}
	auth := func(value string) *Request { return req("/a", "b", "Authorization", value) }
	const params = `[method, path, params("timestamp", "sign")]`
	const elements = `[method, path, elements("nonce_str", "sign")]`
	const account = `[method, target, payload, filter(split(header("Authorization"), ","), # contains "app_id=")]`
	for _, tt := range []struct {
		name, same string
		a, b       *Request
		want       bool
	}{
		{"nothing differs", "", req("/a?x=1", "b", "X-Tenant", "t"), req("/a?x=1", "b", "X-Tenant", "t"), true},
		{"target", "", req("/a?x=1", "b"), req("/a?x=2", "b"), false},
		{"body", "", req("/a", "b"), req("/a", "c"), false},
		{"another tenant", "", req("/a", "b", "X-Tenant", "t"), req("/a", "b", "X-Tenant", "u"), false},
		{"time, client and trace", "", req("/a", "b", "Date", "1", "User-Agent", "a", "Traceparent", "1", "X-Request-Id", "1"), req("/a", "b", "Date", "2", "User-Agent", "b", "Traceparent", "2"), true},
		{"another bearer", "", req("/a", "b", "Authorization", "Bearer x"), req("/a", "b", "Authorization", "Bearer y"), false},
		{"another user", "", req("/a", "b", "Authorization", "Basic x"), req("/a", "b", "Authorization", "basic y"), false},
		{"signed anew", "", auth("AWS4-HMAC-SHA256 Credential=AKIA1/20261121/eu/s3/aws4_request, SignedHeaders=host, Signature=ab"), auth("AWS4-HMAC-SHA256 Credential=AKIA1/20261122/eu/s3/aws4_request, SignedHeaders=host, Signature=cd"), true},
		{"signed by another key", "", auth("AWS4-HMAC-SHA256 Credential=AKIA1/20261122/eu/s3/aws4_request, Signature=ab"), auth("AWS4-HMAC-SHA256 Credential=AKIA2/20261122/eu/s3/aws4_request, Signature=cd"), false},
		{"WeChat Pay, signed anew", "", auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a",timestamp="1",serial_no="5",signature="x=="`), auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="b",timestamp="2",serial_no="5",signature="y=="`), true},
		{"WeChat Pay, another merchant", "", auth(`WECHATPAY2-SHA256-RSA2048 mchid="1",nonce_str="a",timestamp="1",signature="x"`), auth(`WECHATPAY2-SHA256-RSA2048 mchid="2",nonce_str="a",timestamp="1",signature="x"`), false},
		{"Alipay, signed anew", "", auth("ALIPAY-SHA256withRSA app_id=1,nonce=a,timestamp=1"), auth("ALIPAY-SHA256withRSA app_id=1,nonce=b,timestamp=2"), true},
		{"another token", "", auth("Token a"), auth("Token b"), false},
		{"another key of an unknown scheme", "", auth("ApiKey a"), auth("ApiKey b"), false},
		{"another proof", "", auth("DPoP a"), auth("DPoP b"), false},
		{"another HMAC key", "", auth("HMAC keyId=1"), auth("HMAC keyId=2"), false},
		{"another key without a scheme", "", auth("a"), auth("b"), false},
		{"signed in another way", "", req("/a", "b", "Authorization", "AWS4-HMAC-SHA256 x"), req("/a", "b", "Authorization", "Bearer x"), false},

		{"form signed anew", params, post("/g", "a=1&timestamp=1&sign=x"), post("/g", "sign=y&timestamp=2&a=1"), true},
		{"in the query", params, post("/g?charset=utf-8", "a=1&sign=x"), post("/g?charset=utf-8&sign=y", "a=1"), true},
		{"another amount", params, post("/g", "a=1&sign=x"), post("/g", "a=2&sign=x"), false},
		{"a parameter more", params, post("/g", "a=1"), post("/g", "a=1&b=1"), false},
		{"a broken form", params, post("/g", "a=1&%zz"), post("/g", "a=1&%zy"), false},
		{"a broken query", params, post("/g?%zz", ""), post("/g?%zy", ""), false},
		{"no form", params, req("/g", `{"a":1}`, "Content-Type", "application/json"), req("/g", `{"a":2}`, "Content-Type", "application/json"), false},
		{"files", params, part("xx", "file", "1"), part("yy", "file", "2"), true},
		{"other files", params, part("xx", "file", "1"), part("xx", "life", "1"), false},
		{"an expression that fails", `json("a").b.c`, req("/g", "x"), req("/g", "y"), false},
		{"XML in another order, signed anew", elements, req("/g", "<xml><a>1</a><b>2</b><sign>x</sign></xml>"), req("/g", "<xml><sign>y</sign><b><![CDATA[2]]></b><a>1</a></xml>"), true},
		{"XML with another text", elements, req("/g", "<xml><a>1</a><b>2</b></xml>"), req("/g", "<xml><a>1</a><b>3</b></xml>"), false},
		{"XML with another element", elements, req("/g", "<xml><a>1</a></xml>"), req("/g", "<xml><a>1</a><b/></xml>"), false},
		{"XML with texts exchanged", elements, req("/g", "<xml><a>1</a><b>2</b></xml>"), req("/g", "<xml><a>2</a><b>1</b></xml>"), false},
		{"XML with elements inside", elements, req("/g", `<xml><a><b>1</b></a></xml>`), req("/g", `<xml><a>["b \\"1\\""]</a></xml>`), false},
		{"XML with another text inside", elements, req("/g", "<xml><a><b>1</b><c>1</c></a></xml>"), req("/g", "<xml><a><b>2</b><c>1</c></a></xml>"), false},
		{"XML with an element twice", elements, req("/g", "<xml><a>1</a></xml>"), req("/g", "<xml><a>1</a><a>1</a></xml>"), false},
		{"broken XML", elements, req("/g", "<xml><a>1</a><sign>x</sign>"), req("/g", "<xml><a>1</a><sign>y</sign>"), false},
		{"no XML", elements, req("/g", "a"), req("/g", "b"), false},
		{"app in the signature", account, req("/a", "b", "Authorization", "S app_id=1,nonce=1"), req("/a", "b", "Authorization", "S app_id=1,nonce=2"), true},
		{"another app", account, req("/a", "b", "Authorization", "S app_id=1,nonce=1"), req("/a", "b", "Authorization", "S app_id=2,nonce=1"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUpstream(t, Config{URL: "http://a.test", Idempotency: Idempotency{Same: tt.same}})
			if got := u.Fingerprint(tt.a) == u.Fingerprint(tt.b); got != tt.want {
				t.Errorf("the same: %v, want %v", got, tt.want)
			}
		})
	}
	_, err := New(Config{URL: "http://a.test", Idempotency: Idempotency{Same: "nothing"}})
	if err == nil || !strings.Contains(err.Error(), "idempotency.same: unknown name nothing") {
		t.Errorf("%v", err)
	}
}

// TestFilesAreToldApart by their names and their content.
func TestFilesAreToldApart(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://example.com", Idempotency: Idempotency{Same: "params()"}})
	fingerprint := func(field, file, content string) string {
		disposition := `form-data; name="` + field + `"`
		if file != "" {
			disposition += `; filename="` + file + `"`
		}
		return u.Fingerprint(post("multipart/form-data; boundary=x", "/", "--x\r\nContent-Disposition: "+disposition+"\r\n\r\n"+content+"\r\n--x--\r\n"))
	}
	same := fingerprint("f", "a.txt", "1")
	if fingerprint("f", "a.txt", "1") != same {
		t.Error("equal requests have two fingerprints")
	}
	for name, other := range map[string]string{"name": fingerprint("f", "b.txt", "1"), "content": fingerprint("f", "a.txt", "2"), "field": fingerprint("g", "a.txt", "1"), "kind": fingerprint("f", "", "1")} {
		if other == same {
			t.Errorf("requests with another %s have one fingerprint", name)
		}
	}
}
