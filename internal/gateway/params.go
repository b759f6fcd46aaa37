package gateway

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxBody bounds a request body, in bytes.
const maxBody = 1 << 20

// params are the parameters of a call, from query and body; absent ones are empty.
type params map[string]string

// readParams reads query, urlencoded body and multipart body: SDKs differ in their use.
// The query's value counts for a name in both. With an error it returns the readable
// parameters.
func readParams(w http.ResponseWriter, r *http.Request) (params, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	err := r.ParseForm() // called here because ParseMultipartForm drops its error
	if err == nil {
		err = r.ParseMultipartForm(maxBody)
	}
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil
	}
	p := make(params)
	if r.MultipartForm != nil {
		p.add(r.MultipartForm.Value)
		r.MultipartForm.RemoveAll()
	}
	p.add(r.PostForm)
	p.add(r.URL.Query())
	return p, err
}

func (p params) add(values map[string][]string) {
	for name, v := range values {
		p[name] = v[0]
	}
}

// signedText returns the text that the caller signed: all non-empty parameters except
// sign, sorted by name.
func (p params) signedText() string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if name != "sign" && p[name] != "" {
			pairs = append(pairs, name+"="+p[name])
		}
	}
	return strings.Join(pairs, "&")
}

// check makes the checks before the limits. If ok is false, it returns the refusal.
func (p params) check(key *rsa.PublicKey) (refusal answer, ok bool) {
	switch {
	case p["sign"] == "":
		return missing("signature"), false
	case p["sign_type"] != "RSA2":
		return invalid("signature-type"), false
	}
	signature, err := base64.StdEncoding.DecodeString(p["sign"])
	if err != nil {
		return invalid("signature"), false
	}
	sum := sha256.Sum256([]byte(p.signedText()))
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return invalid("signature"), false
	}

	for _, name := range []string{"method", "version", "timestamp"} {
		if p[name] == "" {
			return missing(name), false
		}
	}
	if _, err := time.Parse(time.DateTime, p["timestamp"]); err != nil {
		return invalid("timestamp"), false
	}
	return answer{}, true
}
