package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// verifyHMAC reports whether a signature is HMAC-SHA256 of a text by one of some keys.
func verifyHMAC(keys [][]byte, text, signature []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool {
		mac := hmac.New(sha256.New, k)
		mac.Write(text)
		return hmac.Equal(mac.Sum(nil), signature)
	})
}

// stripe verifies the events of Stripe: HMAC-SHA256 over time stamp, a dot and the body, in
// the header Stripe-Signature, which has several signatures while a secret is replaced
// (docs.stripe.com/webhooks#verify-manually).
type stripe struct{ secrets [][]byte }

func (v stripe) Verify(r *upstream.Request, now time.Time) (*Notice, error) {
	var stamp string
	var signatures [][]byte
	for part := range strings.SplitSeq(header(r, "Stripe-Signature"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			if stamp != "" {
				return nil, errMalformed
			}
			stamp = value
		case "v1":
			if raw, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, raw)
			}
		}
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(signatures) == 0 || len(signatures) > maxKeys {
		return nil, errUnsigned
	}
	text := slices.Concat([]byte(stamp), []byte("."), r.Body)
	if !slices.ContainsFunc(signatures, func(s []byte) bool { return verifyHMAC(v.secrets, text, s) }) {
		return nil, errForged
	}
	if err := recent(time.Unix(seconds, 0), now); err != nil {
		return nil, err
	}
	var event struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(r.Body, &event) != nil || event.ID == "" {
		event.ID = hashed(r.Body)
	}
	return &Notice{event.ID, r}, nil
}

// adyen verifies the webhooks of Adyen in JSON. A standard webhook has a signature over
// eight of its fields, joined by colons, in its additionalData; others have one over the body
// in the header HmacSignature
// (docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures).
type adyen struct{ keys [][]byte }

// maxItems bounds the notifications in one body.
const maxItems = 100

func (v adyen) Verify(r *upstream.Request, _ time.Time) (*Notice, error) {
	if values := r.Header.Values("HmacSignature"); len(values) > 0 {
		raw, err := base64.StdEncoding.DecodeString(values[0])
		if err != nil || len(values) > 1 || !verifyHMAC(v.keys, r.Body, raw) {
			return nil, errForged
		}
		return &Notice{hashed(r.Body), r}, nil
	}
	body, err := object(r.Body)
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(body["notificationItems"], &items); err != nil || len(items) == 0 || len(items) > maxItems {
		return nil, errUnsigned
	}
	for _, item := range items { // the merchant gets all of them, in one body
		if err := v.verifyItem(item); err != nil {
			return nil, err
		}
	}
	return &Notice{hashed(r.Body), r}, nil
}

// verifyItem verifies one notification of a body.
func (v adyen) verifyItem(raw json.RawMessage) error {
	wrapper, err := object(raw)
	if err != nil {
		return err
	}
	item, err := object(wrapper["NotificationRequestItem"])
	if err != nil {
		return err
	}
	amount, err := object(item["amount"])
	if err != nil {
		return err
	}
	additional, err := object(item["additionalData"])
	if err != nil {
		return errUnsigned
	}
	fields := []string{
		text(item["pspReference"]), text(item["originalReference"]), text(item["merchantAccountCode"]), text(item["merchantReference"]),
		text(amount["value"]), text(amount["currency"]), text(item["eventCode"]), text(item["success"]),
	}
	for i, f := range fields {
		if i != 3 && strings.Contains(f, ":") { // the merchant's own reference may have colons, one field at most
			return errMalformed
		}
	}
	signature, err := base64.StdEncoding.DecodeString(text(additional["hmacSignature"]))
	if err != nil || len(signature) == 0 {
		return errUnsigned
	}
	if !verifyHMAC(v.keys, []byte(strings.Join(fields, ":")), signature) {
		return errForged
	}
	return nil
}

// object returns the members of a JSON object. A name that occurs twice, in any case of its
// letters, is an error: receivers differ in the value that they take.
func object(raw []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errMalformed
	}
	members, seen := make(map[string]json.RawMessage), make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || seen[strings.ToLower(name)] || d.Decode(&value) != nil {
			return nil, errMalformed
		}
		members[name], seen[strings.ToLower(name)] = value, true
	}
	if _, err := d.Token(); err != nil || d.More() {
		return nil, errMalformed
	}
	return members, nil
}

// text returns a JSON string without its quotes, and another value as it is written; empty if
// there is none.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// stripeSecret reads the signing secret of an endpoint.
func stripeSecret(reference string) ([]byte, error) {
	s, err := signer.Secret(reference)
	if err == nil && !strings.HasPrefix(s, "whsec_") {
		err = fmt.Errorf("the secret that %s names does not begin with whsec_; take the signing secret of the endpoint, not an API key", reference)
	}
	return []byte(s), err
}

// adyenKey reads an HMAC key.
func adyenKey(reference string) ([]byte, error) {
	s, err := signer.Secret(reference)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(s)
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("the secret that %s names is no HMAC key in hexadecimal, 32 digits or more; copy it from the webhook's settings", reference)
	}
	return key, nil
}
