// Package signer signs requests at the moment they are sent: platforms refuse
// signatures that are some minutes old, and a signature made before a call
// waits or is sent again would be too old.
//
// [New] makes a signer from configuration: for Alipay's gateway (RSA2), Alipay v3,
// WeChat Pay v3, a program or a service of one's own. [Secret] reads a secret by
// its reference. Go code may bring any other [upstream.Signer].
//
//	s, err := signer.New(signer.Config{Kind: "wechatpay-v3", Key: "file:/etc/throttler/merchant.pem", Merchant: "1900009191", Serial: "5157F0…"})
//	up, err := upstream.New(upstream.Config{…, Signer: s})
//
// # New and unchanged parts
//
// Time stamp, nonce and signature are new in each attempt, where the request has
// or needs them. Business numbers, idempotency keys and all other bytes stay as
// the caller gave them, so that the platform recognises a repeat.
//
// # Keys
//
// A key is named by reference, file:PATH or env:NAME, never written into a
// configuration. A file must be accessible to its owner only (mode 0600 or
// less). Keys are read once, by New; no error shows a key.
//
// Signers are safe for concurrent use.
package signer

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// DefaultTimeout bounds one answer of a program or service that signs.
const DefaultTimeout = 5 * time.Second

// Kinds are all kinds of signers.
var Kinds = []string{"alipay", "alipay-v3", "wechatpay-v3", "exec", "http"}

// A Config describes a signer. Fields that its kind does not need must be empty.
type Config struct {
	Kind string // one of Kinds
	// Key refers to the private RSA key, in PEM (PKCS #1 or #8) or its bare
	// base64: alipay, alipay-v3, wechatpay-v3.
	Key string
	// AppID is the app that the key belongs to; requests of another app are
	// refused. Empty: the app of the request. For alipay and alipay-v3.
	AppID string
	// CertSN is app_cert_sn, in certificate mode. Empty: that of the request. For alipay-v3.
	CertSN string
	// Merchant is mchid, and Serial the number of its certificate: wechatpay-v3.
	Merchant, Serial string
	// Command is a program and its arguments: exec. See [Hook].
	Command []string
	// URL is a service: http. See [Hook].
	URL string
	// Timeout bounds one answer of a program or service.
	Timeout time.Duration
}

// New returns a signer; the program of exec must be there by then. The error joins all
// faults of the config, each an
// [*upstream.FieldError].
func New(c Config) (upstream.Signer, error) {
	if !slices.Contains(Kinds, c.Kind) {
		return nil, &upstream.FieldError{Field: "kind", Err: fmt.Errorf("%q is unknown, must be one of: %s%s", c.Kind, strings.Join(Kinds, ", "), hint.Meant(c.Kind, Kinds))}
	}
	var found faults
	found.check(c)
	var key *rsa.PrivateKey
	if c.Key != "" {
		var err error
		key, err = rsaKey(c.Key)
		found.add("key", err)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	var s upstream.Signer
	switch c.Kind {
	case "alipay":
		s = &alipay{key, c.AppID}
	case "alipay-v3":
		s = &alipayV3{key, c.AppID, c.CertSN}
	case "wechatpay-v3":
		s = &wechatpay{key, c.Merchant, c.Serial}
	case "exec":
		found.add("command", findProgram(c.Command))
		s = newHook(c.Timeout, execute(c.Command))
	case "http":
		ask, err := post(c.URL)
		found.add("url", err)
		s = newHook(c.Timeout, ask)
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	return s, nil
}

// faults are the faults of a Config, each an [*upstream.FieldError].
type faults []error

func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, &upstream.FieldError{Field: field, Err: err})
	}
}

// check adds fields that the kind lacks or does not know, and a negative timeout.
func (f *faults) check(c Config) {
	for _, field := range []struct {
		name, value string
		kinds       []string // that know the field
		required    bool
	}{
		{"key", c.Key, []string{"alipay", "alipay-v3", "wechatpay-v3"}, true},
		{"app_id", c.AppID, []string{"alipay", "alipay-v3"}, false},
		{"cert_sn", c.CertSN, []string{"alipay-v3"}, false},
		{"merchant", c.Merchant, []string{"wechatpay-v3"}, true},
		{"serial", c.Serial, []string{"wechatpay-v3"}, true},
		{"command", strings.Join(c.Command, " "), []string{"exec"}, true},
		{"url", c.URL, []string{"http"}, true},
	} {
		known := slices.Contains(field.kinds, c.Kind)
		switch {
		case known && field.required && field.value == "":
			f.add(field.name, fmt.Errorf("is missing; a signer of kind %s needs it", c.Kind))
		case !known && field.value != "":
			f.add(field.name, fmt.Errorf("means nothing to a signer of kind %s", c.Kind))
		}
	}
	if c.Timeout < 0 {
		f.add("timeout", fmt.Errorf("is %v, must be positive", c.Timeout))
	}
}

// rsaSHA256 returns the RSASSA-PKCS1-v1_5 signature of a text with SHA-256, in
// base64. The platforms call it RSA2 or SHA256withRSA.
func rsaSHA256(key *rsa.PrivateKey, text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("the private key cannot sign")
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// nonce returns 130 random bits or more as letters and digits.
func nonce() string { return rand.Text() }
