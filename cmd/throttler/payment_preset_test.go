package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// A submitted payment that is unknown is queried and not sent again. Both requests have
// signatures that Antom would accept.
func TestAntomIsQueried(t *testing.T) {
	t.Parallel()
	keys := gateway.NewKeys()
	block, _ := pem.Decode([]byte(keys.Public))
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	got := make(map[string]int)
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, signature, _ := strings.Cut(r.Header.Get("Signature"), "algorithm=RSA256,keyVersion=1,signature=")
		plain, _ := url.QueryUnescape(signature)
		raw, _ := base64.StdEncoding.DecodeString(plain)
		sum := sha256.Sum256([]byte("POST " + r.URL.Path + "\nC1." + r.Header.Get("Request-Time") + "." + string(body)))
		if err := rsa.VerifyPKCS1v15(parsed.(*rsa.PublicKey), crypto.SHA256, sum[:], raw); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		got[r.URL.Path]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		if strings.HasSuffix(r.URL.Path, "/pay") {
			io.WriteString(w, `{"result":{"resultStatus":"U","resultCode":"PAYMENT_IN_PROCESS"}}`)
			return
		}
		io.WriteString(w, `{"result":{"resultStatus":"S","resultCode":"SUCCESS"},"paymentStatus":"SUCCESS","paymentAmount":{"value":"100"}}`)
	}))
	p := launch(t, oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "antom", platform, fmt.Sprintf(`
    preset: antom
    signer: {kind: antom, key: 'file:%s', app_id: C1}
%s`, keyFile(t, keys), quickQueries(t, "antom"))))
	id := send(t, http.MethodPost, p.url(t, "upstreams.antom.listen")+"/ams/api/v1/payments/pay",
		`{"paymentRequestId":"P1","productCode":"IN_STORE_PAYMENT","paymentAmount":{"value":"100","currency":"USD"}}`,
		"Content-Type", "application/json", "Client-Id", "C1", "Prefer", "respond-async").call()
	p.until(t, "done with the payment", func() bool { return p.call(id).State == api.Done })
	mu.Lock()
	defer mu.Unlock()
	if got["/ams/api/v1/payments/pay"] != 1 || got["/ams/api/v1/payments/inquiryPayment"] != 1 {
		t.Errorf("the platform got %v", got)
	}
}

// PayPal with a signer of kind oauth2: a capture that is pending is queried with the token of
// the capture, and not made again.
func TestPayPalWithTokens(t *testing.T) {
	t.Parallel()
	const order = "/v2/checkout/orders/5O190127TN364715T"
	var mu sync.Mutex
	tokens, got := 0, make(map[string]int)
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch id, secret, _ := r.BasicAuth(); {
		case r.URL.Path == "/v1/oauth2/token" && id == "shop" && secret == "canary-secret" && r.FormValue("grant_type") == "client_credentials":
			tokens++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"canary-token-%d","token_type":"Bearer","expires_in":32400}`, tokens)
			return
		case r.Header.Get("Authorization") != "Bearer canary-token-1":
			got["refused"]++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		got[r.Method+" "+r.URL.Path]++
		state := map[string]string{http.MethodPost: "PENDING", http.MethodGet: "COMPLETED"}[r.Method]
		io.WriteString(w, `{"status":"COMPLETED","purchase_units":[{"payments":{"captures":[{"status":"`+state+`"}]}}]}`)
	}))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "paypal", platform, fmt.Sprintf(`
    preset: paypal
    signer: {kind: oauth2, token_url: '%s/v1/oauth2/token', client_id: shop, client_secret: 'file:%s', min_interval: 10ms}
%s`, platform, secret, quickQueries(t, "paypal"))))
	id := send(t, http.MethodPost, p.url(t, "upstreams.paypal.listen")+order+"/capture", "{}",
		"Content-Type", "application/json", "PayPal-Request-Id", "k1", "Prefer", "respond-async").call()
	p.until(t, "done with the capture", func() bool { return p.call(id).State == api.Done })
	mu.Lock()
	defer mu.Unlock()
	if want := map[string]int{"POST " + order + "/capture": 1, "GET " + order: 1}; tokens != 1 || !maps.Equal(got, want) {
		t.Errorf("%d tokens, and %v; want 1, and %v", tokens, got, want)
	}
	if page := p.body("/v1/calls/" + id); strings.Contains(page, "canary") || strings.Contains(p.log.String(), "canary") {
		t.Errorf("a secret is shown: %s", page)
	}
}
