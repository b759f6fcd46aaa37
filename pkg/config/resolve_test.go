package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// serving is a transport to a platform inside the bubble; an answer cut off by a
// panic is an error.
func serving(platform http.Handler) transport {
	return func(r *http.Request) (resp *http.Response, err error) {
		defer func() {
			if recover() != nil {
				err = io.ErrUnexpectedEOF
			}
		}()
		w := httptest.NewRecorder()
		in := httptest.NewRequest(r.Method, r.URL.RequestURI(), r.Body)
		in.Header = r.Header
		platform.ServeHTTP(w, in)
		return w.Result(), nil
	}
}

// The presets' own queries about a refund with a lost answer, signed by their
// signers, at gateways that verify them. The call is done, or is sent again under
// its number; in the end the money has moved once.
func TestPresetsResolveRefunds(t *testing.T) {
	keys := gateway.NewKeys()
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, []byte(keys.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	refund := call(gateway.Refund, `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)
	refund.Body = append(refund.Body, "&charset=utf-8&version=1.0&sign_type=RSA2"...)
	for _, tt := range []struct {
		preset, signer string
		call           *upstream.Request
	}{
		{"alipay", "kind: alipay", refund},
		{"alipay-v3", "kind: alipay-v3, app_id: '2021'", rest("POST", "/v3/alipay/trade/refund", `{"out_trade_no":"T1","out_request_no":"R1","refund_amount":"1.00"}`)},
		{"wechatpay-v3", "kind: wechatpay-v3, merchant: '190', serial: '5157'", rest("POST", "/v3/refund/domestic/refunds", `{"out_trade_no":"T1","out_refund_no":"R1","amount":{"refund":100,"total":100,"currency":"CNY"}}`)},
	} {
		for _, executed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, executed %v", tt.preset, executed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					lost := func(route string, n int) gateway.Fault {
						if n == 1 && (route == "refund" || route == gateway.Refund) {
							return gateway.Fault{Answer: gateway.Cut, Executed: executed}
						}
						return gateway.Fault{}
					}
					var platform http.Handler
					var refunds func() map[string]int
					if tt.preset == "alipay" {
						g, err := gateway.New(gateway.Config{Apps: map[string]string{"2021": keys.Public}, Fault: lost})
						if err != nil {
							t.Fatal(err)
						}
						platform, refunds = g, func() map[string]int { return g.Refunds("2021") }
					} else {
						p, err := gateway.NewREST(gateway.RESTConfig{Kind: gateway.Kind(tt.preset), Client: keys.Public, Fault: lost})
						if err != nil {
							t.Fatal(err)
						}
						platform, refunds = p, p.Refunds
					}
					c, err := Parse(fmt.Appendf(nil, "upstreams: {a: {url: 'http://a.test', preset: %s, idempotent: '', signer: {%s, key: 'file:%s'}}}", tt.preset, tt.signer, file))
					if err != nil {
						t.Fatal(err)
					}
					up := c.Scheduler.Upstreams["a"]
					sent := 0
					serve := serving(platform)
					up.Transport = transport(func(r *http.Request) (*http.Response, error) { sent++; return serve(r) })
					c.Scheduler.Upstreams["a"], c.Scheduler.Log = up, slog.New(slog.DiscardHandler)
					s, err := scheduler.New(c.Scheduler)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: tt.call.Method, Target: tt.call.Target, Header: tt.call.Header, Body: tt.call.Body})
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if c, err := s.Get(t.Context(), made.ID); err != nil || c.State != scheduler.Unknown {
						t.Fatalf("%+v, %v; want it unknown at first", c, err)
					}
					time.Sleep(10 * time.Minute)
					requests := 2
					if !executed {
						requests = 3
					}
					got, err := s.Get(t.Context(), made.ID)
					if moved := refunds(); err != nil || got.State != scheduler.Done || sent != requests || len(moved) != 1 || moved["T1"]+moved["R1"] != 1 {
						t.Errorf("%s after %d requests, refunds %v: %+v", got.State, sent, moved, got.Attempts)
					}
				})
			})
		}
	}
}
