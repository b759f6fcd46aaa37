package notify

import (
	"bytes"
	"crypto/rsa"
	"encoding/base64"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const (
	paypalWebhook = "9XL90610J3647323C"
	paypalID      = "d938e770-8046-11e6-8103-6b62a8a99ac4"
	paypalTime    = "2016-09-21T22:00:46Z"
	paypalEvent   = `{"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"C1","supplementary_data":{"related_ids":{"order_id":"T1"}}}}`
)

// paypalText is the signed text of a webhook.
func paypalText(id, sent, webhook, body string) string {
	return strings.Join([]string{id, sent, webhook, strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(body))), 10)}, "|")
}

// paypalSigned is a webhook of PayPal with a signature over a text.
func paypalSigned(k *rsa.PrivateKey, text string) *upstream.Request {
	return &upstream.Request{Method: "POST", Target: "/notify", Body: []byte(paypalEvent), Header: http.Header{
		"Content-Type": {"application/json"}, "Paypal-Transmission-Id": {paypalID}, "Paypal-Transmission-Time": {paypalTime}, "Paypal-Auth-Algo": {"SHA256withRSA"},
		"Paypal-Cert-Url": {"https://api.sandbox.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77"}, "Paypal-Transmission-Sig": {sign(k, text)}}}
}

func paypalGenuine(k *rsa.PrivateKey) *upstream.Request {
	return paypalSigned(k, paypalText(paypalID, paypalTime, paypalWebhook, paypalEvent))
}

// TestPayPalText: the CRC-32 is in decimal, without a sign, as PayPal's own SDK for Python
// has it (notifications.py, _get_expected_sig). That of 123456789 is published: cbf43926.
func TestPayPalText(t *testing.T) {
	k := platform()[0]
	r := paypalSigned(k, paypalID+"|"+paypalTime+"|"+paypalWebhook+"|3421780262")
	r.Body = []byte("123456789")
	if _, err := verifiers(t)["paypal"].Verify(r, now); err != nil {
		t.Error(err)
	}
}

// TestPayPalForged: each signed part counts, and each header comes once.
func TestPayPalForged(t *testing.T) {
	v, k := verifiers(t)["paypal"], platform()[0]
	set := func(name string, values ...string) func(*upstream.Request) {
		return func(r *upstream.Request) { r.Header["Paypal-"+name] = values }
	}
	genuine := paypalText(paypalID, paypalTime, paypalWebhook, paypalEvent)
	signature := sign(k, genuine)
	raw, _ := base64.StdEncoding.DecodeString(signature)
	for _, tt := range []struct {
		name   string
		text   string // signed
		change func(*upstream.Request)
		want   error
	}{
		{"another body", genuine, func(r *upstream.Request) { r.Body = bytes.Replace(r.Body, []byte("T1"), []byte("T2"), 1) }, errForged},
		{"a body with a space more", genuine, func(r *upstream.Request) { r.Body = append(r.Body, ' ') }, errForged},
		{"no body", genuine, func(r *upstream.Request) { r.Body = nil }, errForged},
		{"another time", genuine, set("Transmission-Time", "2016-09-21T22:00:47Z"), errForged},
		{"another id", genuine, set("Transmission-Id", "d938e770-8046-11e6-8103-6b62a8a99ac5"), errForged},
		{"of another webhook", paypalText(paypalID, paypalTime, "OTHER10J3647323C", paypalEvent), nil, errForged},
		{"of the simulator", paypalText(paypalID, paypalTime, "WEBHOOK_ID", paypalEvent), nil, errForged},
		{"without the webhook", paypalID + "|" + paypalTime + "|" + strings.SplitN(genuine, "|", 4)[3], nil, errForged},
		{"the CRC-32 in hexadecimal", paypalID + "|" + paypalTime + "|" + paypalWebhook + "|" + strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(paypalEvent))), 16), nil, errForged},
		{"another algorithm", genuine, set("Auth-Algo", "SHA1withRSA"), errUnsigned},
		{"the algorithm in other letters", genuine, set("Auth-Algo", "sha256withrsa"), errUnsigned},
		{"no algorithm", genuine, set("Auth-Algo"), errUnsigned},
		{"no id", genuine, set("Transmission-Id"), errUnsigned},
		{"an empty id", paypalText("", paypalTime, paypalWebhook, paypalEvent), set("Transmission-Id", ""), errUnsigned},
		{"no time", genuine, set("Transmission-Time"), errUnsigned},
		{"no signature", genuine, set("Transmission-Sig"), errUnsigned},
		{"two ids", genuine, set("Transmission-Id", paypalID, "x"), errUnsigned},
		{"two times", genuine, set("Transmission-Time", paypalTime, paypalTime), errUnsigned},
		{"two signatures", genuine, set("Transmission-Sig", signature, signature), errUnsigned},
		{"two algorithms", genuine, set("Auth-Algo", "SHA256withRSA", "SHA256withRSA"), errUnsigned},
		{"a signature that is no base64", genuine, set("Transmission-Sig", "!"), errForged},
		{"a part of the signature", genuine, set("Transmission-Sig", base64.StdEncoding.EncodeToString(raw[1:])), errForged},
		{"a part of the time in the id", paypalText("a|b", "c", paypalWebhook, paypalEvent), func(r *upstream.Request) {
			set("Transmission-Id", "a|b")(r)
			set("Transmission-Time", "c")(r)
		}, errMalformed},
		{"a part of the id in the time", paypalText("a|b", "c", paypalWebhook, paypalEvent), func(r *upstream.Request) {
			set("Transmission-Id", "a")(r)
			set("Transmission-Time", "b|c")(r)
		}, errMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := paypalSigned(k, tt.text)
			if tt.change != nil {
				tt.change(r)
			}
			refused(t, v, r, tt.want)
		})
	}
}

// TestPayPalSignsCRC32 holds the weakness that the package's comment tells of: another body
// with the same CRC-32 is verified. Its id is that of the genuine one all the same.
func TestPayPalSignsCRC32(t *testing.T) {
	v, k := verifiers(t)["paypal"], platform()[0]
	r := paypalGenuine(k)
	const polynomial = 1 | crc32.IEEE<<1 // reversed, with its highest power
	for i := range 5 {
		r.Body[20+i] ^= byte(uint64(polynomial) >> (8 * i))
	}
	n, err := v.Verify(r, now)
	if err != nil || n.ID != paypalID || bytes.Equal(r.Body, []byte(paypalEvent)) {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestPayPalHasNoTolerance: PayPal repeats for three days, perhaps with the first time.
func TestPayPalHasNoTolerance(t *testing.T) {
	v, r := verifiers(t)["paypal"], paypalGenuine(platform()[0])
	for _, at := range []time.Time{time.Date(2016, 9, 24, 22, 0, 46, 0, time.UTC), time.Date(2016, 9, 21, 0, 0, 0, 0, time.UTC), now} {
		if n, err := v.Verify(r, at); err != nil || n.ID != paypalID {
			t.Errorf("at %v: %+v, %v", at, n, err)
		}
	}
}

// TestPayPalConfig: a webhook id is one of PayPal's, for paypal alone, and is not shown.
func TestPayPalConfig(t *testing.T) {
	key := publicPEM(t, platform()[0])
	t.Setenv("WHSEC", "whsec_x")
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{Kind: "paypal"}, []string{"keys: is missing; a verifier of kind paypal needs PayPal's certificate", "webhook_id: is missing"}},
		{Config{Kind: "paypal", Keys: []string{key}, WebhookID: "not|the-content"}, []string{"webhook_id: is no webhook id"}},
		{Config{Kind: "paypal", Keys: []string{key}, WebhookID: "env:NOT"}, []string{"webhook_id: is no webhook id, which has 1 to 50 letters and digits; it is no secret"}},
		{Config{Kind: "paypal", Keys: []string{key}, WebhookID: strings.Repeat("X", 51)}, []string{"webhook_id: is no webhook id"}},
		{Config{Kind: "paypal", Keys: []string{key}, WebhookID: paypalWebhook + "\n"}, []string{"webhook_id: is no webhook id"}},
		{Config{Kind: "paypal", Keys: []string{key}, WebhookID: paypalWebhook, Secret: "env:WHSEC"}, []string{"secret: means nothing to a verifier of kind paypal"}},
		{Config{Kind: "paypal", Keys: []string{"env:WHSEC"}, WebhookID: paypalWebhook}, []string{"keys[0]: the content that env:WHSEC names is no public RSA key"}},
		{Config{Kind: "paypal", Keys: slices.Repeat([]string{key}, 9), WebhookID: paypalWebhook}, []string{"keys: has 9 keys, at most 8"}},
		{Config{Kind: "stripe", Keys: []string{"env:WHSEC"}, WebhookID: paypalWebhook}, []string{"webhook_id: means nothing to a verifier of kind stripe"}},
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
		if strings.Contains(err.Error(), "the-content") {
			t.Errorf("%v shows what may be a secret", err)
		}
	}
}
