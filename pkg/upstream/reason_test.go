package upstream

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestReasonsQuoteNothing: the reason of an attempt has no bytes of an answer that cannot be
// read. It is stored, also in a sealed file, and logged.
func TestReasonsQuoteNothing(t *testing.T) {
	for name, answer := range map[string]string{
		"a malformed field":       "HTTP/1.1 200 OK\r\nSet-Cookie(: secret=CANARY\r\n\r\n",
		"a field without a colon": "HTTP/1.1 200 OK\r\nsecret CANARY\r\n\r\n",
		"a first line that folds": "HTTP/1.1 200 OK\r\n secret=CANARY\r\n\r\n",
		"no answer of HTTP":       "CANARY\r\n\r\n",
		"another protocol":        "CANARY/1.1 200 OK\r\n\r\n",
		"another version":         "HTTP/CANARY 200 OK\r\n\r\n",
		"no status":               "HTTP/1.1 CANARY OK\r\n\r\n",
		"a status with a sign":    "HTTP/1.1 +CANARY\r\n\r\n",
		"a length":                "HTTP/1.1 200 OK\r\nContent-Length: CANARY\r\n\r\n",
		"two lengths":             "HTTP/1.1 200 OK\r\nContent-Length: 1CANARY\r\nContent-Length: 2CANARY\r\n\r\n",
		"an encoding":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: CANARY\r\n\r\n",
		"two encodings":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: CANARY\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a chunk":                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nCANARY\r\n",
		"a trailer":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nCANARY(: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newRawServer(t, func(_ int64, _ string, c net.Conn) bool { io.WriteString(c, answer); return false })
			res := do(t, newUpstream(t, Config{URL: s.url(), Timeout: 10 * time.Second}), &Request{Method: "POST", Target: "/", Body: []byte("x")})
			if res.Outcome != Unknown || len(res.Reason) < 15 || strings.Contains(res.Reason, "CANARY") {
				t.Errorf("%s: %q", res.Outcome, res.Reason)
			}
		})
	}
}

// TestReasonsHaveNoURL: a Transport of the caller may return errors of http.Client.
func TestReasonsHaveNoURL(t *testing.T) {
	err := &url.Error{Op: "Get", URL: "http://pay.example/?secret=canary", Err: errors.New("it broke")}
	if got := unquoted(err); got != "it broke" {
		t.Errorf("%q", got)
	}
}
