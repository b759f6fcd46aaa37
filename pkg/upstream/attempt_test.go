package upstream

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

// rawServer is a listener that passes each request, with its bytes, to serve.
// serve answers on the connection and returns true to keep it.
type rawServer struct {
	net.Listener
	requests atomic.Int64
}

func newRawServer(t *testing.T, serve func(n int64, request string, c net.Conn) (keep bool)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var copied bytes.Buffer
				r := bufio.NewReader(io.TeeReader(c, &copied))
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					n := s.requests.Add(1)
					bytes := copied.String()
					copied.Reset()
					if !serve(n, bytes, c) {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return s
}

// unusedURL has a port without a listener. The port of a listener just closed would
// not do: another test may open it.
const unusedURL = "http://127.0.0.1:1"

func (s *rawServer) url() string { return "http://" + s.Addr().String() }

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func newUpstream(t *testing.T, c Config) *Upstream {
	t.Helper()
	if c.Name == "" {
		c.Name = "test"
	}
	u, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

func do(t *testing.T, u *Upstream, r *Request) *Result {
	t.Helper()
	res := u.Do(t.Context(), r)
	if res.Response != nil {
		t.Cleanup(func() { res.Response.Body.Close() })
	}
	return res
}

func body(t *testing.T, res *Result) string {
	t.Helper()
	if res.Response == nil {
		t.Fatalf("no response: %s", res.Reason)
	}
	b, err := io.ReadAll(res.Response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOneDoIsOneSending breaks a reused connection after the request has been
// read: net/http alone sends such requests a second time.
func TestOneDoIsOneSending(t *testing.T) {
	requests := map[string]*Request{
		"GET":                             {Method: "GET", Target: "/q?a=1"},
		"POST with Idempotency-Key":       {Method: "POST", Target: "/", Header: http.Header{"Idempotency-Key": {"k"}}, Body: []byte("a=1")},
		"empty POST with Idempotency-Key": {Method: "POST", Target: "/", Header: http.Header{"Idempotency-Key": {"k"}}},
		"DELETE with X-Idempotency-Key":   {Method: "DELETE", Target: "/", Header: http.Header{"X-Idempotency-Key": {"k"}}},
		"POST":                            {Method: "POST", Target: "/", Body: []byte("a=1")},
	}
	for name, r := range requests {
		t.Run(name, func(t *testing.T) {
			s := newRawServer(t, func(n int64, _ string, c net.Conn) bool {
				if n == 1 {
					io.WriteString(c, ok)
				}
				return n == 1 // the second request, on the reused connection, gets no answer
			})
			u := newUpstream(t, Config{URL: s.url()})
			if res := do(t, u, r); res.Outcome != Done {
				t.Fatalf("first: %+v", res)
			}
			if res := do(t, u, r); res.Outcome != Unknown || !res.Sent || res.Answered {
				t.Fatalf("broken connection: outcome %s, sent %v: %s; want unknown, sent", res.Outcome, res.Sent, res.Reason)
			}
			if n := s.requests.Load(); n != 2 {
				t.Errorf("%d requests on the wire for two Do", n)
			}
		})
	}
	t.Run("net/http alone", func(t *testing.T) { // proves that the test detects a second sending
		s := newRawServer(t, func(n int64, _ string, c net.Conn) bool {
			if n == 2 {
				return false
			}
			io.WriteString(c, ok)
			return true
		})
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		for range 2 {
			resp, err := (&http.Client{Transport: tr}).Get(s.url())
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if n := s.requests.Load(); n != 3 {
			t.Errorf("%d requests on the wire, want 3: one was repeated", n)
		}
	})
}

// TestStaleConnection closes an idle connection before the request is written:
// the result says that nothing was sent.
func TestStaleConnection(t *testing.T) {
	client, server := net.Pipe()
	server.Close()
	u := newUpstream(t, Config{URL: "http://unused.invalid"})
	u.transport.(*transport).open = func(context.Context, string, string) (net.Conn, error) {
		return client, nil
	}
	res := do(t, u, &Request{Method: "POST", Target: "/", Body: []byte("x")})
	if res.Outcome != NotExecuted || res.Sent || res.Unreachable {
		t.Errorf("outcome %s, sent %v, unreachable %v: %s; want not_executed, never sent", res.Outcome, res.Sent, res.Unreachable, res.Reason)
	}
}

func TestBytesGoOutAsGiven(t *testing.T) {
	tests := []struct {
		name string
		base string
		r    Request
		want string
	}{
		{"signed query", "", Request{Method: "GET", Target: "/v3/a%2Fb;x/../?sign=a%2Bb&&c"}, ""},
		{"query in its own order and escapes", "", Request{Method: "GET", Target: "/v3/a%2Fb;x?sign=a%2Bb+c&&b=%e4&a=1?"}, "GET /v3/a%2Fb;x?sign=a%2Bb+c&&b=%e4&a=1? HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"empty query", "", Request{Method: "GET", Target: "/?"}, "GET /? HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"two slashes", "", Request{Method: "GET", Target: "/a//b//"}, "GET /a//b// HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"two slashes after a base path", "/api", Request{Method: "GET", Target: "//a"}, ""},
		{"a host", "", Request{Method: "GET", Target: "//a/{b}"}, ""},
		{"bytes that a URL should escape", "", Request{Method: "GET", Target: "/{b}|\"^`<>\\é\xff?{b}|\"^`<>\\é\xff"}, "GET /{b}|\"^`<>\\é\xff?{b}|\"^`<>\\é\xff HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"base path", "/api/", Request{Method: "GET", Target: "/x"}, "GET /api/x HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"form", "", Request{Method: "POST", Target: "/gateway.do?charset=utf-8", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "User-Agent": {"sdk/1"}}, Body: []byte("b=2&a=%7B1%7D")},
			"POST /gateway.do?charset=utf-8 HTTP/1.1\r\nHost: HOST\r\nUser-Agent: sdk/1\r\nContent-Length: 13\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nb=2&a=%7B1%7D"},
		{"fields of one hop", "", Request{Method: "GET", Target: "/", Header: http.Header{"Connection": {"x-own, close"}, "X-Own": {"1"}, "Keep-Alive": {"2"}, "X-Kept": {"3"}}}, "GET / HTTP/1.1\r\nHost: HOST\r\nX-Kept: 3\r\n\r\n"},
		{"a field of one hop", "", Request{Method: "GET", Target: "/", Header: http.Header{"Keep-Alive": {"2"}}}, "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n"},
		{"a field of one hop in lower case", "", Request{Method: "POST", Target: "/", Header: http.Header{"transfer-encoding": {"chunked"}, "connection": {"x-own"}}, Body: []byte("x")}, "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\n\r\nx"},
		{"fields of Throttler", "", Request{Method: "GET", Target: "/", Header: http.Header{"Throttler-Priority": {"1"}, "X-Kept": {"3"}}}, "GET / HTTP/1.1\r\nHost: HOST\r\nX-Kept: 3\r\n\r\n"},
		{"empty POST", "", Request{Method: "POST", Target: "/close"}, "POST /close HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\n\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan string, 1)
			s := newRawServer(t, func(_ int64, request string, c net.Conn) bool {
				got <- request
				io.WriteString(c, ok)
				return true
			})
			u := newUpstream(t, Config{URL: s.url() + tt.base})
			res := do(t, u, &tt.r)
			if tt.want == "" {
				if res.Sent || res.Outcome != Failed {
					t.Fatalf("was not refused: %+v", res)
				}
				return
			}
			if res.Outcome != Done {
				t.Fatalf("outcome %s: %s", res.Outcome, res.Reason)
			}
			if got := strings.ReplaceAll(<-got, s.Addr().String(), "HOST"); got != tt.want {
				t.Errorf("on the wire:\n%q\nwant:\n%q", got, tt.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	type want struct {
		outcome              Outcome
		sent, down, answered bool
		reason               string
	}
	hang := make(chan struct{})
	defer close(hang)
	tests := []struct {
		name  string
		serve func(c net.Conn)
		want  want
	}{
		{"down", nil, want{NotExecuted, false, true, false, "never sent: dial tcp"}},
		{"hangs", func(net.Conn) { <-hang }, want{Unknown, true, false, false, "no answer: the attempt's time-out has passed"}},
		{"closes without an answer", func(net.Conn) {}, want{Unknown, true, false, false, "no answer: "}},
		{"resets", func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }, want{Unknown, true, false, false, "no answer: "}},
		{"answers garbage", func(c net.Conn) { io.WriteString(c, "SSH-2.0-OpenSSH_9\r\n\r\n") }, want{Unknown, true, false, false, "no answer: "}},
		{"has a field that is none", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nSet-Cookie(: canary\r\n\r\n")
		}, want{Unknown, true, false, false, "no answer: malformed MIME header"}},
		{"has a status that is none", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 canary\r\n\r\n") }, want{Unknown, true, false, false, "no answer: "}},
		{"has a trailer that is none", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\ncanary\r\n\r\n")
		}, want{Unknown, true, false, true, "status 200, but the answer broke off after 0 bytes: "}},
		{"breaks off in the body", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") }, want{Unknown, true, false, true, "status 200, but the answer broke off after 4 bytes"}},
		{"stalls in the body", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			<-hang
		}, want{Unknown, true, false, true, "status 200, but the answer broke off after 4 bytes: the attempt's time-out has passed"}},
		{"a gateway before it gives up", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 504 X\r\nContent-Length: 0\r\n\r\n") }, want{Unknown, true, false, false, "status 504"}},
		{"redirects", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 302 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
		}, want{Unknown, true, false, true, "status 302"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := unusedURL
			var s *rawServer
			if tt.serve != nil {
				s = newRawServer(t, func(_ int64, _ string, c net.Conn) bool { tt.serve(c); return false })
				url = s.url()
			}
			u := newUpstream(t, Config{URL: url, Timeout: 2 * time.Second})
			res := do(t, u, &Request{Method: "POST", Target: "/?secret=canary", Body: []byte("x")})
			got := want{res.Outcome, res.Sent, res.Unreachable, res.Answered, res.Reason}
			if !strings.HasPrefix(got.reason, tt.want.reason) {
				t.Errorf("reason %q, want %q…", got.reason, tt.want.reason)
			}
			if got.reason = tt.want.reason; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if strings.Contains(res.Reason, "canary") {
				t.Errorf("the reason holds a part of the query or the answer: %s", res.Reason)
			}
			if s != nil && s.requests.Load() != 1 {
				t.Errorf("%d requests on the wire, want 1", s.requests.Load())
			}
		})
	}
}

// TestFailuresBeforeAConnection: an upstream is unreachable if its connection cannot be
// made. A request that is refused before is the fault of its own call.
func TestFailuresBeforeAConnection(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	dialing := func(err error) func(*Upstream) {
		return func(u *Upstream) {
			u.transport.(*transport).open = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	for _, tt := range []struct {
		name, url string
		change    func(*Upstream)
		want      Outcome
		down      bool
	}{
		{"no listener", unusedURL, nil, NotExecuted, true},
		{"no such name", "http://x", dialing(&net.DNSError{Err: "no such host", Name: "x"}), NotExecuted, true},
		{"an error of a dialer", "http://x", dialing(errors.New("no route")), NotExecuted, true},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), nil, NotExecuted, true},
		{"a method that net/http refuses", "http://x", func(u *Upstream) { u.transport = altered{u.transport, func(r *http.Request) { r.Method = "A B" }} }, Failed, false},
		{"a header that net/http refuses", "http://x", func(u *Upstream) {
			u.transport = altered{u.transport, func(r *http.Request) { r.Header.Set("A", "\x01") }}
		}, Failed, false},
		{"a trailer that net/http refuses", "http://x", func(u *Upstream) {
			u.transport = altered{u.transport, func(r *http.Request) { r.Trailer = http.Header{"A": {"\x01"}} }}
		}, Failed, false},
		{"a host that net/http refuses", "http://x", func(u *Upstream) { u.transport = altered{u.transport, func(r *http.Request) { r.URL.Host = "" }} }, Failed, false},
		{"a header of the signer", unusedURL, func(u *Upstream) { u.Signer = signer(func(r *Request) error { r.Header.Set("A", "\x01"); return nil }) }, Failed, false},
		{"a target of the signer", unusedURL, func(u *Upstream) { u.Signer = signer(func(r *Request) error { r.Target = "x"; return nil }) }, Failed, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUpstream(t, Config{URL: tt.url})
			if tt.change != nil {
				tt.change(u)
			}
			res := do(t, u, &Request{Method: "GET", Target: "/", Header: http.Header{}})
			if res.Sent || res.Outcome != tt.want || res.Unreachable != tt.down || res.Err == nil {
				t.Errorf("%s, sent %v, unreachable %v (%s); want %s, unreachable %v", res.Outcome, res.Sent, res.Unreachable, res.Reason, tt.want, tt.down)
			}
		})
	}
}

// altered is a transport whose requests are changed on their way to net/http.
type altered struct {
	http.RoundTripper
	change func(*http.Request)
}

func (a altered) RoundTrip(r *http.Request) (*http.Response, error) {
	a.change(r)
	return a.RoundTripper.RoundTrip(r)
}

// TestFieldsOfTheConnectionAreNotSent: over HTTP/2, net/http refuses some of them.
func TestFieldsOfTheConnectionAreNotSent(t *testing.T) {
	_, c := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto+" "+r.Header.Get("Sign")) }))
	c.Signer = signer(func(r *Request) error {
		r.Header = http.Header{"Sign": {"s"}, "Upgrade": {"x"}, "Connection": {"close, x"}, "Transfer-Encoding": {"gzip"}, "Host": {"h"}, "Content-Length": {"9"}}
		return nil
	})
	if got := body(t, do(t, newUpstream(t, c), &Request{Method: "POST", Target: "/", Body: []byte("x")})); got != "HTTP/2.0 s" {
		t.Errorf("the upstream answered %q", got)
	}
}

func TestHeadersAreCheckedAtAcceptance(t *testing.T) {
	for c := range 256 {
		r := &Request{Method: "GET", Target: "/", Header: http.Header{"X-Note": {"a" + string([]byte{byte(c)}) + "b"}}}
		err := r.Check()
		if legal := c >= ' ' && c != 0x7f || c == '\t'; (err == nil) != legal || err != nil && !strings.Contains(err.Error(), "X-Note") {
			t.Errorf("a value with byte %#x: %v", c, err)
		}
		r.Header = http.Header{"X" + string([]byte{byte(c)}): {"a"}}
		if err := r.Check(); (err == nil) != httpguts.ValidHeaderFieldName("X"+string([]byte{byte(c)})) {
			t.Errorf("a name with byte %#x: %v", c, err)
		}
	}
}

// TestTargetsStayBelowTheBasePath includes servers that drop the parameters of a segment
// before they resolve it.
func TestTargetsStayBelowTheBasePath(t *testing.T) {
	for target, refused := range map[string]bool{
		"/../x": true, "/a/%2e%2E/x": true, "/..": true, "/..\\x": true, "/..%2fx": true, "/a?x=/../": false,
		"/..;/x": true, "/%2e%2e;/x": true, "/..;x=1/x": true, "/..%3b/x": true, "/..%3Bx%2f": true, "/a/.%2e;;": true,
		"/./x": true, "/a/%2e/x": true, "/a/.": true, "/a/.;b": true, "/.well-known/x": false,
		"/...;/x": false, "/a;../x": false, "/a..;/x": false, "/;..": false,
	} {
		if err := (&Request{Method: "GET", Target: target}).Check(); (err != nil) != refused {
			t.Errorf("%s: %v, want refused %v", target, err, refused)
		}
	}
}

// TestForeignTransport shows the results of a Config.Transport that reports no
// connections.
func TestForeignTransport(t *testing.T) {
	tests := []struct {
		err  error
		sent bool
	}{
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, false},
		{errors.New("anything else"), true},
	}
	for _, tt := range tests {
		u := newUpstream(t, Config{URL: "http://x", Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, tt.err })})
		res := do(t, u, &Request{Method: "GET", Target: "/"})
		if res.Sent != tt.sent || res.Unreachable == tt.sent {
			t.Errorf("%v: sent %v, unreachable %v; want sent %v", tt.err, res.Sent, res.Unreachable, tt.sent)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// TestStatusesOfNoFinalAnswer: net/http lets them through, HTTP/2 those of four digits too.
func TestStatusesOfNoFinalAnswer(t *testing.T) {
	for status, want := range map[int]Outcome{-1: Unknown, 0: Unknown, 99: Unknown, 101: Unknown, 199: Unknown, 200: Done, 999: Unknown, 1000: Unknown} {
		closed := &closing{Reader: strings.NewReader("body")}
		u := newUpstream(t, Config{URL: "http://x", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: closed}, nil
		})})
		res := do(t, u, &Request{Method: "POST", Target: "/"})
		final := status >= 200 && status <= 999
		if res.Outcome != want || !res.Sent || res.Answered != final || (res.Response != nil) != final || errors.Is(res.Err, ErrStatus) == final || !closed.closed {
			t.Errorf("status %d: %s, sent %v, answered %v, error %v, closed %v: %s", status, res.Outcome, res.Sent, res.Answered, res.Err, closed.closed, res.Reason)
		}
	}
}

// closing is a body that notes its end.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLongBodyStreams(t *testing.T) {
	const size = 3 << 20
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(bytes.Repeat([]byte("x"), size))
	}))
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, MaxInspect: 1000})
	res := do(t, u, &Request{Method: "GET", Target: "/"})
	if !res.Truncated || res.Outcome != Done {
		t.Fatalf("truncated %v, outcome %s", res.Truncated, res.Outcome)
	}
	if n := len(body(t, res)); n != size {
		t.Errorf("%d bytes came through, want %d", n, size)
	}
}

func TestRulesSeeAPackedBodyAndTheClientGetsItPacked(t *testing.T) {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	io.WriteString(zw, `{"alipay_trade_refund_response":{"code":"40005"}}`)
	zw.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed.Bytes())
	}))
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, Outcomes: []Rule{{When: `body("*_response.code") == "40005"`, Is: NotExecuted}}})
	res := do(t, u, &Request{Method: "GET", Target: "/", Header: http.Header{"Accept-Encoding": {"gzip"}}})
	if res.Outcome != NotExecuted {
		t.Errorf("outcome %s: %s", res.Outcome, res.Reason)
	}
	if got := body(t, res); got != packed.String() {
		t.Error("the body did not come through unchanged")
	}
}

type signer func(*Request) error

func (f signer) Sign(_ context.Context, r *Request) error { return f(r) }

func TestSignerWorksOnACopyOfEachAttempt(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Sign")) }))
	defer s.Close()
	n := 0
	u := newUpstream(t, Config{URL: s.URL, Signer: signer(func(r *Request) error {
		n++
		r.Header.Add("Sign", fmt.Sprint(n))
		return nil
	})})
	r := &Request{Method: "POST", Target: "/", Header: http.Header{}}
	do(t, u, r)
	do(t, u, r)
	if fmt.Sprint(got) != "[1 2]" || len(r.Header) != 0 {
		t.Errorf("sent %v, header of the call %v; want a new signature for each attempt and the call unchanged", got, r.Header)
	}
	u.Signer = signer(func(*Request) error { return errors.New("no key") })
	if res := do(t, u, r); res.Outcome != Failed || res.Sent || res.Reason != "signer: no key" {
		t.Errorf("signer without a key: %+v", res)
	}
}

func TestPackedBodyThatRulesCannotReadIsUnknown(t *testing.T) {
	for encoding, want := range map[string]Outcome{"br": Unknown, "": NotExecuted, "identity": NotExecuted} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
			io.WriteString(w, `{"code":"40005"}`)
		}))
		u := newUpstream(t, Config{URL: srv.URL, Outcomes: []Rule{{When: `body("code") == "40005"`, Is: NotExecuted}}})
		res := do(t, u, &Request{Method: "GET", Target: "/"})
		res.Response.Body.Close()
		if res.Outcome != want {
			t.Errorf("%q: %s (%s), want %s", encoding, res.Outcome, res.Reason, want)
		}
		srv.Close()
	}
}

func TestLimitedWithoutRules(t *testing.T) {
	for status, want := range map[int]Outcome{429: NotExecuted, 503: NotExecuted, -503: Unknown, 500: Unknown, 408: Unknown, 404: Failed} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if status > 0 {
				w.Header().Set("Retry-After", "3")
			} else { // a used-up quota does not explain the failure of a server
				w.Header().Set("RateLimit-Remaining", "0")
				w.Header().Set("RateLimit-Reset", "3")
				status = -status
			}
			w.WriteHeader(status)
		}))
		res := do(t, newUpstream(t, Config{URL: srv.URL}), &Request{Method: "GET", Target: "/"})
		res.Response.Body.Close()
		if res.Outcome != want {
			t.Errorf("%d: %s, want %s", status, res.Outcome, want)
		}
		if status == 503 { // a proxy in front of a server that has begun may say it
			want = Unknown
		}
		res = do(t, newUpstream(t, Config{URL: srv.URL}), &Request{Method: "POST", Target: "/"})
		res.Response.Body.Close()
		if res.Outcome != want {
			t.Errorf("%d to a POST: %s, want %s", status, res.Outcome, want)
		}
		srv.Close()
	}
}

// TestLimitedByTheGateway: an answer that a gateway may give leaves open whether the host that counts has seen the call,
// unless a rule says that the answer is that host's.
func TestLimitedByTheGateway(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer srv.Close()
	for _, counted := range []bool{false, true} {
		u := newUpstream(t, Config{URL: srv.URL, Outcomes: []Rule{{When: "status == 503", Is: NotExecuted, Counted: counted}}})
		res := do(t, u, &Request{Method: "POST", Target: "/"})
		res.Response.Body.Close()
		if res.Outcome != NotExecuted || res.Answered != counted {
			t.Errorf("%s, answered %v, want not_executed, %v", res.Outcome, res.Answered, counted)
		}
	}
}

type signerFunc func(context.Context, *Request) error

func (f signerFunc) Sign(ctx context.Context, r *Request) error { return f(ctx, r) }

// TestSignersThatMisbehave: nothing is sent, and other attempts are not affected.
func TestSignersThatMisbehave(t *testing.T) {
	for name, tt := range map[string]struct {
		sign signerFunc
		want Outcome
	}{
		"hangs":  {func(ctx context.Context, _ *Request) error { <-ctx.Done(); return ctx.Err() }, NotExecuted},
		"panics": {func(context.Context, *Request) error { panic("no key") }, Failed},
		"fails":  {func(context.Context, *Request) error { return errors.New("no key") }, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, Config{URL: "http://127.0.0.1:1", Signer: tt.sign, Timeout: 20 * time.Millisecond})
			if res := do(t, u, &Request{Method: "GET", Target: "/"}); res.Outcome != tt.want || res.Sent {
				t.Errorf("%s, sent %v (%s); want %s", res.Outcome, res.Sent, res.Reason, tt.want)
			}
		})
	}
}

// TestSignerOfACancelledAttempt: the call has executed nothing, and another attempt may.
func TestSignerOfACancelledAttempt(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://127.0.0.1:1", Signer: signerFunc(func(ctx context.Context, _ *Request) error { <-ctx.Done(); return ctx.Err() })})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res := u.Do(ctx, &Request{Method: "GET", Target: "/"})
	if res.Outcome != NotExecuted || res.Sent || res.Unsigned || res.RetryAfter != time.Second {
		t.Errorf("%+v, want not executed, and to wait for a second", res)
	}
}

// TestStaleSignatureIsNotSent: the end of the validity of the caller's signature has passed
// when there is a connection. Nothing is sent on it, and it serves no other attempt.
func TestStaleSignatureIsNotSent(t *testing.T) {
	s := newRawServer(t, func(int64, string, net.Conn) bool { return false })
	u := newUpstream(t, Config{URL: s.url()})
	res := do(t, u, &Request{Method: "GET", Target: "/", Latest: time.Now().Add(-time.Second)})
	if res.Outcome != NotExecuted || res.Sent || res.Unreachable || res.RetryAfter != time.Second || !errors.Is(res.Err, errStale) || !strings.HasPrefix(res.Reason, "never sent: ") {
		t.Errorf("%+v, want not executed, and to wait for a second", res)
	}
}

// TestRevokedIsNotSent: another call ends this one while it is signed, or before there is a
// connection. Nothing is sent.
func TestRevokedIsNotSent(t *testing.T) {
	s := newRawServer(t, func(int64, string, net.Conn) bool { return false })
	for name, signing := range map[string]bool{"while it is signed": true, "while it is dialed": false} {
		revoked := new(atomic.Bool)
		c := Config{URL: s.url()}
		if signing {
			c.Signer = signerFunc(func(context.Context, *Request) error { revoked.Store(true); return nil })
		}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectDone: func(string, string, error) { revoked.Store(true) }})
		res := newUpstream(t, c).Do(ctx, &Request{Method: "POST", Target: "/pay", Revoked: revoked})
		if res.Outcome != NotExecuted || res.Sent || res.Unreachable || res.RetryAfter != 0 || !errors.Is(res.Err, errRevoked) || res.Reason != "never sent: another call has ended it" {
			t.Errorf("%s: %+v, want not executed", name, res)
		}
	}
}

// TestForbiddenIsNotSent: a process that may send nothing any more is asked when the request has its
// connection. The call waits for a second, and proves nothing about the upstream.
func TestForbiddenIsNotSent(t *testing.T) {
	s := newRawServer(t, func(int64, string, net.Conn) bool { return false })
	for name, transport := range map[string]http.RoundTripper{"its own transport": nil, "that of net/http": &http.Transport{}} {
		var connected atomic.Bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{ConnectDone: func(string, string, error) { connected.Store(true) }})
		res := newUpstream(t, Config{URL: s.url(), Transport: transport}).Do(ctx, &Request{Method: "POST", Target: "/pay", Allowed: func() bool {
			if !connected.Load() {
				t.Errorf("%s: it is asked before there is a connection", name)
			}
			return false
		}})
		if res.Outcome != NotExecuted || res.Sent || res.Unreachable || res.RetryAfter != time.Second || !errors.Is(res.Err, errForbidden) || !strings.HasPrefix(res.Reason, "never sent: this process may send no calls now") {
			t.Errorf("%s: %+v, want not executed, and to wait for a second", name, res)
		}
	}
}

// An attempt has ended when the first byte of its answer comes, even if the rest is
// slow. An interim answer does not end it: it may come from a proxy.
func TestAnsweredAt(t *testing.T) {
	many := make([]string, h1.MaxInterim+1)
	for i := range many {
		many[i] = "HTTP/1.1 102 Processing\r\n\r\n"
	}
	for name, tt := range map[string]struct {
		pieces  []string
		apart   time.Duration
		after   time.Duration
		outcome Outcome
	}{
		"slow head":    {[]string{"HTTP/1.1 200 OK\r\n", "Content-Length: 0\r\n\r\n"}, time.Second, time.Second, Done},
		"interim":      {[]string{"HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}, time.Second, 2 * time.Second, Done},
		"many interim": {many, time.Millisecond, (h1.MaxInterim + 1) * time.Millisecond, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				u := newUpstream(t, Config{URL: "http://unused.invalid"})
				u.transport.(*transport).open = func(context.Context, string, string) (net.Conn, error) {
					return here, nil
				}
				go func() {
					http.ReadRequest(bufio.NewReader(there))
					for _, piece := range tt.pieces {
						time.Sleep(tt.apart)
						io.WriteString(there, piece)
					}
				}()
				start := time.Now()
				res := do(t, u, &Request{Method: "GET", Target: "/"})
				if after := res.AnsweredAt.Sub(start); after != tt.after || res.Outcome != tt.outcome {
					t.Errorf("%s, answered after %v: %s; want %s after %v", res.Outcome, after, res.Reason, tt.outcome, tt.after)
				}
				there.Close()
			})
		})
	}
}

// TestWrittenAt: a request is written when its last byte has left, which may be long after
// the first one, and when it is answered at the latest.
func TestWrittenAt(t *testing.T) {
	const pause = 300 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" { // answers, and then reads on
			w.(http.Flusher).Flush()
		}
		time.Sleep(pause)
		io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	u, err := New(Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	big := make([]byte, 32<<20) // more than the buffers of a connection
	for path, body := range map[string][]byte{"/small": []byte("x"), "/slow": big, "/early": big} {
		r := u.Do(t.Context(), &Request{Method: "POST", Target: path, Body: body})
		if r.Response != nil {
			r.Response.Body.Close()
		}
		took := r.WrittenAt.Sub(r.SentAt)
		switch {
		case r.WrittenAt.After(r.AnsweredAt) || r.WrittenAt.Before(r.SentAt):
			t.Errorf("%s: sent at %v, written at %v, answered at %v", path, r.SentAt, r.WrittenAt, r.AnsweredAt)
		case path == "/slow" && took < pause/2:
			t.Errorf("%s: it took %v to be written, and its body was read after %v", path, took, pause)
		case path == "/small" && r.AnsweredAt.Sub(r.WrittenAt) < pause/2:
			t.Errorf("%s: written %v before the answer, which took %v", path, r.AnsweredAt.Sub(r.WrittenAt), pause)
		}
	}
}

// TestResultOfAnAnswer has the fields of a result that no rule decides about.
func TestResultOfAnAnswer(t *testing.T) {
	var asked *http.Request
	u := newUpstream(t, Config{URL: "http://example.com/api", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r
		return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody}, nil
	})})
	before := time.Now()
	res := do(t, u, &Request{Method: "GET", Target: "/a%20b?c"})
	if res.Outcome != NotExecuted || res.RetryAfter != 7*time.Second || res.Truncated {
		t.Errorf("%+v, want not executed, and to wait for 7s", res)
	}
	if res.SentAt.Before(before) || res.AnsweredAt.Before(res.SentAt) {
		t.Errorf("sent at %v and answered at %v, after %v", res.SentAt, res.AnsweredAt, before)
	}
	if asked.URL.Path != "/api/a b" || asked.URL.RawQuery != "c" || asked.Proto != "HTTP/1.1" || !asked.ProtoAtLeast(1, 1) {
		t.Errorf("the transport is asked for %q, query %q, by %s", asked.URL.Path, asked.URL.RawQuery, asked.Proto)
	}
}

// TestAnswerThatBreaksOff has no response, and its body is closed.
func TestAnswerThatBreaksOff(t *testing.T) {
	broken := errors.New("cut")
	body := &closing{Reader: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))}
	u := newUpstream(t, Config{URL: "http://example.com", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
	})})
	res := u.Do(context.Background(), &Request{Method: "GET", Target: "/"})
	if res.Outcome != Unknown || res.Response != nil || res.Err != broken || !body.closed || !strings.HasSuffix(res.Reason, "after 3 bytes: cut") {
		t.Errorf("%+v, closed: %v; want unknown, without a response", res, body.closed)
	}
}

// TestUnanswered: only an attempt that sent nothing shows that its upstream is unreachable,
// and HTTP/2 may say that it processed nothing.
func TestUnanswered(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://example.com", Transport: http.DefaultTransport})
	in := NewInput(&Request{Method: "GET", Target: "/"})
	res := &Result{}
	u.unanswered(res, in, &wire{asked: true}, errors.New("a fault"))
	if res.Outcome != Unknown || !res.Sent || res.Unreachable {
		t.Errorf("a transport that asked for a connection and tells no more: %+v, want unknown and sent", res)
	}
	w := &wire{connected: true, shared: true}
	w.header.Store(true)
	res = &Result{}
	u.unanswered(res, in, w, errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer"))
	if res.Outcome != NotExecuted || !res.Sent || !res.Unprocessed || !strings.HasPrefix(res.Reason, "not processed: stream error") {
		t.Errorf("a refused stream: %+v, want not executed and not processed", res)
	}
}

// waiting is a body that gives nothing until a context ends.
type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) { <-w.ctx.Done(); return 0, w.ctx.Err() }
func (w waiting) Close() error             { return nil }

// TestContextEndsWithTheAttempt: the context of a request ends with its attempt, which is,
// with a long answer, when the body is closed.
func TestContextEndsWithTheAttempt(t *testing.T) {
	var ctx context.Context
	answer := func(ctx context.Context) io.ReadCloser { return http.NoBody }
	u := newUpstream(t, Config{URL: "http://example.com", Timeout: 50 * time.Millisecond, MaxInspect: 2,
		Signer: signerFunc(func(c context.Context, _ *Request) error { ctx = c; return nil }),
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: answer(r.Context())}, nil
		})})
	ended := func(what string) {
		t.Helper()
		if ctx.Err() == nil {
			t.Errorf("%s: the context goes on", what)
		}
	}
	u.Do(context.Background(), &Request{Method: "GET", Target: "no slash"})
	ended("a request that cannot be sent")
	var revoked atomic.Bool
	revoked.Store(true)
	u.Do(context.Background(), &Request{Method: "GET", Target: "/", Revoked: &revoked})
	ended("a request that was revoked")
	u.Do(context.Background(), &Request{Method: "GET", Target: "/"})
	ended("a whole answer")
	answer = func(ctx context.Context) io.ReadCloser { return waiting{ctx} }
	if res := u.Do(context.Background(), &Request{Method: "GET", Target: "/"}); res.Err != errTimeout {
		t.Errorf("an answer that does not come: %v, want the time-out", res.Err)
	}
	answer = func(context.Context) io.ReadCloser { return io.NopCloser(strings.NewReader("a long answer")) }
	res := u.Do(context.Background(), &Request{Method: "GET", Target: "/"})
	if !res.Truncated || ctx.Err() != nil {
		t.Errorf("a long answer: truncated %v, its context is %v", res.Truncated, ctx.Err())
	}
	res.Response.Body.Close()
	ended("a long answer that is closed")
	own := newUpstream(t, Config{URL: "http://example.com", Signer: u.Signer})
	own.transport = altered{own.transport, func(r *http.Request) { r.Method = "A B" }}
	own.Do(context.Background(), &Request{Method: "GET", Target: "/"})
	ended("a request that net/http refuses")
}
