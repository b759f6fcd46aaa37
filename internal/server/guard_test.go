package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestSlowHandshake: a handshake must end within the time for a head, however slowly it
// comes; a client that speaks no TLS is told so.
func TestSlowHandshake(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	for name, tt := range map[string]struct {
		send  string // a byte each second
		ended time.Duration
		has   string
	}{
		"nothing":                       {"", headerTimeout, ""},
		"a record that never ends":      {"\x16\x03\x01\x02\x00\x01" + strings.Repeat("\x00", 60), headerTimeout, ""},
		"a request without TLS":         {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 4 * time.Second, "speaks HTTPS"},
		"a record of another protocol":  {"\x16\xff\xff\xff\xff", 4 * time.Second, ""},
		"a request of HTTP/2, in plain": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 4 * time.Second, "speaks HTTPS"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := pipes{make(chan net.Conn)}
				srv, ended := New(http.NotFoundHandler(), slog.New(slog.DiscardHandler)), make(chan struct{})
				go func() {
					defer close(ended)
					srv.Serve(access.Secured(l, func() *tls.Config { return config }))
				}()
				here, there := net.Pipe()
				l.conns <- there
				began := time.Now()
				var sender sync.WaitGroup
				sender.Go(func() {
					for i := range len(tt.send) {
						if _, err := here.Write([]byte(tt.send[i : i+1])); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				text, _ := io.ReadAll(here)
				if took := time.Since(began); took != tt.ended || !strings.Contains(string(text), tt.has) {
					t.Errorf("ended after %v with %q, want %v with %q", took, text, tt.ended, tt.has)
				}
				here.Close()
				sender.Wait()
				srv.Close()
				<-ended
			})
		})
	}
}

// TestChallenge: a refusal tells programs how to show themselves, and a wrong token is in
// the log, but its text is not.
func TestChallenge(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	log := slog.New(slog.NewTextHandler(r.logs, nil))
	a := NewAdmin(AdminConfig{
		Scheduler: r.s, Metrics: r.metrics, Events: NewEvents(), Log: log, Ready: func() error { return nil },
		Guard: access.NewGuard(&config.Access{}), MaxHeld: 1,
	})
	site := serve(t, a, log)
	for n := range 7 {
		resp, body := send(t, "GET", site.URL+"/v1/limits", "", "Authorization: Bearer canary")
		if n < 5 && (resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != `Bearer error="invalid_token"`) ||
			n >= 5 && (resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "12" || !strings.Contains(body, "12s")) {
			t.Errorf("wrong token %d: %d %v %s", n, resp.StatusCode, resp.Header, body)
		}
	}
	if resp, body := send(t, "GET", site.URL+"/v1/limits", ""); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(body, `"reason":"unauthenticated"`) {
		t.Errorf("no token: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if n := strings.Count(r.logs.String(), "a wrong token"); n != 5 || strings.Contains(r.logs.String(), "canary") {
		t.Errorf("%d lines of wrong tokens:\n%s", n, r.logs)
	}
}
