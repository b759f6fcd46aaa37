package notify

import (
	"crypto/rsa"
	"errors"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// paypal verifies the webhooks of PayPal: the signature is over transmission id, transmission
// time, webhook id and the CRC-32 of the body, joined by bars
// (developer.paypal.com/api/rest/webhooks/rest, "Self verification method").
//
// The weakness is PayPal's: a genuine notification can be given another body with the same
// CRC-32, so only the query decides, and the merchant should read the order itself.
//
// The time bounds nothing: PayPal repeats for three days
// (developer.paypal.com/docs/integration/direct/webhooks/notification-messages), and no page
// read tells whether a repeat has a time and an id of its own. If it has not, a window of
// 5 minutes, which others report of PayPal's page on invoices, would lose each repeat.
//
// PayPal wants repeats to be recognised by the event's id (developer.paypal.com/api/invoicing/
// webhooks). The event's id lies in the body, so an attacker could make any number of
// notifications of a genuine one, each with a query. The id of the transmission is signed; a
// repeat with another one costs one more query. PAYPAL-CERT-URL is neither signed nor read.
type paypal struct {
	keys    []*rsa.PublicKey
	webhook string
}

// paypalAlgorithm is the only accepted value of PAYPAL-AUTH-ALGO.
const paypalAlgorithm = "SHA256withRSA"

func (v paypal) Verify(r *upstream.Request, _ time.Time) (*Notice, error) {
	id, sent, signature := header(r, "Paypal-Transmission-Id"), header(r, "Paypal-Transmission-Time"), header(r, "Paypal-Transmission-Sig")
	if id == "" || sent == "" || signature == "" || header(r, "Paypal-Auth-Algo") != paypalAlgorithm {
		return nil, errUnsigned
	}
	if strings.Contains(id, "|") || strings.Contains(sent, "|") { // the fields would run into each other
		return nil, errMalformed
	}
	sum := strconv.FormatUint(uint64(crc32.ChecksumIEEE(r.Body)), 10)
	if !verifyRSA(v.keys, strings.Join([]string{id, sent, v.webhook, sum}, "|"), signature) {
		return nil, errForged
	}
	return &Notice{id, r}, nil
}

// webhookID is the form of PayPal's webhook ids
// (developer.paypal.com/api/webhooks/v1/definitions/verify_webhook_signature).
var webhookID = regexp.MustCompile(`^[a-zA-Z0-9]{1,50}$`)

// checkWebhookID returns an error unless an id is that of a webhook. It does not show the id,
// which may be a secret in the wrong place.
func checkWebhookID(id string) error {
	switch {
	case id == "":
		return errors.New("is missing; a verifier of kind paypal needs the id of the webhook, which the developer dashboard shows")
	case !webhookID.MatchString(id):
		return errors.New("is no webhook id, which has 1 to 50 letters and digits; it is no secret, so write the id itself")
	}
	return nil
}
