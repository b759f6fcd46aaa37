package http1

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestEndOfHead: the end of a head is found as soon as it has come, in parts of all sizes.
func TestEndOfHead(t *testing.T) {
	for text, end := range map[string]int{
		"":                               0,
		"\nG":                            1,
		"\r\nG":                          2,
		"\rG\nX: a\r\n\r\n":              11,
		"G\nX: a\n\nnext":                8,
		"GET / HTTP/1.1\r\nX: a\r\n\r\n": 24,
		"G\n\rX\r\n\r\n\r\n":             8,
		"G\r\n\nnext":                    4,
		"G\n\r\nnext":                    4,
	} {
		for n := range len(text) + 1 {
			want := end
			if n < end {
				want = 0
			}
			for seen := range max(min(n, end), 1) { // a head that has been seen whole is not looked for again
				if got := endOfHead([]byte(text[:n]), seen); got != want {
					t.Errorf("endOfHead(%q, %d) = %d, want %d", text[:n], seen, got, want)
				}
			}
		}
	}
}

// TestRefusals: a request that breaks the rules is refused at once, in these words.
func TestRefusals(t *testing.T) {
	for request, want := range map[string]string{
		"\n":                                 "400 Bad Request",
		"\r\n":                               "400 Bad Request",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":   "400 Bad Request",
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":  "505 HTTP Version Not Supported: unsupported protocol version",
		"GET / HTTP/1.1\r\n\r\n":             "400 Bad Request: missing required Host header",
		"GET / HTTP/1.1\r\nHost: a/\r\n\r\n": "400 Bad Request: malformed Host header",
	} {
		bubble(t, nothing, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
			c, began := dial(), time.Now()
			go io.WriteString(c, request)
			all, err := io.ReadAll(c)
			head, body, _ := strings.Cut(string(all), "\r\n\r\n")
			if status, _, _ := strings.Cut(head, "\r\n"); status != "HTTP/1.1 "+want || body != want || err != nil || time.Since(began) > 0 {
				t.Errorf("%q is answered by %q, %v after %v; want %q", request, all, err, time.Since(began), want)
			}
		})
	}
}
