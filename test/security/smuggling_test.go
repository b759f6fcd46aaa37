package security

import (
	"slices"
	"strings"
	"testing"
)

// A smuggling is raw bytes of a client, the status of the first answer, 0 if the connection
// is closed without one, and the requests that may reach the upstream.
type smuggling struct {
	name, raw string
	status    int
	reached   []string
}

// to begins a request; the fields and the body follow.
func to(line string) string { return line + " HTTP/1.1\r\nHost: localhost\r\n" }

const smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n" // 43 bytes

// eof at the end of raw bytes is the end of the client's half of the connection.
const eof = "\x00eof"

func post(fieldsAndBody string) string { return to("POST /x") + fieldsAndBody }

func chunked(body string) string { return post("Transfer-Encoding: chunked\r\n\r\n" + body) }

func got(all ...string) []string { return all }

var smugglings = slices.Concat(lengths, encodings, chunks, versions, methods, fields, pipelines, expectations)

// Lengths that two readers could take for different ones: RFC 9112, section 6.3.
var lengths = []smuggling{
	{"length: negative", post("Content-Length: -1\r\n\r\nhello"), 400, nil},
	{"length: plus sign", post("Content-Length: +5\r\n\r\nhello"), 400, nil},
	{"length: hexadecimal", post("Content-Length: 0x5\r\n\r\nhello"), 400, nil},
	{"length: leading zeros are decimal", post("Content-Length: 010\r\n\r\n0123456789"), 200, got("POST /x|0123456789")},
	{"length: space inside", post("Content-Length: 1 0\r\n\r\nhello"), 400, nil},
	{"length: empty", post("Content-Length: \r\n\r\nhello"), 400, nil},
	{"length: only a tab", post("Content-Length:\t\r\n\r\nhello"), 400, nil},
	{"length: twice the same", post("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), 200, got("POST /x|hello")},
	{"length: two values, the greater first", post("Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello"), 400, nil},
	{"length: two values, the smaller first", post("Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello"), 400, nil},
	{"length: list of one value", post("Content-Length: 5, 5\r\n\r\nhello"), 400, nil},
	{"length: list of two values", post("Content-Length: 5, 6\r\n\r\nhello!"), 400, nil},
	{"length: list with an empty member", post("Content-Length: 5,\r\n\r\nhello"), 400, nil},
	{"length: 2^63", post("Content-Length: 9223372036854775808\r\n\r\nhello"), 400, nil},
	{"length: 2^64+5", post("Content-Length: 18446744073709551621\r\n\r\nhello"), 400, nil},
	{"length: letter behind", post("Content-Length: 5x\r\n\r\nhello"), 400, nil},
	{"length: underscore", post("Content-Length: 1_0\r\n\r\n0123456789"), 400, nil},
	{"length: fraction", post("Content-Length: 5.0\r\n\r\nhello"), 400, nil},
	{"length: exponent", post("Content-Length: 5e0\r\n\r\nhello"), 400, nil},
	{"length: quoted", post("Content-Length: \"5\"\r\n\r\nhello"), 400, nil},
	{"length: Arabic digit", post("Content-Length: \u0665\r\n\r\nhello"), 400, nil},
	{"length: NUL behind", post("Content-Length: 5\x00\r\n\r\nhello"), 400, nil},
	{"length: vertical tab before", post("Content-Length: \v5\r\n\r\nhello"), 400, nil},
	{"length: of a GET", to("GET /x") + "Content-Length: 5\r\n\r\nhello", 200, got("GET /x|hello")},
	{"length: of a HEAD", to("HEAD /x") + "Content-Length: 5\r\n\r\nhello", 200, got("HEAD /x|hello")},
	{"length: of a request that hides in a body", post("Content-Length: 43\r\n\r\n" + smuggled), 200, got("POST /x|" + smuggled)},
	{"length: zero, and a request behind", post("Content-Length: 0\r\n\r\n" + smuggled), 200, got("POST /x", "GET /smuggled")},
	{"length: in a field that only looks like it", post("Content_Length: 5\r\nContent-Length: 0\r\n\r\n"), 200, got("POST /x")},
	{"length: at most max_body", post("Content-Length: 1048577\r\n\r\nhello"), 413, nil},
}

// Encodings that one reader could take for chunks and another not: RFC 9112, section 6.1.
var encodings = []smuggling{
	{"encoding: upper case", post("Transfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"encoding: identity", post("Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello"), 501, nil},
	{"encoding: chunked, identity", post("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: identity, chunked", post("Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: chunked twice in one field", post("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: chunked in two fields", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: chunked, then identity", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: identity, then chunked", post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: xchunked", post("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: chunk", post("Transfer-Encoding: chunk\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: tab before", post("Transfer-Encoding:\tchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"encoding: no space before", post("Transfer-Encoding:chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"encoding: vertical tab before", post("Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: vertical tab behind", post("Transfer-Encoding: chunked\v\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: form feed before", post("Transfer-Encoding: \fchunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: no-break space before", post("Transfer-Encoding: \u00a0chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: quoted", post("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: single quotes", post("Transfer-Encoding: 'chunked'\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: folded", post("Transfer-Encoding:\r\n chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"encoding: space before the colon", post("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: tab before the colon", post("Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: underscore in the name", post("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"), 200, got("POST /x|hello")},
	{"encoding: NUL in the name", post("Transfer-Encoding\x00: chunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: NUL in the value", post("Transfer-Encoding: ch\x00unked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: with a parameter", post("Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: empty", post("Transfer-Encoding: \r\nContent-Length: 5\r\n\r\nhello"), 501, nil},
	{"encoding: comma behind", post("Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: comma before", post("Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: long s", post("Transfer-Encoding: chun\u212aed\r\n\r\n0\r\n\r\n"), 501, nil},
	{"encoding: carriage return before the name", post("X: y\r\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, nil},
	{"encoding: of HTTP/1.0, which has none", "POST /x HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, got("POST /x")},
	{"encoding: of HTTP/1.0 beside a length, a request hides behind", "POST /x HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, 200, got("POST /x|0\r\n\r\n")},
	{"encoding: beside a length, the body ends early by it", post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"), 200, got("POST /x")},
	{"encoding: beside a length, a request hides behind", post("Content-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled), 200, got("POST /x")},
	{"encoding: before a length, a request hides behind", post("Transfer-Encoding: chunked\r\nContent-Length: 49\r\n\r\n0\r\n\r\n" + smuggled), 200, got("POST /x")},
	{"encoding: beside a length, a request hides in a chunk", post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2b\r\n" + smuggled + "\r\n0\r\n\r\n"), 200, got("POST /x|" + smuggled)},
	{"encoding: of a GET", to("GET /x") + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, got("GET /x|hello")},
}

// Chunks that two readers could cut at different places: RFC 9112, section 7.1.
var chunks = []smuggling{
	{"chunk: upper case", chunked("A\r\n0123456789\r\n0\r\n\r\n"), 200, got("POST /x|0123456789")},
	{"chunk: lower case", chunked("a\r\n0123456789\r\n0\r\n\r\n"), 200, got("POST /x|0123456789")},
	{"chunk: leading zeros", chunked("00005\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: 17 digits", chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: 16 digits, negative as a signed number", chunked("ffffffffffffffff\r\nhello\r\n0\r\n\r\n" + eof), 400, nil},
	{"chunk: 0x", chunked("0x5\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: plus sign", chunked("+5\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: minus sign", chunked("-5\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: space before", chunked(" 5\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: underscore", chunked("0_5\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: letter behind", chunked("5g\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: NUL behind", chunked("5\x00\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: no size", chunked("\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: only an extension", chunked(";a=b\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: extension", chunked("5;a=b\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: quoted extension that holds a chunk", chunked("5;a=\"0\\r\\n\\r\\n\"\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: extension with a bare CR", chunked("5;\rx\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: size ends with a bare LF", chunked("5\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: extension ends with a bare LF", chunked("5;\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: size ends with a bare CR", chunked("5\rhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: data ends with a bare LF", chunked("5\r\nhello\n0\r\n\r\n"), 400, nil},
	{"chunk: data ends without a line", chunked("5\r\nhello0\r\n\r\n"), 400, nil},
	{"chunk: data is longer than its size", chunked("4\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: data is shorter than its size", chunked("7\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: two bytes that are no line behind the data", chunked("5\r\nhelloXX0\r\n\r\n"), 400, nil},
	{"chunk: last one with an extension", chunked("5\r\nhello\r\n0;a=b\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: last one with zeros", chunked("5\r\nhello\r\n000\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: data behind the last one", chunked("0\r\nhello\r\n\r\n"), 400, nil},
	{"chunk: an extension of 8 KiB", chunked("5;" + strings.Repeat("a", 8<<10) + "\r\nhello\r\n0\r\n\r\n"), 400, nil},
	{"chunk: a thousand of one byte with long extensions", chunked(strings.Repeat("1;"+strings.Repeat("a", 500)+"\r\nx\r\n", 1000) + "0\r\n\r\n"), 400, nil},
	{"chunk: trailer", chunked("5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: trailer with a length", chunked("5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: trailer with an encoding", chunked("5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: trailer with a Host", chunked("5\r\nhello\r\n0\r\nHost: evil.example\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: trailer without a colon", chunked("5\r\nhello\r\n0\r\nbroken\r\n\r\n"), 400, nil},
	{"chunk: trailer of 64 KiB", chunked("5\r\nhello\r\n0\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"), 400, nil},
	{"chunk: announced trailer", post("Trailer: X-Signature\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Signature: 1\r\n\r\n"), 200, got("POST /x|hello")},
	{"chunk: more than max_body in all", chunked(strings.Repeat("10000\r\n"+strings.Repeat("a", 0x10000)+"\r\n", 17) + "0\r\n\r\n"), 413, nil},
}

// Versions and first lines: RFC 9112, section 3.
var versions = []smuggling{
	{"version: 0.9", "GET /x\r\n\r\n", 400, nil},
	{"version: 1.0", "GET /x HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, got("GET /x")},
	{"version: 1.0 without Host", "GET /x HTTP/1.0\r\n\r\n", 200, got("GET /x")},
	{"version: 1.2", "GET /x HTTP/1.2\r\nHost: localhost\r\n\r\n", 200, got("GET /x")},
	{"version: 2.0", "GET /x HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, nil},
	{"version: 3.0", "GET /x HTTP/3.0\r\nHost: localhost\r\n\r\n", 505, nil},
	{"version: two digits", "GET /x HTTP/1.10\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: leading zero", "GET /x HTTP/01.1\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: lower case", "GET /x http/1.1\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: space behind", "GET /x HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: no fraction", "GET /x HTTP/1\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: another protocol", "GET /x ICY/1.1\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: minus sign", "GET /x HTTP/1.-1\r\nHost: localhost\r\n\r\n", 400, nil},
	{"version: the beginning of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 400, nil},
	{"version: upgrade to h2c", to("GET /x") + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 400, nil},
	{"version: upgrade to a web socket, the next bytes are a request", to("GET /x") + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" + smuggled, 400, got("GET /smuggled")},
	{"version: TLS at a plain listener", "\x16\x03\x01\x00\x05hello\r\n\r\n", 400, nil},
}

var methods = []smuggling{
	{"method: lower case is another one", to("get /x") + "\r\n", 200, got("get /x")},
	{"method: unknown, but a token", to("M-SEARCH /x") + "\r\n", 200, got("M-SEARCH /x")},
	{"method: CONNECT with a path", to("CONNECT /x") + "\r\n", 400, nil},
	{"method: CONNECT with an authority", to("CONNECT evil.example:443") + "\r\n", 403, nil},
	{"method: TRACE", to("TRACE /x") + "\r\n", 400, nil},
	{"method: TRACE with a body", to("TRACE /x") + "Content-Length: 5\r\n\r\nhello", 400, nil},
	{"method: OPTIONS of the server", to("OPTIONS *") + "\r\n", 400, nil},
	{"method: PRI with a path", to("PRI /x") + "\r\n", 200, got("PRI /x")},
	{"method: tab inside", to("GE\tT /x") + "\r\n", 400, nil},
	{"method: parenthesis", to("GE(T /x") + "\r\n", 400, nil},
	{"method: NUL", to("GET\x00 /x") + "\r\n", 400, nil},
	{"method: empty", to(" /x") + "\r\n", 400, nil},
	{"method: not ASCII", to("G\u00c9T /x") + "\r\n", 400, nil},
	{"method: two spaces behind", to("GET  /x") + "\r\n", 400, nil},
	{"method: tab behind", to("GET\t/x") + "\r\n", 400, nil},
	{"method: bare CR behind", to("GET\r/x") + "\r\n", 400, nil},
	{"method: line break before", "\r\n" + to("GET /x") + "\r\n", 400, nil},
	{"method: colon", to("GET: /x") + "\r\n", 400, nil},
}

// Fields: RFC 9112, section 5, and RFC 9110, section 5.
var fields = []smuggling{
	{"field: no colon", to("GET /x") + "broken\r\n\r\n", 400, nil},
	{"field: space before the colon", to("GET /x") + "X : y\r\n\r\n", 400, nil},
	{"field: no name", to("GET /x") + ": y\r\n\r\n", 400, nil},
	{"field: folded", to("GET /x") + "X: y\r\n z\r\n\r\n", 200, got("GET /x")},
	{"field: folded with a tab, hides a length", post("X: y\r\n\tContent-Length: 43\r\n\r\n" + smuggled), 200, got("POST /x", "GET /smuggled")},
	{"field: first line folded", "GET /x HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, nil},
	{"field: NUL in the value", to("GET /x") + "X: a\x00b\r\n\r\n", 400, nil},
	{"field: bare CR in the value", to("GET /x") + "X: a\rContent-Length: 5\r\n\r\n", 400, nil},
	{"field: 0x01 in the value", to("GET /x") + "X: a\x01b\r\n\r\n", 400, nil},
	{"field: escape in the value", to("GET /x") + "X: a\x1b[31mb\r\n\r\n", 400, nil},
	{"field: DEL in the value", to("GET /x") + "X: a\x7fb\r\n\r\n", 400, nil},
	{"field: tab in the value", to("GET /x") + "X: a\tb\r\n\r\n", 200, got("GET /x")},
	{"field: bytes above ASCII", to("GET /x") + "X: \xff\xfe\r\n\r\n", 200, got("GET /x")},
	{"field: parenthesis in the name", to("GET /x") + "X(: y\r\n\r\n", 400, nil},
	{"field: space in the name", to("GET /x") + "X Y: z\r\n\r\n", 400, nil},
	{"field: not ASCII in the name", to("GET /x") + "X\u00c9: y\r\n\r\n", 400, nil},
	{"field: bare LF as the end of lines", "GET /x HTTP/1.1\nHost: localhost\n\n", 200, got("GET /x")},
	{"field: bare LF hides a length", post("X: y\nContent-Length: 5\r\n\r\nhello"), 200, got("POST /x|hello")},
	{"field: two Hosts", to("GET /x") + "Host: localhost\r\n\r\n", 400, nil},
	{"field: two different Hosts", to("GET /x") + "Host: evil.example\r\n\r\n", 400, nil},
	{"field: no Host", "GET /x HTTP/1.1\r\n\r\n", 400, nil},
	{"field: empty Host", "GET /x HTTP/1.1\r\nHost: \r\n\r\n", 200, got("GET /x")},
	{"field: Host with a path", "GET /x HTTP/1.1\r\nHost: localhost/evil\r\n\r\n", 400, nil},
	{"field: Host with a user", "GET /x HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n", 400, nil},
	{"field: Host with a space", "GET /x HTTP/1.1\r\nHost: localhost evil.example\r\n\r\n", 400, nil},
	{"field: two Hosts in a list", "GET /x HTTP/1.1\r\nHost: localhost,evil.example\r\n\r\n", 403, nil},
	{"field: Host with a port that is none", "GET /x HTTP/1.1\r\nHost: localhost:http\r\n\r\n", 403, nil},
	{"field: head of 24 KiB", to("GET /x") + "X: " + strings.Repeat("a", 24<<10) + "\r\n\r\n", 431, nil},
	{"field: 5,000 of them", to("GET /x") + strings.Repeat("X: y\r\n", 5000) + "\r\n", 431, nil},
	{"field: colon before the name", to("GET /x") + ":X: y\r\n\r\n", 400, nil},
	{"field: quotes in the name", to("GET /x") + "\"Content-Length\": 5\r\n\r\n", 400, nil},
	{"field: the name of a pseudo field", to("GET /x") + ":authority: evil.example\r\n\r\n", 400, nil},
}

// Requests that follow each other on one connection.
var pipelines = []smuggling{
	{"pipeline: two", to("GET /1") + "\r\n" + to("GET /2") + "\r\n", 200, got("GET /1", "GET /2")},
	{"pipeline: a body, then one", post("Content-Length: 5\r\n\r\nhello" + to("GET /2") + "\r\n"), 200, got("POST /x|hello", "GET /2")},
	{"pipeline: nothing behind a close", to("GET /1") + "Connection: close\r\n\r\n" + smuggled, 200, got("GET /1")},
	{"pipeline: nothing behind a close among others", to("GET /1") + "Connection: x, close\r\n\r\n" + smuggled, 200, got("GET /1")},
	{"pipeline: nothing behind a malformed one", to("GET /1") + "broken\r\n\r\n" + smuggled, 400, nil},
	{"pipeline: nothing behind a body that is too large", post("Content-Length: 2000000\r\n\r\n" + smuggled), 413, nil},
	{"pipeline: nothing behind a broken chunk", chunked("x\r\n" + smuggled), 400, nil},
	{"pipeline: nothing behind HTTP/1.0", "GET /1 HTTP/1.0\r\nHost: localhost\r\n\r\n" + smuggled, 200, got("GET /1")},
	{"pipeline: nothing behind chunks", chunked("5\r\nhello\r\n0\r\n\r\n" + smuggled), 200, got("POST /x|hello")},
	{"pipeline: a refused one does not shift the next", to("TRACE /1") + "Content-Length: 5\r\n\r\nhello" + to("GET /2") + "\r\n", 400, got("GET /2")},
	{"pipeline: a foreign Host and no body, then one", "GET /1 HTTP/1.1\r\nHost: evil.example\r\n\r\n" + to("GET /2") + "\r\n", 403, got("GET /2")},
	{"pipeline: a foreign Host with a body that is a request", "POST /1 HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 43\r\n\r\n" + smuggled, 403, nil},
	{"pipeline: a foreign Host whose body never ends", "POST /1 HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 44\r\n\r\n" + smuggled, 403, nil},
	{"pipeline: a foreign Host whose chunks never end", "POST /1 HTTP/1.1\r\nHost: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 403, nil},
	{"pipeline: a body that ends with the connection", post("Content-Length: 50\r\n\r\n" + smuggled + eof), 400, nil},
	{"pipeline: chunks that end with the connection", chunked("5\r\nhello\r\n" + eof), 400, nil},
	{"pipeline: a last chunk without its line", chunked("5\r\nhello\r\n0\r\n" + eof), 400, nil},
}

// Expect: RFC 9110, section 10.1.1.
var expectations = []smuggling{
	{"expect: 100-continue with a body", post("Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"), 200, got("POST /x|hello")},
	{"expect: 100-continue with chunks", post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), 200, got("POST /x|hello")},
	{"expect: 100-continue without a body", to("GET /x") + "Expect: 100-continue\r\n\r\n", 200, got("GET /x")},
	{"expect: something else", post("Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"), 417, nil},
	{"expect: upper case", post("Expect: 100-CONTINUE\r\nContent-Length: 5\r\n\r\nhello"), 200, got("POST /x|hello")},
	{"expect: a body too large is not asked for", post("Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n" + smuggled), 413, nil},
	{"expect: a refused one, its body is a request", "POST /1 HTTP/1.1\r\nHost: evil.example\r\nExpect: 100-continue\r\nContent-Length: 43\r\n\r\n" + smuggled, 403, nil},
}

// TestSmuggling sends requests that two readers could understand differently. The upstream
// gets exactly the request that the sidecar answers, or none.
func TestSmuggling(t *testing.T) {
	f := newFamily(t, "smuggling", 124)
	p := newPlatform(t, always(ok))
	s := start(t, "  a: {listen: '127.0.0.1:0', url: 'http://"+p.addr+"'}\n")
	addr := s.data(t, "a")
	for _, tt := range smugglings {
		f.attack(tt.name, func(t *testing.T) {
			replies, open := strike(t, addr, tt.raw)
			if r := replies[0]; r.status != tt.status {
				t.Errorf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			want := tt.reached
			if open {
				want = append(slices.Clone(want), "GET /fence")
			}
			if reached := texts(p.take()); !slices.Equal(reached, want) {
				t.Errorf("the upstream got %q, want %q", reached, want)
			}
			// Each request has one answer, the first one also if it is refused.
			answers := len(want)
			if tt.status != 200 {
				answers++
			}
			if len(replies) != answers {
				t.Errorf("the client got %d answers, want %d: %v", len(replies), answers, replies)
			}
			p.check(t)
			s.alive(t)
		})
	}
}
