package signer

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxFile is the largest key file, in bytes.
const maxFile = 64 << 10

// Secret returns the secret of a reference, file:PATH or env:NAME, without
// surrounding white space. A file accessible to users other than its owner is
// refused. Errors name the reference, never the content.
func Secret(reference string) (string, error) { return read(reference, true) }

// Public returns the text of a reference as Secret does, from a file of any mode:
// a public key or a certificate is no secret.
func Public(reference string) (string, error) { return read(reference, false) }

// CheckReference returns the fault of a text that is no reference. It opens nothing.
func CheckReference(reference string) error {
	kind, name, _ := strings.Cut(reference, ":")
	if kind != "file" && kind != "env" || name == "" {
		return errors.New("is no reference to a secret; write file:PATH or env:NAME, never the secret itself")
	}
	return nil
}

func read(reference string, private bool) (string, error) {
	if err := CheckReference(reference); err != nil {
		return "", err
	}
	kind, name, _ := strings.Cut(reference, ":")
	if kind == "file" {
		return fromFile(name, private)
	}
	v := strings.TrimSpace(os.Getenv(name))
	if v == "" {
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return v, nil
}

func fromFile(name string, private bool) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not block on a pipe, which is refused below
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat() // of the opened file, not of its name
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", name)
	}
	if mode := info.Mode().Perm(); private && mode&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, and others than its owner may use it; run chmod 600 on it", name, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxFile:
		return "", fmt.Errorf("%s has more than %d bytes", name, maxFile)
	case strings.TrimSpace(string(text)) == "":
		return "", fmt.Errorf("%s is empty", name)
	}
	return strings.TrimSpace(string(text)), nil
}

// rsaKey reads the private key that a reference names.
func rsaKey(reference string) (*rsa.PrivateKey, error) {
	text, err := Secret(reference)
	if err != nil {
		return nil, err
	}
	bad := fmt.Errorf("what %s names is not a private RSA key in PEM (PKCS #1 or #8), without a password, or its bare base64; apps with SM2 keys need a signer of kind exec or http", reference)
	der, kind := []byte(nil), ""
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der, kind = block.Bytes, block.Type
	} else if der, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
		return nil, bad
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if key, ok := key.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	if other := otherKey(der, kind); other != "" {
		return nil, fmt.Errorf("what %s names is %s", reference, other)
	}
	return nil, bad
}

// sm2Curve is the object identifier of SM2's curve, 1.2.156.10197.1.301, in DER.
var sm2Curve = []byte{0x06, 0x08, 0x2a, 0x81, 0x1c, 0xcf, 0x55, 0x01, 0x82, 0x2d}

// otherKey returns what is there instead of a private RSA key, and the next step; empty if
// that is not known.
func otherKey(der []byte, kind string) string {
	_, errPublic := x509.ParsePKIXPublicKey(der)
	_, errPKCS1 := x509.ParsePKCS1PublicKey(der)
	_, errCertificate := x509.ParseCertificate(der)
	_, errEC := x509.ParseECPrivateKey(der)
	_, errPKCS8 := x509.ParsePKCS8PrivateKey(der)
	switch {
	case errPublic == nil || errPKCS1 == nil:
		return "a public key; name the private key that belongs to it"
	case errCertificate == nil:
		return "a certificate; name the private key that belongs to it"
	case bytes.Contains(der, sm2Curve):
		return "a key of SM2, and this signer makes RSA signatures; give the app an RSA key, or the upstream a signer of kind exec or http"
	case errEC == nil || errPKCS8 == nil:
		return "a private key, but no RSA key; the platforms sign with RSA (2048 bits or more)"
	case strings.Contains(kind, "ENCRYPTED"):
		return "encrypted with a password; decrypt it with: openssl pkey -in KEY -out PLAIN, and run chmod 600 on that"
	}
	return ""
}
