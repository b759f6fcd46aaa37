package sdk

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gopay "github.com/go-pay/gopay/alipay"
	"github.com/smartwalle/alipay/v3"
	"github.com/smartwalle/nsign"
	"github.com/stripe/stripe-go/v85/webhook"
	"github.com/wechatpay-apiv3/wechatpay-go/core/auth/verifiers"
	"github.com/wechatpay-apiv3/wechatpay-go/core/notify"
	"github.com/wechatpay-apiv3/wechatpay-go/utils"
)

// platformKey is the key of a platform, with files of its public key.
func platformKey(t *testing.T) (key *rsa.PrivateKey, file, bare string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "platform.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return key, file, base64.StdEncoding.EncodeToString(der)
}

// bell runs a sidecar that passes notifications on to a merchant, and returns their URL.
func bell(t *testing.T, preset, verify string, merchant http.HandlerFunc) string {
	t.Helper()
	shop := httptest.NewServer(merchant)
	t.Cleanup(shop.Close)
	nowhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(nowhere.Close)
	return sidecarAt(t, "notifications.listen", preset, nowhere.URL, fmt.Sprintf("notifications: {listen: '127.0.0.1:0', forward: '%s', verify: %s}", shop.URL, verify)) + "/notify"
}

// told sends a notification and returns the status and the body of the answer.
func told(t *testing.T, to, body string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// TestStripeNotification: events that stripe-go signs pass the sidecar, and stripe-go verifies
// them behind it.
func TestStripeNotification(t *testing.T) {
	const secret = "whsec_of-the-endpoint"
	t.Setenv("WHSEC", secret)
	to := bell(t, "stripe", "{kind: stripe, keys: [env:WHSEC]}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.ValidatePayload(body, r.Header.Get("Stripe-Signature"), secret); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "received")
	})
	for name, tt := range map[string]struct {
		secret string
		at     time.Time
		status int
	}{"genuine": {secret, time.Now(), 200}, "forged": {"whsec_other", time.Now(), 401}, "late": {secret, time.Now().Add(-time.Hour), 401}} {
		signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(`{"id":"evt_1","object":"event"}`), Secret: tt.secret, Timestamp: tt.at})
		status, text := told(t, to, string(signed.Payload), http.Header{"Content-Type": {"application/json"}, "Stripe-Signature": {signed.Header}})
		if status != tt.status || status == 200 && text != "received" {
			t.Errorf("%s: %d %s, want %d", name, status, text, tt.status)
		}
	}
}

// TestAlipayNotification: forms that smartwalle's signer signs pass the sidecar, and both SDKs
// verify them behind it.
func TestAlipayNotification(t *testing.T) {
	key, file, bare := platformKey(t)
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sdk, err := alipay.New("2021000000000001", base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(own)), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := sdk.LoadAliPayPublicKey(bare); err != nil {
		t.Fatal(err)
	}
	to := bell(t, "alipay", fmt.Sprintf("{kind: alipay, keys: ['file:%s']}", file), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, err := gopay.ParseNotifyToBodyMap(r)
		if err != nil {
			t.Error(err)
		} else if ok, err := gopay.VerifySign(bare, form); err != nil || !ok {
			t.Errorf("gopay: %t, %v", ok, err)
		}
		values, _ := url.ParseQuery(string(body))
		if n, err := sdk.DecodeNotification(values); err != nil || n.OutTradeNo != "T1" {
			t.Errorf("smartwalle: %+v, %v", n, err)
		}
		io.WriteString(w, "success")
	})
	signer := nsign.New(nsign.WithMethod(nsign.NewRSAMethod(crypto.SHA256, key, &key.PublicKey)))
	for name, change := range map[string]func(url.Values){"genuine": func(url.Values) {}, "forged": func(v url.Values) { v.Set("total_amount", "9.00") }} {
		v := url.Values{"app_id": {"2021000000000001"}, "notify_id": {"n1"}, "notify_type": {"trade_status_sync"}, "out_trade_no": {"T1"}, "total_amount": {"1.00"},
			"trade_status": {"TRADE_SUCCESS"}, "subject": {"茶 & 水=?"}, "fund_bill_list": {`[{"amount":"1.00","fundChannel":"PCREDIT"}]`}}
		signature, err := signer.SignValues(v)
		if err != nil {
			t.Fatal(err)
		}
		v.Set("sign", base64.StdEncoding.EncodeToString(signature))
		v.Set("sign_type", "RSA2")
		change(v)
		status, text := told(t, to, v.Encode(), http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}})
		if genuine := name == "genuine"; genuine && (status != 200 || text != "success") || !genuine && status != 401 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// TestWechatpayNotification: notifications that pass the sidecar are verified and decrypted by
// wechatpay-go behind it; those that it refuses are refused by wechatpay-go too.
func TestWechatpayNotification(t *testing.T) {
	const apiV3, id = "0123456789abcdef0123456789abcdef", "PUB_KEY_ID_0100000000012026"
	t.Setenv("API_V3", apiV3)
	key, file, _ := platformKey(t)
	handler, err := notify.NewRSANotifyHandler(apiV3, verifiers.NewSHA256WithRSAPubkeyVerifier(id, key.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	type payment struct {
		Order string `json:"out_trade_no"`
	}
	parse := func(r *http.Request) (p payment, err error) {
		_, err = handler.ParseNotifyRequest(context.Background(), r, &p)
		return p, err
	}
	to := bell(t, "wechatpay-v3", fmt.Sprintf("{kind: wechatpay-v3, keys: ['file:%s'], secret: env:API_V3}", file), func(w http.ResponseWriter, r *http.Request) {
		if p, err := parse(r); err != nil || p.Order != "T1" {
			t.Errorf("%+v, %v", p, err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	for _, tt := range []struct {
		name   string
		at     time.Time
		change string
		status int
	}{{"genuine", time.Now(), "", 204}, {"late", time.Now().Add(-6 * time.Minute), "", 401}, {"forged", time.Now(), " ", 401}} {
		body := sealed(t, apiV3, `{"out_trade_no":"T1","trade_state":"SUCCESS"}`)
		stamp := fmt.Sprint(tt.at.Unix())
		sum := sha256.Sum256([]byte(stamp + "\nnonce\n" + body + "\n"))
		raw, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{"Content-Type": {"application/json"}, "Wechatpay-Timestamp": {stamp}, "Wechatpay-Nonce": {"nonce"}, "Wechatpay-Serial": {id}, "Wechatpay-Signature": {base64.StdEncoding.EncodeToString(raw)}}
		if status, text := told(t, to, body+tt.change, header); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, text, tt.status)
		}
		direct := httptest.NewRequest(http.MethodPost, "/notify", strings.NewReader(body+tt.change))
		direct.Header = header
		if _, err := parse(direct); (err == nil) != (tt.status == 204) {
			t.Errorf("%s: wechatpay-go says %v", tt.name, err)
		}
	}
}

// sealed returns the body of a notification of WeChat Pay, which wechatpay-go decrypts.
func sealed(t *testing.T, key, resource string) string {
	t.Helper()
	block, err := aes.NewCipher([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(gcm.Seal(nil, []byte("nonce-12byte"), []byte(resource), []byte("transaction")))
	if plain, err := utils.DecryptAES256GCM(key, "transaction", "nonce-12byte", text); err != nil || plain != resource {
		t.Fatal(plain, err)
	}
	return fmt.Sprintf(`{"id":"EV-1","create_time":"2026-11-22T00:00:00+08:00","event_type":"TRANSACTION.SUCCESS","resource_type":"encrypt-resource","summary":"x","resource":{"algorithm":"AEAD_AES_256_GCM","ciphertext":%q,"nonce":"nonce-12byte","associated_data":"transaction","original_type":"transaction"}}`, text)
}
