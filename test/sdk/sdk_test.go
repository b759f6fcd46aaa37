package sdk

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-pay/gopay"
	gopaygateway "github.com/go-pay/gopay/alipay"
	gopayv3 "github.com/go-pay/gopay/alipay/v3"
	"github.com/go-pay/gopay/pkg/xhttp"
	"github.com/smartwalle/alipay/v3"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/refund"
	"github.com/wechatpay-apiv3/wechatpay-go/core"
	"github.com/wechatpay-apiv3/wechatpay-go/core/option"
	"github.com/wechatpay-apiv3/wechatpay-go/services/refunddomestic"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// to is a transport that replaces the host, for SDKs with a fixed host.
type to struct{ base string }

func (t to) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(t.base)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = u.Scheme, u.Host, u.Host
	return http.DefaultTransport.RoundTrip(r)
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSmartwalleAlipay(t *testing.T) {
	client{
		name: "smartwalle/alipay", preset: "alipay",
		make: func(t *testing.T, base string, keys gateway.Keys, public string) func() string {
			sdk, err := alipay.New(appID, keys.Private, true, alipay.WithProductionGateway(base+gateway.Path))
			if err != nil {
				t.Fatal(err)
			}
			if err := sdk.LoadAliPayPublicKey(public); err != nil {
				t.Fatal(err)
			}
			return func() string {
				r, err := sdk.TradeRefund(t.Context(), alipay.TradeRefund{OutTradeNo: "T1", OutRequestNo: "R1", RefundAmount: "1.00"})
				if err == nil && r.IsFailure() {
					return string(r.Code) + " " + r.SubCode
				}
				return code(err)
			}
		},
		limited: []string{"40005"}, refused: []string{"40005"}, down: []string{"40005"},
		unknown: []string{"20000", "ACQ.SYSTEM_ERROR"}, lost: []string{"20000"},
	}.test(t)
}

// keyed adds an Idempotency-Key to each request.
type keyed struct{ key string }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", k.key)
	return http.DefaultTransport.RoundTrip(r)
}

// A program sends a refund again under its Idempotency-Key, signed anew by the SDK
// with another time. It gets the stored answer, and nothing is sent.
func TestSameKeySignedAnew(t *testing.T) {
	keys := gateway.NewKeys()
	p, public := newPlatform(t, "alipay", keys, nil)
	srv, err := gateway.Start("", p)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	base := sidecar(t, "alipay", srv.URL)
	for _, zone := range []int{8, 7} { // another hour, without waiting for the next second
		sdk, err := alipay.New(appID, keys.Private, true, alipay.WithProductionGateway(base+gateway.Path),
			alipay.WithHTTPClient(&http.Client{Transport: keyed{"R1"}}), alipay.WithTimeLocation(time.FixedZone("", zone*60*60)))
		if err != nil {
			t.Fatal(err)
		}
		if err := sdk.LoadAliPayPublicKey(public); err != nil {
			t.Fatal(err)
		}
		for _, amount := range []string{"1.00", "2.00"} {
			r, err := sdk.TradeRefund(t.Context(), alipay.TradeRefund{OutTradeNo: "T1", OutRequestNo: "R1", RefundAmount: amount})
			if amount == "1.00" && (err != nil || !r.IsSuccess()) {
				t.Errorf("the same refund: %+v, %v", r, err)
			}
			if amount == "2.00" && !strings.Contains(code(err), "40002") {
				t.Errorf("another refund under the key: %+v, %v", r, err)
			}
		}
	}
	if n := p.Arrivals("refund"); n != 1 {
		t.Errorf("%d requests came in, want 1", n)
	}
}

func TestGopayGateway(t *testing.T) {
	client{
		name: "go-pay/gopay", preset: "alipay",
		make: func(t *testing.T, base string, keys gateway.Keys, _ string) func() string {
			sdk, err := gopaygateway.NewClient(appID, bare(keys.Private), true)
			if err != nil {
				t.Fatal(err)
			}
			sdk.SetHttpClient(xhttp.NewClient().SetTransport(to{base}))
			return func() string {
				_, err := sdk.TradeRefund(t.Context(), gopay.BodyMap{"out_trade_no": "T1", "out_request_no": "R1", "refund_amount": "1.00"})
				return code(err)
			}
		},
		limited: []string{"40005"}, refused: []string{"40005"}, down: []string{"40005"},
		unknown: []string{"20000", "ACQ.SYSTEM_ERROR"}, lost: []string{"20000"},
	}.test(t)
}

func TestGopayV3(t *testing.T) {
	client{
		name: "go-pay/gopay", preset: "alipay-v3",
		make: func(t *testing.T, base string, keys gateway.Keys, _ string) func() string {
			sdk, err := gopayv3.NewClientV3(appID, bare(keys.Private), true)
			if err != nil {
				t.Fatal(err)
			}
			sdk.SetProxyHost(base)
			return func() string {
				r, err := sdk.TradeRefund(t.Context(), gopay.BodyMap{"out_trade_no": "T1", "out_request_no": "R1", "refund_amount": "1.00"})
				if err == nil && r.StatusCode != http.StatusOK {
					return fmt.Sprint(r.StatusCode, " ", r.ErrResponse.Code)
				}
				return code(err)
			}
		},
		limited: []string{"429 app-call-limited"}, refused: []string{"429 app-call-limited"}, down: []string{"502 app-call-limited"},
		unknown: []string{"unknow-error", "ACQ.SYSTEM_ERROR"}, lost: []string{"504 unknow-error"},
	}.test(t)
}

// bare returns a key's base64 alone, as gopay needs it.
func bare(key string) string {
	lines := strings.Split(strings.TrimSpace(key), "\n")
	return strings.Join(lines[1:len(lines)-1], "")
}

func TestWechatPay(t *testing.T) {
	client{
		name: "wechatpay-go", preset: "wechatpay-v3",
		make: func(t *testing.T, base string, keys gateway.Keys, public string) func() string {
			block, _ := pem.Decode([]byte(keys.Private))
			private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			block, _ = pem.Decode([]byte(public))
			platformKey, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			sdk, err := core.NewClient(context.Background(),
				option.WithWechatPayPublicKeyAuthCipher("1900009191", "5157F09EFD", private, gateway.WechatKeyID, platformKey.(*rsa.PublicKey)),
				option.WithHTTPClient(&http.Client{Transport: to{base}}))
			if err != nil {
				t.Fatal(err)
			}
			service := refunddomestic.RefundsApiService{Client: sdk}
			return func() string {
				_, _, err := service.Create(t.Context(), refunddomestic.CreateRequest{
					OutTradeNo: core.String("T1"), OutRefundNo: core.String("R1"),
					Amount: &refunddomestic.AmountReq{Currency: core.String("CNY"), Refund: core.Int64(100), Total: core.Int64(10000)},
				})
				var api *core.APIError
				if errors.As(err, &api) {
					return fmt.Sprint("APIError ", api.StatusCode, " ", api.Code)
				}
				return code(err)
			}
		},
		limited: []string{"APIError 429 RATELIMIT_EXCEEDED"}, refused: []string{"APIError 429 RATELIMIT_EXCEEDED"}, down: []string{"APIError 502 SERVICE_UNAVAILABLE"},
		unknown: []string{"APIError 500 SYSTEM_ERROR"}, lost: []string{"APIError 504 SYSTEM_ERROR"},
	}.test(t)
}

func TestStripe(t *testing.T) {
	client{
		name: "stripe-go", preset: "stripe",
		make: func(t *testing.T, base string, _ gateway.Keys, _ string) func() string {
			backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{URL: stripe.String(base), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}})
			sdk := refund.Client{B: backend, Key: "sk_test_1"}
			return func() string {
				_, err := sdk.New(&stripe.RefundParams{Charge: stripe.String("ch_1")})
				var api *stripe.Error
				if errors.As(err, &api) {
					return fmt.Sprint("stripe.Error ", api.HTTPStatusCode, " ", api.Code)
				}
				return code(err)
			}
		},
		limited: []string{"stripe.Error 429 rate_limit"}, refused: []string{"stripe.Error 429 rate_limit"}, down: []string{"stripe.Error 502 not_executed"},
		unknown: []string{"stripe.Error 500"}, lost: []string{"stripe.Error 504 unknown_outcome"},
	}.test(t)
}
