package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPayPalNotification: a webhook of PayPal, signed by the key of a certificate, lets the
// query about the capture of its order go at once, and goes to the merchant. One of another
// webhook does neither, though PayPal has signed it.
func TestPayPalNotification(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert := filepath.Join(t.TempDir(), "paypal.pem")
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	var queries atomic.Int32
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := "PENDING"
		if r.Method == http.MethodGet {
			queries.Add(1)
			state = "COMPLETED"
		}
		io.WriteString(w, `{"status":"COMPLETED","purchase_units":[{"payments":{"captures":[{"status":"`+state+`"}]}}]}`)
	}))
	b := newBell(t)
	b.process = launch(t, oneUpstream(filepath.Join(t.TempDir(), "throttler.db"), "paypal", platform, fmt.Sprintf(`
    preset: paypal
    notifications: {listen: '127.0.0.1:0', forward: '%s', verify: {kind: paypal, keys: ['file:%s'], webhook_id: 9XL90610J3647323C}}
    resolve:
      - when: 'path endsWith "/capture"'
        target: 'replace(path, "/capture", "")'
        after: 10h
        every: 10h
        outcomes: [{when: 'body("purchase_units.0.payments.captures.0.status") == "COMPLETED"', is: done}]
`, b.shop.URL, cert)))
	id := send(t, http.MethodPost, b.url(t, "upstreams.paypal.listen")+"/v2/checkout/orders/5O190127TN364715T/capture", "{}", "Content-Type", "application/json", "Prefer", "respond-async").call()
	b.waitUnknown(t, id)

	const event = `{"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"2GG279541U471931P","supplementary_data":{"related_ids":{"order_id":"5O190127TN364715T"}}}}`
	notified := func(webhook string) int {
		const id, sent = "d938e770-8046-11e6-8103-6b62a8a99ac4", "2016-09-21T22:00:46Z"
		sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%d", id, sent, webhook, crc32.ChecksumIEEE([]byte(event))))
		signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return b.notify(t, "paypal", "/hook", event, "Paypal-Transmission-Id", id, "Paypal-Transmission-Time", sent, "Paypal-Auth-Algo", "SHA256withRSA",
			"Paypal-Cert-Url", "https://api.paypal.com/v1/notifications/certs/CERT-1", "Paypal-Transmission-Sig", base64.StdEncoding.EncodeToString(signature)).status
	}
	if status := notified("OTHER10J3647323C"); status != http.StatusUnauthorized || len(b.merchant.notifications()) != 0 {
		t.Errorf("one of another webhook: %d, %q passed on", status, b.merchant.notifications())
	}
	if n := queries.Load(); n != 0 {
		t.Errorf("one of another webhook queries %d times", n)
	}
	if status := notified("9XL90610J3647323C"); status != http.StatusAccepted {
		t.Errorf("a genuine one: %d", status)
	}
	b.until(t, "decided", func() bool { return b.call(id).State == "done" })
	if got := b.merchant.notifications(); len(got) != 1 || !strings.HasSuffix(got[0], event) || queries.Load() != 1 {
		t.Errorf("%q passed on, %d queries; want the event and 1", got, queries.Load())
	}
}
