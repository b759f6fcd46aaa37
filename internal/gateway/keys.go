package gateway

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
)

// Keys is an RSA key pair in PEM: the private key in PKCS #1, the public one in PKIX.
type Keys struct {
	Private, Public string
}

// NewKeys makes a pair of 2048 bits.
func NewKeys() Keys {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic("BUG: gateway: " + err.Error()) // crypto/rand does not fail
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic("BUG: gateway: " + err.Error())
	}
	return Keys{
		Private: toPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)),
		Public:  toPEM("PUBLIC KEY", public),
	}
}

func toPEM(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

// fromPEM accepts PEM and the bare base64 inside it, as the platform's tools print it.
func fromPEM(s string) ([]byte, error) {
	if block, _ := pem.Decode([]byte(s)); block != nil {
		return block.Bytes, nil
	}
	return base64.StdEncoding.DecodeString(s)
}

func parsePrivate(s string) (*rsa.PrivateKey, error) {
	der, err := fromPEM(s)
	if err != nil {
		return nil, err
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*rsa.PrivateKey); ok {
		return key, nil
	}
	return nil, errors.New("not an RSA key")
}

func parsePublic(s string) (*rsa.PublicKey, error) {
	der, err := fromPEM(s)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*rsa.PublicKey); ok {
		return key, nil
	}
	return nil, errors.New("not an RSA key")
}
