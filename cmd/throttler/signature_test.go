package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestTimestampTolerance puts a queue of 10 s in front of a platform that takes
// signatures of 3 s, and no nonce twice. With a signer all refunds succeed; without
// one those that cannot go in time are refused, and nothing stale is sent.
func TestTimestampTolerance(t *testing.T) {
	const refunds, tolerance = 21, 3 * time.Second // 2 in a second
	for _, signs := range []bool{true, false} {
		t.Run(fmt.Sprintf("signer %v", signs), func(t *testing.T) {
			t.Parallel()
			keys := gateway.NewKeys()
			g, err := gateway.NewREST(gateway.RESTConfig{Kind: gateway.WechatPay, Client: keys.Public, Fresh: tolerance})
			if err != nil {
				t.Fatal(err)
			}
			platform, err := gateway.Start("", g)
			if err != nil {
				t.Fatal(err)
			}
			defer platform.Close()
			key := filepath.Join(t.TempDir(), "merchant.pem")
			if err := os.WriteFile(key, []byte(keys.Private), 0o600); err != nil {
				t.Fatal(err)
			}
			merchant := signer.Config{Kind: "wechatpay-v3", Key: "file:" + key, Merchant: "1900009191", Serial: "5157F0"}
			lines := []string{"preset: wechatpay-v3", "max_wait: 60s", "signature: {life: 2s}", "limits: [{name: all, calls: 2, window: 1s}]"}
			if signs {
				lines = append(lines, fmt.Sprintf("signer: {kind: wechatpay-v3, key: 'file:%s', merchant: '%s', serial: '%s'}", key, merchant.Merchant, merchant.Serial))
			}
			p := start(t, platform.URL, lines...)
			sdk, err := signer.New(merchant) // as the merchant's SDK signs, when the request is made
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			answers := make(map[string]int)
			var wg sync.WaitGroup
			for i := range refunds {
				wg.Go(func() {
					r := &upstream.Request{Method: "POST", Target: "/v3/refund/domestic/refunds", Body: fmt.Appendf(nil, `{"out_trade_no":"T%d","out_refund_no":"R%d"}`, i, i)}
					if err := sdk.Sign(t.Context(), r); err != nil {
						t.Error(err)
						return
					}
					req, _ := http.NewRequestWithContext(t.Context(), r.Method, p.data+r.Target, bytes.NewReader(r.Body))
					req.Header = r.Header
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					io.Copy(io.Discard, resp.Body)
					mu.Lock()
					defer mu.Unlock()
					answers[fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Throttler-Outcome"))]++
				})
			}
			wg.Wait()
			done := answers["200 done"]
			if done+answers["429 not_executed"] != refunds || len(g.Refunds()) != done || g.Arrivals("refund") != done || g.Oldest() >= tolerance {
				t.Errorf("answers %v; %d refunds, %d requests, the oldest signature %v old", answers, len(g.Refunds()), g.Arrivals("refund"), g.Oldest())
			}
			if signs && done != refunds || !signs && (done < 2 || done > 6) {
				t.Errorf("%d of %d refunds were made", done, refunds)
			}
		})
	}
}

// TestCallback submits a refund that names a target, which fails once, and checks
// what it is told as a receiver of Standard Webhooks does.
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
	told := make(chan webhook, 10)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if told <- (webhook{r.Header.Get("Webhook-Id"), string(body), receiver.Verify(body, r.Header)}); len(told) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer shop.Close()
	keys := gateway.NewKeys()
	g, err := gateway.New(gateway.Config{Apps: map[string]string{appID: keys.Public}})
	if err != nil {
		t.Fatal(err)
	}
	platform, err := gateway.Start("", g)
	if err != nil {
		t.Fatal(err)
	}
	defer platform.Close()
	key := filepath.Join(t.TempDir(), "app.pem")
	if err := os.WriteFile(key, []byte(keys.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, platform.URL, "preset: alipay", "signer: {kind: alipay, key: 'file:"+key+"'}",
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
	p.until(t, "telling twice", func() bool { return len(told) == 2 })
	for range 2 {
		w := <-told
		if w.err != nil || w.id != call.ID+".done.1" || !strings.Contains(w.body, `"type":"call.done"`) || strings.Contains(p.log.String(), secret) {
			t.Errorf("webhook %+v", w)
		}
	}
}
