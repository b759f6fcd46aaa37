package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestWebPagesAreRefused sends the requests of pages and of programs to both listeners.
// HOST is the listener's address.
func TestWebPagesAreRefused(t *testing.T) {
	var arrived atomic.Int64
	platform := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer platform.Close()
	url := strings.Replace(platform.URL, "127.0.0.1", "localhost", 1)
	r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: url}}, Refusal{}, nil)
	const every, none, data = "every", "none", "data" // listeners that answer
	for _, tt := range []struct{ name, host, header, answers string }{
		{"a program", "HOST", "", every},
		{"a program on localhost", "LocalHost:8081", "", every},
		{"a program on ::1", "[::1]", "", every},
		{"a program by a name of hosts", "Sidecar.:8081", "", data},
		{"an address bar", "HOST", "Sec-Fetch-Site: none", every},
		{"a page of its own", "HOST", "Sec-Fetch-Site: same-origin", every},
		{"a page of another site", "HOST", "Sec-Fetch-Site: cross-site", none},
		{"a page of a neighbour", "HOST", "Sec-Fetch-Site: same-site", none},
		{"a link of another site", "HOST", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\nSec-Fetch-User: ?1", "link"},
		{"a window that a script of another site opens", "HOST", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document", none},
		{"a frame of another site", "HOST", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe", none},
		{"a page in an old browser", "HOST", "Origin: https://evil.example", none},
		{"a page without an origin", "HOST", "Origin: null", none},
		{"a page by a name that resolves to this host", "evil.example:8081", "Sec-Fetch-Site: same-origin", none},
		{"the same in an old browser", "evil.example:8081", "Origin: http://evil.example:8081", none},
		{"a name that only begins so", "localhost.evil.example", "", none},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(tt.name+"/"+method, func(t *testing.T) {
				before := arrived.Load()
				for listener, base := range map[string]string{data: r.data.URL + "/pay", "admin": r.admin.URL + "/v1/events?upstream=pay"} {
					if listener == "admin" && method == "POST" {
						base = r.admin.URL + "/v1/config/reload"
					}
					status, body, header := ask(t, method, base, tt.host, tt.header)
					if want := tt.answers == every || tt.answers == listener || tt.answers == "link" && listener == "admin" && method == "GET"; (status == 200) != want || !want && !refusedAs(listener, tt.host, status, body) {
						t.Errorf("%s: status %d, %s; want an answer: %v", listener, status, body, want)
					}
					if status == 403 && listener == data && header.Get("Throttler-Outcome") != "not_executed" {
						t.Errorf("outcome %q of a refusal", header.Get("Throttler-Outcome"))
					}
				}
				if sent := arrived.Load() - before; (sent == 1) != (tt.answers == every || tt.answers == data) {
					t.Errorf("%d requests arrived", sent)
				}
			})
		}
	}
}

// refusedAs reports whether the answer is the refusal that a listener gives to requests to
// a host.
func refusedAs(listener, host string, status int, body string) bool {
	if listener == "admin" && host != "HOST" {
		return status == 421 && strings.Contains(body, `"reason":"misdirected"`)
	}
	return status == 403 && strings.Contains(body, `"reason":"forbidden"`)
}

// ask makes a request to a host, and returns the beginning of the answer's body.
func ask(t *testing.T, method, url, host, lines string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if host != "HOST" {
		req.Host = host
	}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == 200 { // of a stream of events too
		return resp.StatusCode, "", resp.Header
	}
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), resp.Header
}

// TestNamesOfOtherAddresses: a listener that others reach checks names only if it has some.
func TestNamesOfOtherAddresses(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "sidecar:8081"
	for _, tt := range []struct {
		local      net.Addr
		everywhere bool
		hosts      []string
		refused    bool
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}, false, nil, false},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}, true, []string{"other"}, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}, true, []string{"other", "sidecar"}, false},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, false, nil, true},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, false, []string{"sidecar"}, false},
	} {
		at := r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.local))
		if err := rebound(at, tt.everywhere, func() []string { return tt.hosts }); (err != nil) != tt.refused {
			t.Errorf("at %v, everywhere %v, hosts %v: %v", tt.local, tt.everywhere, tt.hosts, err)
		}
	}
}

// TestAdminAnswersAreMarked: no page of another origin may embed an answer, or run it.
func TestAdminAnswersAreMarked(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/v1/calls", "/v1/events", "/v1/nothing", "/metrics", "/healthz", "/readyz", "/v1/upstreams?bad=1"} {
		for _, line := range []string{"", "Sec-Fetch-Site: cross-site"} {
			status, _, header := ask(t, "GET", r.admin.URL+path, "HOST", line)
			if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cross-Origin-Resource-Policy") != "same-origin" || line != "" && status != 403 {
				t.Errorf("%s %s: status %d, %v", path, line, status, header)
			}
		}
	}
}
