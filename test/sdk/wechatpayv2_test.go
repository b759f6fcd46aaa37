package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-pay/gopay"
	"github.com/go-pay/gopay/wechat"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

const (
	v2Merchant = "1900009191"
	v2Key      = "192006250b4c09247ec02edce69f6a2d"
)

// TestGopayV2: gopay, which writes the elements of each request in another order, pays, repeats, refunds
// and reverses as WeChat Pay v2; the platform verifies each signature. Its user reads our refusals
// as answers of the platform. The sidecar's signer, if there is one, signs anew what gopay has signed.
func TestGopayV2(t *testing.T) {
	key := filepath.Join(t.TempDir(), "api.key")
	if err := os.WriteFile(key, []byte(v2Key), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{
		"signed by gopay":       nil,
		"signed by the sidecar": {fmt.Sprintf("signer: {kind: wechatpay-v2, key: 'file:%s', merchant: '%s'}", key, v2Merchant), "max_wait: 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			platform := gateway.NewWeChatPayV2(gateway.WeChatPayV2Config{Merchant: v2Merchant, Key: v2Key})
			srv, err := gateway.Start("", platform)
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			sdk := wechat.NewClient("wx1", v2Merchant, v2Key, true).SetProxyUrl(sidecar(t, "wechatpay-v2", srv.URL, lines...))
			nonce := 0
			bm := func(order string, more gopay.BodyMap) gopay.BodyMap {
				nonce++
				all := gopay.BodyMap{"nonce_str": fmt.Sprint("n", nonce), "out_trade_no": order, "sign_type": wechat.SignType_HMAC_SHA256}
				for name, v := range more {
					all[name] = v
				}
				return all
			}
			pay := func(order string, fee int) string {
				r, err := sdk.Micropay(t.Context(), bm(order, gopay.BodyMap{"body": "tea", "total_fee": fee, "spbill_create_ip": "127.0.0.1", "auth_code": "134579241"}))
				if err != nil {
					t.Fatal(err)
				}
				return r.ReturnCode + " " + r.ResultCode + " " + r.ErrCode + r.TransactionId
			}
			refund := func(number string) string {
				r, _, err := sdk.Refund(t.Context(), bm("T1", gopay.BodyMap{"out_refund_no": number, "total_fee": 100, "refund_fee": 40}))
				if err != nil {
					t.Fatal(err)
				}
				return r.ReturnCode + " " + r.ResultCode + " " + r.ErrCode + r.RefundId
			}
			reverse := func(order string) string {
				r, err := sdk.Reverse(t.Context(), bm(order, nil))
				if err != nil {
					t.Fatal(err)
				}
				return r.ReturnCode + " " + r.ResultCode + " " + r.Recall
			}
			for _, step := range []struct{ name, got, want string }{
				{"a payment", pay("T1", 100), "SUCCESS SUCCESS 42T1"},
				{"the payment again", pay("T1", 100), "SUCCESS SUCCESS 42T1"},
				{"its number for another sum", pay("T1", 200), "FAIL FAIL PARAM_ERROR"},
				{"a refund that is accepted", refund("R1"), "SUCCESS SUCCESS 50R1"},
				{"the refund again, whose end is not known", refund("R1"), "SUCCESS FAIL SYSTEMERROR"},
				{"another part", refund("R2"), "SUCCESS SUCCESS 50R2"},
				{"another payment", pay("T2", 100), "SUCCESS SUCCESS 42T2"},
				{"its reverse", reverse("T2"), "SUCCESS SUCCESS N"},
				{"the payment after its reverse", pay("T2", 100), "FAIL FAIL PARAM_ERROR"},
			} {
				if step.got != step.want {
					t.Errorf("%s: the user sees %q, want %q", step.name, step.got, step.want)
				}
			}
			paid, refunded := platform.Payments(), platform.Refunds()
			if platform.Arrivals("/pay/micropay") != 2 || paid["T1"] != 1 || paid["T2"] != 1 || platform.Arrivals("/secapi/pay/refund") != 2 || refunded["R1"] != 1 || refunded["R2"] != 1 {
				t.Errorf("paid %v, refunded %v", paid, refunded)
			}
		})
	}
}

// A user of gopay without a slot is told so in the platform's XML.
func TestGopayV2Refused(t *testing.T) {
	platform := gateway.NewWeChatPayV2(gateway.WeChatPayV2Config{Merchant: v2Merchant, Key: v2Key})
	srv, err := gateway.Start("", platform)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	sdk := wechat.NewClient("wx1", v2Merchant, v2Key, true).SetProxyUrl(sidecar(t, "wechatpay-v2", srv.URL, "max_wait: 100ms", "limits: [{name: merchant, per_key: merchant, calls: 1, window: 1h}]"))
	for n, want := range []string{"SUCCESS FAIL ORDERNOTEXIST", "FAIL FAIL FREQUENCY_LIMITED"} {
		r, _, err := sdk.QueryOrder(t.Context(), gopay.BodyMap{"nonce_str": "n", "out_trade_no": "T1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.ReturnCode + " " + r.ResultCode + " " + r.ErrCode; got != want {
			t.Errorf("query %d: the user sees %q, want %q", n, got, want)
		}
	}
}

// A user of gopay whose payment has no answer reads that its result is unknown, as the platform
// says it, and queries it.
func TestGopayV2Lost(t *testing.T) {
	platform := gateway.NewWeChatPayV2(gateway.WeChatPayV2Config{Merchant: v2Merchant, Key: v2Key, Fault: func(path string, _ int) gateway.Fault {
		if path == "/pay/micropay" {
			return gateway.Fault{Answer: gateway.Cut, Executed: true}
		}
		return gateway.Fault{}
	}})
	srv, err := gateway.Start("", platform)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	sdk := wechat.NewClient("wx1", v2Merchant, v2Key, true).SetProxyUrl(sidecar(t, "wechatpay-v2", srv.URL))
	paid, err := sdk.Micropay(t.Context(), gopay.BodyMap{"nonce_str": "n", "out_trade_no": "T1", "body": "tea", "total_fee": 100, "spbill_create_ip": "127.0.0.1", "auth_code": "134579241"})
	if err != nil {
		t.Fatal(err)
	}
	asked, _, err := sdk.QueryOrder(t.Context(), gopay.BodyMap{"nonce_str": "n", "out_trade_no": "T1"})
	if err != nil {
		t.Fatal(err)
	}
	if paid.ReturnCode != "SUCCESS" || paid.ErrCode != "SYSTEMERROR" || asked.TradeState != "SUCCESS" || platform.Arrivals("/pay/micropay") != 1 {
		t.Errorf("the user sees %s, and then %s, after %d payments", paid.ErrCode, asked.TradeState, platform.Arrivals("/pay/micropay"))
	}
}
