package notify

import (
	"crypto/cipher"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/signer"
)

// minBits is the least size of an RSA key.
const minBits = 2048

var errNoSecret = errors.New("is missing; a verifier of kind wechatpay-v3 needs the APIv3 key, which decrypts notifications")

// apiV3Key returns the cipher of the APIv3 key that a reference names.
func apiV3Key(reference string) (cipher.AEAD, error) {
	if reference == "" {
		return nil, errNoSecret
	}
	s, err := signer.Secret(reference)
	if err != nil {
		return nil, err
	}
	if len(s) != 32 {
		return nil, fmt.Errorf("the secret that %s names has %d bytes; the APIv3 key has 32", reference, len(s))
	}
	return newGCM([]byte(s))
}

// keyNames name the keys of a kind in words.
var keyNames = map[string]string{
	"alipay":       "Alipay's public key, or its certificate",
	"wechatpay-v3": "WeChat Pay's public key, or its platform certificates",
	"stripe":       "the signing secret of the endpoint",
	"adyen":        "the HMAC key of the webhook",
	"paypal":       "PayPal's certificate, from the address at paypal.com that PAYPAL-CERT-URL names",
}

// publicKey reads the public RSA key that a reference names. It is no secret: other users may
// have read access to its file.
func publicKey(reference string) (*rsa.PublicKey, error) {
	text, err := signer.Public(reference)
	if err != nil {
		return nil, err
	}
	key, err := parsePublic(text)
	if err != nil {
		return nil, fmt.Errorf("the content that %s names is %w", reference, err)
	}
	if bits := key.N.BitLen(); bits < minBits {
		return nil, fmt.Errorf("the key that %s names has %d bits, must have %d or more", reference, bits, minBits)
	}
	return key, nil
}

// parsePublic returns the public RSA key of a text: a key or a certificate, in PEM or bare
// base64.
func parsePublic(text string) (*rsa.PublicKey, error) {
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der = block.Bytes
	} else {
		der, _ = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	}
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		if c, err := x509.ParseCertificate(der); err == nil {
			parsed = c.PublicKey
		}
	}
	if key, ok := parsed.(*rsa.PublicKey); ok {
		return key, nil
	}
	_, errPKCS1 := x509.ParsePKCS1PrivateKey(der)
	_, errPKCS8 := x509.ParsePKCS8PrivateKey(der)
	if errPKCS1 == nil || errPKCS8 == nil {
		return nil, errors.New("a private key; name the platform's public key, and keep yours for the signer")
	}
	return nil, errors.New("no public RSA key and no certificate with one, in PEM or its bare base64; download it from the platform")
}
