package security

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A hostile answer is the raw bytes of an upstream, and the answer that the client must get.
type hostile struct {
	name string
	// raw is the upstream's answer; it may be followed by an end of the connection.
	raw string
	// status and outcome are those of the client's answer.
	status  int
	outcome string
	// has are texts of the client's answer, hasNot texts that it must not have.
	has, hasNot []string
	// lines are YAML of the upstream.
	lines string
	// paused says that the answer pauses the upstream.
	paused bool
	// request, if not empty, is sent instead of a GET.
	request string
	// serve, if not nil, writes the answer.
	serve func(c net.Conn)
}

// Ends of the connection behind the raw bytes of an answer. Without one, the connection is kept.
const (
	hangUp = "\x00close"
	reset  = "\x00reset"
	hang   = "\x00hang"
)

func answer(fields, body string) string { return "HTTP/1.1 200 OK\r\n" + fields + "\r\n" + body }

const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-For: CANARY\r\n\r\nsteal"

var statusLines = []hostile{
	{name: "status: 000", raw: "HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n", status: 502, outcome: "unknown"},
	{name: "status: 099", raw: "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n", status: 502, outcome: "unknown"},
	{name: "status: 101 that was not asked for", raw: "HTTP/1.1 101 Switching Protocols\r\n\r\n", status: 502, outcome: "unknown"},
	{name: "status: 101 with an upgrade and bytes behind", raw: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + surplus, status: 502, outcome: "unknown", hasNot: got("steal")},
	{name: "status: 100 and nothing else", raw: "HTTP/1.1 100 Continue\r\n\r\n" + hangUp, status: 504, outcome: "unknown"},
	{name: "status: 199 is interim", raw: "HTTP/1.1 199 X\r\n\r\n" + ok, status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "status: 999", raw: "HTTP/1.1 999 X\r\nContent-Length: 2\r\n\r\nok", status: 999, outcome: "unknown"},
	{name: "status: four digits", raw: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: two digits", raw: "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: a letter", raw: "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: minus sign", raw: "HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: plus sign", raw: "HTTP/1.1 +20 OK\r\nContent-Length: 0\r\n\r\n", status: 502, outcome: "unknown"},
	{name: "status: none", raw: "HTTP/1.1\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: no reason", raw: "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", status: 200, outcome: "done"},
	{name: "status: reason with control bytes", raw: "HTTP/1.1 200 O\x1b[31mK\r\nContent-Length: 2\r\n\r\nok", status: 200, outcome: "done", hasNot: got("\x1b")},
	{name: "status: reason of 300 KiB", raw: "HTTP/1.1 200 " + strings.Repeat("a", 300<<10) + "\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: HTTP/1.0", raw: "HTTP/1.0 200 OK\r\n\r\nok" + hangUp, status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "status: HTTP/2.0 in text", raw: "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", status: 200, outcome: "done"},
	{name: "status: another protocol", raw: "ICY 200 OK\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: lower case", raw: "http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", status: 504, outcome: "unknown"},
	{name: "status: line break before", raw: "\r\n" + ok, status: 504, outcome: "unknown"},
	{name: "status: banner of SSH", raw: "SSH-2.0-OpenSSH_9.9\r\n" + hangUp, status: 504, outcome: "unknown", hasNot: got("SSH")},
	{name: "status: alert of TLS", raw: "\x15\x03\x01\x00\x02\x02\x28" + hangUp, status: 504, outcome: "unknown"},
	{name: "status: frames of HTTP/2", raw: "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + hangUp, status: 504, outcome: "unknown"},
	{name: "status: nothing", raw: hangUp, status: 504, outcome: "unknown"},
	{name: "status: reset", raw: reset, status: 504, outcome: "unknown"},
	{name: "status: half a line", raw: "HTTP/1.1 20" + hangUp, status: 504, outcome: "unknown"},
	{name: "status: half a head", raw: "HTTP/1.1 200 OK\r\nContent-Le" + hangUp, status: 504, outcome: "unknown"},
	{name: "status: half a head for ever", raw: "HTTP/1.1 200 OK\r\nContent-Le" + hang, status: 504, outcome: "unknown"},
	{name: "status: 204 with a body", raw: "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nsteal", status: 204, outcome: "done", hasNot: got("steal")},
	{name: "status: 304 with a body", raw: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nsteal", status: 304, outcome: "failed", hasNot: got("steal")},
	{name: "status: body to a HEAD", raw: answer("Content-Length: 5\r\n", "steal"), request: "HEAD", status: 200, outcome: "done", hasNot: got("steal")},
	{name: "status: redirect to another host", raw: "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/evil\r\nContent-Length: 0\r\n\r\n", status: 302, outcome: "failed", has: got("Location: http://127.0.0.1:1/evil\r\n")},
	{name: "status: redirect that repeats the body", raw: "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", request: "POST", status: 307, outcome: "failed", has: got("Location: http://169.254.169.254/\r\n")},
	{name: "status: permanent redirect to itself", raw: "HTTP/1.1 308 Permanent Redirect\r\nLocation: /attack\r\nContent-Length: 0\r\n\r\n", status: 308, outcome: "failed", has: got("Location: /attack\r\n")},
	{name: "status: asks for credentials of a proxy", raw: "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", status: 407, outcome: "failed", hasNot: got("Proxy-Authenticate")},
	{name: "status: asks for credentials", raw: "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n", status: 401, outcome: "failed", has: got("WWW-Authenticate: Negotiate\r\n")},
}

var answerFields = []hostile{
	{name: "field: NUL", raw: answer("X: a\x00b\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "field: bare CR splits for some readers", raw: answer("X: a\rSet-Cookie: b=c\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown", hasNot: got("\rSet")},
	{name: "field: escape", raw: answer("X: \x1b[31m\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown", hasNot: got("\x1b")},
	{name: "field: DEL", raw: answer("X: a\x7fb\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown", hasNot: got("\x7f")},
	{name: "field: folded", raw: answer("X: a\r\n b\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("X: a b\r\n")},
	{name: "field: no colon", raw: answer("broken\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "field: space before the colon", raw: answer("X : a\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", hasNot: got("X :", "X : a")},
	{name: "field: no name", raw: answer(": a\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "field: space in the name", raw: answer("X Y: a\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", hasNot: got("X Y")},
	{name: "field: secret in a name that is none", raw: answer("Set-Cookie(: secret=CANARY\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown", hasNot: got("CANARY")},
	{name: "field: lines end with LF", raw: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "field: bytes above ASCII", raw: answer("X: \xff\xfe\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("X: \xff\xfe\r\n")},
	{name: "field: 1 MiB", raw: answer("X: "+strings.Repeat("a", 1<<20)+"\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "field: 100,000 of them", raw: answer(strings.Repeat("X: a\r\n", 100_000)+"Content-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "field: one that Connection names", raw: answer("Connection: X-A\r\nX-A: secret\r\nX-B: 1\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("X-B: 1\r\n"), hasNot: got("secret")},
	{name: "field: those of one connection", raw: answer("Keep-Alive: timeout=1\r\nUpgrade: h2c\r\nTE: x\r\nTrailer: X-A\r\nProxy-Connection: close\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", hasNot: got("Keep-Alive", "Upgrade", "Trailer", "TE:", "Te:", "Proxy")},
	{name: "field: the sidecar's own outcome", raw: "HTTP/1.1 500 X\r\nThrottler-Outcome: done\r\nContent-Length: 0\r\n\r\n", status: 500, outcome: "unknown", hasNot: got("Outcome: done")},
	{name: "field: the sidecar's own call", raw: answer("Throttler-Call: forged\r\nThrottler-Wait: forged\r\nThrottler-Any: forged\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", hasNot: got("forged")},
	{name: "field: Location of a 202 that is not the sidecar's", raw: "HTTP/1.1 202 Accepted\r\nLocation: http://127.0.0.1:1/v1/calls/1\r\nContent-Length: 0\r\n\r\n", status: 202, outcome: "done", hasNot: got("Preference-Applied")},
	{name: "field: two cookies", raw: answer("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("Set-Cookie: a=1\r\n", "Set-Cookie: b=2\r\n")},
	{name: "field: no type is guessed", raw: answer("Content-Length: 15\r\n", "<script></scrip"), status: 200, outcome: "done", hasNot: got("Content-Type")},
	{name: "field: no date is added", raw: answer("Content-Length: 2\r\n", "ok"), status: 200, outcome: "done", hasNot: got("Date:")},
	{name: "field: cross-origin permission is passed on, and no page gets there", raw: answer("Access-Control-Allow-Origin: *\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("Access-Control-Allow-Origin: *\r\n")},
}

var answerLengths = []hostile{
	{name: "length: two", raw: answer("Content-Length: 2\r\nContent-Length: 60\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: twice the same", raw: answer("Content-Length: 2\r\nContent-Length: 2\r\n", "ok"), status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "length: list", raw: answer("Content-Length: 2, 3\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: negative", raw: answer("Content-Length: -2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: plus sign", raw: answer("Content-Length: +2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: hexadecimal", raw: answer("Content-Length: 0x2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: 2^63", raw: answer("Content-Length: 9223372036854775808\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "length: 2^63-1, and two bytes", raw: answer("Content-Length: 9223372036854775807\r\n", "ok"+hangUp), status: 504, outcome: "unknown"},
	{name: "length: empty", raw: answer("Content-Length: \r\n", "ok"+hangUp), status: 504, outcome: "unknown"},
	{name: "length: greater than the body, closed", raw: answer("Content-Length: 10\r\n", "ok"+hangUp), status: 504, outcome: "unknown"},
	{name: "length: greater than the body, reset", raw: answer("Content-Length: 10\r\n", "ok"+reset), status: 504, outcome: "unknown"},
	{name: "length: smaller than the body", raw: answer("Content-Length: 2\r\n", "okSTEAL"), status: 200, outcome: "done", has: got("\r\n\r\nok"), hasNot: got("STEAL")},
	{name: "length: a second answer behind", raw: ok + surplus, status: 200, outcome: "done", has: got("\r\n\r\nok"), hasNot: got("steal")},
	{name: "length: zero, and a second answer behind", raw: answer("Content-Length: 0\r\n", surplus), status: 200, outcome: "done", hasNot: got("steal")},
	{name: "length: beside chunks", raw: answer("Content-Length: 50\r\nTransfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "length: none, up to the end", raw: answer("", "ok"+hangUp), status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "length: none, reset", raw: answer("", "ok"+reset), status: 504, outcome: "unknown"},
	{name: "encoding: gzip, chunked", raw: answer("Transfer-Encoding: gzip, chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "encoding: identity", raw: answer("Transfer-Encoding: identity\r\nContent-Length: 2\r\n", "ok"), status: 504, outcome: "unknown"},
	{name: "encoding: twice", raw: answer("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "encoding: vertical tab", raw: answer("Transfer-Encoding: \vchunked\r\n", "2\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
}

func answerChunks(body string) string { return answer("Transfer-Encoding: chunked\r\n", body) }

var answerPieces = []hostile{
	{name: "chunk: size that is none", raw: answerChunks("x\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: minus sign", raw: answerChunks("-2\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: 17 digits", raw: answerChunks("10000000000000002\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: 16 digits, and two bytes", raw: answerChunks("ffffffffffffffff\r\nok" + hangUp), status: 504, outcome: "unknown"},
	{name: "chunk: data longer than its size", raw: answerChunks("1\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: data without a line's end", raw: answerChunks("2\r\nok0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: extension of 8 KiB", raw: answerChunks("2;" + strings.Repeat("a", 8<<10) + "\r\nok\r\n0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: a thousand with long extensions", raw: answerChunks(strings.Repeat("1;"+strings.Repeat("a", 500)+"\r\nx\r\n", 1000) + "0\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: no last one", raw: answerChunks("2\r\nok\r\n" + hangUp), status: 504, outcome: "unknown"},
	{name: "chunk: half of one", raw: answerChunks("20\r\nok" + hangUp), status: 504, outcome: "unknown"},
	{name: "chunk: trailer with fields of the head", raw: answerChunks("2\r\nok\r\n0\r\nContent-Length: 99\r\nSet-Cookie: a=steal\r\n\r\n"), status: 200, outcome: "done", hasNot: got("steal", "Content-Length: 99")},
	{name: "chunk: trailer that is none", raw: answerChunks("2\r\nok\r\n0\r\nbroken\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: trailer of 1 MiB", raw: answerChunks("2\r\nok\r\n0\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"), status: 504, outcome: "unknown"},
	{name: "chunk: a second answer behind", raw: answerChunks("2\r\nok\r\n0\r\n\r\n" + surplus), status: 200, outcome: "done", has: got("\r\n\r\nok"), hasNot: got("steal")},
}

var interims = []hostile{
	{name: "interim: 1,000", raw: strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000) + ok, status: 200, outcome: "done", has: got("\r\n\r\nok")},
	{name: "interim: 100,000", raw: strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100_000) + ok, status: 504, outcome: "unknown"},
	{name: "interim: 103 with fields", raw: "HTTP/1.1 103 Early Hints\r\nLink: </steal>\r\nThrottler-Outcome: done\r\n\r\n" + ok, status: 200, outcome: "done", hasNot: got("steal")},
	{name: "interim: with a length and a body", raw: "HTTP/1.1 102 Processing\r\nContent-Length: 5\r\n\r\nsteal" + ok, status: 504, outcome: "unknown", hasNot: got("steal")},
	{name: "interim: head of 300 KiB", raw: "HTTP/1.1 103 Early Hints\r\nX: " + strings.Repeat("a", 300<<10) + "\r\n\r\n" + ok, status: 504, outcome: "unknown"},
	{name: "interim: 101 behind 100", raw: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", status: 502, outcome: "unknown"},
	{name: "interim: half of one for ever", raw: "HTTP/1.1 102 Proces" + hang, status: 504, outcome: "unknown"},
}

func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

func withBody(fields, body string) string {
	return answer(fields+"Content-Length: "+strconv.Itoa(len(body))+"\r\n", body)
}

const laughs = `<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "SUCCESS"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><xml><return_code>&c;</return_code></xml>`

// Bodies that the rules read; the client gets their bytes unchanged.
var bodies = []hostile{
	{name: "body: JSON of a million brackets", raw: withBody("", strings.Repeat("[", 1_000_000)), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: a million brackets in 1 KiB", raw: withBody("Content-Encoding: gzip\r\n", packed(strings.Repeat("[", 1_000_000))), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: nine million brackets in 9 KiB, inspect.bytes 16MiB", raw: withBody("Content-Encoding: gzip\r\n", packed(strings.Repeat("[", 9<<20))), lines: "preset: alipay, inspect: {bytes: 16MiB}", status: 200, outcome: "unknown"},
	{name: "body: a million objects in each other", raw: withBody("", strings.Repeat(`{"a":`, 200_000)), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: 200 MB in 200 KB", raw: withBody("Content-Encoding: gzip\r\n", packed(strings.Repeat("a", 200_000_000))), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: says gzip and is none", raw: withBody("Content-Encoding: gzip\r\n", `{"alipay_response":{"code":"10000"}}`), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: half a gzip", raw: withBody("Content-Encoding: gzip\r\n", packed(`{"alipay_response":{"code":"10000"}}`)[:20]), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: a coding that cannot be read", raw: withBody("Content-Encoding: br\r\n", `{"alipay_response":{"code":"10000"}}`), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: JSON that breaks off", raw: withBody("", `{"alipay_response":{"code":"10000"`), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: success inside a text", raw: withBody("", `{"alipay_response":{"code":"40004","msg":"{\"code\":\"10000\"}"}}`), lines: "preset: alipay", status: 200, outcome: "failed"},
	{name: "body: success one level too deep", raw: withBody("", `{"alipay_response":{"a":{"code":"10000"}}}`), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: success as a number of 400 digits", raw: withBody("", `{"alipay_response":{"code":1`+strings.Repeat("0", 400)+`}}`), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: error page of a proxy", raw: withBody("Content-Type: text/html\r\n", "<html>10000</html>"), lines: "preset: alipay", status: 200, outcome: "unknown"},
	{name: "body: entities that grow", raw: withBody("Content-Type: text/xml\r\n", laughs), lines: "preset: wechatpay-v3", status: 200, outcome: "done"},
	{name: "body: entity of a file", raw: withBody("", `<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xml><err_code>&a;</err_code></xml>`), lines: `preset: generic, outcomes: [{when: 'body("xml.err_code") contains "root"', is: failed}]`, status: 200, outcome: "done"},
	{name: "body: entity of an address", raw: withBody("", `<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:1/x"> %a;]><xml/>`), lines: `preset: generic, outcomes: [{when: 'body("xml.err_code") == "x"', is: failed}]`, status: 200, outcome: "done"},
	{name: "body: 100,000 elements in each other", raw: withBody("", strings.Repeat("<a>", 100_000)), lines: `preset: generic, outcomes: [{when: 'body("xml.err_code") == "x"', is: failed}]`, status: 200, outcome: "done"},
	{name: "body: success behind the inspected bytes", raw: withBody("", `{"a":"`+strings.Repeat("a", 4096)+`","code":"10000"}`), lines: `inspect: {bytes: 1KiB}, outcomes: [{when: 'body("code") == "10000"', is: failed}]`, status: 200, outcome: "done"},
}

// Wishes to wait, each of which pauses the upstream for a day at most. A reset that lies decades ahead is none.
var wishes = []hostile{
	{name: "wish: 2^64 seconds", raw: "HTTP/1.1 429 X\r\nRetry-After: 18446744073709551616\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: 2^63-1 seconds", raw: "HTTP/1.1 429 X\r\nRetry-After: 9223372036854775807\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: ten billion seconds", raw: "HTTP/1.1 429 X\r\nRetry-After: 9999999999\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: a number of 5,000 digits", raw: "HTTP/1.1 429 X\r\nRetry-After: " + strings.Repeat("9", 5000) + "\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: the year 9999", raw: "HTTP/1.1 429 X\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: until 9999 by 503", raw: "HTTP/1.1 503 X\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n", status: 503, outcome: "not_executed", paused: true},
	{name: "wish: RateLimit without end", raw: "HTTP/1.1 429 X\r\nRateLimit: \"a\";r=0;t=999999999999\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed"},
	{name: "wish: two of them", raw: "HTTP/1.1 429 X\r\nRetry-After: 99999999\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
	{name: "wish: RateLimit that is broken, beside a day", raw: "HTTP/1.1 429 X\r\nRetry-After: 86400\r\nRateLimit: ;;;=\"\r\nContent-Length: 0\r\n\r\n", status: 429, outcome: "not_executed", paused: true},
}

// tell writes bytes, and then makes the end that they name.
func tell(c net.Conn, raw string) (keep bool) {
	text, then, ends := strings.Cut(raw, "\x00")
	for _, known := range []string{hangUp, reset, hang} {
		if strings.HasSuffix(raw, known) {
			text, then, ends = strings.TrimSuffix(raw, known), known[1:], true
			break
		}
		if ends && known == hang { // a NUL of the answer itself
			text, ends = raw, false
		}
	}
	if _, err := io.WriteString(c, text); err != nil {
		return false
	}
	switch {
	case !ends:
		return true
	case then == reset[1:]:
		c.(*net.TCPConn).SetLinger(0)
	case then == hang[1:]:
		io.Copy(io.Discard, c)
	}
	return false
}

// strictReply reads the whole connection of a client as strictly as an upstream does.
func strictReply(t *testing.T, raw, method string) (status int, fields map[string][]string, body string) {
	t.Helper()
	br := bufio.NewReader(strings.NewReader(raw))
	first, err := line(br)
	if err != nil || len(first) < 13 || !strings.HasPrefix(first, "HTTP/1.1 ") {
		t.Fatalf("the client got %.200q: %v", raw, err)
	}
	status, err = strconv.Atoi(first[9:12])
	if err != nil {
		t.Fatalf("the client got %q", first)
	}
	fields = make(map[string][]string)
	for {
		text, err := line(br)
		if err != nil {
			t.Fatalf("the client got %.400q: %v", raw, err)
		}
		if text == "" {
			break
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || !isToken(name) {
			t.Fatalf("the client got the field %q", text)
		}
		fields[strings.ToLower(name)] = append(fields[strings.ToLower(name)], strings.TrimSpace(value))
	}
	for name, values := range fields {
		if slices.Contains([]string{"content-length", "throttler-call", "throttler-outcome", "throttler-wait"}, name) && len(values) != 1 {
			t.Errorf("the client got %s %d times", name, len(values))
		}
	}
	if fields["content-length"] != nil && fields["transfer-encoding"] != nil {
		t.Error("the client got a length and chunks")
	}
	rest, _ := io.ReadAll(br)
	body = string(rest)
	if l := fields["content-length"]; l != nil && method != "HEAD" && status != 304 && l[0] != strconv.Itoa(len(body)) {
		t.Errorf("the client got %d bytes, announced were %s", len(body), l[0])
	}
	return status, fields, body
}

// hostiles are all hostile answers.
var hostiles = slices.Concat(statusLines, answerFields, answerLengths, answerPieces, interims, bodies, wishes)

// TestAnswers has upstreams give hostile answers. The client gets a well-formed one, the
// next client its own, and clients of another upstream notice nothing.
func TestAnswers(t *testing.T) {
	f := newFamily(t, "answers", 83)
	honest := newPlatform(t, always(ok))
	yaml := "  honest: {listen: '127.0.0.1:0', url: 'http://" + honest.addr + "'}\n"
	for i, tt := range hostiles {
		addr := listen(t, func(c net.Conn) {
			br := bufio.NewReader(c)
			for {
				a, err := arrive(br, c.LocalAddr().String())
				if err != nil {
					return
				}
				if a.target == "/next" {
					if tell(c, answer("Content-Length: 4\r\nX-Next: yes\r\n", "next")) {
						continue
					}
					return
				}
				if !tell(c, tt.raw) {
					return
				}
			}
		})
		lines := tt.lines
		if lines == "" {
			lines = "preset: generic"
		}
		yaml += fmt.Sprintf("  u%d: {listen: '127.0.0.1:0', url: 'http://%s', timeout: 5s, retry: {attempts: 1}, %s}\n", i, addr, lines)
	}
	s := start(t, yaml)
	for i, tt := range hostiles {
		f.attack(tt.name, func(t *testing.T) {
			addr := s.data(t, fmt.Sprintf("u%d", i))
			method := "GET"
			if tt.request != "" {
				method = tt.request
			}
			w := dial(t, addr)
			io.WriteString(w, to(method+" /attack")+"Connection: close\r\n\r\n")
			b, err := io.ReadAll(w)
			if err != nil {
				t.Fatal(err)
			}
			status, fields, _ := strictReply(t, string(b), method)
			if status != tt.status || len(fields["throttler-outcome"]) != 1 || fields["throttler-outcome"][0] != tt.outcome {
				t.Errorf("status %d, outcome %q; want %d, %s: %.400q", status, fields["throttler-outcome"], tt.status, tt.outcome, b)
			}
			for _, text := range tt.has {
				if !strings.Contains(string(b), text) {
					t.Errorf("%q is not in %.400q", text, b)
				}
			}
			for _, text := range tt.hasNot {
				if strings.Contains(string(b), text) {
					t.Errorf("%q is in %.400q", text, b)
				}
			}
			next := ask(t, "GET", addr, "/next", "", "Throttler-Max-Wait: 10s")
			if tt.paused {
				if next.status != 503 || next.outcome() != "not_executed" {
					t.Errorf("the next client got %d, %s; want 503, not_executed", next.status, next.outcome())
				}
				type upstreams struct {
					Upstreams []struct {
						Name        string
						PausedUntil time.Time `json:"paused_until"`
					}
				}
				for _, u := range read[upstreams](t, ask(t, "GET", s.admin, "/v1/upstreams", "")).Upstreams {
					// The API rounds times up to a millisecond.
					if d := time.Until(u.PausedUntil); u.Name == fmt.Sprintf("u%d", i) && (d < time.Minute || d > 24*time.Hour+time.Millisecond) {
						t.Errorf("the upstream is paused for %v", d)
					}
				}
			} else if next.status != 200 || next.body != "next" || next.header.Get("X-Next") != "yes" {
				t.Errorf("the next client got %+v", next)
			}
			if r := ask(t, "GET", s.data(t, "honest"), "/", ""); r.status != 200 || r.body != "ok" {
				t.Errorf("the client of another upstream got %+v", r)
			}
			s.alive(t)
		})
	}
	if strings.Contains(s.log.String(), "CANARY") {
		t.Error("the log has a secret of an answer")
	}
}
