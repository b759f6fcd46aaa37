package config

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// rest is a request with JSON; headers are names and values.
func rest(method, target, body string, headers ...string) *upstream.Request {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &upstream.Request{Method: method, Target: target, Header: h, Body: []byte(body)}
}

func answered(status int, body string) answer { return answer{status, nil, body} }

// coded is an answer of Alipay's gateway.
func coded(code, sub string) answer {
	return answered(200, `{"alipay_trade_pay_response":{"code":"`+code+`","msg":"m","sub_code":"`+sub+`"},"sign":"s"}`)
}

// A shop whose buyers all type their passwords has no broken upstream: the circuit breaker
// stays closed. It opens at as many answers of a server that fails.
func TestBreakerOverOpenPayments(t *testing.T) {
	for name, tt := range map[string]struct {
		preset string
		call   *upstream.Request
		answer answer
		opens  bool
	}{
		"waiting buyers":   {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("10003", ""), false},
		"numbers in use":   {"alipay-v3", rest("POST", "/v3/alipay/trade/pay", `{"out_trade_no":"T1"}`), answer{400, nil, `{"code":"ACQ.TRADE_HAS_SUCCESS"}`}, false},
		"stored failures":  {"stripe", &upstream.Request{Method: "POST", Target: "/v1/refunds", Header: http.Header{"Idempotency-Key": {"k"}}}, answer{500, http.Header{"Idempotent-Replayed": {"true"}}, "{}"}, true},
		"a broken gateway": {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("20000", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 30
				var sent atomic.Int32
				s := facing(t, tt.preset, func(r *http.Request) (*http.Response, error) {
					sent.Add(1)
					return tt.answer.RoundTrip(r)
				}, ", concurrency: 1")
				for i := range calls {
					body := bytes.ReplaceAll(tt.call.Body, []byte("T1"), fmt.Append(nil, "T", i)) // each of an order of its own
					header := tt.call.Header.Clone()
					if header.Get("Idempotency-Key") != "" {
						header.Set("Idempotency-Key", fmt.Sprint("k", i))
					}
					if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: tt.call.Method, Target: tt.call.Target, Header: header, Body: body}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if n := sent.Load(); (n < calls) != tt.opens {
					t.Errorf("%d of %d calls were sent within a second", n, calls)
				}
			})
		})
	}
}

// A charge that takes as long as Stripe's SDKs wait is done, not of unknown outcome.
func TestSlowCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := facing(t, "stripe", func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(80 * time.Second):
				return answer{200, nil, `{"id":"ch_1","object":"charge","status":"succeeded"}`}.RoundTrip(r)
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}, "")
		made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: "POST", Target: "/v1/charges"})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Wait(t.Context(), made.ID); err != nil || c.State != scheduler.Done {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// signs is a signer without effect: the presets' queries need one.
type signs struct{}

func (signs) Sign(context.Context, *upstream.Request) error { return nil }

// facing starts a scheduler with one upstream, "a", with a preset, more keys and a signer.
func facing(t *testing.T, preset string, serve transport, more string) *scheduler.Scheduler {
	t.Helper()
	return facingBy(t, preset, signs{}, serve, more)
}

// facingBy is facing with a signer, nil for none.
func facingBy(t *testing.T, preset string, signer upstream.Signer, serve transport, more string) *scheduler.Scheduler {
	t.Helper()
	c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + more + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	up := c.Scheduler.Upstreams["a"]
	up.Signer, up.Transport = signer, serve
	c.Scheduler.Upstreams["a"] = up
	c.Scheduler.Log = slog.New(slog.DiscardHandler)
	s, err := scheduler.New(c.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// accepted is an answer of Alipay's gateway with code 10000 and more fields.
func accepted(fields string) answer {
	return answered(200, `{"alipay_x_response":{"code":"10000","msg":"Success",`+fields+`},"sign":"s"}`)
}

// with is a request in the gateway form with more parameters.
func with(method, content string, more ...string) *upstream.Request {
	r := call(method, content)
	for i := 0; i < len(more); i += 2 {
		r.Body = append(r.Body, "&"+more[i]+"="+url.QueryEscape(more[i+1])...)
	}
	return r
}

// encrypted is a request whose answer only the caller can read.
func encrypted(method string) *upstream.Request {
	return with(method, "c2VjcmV0", "encrypt_type", "AES")
}
