package security

import (
	"slices"
	"strings"
	"testing"
)

// A target is a request target and the status of its answer. With 200 it must reach the
// upstream byte for byte.
type target struct {
	name, target string
	status       int
}

var targets = []target{
	{"root", "/", 200},
	{"empty query", "/?", 200},
	{"question marks in the query", "/?a?b??c", 200},
	{"slashes inside", "/a//b///c", 200},
	{"slash at the end", "/a/b/", 200},
	{"escaped slash", "/a%2fb", 200},
	{"escaped slash in upper case", "/a%2Fb", 200},
	{"escaped unreserved character", "/%7Euser/%41", 200},
	{"path parameters", "/a;b=c;d/e", 200},
	{"reserved characters", "/a,b:c@d'e(f)g*h$i!j&k=l+m", 200},
	{"brackets", "/a[0]/b", 200},
	{"braces, which net/url escapes", "/orders/{id}", 200},
	{"bar, which net/url escapes", "/a|b", 200},
	{"circumflex and grave accent", "/a^b`c", 200},
	{"quotes and angles", "/a\"b<c>", 200},
	{"backslash that leads nowhere", "/a\\b", 200},
	{"escaped UTF-8", "/%e4%b8%ad", 200},
	{"raw UTF-8", "/\u4e2d", 200},
	{"raw bytes that are no UTF-8", "/\xff\xfe", 200},
	{"three dots", "/.../a", 200},
	{"dots at a name's ends", "/.a/b../c.", 200},
	{"space as plus and as escape", "/a+b%20c?d+e%20f", 200},
	{"broken escape in the query", "/?a=%zz", 200},
	{"parameter twice", "/?a=b&a=c&&=d", 200},
	{"dots in the query", "/?a=../../etc/passwd", 200},
	{"URL in the query", "/?a=http://evil.example/b", 200},
	{"escaped line break in the query", "/?a=%0d%0aX-Injected:%20b", 200},
	{"escaped NUL in the query", "/?a=%00", 200},
	{"dots escaped twice", "/%252e%252e/a", 200},
	{"dots in overlong UTF-8", "/%c0%ae%c0%ae/a", 200},
	{"long", "/" + strings.Repeat("a", 15_000), 200},
	{"too long for a head", "/" + strings.Repeat("a", 30_000), 431},
	{"fragment", "/a#b", 400},
	{"fragment in the query", "/?a#b", 400},
	{"space", "/a b", 400},
	{"tab", "/a\tb", 400},
	{"DEL", "/a\x7fb", 400},
	{"NUL", "/a\x00b", 400},
	{"escaped NUL", "/a%00b", 400},
	{"escaped line break", "/a%0d%0aX-Injected:%20b", 400},
	{"escaped control byte", "/a%1fb", 400},
	{"escaped DEL", "/a%7fb", 400},
	{"broken escape", "/a%zz", 400},
	{"half an escape", "/a%2", 400},
	{"percent sign at the end", "/a%", 400},
	{"escape of JavaScript", "/a%u002e", 400},
	{"no slash", "a/b", 400},
	{"asterisk", "*", 400},
	{"two slashes and a host", "//evil.example/a", 400},
	{"three slashes", "///a", 400},
	{"authority", "localhost:80", 400},
	{"empty", "", 400},
}

// up are targets that lead out of the base path, for some servers at least.
var up = []target{
	{"dots", "/../admin", 400},
	{"dots alone", "/..", 400},
	{"a dot alone", "/.", 400},
	{"dots at the end", "/a/..", 400},
	{"twice", "/a/../../admin", 400},
	{"a dot inside", "/a/./b", 400},
	{"escaped", "/%2e%2e/admin", 400},
	{"escaped in upper case", "/%2E%2E/admin", 400},
	{"the first one escaped", "/%2e./admin", 400},
	{"the second one escaped", "/.%2e/admin", 400},
	{"escaped slash", "/..%2fadmin", 400},
	{"all escaped", "/%2e%2e%2fadmin", 400},
	{"escaped slashes inside", "/a%2f..%2f..%2fadmin", 400},
	{"backslash", "/..\\admin", 400},
	{"escaped backslash", "/..%5cadmin", 400},
	{"backslash before", "/a\\..\\..\\admin", 400},
	{"empty parameter", "/..;/admin", 400},
	{"parameter", "/..;x=1/admin", 400},
	{"escaped semicolon", "/..%3bx/admin", 400},
	{"escaped dots with a parameter", "/%2e%2e;x=1/admin", 400},
	{"a dot with a parameter", "/.;x/admin", 400},
	{"parameter, then dots", "/a;x/../../admin", 400},
	{"NUL behind the dots", "/..%00/admin", 400},
	{"two slashes", "//admin", 400},
	{"absolute form", "http://localhost/../admin", 400},
	{"absolute form, escaped", "http://localhost/%2e%2e/admin", 400},
	{"three dots stay inside", "/.../admin", 200},
	{"dots in a name stay inside", "/..a/b", 200},
	{"dots in the query stay inside", "/a?../../admin", 200},
	{"dots behind a parameter stay inside", "/a;../b", 200},
}

// A passing is a request of a client, the status of its answer, the request line that
// reaches the upstream, and all of its fields but Host. No line: it must not arrive.
type passing struct {
	name, raw string
	status    int
	line      string
	fields    []string
}

// with is a GET with fields.
func with(fields string) string { return to("GET /x") + fields + "\r\n" }

var absolutes = []passing{
	{"absolute: the listener's own name", "GET http://localhost/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x", nil},
	{"absolute: upper case", "GET HTTP://LOCALHOST/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x", nil},
	{"absolute: with a port", "GET http://localhost:1/x HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 200, "GET /x", nil},
	{"absolute: no path", "GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /", nil},
	{"absolute: only a query", "GET http://localhost?a=/../b HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /?a=/../b", nil},
	{"absolute: https", "GET https://localhost/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x", nil},
	{"absolute: a user in front of the name", "GET http://user:secret@localhost/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x", nil},
	{"absolute: the name wins over Host", "GET http://localhost/x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200, "GET /x", nil},
	{"absolute: foreign name", "GET http://evil.example/x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "", nil},
	{"absolute: foreign name wins over Host", "GET http://evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "", nil},
	{"absolute: metadata of a cloud", "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "", nil},
	{"absolute: own name as the user", "GET http://localhost@evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "", nil},
	{"absolute: backslash behind the name", "GET http://localhost\\@evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "", nil},
	{"absolute: fragment behind a foreign name", "GET http://evil.example#@localhost/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "", nil},
	{"absolute: two slashes in the path", "GET http://localhost//evil.example/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "", nil},
	{"absolute: no name", "GET http:///x HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x", nil},
	{"absolute: a file", "GET file:///etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /etc/passwd", nil},
	{"absolute: a socket in the query", "GET /x?http://unix:/var/run/docker.sock HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "GET /x?http://unix:/var/run/docker.sock", nil},
	{"absolute: opaque", "GET mailto:a@evil.example HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "", nil},
}

var hops = []passing{
	{"hop: close", with("Connection: close\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: keep-alive", with("Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: a field that Connection names", with("Connection: X-A\r\nX-A: 1\r\nX-B: 2\r\n"), 200, "GET /x", got("X-B: 2")},
	{"hop: named in another case", with("Connection: x-a\r\nX-A: 1\r\nX-B: 2\r\n"), 200, "GET /x", got("X-B: 2")},
	{"hop: two in a list", with("Connection: X-A ,\tX-B\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n"), 200, "GET /x", got("X-C: 3")},
	{"hop: two lines of Connection", with("Connection: X-A\r\nConnection: X-B\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n"), 200, "GET /x", got("X-C: 3")},
	{"hop: all lines of a field that Connection names", with("Connection: X-A\r\nX-A: 1\r\nX-A: 2\r\nX-B: 2\r\n"), 200, "GET /x", got("X-B: 2")},
	{"hop: Connection names Host", with("Connection: Host\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: Connection names itself", with("Connection: Connection\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: Connection names Content-Length", post("Connection: Content-Length\r\nContent-Length: 5\r\n\r\nhello"), 200, "POST /x|hello", got("Content-Length: 5")},
	{"hop: Connection names the sidecar's own", with("Connection: Throttler-Max-Wait\r\nThrottler-Max-Wait: 1s\r\n"), 200, "GET /x", got()},
	{"hop: proxy fields", with("Proxy-Connection: close\r\nProxy-Authorization: Basic YTpi\r\nProxy-Authenticate: Basic\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: TE", with("TE: trailers, deflate;q=0.5\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: Trailer without chunks", with("Trailer: X-A\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: Upgrade", with("Upgrade: h2c\r\nConnection: Upgrade\r\n"), 400, "", nil},
	{"hop: Upgrade without Connection", with("Upgrade: TLS/1.0\r\n"), 400, "", nil},
	{"hop: the sidecar's own", with("Throttler-Priority: 5\r\nThrottler-Deadline: 2200-01-01T00:00:00Z\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: one of the sidecar's answers", with("Throttler-Outcome: done\r\nThrottler-Call: 1\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: the sidecar's own in lower case", with("throttler-priority: 1\r\nX-A: 1\r\n"), 200, "GET /x", got("X-A: 1")},
	{"hop: one that the sidecar does not know", with("throttler-anything: 1\r\nX-A: 1\r\n"), 400, "", nil},
	{"hop: the prefix inside a name", with("X-Throttler-A: 1\r\n"), 200, "GET /x", got("X-Throttler-A: 1")},
	{"hop: where the client claims to be", with("X-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nVia: 1.1 a\r\n"), 200, "GET /x", got("Forwarded: for=10.0.0.1", "Via: 1.1 a", "X-Forwarded-For: 10.0.0.1")},
	{"hop: X-Forwarded-Host is no Host", with("X-Forwarded-Host: evil.example\r\n"), 200, "GET /x", got("X-Forwarded-Host: evil.example")},
	{"hop: methods in fields change nothing", with("X-HTTP-Method-Override: DELETE\r\n"), 200, "GET /x", got("X-HTTP-Method-Override: DELETE")},
	{"hop: targets in fields change nothing", with("X-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\n"), 200, "GET /x", got("X-Original-URL: /admin", "X-Rewrite-URL: /admin")},
	{"hop: lines of one field keep their order", with("X-A: 2\r\nX-A: 1\r\nX-A: 3\r\n"), 200, "GET /x", got("X-A: 2", "X-A: 1", "X-A: 3")},
	{"hop: no User-Agent of its own", with(""), 200, "GET /x", got()},
	{"hop: the client's User-Agent", with("User-Agent: a/1\r\n"), 200, "GET /x", got("User-Agent: a/1")},
	{"hop: codings of the client only", with("Accept-Encoding: br\r\n"), 200, "GET /x", got("Accept-Encoding: br")},
	{"hop: range", with("Range: bytes=0-1,-1\r\n"), 200, "GET /x", got("Range: bytes=0-1,-1")},
	{"hop: two lines of cookies", with("Cookie: a=1\r\nCookie: b=2\r\n"), 200, "GET /x", got("Cookie: a=1", "Cookie: b=2")},
	{"hop: expectation", post("Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"), 200, "POST /x|hello", got("Content-Length: 5")},
	{"hop: priority that is none", with("Throttler-Priority: 101\r\n"), 400, "", nil},
	{"hop: wait that is none", with("Throttler-Max-Wait: forever\r\n"), 400, "", nil},
	{"hop: negative wait", with("Throttler-Max-Wait: -1s\r\n"), 400, "", nil},
	{"hop: deadline that is none", with("Throttler-Deadline: tomorrow\r\n"), 400, "", nil},
}

var allBytes = func() string {
	var b strings.Builder
	for c := range 256 {
		b.WriteByte(byte(c))
	}
	return b.String()
}()

var payloads = []passing{
	{"body: all bytes", post("Content-Length: 256\r\n\r\n" + allBytes), 200, "POST /x|" + allBytes, nil},
	{"body: looks like a chunk", post("Content-Length: 5\r\n\r\n0\r\n\r\n"), 200, "POST /x|0\r\n\r\n", got("Content-Length: 5")},
	{"body: looks like an answer", post("Content-Length: 19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), 200, "POST /x|HTTP/1.1 200 OK\r\n\r\n", got("Content-Length: 19")},
	{"body: says that it is packed", post("Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"), 200, "POST /x|hello", got("Content-Encoding: gzip", "Content-Length: 5")},
	{"body: none, and a length", post("Content-Length: 0\r\n\r\n"), 200, "POST /x", got("Content-Length: 0")},
	{"body: none, and no length", post("\r\n"), 200, "POST /x", got("Content-Length: 0")},
	{"body: no chunk", chunked("0\r\n\r\n"), 200, "POST /x", got("Content-Length: 0")},
	{"body: chunks of a byte", chunked(strings.Repeat("1\r\na\r\n", 3000) + "0\r\n\r\n"), 200, "POST /x|" + strings.Repeat("a", 3000), got("Content-Length: 3000")},
	{"body: JSON that is broken", post("Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{]"), 200, "POST /x|{]", got("Content-Length: 2", "Content-Type: application/json")},
	{"body: form that is broken", post("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\n%%%"), 200, "POST /x|%%%", got("Content-Length: 3", "Content-Type: application/x-www-form-urlencoded")},
	{"body: 70 KiB", post("Content-Length: 71680\r\n\r\n" + strings.Repeat("ab", 35840)), 200, "POST /x|" + strings.Repeat("ab", 35840), nil},
	{"body: max_body", post("Content-Length: 1048576\r\n\r\n" + strings.Repeat("a", 1<<20)), 200, "POST /x|" + strings.Repeat("a", 1<<20), nil},
	{"body: of a DELETE", to("DELETE /x") + "Content-Length: 5\r\n\r\nhello", 200, "DELETE /x|hello", nil},
	{"body: of a GET in chunks", to("GET /x") + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "GET /x|hello", nil},
}

// by is a POST by a name of the host.
func by(host, fields string) string {
	return "POST /pay HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "Content-Length: 0\r\n\r\n"
}

var pages = []passing{
	{"page: foreign origin", by("localhost", "Origin: https://evil.example\r\n"), 403, "", nil},
	{"page: foreign origin, no Fetch fields", by("localhost", "Origin: http://evil.example:8081\r\n"), 403, "", nil},
	{"page: origin of a sandbox", by("localhost", "Origin: null\r\n"), 403, "", nil},
	{"page: origin that only begins alike", by("localhost", "Origin: http://localhost.evil.example\r\n"), 403, "", nil},
	{"page: origin of another port", by("localhost:8081", "Origin: http://localhost:3000\r\n"), 403, "", nil},
	{"page: origin that is none", by("localhost", "Origin: evil\r\n"), 403, "", nil},
	{"page: cross-site", by("localhost", "Sec-Fetch-Site: cross-site\r\n"), 403, "", nil},
	{"page: same site, another origin", by("localhost", "Sec-Fetch-Site: same-site\r\n"), 403, "", nil},
	{"page: Fetch field that is unknown", by("localhost", "Sec-Fetch-Site: evil\r\n"), 403, "", nil},
	{"page: foreign origin that claims to be none", by("localhost", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), 403, "", nil},
	{"page: GET of an image", to("GET /x") + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n\r\n", 403, "", nil},
	{"page: GET of a link", to("GET /x") + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\nSec-Fetch-User: ?1\r\n\r\n", 403, "", nil},
	{"page: HEAD", to("HEAD /x") + "Sec-Fetch-Site: cross-site\r\n\r\n", 403, "", nil},
	{"page: preflight", to("OPTIONS /x") + "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", 403, "", nil},
	{"page: form without a preflight", by("localhost", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Type: application/x-www-form-urlencoded\r\n"), 403, "", nil},
	{"page: beacon", by("localhost", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Type: text/plain;charset=UTF-8\r\n"), 403, "", nil},
	{"page: foreign origin by an address", by("127.0.0.1", "Origin: https://evil.example\r\n"), 403, "", nil},
	{"page: foreign origin by a configured name", by("payments.internal", "Sec-Fetch-Site: cross-site\r\n"), 403, "", nil},
	{"page: rebound name", by("evil.example:8081", "Sec-Fetch-Site: same-origin\r\n"), 403, "", nil},
	{"page: rebound name and its origin", by("evil.example:8081", "Origin: http://evil.example:8081\r\n"), 403, "", nil},
	{"page: rebound name that begins alike", by("localhost.evil.example", ""), 403, "", nil},
	{"page: rebound name that ends alike", by("evil-localhost", ""), 403, "", nil},
	{"page: rebound name with an address inside", by("127.0.0.1.evil.example", ""), 403, "", nil},
	{"page: configured name inside another", by("payments.internal.evil.example", ""), 403, "", nil},
	{"page: any address", by("0.0.0.0:8081", ""), 403, "", nil},
	{"page: any address of IPv6", by("[::]:8081", ""), 403, "", nil},
	{"page: address as a number", by("2130706433", ""), 403, "", nil},
	{"page: address in hexadecimal", by("0x7f.1", ""), 403, "", nil},
	{"page: address with a leading zero", by("0127.0.0.1", ""), 403, "", nil},
	{"page: address of the network", by("10.0.0.1", ""), 403, "", nil},
	{"page: mapped address of the network", by("[::ffff:10.0.0.1]", ""), 403, "", nil},
	{"program: localhost", by("localhost:8081", ""), 200, "POST /pay", nil},
	{"program: localhost in upper case, with a dot", by("LOCALHOST.:8081", ""), 200, "POST /pay", nil},
	{"program: loopback address", by("127.9.9.9:8081", ""), 200, "POST /pay", nil},
	{"program: loopback address of IPv6", by("[::1]:8081", ""), 200, "POST /pay", nil},
	{"program: configured name", by("Payments.Internal:8081", ""), 200, "POST /pay", nil},
	{"program: its own origin", by("localhost:8081", "Origin: http://localhost:8081\r\n"), 200, "POST /pay", nil},
	{"program: typed into a browser", by("localhost", "Sec-Fetch-Site: none\r\n"), 200, "POST /pay", nil},
}

// TestPassing sends requests that must pass unchanged, or not at all.
func TestPassing(t *testing.T) {
	f := newFamily(t, "passing", 113)
	p := newPlatform(t, always(ok))
	s := start(t, "  a: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"', hosts: [payments.internal]}\n"+
		"  base: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"/base'}\n")
	// one sends a request and returns its first answer and the request that arrived.
	one := func(t *testing.T, upstream, raw string) (reply, []arrival) {
		t.Helper()
		replies, _ := strike(t, s.data(t, upstream), raw)
		all := slices.DeleteFunc(p.take(), func(a arrival) bool { return strings.HasSuffix(a.target, "/fence") })
		p.check(t)
		s.alive(t)
		return replies[0], all
	}
	for _, of := range []struct {
		prefix, upstream, base string
		targets                []target
	}{{"target: ", "a", "", targets}, {"up: ", "base", "/base", up}} {
		for _, tt := range of.targets {
			f.attack(of.prefix+tt.name, func(t *testing.T) {
				r, all := one(t, of.upstream, "GET "+tt.target+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
				want := []string{}
				if tt.status == 200 {
					want = got("GET " + of.base + tt.target)
				}
				if reached := texts(all); r.status != tt.status || !slices.Equal(reached, want) {
					t.Errorf("status %d, want %d; the upstream got %q, want %q", r.status, tt.status, reached, want)
				}
			})
		}
	}
	for _, tt := range slices.Concat(absolutes, hops, payloads, pages) {
		f.attack(tt.name, func(t *testing.T) {
			r, all := one(t, "a", tt.raw)
			want := []string{}
			if tt.line != "" {
				want = got(tt.line)
			}
			if reached := texts(all); r.status != tt.status || !slices.Equal(reached, want) {
				t.Fatalf("status %d, want %d: %s; the upstream got %.300q, want %.300q", r.status, tt.status, r.body, reached, want)
			}
			if tt.fields == nil || len(all) == 0 {
				return
			}
			fields := slices.DeleteFunc(all[0].fields, func(f string) bool { return strings.HasPrefix(f, "Host: ") })
			slices.SortStableFunc(fields, func(a, b string) int { return strings.Compare(a[:strings.Index(a, ":")], b[:strings.Index(b, ":")]) })
			if !slices.Equal(fields, tt.fields) {
				t.Errorf("the upstream got the fields %q, want %q", fields, tt.fields)
			}
		})
	}
}
