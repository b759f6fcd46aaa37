package security

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operations are all of the admin API. ID stands for a call that waits, PAUSE for the pause
// that it waits for.
var operations = []struct{ name, method, path, body string }{
	{"submit", "POST", "/v1/calls", `{"upstream":"a","method":"POST","path":"/evil"}`},
	{"batch", "POST", "/v1/calls/batch", `{"upstream":"a","method":"POST","path":"/evil"}`},
	{"list", "GET", "/v1/calls", ""},
	{"get", "GET", "/v1/calls/ID", ""},
	{"response", "GET", "/v1/calls/ID/response", ""},
	{"request", "GET", "/v1/calls/ID/request", ""},
	{"cancel", "POST", "/v1/calls/ID/cancel", ""},
	{"retry", "POST", "/v1/calls/ID/retry", `{"attempt":1,"accept_duplicate":true,"reason":"x"}`},
	{"resolve", "POST", "/v1/calls/ID/resolve", `{"outcome":"done","attempt":1,"reason":"x"}`},
	{"ask", "POST", "/v1/calls/ID/ask", ""},
	{"edit", "PATCH", "/v1/calls/ID", `{"priority":1}`},
	{"bulk", "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"calls":["ID"]}}`},
	{"refusals", "GET", "/v1/refusals", ""},
	{"events", "GET", "/v1/events", ""},
	{"latest events", "GET", "/v1/events/latest", ""},
	{"upstreams", "GET", "/v1/upstreams", ""},
	{"upstream", "GET", "/v1/upstreams/a", ""},
	{"pauses", "GET", "/v1/pauses", ""},
	{"pause", "POST", "/v1/pauses", `{"upstream":"a","for":"24h"}`},
	{"resume", "DELETE", "/v1/pauses/PAUSE", ""},
	{"limit", "GET", "/v1/upstreams/b/limits/one", ""},
	{"keys", "GET", "/v1/upstreams/b/limits/one/keys", ""},
	{"flows", "GET", "/v1/upstreams/b/flows", ""},
	{"history", "GET", "/v1/history?upstream=b", ""},
	{"audit", "GET", "/v1/audit", ""},
	{"info", "GET", "/v1/info", ""},
	{"login", "POST", "/v1/session", `{"token":"thr_stolen"}`},
	{"logout", "DELETE", "/v1/session", ""},
	{"problem", "GET", "/problems/full", ""},
	{"limits", "GET", "/v1/limits", ""},
	{"config", "GET", "/v1/config", ""},
	{"diff", "GET", "/v1/config/diff", ""},
	{"reload", "POST", "/v1/config/reload", ""},
	{"plan", "POST", "/v1/plan", `{"settings":["rate=1/s for=1s"]}`},
	{"metrics", "GET", "/metrics", ""},
	{"healthz", "GET", "/healthz", ""},
	{"readyz", "GET", "/readyz", ""},
}

// foreigners are the ways by which a web page gets to each operation.
var foreigners = []struct {
	name   string
	status int
	lines  []string
}{
	{"by a rebound name", 421, got("Host: evil.example:9090", "Sec-Fetch-Site: same-origin")},
	{"from another site", 403, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")},
	{"from another origin", 403, got("Origin: https://evil.example")},
	{"from a sandbox", 403, got("Origin: null")},
}

// callers send a pause of upstream b; 201 is the status of a program.
var callers = []struct {
	name   string
	status int
	lines  []string
}{
	{"name of the listener", 201, got("Host: localhost:9090")},
	{"name in upper case with a dot", 201, got("Host: LocalHost.:9090")},
	{"loopback address", 201, got("Host: 127.9.9.9")},
	{"loopback address of IPv6", 201, got("Host: [::1]:9090")},
	{"mapped loopback address", 421, got("Host: [::ffff:10.0.0.1]:9090")},
	{"name that begins alike", 421, got("Host: localhost.evil.example")},
	{"name that ends alike", 421, got("Host: evil.localhost")},
	{"name with an address inside", 421, got("Host: 127.0.0.1.evil.example")},
	{"name of an upstream", 421, got("Host: payments.internal")},
	{"any address", 421, got("Host: 0.0.0.0:9090")},
	{"any address of IPv6", 421, got("Host: [::]:9090")},
	{"address as a number", 421, got("Host: 2130706433")},
	{"address in octal", 421, got("Host: 0177.0.0.1")},
	{"address in hexadecimal", 421, got("Host: 0x7f000001")},
	{"short address", 421, got("Host: 127.1")},
	{"address of the network", 421, got("Host: 192.168.0.1")},
	{"address of metadata", 421, got("Host: 169.254.169.254")},
	{"full-width digits", 421, got("Host: \uff11\uff12\uff17.0.0.1")},
	{"own origin", 201, got("Host: localhost:9090", "Origin: http://localhost:9090")},
	{"own origin, same by the browser", 201, got("Host: localhost:9090", "Origin: http://localhost:9090", "Sec-Fetch-Site: same-origin")},
	{"typed into a browser", 201, got("Sec-Fetch-Site: none")},
	{"origin of another port", 403, got("Host: localhost:9090", "Origin: http://localhost:3000")},
	{"origin that begins alike", 403, got("Origin: http://localhost.evil.example")},
	{"origin that is none", 403, got("Origin: x")},
	{"origin of an extension", 403, got("Origin: chrome-extension://abc")},
	{"origin of a file", 403, got("Origin: file://")},
	{"same site, another origin", 403, got("Sec-Fetch-Site: same-site")},
	{"Fetch field that is unknown", 403, got("Sec-Fetch-Site: x")},
	{"a link that writes", 403, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Fetch-User: ?1")},
	{"text without a preflight", 403, got("Origin: https://evil.example", "Content-Type: text/plain")},
	{"form without a preflight", 403, got("Origin: https://evil.example", "Content-Type: application/x-www-form-urlencoded")},
}

// A submission is a body of POST /v1/calls and the status of its answer. An accepted one
// reaches the upstream as the line says.
type submission struct {
	name, body string
	status     int
	line       string
}

// asCall is a submission with more members.
func asCall(members string) string {
	return `{"upstream":"a","method":"GET","path":"/x",` + members + `}`
}

func withHeader(name, value string) string {
	return asCall(`"headers":{` + quote(name) + `:` + quote(value) + `}`)
}

func withPath(path string) string {
	return `{"upstream":"a","method":"GET","path":` + quote(path) + `}`
}

func withMethod(method string) string {
	return `{"upstream":"a","method":"GET","path":"/x","method":` + quote(method) + `}`
}

var submissions = []submission{
	{"header: line break", withHeader("X-A", "a\r\nX-B: b"), 400, ""},
	{"header: LF", withHeader("X-A", "a\nX-B: b"), 400, ""},
	{"header: CR", withHeader("X-A", "a\rb"), 400, ""},
	{"header: NUL", withHeader("X-A", "a\x00b"), 400, ""},
	{"header: 0x01", withHeader("X-A", "a\x01b"), 400, ""},
	{"header: vertical tab", withHeader("X-A", "a\vb"), 400, ""},
	{"header: escape", withHeader("X-A", "a\x1bb"), 400, ""},
	{"header: DEL", withHeader("X-A", "a\x7fb"), 400, ""},
	{"header: control byte in a list", asCall(`"headers":{"X-A":["a","b\u0001"]}`), 400, ""},
	{"header: tab", withHeader("X-A", "a\tb"), 202, "GET /x"},
	{"header: not ASCII", withHeader("X-A", "\u4e2d"), 202, "GET /x"},
	{"header: empty name", withHeader("", "a"), 400, ""},
	{"header: space in the name", withHeader("X A", "a"), 400, ""},
	{"header: colon in the name", withHeader("X-A:", "a"), 400, ""},
	{"header: line break in the name", withHeader("X-A\r\nX-B", "a"), 400, ""},
	{"header: NUL in the name", withHeader("X\x00A", "a"), 400, ""},
	{"header: not ASCII in the name", withHeader("X-\u00c4", "a"), 400, ""},
	{"header: parenthesis in the name", withHeader("X-A(", "a"), 400, ""},
	{"header: pseudo field", withHeader(":authority", "evil.example"), 400, ""},
	{"header: Host", withHeader("Host", "evil.example"), 400, ""},
	{"header: host in lower case", withHeader("host", "evil.example"), 400, ""},
	{"header: Content-Length", withHeader("Content-Length", "5"), 400, ""},
	{"header: Transfer-Encoding", withHeader("Transfer-Encoding", "chunked"), 400, ""},
	{"header: transfer-encoding in odd case", withHeader("tRANSFER-eNCODING", "chunked"), 400, ""},
	{"header: Connection", withHeader("Connection", "close"), 400, ""},
	{"header: Upgrade", withHeader("Upgrade", "h2c"), 400, ""},
	{"header: TE", withHeader("TE", "trailers"), 400, ""},
	{"header: Trailer", withHeader("Trailer", "X-A"), 400, ""},
	{"header: Expect", withHeader("Expect", "100-continue"), 400, ""},
	{"header: Keep-Alive", withHeader("Keep-Alive", "timeout=1"), 400, ""},
	{"header: Proxy-Authorization", withHeader("Proxy-Authorization", "Basic YTpi"), 400, ""},
	{"header: the sidecar's own", withHeader("Throttler-Priority", "100"), 400, ""},
	{"header: number", asCall(`"headers":{"X-A":1}`), 400, ""},
	{"header: list of numbers", asCall(`"headers":{"X-A":[1]}`), 400, ""},
	{"header: object", asCall(`"headers":{"X-A":{"b":"c"}}`), 400, ""},
	{"header: list instead of an object", asCall(`"headers":["X-A: b"]`), 400, ""},
	{"header: null", asCall(`"headers":null`), 202, "GET /x"},
	{"header: same name in two cases", asCall(`"headers":{"x-a":"1","X-A":"2"}`), 202, "GET /x"},

	{"path: none", `{"upstream":"a","method":"GET"}`, 400, ""},
	{"path: empty", withPath(""), 400, ""},
	{"path: no slash", withPath("x"), 400, ""},
	{"path: absolute form", withPath("http://evil.example/x"), 400, ""},
	{"path: two slashes", withPath("//evil.example/x"), 400, ""},
	{"path: user in front", withPath("@evil.example/x"), 400, ""},
	{"path: colon and port", withPath(":1/x"), 400, ""},
	{"path: dots", withPath("/../x"), 400, ""},
	{"path: escaped dots", withPath("/%2e%2e/x"), 400, ""},
	{"path: dots with a parameter", withPath("/..;/x"), 400, ""},
	{"path: dots behind a backslash", withPath("/a\\..\\x"), 400, ""},
	{"path: space and another version", withPath("/x HTTP/1.1\r\nX-A: b"), 400, ""},
	{"path: line break", withPath("/x\r\nX-A: b"), 400, ""},
	{"path: LF", withPath("/x\nX-A: b"), 400, ""},
	{"path: line break in the query", withPath("/x?a\r\nb"), 400, ""},
	{"path: tab", withPath("/x\ty"), 400, ""},
	{"path: NUL", withPath("/x\x00"), 400, ""},
	{"path: escaped NUL", withPath("/x%00"), 400, ""},
	{"path: fragment", withPath("/x#y"), 400, ""},
	{"path: broken escape", withPath("/x%"), 400, ""},
	{"path: asterisk", withPath("*"), 400, ""},
	{"path: number", `{"upstream":"a","method":"GET","path":1}`, 400, ""},
	{"path: braces pass", withPath("/{x}"), 202, "GET /{x}"},
	{"path: escapes pass", withPath("/%2f%2F?a=%00"), 202, "GET /%2f%2F?a=%00"},

	{"method: CONNECT", withMethod("CONNECT"), 400, ""},
	{"method: TRACE", withMethod("TRACE"), 400, ""},
	{"method: space and a target", withMethod("GET /evil HTTP/1.1\r\nX-A: b\r\n\r\nGET"), 400, ""},
	{"method: line break", withMethod("GET\r\n"), 400, ""},
	{"method: tab", withMethod("GE\tT"), 400, ""},
	{"method: NUL", withMethod("GET\x00"), 400, ""},
	{"method: not ASCII", withMethod("G\u00c9T"), 400, ""},
	{"method: slash", withMethod("GET/"), 400, ""},
	{"method: none", `{"upstream":"a","path":"/x"}`, 400, ""},
	{"method: lower case is another one", withMethod("get"), 202, "get /x"},

	{"upstream: none", `{"path":"/x"}`, 400, ""},
	{"upstream: empty", `{"upstream":"","method":"GET","path":"/x"}`, 400, ""},
	{"upstream: unknown", `{"upstream":"evil","method":"GET","path":"/x"}`, 404, ""},
	{"upstream: URL", `{"upstream":"http://evil.example","method":"GET","path":"/x"}`, 404, ""},
	{"upstream: dots", `{"upstream":"../a","method":"GET","path":"/x"}`, 404, ""},
	{"upstream: upper case", `{"upstream":"A","method":"GET","path":"/x"}`, 404, ""},
	{"upstream: list", `{"upstream":["a"],"path":"/x"}`, 400, ""},
	{"upstream: 100 KiB", `{"upstream":"` + strings.Repeat("a", 100<<10) + `","method":"GET","path":"/x"}`, 404, ""},
	{"upstream: the queue of webhooks", `{"upstream":"callback:shop","method":"GET","path":"/x"}`, 404, ""},

	{"JSON: none", ``, 400, ""},
	{"JSON: null", `null`, 400, ""},
	{"JSON: list", `[{"upstream":"a","method":"GET","path":"/x"}]`, 400, ""},
	{"JSON: text", `"x"`, 400, ""},
	{"JSON: two objects", withPath("/x") + withPath("/y"), 400, ""},
	{"JSON: rest behind", withPath("/x") + "x", 400, ""},
	{"JSON: breaks off", `{"upstream":"a","method":"GET","path":"/x"`, 400, ""},
	{"JSON: comma at the end", `{"upstream":"a","method":"GET","path":"/x",}`, 400, ""},
	{"JSON: comment", `{"upstream":"a",/**/"path":"/x"}`, 400, ""},
	{"JSON: single quotes", `{'upstream':'a','path':'/x'}`, 400, ""},
	{"JSON: unknown member", asCall(`"url":"http://evil.example"`), 400, ""},
	{"JSON: member of an internal type", asCall(`"Target":"/evil"`), 400, ""},
	{"JSON: 100,000 brackets", asCall(`"headers":` + strings.Repeat("[", 100_000)), 400, ""},
	{"JSON: 100,000 objects in each other", strings.Repeat(`{"upstream":`, 100_000), 400, ""},
	{"JSON: not UTF-8", "{\"upstream\":\"a\xff\",\"method\":\"GET\",\"path\":\"/x\"}", 404, ""},
	{"JSON: escaped NUL in the upstream", `{"upstream":"a\u0000","method":"GET","path":"/x"}`, 404, ""},
	{"JSON: form instead", `upstream=a&path=/x`, 400, ""},

	{"body: two", asCall(`"body":"a","body_base64":"YQ=="`), 400, ""},
	{"body: base64 that is none", asCall(`"body_base64":"%%%"`), 400, ""},
	{"body: base64 of URLs", asCall(`"body_base64":"_-8="`), 400, ""},
	{"body: number", asCall(`"body":1`), 400, ""},
	{"body: object", asCall(`"body":{}`), 400, ""},
	{"body: beyond max_body", asCall(`"body":"` + strings.Repeat("a", 70<<10) + `"`), 413, ""},
	{"body: beyond max_body in base64", asCall(`"body_base64":"` + strings.Repeat("YWFh", 24<<10) + `"`), 413, ""},
	{"body: looks like a request", asCall(`"body":` + quote("\r\n\r\n"+smuggled)), 202, "GET /x|\r\n\r\n" + smuggled},

	{"priority: too high", asCall(`"priority":101`), 400, ""},
	{"priority: too low", asCall(`"priority":-101`), 400, ""},
	{"priority: beyond int64", asCall(`"priority":9223372036854775808`), 400, ""},
	{"priority: wraps around 32 bits", asCall(`"priority":4294967296`), 400, ""},
	{"priority: wraps around 8 bits", asCall(`"priority":256`), 400, ""},
	{"priority: fraction", asCall(`"priority":1.5`), 400, ""},
	{"priority: exponent", asCall(`"priority":1e400`), 400, ""},
	{"priority: text", asCall(`"priority":"100"`), 400, ""},

	{"key: 256 bytes", asCall(`"idempotency_key":"` + strings.Repeat("k", 256) + `"`), 400, ""},
	{"key: number", asCall(`"idempotency_key":1`), 400, ""},
	{"callback: unknown", asCall(`"callback":"evil"`), 400, ""},
	{"callback: URL", asCall(`"callback":"http://169.254.169.254/"`), 400, ""},
	{"callback: object", asCall(`"callback":{"url":"http://evil.example"}`), 400, ""},

	{"instant: no zone", asCall(`"deadline":"2026-11-21T09:00:00"`), 400, ""},
	{"instant: day that is none", asCall(`"deadline":"2026-02-30T00:00:00Z"`), 400, ""},
	{"instant: five digits of year", asCall(`"deadline":"10000-01-01T00:00:00Z"`), 400, ""},
	{"instant: hour 24", asCall(`"deadline":"2200-01-01T24:00:00Z"`), 400, ""},
	{"instant: zone beyond a day", asCall(`"deadline":"2200-01-01T00:00:00+99:99"`), 400, ""},
	{"instant: seconds", asCall(`"deadline":4102444800`), 400, ""},
	{"instant: word", asCall(`"deadline":"tomorrow"`), 400, ""},
	{"instant: object", asCall(`"not_before":{}`), 400, ""},
	{"instant: list", asCall(`"not_before":["2200-01-01T00:00:00Z"]`), 400, ""},
	{"instant: deadline in the year 9999", asCall(`"deadline":"9999-12-31T23:59:59Z"`), 202, "GET /x"},
	{"instant: not before the year 1", asCall(`"not_before":"0001-01-01T00:00:01Z"`), 202, "GET /x"},
	{"instant: not before 1970", asCall(`"not_before":"1969-12-31T23:59:59Z"`), 202, "GET /x"},
}

// ask of the admin API, its status and a text of its answer.
type question struct {
	name, method, path, body string
	status                   int
	has                      string
}

// A batch is a body of POST /v1/calls/batch, the status of its answer and a text of it. None of its
// lines is accepted.
var batches = []struct {
	name, body, media string
	status            int
	has               string
}{
	{"one JSON document", "[" + withPath("/evil") + "]", ndjson, 400, "no NDJSON"},
	{"lines in a list", "[" + withPath("/evil") + ",\n" + withPath("/evil") + "]", ndjson, 400, "no NDJSON"},
	{"media type of JSON", withPath("/evil"), "application/json", 415, ndjson},
	{"media type of a form", withPath("/evil"), "text/plain", 415, ndjson},
	{"media type that begins alike", withPath("/evil"), ndjson + "-not", 415, ndjson},
	{"1,001 lines", strings.Repeat(withPath("/evil")+"\n", 1001), ndjson, 413, "1001 lines"},
	{"a million empty lines", strings.Repeat("\n", 1_000_000), ndjson, 400, "empty"},
	{"a million short lines", strings.Repeat("1\n", 1_000_000), ndjson, 413, "1000000 lines"},
	{"beyond 16 MiB", withPath("/evil") + strings.Repeat(" ", 16<<20), ndjson, 413, "16777216 bytes"},
	{"nothing", "", ndjson, 400, "empty"},
	{"two objects on a line", "{}\n" + withPath("/evil") + withPath("/evil"), ndjson, 200, `{"line":2,"problem":`},
	{"CR between lines", "{}\n" + withPath("/evil") + "\r" + withPath("/evil"), ndjson, 200, `{"line":2,"problem":`},
	{"line separator of Unicode", "{}\n" + withPath("/evil") + "\u2028" + withPath("/evil"), ndjson, 200, `{"line":2,"problem":`},
	{"byte order mark", "{}\n\ufeff" + withPath("/evil"), ndjson, 200, `{"line":2,"problem":`},
	{"NUL behind a line", "{}\n" + withPath("/evil") + "\x00", ndjson, 200, `{"line":2,"problem":`},
	{"line that breaks off", "{}\n" + withPath("/evil")[1:], ndjson, 200, `{"line":2,"problem":`},
	{"100,000 brackets", "{}\n" + strings.Repeat("[", 100_000), ndjson, 200, `{"line":2,"problem":`},
	{"unknown upstream", `{"upstream":"evil","method":"GET","path":"/evil"}`, ndjson, 200, `"reason":"not_found"`},
	{"line break in a header", withHeader("X-A", "a\r\nX-B: b"), ndjson, 200, `"reason":"bad_request"`},
	{"header Host", withHeader("Host", "evil.example"), ndjson, 200, `"/headers/Host"`},
	{"path with dots", withPath("/../evil"), ndjson, 200, `"reason":"bad_request"`},
	{"absolute form", withPath("http://evil.example/x"), ndjson, 200, `"reason":"bad_request"`},
	{"callback to a URL", asCall(`"callback":"http://169.254.169.254/"`), ndjson, 200, `"reason":"bad_request"`},
	{"body beyond max_body", asCall(`"body":"` + strings.Repeat("a", 70<<10) + `"`), ndjson, 200, `"reason":"too_large"`},
	{"member of an answer", asCall(`"submitted_by":"root"`), ndjson, 200, `"/submitted_by"`},
}

const ndjson = "application/x-ndjson"

const noCall = "01a00000-0000-7000-8000-000000000000"

var questions = []question{
	{"id: unknown", "GET", "/v1/calls/" + noCall, "", 404, "not_found"},
	{"id: none", "GET", "/v1/calls/x", "", 404, "not_found"},
	{"id: of SQL", "GET", "/v1/calls/'%20OR%201=1--", "", 404, "not_found"},
	{"id: NUL", "GET", "/v1/calls/%00", "", 404, "not_found"},
	{"id: line break", "GET", "/v1/calls/a%0d%0aX:%20y", "", 404, "not_found"},
	{"id: markup", "GET", "/v1/calls/%3Cscript%3E", "", 404, "not_found"},
	{"id: 10,000 bytes", "GET", "/v1/calls/" + strings.Repeat("a", 10_000), "", 404, "not_found"},
	{"id: cancels an unknown call", "POST", "/v1/calls/" + noCall + "/cancel", "", 404, "not_found"},
	{"id: retries an unknown call", "POST", "/v1/calls/" + noCall + "/retry", `{"attempt":1,"reason":"x"}`, 404, "not_found"},
	{"id: resolves an unknown call", "POST", "/v1/calls/" + noCall + "/resolve", `{"outcome":"done","attempt":1,"reason":"x"}`, 404, "not_found"},
	{"id: escaped slash", "GET", "/v1/calls/a%2fretry", "", 404, "not_found"},

	{"list: unknown parameter", "GET", "/v1/calls?where=1", "", 400, "unknown"},
	{"list: parameter twice", "GET", "/v1/calls?page_size=1&page_size=1000", "", 400, "2 times"},
	{"list: broken escape", "GET", "/v1/calls?page_size=%zz", "", 400, "query"},
	{"list: semicolon", "GET", "/v1/calls?page_size=1;cursor=x", "", 400, "query"},
	{"list: page size zero", "GET", "/v1/calls?page_size=0", "", 400, "page_size"},
	{"list: page size below zero", "GET", "/v1/calls?page_size=-1", "", 400, "page_size"},
	{"list: page size of 1,001", "GET", "/v1/calls?page_size=1001", "", 400, "page_size"},
	{"list: page size beyond int64", "GET", "/v1/calls?page_size=9223372036854775808", "", 400, "page_size"},
	{"list: page size in hexadecimal", "GET", "/v1/calls?page_size=0x10", "", 400, "page_size"},
	{"list: page size with an exponent", "GET", "/v1/calls?page_size=1e3", "", 400, "page_size"},
	{"list: unknown state", "GET", "/v1/calls?state=evil", "", 400, "state"},
	{"list: state of SQL", "GET", "/v1/calls?state=waiting'--", "", 400, "state"},
	{"list: unknown upstream", "GET", "/v1/calls?upstream=evil", "", 404, "not configured"},
	{"list: cursor that is none", "GET", "/v1/calls?cursor=x", "", 400, "cursor"},
	{"list: cursor of SQL", "GET", "/v1/calls?cursor='%3BDROP%20TABLE%20call--", "", 400, "cursor"},
	{"list: 10,001 parameters", "GET", "/v1/calls?" + strings.Repeat("&a", 7000), "", 400, ""},
	{"limits: unknown upstream", "GET", "/v1/limits?upstream=evil", "", 404, "not configured"},
	{"limits: unknown parameter", "GET", "/v1/limits?key=x", "", 400, "unknown"},
	{"upstreams: unknown parameter", "GET", "/v1/upstreams?name=a", "", 400, "unknown"},
	{"latest events: unknown parameter", "GET", "/v1/events/latest?routes=true", "", 400, "unknown"},
	{"latest events: unknown upstream", "GET", "/v1/events/latest?upstream=evil", "", 404, "not configured"},
	{"latest events: too many", "GET", "/v1/events/latest?page_size=1001", "", 400, "page_size"},
	{"keys: key of SQL", "GET", "/v1/upstreams/b/limits/one/keys?key='%20OR%201=1--", "", 400, "no keys"},
	{"keys: unknown limit", "GET", "/v1/upstreams/b/limits/evil/keys", "", 404, "evil"},
	{"keys: page size beyond all", "GET", "/v1/upstreams/b/limits/one/keys?page_size=101", "", 400, "page_size"},
	{"keys: unknown order", "GET", "/v1/upstreams/b/limits/one/keys?sort=key", "", 400, "sort"},
	{"flows: unknown upstream", "GET", "/v1/upstreams/evil/flows", "", 404, "not configured"},
	{"flows: page size below zero", "GET", "/v1/upstreams/b/flows?page_size=-1", "", 400, "page_size"},
	{"history: no upstream", "GET", "/v1/history", "", 400, "missing"},
	{"history: unknown upstream", "GET", "/v1/history?upstream=evil", "", 404, "not configured"},
	{"history: unknown limit", "GET", "/v1/history?upstream=b&limit=evil", "", 404, "evil"},
	{"history: step of a nanosecond", "GET", "/v1/history?upstream=b&step=1ns", "", 400, "step"},
	{"history: from the year 0", "GET", "/v1/history?upstream=b&from=0000-01-01T00:00:00Z", "", 200, "step_ms"},
	{"history: to the year 9999", "GET", "/v1/history?upstream=b&to=9999-12-31T23:59:59Z", "", 200, "step_ms"},
	{"events: unknown parameter", "GET", "/v1/events?since=0", "", 400, "unknown"},
	{"events: unknown upstream", "GET", "/v1/events?upstream=evil", "", 404, "not configured"},
	{"events: unknown call", "GET", "/v1/events?call=" + noCall, "", 404, "not_found"},

	{"pause: no body", "POST", "/v1/pauses", "", 400, "empty"},
	{"pause: no end", "POST", "/v1/pauses", `{"upstream":"b"}`, 400, "missing"},
	{"pause: two ends", "POST", "/v1/pauses", `{"upstream":"b","for":"1s","until":"2200-01-01T00:00:00Z"}`, 400, "both"},
	{"pause: below zero", "POST", "/v1/pauses", `{"upstream":"b","for":"-1s"}`, 400, "positive"},
	{"pause: zero", "POST", "/v1/pauses", `{"upstream":"b","for":"0s"}`, 400, "positive"},
	{"pause: no unit", "POST", "/v1/pauses", `{"upstream":"b","for":"10"}`, 400, "positive"},
	{"pause: number", "POST", "/v1/pauses", `{"upstream":"b","for":10}`, 400, "for"},
	{"pause: 300 years", "POST", "/v1/pauses", `{"upstream":"b","for":"2628000h"}`, 400, "positive"},
	{"pause: not a number", "POST", "/v1/pauses", `{"upstream":"b","for":"NaNs"}`, 400, "positive"},
	{"pause: until yesterday", "POST", "/v1/pauses", `{"upstream":"b","until":"2020-01-01T00:00:00Z"}`, 400, "passed"},
	{"pause: until the year 0", "POST", "/v1/pauses", `{"upstream":"b","until":"0000-01-01T00:00:00Z"}`, 400, "passed"},
	{"pause: unknown limit", "POST", "/v1/pauses", `{"upstream":"b","for":"1h","limit":"evil"}`, 404, "evil"},
	{"pause: key without a limit", "POST", "/v1/pauses", `{"upstream":"b","for":"1h","key":"k"}`, 400, "without a limit"},
	{"pause: key of a limit without keys", "POST", "/v1/pauses", `{"upstream":"b","for":"1h","limit":"one","key":"k"}`, 400, ""},
	{"pause: unknown member", "POST", "/v1/pauses", `{"upstream":"b","for":"1h","all":true}`, 400, "unknown"},
	{"pause: unknown upstream", "POST", "/v1/pauses", `{"upstream":"evil","for":"1h"}`, 404, "not configured"},
	{"pause: upstream with a slash", "POST", "/v1/pauses", `{"upstream":"b/pause","for":"1h"}`, 404, "not configured"},
	{"pause: no upstream", "POST", "/v1/pauses", `{"for":"1h"}`, 400, "upstream is missing"},
	{"pause: escape as a reason", "POST", "/v1/pauses", `{"upstream":"b","reason":"\u001b[2J","for":"1h"}`, 400, "control"},
	{"resume: unknown pause", "DELETE", "/v1/pauses/evil", "", 404, "there is no pause"},
	{"resume: all pauses", "DELETE", "/v1/pauses", "", 405, "GET"},
	{"resume: pause of SQL", "DELETE", "/v1/pauses/'%20OR%201=1--", "", 404, "there is no pause"},
	{"resume: line break as a reason", "DELETE", "/v1/pauses/PAUSE?reason=a%0ab", "", 400, "control"},
	{"resume: another id as a parameter", "DELETE", "/v1/pauses/PAUSE?id=x", "", 400, "unknown"},
	{"resolve: a call that waits", "POST", "/v1/calls/ID/resolve", `{"outcome":"done","attempt":1,"reason":"x"}`, 409, "wrong_state"},
	{"resolve: unknown outcome", "POST", "/v1/calls/ID/resolve", `{"outcome":"evil","attempt":1,"reason":"x"}`, 400, "/outcome"},
	{"resolve: no outcome", "POST", "/v1/calls/ID/resolve", `{}`, 400, "/reason"},
	{"resolve: no body", "POST", "/v1/calls/ID/resolve", "", 400, "empty"},
	{"resolve: attempt below zero", "POST", "/v1/calls/ID/resolve", `{"outcome":"done","attempt":-1,"reason":"x"}`, 400, "/attempt"},
	{"ask: a call that waits", "POST", "/v1/calls/ID/ask", "", 409, "wrong_state"},
	{"edit: nothing", "PATCH", "/v1/calls/ID", `{}`, 400, "nothing is to be changed"},
	{"edit: priority beyond all", "PATCH", "/v1/calls/ID", `{"priority":101}`, 400, "101"},
	{"edit: another target", "PATCH", "/v1/calls/ID", `{"target":"/evil"}`, 400, "unknown field"},
	{"bulk: no filter", "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{}}`, 400, "/filter"},
	{"bulk: unknown action", "POST", "/v1/calls/bulk", `{"action":"submit","filter":{"upstream":"b"}}`, 400, "/action"},
	{"audit: unknown parameter", "GET", "/v1/audit?where=1", "", 400, "unknown"},
	{"audit: cursor of SQL", "GET", "/v1/audit?cursor='%3BDROP%20TABLE%20audit--", "", 400, "cursor"},
	{"audit: cursor below zero", "GET", "/v1/audit?cursor=-1", "", 400, "cursor"},
	{"audit: actor of SQL", "GET", "/v1/audit?actor='%20OR%201=1--", "", 200, `{"records":[]}`},
	{"refusals: reason of SQL", "GET", "/v1/refusals?reason='%20OR%201=1--", "", 400, "is unknown"},
	{"refusals: empty upstream", "GET", "/v1/refusals?upstream=", "", 400, "upstream is empty"},
	{"refusals: unknown upstream", "GET", "/v1/refusals?upstream=evil", "", 404, "not configured"},
	{"refusals: cursor that is none", "GET", "/v1/refusals?cursor=AAAA", "", 400, "cursor"},
	{"refusals: page size beyond int64", "GET", "/v1/refusals?page_size=9223372036854775808", "", 400, "page_size"},
	{"refusals: method that erases them", "DELETE", "/v1/refusals", "", 405, "GET"},
	{"list: number of SQL", "GET", "/v1/calls?number='%20OR%201=1--", "", 200, `{"calls":[]}`},
	{"list: wildcards in a prefix", "GET", "/v1/calls?path_prefix=%25", "", 200, `{"calls":[]}`},
	{"retry: a call that waits", "POST", "/v1/calls/ID/retry", `{"attempt":1,"accept_duplicate":true,"reason":"x"}`, 409, "wrong_state"},

	{"path: unknown", "GET", "/v2/calls", "", 404, "no GET"},
	{"path: debugging", "GET", "/debug/pprof/", "", 404, "no GET"},
	{"path: variables", "GET", "/debug/vars", "", 404, "no GET"},
	{"path: dots", "GET", "/v1/../metrics", "", 307, ""},
	{"path: two slashes", "GET", "//v1/calls", "", 307, ""},
	{"path: upper case", "GET", "/V1/calls", "", 404, "no GET"},
	{"path: slash at the end", "GET", "/v1/calls/", "", 404, ""},
	{"method: PUT", "PUT", "/v1/calls", "", 405, "GET"},
	{"method: DELETE of all", "DELETE", "/v1/calls", "", 405, "GET"},
	{"method: OPTIONS", "OPTIONS", "/v1/calls", "", 405, "GET"},
	{"method: TRACE", "TRACE", "/v1/calls", "", 405, "GET"},
	{"method: reload by GET", "GET", "/v1/config/reload", "", 405, "POST"},
	{"method: diff by POST", "POST", "/v1/config/diff", "", 405, "GET"},
	{"reload: another file", "POST", "/v1/config/reload?file=/etc/passwd", "", 412, "changed since"},
	{"reload: two files", "POST", "/v1/config/reload?file=a&file=b", "", 400, "once"},
	{"diff: another file", "GET", "/v1/config/diff?file=/etc/passwd", "", 400, "unknown"},
	{"method: pause by PUT", "PUT", "/v1/pauses", "", 405, "POST"},
	{"method: override by a field", "GET", "/v1/pauses?_method=POST", "", 400, "unknown"},
	{"method: metrics by POST", "POST", "/metrics", "", 405, "GET"},
}

// TestAdmin attacks the admin API: as a web page, by names that were made to lead there, and
// as a program with odd requests.
func TestAdmin(t *testing.T) {
	f := newFamily(t, "admin", 252)
	p := newPlatform(t, always(ok))
	s := start(t, "  a: {listen: '127.0.0.1:0', hosts: [payments.internal], max_body: 64KiB, url: 'http://"+p.addr+"'}\n"+
		"  b: {url: 'http://"+p.addr+"', limits: [{name: one, calls: 1, window: 1h}]}\n"+
		"  held: {url: 'http://"+p.addr+"', callbacks: {shop: {url: 'http://"+p.addr+"', secret: env:SHOP}}}\n", "SHOP=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	type call struct{ ID, State string }
	pause := read[call](t, ask(t, "POST", s.admin, "/v1/pauses", `{"upstream":"held","for":"24h"}`)).ID
	held := read[call](t, ask(t, "POST", s.admin, "/v1/calls", `{"upstream":"held","method":"GET","path":"/held"}`)).ID
	fill := strings.NewReplacer("ID", held, "PAUSE", pause).Replace
	// unharmed fails the case if the attack has changed something.
	unharmed := func(t *testing.T) {
		t.Helper()
		if reached := texts(p.take()); len(reached) > 0 {
			t.Errorf("the upstream got %q", reached)
		}
		if c := read[call](t, ask(t, "GET", s.admin, "/v1/calls/"+held, "")); c.State != "waiting" {
			t.Errorf("the call that waits is %s", c.State)
		}
		if a, h := s.state(t, "a"), s.state(t, "held"); a != "up" || h != "paused" {
			t.Errorf("upstream a is %s, held is %s", a, h)
		}
		s.alive(t)
	}
	for _, op := range operations {
		for _, from := range foreigners {
			f.attack(op.name+" "+from.name, func(t *testing.T) {
				r := ask(t, op.method, s.admin, fill(op.path), fill(op.body), from.lines...)
				if r.status != from.status || r.header.Get("Cross-Origin-Resource-Policy") != "same-origin" || r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%+v", r)
				}
				unharmed(t)
			})
		}
	}
	for _, tt := range callers {
		f.attack("caller: "+tt.name, func(t *testing.T) {
			resume(t, s, "b")
			r := ask(t, "POST", s.admin, "/v1/pauses", `{"upstream":"b","for":"1h"}`, tt.lines...)
			if paused := s.state(t, "b") == "paused"; r.status != tt.status || paused != (tt.status == 201) {
				t.Errorf("%d, want %d; paused %v: %s", r.status, tt.status, paused, r.body)
			}
		})
	}
	for _, tt := range []struct {
		name   string
		status int
		lines  []string
	}{
		{"a person follows it", 200, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Fetch-User: ?1")},
		{"a script follows it", 403, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")},
		{"in a frame", 403, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe", "Sec-Fetch-User: ?1")},
		{"as an image", 403, got("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image")},
		{"by a rebound name", 421, got("Host: evil.example", "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Fetch-User: ?1")},
	} {
		f.attack("link: "+tt.name, func(t *testing.T) {
			if r := ask(t, "GET", s.admin, "/v1/upstreams", "", tt.lines...); r.status != tt.status || r.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%+v, want %d", r, tt.status)
			}
		})
	}
	for _, tt := range submissions {
		f.attack("submit: "+tt.name, func(t *testing.T) {
			r := ask(t, "POST", s.admin, "/v1/calls", tt.body)
			if r.status != tt.status {
				t.Fatalf("%d %.300s, want %d", r.status, r.body, tt.status)
			}
			if tt.status != 202 {
				if !strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") || len(r.body) > 200<<10 {
					t.Errorf("%+v", r)
				}
				unharmed(t)
				return
			}
			id := read[call](t, r).ID
			if c := read[call](t, ask(t, "GET", s.admin, "/v1/calls/"+id, "", "Prefer: wait=60")); c.State != "done" {
				t.Errorf("the call is %s", c.State)
			}
			if reached := texts(p.take()); !slices.Equal(reached, got(tt.line)) {
				t.Errorf("the upstream got %q, want %q", reached, tt.line)
			}
			p.check(t)
		})
	}
	for _, tt := range batches {
		f.attack("batch: "+tt.name, func(t *testing.T) {
			r := ask(t, "POST", s.admin, "/v1/calls/batch", tt.body, "Content-Type: "+tt.media)
			if r.status != tt.status || !strings.Contains(r.body, tt.has) || strings.Contains(r.body, `"call":{`) || len(r.body) > 200<<10 {
				t.Errorf("%d %.300s, want %d with %q", r.status, r.body, tt.status, tt.has)
			}
			unharmed(t)
		})
	}
	f.attack("batch: one key for all lines", func(t *testing.T) {
		r := ask(t, "POST", s.admin, "/v1/calls/batch", withPath("/evil"), "Content-Type: "+ndjson, "Idempotency-Key: k")
		if r.status != 400 || !strings.Contains(r.body, "idempotency_key") {
			t.Errorf("%+v", r)
		}
		unharmed(t)
	})
	resume(t, s, "b")
	for _, tt := range questions {
		f.attack("question: "+tt.name, func(t *testing.T) {
			w := dial(t, s.admin)
			io.WriteString(w, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", tt.method, fill(tt.path), len(tt.body), tt.body))
			r, _ := w.reply(t, tt.method)
			if r.status != tt.status || !strings.Contains(r.body, tt.has) || r.status != 307 && strings.Contains(r.header.Get("Content-Type"), "html") {
				t.Errorf("%d %.300s %v, want %d with %q", r.status, r.body, r.header, tt.status, tt.has)
			}
			if b := s.state(t, "b"); b != "up" {
				t.Errorf("upstream b is %s", b)
			}
			unharmed(t)
		})
	}
	events(t, f, s)
	metrics(t, f, s, p)
}

// resume ends all pauses of an upstream.
func resume(t *testing.T, s *sidecar, upstream string) {
	t.Helper()
	type pauses struct {
		Pauses []struct{ ID, Upstream string }
	}
	for _, p := range read[pauses](t, ask(t, "GET", s.admin, "/v1/pauses", "")).Pauses {
		if p.Upstream == upstream {
			if r := ask(t, "DELETE", s.admin, "/v1/pauses/"+p.ID, ""); r.status != 200 {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// events attacks the streams of events.
func events(t *testing.T, f *family, s *sidecar) {
	f.attack("events: 65 streams at once", func(t *testing.T) {
		for i := range 65 {
			w := dial(t, s.admin)
			io.WriteString(w, to("GET /v1/events")+"\r\n")
			first, err := w.br.ReadString('\n')
			if want := map[bool]string{true: " 200 ", false: " 503 "}[i < 64]; err != nil || !strings.Contains(first, want) {
				t.Errorf("stream %d: %q %v", i, first, err)
			}
			defer w.Close()
		}
		if r := ask(t, "GET", s.admin, "/healthz", ""); r.status != 200 {
			t.Errorf("%+v", r)
		}
	})
	until(t, "a stream has room again", func() bool {
		w := dial(t, s.admin)
		defer w.Close()
		io.WriteString(w, to("GET /v1/events")+"\r\n")
		first, _ := w.br.ReadString('\n')
		return strings.Contains(first, " 200 ")
	})
	for name, id := range map[string]string{"a number beyond all": "x-99999999999999999999", "one of another process": "abc-5", "a line break": "a%0d%0adata:", "no number": "-", "10 KiB": strings.Repeat("1", 10<<10)} {
		f.attack("events: Last-Event-ID is "+name, func(t *testing.T) {
			w := dial(t, s.admin)
			defer w.Close()
			io.WriteString(w, to("GET /v1/events")+"Last-Event-ID: "+id+"\r\n\r\n")
			first, err := w.br.ReadString('\n')
			if err != nil || !strings.Contains(first, " 200 ") {
				t.Fatalf("%q %v", first, err)
			}
			for line := ""; !strings.HasPrefix(line, "data:"); {
				if line, err = w.br.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line, "data:") && !strings.Contains(line, `"restarted":true`) {
					t.Errorf("the first event is %q", line)
				}
			}
		})
	}
}

// metrics looks for labels that clients could add.
func metrics(t *testing.T, f *family, s *sidecar, p *platform) {
	series := func() int { return strings.Count(ask(t, "GET", s.admin, "/metrics", "").body, "\n") }
	ask(t, "GET", s.data(t, "a"), "/warm", "")
	ask(t, "POST", s.admin, "/v1/calls", `{"upstream":"evil","method":"GET","path":"/x"}`)
	before := series()
	for name, do := range map[string]func(i int){
		"methods": func(i int) { ask(t, "M"+strconv.Itoa(i), s.data(t, "a"), "/x", "") },
		"paths":   func(i int) { ask(t, "GET", s.data(t, "a"), "/x"+strconv.Itoa(i), "") },
		"hosts": func(i int) {
			ask(t, "GET", s.data(t, "a"), "/x", "", "Host: h"+strconv.Itoa(i)+".example")
		},
		"upstreams of submissions": func(i int) {
			ask(t, "POST", s.admin, "/v1/calls", fmt.Sprintf(`{"upstream":"u%d","method":"GET","path":"/x"}`, i))
		},
		"keys": func(i int) {
			ask(t, "POST", s.admin, "/v1/calls", fmt.Sprintf(`{"upstream":"a","method":"GET","path":"/x","idempotency_key":"k%d"}`, i))
		},
	} {
		f.attack("metrics: 100 "+name+" add no series", func(t *testing.T) {
			for i := range 100 {
				do(i)
			}
			until(t, "no call waits", func() bool {
				return strings.Contains(ask(t, "GET", s.admin, "/v1/upstreams", "").body, `"name":"a","url":"http://`+p.addr+`","state":"up","waiting":0,"sending":0`)
			})
			// A kind of refusal or outcome may come for the first time.
			if after := series(); after > before+12 {
				t.Errorf("%d lines of metrics became %d", before, after)
			}
			before = series()
		})
	}
	p.take()
}
