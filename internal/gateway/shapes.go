package gateway

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WechatKeyID is the id of the platform's public key in answers.
const WechatKeyID = "PUB_KEY_ID_0000000000000024101100397200000006"

var shapes = map[Kind]shape{
	AlipayV3: {
		refund: "/v3/alipay/trade/refund", query: "/v3/alipay/trade/fastpay/refund/query", fresh: 10 * time.Minute,
		limited: failed(http.StatusTooManyRequests, "app-call-limited"),
		unknown: failed(http.StatusInternalServerError, "unknow-error"), system: failed(http.StatusBadRequest, "ACQ.SYSTEM_ERROR"),
		number: field("out_request_no"), authenticate: (*REST).alipay, sign: signHeaders("Alipay-Timestamp", "Alipay-Nonce", "Alipay-Signature", time.Millisecond),
	},
	WechatPay: {
		refund: "/v3/refund/domestic/refunds", query: "/v3/refund/domestic/refunds/", fresh: 5 * time.Minute,
		limited: failed(http.StatusTooManyRequests, "RATELIMIT_EXCEEDED"),
		unknown: failed(http.StatusInternalServerError, "SYSTEM_ERROR"), system: failed(http.StatusInternalServerError, "SYSTEM_ERROR"),
		number: field("out_refund_no"), authenticate: (*REST).wechat, sign: signHeaders("Wechatpay-Timestamp", "Wechatpay-Nonce", "Wechatpay-Signature", time.Second),
	},
	Stripe: {
		refund: "/v1/refunds", query: "/v1/refunds/",
		limited: stripeLimited(),
		unknown: failed(http.StatusInternalServerError, "api_error"), system: failed(http.StatusInternalServerError, "api_error"),
		number: field("charge"), authenticate: (*REST).bearer,
	},
}

func stripeLimited() reply {
	r := failed(http.StatusTooManyRequests, "rate_limit")
	r.header = map[string]string{"Stripe-Rate-Limited-Reason": "global-rate"}
	return r
}

func field(name string) func(*http.Request, map[string]any) string {
	return func(_ *http.Request, body map[string]any) string {
		v, _ := body[name].(string)
		return v
	}
}

// authorization reads the name=value or name="value" pairs after a scheme.
func authorization(r *http.Request, scheme string) (map[string]string, error) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme+" ")
	if !ok {
		return nil, errors.New("another scheme")
	}
	p := make(map[string]string)
	for pair := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(pair, "=")
		p[name] = strings.Trim(value, `"`)
	}
	return p, nil
}

// fresh checks the age of a signature, and that its nonce is new.
func (p *REST) fresh(stamp string, unit time.Duration, nonce string) error {
	n, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errors.New("no time stamp")
	}
	age := time.Since(time.Unix(0, n*int64(unit)))
	if p.ages = append(p.ages, age); age > p.config.Fresh {
		return errStale
	}
	if nonce == "" || p.nonces[nonce] {
		return errors.New("the nonce came before")
	}
	p.nonces[nonce] = true
	return nil
}

func (p *REST) verify(text, signature string) error {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return errors.New("no signature")
	}
	sum := sha256.Sum256([]byte(text))
	return rsa.VerifyPKCS1v15(p.client, crypto.SHA256, sum[:], raw)
}

func (p *REST) alipay(r *http.Request, body []byte) error {
	a, err := authorization(r, "ALIPAY-SHA256withRSA")
	if err != nil {
		return err
	}
	auth, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "ALIPAY-SHA256withRSA "), ",sign=")
	text := auth + "\n" + r.Method + "\n" + r.RequestURI + "\n" + string(body) + "\n"
	if token := r.Header.Get("Alipay-App-Auth-Token"); token != "" {
		text += token + "\n"
	}
	if err := p.verify(text, a["sign"]); err != nil {
		return err
	}
	return p.fresh(a["timestamp"], time.Millisecond, a["nonce"])
}

func (p *REST) wechat(r *http.Request, body []byte) error {
	a, err := authorization(r, "WECHATPAY2-SHA256-RSA2048")
	if err != nil {
		return err
	}
	text := r.Method + "\n" + r.RequestURI + "\n" + a["timestamp"] + "\n" + a["nonce_str"] + "\n" + string(body) + "\n"
	if err := p.verify(text, a["signature"]); err != nil {
		return err
	}
	return p.fresh(a["timestamp"], time.Second, a["nonce_str"])
}

func (p *REST) bearer(r *http.Request, _ []byte) error {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer sk_") {
		return errors.New("no secret key")
	}
	return nil
}

// signHeaders returns a function that signs an answer in three headers, the time in units.
func signHeaders(stamp, nonce, signature string, unit time.Duration) func(*REST, http.Header, []byte) {
	return func(p *REST, h http.Header, body []byte) {
		at, random := fmt.Sprint(time.Now().UnixNano()/int64(unit)), rand.Text()
		sum := sha256.Sum256([]byte(at + "\n" + random + "\n" + string(body) + "\n"))
		made, err := rsa.SignPKCS1v15(nil, p.private, crypto.SHA256, sum[:])
		if err != nil {
			panic("BUG: gateway: a valid key cannot sign: " + err.Error())
		}
		h.Set(stamp, at)
		h.Set(nonce, random)
		h.Set(signature, base64.StdEncoding.EncodeToString(made))
		h.Set("Wechatpay-Serial", WechatKeyID)
	}
}
