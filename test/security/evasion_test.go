package security

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A fate is the end of a request that tries not to be counted.
type fate string

const (
	counted fate = "counted" // it is sent, and the limit counts it
	refused fate = "refused" // it is refused, because the limit cannot read it
	free    fate = "free"    // it is sent and not counted: no platform takes it for a refund
)

// An evasion is a request at an upstream whose limit is under the condition of that name.
type evasion struct {
	name, condition, raw string
	fate                 fate
}

// conditions of the limits.
var conditions = map[string]string{
	"query":  `query("method") == "refund"`,
	"form":   `form("method") == "refund"`,
	"param":  `param("method") == "refund"`,
	"json":   `json("kind") == "refund"`,
	"biz":    `param("biz_content") != "" and fromJSON(param("biz_content")).kind == "refund"`,
	"path":   `path startsWith "/v3/refund"`,
	"header": `header("X-Kind") == "refund"`,
}

func get(target string) string { return to("GET "+target) + "\r\n" }

func send(kind, body string) string {
	return post(fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body))
}

const (
	form = "application/x-www-form-urlencoded"
	js   = "application/json"
	bom  = "\xef\xbb\xbf"
)

// parts is a multipart form; each part has its own head.
func parts(all ...string) string {
	var b strings.Builder
	for i := 0; i < len(all); i += 2 {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", all[i], all[i+1])
	}
	return b.String() + "--b--\r\n"
}

// untyped is a POST without a Content-Type.
func untyped(body string) string {
	return post(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
}

// zipped is a packed body.
func zipped(kind, body string) string {
	body = packed(body)
	return post(fmt.Sprintf("Content-Type: %s\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body))
}

func withQuery(target, kind, body string) string {
	return strings.Replace(send(kind, body), "POST /x", "POST "+target, 1)
}

var evasions = []evasion{
	{"query: in the clear", "query", get("/x?method=refund"), counted},
	{"query: escaped name", "query", get("/x?%6dethod=refund"), counted},
	{"query: escaped value", "query", get("/x?method=%72efund"), counted},
	{"query: behind empty ones", "query", get("/x?&&=&method=refund"), counted},
	{"query: 8,000 parameters", "query", get("/x?method=refund" + strings.Repeat("&a", 8000)), counted},
	{"query: broken escape beside it", "query", get("/x?method=refund&a=%zz"), refused},
	{"query: semicolon beside it", "query", get("/x?a=1;method=refund"), refused},
	{"query: twice, the first is harmless", "query", get("/x?method=query&method=refund"), refused},
	{"query: twice, the last is harmless", "query", get("/x?method=refund&method=query"), refused},
	{"query: twice, once escaped", "query", get("/x?method=query&m%65thod=refund"), refused},
	{"query: in another case", "query", get("/x?Method=refund"), refused},
	{"query: in two cases", "query", get("/x?method=query&METHOD=refund"), refused},
	{"query: of another name", "query", get("/x?method2=refund"), free},

	{"form: in the clear", "form", send(form, "method=refund"), counted},
	{"form: with a charset", "form", send(form+"; charset=utf-8", "method=refund"), counted},
	{"form: type in upper case", "form", send("Application/X-WWW-Form-URLEncoded", "method=refund"), counted},
	{"form: broken parameter of the type", "form", send(form+"; charset", "method=refund"), counted},
	{"form: parameter of the type twice", "form", send(form+"; a=1; a=2", "method=refund"), refused},
	{"form: two types", "form", post("Content-Type: text/plain\r\nContent-Type: " + form + "\r\nContent-Length: 13\r\n\r\nmethod=refund"), refused},
	{"form: list of types", "form", send("text/plain, "+form, "method=refund"), refused},
	{"form: twice", "form", send(form, "method=query&method=refund"), refused},
	{"form: in two cases", "form", send(form, "method=query&Method=refund"), refused},
	{"form: broken escape beside it", "form", send(form, "method=refund&a=%"), refused},
	{"form: 10,001 parameters", "form", send(form, "method=refund"+strings.Repeat("&a", 10_001)), refused},
	{"form: packed", "form", zipped(form, "method=refund"), refused},
	{"form: in chunks", "form", post("Content-Type: " + form + "\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nmethod=\r\n6\r\nrefund\r\n0\r\n\r\n"), counted},
	{"form: of parts", "form", send("multipart/form-data; boundary=b", parts(`name="method"`, "refund")), counted},
	{"form: of parts, twice", "form", send("multipart/form-data; boundary=b", parts(`name="method"`, "query", `name="method"`, "refund")), refused},
	{"form: of parts, in two cases", "form", send("multipart/form-data; boundary=b", parts(`name="method"`, "query", `name="METHOD"`, "refund")), refused},
	{"form: of parts, breaks off", "form", send("multipart/form-data; boundary=b", strings.TrimSuffix(parts(`name="method"`, "refund"), "--b--\r\n")), refused},
	{"form: of parts, another boundary", "form", send("multipart/form-data; boundary=c", parts(`name="method"`, "refund")), refused},
	{"form: of parts, no boundary", "form", send("multipart/form-data", parts(`name="method"`, "refund")), refused},
	{"form: of parts, without quotes", "form", send("multipart/form-data; boundary=b", parts(`name=method`, "refund")), counted},

	{"param: in the query", "param", get("/x?method=refund"), counted},
	{"param: in the form", "param", send(form, "method=refund"), counted},
	{"param: in both, the same", "param", withQuery("/x?method=refund", form, "method=refund"), counted},
	{"param: in both, the query is harmless", "param", withQuery("/x?method=query", form, "method=refund"), refused},
	{"param: in both, the form is harmless", "param", withQuery("/x?method=refund", form, "method=query"), refused},
	{"param: empty in the query", "param", withQuery("/x?method=", form, "method=refund"), refused},
	{"param: broken form beside the query", "param", withQuery("/x?method=query", form, "method=refund&%"), refused},

	{"json: in the clear", "json", send(js, `{"kind":"refund"}`), counted},
	{"json: no type", "json", untyped(`{"kind":"refund"}`), counted},
	{"json: behind spaces", "json", send(js, " \r\n\t"+`{"kind":"refund"}`), counted},
	{"json: behind a byte order mark", "json", send(js, bom+`{"kind":"refund"}`), counted},
	{"json: escaped value", "json", send(js, `{"kind":"\u0072efund"}`), counted},
	{"json: escaped name", "json", send(js, `{"\u006bind":"refund"}`), counted},
	{"json: twice, the first is harmless", "json", send(js, `{"kind":"query","kind":"refund"}`), refused},
	{"json: twice, the last is harmless", "json", send(js, `{"kind":"refund","kind":"query"}`), refused},
	{"json: twice, once escaped", "json", send(js, `{"kind":"query","k\u0069nd":"refund"}`), refused},
	{"json: in two cases", "json", send(js, `{"kind":"query","Kind":"refund"}`), refused},
	{"json: comma at the end", "json", send(js, `{"kind":"refund",}`), refused},
	{"json: comma at the end, no type", "json", untyped(`{"kind":"refund",}`), refused},
	{"json: comment", "json", send(js, `{/**/"kind":"refund"}`), refused},
	{"json: single quotes, as a text", "json", send("text/plain", `{'kind':'refund'}`), refused},
	{"json: two documents", "json", send(js, `{"kind":"query"}{"kind":"refund"}`), refused},
	{"json: 1,001 levels beside it", "json", send(js, `{"kind":"refund","a":`+strings.Repeat("[", 1001)+strings.Repeat("]", 1001)+`}`), refused},
	{"json: two bytes a character", "json", send(js, "\xff\xfe{\x00\"\x00k\x00"), refused},
	{"json: packed", "json", zipped(js, `{"kind":"refund"}`), refused},
	{"json: of a vendor's type, broken", "json", send("application/vnd.a+json; charset=utf-8", `{"kind":"refund",}`), refused},
	{"json: inside another object", "json", send(js, `{"a":{"kind":"refund"}}`), free},

	{"biz: in the clear", "biz", send(form, "biz_content=%7B%22kind%22%3A%22refund%22%7D"), counted},
	{"biz: twice inside", "biz", send(form, "biz_content=%7B%22kind%22%3A%22query%22%2C%22kind%22%3A%22refund%22%7D"), refused},
	{"biz: byte order mark inside", "biz", send(form, "biz_content=%EF%BB%BF%7B%22kind%22%3A%22refund%22%7D"), counted},
	{"biz: no JSON inside", "biz", send(form, "biz_content=%7Bkind%3Arefund%7D"), refused},
	{"biz: 100,000 brackets inside", "biz", send(form, "biz_content="+strings.Repeat("[", 100_000)), refused},

	{"path: in the clear", "path", get("/v3/refund"), counted},
	{"path: escaped letter", "path", get("/v3/%72efund"), counted},
	{"path: escaped letters", "path", get("/%76%33/%72%65%66%75%6e%64"), counted},
	{"path: escaped in upper case", "path", get("/v3/ref%75n%64"), counted},
	{"path: with a parameter", "path", get("/v3/refund;a=b"), counted},
	{"path: with a parameter ahead", "path", get("/v3;a=b/refund"), refused},
	{"path: with an escaped parameter ahead", "path", get("/v3%3Ba=b/refund"), refused},
	{"path: with an empty parameter for a segment", "path", get("/v3/;/refund"), refused},
	{"path: escaped slash", "path", get("/v3%2Frefund"), refused},
	{"path: escaped slash in lower case", "path", get("/v3%2frefund"), refused},
	{"path: escaped slash behind a slash", "path", get("/v3/%2Frefund"), refused},
	{"path: escaped slash in a parameter", "path", get("/v3;%2Frefund"), refused},
	{"path: escaped slash behind it", "path", get("/v3/refund%2F7"), counted},
	{"path: two slashes", "path", get("/v3//refund"), refused},
	{"path: two slashes behind it", "path", get("/v3/refund//7"), counted},
	{"path: backslash", "path", get(`/v3\refund`), refused},
	{"path: escaped backslash", "path", get("/v3%5Crefund"), refused},
	{"path: parameter and backslash", "path", get(`/v3;x\refund`), refused},
	{"path: escaped slash elsewhere", "path", get("/v4/group%2Frefund"), free},
	{"path: two slashes elsewhere", "path", get("/v4//v3/refund"), free},
	{"path: slash at the end", "path", get("/v3/refund/"), counted},
	{"path: dot", "path", get("/v3/./refund"), refused},
	{"path: escaped dot", "path", get("/v3/%2e/refund"), refused},
	{"path: dots", "path", get("/v3/a/../refund"), refused},
	{"path: escaped dots and slash", "path", get("/v3/a%2f..%2frefund"), refused},
	{"path: absolute form", "path", get("http://localhost/v3/refund"), counted},
	{"path: absolute form, escaped", "path", get("http://localhost/v3/%72efund"), counted},
	{"path: in the query only", "path", get("/v3/query?/v3/refund"), free},

	{"header: in the clear", "header", to("GET /x") + "X-Kind: refund\r\n\r\n", counted},
	{"header: name in lower case", "header", to("GET /x") + "x-kind: refund\r\n\r\n", counted},
	{"header: spaces around", "header", to("GET /x") + "X-Kind: \t refund \t\r\n\r\n", counted},
	{"header: twice", "header", to("GET /x") + "X-Kind: query\r\nX-Kind: refund\r\n\r\n", refused},
	{"header: folded", "header", to("GET /x") + "X-Kind:\r\n refund\r\n\r\n", counted},
}

// TestEvasion sends requests that a platform takes for refunds in ways that a limit might
// not see: each is counted, or refused.
func TestEvasion(t *testing.T) {
	f := newFamily(t, "evasion", 20)
	p := newPlatform(t, always(ok))
	yaml := ""
	for name, when := range conditions {
		yaml += fmt.Sprintf("  %s:\n    listen: 127.0.0.1:0\n    url: http://%s\n    limits: [{name: refunds, when: '%s', calls: 100000, window: 1h}]\n", name, p.addr, when)
	}
	s := start(t, yaml)
	out := func(t *testing.T, upstream string) int {
		t.Helper()
		type limits struct {
			Limits []struct {
				Limit string
				Out   int
			}
		}
		for _, l := range read[limits](t, ask(t, "GET", s.admin, "/v1/limits?upstream="+upstream, "")).Limits {
			if l.Limit == "refunds" {
				return l.Out
			}
		}
		t.Fatal("there is no such limit")
		return 0
	}
	for _, tt := range evasions {
		f.attack(tt.name, func(t *testing.T) {
			before := out(t, tt.condition)
			replies, _ := strike(t, s.data(t, tt.condition), tt.raw)
			all := slices.DeleteFunc(p.take(), func(a arrival) bool { return a.target == "/fence" })
			fate, status := free, 200
			switch more := out(t, tt.condition) - before; {
			case len(all) == 0:
				fate, status = refused, 400
			case more == 1:
				fate = counted
			case more != 0:
				t.Errorf("the limit counts %d calls", more)
			}
			if fate != tt.fate || replies[0].status != status {
				t.Errorf("%s with status %d, want %s: %s", fate, replies[0].status, tt.fate, replies[0].body)
			}
			if status == 400 && strings.Contains(replies[0].body, "refund\"") {
				t.Errorf("the refusal quotes the request: %s", replies[0].body)
			}
			p.check(t)
			s.alive(t)
		})
	}
}
