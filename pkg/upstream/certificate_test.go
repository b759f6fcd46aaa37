package upstream

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// certifying starts a server that answers with the name in the client's certificate.
func certifying(t *testing.T, ca authority, http2 bool, auth tls.ClientAuthType) (s *httptest.Server, connections func() int) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server")}, ClientAuth: auth, ClientCAs: ca.pool()}
	s.EnableHTTP2 = http2
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	var mu sync.Mutex
	opened := 0
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateNew {
			opened++
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, func() int { mu.Lock(); defer mu.Unlock(); return opened }
}

func merchants(t *testing.T, ca authority, names ...string) (all []Certificate) {
	for _, name := range names {
		all = append(all, Certificate{When: fmt.Sprintf("query(%q) == %q", "mch", name), Pair: ca.issue(t, name)})
	}
	return all
}

func of(merchant string) *Request { return &Request{Method: "GET", Target: "/?mch=" + merchant} }

// TestCertificateOfRequest: each request shows the certificate of its merchant, whichever
// connections are idle, and though TLS has a session cache for all.
func TestCertificateOfRequest(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2=%v", http2), func(t *testing.T) {
			ca := newAuthority(t)
			s, connections := certifying(t, ca, http2, tls.RequireAndVerifyClientCert)
			u := newUpstream(t, Config{URL: s.URL, HTTP1: !http2, Certificates: merchants(t, ca, "m0", "m1", "m2"), OnlyCertified: true,
				TLS: &tls.Config{RootCAs: ca.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8), Certificates: []tls.Certificate{ca.issue(t, "default")}}})
			for n := range 12 { // one after the other: connections are idle
				want := fmt.Sprint("m", n*n%3)
				if got := body(t, do(t, u, of(want))); got != want {
					t.Fatalf("request %d of %s came with the certificate of %q", n, want, got)
				}
				if n%5 == 4 {
					u.Close() // the next ones may resume a session
				}
			}
			if n := connections(); !http2 && n != 5 { // two before each Close, one after; those of HTTP/2 may be busy still
				t.Errorf("%d connections, want 5: Close closes the idle ones of all certificates", n)
			}
			var wg sync.WaitGroup
			for n := range 30 {
				wg.Go(func() {
					want := fmt.Sprint("m", n%3)
					if got := body(t, do(t, u, of(want))); got != want {
						t.Errorf("one of many requests of %s came with the certificate of %q", want, got)
					}
				})
			}
			wg.Wait()
			if n := connections(); n < 3 {
				t.Errorf("%d connections for three certificates", n)
			}
		})
	}
}

// TestClose closes idle connections; the next request has a new one.
func TestClose(t *testing.T) {
	ca := newAuthority(t)
	s, connections := certifying(t, ca, false, tls.NoClientCert)
	u := newUpstream(t, Config{URL: s.URL, TLS: &tls.Config{RootCAs: ca.pool()}})
	for want := 1; want <= 2; want++ {
		for range 2 {
			body(t, do(t, u, of("m0")))
		}
		if n := connections(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
		u.Close()
	}
}

// TestNoCertificateFits: such a request is refused before a connection is made, or goes by
// the default.
func TestNoCertificateFits(t *testing.T) {
	ca := newAuthority(t)
	s, connections := certifying(t, ca, true, tls.VerifyClientCertIfGiven)
	all := append(merchants(t, ca, "m0"), Certificate{When: `json("mch") == "m1"`, Pair: ca.issue(t, "m1")})
	plain, own := &tls.Config{RootCAs: ca.pool()}, &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.issue(t, "default")}}
	const unreadable = `{"mch":"m1","mch":"m2"}`
	for _, tt := range []struct {
		name    string
		config  Config
		request *Request
		want    string // the certificate, or the error
	}{
		{"refused", Config{TLS: own, OnlyCertified: true}, of("m9"), "error: tls.certificates: none fits the request"},
		{"the default's", Config{TLS: own}, of("m9"), "default"},
		{"none", Config{TLS: plain}, of("m9"), ""},
		{"its own", Config{TLS: own}, of("m0"), "m0"},
		{"unclear", Config{TLS: own}, &Request{Method: "POST", Target: "/", Body: []byte(unreadable)}, "error: tls.certificates[1].when: "},
	} {
		tt.config.URL, tt.config.Certificates = s.URL, all
		u := newUpstream(t, tt.config)
		before := connections()
		err, res := u.Certified(NewInput(tt.request)), do(t, u, tt.request)
		if want, refused := strings.CutPrefix(tt.want, "error: "); refused {
			if err == nil || !strings.HasPrefix(err.Error(), want) || res.Outcome != Failed || res.Sent || !strings.HasPrefix(res.Reason, want) || connections() != before {
				t.Errorf("%s: %v; %s, %q", tt.name, err, res.Outcome, res.Reason)
			}
			continue
		}
		if got := body(t, res); err != nil || got != tt.want {
			t.Errorf("%s: %v, the server saw %q, want %q", tt.name, err, got, tt.want)
		}
	}
}

// TestCertificateFaults: each is named with its field.
func TestCertificateFaults(t *testing.T) {
	ca := newAuthority(t)
	for want, c := range map[string]Config{
		"tls.certificates: are given, but the URL is http":        {URL: "http://a.test", Certificates: merchants(t, ca, "m")},
		"tls.certificates: are given beside Transport":            {URL: "https://a.test", Certificates: merchants(t, ca, "m"), Transport: http.DefaultTransport},
		"tls.certificates: are 1001, must be at most 1000":        {URL: "https://a.test", Certificates: make([]Certificate, 1001)},
		"tls.certificates[0].when: is missing":                    {URL: "https://a.test", Certificates: []Certificate{{}}},
		"tls.certificates[1].when: unknown name mch":              {URL: "https://a.test", Certificates: append(merchants(t, ca, "m"), Certificate{When: `mch == "1"`})},
		"tls.otherwise: is refuse, but no certificates are given": {URL: "https://a.test", OnlyCertified: true},
	} {
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := New(Config{URL: "https://a.test", Certificates: make([]Certificate, maxCertificates)}); err == nil || !strings.Contains(err.Error(), "tls.certificates[999].when") {
		t.Errorf("%v; the most certificates are 1000", err)
	}
}
