package signer

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The time is new, and the version of the key, the target and the body stay as they are.
func TestAntom(t *testing.T) {
	ref, public, _ := keyFile(t)
	body := `{"paymentRequestId":"P1"}`
	tests := map[string]struct {
		client  string // of the key
		header  http.Header
		target  string
		version string
		refused string
	}{
		"signed before":     {"C1", http.Header{"Client-Id": {"C1"}, "Request-Time": {"1"}, "Signature": {"algorithm=RSA256,keyVersion=3,signature=stale"}}, "/ams/api/v1/payments/pay", "3", ""},
		"never signed":      {"C1", nil, "/ams/api/v1/payments/pay", "1", ""},
		"key of any client": {"", http.Header{"Client-Id": {"C1"}}, "/ams/sandbox/api/v1/payments/pay?a=b%20c", "1", ""},
		"another client":    {"C2", http.Header{"Client-Id": {"C1"}}, "/", "", "the request is of client C1, the key is that of C2"},
		"no client":         {"", nil, "/", "", "the request has no Client-Id; give the signer app_id"},
		"an upload":         {"C1", http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, "/", "", "a multipart body cannot be signed here"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t, Config{Kind: "antom", Key: ref, AppID: tt.client})
				time.Sleep(time.Hour)
				r := &upstream.Request{Method: "POST", Target: tt.target, Header: tt.header, Body: []byte(body)}
				err := s.Sign(t.Context(), r)
				if tt.refused != "" {
					if err == nil || !strings.Contains(err.Error(), tt.refused) {
						t.Errorf("%v, want %s", err, tt.refused)
					}
					return
				}
				now := strconv.FormatInt(time.Now().UnixMilli(), 10)
				if err != nil || r.Header.Get("Request-Time") != now || r.Header.Get("Client-Id") != "C1" || r.Target != tt.target || string(r.Body) != body {
					t.Fatalf("%v: %s %s %v", err, r.Target, r.Body, r.Header)
				}
				head, signature, _ := strings.Cut(r.Header.Get("Signature"), "signature=")
				if want := "algorithm=RSA256,keyVersion=" + tt.version + ","; head != want {
					t.Errorf("%q, want %q", head, want)
				}
				plain, err := url.QueryUnescape(signature)
				if err != nil || strings.ContainsAny(signature, "+/=") {
					t.Errorf("the signature %q is not escaped", signature)
				}
				verify(t, public, "POST "+tt.target+"\nC1."+now+"."+body, plain)
			})
		})
	}
}
