package h1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestNames: an answer has the names of its fields, also one that comes in pieces or behind an interim one, and up to the size of the
// buffer. What is no HTTP is refused without a wait for its end.
func TestNames(t *testing.T) {
	for name, tt := range map[string]struct {
		pieces []string
		names  string // empty: none, or no answer
		fails  bool
	}{
		"canonical":           {[]string{"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok"}, "", false},
		"of envoy":            {[]string{"HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 2\r\nETag: x\r\n\r\nok"}, "x-a content-length ETag", false},
		"in pieces":           {[]string{"H", "TTP/1.1 200 OK\r\nx", "-a: 1\r\nContent-Length: 2\r\n\r", "\nok"}, "x-a", false},
		"lines end in LF":     {[]string{"HTTP/1.1 200 OK\nx-a: 1\n", "Content-Length: 2\n\nok"}, "x-a", false},
		"behind an interim":   {[]string{"HTTP/1.1 102 Processing\r\nx-b: 1\r\n\r\nHTTP/1.1 200 OK\r\nx-a: 1\r\nContent-Length: 2\r\n\r\n", "ok"}, "x-a", false},
		"too long":            {[]string{"HTTP/1.1 200 OK\r\nx-a: " + strings.Repeat("1", 2*bufferSize) + "\r\nContent-Length: 2\r\n\r\nok"}, "", false},
		"no HTTP, held open":  {[]string{"SSH-2.0-OpenSSH_9.2\r\n"}, "", true},
		"cut off in its head": {[]string{"HTTP/1.1 200 OK\r\nx-a: 1\r\n", ""}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			cl := newClient(t, host(t, func(c net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				for _, piece := range tt.pieces {
					if piece == "" {
						return
					}
					io.WriteString(c, piece)
				}
				<-release
			}))
			resp, _, err := cl.conn(t).RoundTrip(t.Context(), request("GET", "/", ""), time.Minute)
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); string(body) != "ok" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
			if got := strings.Join(Names(resp), " "); got != tt.names {
				t.Errorf("names %q, want %q", got, tt.names)
			}
		})
	}
	if Names(&http.Response{}) != nil {
		t.Error("an answer without a request has names")
	}
}
