package notify

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// verifyRSA reports whether a signature of a text, in base64, is RSASSA-PKCS1-v1_5 with
// SHA-256 by one of some keys. The platforms call it RSA2 or SHA256withRSA.
func verifyRSA(keys []*rsa.PublicKey, text, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(text))
	return slices.ContainsFunc(keys, func(k *rsa.PublicKey) bool {
		return rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], raw) == nil
	})
}

// alipay verifies the notifications of Alipay: a form whose signature is over all its
// parameters but sign and sign_type, decoded and sorted by name
// (opendocs.alipay.com/common/02mse7).
type alipay struct{ keys []*rsa.PublicKey }

func (v alipay) Verify(r *upstream.Request, _ time.Time) (*Notice, error) {
	form, err := url.ParseQuery(string(r.Body))
	if err != nil {
		return nil, errMalformed
	}
	var signed []string
	for name, values := range form {
		if len(values) != 1 { // receivers differ in the value that they take
			return nil, errMalformed
		}
		if name != "sign" && name != "sign_type" {
			signed = append(signed, name+"="+values[0])
		}
	}
	if form.Get("sign") == "" {
		return nil, errUnsigned
	}
	slices.SortFunc(signed, func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) })
	if !verifyRSA(v.keys, strings.Join(signed, "&"), form.Get("sign")) {
		return nil, errForged
	}
	id := form.Get("notify_id")
	if id == "" {
		id = hashed(r.Body)
	}
	return &Notice{id, r}, nil
}

// nameOf returns the name of a parameter name=value.
func nameOf(parameter string) string {
	name, _, _ := strings.Cut(parameter, "=")
	return name
}

// wechatpay verifies the notifications of WeChat Pay v3: the signature is over time stamp,
// nonce and body, and the resource in the body is encrypted with the APIv3 key
// (pay.weixin.qq.com/docs/merchant/products/notification/decryption.html). All keys are tried,
// whichever serial number the header names: it is not signed.
type wechatpay struct {
	keys     []*rsa.PublicKey
	resource cipher.AEAD
}

func (v *wechatpay) Verify(r *upstream.Request, now time.Time) (*Notice, error) {
	stamp, signature := header(r, "Wechatpay-Timestamp"), header(r, "Wechatpay-Signature")
	if kind := header(r, "Wechatpay-Signature-Type"); signature == "" || kind != "" && kind != "WECHATPAY2-SHA256-RSA2048" {
		return nil, errUnsigned
	}
	if !verifyRSA(v.keys, stamp+"\n"+header(r, "Wechatpay-Nonce")+"\n"+string(r.Body)+"\n", signature) {
		return nil, errForged
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, errMalformed
	}
	if err := recent(time.Unix(seconds, 0), now); err != nil {
		return nil, err
	}
	var body struct {
		ID       string `json:"id"`
		Resource struct {
			Algorithm  string `json:"algorithm"`
			Ciphertext []byte `json:"ciphertext"`
			Nonce      string `json:"nonce"`
			Associated string `json:"associated_data"`
		} `json:"resource"`
	}
	if json.Unmarshal(r.Body, &body) != nil || body.ID == "" || body.Resource.Algorithm != "AEAD_AES_256_GCM" || len(body.Resource.Nonce) != v.resource.NonceSize() {
		return nil, errMalformed
	}
	plain, err := v.resource.Open(nil, []byte(body.Resource.Nonce), body.Resource.Ciphertext, []byte(body.Resource.Associated))
	if err != nil {
		return nil, errUndecrypted
	}
	content := &upstream.Request{Method: r.Method, Target: r.Target, Header: http.Header{"Content-Type": {"application/json"}}, Body: plain}
	return &Notice{body.ID, content}, nil
}

// newGCM returns the cipher of the resource.
func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
