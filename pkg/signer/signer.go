// Package signer signs requests at the moment they are sent: platforms refuse
// signatures that are some minutes old, and a signature made before a call
// waits or is sent again would be too old.
//
// [New] makes a signer from configuration: for Alipay's gateway (RSA2), Alipay v3,
// WeChat Pay v2 and v3, Antom, OAuth 2.0 with client credentials, a program or a service.
// [Secret] reads a secret by its reference. Go code may bring any other [upstream.Signer].
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
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// DefaultTimeout bounds one answer of a program or service that signs, or that gives tokens.
const DefaultTimeout = 5 * time.Second

// Kinds are all kinds of signers.
var Kinds = []string{"alipay", "alipay-v3", "wechatpay-v2", "wechatpay-v3", "antom", "oauth2", "exec", "http"}

// A Config describes a signer. Fields that its kind does not need must be empty.
type Config struct {
	Kind string // one of Kinds
	// Key refers to the private RSA key, in PEM (PKCS #1 or #8) or its bare
	// base64: alipay, alipay-v3, wechatpay-v3, antom. Of wechatpay-v2 it is the API key.
	Key string
	// AppID is the app, or client (antom), that the key belongs to; requests of another
	// one are refused. Empty: that of the request. For alipay, alipay-v3 and antom.
	AppID string
	// CertSN is app_cert_sn, in certificate mode. Empty: that of the request. For alipay-v3.
	CertSN string
	// Merchant is mchid, or mch_id: wechatpay-v2, which refuses requests of another one, and
	// wechatpay-v3. Serial is the number of its certificate: wechatpay-v3.
	Merchant, Serial string
	// TokenURL is the token endpoint: https, or http at a loopback address. Requests for its
	// path, and those with an Authorization of another scheme than Bearer, stay as they
	// are; all others get an access token. The names are those of
	// golang.org/x/oauth2/clientcredentials. For oauth2.
	TokenURL string
	// ClientID is the client's name, and ClientSecret refers to its secret: oauth2.
	ClientID, ClientSecret string
	// AuthStyle is the place of the credentials: header (Basic, the default) or params (the
	// body). For oauth2.
	AuthStyle string
	// Scopes are requested, 100 at most, and EndpointParams are further parameters of the
	// body, NAME=VALUE, 32 at most, none of them a secret: oauth2.
	Scopes, EndpointParams []string
	// MinInterval is the limit of the token endpoint: the least time from the end of a fetch
	// to the next one; 1 s if zero, at most 1 h. For oauth2.
	MinInterval time.Duration
	// MaxPause bounds the wait that an answer of the token endpoint asks for; one hour if zero, and
	// at most. For oauth2.
	MaxPause time.Duration
	// TLS, if not nil, has roots and client certificates for the token endpoint. Its
	// ServerName is not used. For oauth2; other kinds ignore it.
	TLS *tls.Config
	// Command is a program and its arguments: exec. See [Hook].
	Command []string
	// URL is a service: http. See [Hook].
	URL string
	// Timeout bounds one answer of a program, a service or a token endpoint.
	Timeout time.Duration
}

// New returns a signer; the program of exec must be there by then. The error joins all
// faults of the config, each an
// [*upstream.FieldError].
func New(c Config) (upstream.Signer, error) {
	found := check(c)
	var key *rsa.PrivateKey
	var text string
	var err error
	switch {
	case c.Key == "" || found.has("key"):
	case c.Kind == "wechatpay-v2":
		text, err = apiKey(c.Key)
	default:
		key, err = rsaKey(c.Key)
	}
	found.add("key", err)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	var s upstream.Signer
	switch c.Kind {
	case "alipay":
		s = &alipay{key, c.AppID}
	case "alipay-v3":
		s = &alipayV3{key, c.AppID, c.CertSN}
	case "wechatpay-v2":
		s = &wechatpayV2{text, c.Merchant}
	case "wechatpay-v3":
		s = &wechatpay{key, c.Merchant, c.Serial}
	case "antom":
		s = &antom{key, c.AppID}
	case "oauth2":
		s = newBearer(c, &found)
	case "exec":
		found.add("command", findProgram(c.Command))
		s = newHook(c.Timeout, execute(c.Command))
	case "http":
		ask, _ := post(c.URL) // check has its fault
		s = newHook(c.Timeout, ask)
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	return s, nil
}

// Check returns the faults that New finds without opening anything that the config names: no
// file, no variable and no program.
func Check(c Config) error { return errors.Join(check(c)...) }

func check(c Config) (found faults) {
	if !slices.Contains(Kinds, c.Kind) {
		found.add("kind", fmt.Errorf("%q is unknown, must be one of: %s%s", c.Kind, strings.Join(Kinds, ", "), hint.Meant(c.Kind, Kinds)))
		return found
	}
	found.check(c)
	if c.Key != "" {
		found.add("key", CheckReference(c.Key))
	}
	switch c.Kind {
	case "oauth2":
		checkOAuth2(c, &found)
	case "http":
		_, err := post(c.URL)
		found.add("url", err)
	}
	return found
}

// faults are the faults of a Config, each an [*upstream.FieldError].
type faults []error

func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, &upstream.FieldError{Field: field, Err: err})
	}
}

// has reports whether a field has a fault.
func (f *faults) has(field string) bool {
	return slices.ContainsFunc(*f, func(err error) bool {
		var of *upstream.FieldError
		return errors.As(err, &of) && of.Field == field
	})
}

// check adds fields that the kind lacks or does not know, and a negative timeout.
func (f *faults) check(c Config) {
	for _, field := range []struct {
		name, value string
		kinds       []string // that know the field
		required    bool
	}{
		{"key", c.Key, []string{"alipay", "alipay-v3", "wechatpay-v2", "wechatpay-v3", "antom"}, true},
		{"app_id", c.AppID, []string{"alipay", "alipay-v3", "antom"}, false},
		{"cert_sn", c.CertSN, []string{"alipay-v3"}, false},
		{"merchant", c.Merchant, []string{"wechatpay-v2", "wechatpay-v3"}, true},
		{"serial", c.Serial, []string{"wechatpay-v3"}, true},
		{"token_url", c.TokenURL, []string{"oauth2"}, true},
		{"client_id", c.ClientID, []string{"oauth2"}, true},
		{"client_secret", c.ClientSecret, []string{"oauth2"}, true},
		{"auth_style", c.AuthStyle, []string{"oauth2"}, false},
		{"scopes", strings.Join(c.Scopes, " "), []string{"oauth2"}, false},
		{"endpoint_params", strings.Join(c.EndpointParams, " "), []string{"oauth2"}, false},
		{"min_interval", given(c.MinInterval), []string{"oauth2"}, false},
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

// given returns the text of a duration, empty for zero.
func given(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
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
