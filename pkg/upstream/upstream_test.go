package upstream

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

const form = "application/x-www-form-urlencoded"

func post(contentType, target, body string) *Request {
	return &Request{Method: "POST", Target: target, Header: http.Header{"Content-Type": {contentType}}, Body: []byte(body)}
}

func TestRequestExpressions(t *testing.T) {
	var multi bytes.Buffer
	mw := multipart.NewWriter(&multi)
	mw.WriteField("app_id", "2021")
	mw.CreateFormFile("file", "x.png")
	mw.Close()
	biz := "biz_content=%7B%22trade_no%22%3A%22T1%22%7D"
	const trade = `let b = fromJSON(param("biz_content")); b.out_trade_no ?? b.trade_no`
	tests := []struct {
		name, key string
		r         *Request
		want      string // "error: …" for an error
	}{
		{"from the query", `param("app_id")`, post(form, "/gateway.do?app_id=2021", "a=1"), "2021"},
		{"from both", `param("app_id")`, post(form, "/gateway.do?app_id=2021", "app_id=2021"), "2021"},
		{"from the form", `param("app_id")`, post(form, "/gateway.do", "app_id=2021"), "2021"},
		{"from a multipart form", `param("app_id")`, post(mw.FormDataContentType(), "/", multi.String()), "2021"},
		{"form only", `form("app_id")`, post(form, "/?app_id=2021", ""), `error: form("app_id") is empty`},
		{"query only", `query("app_id")`, post(form, "/", "app_id=2021"), `error: query("app_id") is empty`},
		{"JSON inside a form", trade, post(form, "/", biz), "T1"},
		{"a long number inside a form", trade, post(form, "/", "biz_content="+url.QueryEscape(`{"out_trade_no":20150320010101001}`)), "20150320010101001"},
		{"a longer one", trade, post(form, "/", "biz_content="+url.QueryEscape(`{"out_trade_no":120150320010101001234}`)), "120150320010101001234"},
		{"in an array inside a form", `fromJSON(param("biz_content")).a[1].n`, post(form, "/", "biz_content="+url.QueryEscape(`{"a":[1.5,{"n":9007199254740993}]}`)), "9007199254740993"},
		{"no such JSON", trade, post(form, "/", "biz_content=x"), "error: " + trade + " cannot be computed for this request: fromJSON has a text that is no JSON, such as an encrypted one"},
		{"refused", `param("type") != "" ? refuse("it is encrypted") : "a"`, post(form, "/", "type=AES"), `error: param("type") != "" ? refuse("it is encrypted") : "a" cannot be computed for this request: it is encrypted`},
		{"neither number", trade, post(form, "/", "biz_content=%7B%7D"), "error: " + trade + " is empty"},
		{"JSON body", `json("order.id")`, post("application/json", "/", `{"order":{"id":42}}`), "42"},
		{"JSON with a star", `json("*_request.no")`, post("application/json", "/", `{"refund_request":{"no":"R1"}}`), "R1"},
		{"header", `header("x-merchant")`, &Request{Method: "GET", Target: "/", Header: http.Header{"X-Merchant": {"m1"}}}, "m1"},
		{"method and path", `method + " " + path`, &Request{Method: "GET", Target: "/v1/charges?limit=3"}, "GET /v1/charges"},
		{"overlong", `param("a")`, post(form, "/", "a="+strings.Repeat("x", 300)), `error: param("a") is 300 bytes long, at most 256 are taken`},
		{"an object", `json("a")`, post("application/json", "/", `{"a":{}}`), `error: json("a") gives a map[string]interface {}, must be a text or a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, err := Compile(tt.key, Key)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Key(NewInput(tt.r))
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRequestsThatPlatformsReadDifferently: an expression gives the value that each
// conforming platform reads, or an error, and never an empty value in its place.
func TestRequestsThatPlatformsReadDifferently(t *testing.T) {
	many := strings.Repeat("&a", 10_001)
	var file bytes.Buffer
	mw := multipart.NewWriter(&file)
	mw.WriteField("m", "refund")
	twice := mw.FormDataContentType()
	mw.WriteField("m", "query")
	mw.Close()
	const js, bom = "application/json", "\xef\xbb\xbf"
	packed := func(kind, body string) *Request {
		r := post(kind, "/", body)
		r.Header.Set("Content-Encoding", "gzip")
		return r
	}
	get := func(target string) *Request { return &Request{Method: "GET", Target: target} }
	const multi, field = "multipart/form-data; boundary=b", "Content-Disposition: form-data; name=\"m\"\r\n"
	for _, tt := range []struct {
		name, source string
		r            *Request
		want         string // empty for an error
	}{
		{"10,001 more in the query", `query("m")`, get("/?m=refund" + many), ""},
		{"10,001 more in the form", `form("m")`, post(form, "/", "m=refund"+many), ""},
		{"a broken query", `query("m")`, get("/?m=refund&x=%zz"), ""},
		{"a broken form", `param("m")`, post(form, "/", "m=refund&x=%zz"), ""},
		{"a broken form beside a query", `param("m")`, post(form, "/?m=query", "m=refund&x=%zz"), ""},
		{"a form cut off", `form("m")`, post(twice, "/", file.String()[:file.Len()-10]), ""},
		{"a form without its boundary", `form("m")`, post("multipart/form-data; boundary=x", "/", file.String()), ""},
		{"twice in the query", `query("m")`, get("/?m=query&m=refund"), ""},
		{"twice, once escaped", `query("m")`, get("/?m=query&%6d=refund"), ""},
		{"twice in the form", `form("m")`, post(form, "/", "m=query&m=refund"), ""},
		{"twice in a multipart form", `form("m")`, post(twice, "/", file.String()), ""},
		{"two values in query and form", `param("m")`, post(form, "/?m=query", "m=refund"), ""},
		{"an empty one in the query", `param("m")`, post(form, "/?m", "m=refund"), ""},
		{"twice, in two cases", `query("m")`, get("/?m=query&M=refund"), ""},
		{"in another case", `query("m") + "!"`, get("/?M=refund"), ""},
		{"in another case in the form", `param("m") + "!"`, post(form, "/?a=b", "M=refund"), ""},
		{"another one twice", `query("m")`, get("/?m=refund&x=1&x=2"), "refund"},
		{"a strange Content-Type", `form("m") + "!"`, post(form+"; a=1; a=2", "/", "m=refund"), ""},
		{"two Content-Types", `form("m") + "!"`, &Request{Method: "POST", Target: "/", Body: []byte("m=refund"), Header: http.Header{"Content-Type": {"text/plain", form}}}, ""},
		{"a sloppy Content-Type", `form("m")`, post(form+"; charset", "/", "m=refund"), "refund"},
		{"two headers", `header("X-App")`, &Request{Method: "GET", Target: "/", Header: http.Header{"X-App": {"a", "b"}}}, ""},
		{"a member twice", `json("m")`, post(js, "/", `{"m":"query","m":"refund"}`), ""},
		{"a member twice, once escaped", `json("m")`, post(js, "/", `{"m":"query","\u006d":"refund"}`), ""},
		{"a member in two cases", `json("m")`, post(js, "/", `{"m":"query","M":"refund"}`), ""},
		{"packed JSON", `json("m") ?? "none"`, packed(js, "\x1f\x8b"), ""},
		{"a packed form", `form("m") + "!"`, packed(form, "\x1f\x8b"), ""},
		{"an object twice", `json("a.m")`, post(js, "/", `{"a":{"m":"query"},"a":{"m":"refund"}}`), ""},
		{"a member twice in an object of an array", `json("a.1.m")`, post(js, "/", `{"a":[{},{"m":"query","m":"refund"}]}`), ""},
		{"a member once in each object", `json("a.1.m")`, post(js, "/", `{"m":1,"a":[{"m":"x"},{"m":"refund"}],"b":{"m":":"}}`), "refund"},
		{"a member twice inside a parameter", `fromJSON(param("biz")).m`, get("/?biz=" + url.QueryEscape(`{"m":"query","m":"refund"}`)), ""},
		{"a byte order mark", `json("m")`, post(js, "/", bom+`{"m":"refund"}`), "refund"},
		{"a byte order mark inside a parameter", `fromJSON(param("biz")).m`, get("/?biz=" + url.QueryEscape(bom+`{"m":"refund"}`)), "refund"},
		{"JSON of two bytes a character", `json("m") ?? "none"`, post(js, "/", "\xff\xfe{\x00}\x00"), ""},
		{"JSON of another type", `json("m") ?? "none"`, post("application/problem+json; charset=x", "/", `{"m":"refund",}`), ""},
		{"broken JSON without a type", `json("m") ?? "none"`, post("", "/", `{"m":"refund",}`), ""},
		{"JSON of a text that never ends", `json("m") ?? "none"`, post("text/plain", "/", `{"`+strings.Repeat(`\`, 101)), ""},
		{"no JSON", `json("m") ?? "none"`, post(form, "/", "{m:1,m:2"), "none"},
		{"a broken character", `json("m")`, post(js, "/", "{\"m\":\"refund\xff\"}"), ""},
		{"a text that is said to be JSON", `json("m") ?? "none"`, post("application/problem+json", "/", "x"), ""},
		{"a text that is not", `json("m") ?? "none"`, post("text/plain", "/", "x"), "none"},
		{"a multipart form", `form("m")`, post(multi, "/", "--b\r\n"+field+"X-A:\ttab\r\n\r\nrefund\r\n--b--"), "refund"},
		{"a multipart form without a boundary", `form("m")`, post("multipart/form-data", "/", "--\r\n"+field+"\r\nrefund\r\n----"), ""},
		{"a multipart form without its first boundary", `form("m")`, post(multi, "/", "\r\n\r\n"+field+"\r\nrefund\r\n--b--"), ""},
		{"a field's header without a colon", `form("m")`, post(multi, "/", "--b\r\n"+field+"colon\r\n\r\nrefund\r\n--b--"), ""},
		{"a field's header with a strange name", `form("m")`, post(multi, "/", "--b\r\n"+field+"X A: b\r\n\r\nrefund\r\n--b--"), ""},
		{"a field's header with a control byte", `form("m")`, post(multi, "/", "--b\r\n"+field+"X-A: \x01\r\n\r\nrefund\r\n--b--"), ""},
		{"the first and last letters and digits of a path", `path`, get("/%61%7A%41%5A%30%39"), "/azAZ09"},
		{"no body", `json("m") ?? "none"`, post(js, "/", " "), "none"},
		{"unreserved characters of a path", `path`, get("/v3/%72%65fu%6Ed%2d%2E%5f%7e?%72"), "/v3/refund-._~"},
		{"other characters of a path", `path`, get("/%25%37%20%c3%a4ä|%40@%3a%2a"), "/%257%20%C3%A4%C3%A4%7C@@:*"},
		{"two slashes", `path`, get("/v3//refund"), ""},
		{"an escaped slash", `path startsWith "/v3/refund" ? "y" : "n"`, get("/v3%2frefund"), ""},
		{"an escaped backslash", `path`, get("/v3%5crefund"), ""},
		{"a path parameter", `path`, get("/v3;x=1/refund"), ""},
		{"an escaped path parameter", `path`, get("/v3/refund%3bx"), ""},
		{"the path is not read", `query("m")`, get("/v3//refund;x?m=refund"), "refund"},
		{"another case", `query("m") + "!"`, get("/?M=refund"), ""},
		{"two cases", `query("m")`, get("/?m=query&M=refund"), ""},
		{"a dot for an underscore", `form("app_id") + "!"`, post(form, "/", "app.id=1"), ""},
		{"a space ahead", `form("m") + "!"`, post(form, "/", "a=1& m=refund"), ""},
		{"a zero byte", `query("m") + "!"`, get("/?m%00x=refund"), ""},
		{"no Content-Type", `form("m")`, &Request{Method: "POST", Target: "/", Body: []byte("m=refund")}, "refund"},
		{"no Content-Type, no POST", `form("m") + "!"`, &Request{Method: "PUT", Target: "/", Body: []byte("m=refund")}, "!"},
		{"a strange charset", `form("m") + "!"`, post(form+"; charset=ibm037", "/", "%94=%99%85%86%A4%95%84"), ""},
		{"a sloppy charset", `form("m") + "!"`, post(form+"; charset=ibm037; x", "/", "m=refund"), ""},
		{"a charset of Alipay's", `form("m")`, post(form+";charset=GBK", "/", "m=refund"), "refund"},
		{"a packed form", `form("m") + "!"`, packed(form, "x"), ""},
		{"packed JSON", `json("m") ?? "none"`, packed("text/plain", "{}"), ""},
		{"a member in another case", `json("a.m") ?? "none"`, post(js, "/", `{"A":{"m":"refund"}}`), ""},
		{"a member in two cases", `json("m")`, post(js, "/", `{"m":"query","M":"refund"}`), ""},
		{"another member in two cases", `json("m")`, post(js, "/", `{"m":"refund","x":1,"X":2,"a":{"M":1}}`), "refund"},
		{"a star and another case", `json("*_request.no") ?? "none"`, post(js, "/", `{"Refund_Request":{"No":"R1"}}`), ""},
		{"in another case in an array", `json("a.0.m") ?? "none"`, post(js, "/", `{"a":[{"M":"refund"}]}`), ""},
		{"JSON up to a fault, without a type", `json("m") ?? "none"`, &Request{Method: "POST", Target: "/", Body: []byte(`{"m":"refund"} x`)}, ""},
	} {
		e, err := Compile(tt.source, Key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Key(NewInput(tt.r))
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		} else if err != nil && !strings.Contains(err.Error(), "cannot be computed for this request: ") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestMultipart: the fields that all readers read alike, or an error.
func TestMultipart(t *testing.T) {
	const kind = "multipart/form-data; boundary=B"
	field := func(header, value string) string { return "--B\r\n" + header + "\r\n\r\n" + value + "\r\n" }
	const m = `Content-Disposition: form-data; name="m"`
	for _, tt := range []struct{ name, body, want string }{
		{"plain", field(m, "refund") + "--B--\r\n", "refund"},
		{"of Alipay's SDK", "\r\n" + field(`Content-Disposition:form-data;name="m"`+"\r\nContent-Type:text/plain", "refund") + "--B--\r\n", "refund"},
		{"of .NET", field("Content-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=m", "refund") + "--B--\r\n", "refund"},
		{"beside a file", field(`Content-Disposition: form-data; name="f"; filename="x.png"`, "x") + field(m, "refund") + "--B--", "refund"},
		{"a file", field(m+`; filename="x"`, "refund") + "--B--\r\n", "none"},
		{"a file without a name", field(m+`; filename=""`, "refund") + "--B--\r\n", "none"},
		{"text ahead", "x\r\n" + field(m, "refund") + "--B--\r\n", ""},
		{"text behind", field(m, "refund") + "--B--\r\n" + field(m, "query"), ""},
		{"lines end in LF", strings.ReplaceAll(field(m, "refund"), "\r", "") + "--B--\n", ""},
		{"a boundary ends in LF", field(m, "refund") + "--B\n" + m + "\r\n\r\nquery\r\n--B--\r\n", ""},
		{"a boundary begins with LF", field("Content-Disposition: form-data; name=x", "\n--B\r\n"+m+"\r\n\r\nrefund") + "--B--\r\n", ""},
		{"a longer boundary", field(m, "refund\r\n--Bx") + "--B--\r\n", ""},
		{"quoted-printable", field(m+"\r\nContent-Transfer-Encoding: quoted-printable", "=72efund") + "--B--\r\n", ""},
		{"binary", field(m+"\r\nContent-Transfer-Encoding: binary", "refund") + "--B--\r\n", "refund"},
		{"two names", field(m+`; name="x"`, "refund") + "--B--\r\n", ""},
		{"an extended name", field(`Content-Disposition: form-data; name*=utf-8''m`, "refund") + "--B--\r\n", ""},
		{"two dispositions", field(m+"\r\n"+`Content-Disposition: form-data; name="x"`, "refund") + "--B--\r\n", ""},
		{"the name in the second one", field("Content-Disposition: form-data; x=1\r\n"+m, "refund") + "--B--\r\n", ""},
		{"no name", field("Content-Disposition: form-data", "refund") + "--B--\r\n", ""},
		{"an attachment", field(`Content-Disposition: attachment; name="m"`, "refund") + "--B--\r\n", ""},
		{"a folded line", field("Content-Disposition: form-data;\r\n name=\"m\"", "refund") + "--B--\r\n", ""},
		{"a line that ends in LF", field(m+"\nX: 1", "refund") + "--B--\r\n", ""},
		{"no end", field(m, "refund"), ""},
		{"nothing in it", "--B--\r\n", ""},
	} {
		e, err := Compile(`let m = form("m"); m == "" ? "none" : m`, Key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Key(NewInput(post(kind, "/", tt.body))); got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	tests := []struct {
		source string
		kind   Kind
		want   string
	}{
		{`param("method"`, Condition, "ends too early; close the bracket"},
		{`parm("method") == "x"`, Condition, "unknown name parm"},
		{`param("method")`, Condition, "gives a text, must be true or false"},
		{`path == 3`, Condition, "== does not work with a text and a whole number"},
		{`"x"`, Cost, "gives a text, must be a number"},
		{`header(X-Tenant)`, Key, `unknown name X; a text needs quotes ("X"), and the names are form, header, json, method, param, path, query, segment, xml (in "header(X-Tenant)", character 8)`},
		{`param(method) == app`, Condition, `unknown name app; a text needs quotes`},
		{`path == "/" and (let name = "a"; param(name) == nam)`, Condition, `unknown name nam`},
		{`param`, Key, `gives a function, must be a text or a number; call it, such as param("name") (in "param")`},
		{`status == 429`, Condition, `status is known in outcomes only`},
	}
	for _, tt := range tests {
		_, err := Compile(tt.source, tt.kind)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Compile(%s) = %v, want %q in one line", tt.source, err, tt.want)
		}
	}
}

func TestOutcomeRules(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://x", Outcomes: []Rule{
		{When: `body("*_response.code") == "10000"`, Is: Done},
		{When: `body("*_response.sub_code") contains "SYSTEM_ERROR"`, Is: Unknown},
		{When: `status == 429 && header("X-Scope") == "refund"`, Is: NotExecuted, Pause: &Pause{Limit: "refund", For: time.Second}},
		{When: `path == "/page" && status == 200`, Is: Done},
		{When: `body("errors.#") > 0`, Is: Failed},
	}})
	tests := []struct {
		name   string
		status int
		header http.Header
		body   string
		want   Outcome
		pause  string
	}{
		{"first rule", 200, nil, `{"alipay_trade_refund_response":{"code":"10000"},"sign":"x"}`, Done, ""},
		{"second rule", 200, nil, `{"a_response":{"code":"40004","sub_code":"ACQ.SYSTEM_ERROR"}}`, Unknown, ""},
		{"a rule that fails on this answer does not hold", 200, nil, `{"a_response":{"code":"20000"}}`, Done, ""},
		{"with a pause", 429, http.Header{"X-Scope": {"refund"}}, ``, NotExecuted, "refund"},
		{"garbage", 502, nil, `<html>`, Unknown, ""},
		{"a count", 200, nil, `{"errors":[1]}`, Failed, ""},
		{"status 400", 400, nil, `{}`, Failed, ""},
		{"status 204", 204, nil, ``, Done, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := &Result{}
			u.rules.decide(res, NewInput(&Request{Method: "POST", Target: "/"}), &answer{status: tt.status, header: tt.header, body: []byte(tt.body)})
			if res.Outcome != tt.want || tt.pause != "" && (res.Pause == nil || res.Pause.Limit != tt.pause) {
				t.Errorf("outcome %s, pause %v by %q; want %s, %q", res.Outcome, res.Pause, res.Reason, tt.want, tt.pause)
			}
		})
	}
}

func TestRequestCheck(t *testing.T) {
	good := []Request{
		{Method: "GET", Target: "/"},
		{Method: "POST", Target: "/a%2Fb?x=%00&y=.."},
		{Method: "GET", Target: "/a..b/...?"},
	}
	for _, r := range good {
		if err := r.Check(); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.Target, err)
		}
	}
	bad := map[string]Request{
		"CONNECT":         {Method: "CONNECT", Target: "/"},
		"method":          {Method: "GE T", Target: "/"},
		"absolute":        {Method: "GET", Target: "http://evil/"},
		"dots":            {Method: "GET", Target: "/a/../b"},
		"escaped dots":    {Method: "GET", Target: "/a/%2e%2E/b"},
		"dots, backslash": {Method: "GET", Target: `/a\..\b`},
		"line break":      {Method: "GET", Target: "/a\r\nX: y"},
		"escaped break":   {Method: "GET", Target: "/a%0d%0ab"},
		"broken escape":   {Method: "GET", Target: "/a%zz"},
		"header":          {Method: "GET", Target: "/", Header: http.Header{"X": {"a\r\nY: z"}}},
		"header name":     {Method: "GET", Target: "/", Header: http.Header{"X Y": {"a"}}},
	}
	for name, r := range bad {
		if r.Check() == nil {
			t.Errorf("%s: %q %q was taken", name, r.Method, r.Target)
		}
	}
}

// TestURLWithoutAScheme: the error has the next step, and no password.
func TestURLWithoutAScheme(t *testing.T) {
	long := strings.Repeat("a", 96) + ".com"
	for text, want := range map[string]string{
		"api.example.com":    "write https://api.example.com",
		"127.0.0.1:7002":     "write http://127.0.0.1:7002",
		"localhost:7002/v1":  "write http://localhost:7002/v1",
		"[::1]:7002":         "write http://[::1]:7002",
		"localhost":          "write http://localhost",
		"a:b@api.example":    "write https:// in front of it",
		"api.example?key=42": "write https:// in front of it",
		long:                 "write https://" + long,
		long + "m":           "write https:// in front of it",
	} {
		if got := withScheme(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestOpen: an answer that a rule parks leaves its call open, and says that the upstream is
// well; a parked failure of the server, or a lost answer, does not.
func TestOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		park   bool
		status int
		err    error
		want   bool
	}{
		"the buyer types the password": {true, 200, nil, true},
		"it is not parked":             {false, 200, nil, false},
		"the server failed":            {true, 500, nil, false},
		"no answer":                    {true, 0, io.ErrUnexpectedEOF, false},
	} {
		u := newUpstream(t, Config{
			URL: "http://x", Outcomes: []Rule{{When: `error != "" or status > 0`, Is: Unknown, Park: tt.park}},
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tt.status, Header: http.Header{}, Body: http.NoBody}, tt.err
			}),
		})
		if r := u.Do(t.Context(), &Request{Method: "POST", Target: "/"}); r.Outcome != Unknown || r.Open != tt.want {
			t.Errorf("%s: %s, open: %v; want unknown, %v", name, r.Outcome, r.Open, tt.want)
		}
	}
}

func TestMaxInspect(t *testing.T) {
	for bytes, ok := range map[int64]bool{-1: false, 0: true, 1: true, 1 << 30: true, 1<<30 + 1: false, math.MaxInt64: false} {
		if _, err := New(Config{URL: "http://x", MaxInspect: bytes}); (err == nil) != ok || !ok && !strings.Contains(err.Error(), "inspect.bytes: is ") {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

func TestTarget(t *testing.T) {
	u := newUpstream(t, Config{URL: "https://API.example/v1"})
	for to, want := range map[string]string{
		"https://api.example/v1/pay?a=1":    "/pay?a=1",
		"https://api.example:443/v1/pay":    "/pay",
		"http://api.example:443/v1/pay":     "",
		"https://api.example:8443/v1/pay":   "",
		"https://api.example.com/v1/pay":    "",
		"https://api.example/v2/pay":        "",
		"https://api.example/v1":            "",
		"https://api.example/v10/pay":       "",
		"https://api.example/other/v1/pay/": "",
	} {
		parsed, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		if target, ok := u.Target(parsed); ok != (want != "") || ok && target != want {
			t.Errorf("%s: %q, %v, want %q", to, target, ok, want)
		}
	}
}

// TestKeyed: rules know whether the request has an idempotency key.
func TestKeyed(t *testing.T) {
	u := newUpstream(t, Config{
		URL: "http://x", Idempotency: Idempotency{Header: "Idempotency-Key"},
		Outcomes: []Rule{{When: "status == 409 and keyed", Is: Unknown}},
		Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 409, Header: http.Header{}, Body: http.NoBody}, nil
		}),
	})
	for key, want := range map[string]Outcome{"k": Unknown, "": Failed} {
		if r := u.Do(t.Context(), &Request{Method: "POST", Target: "/", Header: http.Header{"Idempotency-Key": {key}}}); r.Outcome != want {
			t.Errorf("key %q: %s, want %s", key, r.Outcome, want)
		}
	}
}

func TestNewTellsAllFaultsAtOnce(t *testing.T) {
	_, err := New(Config{
		URL: "ftp://user:canary@host", Timeout: -1, Idempotent: "nope(",
		Outcomes: []Rule{{When: "status == 200", Is: "ok"}, {When: "status", Is: Done}, {When: "status == 1", Is: Done, Pause: &Pause{}}},
	})
	if err == nil {
		t.Fatal("New took it")
	}
	for _, want := range []string{"url: scheme", "timeout: -1ns", "idempotent: ", "outcomes[0].is: ", "outcomes[1].when: gives a whole number, must be true or false; compare it, such as status == 429", "outcomes[2].pause: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Error("the error holds the password of the URL")
	}
}

// TestRuleFaults has each fault of a rule, with its field, and rules at the edge of it.
func TestRuleFaults(t *testing.T) {
	const when = "status == 429"
	for _, tt := range []struct {
		rule Rule
		want string // empty: none
	}{
		{Rule{When: when, Is: NotExecuted, Pause: &Pause{}}, ""},
		{Rule{When: when, Is: NotExecuted, After: time.Second}, ""},
		{Rule{When: when, Is: Unknown, After: time.Second, Park: true}, ""},
		{Rule{When: when, Is: NotExecuted, Pause: &Pause{For: -1}}, "[0].pause.for: -1ns must not be negative"},
		{Rule{When: when, Is: Failed, Pause: &Pause{}}, "[0].pause: only a not_executed outcome pauses, this one is failed"},
		{Rule{When: when, Is: Done, After: time.Second}, "[0].after: only a not_executed or unknown call is sent again, this one is done"},
		{Rule{When: when, Is: Unknown, After: -1}, "[0].after: -1ns must not be negative"},
		{Rule{When: when, Is: NotExecuted, Park: true}, "[0].park: only an unknown call is parked, this one is not_executed"},
		{Rule{Is: Done}, "[0].when: is missing; give an expression such as status == 429"},
		{Rule{When: when}, `[0].is: outcome "" is unknown, must be done, failed, not_executed or unknown`},
	} {
		got := ""
		if _, err := CompileRules("outcomes", []Rule{tt.rule}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.rule, got, tt.want)
		}
	}
}

// TestAloneAndAfter: a rule with After and no Pause is about its call alone.
func TestAloneAndAfter(t *testing.T) {
	for _, tt := range []struct {
		rule  Rule
		alone bool
		after time.Duration
	}{
		{Rule{After: time.Minute}, true, time.Minute},
		{Rule{After: time.Second}, true, 7 * time.Second},
		{Rule{After: time.Minute, Pause: &Pause{Limit: "app"}}, false, time.Minute},
		{Rule{Pause: &Pause{Limit: "app"}}, false, 7 * time.Second},
		{Rule{}, false, 7 * time.Second},
	} {
		tt.rule.When, tt.rule.Is = "status == 200", NotExecuted
		rules, err := CompileRules("outcomes", []Rule{tt.rule})
		if err != nil {
			t.Fatal(err)
		}
		res := &Result{RetryAfter: 7 * time.Second}
		rules.decide(res, NewInput(post("", "/", "")), &answer{status: 200, header: http.Header{}, sent: true})
		if res.Outcome != NotExecuted || res.Alone != tt.alone || res.RetryAfter != tt.after || res.Pause != tt.rule.Pause {
			t.Errorf("%+v: %+v", tt.rule, res)
		}
	}
}

// TestKindsOfExpressions: a cost is at least 1, a text is a text, a key is neither empty nor
// longer than MaxKey; an expression that fails on a request gives an error.
func TestKindsOfExpressions(t *testing.T) {
	in := NewInput(post("application/json", "/?n=3&zero=0&twice=1&twice=2&long="+strings.Repeat("x", MaxKey), `{"a":"b","n":7,"points":2.9,"huge":1e300,"none":null,"empty":"","list":[1]}`))
	for _, tt := range []struct {
		kind   Kind
		source string
		want   string
		fault  string
	}{
		{Cost, `int(query("n"))`, "3", ""},
		{Cost, `1`, "1", ""},
		{Cost, `len("abc" + query("n")) / 2`, "2", ""},
		{Cost, `int(query("n")) / 2`, "2", ""},
		{Cost, `float(query("n")) / 3`, "1", ""},
		{Cost, `float(query("n")) * 0.3`, "1", ""},
		{Cost, `json("points")`, "3", ""},
		{Cost, `json("huge")`, "", `json("huge") is 1e+300, must be at most 2147483648`},
		{Cost, `2147483647 + int(query("n"))`, "", `2147483647 + int(query("n")) is 2.14748365e+09, must be at most 2147483648`},
		{Cost, `2147483645 + int(query("n"))`, "2147483648", ""},
		{Cost, `1 / int(query("zero"))`, "", `1 / int(query("zero")) is +Inf, must be a finite number`},
		{Cost, `int(query("zero")) / int(query("zero"))`, "", `int(query("zero")) / int(query("zero")) is NaN, must be a finite number`},
		{Cost, `0.5 - int(query("n"))`, "", `0.5 - int(query("n")) is -2.5, must be at least 1`},
		{Cost, `json("a")`, "", `json("a") cannot be computed for this request`},
		{Cost, `json("none")`, "", `json("none") cannot be computed for this request`},
		{Cost, `4 / 2`, "2", ""},
		{Cost, `int(query("zero"))`, "", `int(query("zero")) is 0, must be at least 1`},
		{Cost, `int(query("twice"))`, "", `int(query("twice")) cannot be computed for this request: a parameter occurs twice`},
		{Text, `query("n") + "!"`, "3!", ""},
		{Text, `query("twice")`, "", `query("twice") cannot be computed for this request: a parameter occurs twice`},
		{Text, `json("a")`, "b", ""},
		{Text, `json("n")`, "", `json("n") gives a int, must be a text`},
		{Text, `urlencode("a b")`, "a+b", ""},
		{Text, `urlencode({"a": "x y", "b": "", "c": 7, "none": json("none")})`, "a=x+y&c=7", ""},
		{Key, `query("long")`, strings.Repeat("x", MaxKey), ""},
		{Key, `query("long") + "x"`, "", `query("long") + "x" is 257 bytes long, at most 256 are taken`},
		{Key, `json("empty")`, "", `json("empty") is empty`},
		{Key, `json("list")`, "", `json("list") gives a []interface {}, must be a text or a number`},
	} {
		e, err := Compile(tt.source, tt.kind)
		if err != nil {
			t.Fatal(err)
		}
		var got any = ""
		switch tt.kind {
		case Cost:
			if got, err = e.Cost(in); err != nil {
				got = ""
			}
		case Text:
			got, err = e.Text(in)
		case Key:
			got, err = e.Key(in)
		}
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if fmt.Sprint(got) != tt.want || fault != tt.fault {
			t.Errorf("%s: %v, error %q; want %q, error %q", tt.source, got, fault, tt.want, tt.fault)
		}
	}
	_, err := Compile("quary(1)", Key)
	if err == nil || !strings.HasSuffix(err.Error(), `(in "quary(1)", character 1)`) {
		t.Errorf("%v, want the place of the fault", err)
	}
}

func TestEndToEnd(t *testing.T) {
	in := http.Header{"A": {"1"}, "X-Hop": {"1"}, "Other": {"1"}, "Connection": {"x-hop, other", "close"}, "Throttler-Flow": {"f"}, "Te": {"trailers"}, "Throttle": {"1"}}
	out := EndToEnd(in)
	if len(out) != 2 || out.Get("A") != "1" || out.Get("Throttle") != "1" {
		t.Errorf("%v, want A and Throttle", out)
	}
	if len(in) != 7 {
		t.Errorf("the header that was given is changed: %v", in)
	}
	if out := EndToEnd(nil); out == nil {
		t.Error("no header gives none that can be written to")
	}
}

// TestTargetBytes: no control byte, space or # is in a target; an error quotes the beginning
// of a path, and nothing of a query.
func TestTargetBytes(t *testing.T) {
	for c := range 256 {
		err := (&Request{Method: "GET", Target: "/a?b=" + string([]byte{byte(c)})}).Check()
		if bad := c <= ' ' || c == 0x7f || c == '#'; (err != nil) != bad {
			t.Errorf("byte %#x: %v", c, err)
		}
	}
	long := strings.Repeat("x", 99)
	for path, want := range map[string]string{"/" + long: "/" + long, "/" + long + "y": "/" + long + "…"} {
		if err := (&Request{Method: "GET", Target: path + "?secret#"}).Check(); err == nil || !strings.Contains(err.Error(), strconv.Quote(want)) {
			t.Errorf("%v, want it to quote %q", err, want)
		}
	}
}

// TestDefaults of a configuration that gives none, and values that are given.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct{ given, want Config }{
		{Config{}, Config{Timeout: 30 * time.Second, ConnectTimeout: 10 * time.Second, BodyTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second, InspectDelay: time.Second, MaxIdle: 100, MaxInspect: 1 << 20}},
		{Config{Timeout: 3 * time.Second}, Config{Timeout: 3 * time.Second, ConnectTimeout: 3 * time.Second, BodyTimeout: 3 * time.Second, IdleTimeout: 90 * time.Second, InspectDelay: time.Second, MaxIdle: 100, MaxInspect: 1 << 20}},
		{Config{Timeout: 1, ConnectTimeout: 2, BodyTimeout: 3, IdleTimeout: 4, InspectDelay: 5, MaxIdle: 6, MaxInspect: 7}, Config{Timeout: 1, ConnectTimeout: 2, BodyTimeout: 3, IdleTimeout: 4, InspectDelay: 5, MaxIdle: 6, MaxInspect: 7}},
	} {
		tt.given.URL = "https://example.com"
		u, err := New(tt.given)
		if err != nil {
			t.Fatal(err)
		}
		got := u.Config
		if w := tt.want; got.Timeout != w.Timeout || got.ConnectTimeout != w.ConnectTimeout || got.BodyTimeout != w.BodyTimeout || got.IdleTimeout != w.IdleTimeout || got.InspectDelay != w.InspectDelay || got.MaxIdle != w.MaxIdle || got.MaxInspect != w.MaxInspect {
			t.Errorf("%+v gives %+v, want %+v", tt.given, got, w)
		}
		transport := u.transport.(*transport)
		for where, got := range map[string][2]any{
			"h1 MaxIdle":      {transport.pool.MaxIdle, tt.want.MaxIdle},
			"h1 IdleTimeout":  {transport.pool.IdleTimeout, tt.want.IdleTimeout},
			"h2 MaxIdle":      {transport.http2.MaxIdleConnsPerHost, tt.want.MaxIdle},
			"h2 IdleTimeout":  {transport.http2.IdleConnTimeout, tt.want.IdleTimeout},
			"h2 MaxHead":      {transport.http2.MaxResponseHeaderBytes, int64(256 << 10)},
			"h2 SendPing":     {transport.http2.HTTP2.SendPingTimeout, 15 * time.Second},
			"h2 PingTimeout":  {transport.http2.HTTP2.PingTimeout, 10 * time.Second},
			"ConnectTimeout":  {transport.connect, tt.want.ConnectTimeout},
			"the oldest TLS":  {transport.security.MinVersion, uint16(tls.VersionTLS12)},
			"the name in TLS": {transport.security.ServerName, "example.com"},
		} {
			if got[0] != got[1] {
				t.Errorf("%s is %v, want %v", where, got[0], got[1])
			}
		}
	}
	for url, want := range map[string]string{"https://example.com/?a=b": "query", "https://example.com/#part": "query or a fragment", "https://example.com/#": ""} {
		if _, err := New(Config{URL: url}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestInternationalHost: a host in Unicode is dialed, and named to TLS, in punycode (RFC 5891).
func TestInternationalHost(t *testing.T) {
	u, err := New(Config{Name: "books", URL: "https://bücher.example/v1"})
	if err != nil {
		t.Fatal(err)
	}
	own := u.transport.(*transport)
	if own.address != "xn--bcher-kva.example:443" || own.security.ServerName != "xn--bcher-kva.example" {
		t.Errorf("dialed at %s, named %s", own.address, own.security.ServerName)
	}
}

// A rule that demands a status is not evaluated at another one.
func TestStatusOfARule(t *testing.T) {
	for when, want := range map[string]int{
		`status == 429`:                              429,
		`status == 409 and keyed`:                    409,
		`keyed && (status == 409 && body("a") == 1)`: 409,
		`method == "GET" and status == 303`:          303,
		`status == 409 or keyed`:                     0,
		`not (status == 409)`:                        0,
		`status != 409`:                              0,
		`status >= 400 and status < 500`:             0,
		`status in [400, 401]`:                       0,
		`len(method) == 3`:                           0,
		`keyed`:                                      0,
		`sent and (status == 409 or error != "")`:    0,
	} {
		r, err := CompileRules("outcomes", []Rule{{When: when, Is: Failed}})
		if err != nil {
			t.Fatal(err)
		}
		if r.rules[0].status != want {
			t.Errorf("%s: %d, want %d", when, r.rules[0].status, want)
		}
	}
}

// TestShownURL: people see where an upstream is, and that there is more, which may be a secret.
func TestShownURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://api.example.com":             "https://api.example.com",
		"https://api.example.com/":            "https://api.example.com",
		"https://api.example.com:8443":        "https://api.example.com:8443",
		"https://api.example.com/v1":          "https://api.example.com/…",
		"https://api.example.com?key=s3cr3t":  "https://api.example.com/…",
		"https://api.example.com/?key=s3cr3t": "https://api.example.com/…",
		"https://u:s3cr3t@api.example.com":    "https://api.example.com/…",
		"https://u:s3cr3t@api.example.com/":   "https://api.example.com/…",
		"/v1":                                 "",
		"api.example.com:s3cr3t/v1":           "",
		"https://api.example.com/%zz":         "",
	} {
		if got := ShownURL(raw); got != want {
			t.Errorf("%s is shown as %q, want %q", raw, got, want)
		}
	}
}
