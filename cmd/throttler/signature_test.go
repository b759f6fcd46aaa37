package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestTimestampTolerance puts a queue of 10 s in front of a platform that accepts
// signatures for 3 s, and no nonce twice. With a signer all refunds succeed; without
// one, those that cannot be sent in time are refused, and nothing stale is sent.
func TestTimestampTolerance(t *testing.T) {
	const refunds, tolerance = 21, 5 * time.Second // 2 in a second
	for _, signs := range []bool{true, false} {
		t.Run(fmt.Sprintf("signer %v", signs), func(t *testing.T) {
			t.Parallel()
			keys := gateway.NewKeys()
			g, err := gateway.NewREST(gateway.RESTConfig{Kind: gateway.WechatPay, Client: keys.Public, Fresh: tolerance})
			if err != nil {
				t.Fatal(err)
			}
			key := keyFile(t, keys)
			merchant := signer.Config{Kind: "wechatpay-v3", Key: "file:" + key, Merchant: "1900009191", Serial: "5157F0"}
			lines := []string{"preset: wechatpay-v3", "max_wait: 60s", "signature: {life: 2s}", "limits: [{name: all, calls: 2, window: 1s}]"}
			if signs {
				lines = append(lines, fmt.Sprintf("signer: {kind: wechatpay-v3, key: 'file:%s', merchant: '%s', serial: '%s'}", key, merchant.Merchant, merchant.Serial))
			}
			p := start(t, serve(t, g), lines...)
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
