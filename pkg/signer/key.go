package signer

import (
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

// maxSecret is the largest key file, in bytes.
const maxSecret = 64 << 10

// Secret returns the secret of a reference, file:PATH or env:NAME, without
// surrounding white space. A file accessible to users other than its owner is
// refused. Errors name the reference, never the content.
func Secret(reference string) (string, error) {
	kind, name, ok := strings.Cut(reference, ":")
	switch {
	case ok && kind == "file" && name != "":
		return fromFile(name)
	case ok && kind == "env" && name != "":
		v := strings.TrimSpace(os.Getenv(name))
		if v == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return v, nil
	}
	return "", errors.New("is no reference to a secret; write file:PATH or env:NAME, never the secret itself")
}

func fromFile(name string) (string, error) {
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
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, and others than its owner may use it; run chmod 600 on it", name, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxSecret:
		return "", fmt.Errorf("%s has more than %d bytes", name, maxSecret)
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
	bad := fmt.Errorf("what %s names is not a private RSA key in PEM (PKCS #1 or #8), without a password, or its bare base64", reference)
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der = block.Bytes
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
	return nil, bad
}
