package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// TestCallback submits a refund with a target that fails once, and checks the webhooks
// as a receiver of Standard Webhooks does.
func TestCallback(t *testing.T) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 24))
	t.Setenv("SHOP_SECRET", secret)
	receiver, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	type webhook struct {
		id, body string
		err      error
	}
	received := make(chan webhook, 10)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if received <- (webhook{r.Header.Get("Webhook-Id"), string(body), receiver.Verify(body, r.Header)}); len(received) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer shop.Close()
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{Apps: map[string]string{appID: keys.Public}})
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, serve(t, g), "preset: alipay", "signer: {kind: alipay, key: 'file:"+keyFile(t, keys)+"'}",
		"callbacks: {shop: {url: '"+shop.URL+"/hooks', secret: env:SHOP_SECRET, retry: {min: 10ms, max: 10ms}}}")
	resp, err := http.Post(p.admin+"/v1/calls", "application/json", bytes.NewReader(refundCall("R1", "shop")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var call struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&call); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	p.until(t, "telling twice", func() bool { return len(received) == 2 })
	for range 2 {
		w := <-received
		if w.err != nil || w.id != call.ID+".done.1" || !strings.Contains(w.body, `"type":"call.done"`) || strings.Contains(p.log.String(), secret) {
			t.Errorf("webhook %+v", w)
		}
	}
	want := `level=WARN msg="a webhook was not taken" webhook=` + call.ID + `.done.1 callback=alipay/callbacks/shop reason="status 500" then="again in `
	p.logs(t, want)
	if strings.Contains(p.log.String(), "may have been executed") {
		t.Errorf("the log takes a webhook for a call:\n%s", p.log)
	}
}
