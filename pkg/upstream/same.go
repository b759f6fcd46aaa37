package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
)

// sameEnv is what Idempotency.Same sees.
type sameEnv struct {
	requestEnv
	Target  string                 `expr:"target"`
	Payload string                 `expr:"payload"`
	Params  func(...string) string `expr:"params"`
}

// Fingerprint returns a hash of what two requests with one idempotency key have in
// common if they are the same; see Idempotency.Same.
func (u *Upstream) Fingerprint(r *Request) string {
	h := sha256.New()
	if what, ok := u.what(r); ok {
		h.Write(what)
	} else {
		whole(h, r)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// what returns what Same gives; false if there is none, or it fails.
func (u *Upstream) what(r *Request) ([]byte, bool) {
	if u.same == nil {
		return nil, false
	}
	in := NewInput(r)
	v, err := u.same.eval(sameEnv{requestEnv: in.env(), Target: r.Target, Payload: string(r.Body), Params: in.params})
	if err != nil {
		return nil, false
	}
	text, err := json.Marshal(v)
	return text, err == nil
}

// volatile are fields that differ from one sending to the next, and say nothing of
// what is asked for: they tell when, by which client, and under which trace.
var volatile = []string{
	"Date", "User-Agent", "Prefer", "Accept-Encoding", "Traceparent", "Tracestate", "Baggage",
	"X-Request-Id", "X-Correlation-Id", "Signature", "Signature-Input", // RFC 9421
}

// whole writes a request but for what is volatile. Credentials belong to it, lest
// one caller gets the answer to another: but where they sign, with a time and a
// nonce, only their scheme does.
func whole(w io.Writer, r *Request) {
	header := r.Header.Clone()
	for _, name := range volatile {
		header.Del(name)
	}
	scheme, _, _ := strings.Cut(header.Get("Authorization"), " ")
	if known := strings.EqualFold(scheme, "Basic") || strings.EqualFold(scheme, "Bearer"); !known && scheme != "" {
		header.Set("Authorization", scheme)
	}
	fmt.Fprintf(w, "%q %q ", r.Method, r.Target)
	header.Write(w)
	fmt.Fprintf(w, "\r\n%s", r.Body)
}

// params returns all parameters but those named as one text: of the query and the
// form, files included. What is not in such a form comes as it is.
func (in *Input) params(without ...string) string {
	_, query, _ := strings.Cut(in.r.Target, "?")
	all, err := url.ParseQuery(query)
	if err != nil {
		all = url.Values{"?": {query}}
	}
	form, ok := wholeForm(in.r)
	if !ok {
		form = url.Values{"": {string(in.r.Body)}}
	}
	for name, values := range form {
		all[name] = append(all[name], values...)
	}
	for name := range all {
		if slices.Contains(without, name) {
			delete(all, name)
		}
	}
	return all.Encode()
}

// wholeForm reads a form with the hashes of its files; false if the body is none, or
// a broken one.
func wholeForm(r *Request) (url.Values, bool) {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(r.Body))
		return form, err == nil
	case "multipart/form-data":
		form := make(url.Values)
		parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err != nil {
				return form, err == io.EOF
			}
			content, err := io.ReadAll(part)
			if err != nil {
				return nil, false
			}
			value := string(content)
			if part.FileName() != "" {
				value = fmt.Sprintf("%q %x", part.FileName(), sha256.Sum256(content))
			}
			form.Add(part.FormName(), value)
		}
	}
	return nil, len(r.Body) == 0
}
