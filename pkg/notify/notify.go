// Package notify verifies the notifications of payment platforms: each must have a recent
// signature of the platform over its bytes.
//
// [New] makes a verifier for Alipay (RSA2), WeChat Pay v3, Stripe, Adyen or PayPal.
//
//	v, err := notify.New(notify.Config{Kind: "stripe", Keys: []string{"env:STRIPE_WEBHOOK_SECRET"}})
//	notice, err := v.Verify(request, time.Now())
//	if err != nil { … } // answer 401, and ignore the content
//	order, err := expression.OptionalKey(upstream.NewInput(notice.Content))
//
// # Signed and unsigned parts
//
// Stripe and WeChat Pay sign the whole body and an instant, which may be 5 minutes away.
// Alipay signs all parameters of the form. Adyen signs eight fields of a notification, and
// for some kinds of webhook the body. No platform signs the path, the query or other
// headers. Alipay and Adyen sign no instant. PayPal signs one, but repeats for three days, so
// it is not compared. An attacker can send the notifications of these three again.
//
// PayPal signs no more of the body than its CRC-32: a genuine notification can be given
// another body with the same CRC-32, so only the query decides, and the merchant should read
// the order itself.
//
// # Keys
//
// Several keys may be valid at a time, while a platform replaces one: a notification must
// verify by one of them. Keys are named by reference, file:PATH or env:NAME, and read once,
// by New. No error shows a key, or anything of a notification.
//
// A Verifier is safe for concurrent use.
package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Tolerance is how far the instant of a signature may be away, before or after.
const Tolerance = 5 * time.Minute

// maxKeys bounds the keys of a verifier: each notification is verified by all of them.
const maxKeys = 8

// Kinds are all kinds of verifiers.
var Kinds = []string{"alipay", "wechatpay-v3", "stripe", "adyen", "paypal"}

// A Config describes a verifier.
type Config struct {
	Kind string // one of Kinds
	// Keys refer to the keys that verify, file:PATH or env:NAME, 1 to 8 of them. For
	// alipay, wechatpay-v3 and paypal they are the platform's public RSA keys or its
	// certificates, in PEM or bare base64 (paypal: the certificate of PAYPAL-CERT-URL); for
	// stripe the signing secrets of the endpoint (whsec_…), for adyen its HMAC keys, in
	// hexadecimal. A file with a secret must have mode 0600 or less.
	Keys []string
	// Secret refers to the APIv3 key, 32 bytes: wechatpay-v3.
	Secret string
	// WebhookID is the id of the webhook, which PayPal signs: paypal.
	WebhookID string
}

// A Verifier verifies notifications.
type Verifier interface {
	// Verify returns the notice of a notification that the platform has signed. The error is
	// [ErrLate] if only its instant is wrong.
	Verify(r *upstream.Request, now time.Time) (*Notice, error)
}

// A Notice is a verified notification.
type Notice struct {
	// ID is the same for all sendings of one notification. For paypal it is that of the
	// transmission, which is signed; whether a repeat has another, no page read tells.
	ID string
	// Content is the notification for request expressions. For wechatpay-v3 its body is the
	// decrypted resource.
	Content *upstream.Request
}

// ErrLate is the error of a notification whose instant is more than Tolerance before or after
// now: an attacker may have sent an old one again.
var ErrLate = errors.New("its signature is not of the last 5 minutes")

// New returns a verifier. The error joins all faults of the config, each an
// [*upstream.FieldError].
func New(c Config) (Verifier, error) {
	if !slices.Contains(Kinds, c.Kind) {
		return nil, Check(c)
	}
	var found faults
	found.check(c)
	var v Verifier
	switch c.Kind {
	case "alipay":
		v = alipay{readKeys(c, found.add, publicKey)}
	case "wechatpay-v3":
		resource, err := apiV3Key(c.Secret)
		found.add("secret", err)
		v = &wechatpay{readKeys(c, found.add, publicKey), resource}
	case "stripe":
		v = stripe{readKeys(c, found.add, stripeSecret)}
	case "adyen":
		v = adyen{readKeys(c, found.add, adyenKey)}
	case "paypal":
		v = paypal{readKeys(c, found.add, publicKey), c.WebhookID}
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	return v, nil
}

// Check returns the faults that New finds without opening the keys that the config names.
func Check(c Config) error {
	var found faults
	if !slices.Contains(Kinds, c.Kind) {
		found.add("kind", fmt.Errorf("%q is unknown, must be one of: %s%s", c.Kind, strings.Join(Kinds, ", "), hint.Meant(c.Kind, Kinds)))
		return errors.Join(found...)
	}
	found.check(c)
	if c.Kind == "wechatpay-v3" {
		if c.Secret == "" {
			found.add("secret", errNoSecret)
		} else {
			found.add("secret", signer.CheckReference(c.Secret))
		}
	}
	readKeys(c, found.add, func(reference string) (none struct{}, err error) { return none, signer.CheckReference(reference) })
	return errors.Join(found...)
}

// faults are the faults of a Config, each an [*upstream.FieldError].
type faults []error

func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, &upstream.FieldError{Field: field, Err: err})
	}
}

// check adds the faults that show in the config itself.
func (f *faults) check(c Config) {
	switch n := len(c.Keys); {
	case n == 0:
		f.add("keys", fmt.Errorf("is missing; a verifier of kind %s needs %s", c.Kind, keyNames[c.Kind]))
	case n > maxKeys:
		f.add("keys", fmt.Errorf("has %d keys, at most %d are taken; remove those that the platform no longer uses", n, maxKeys))
	}
	if c.Secret != "" && c.Kind != "wechatpay-v3" {
		f.add("secret", fmt.Errorf("means nothing to a verifier of kind %s; write its keys into keys", c.Kind))
	}
	if c.WebhookID != "" && c.Kind != "paypal" {
		f.add("webhook_id", fmt.Errorf("means nothing to a verifier of kind %s; only paypal has it", c.Kind))
	}
	if c.Kind == "paypal" {
		f.add("webhook_id", checkWebhookID(c.WebhookID))
	}
}

// readKeys reads the keys of a config.
func readKeys[K any](c Config, fault func(string, error), read func(reference string) (K, error)) (keys []K) {
	for i, reference := range c.Keys[:min(len(c.Keys), maxKeys)] {
		k, err := read(reference)
		fault(fmt.Sprintf("keys[%d]", i), err)
		keys = append(keys, k)
	}
	return keys
}

// Errors of notifications. They hold no part of a notification.
var (
	errUnsigned  = errors.New("it is not signed")
	errForged    = errors.New("no key verifies its signature")
	errMalformed = errors.New("it is malformed")

	errUndecrypted = errors.New("the platform has signed it, but secret, the APIv3 key, does not decrypt it; compare the key with that of the merchant platform")
)

// recent returns an error unless an instant is within the tolerance.
func recent(signed, now time.Time) error {
	if away := now.Sub(signed).Abs(); away > Tolerance {
		return ErrLate
	}
	return nil
}

// header returns the value of a header field; empty if there is none, or more than one.
func header(r *upstream.Request, name string) string {
	if values := r.Header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// hashed returns the ID of a notification to which its platform gives none.
func hashed(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
