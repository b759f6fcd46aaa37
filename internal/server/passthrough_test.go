package server

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// rawUpstream answers every request with the same bytes, and returns the bytes of the
// requests.
func rawUpstream(t *testing.T, answer string) (addr string, requests chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var raw bytes.Buffer
			if req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw))); err == nil {
				io.Copy(io.Discard, req.Body)
			}
			requests <- raw.String()
			io.WriteString(c, answer)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), requests
}

// talk sends bytes on a connection of their own and returns all bytes that the server
// sends before it closes the connection.
func talk(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second)) // a server that hangs fails the test, not the suite
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("after %q: %v", b, err)
	}
	return string(b)
}

// varying matches the values that differ in each run.
var varying = regexp.MustCompile(`(Throttler-(?:Call|Wait)): [^\r]+`)

// TestBytesPassUnchangedBothWays compares the bytes on both sides; HOST is the
// upstream's address.
func TestBytesPassUnchangedBothWays(t *testing.T) {
	const own = "Throttler-Call: *\r\nThrottler-Outcome: done\r\nThrottler-Wait: *\r\n"
	tests := []struct{ name, request, arrives, answer, comes string }{
		{
			"odd bytes",
			"POST /gateway.do?b=%7b&a=1&&x HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 5\r\nX-Custom: a,  b\r\nConnection: close, X-Private\r\nX-Private: 1\r\nThrottler-Priority: 5\r\nTE: trailers\r\n\r\n\xff&=\x00z",
			"POST /gateway.do?b=%7b&a=1&&x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\nX-Custom: a,  b\r\n\r\n\xff&=\x00z",
			"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-Odd:  two  spaces \r\nConnection: X-Hop\r\nX-Hop: 1\r\nAlipay-Signature: a+b==\r\n\r\n\xc4\xe3{ }\r\n",
			"HTTP/1.1 200 OK\r\nAlipay-Signature: a+b==\r\nContent-Length: 7\r\n" + own + "X-Odd: two  spaces\r\nConnection: close\r\n\r\n\xc4\xe3{ }\r\n",
		},
		{
			"HEAD",
			"HEAD / HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n",
			"HEAD / HTTP/1.1\r\nHost: HOST\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT\r\n" + own + "Connection: close\r\n\r\n",
		},
		{
			"chunked, with trailers",
			"POST / HTTP/1.1\r\nHost: sidecar\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 5\r\n\r\nabcde",
			"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nno\r\n0\r\nX-T: 1\r\n\r\n",
			"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n" + own + "Connection: close\r\n\r\nno",
		},
		{
			"absolute form",
			"GET http://sidecar/a%2fb//c?x=%7b%7D&y HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n",
			"GET /a%2fb//c?x=%7b%7D&y HTTP/1.1\r\nHost: HOST\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n" + own + "Connection: close\r\n\r\n",
		},
		{
			"absolute form without a path",
			"GET HTTP://sidecar?x=%7b HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n",
			"GET /?x=%7b HTTP/1.1\r\nHost: HOST\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n" + own + "Connection: close\r\n\r\n",
		},
		{
			"a type that is there twice",
			"POST / HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 2\r\nContent-Type: application/json\r\nContent-Type: application/json; charset=UTF-8\r\nConnection: close\r\n\r\n{}",
			"POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\nContent-Type: application/json\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{}",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n" + own + "Connection: close\r\n\r\n",
		},
		{
			"names in spellings of their own",
			"POST / HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\ncontent-length: 2\r\nSOAPAction: a\r\nX-sOmE: 1\r\nX-sOmE: 2\r\nuser-agent: node\r\nthrottler-priority: 5\r\nkeep-alive: 5\r\nprefer: return=minimal\r\nx-a: b\r\n\r\n{}",
			"POST / HTTP/1.1\r\nHost: HOST\r\nuser-agent: node\r\nContent-Length: 2\r\nSOAPAction: a\r\nX-sOmE: 1\r\nX-sOmE: 2\r\nprefer: return=minimal\r\nx-a: b\r\n\r\n{}",
			"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 09:00:00 GMT\r\nserver: envoy\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nETag: x\r\nkeep-alive: 5\r\nthrottler-wait: 7\r\nX-oDD: 1\r\nX-oDD: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: x\r\n" + own + "X-oDD: 1\r\nX-oDD: 2\r\ncontent-type: text/plain\r\ndate: Sat, 21 Nov 2026 09:00:00 GMT\r\nserver: envoy\r\nConnection: close\r\n\r\nok",
		},
		{
			"expectation",
			"POST / HTTP/1.1\r\nHost: sidecar\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nhi",
			"POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n" + own + "Connection: close\r\n\r\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host, requests := rawUpstream(t, tt.answer)
			r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: "http://" + host}}, Refusal{}, nil)
			comes := varying.ReplaceAllString(talk(t, r.data.addr, tt.request), "$1: *")
			if comes != tt.comes {
				t.Errorf("the client got\n%q\nwant\n%q", comes, tt.comes)
			}
			if arrives := strings.ReplaceAll(<-requests, host, "HOST"); arrives != tt.arrives {
				t.Errorf("the upstream got\n%q\nwant\n%q", arrives, tt.arrives)
			}
		})
	}
}

// TestStreamsAreNotHeldBack: head and pieces of an answer reach the client before the
// upstream sends the next piece.
func TestStreamsAreNotHeldBack(t *testing.T) {
	for name, tt := range map[string]struct{ length, durable string }{
		"of unknown length": {}, "of known length": {length: "3"},
		"of a durable call": {durable: "true"}, "of a durable call, of known length": {"3", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			next := make(chan bool, 4)
			u := scheduler.Upstream{Config: upstream.Config{InspectDelay: time.Millisecond}, Durable: tt.durable}
			r := newRig(t, u, Refusal{}, func(w http.ResponseWriter, _ *http.Request) {
				if tt.length != "" {
					w.Header().Set("Content-Length", tt.length)
				}
				w.WriteHeader(200)
				for _, piece := range []string{"", "a", "b", "c"} {
					io.WriteString(w, piece)
					w.(http.Flusher).Flush()
					select {
					case <-next:
					case <-time.After(5 * time.Second):
						t.Errorf("%q does not reach the client", piece)
						return
					}
				}
			})
			resp, err := http.Get(r.data.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			next <- true
			for _, want := range []string{"a", "b", "c"} {
				got := make([]byte, 1)
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					t.Fatalf("%q, %v; want %q", got, err, want)
				}
				next <- true
			}
		})
	}
}

// TestRefusalsOnTheWire sends requests that no ordinary client sends.
func TestRefusalsOnTheWire(t *testing.T) {
	r := newRig(t, scheduler.Upstream{MaxBody: 100}, Refusal{}, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	long := strings.Repeat("x", 101)
	for _, tt := range []struct{ name, request, status, want string }{
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n", "400", "must begin with a slash"},
		{"up by a parameter", "GET /a/..;x=1/b HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n", "400", "has a .. segment"},
		{"a dot", "GET /a/%2e/b HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n", "400", "has a . segment"},
		{"two slashes", "GET //a/{b} HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n", "400", "must begin with one slash"},
		{"fragment", "GET http://s/a#b HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n", "400", "a #"},
		{"too large, and nothing of it is there", "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 101\r\n\r\n", "413", "more than 100 bytes"},
		{"too large, and asks first", "POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n", "413", "more than 100 bytes"},
		{"too large in chunks", "POST / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + long + "\r\n0\r\n\r\n", "413", "more than 100 bytes"},
		{"broken chunks", "POST / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n", "400", "the body broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := net.Dial("tcp", r.data.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			io.WriteString(c, tt.request)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if !strings.HasPrefix(resp.Status, tt.status) || !strings.Contains(string(body), tt.want) || !resp.Close {
				t.Errorf("%s, close %v: %s; want %s and %q", resp.Status, resp.Close, body, tt.status, tt.want)
			}
			if resp.Header.Get("Throttler-Call") == "" || resp.Header.Get("Throttler-Outcome") != "not_executed" {
				t.Errorf("Throttler's own headers: %v", resp.Header)
			}
		})
	}
}

// TestRequestsThatALimitCannotRead: a call that a limit may not see is not sent.
func TestRequestsThatALimitCannotRead(t *testing.T) {
	u := scheduler.Upstream{MaxBody: 20 << 20, Limits: []scheduler.Limit{{Name: "refunds", When: `json("kind") == "refund" or param("kind") == "refund"`, Calls: 1, Window: time.Hour}}}
	r := newRig(t, u, Refusal{}, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	for name, tt := range map[string]struct{ target, body, kind string }{
		"deep JSON":             {"/", strings.Repeat("[", 9<<20), "application/json"},
		"a member twice":        {"/", `{"kind":"query","kind":"refund"}`, "application/json"},
		"a parameter twice":     {"/?kind=query&kind=refund", "", "text/plain"},
		"too many parameters":   {"/?kind=refund" + strings.Repeat("&a", 10_001), "", "text/plain"},
		"a form that is broken": {"/", "kind=refund&x=%zz", "application/x-www-form-urlencoded"},
	} {
		resp, body := send(t, "POST", r.data.URL+tt.target, tt.body, "Content-Type: "+tt.kind)
		if resp.StatusCode != 400 || !strings.Contains(body, "refunds") {
			t.Errorf("%s: %d %s; want 400 with the name of the limit", name, resp.StatusCode, body)
		}
	}
}

// TestLengthsThatContradict: a request with two lengths is answered, and what follows it on
// the connection is not.
func TestLengthsThatContradict(t *testing.T) {
	var arrived atomic.Int64
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, q *http.Request) {
		arrived.Add(1)
		if body, _ := io.ReadAll(q.Body); q.URL.Path != "/pay" || len(body) > 0 {
			t.Errorf("%s with %q arrived", q.URL, body)
		}
	})
	const end = "0\r\n\r\n"
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: s\r\n\r\n"
	for _, request := range []string{
		"HTTP/1.1\r\nHost: s\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" + end + smuggled,
		"HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n" + end + smuggled,
		"HTTP/1.0\r\nHost: s\r\nConnection: keep-alive\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled,
	} {
		before := arrived.Load()
		got := talk(t, r.data.addr, "POST /pay "+request)
		if strings.Count(got, " 200 OK\r\n") != 1 || !strings.Contains(got, "Connection: close") || arrived.Load() != before+1 {
			t.Errorf("answered by %q, %d requests arrived", got, arrived.Load()-before)
		}
	}
}
