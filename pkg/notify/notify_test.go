package notify

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var now = time.Unix(1790000000, 0)

// platform has two keys: the present one, and the next.
var platform = sync.OnceValue(func() (keys [2]*rsa.PrivateKey) {
	for i := range keys {
		keys[i], _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	return keys
})

// write writes a file and returns its reference.
func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(f, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return "file:" + f
}

func pkixOf(k *rsa.PrivateKey) []byte {
	der, _ := x509.MarshalPKIXPublicKey(&k.PublicKey)
	return der
}

// publicPEM writes a public key as platforms hand it out: a file that others may read.
func publicPEM(t *testing.T, k *rsa.PrivateKey) string {
	t.Helper()
	return write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkixOf(k)})), 0o644)
}

func certificateOf(k *rsa.PrivateKey) []byte {
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "platform"}}, &x509.Certificate{}, &k.PublicKey, k)
	if err != nil {
		panic(err)
	}
	return der
}

// certificatePEM writes a certificate of a key.
func certificatePEM(t *testing.T, k *rsa.PrivateKey) string {
	t.Helper()
	return write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificateOf(k)})), 0o644)
}

func sign(k *rsa.PrivateKey, text string) string {
	sum := sha256.Sum256([]byte(text))
	s, err := rsa.SignPKCS1v15(nil, k, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(s)
}

// alipayForm is a notification of Alipay.
func alipayForm(k *rsa.PrivateKey, set ...string) *upstream.Request {
	v := url.Values{"notify_id": {"n1"}, "out_trade_no": {"T1"}, "total_amount": {"1.00"}, "subject": {"茶 & 水"}, "fund_bill_list": {`[{"amount":"1.00"}]`}, "passback_params": {""}, "charset": {"utf-8"}}
	for i := 0; i < len(set); i += 2 {
		v.Set(set[i], set[i+1])
	}
	var text []string
	for name := range v {
		text = append(text, name)
	}
	slices.Sort(text)
	for i, name := range text {
		text[i] = name + "=" + v.Get(name)
	}
	v.Set("sign", sign(k, strings.Join(text, "&")))
	v.Set("sign_type", "RSA2")
	return &upstream.Request{Method: "POST", Target: "/notify", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded;charset=utf-8"}}, Body: []byte(v.Encode())}
}

const apiV3 = "0123456789abcdef0123456789abcdef"

// wechatBody is a notification of WeChat Pay with an encrypted resource.
func wechatBody(t *testing.T, key, resource string) []byte {
	t.Helper()
	gcm, err := newGCM([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	sealed := gcm.Seal(nil, []byte("nonce-12byte"), []byte(resource), []byte("transaction"))
	b, _ := json.Marshal(map[string]any{"id": "EV-1", "event_type": "TRANSACTION.SUCCESS", "resource_type": "encrypt-resource", "resource": map[string]any{
		"algorithm": "AEAD_AES_256_GCM", "ciphertext": base64.StdEncoding.EncodeToString(sealed), "nonce": "nonce-12byte", "associated_data": "transaction", "original_type": "transaction"}})
	return b
}

func wechatSigned(k *rsa.PrivateKey, at time.Time, body []byte) *upstream.Request {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return &upstream.Request{Method: "POST", Target: "/notify", Body: body, Header: http.Header{
		"Content-Type": {"application/json"}, "Wechatpay-Timestamp": {stamp}, "Wechatpay-Nonce": {"n0nce"}, "Wechatpay-Serial": {"7777"},
		"Wechatpay-Signature": {sign(k, stamp+"\nn0nce\n"+string(body)+"\n")}}}
}

func stripeSigned(secret string, at time.Time, body string) *upstream.Request {
	return &upstream.Request{Method: "POST", Target: "/notify", Body: []byte(body), Header: http.Header{
		"Content-Type": {"application/json"}, "Stripe-Signature": {fmt.Sprintf("t=%d,%s,v0=00", at.Unix(), v1(secret, at, body))}}}
}

func v1(secret string, at time.Time, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Adyen's published example of a key and a standard webhook, and that of its libraries for a
// webhook whose body is signed
// (docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures).
const (
	adyenExampleKey = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
	adyenExample    = `{"live":"false","notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},
 "amount":{"value":1130,"currency":"EUR"},"pspReference":"7914073381342284","eventCode":"AUTHORISATION","merchantAccountCode":"TestMerchant",
 "merchantReference":"TestPayment-1407325143704","success":"true"}}]}`
	adyenExampleBody = `{
    "type": "merchant.created",
    "environment": "test",
    "createdAt": "01-01-2024",
    "data": {
        "capabilities": {
            "sendToTransferInstrument": {
                "requested": true,
                "requestedLevel": "notApplicable"
            }
        },
        "companyId": "YOUR_COMPANY_ID",
        "merchantId": "YOUR_MERCHANT_ACCOUNT",
        "status": "PreActive"
    }
}`
	adyenExampleSignature = "NiqA5vsdV5etZMOaR27+GBSG4i6JeP6j1wkCM6t53vA="
)

func jsonRequest(body string, header ...string) *upstream.Request {
	r := &upstream.Request{Method: "POST", Target: "/notify", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// verifiers are one of each kind, with the keys of the platform, some of them the next.
func verifiers(t *testing.T) map[string]Verifier {
	t.Helper()
	t.Setenv("API_V3", apiV3)
	t.Setenv("WHSEC", "whsec_old")
	t.Setenv("WHSEC_NEXT", "whsec_next")
	t.Setenv("ADYEN", adyenExampleKey)
	k := platform()
	keys := []string{publicPEM(t, k[0]), publicPEM(t, k[1])}
	all := make(map[string]Verifier)
	for _, c := range []Config{
		{Kind: "alipay", Keys: keys}, {Kind: "wechatpay-v3", Keys: keys, Secret: "env:API_V3"},
		{Kind: "stripe", Keys: []string{"env:WHSEC", "env:WHSEC_NEXT"}}, {Kind: "adyen", Keys: []string{"env:ADYEN"}},
		{Kind: "paypal", Keys: []string{certificatePEM(t, k[0]), publicPEM(t, k[1])}, WebhookID: paypalWebhook},
	} {
		v, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		all[c.Kind] = v
	}
	return all
}

// TestGenuine: genuine notifications are verified, by each key, and have an id and a content.
func TestGenuine(t *testing.T) {
	all, k := verifiers(t), platform()
	event := `{"id":"evt_1","data":{"object":{"id":"pi_1"}}}`
	both := stripeSigned("whsec_gone", now, event)
	both.Header.Set("Stripe-Signature", both.Header.Get("Stripe-Signature")+","+v1("whsec_old", now, event))
	for _, tt := range []struct {
		name, kind string
		r          *upstream.Request
		id         string
		order      string // expression
		want       string
	}{
		{"alipay", "alipay", alipayForm(k[0]), "n1", `param("out_trade_no")`, "T1"},
		{"alipay, the next key", "alipay", alipayForm(k[1]), "n1", `param("subject")`, "茶 & 水"},
		{"alipay, a name between others", "alipay", alipayForm(k[0], "a", "1", "a-b", "2", "a_b", "3", "aa", "4"), "n1", `param("a-b")`, "2"},
		{"wechatpay", "wechatpay-v3", wechatSigned(k[0], now, wechatBody(t, apiV3, `{"out_trade_no":"T1"}`)), "EV-1", `json("out_trade_no")`, "T1"},
		{"wechatpay, the next key", "wechatpay-v3", wechatSigned(k[1], now, wechatBody(t, apiV3, `{"out_refund_no":"R1"}`)), "EV-1", `json("out_refund_no")`, "R1"},
		{"wechatpay, 5 minutes old", "wechatpay-v3", wechatSigned(k[0], now.Add(-5*time.Minute), wechatBody(t, apiV3, `{"out_trade_no":"T1"}`)), "EV-1", `json("out_trade_no")`, "T1"},
		{"stripe", "stripe", stripeSigned("whsec_old", now, event), "evt_1", `json("data.object.id")`, "pi_1"},
		{"stripe, the next secret", "stripe", stripeSigned("whsec_next", now.Add(5*time.Minute), event), "evt_1", `json("data.object.id")`, "pi_1"},
		{"stripe, two signatures", "stripe", both, "evt_1", `json("data.object.id")`, "pi_1"},
		{"adyen, published", "adyen", jsonRequest(adyenExample), hashed([]byte(adyenExample)), `json("notificationItems.0.NotificationRequestItem.merchantReference")`, "TestPayment-1407325143704"},
		{"adyen, the body", "adyen", jsonRequest(adyenExampleBody, "HmacSignature", adyenExampleSignature), hashed([]byte(adyenExampleBody)), `json("data.companyId")`, "YOUR_COMPANY_ID"},
		{"paypal", "paypal", paypalGenuine(k[0]), paypalID, `json("resource.supplementary_data.related_ids.order_id")`, "T1"},
		{"paypal, the next key", "paypal", paypalGenuine(k[1]), paypalID, `json("event_type")`, "PAYMENT.CAPTURE.COMPLETED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.r.Clone()
			n, err := all[tt.kind].Verify(tt.r, now)
			if err != nil {
				t.Fatal(err)
			}
			e, err := upstream.Compile(tt.order, upstream.Key)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := e.OptionalKey(upstream.NewInput(n.Content)); err != nil || got != tt.want || n.ID != tt.id {
				t.Errorf("id %q, %s is %q, %v; want %q and %q", n.ID, tt.order, got, err, tt.id, tt.want)
			}
			if !bytes.Equal(before.Body, tt.r.Body) || tt.r.Target != before.Target {
				t.Error("the notification has changed")
			}
		})
	}
}

// refused compares the error of a notification, which shows no part of it.
func refused(t *testing.T, v Verifier, r *upstream.Request, want error) {
	t.Helper()
	n, err := v.Verify(r, now)
	if n != nil || !errors.Is(err, want) {
		t.Errorf("%+v, %v; want the error %q", n, err, want)
	}
	for _, part := range []string{"T1", "evt", paypalWebhook} {
		if err != nil && strings.Contains(err.Error(), part) {
			t.Errorf("%v shows a part of the notification", err)
		}
	}
}

// TestForged: no other bytes than those that a platform has signed are verified, and errors
// show nothing of them.
func TestForged(t *testing.T) {
	all, k := verifiers(t), platform()
	stranger, _ := rsa.GenerateKey(rand.Reader, 2048)
	event := `{"id":"evt_1"}`
	changed := func(r *upstream.Request, from, to string) *upstream.Request {
		r.Body = bytes.Replace(r.Body, []byte(from), []byte(to), 1)
		return r
	}
	without := func(r *upstream.Request, name string) *upstream.Request {
		r.Header.Del(name)
		return r
	}
	with := func(r *upstream.Request, name, value string) *upstream.Request {
		r.Header.Add(name, value)
		return r
	}
	wechat := func() *upstream.Request {
		return wechatSigned(k[0], now, wechatBody(t, apiV3, `{"out_trade_no":"T1"}`))
	}
	paid := func() *upstream.Request { return stripeSigned("whsec_old", now, event) }
	for _, tt := range []struct {
		name, kind string
		r          *upstream.Request
		want       error
	}{
		{"alipay, another amount", "alipay", changed(alipayForm(k[0]), "1.00", "9.00"), errForged},
		{"alipay, one parameter more", "alipay", changed(alipayForm(k[0]), "charset", "x=&charset"), errForged},
		{"alipay, a parameter twice", "alipay", changed(alipayForm(k[0]), "charset", "out_trade_no=T2&charset"), errMalformed},
		{"alipay, a stranger's key", "alipay", alipayForm(stranger), errForged},
		{"alipay, no signature", "alipay", changed(alipayForm(k[0]), "sign=", "sgn="), errUnsigned},
		{"alipay, a signature that is no base64", "alipay", changed(alipayForm(k[0]), "sign=", "sign=%21"), errForged},
		{"alipay, a broken escape", "alipay", changed(alipayForm(k[0]), "T1", "%zz"), errMalformed},
		{"alipay, empty", "alipay", jsonRequest(""), errUnsigned},
		{"wechatpay, another body", "wechatpay-v3", changed(wechat(), "EV-1", "EV-2"), errForged},
		{"wechatpay, a stranger's key", "wechatpay-v3", wechatSigned(stranger, now, wechatBody(t, apiV3, `{}`)), errForged},
		{"wechatpay, a probe of the platform", "wechatpay-v3", with(without(wechat(), "Wechatpay-Signature"), "Wechatpay-Signature", "WECHATPAY/SIGNTEST/AAAA"), errForged},
		{"wechatpay, no signature", "wechatpay-v3", without(wechat(), "Wechatpay-Signature"), errUnsigned},
		{"wechatpay, two signatures", "wechatpay-v3", with(wechat(), "Wechatpay-Signature", "AAAA"), errUnsigned},
		{"wechatpay, SM2", "wechatpay-v3", with(wechat(), "Wechatpay-Signature-Type", "WECHATPAY2-SM2-WITH-SM3"), errUnsigned},
		{"wechatpay, no nonce", "wechatpay-v3", without(wechat(), "Wechatpay-Nonce"), errForged},
		{"wechatpay, sent again later", "wechatpay-v3", wechatSigned(k[0], now.Add(-5*time.Minute-time.Second), wechatBody(t, apiV3, `{}`)), ErrLate},
		{"wechatpay, of the future", "wechatpay-v3", wechatSigned(k[0], now.Add(5*time.Minute+time.Second), wechatBody(t, apiV3, `{}`)), ErrLate},
		{"wechatpay, another APIv3 key", "wechatpay-v3", wechatSigned(k[0], now, wechatBody(t, strings.Repeat("x", 32), `{}`)), errUndecrypted},
		{"wechatpay, a nonce of 3 bytes", "wechatpay-v3", wechatSigned(k[0], now, []byte(`{"id":"E","resource":{"algorithm":"AEAD_AES_256_GCM","nonce":"abc"}}`)), errMalformed},
		{"wechatpay, no JSON", "wechatpay-v3", wechatSigned(k[0], now, []byte(`<xml/>`)), errMalformed},
		{"stripe, another body", "stripe", changed(paid(), "evt_1", "evt_2"), errForged},
		{"stripe, another secret", "stripe", stripeSigned("whsec_x", now, event), errForged},
		{"stripe, late", "stripe", stripeSigned("whsec_old", now.Add(-301*time.Second), event), ErrLate},
		{"stripe, of the future", "stripe", stripeSigned("whsec_old", now.Add(301*time.Second), event), ErrLate},
		{"stripe, the time stamp of another", "stripe", changedHeader(stripeSigned("whsec_old", now.Add(-time.Hour), event), fmt.Sprint("t=", now.Add(-time.Hour).Unix()), fmt.Sprint("t=", now.Unix())), errForged},
		{"stripe, two time stamps", "stripe", changedHeader(paid(), "t=", "t=1,t="), errMalformed},
		{"stripe, v0 alone", "stripe", changedHeader(paid(), "v1=", "v0="), errUnsigned},
		{"stripe, no header", "stripe", without(paid(), "Stripe-Signature"), errUnsigned},
		{"stripe, two headers", "stripe", with(paid(), "Stripe-Signature", "t=1"), errUnsigned},
		{"stripe, nine signatures", "stripe", changedHeader(paid(), "v1=", strings.Repeat("v1=00,", 8)+"v1="), errUnsigned},
		{"paypal, a stranger's key", "paypal", paypalGenuine(stranger), errForged},
		{"paypal, without its headers", "paypal", jsonRequest(paypalEvent), errUnsigned},
		{"adyen, another amount", "adyen", changed(jsonRequest(adyenExample), "1130", "1"), errForged},
		{"adyen, another reference", "adyen", changed(jsonRequest(adyenExample), "TestPayment", "OtherPayment"), errForged},
		{"adyen, not successful", "adyen", changed(jsonRequest(adyenExample), `"true"`, `"false"`), errForged},
		{"adyen, a field moved into the next", "adyen", changed(changed(jsonRequest(adyenExample), `"TestMerchant"`, `"TestMerchant:TestPayment-1407325143704"`), `"TestPayment-1407325143704"`, `""`), errMalformed},
		{"adyen, a member twice", "adyen", changed(jsonRequest(adyenExample), `"pspReference"`, `"pspreference":"1","pspReference"`), errMalformed},
		{"adyen, a forged item beside", "adyen", changed(jsonRequest(adyenExample), `[{`, `[{"NotificationRequestItem":{"amount":{},"additionalData":{"hmacSignature":"AAAA"}}},{`), errForged},
		{"adyen, an item without a signature", "adyen", changed(jsonRequest(adyenExample), "hmacSignature", "signature"), errUnsigned},
		{"adyen, no items", "adyen", jsonRequest(`{"notificationItems":[]}`), errUnsigned},
		{"adyen, something after it", "adyen", jsonRequest(adyenExample + "{}"), errMalformed},
		{"adyen, no JSON", "adyen", jsonRequest("live=true"), errMalformed},
		{"adyen, another body", "adyen", jsonRequest(adyenExampleBody+" ", "HmacSignature", adyenExampleSignature), errForged},
		{"adyen, a forged header beside a signed item", "adyen", jsonRequest(adyenExample, "HmacSignature", adyenExampleSignature), errForged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, all[tt.kind], tt.r, tt.want)
		})
	}
}

func changedHeader(r *upstream.Request, from, to string) *upstream.Request {
	r.Header.Set("Stripe-Signature", strings.Replace(r.Header.Get("Stripe-Signature"), from, to, 1))
	return r
}

// TestEveryByteCounts: a notification with one byte changed is not verified, or is the same
// notification. For paypal a CRC-32 sees that, but not each change of five bytes.
func TestEveryByteCounts(t *testing.T) {
	all, k := verifiers(t), platform()
	for kind, r := range map[string]*upstream.Request{
		"wechatpay-v3": wechatSigned(k[0], now, wechatBody(t, apiV3, `{"out_trade_no":"T1"}`)), "stripe": stripeSigned("whsec_old", now, `{"id":"evt_1"}`),
		"adyen": jsonRequest(adyenExampleBody, "HmacSignature", adyenExampleSignature), "paypal": paypalGenuine(k[0]),
	} {
		for i := range r.Body {
			other := r.Clone()
			other.Body[i] ^= 1
			if _, err := all[kind].Verify(other, now); err == nil {
				t.Errorf("%s: byte %d of the body does not count", kind, i)
			}
		}
	}
	form := alipayForm(k[0])
	values, _ := url.ParseQuery(string(form.Body))
	for i := range form.Body {
		other := form.Clone()
		other.Body[i] ^= 1
		if n, err := all["alipay"].Verify(other, now); err == nil {
			got, _ := url.ParseQuery(string(n.Content.Body))
			got.Del("sign_type") // which is not signed, nor used
			got.Del("sign")      // whose last bits may be spare
			for name := range got {
				if got.Get(name) != values.Get(name) {
					t.Errorf("byte %d: %s is %q, verified, and was %q", i, name, got.Get(name), values.Get(name))
				}
			}
		}
	}
}

// TestConfig: all faults are reported at once, and none shows a key.
func TestConfig(t *testing.T) {
	k := platform()[0]
	t.Setenv("WRONG", "not-the-content")
	small, _ := rsa.GenerateKey(rand.Reader, 1024)
	private, _ := x509.MarshalPKCS8PrivateKey(k)
	open := write(t, "whsec_not-the-content", 0o644)
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{Kind: "alypay"}, []string{`kind: "alypay" is unknown, must be one of: alipay, wechatpay-v3, stripe, adyen, paypal; did you mean alipay?`}},
		{Config{Kind: "alipay"}, []string{"keys: is missing; a verifier of kind alipay needs Alipay's public key"}},
		{Config{Kind: "wechatpay-v3"}, []string{"keys: is missing", "secret: is missing; a verifier of kind wechatpay-v3 needs the APIv3 key"}},
		{Config{Kind: "wechatpay-v3", Keys: []string{"env:WRONG"}, Secret: "env:WRONG"}, []string{"keys[0]: the content that env:WRONG names is no public RSA key", "secret: the secret that env:WRONG names has 15 bytes"}},
		{Config{Kind: "stripe", Keys: []string{"env:WRONG", "whsec_not-the-content", open}, Secret: "env:WRONG"}, []string{"keys[0]: the secret that env:WRONG names does not begin with whsec_", "keys[1]: is no reference to a secret", "keys[2]: ", "mode 0644", "secret: means nothing to a verifier of kind stripe"}},
		{Config{Kind: "adyen", Keys: slices.Repeat([]string{"env:WRONG"}, 9)}, []string{"keys: has 9 keys, at most 8", "keys[7]: the secret that env:WRONG names is no HMAC key"}},
		{Config{Kind: "alipay", Keys: []string{write(t, base64.StdEncoding.EncodeToString(private), 0o600), "file:/nowhere/key", "file:/", publicPEM(t, small), write(t, strings.Repeat("x", 70000), 0o600)}},
			[]string{"names is a private key; name the platform's public key", "keys[1]: open /nowhere/key", "keys[2]: / is not a file", "has 1024 bits, must have 2048", "more than 65536 bytes"}},
	} {
		_, err := New(tt.c)
		if err == nil {
			t.Errorf("%+v: no error", tt.c)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v:\n%v\nwant %q", tt.c, err, want)
			}
		}
		if strings.Contains(err.Error(), "not-the-content") {
			t.Errorf("%v shows a secret", err)
		}
	}
}

// TestPublicKeys: platforms hand out their keys in several forms.
func TestPublicKeys(t *testing.T) {
	k := platform()[0]
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	bare := base64.StdEncoding.EncodeToString(pkixOf(k))
	for name, text := range map[string]string{
		"PEM": block("PUBLIC KEY", pkixOf(k)), "PKCS #1": block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&k.PublicKey)), "certificate": block("CERTIFICATE", certificateOf(k)),
		"bare base64": bare, "bare base64 in lines": bare[:64] + "\n" + bare[64:] + "\r\n",
	} {
		got, err := publicKey(write(t, text, 0o644))
		if err != nil || !got.Equal(&k.PublicKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzVerify: no bytes of a stranger are verified, and none end the process.
func FuzzVerify(f *testing.F) {
	f.Setenv("WHSEC", "whsec_x")
	f.Setenv("ADYEN", strings.Repeat("0f", 32))
	f.Setenv("API_V3", apiV3)
	key := filepath.Join(f.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(pkixOf(platform()[0]))), 0o600); err != nil {
		f.Fatal(err)
	}
	var all []Verifier
	for _, c := range []Config{{Kind: "alipay", Keys: []string{"file:" + key}}, {Kind: "wechatpay-v3", Keys: []string{"file:" + key}, Secret: "env:API_V3"}, {Kind: "stripe", Keys: []string{"env:WHSEC"}}, {Kind: "adyen", Keys: []string{"env:ADYEN"}}, {Kind: "paypal", Keys: []string{"file:" + key}, WebhookID: paypalWebhook}} {
		v, err := New(c)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, v)
	}
	f.Add([]byte(adyenExample), "t=1790000000,v1=00", "HmacSignature")
	f.Add([]byte(paypalEvent), paypalID, "Paypal-Transmission-Id")
	f.Add([]byte("sign=AAAA&a=b"), "1790000000", "Wechatpay-Timestamp")
	f.Fuzz(func(t *testing.T, body []byte, value, name string) {
		r := &upstream.Request{Method: "POST", Target: "/", Header: http.Header{"Stripe-Signature": {value}, "Wechatpay-Signature": {value}, "Paypal-Transmission-Id": {value}, "Paypal-Transmission-Time": {value},
			"Paypal-Transmission-Sig": {value}, "Paypal-Auth-Algo": {paypalAlgorithm}}, Body: body}
		r.Header.Set(name, value)
		for _, v := range all {
			if _, err := v.Verify(r, now); err == nil {
				t.Errorf("%T has verified a stranger's bytes", v)
			}
		}
	})
}
