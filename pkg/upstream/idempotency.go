package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Idempotency describes how an upstream recognises a repeat. The zero value is an
// upstream that does not.
type Idempotency struct {
	// Header names the header of an idempotency key: calls that have it are repeatable.
	Header string
	// Field names a parameter, or a JSON path of the body: calls that have it are repeatable.
	Field string
	// Retention is the time after the first sending within which a repeat is
	// recognised, for all repeatable calls; zero means without end.
	Retention time.Duration
	// Same is a request expression with a value of any type. Two requests under one
	// idempotency key are the same if their values are equal; otherwise the second
	// one is refused. It may also use target, payload (the body), params(without...), which
	// has all parameters but the given ones, and elements(without...), which has all elements
	// below the root of XML but the given ones. It must tell apart all
	// requests that the upstream tells apart. If it fails, or is empty, method,
	// target, body and header are compared, without signatures and without the
	// fields for time, client and trace.
	Same string
}

// Repeatable reports whether the upstream itself recognises a repeat of the
// request, within Idempotency.Retention of its first sending.
func (u *Upstream) Repeatable(in *Input) bool {
	if u.key(in) != "" {
		return true
	}
	if u.idempotent == nil {
		return false
	}
	ok, err := u.idempotent.Bool(in)
	return err == nil && ok
}

// key returns the idempotency key of a request, empty for none.
func (u *Upstream) key(in *Input) (key string) {
	by := u.Idempotency
	if by.Header != "" {
		key = in.r.Header.Get(by.Header)
	}
	if key == "" && by.Field != "" {
		key = in.field(by.Field)
	}
	return key
}

// input returns the Input of a request for the rules.
func (u *Upstream) input(in *Input, r *Request) *Input {
	in.r = r
	in.key = u.key(in)
	return in
}

// sameEnv has the variables of Idempotency.Same.
type sameEnv struct {
	requestEnv
	Target  string                 `expr:"target"`
	Payload string                 `expr:"payload"`
	Params  func(...string) string `expr:"params"`

	Elements func(...string) (string, error) `expr:"elements"`
}

// Fingerprint returns a hash that is equal for requests that Idempotency.Same
// takes as the same.
func (u *Upstream) Fingerprint(r *Request) string {
	h := sha256.New()
	if value, ok := u.sameValue(r); ok {
		h.Write(value)
	} else {
		writeStable(h, r)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sameValue returns the value of Idempotency.Same for a request; false if the
// expression is empty or fails.
func (u *Upstream) sameValue(r *Request) ([]byte, bool) {
	if u.same == nil {
		return nil, false
	}
	in := NewInput(r)
	v, err := u.same.eval(in, sameEnv{requestEnv: in.variables().(requestEnv), Target: r.Target, Payload: string(r.Body), Params: in.params, Elements: in.elements})
	if err != nil {
		return nil, false
	}
	text, err := json.Marshal(v)
	return text, err == nil
}

// volatile are header fields that differ between repeats of one request: time,
// client, trace and signature.
var volatile = []string{
	"Date", "User-Agent", "Prefer", "Accept-Encoding", "Traceparent", "Tracestate", "Baggage",
	"X-Request-Id", "X-Correlation-Id", "Signature", "Signature-Input", // RFC 9421
}

// signatures are the schemes of Authorization that sign a request, with those of their
// parameters that differ between repeats: time, nonce and signature.
var signatures = map[string][]string{
	"AWS4-HMAC-SHA256":          {"Signature"},
	"Signature":                 {"signature", "created", "expires"}, // draft-cavage-http-signatures
	"WECHATPAY2-SHA256-RSA2048": {"nonce_str", "timestamp", "signature"},
	"ALIPAY-SHA256withRSA":      {"nonce", "timestamp"},
}

// Credentials returns the Authorization of a request without what differs between repeats.
func (r *Request) Credentials() string { return credentials(r.Header.Get("Authorization")) }

// credentials returns an Authorization without what differs between repeats. All of an
// unknown scheme is a credential: the answer to a request is never that to another caller.
func credentials(authorization string) string {
	scheme, rest, _ := strings.Cut(authorization, " ")
	differing, known := signatures[scheme]
	if !known {
		return authorization
	}
	kept := []string{scheme}
	for param := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if name == "Credential" { // key/date/region/service/aws4_request
			value, _, _ = strings.Cut(value, "/")
		}
		if !slices.Contains(differing, name) {
			kept = append(kept, name+"="+value)
		}
	}
	return strings.Join(kept, " ")
}

// writeStable writes a request without its volatile fields. Credentials are part of
// it, so that no caller gets another caller's answer.
func writeStable(w io.Writer, r *Request) {
	header := r.Header.Clone()
	for _, name := range volatile {
		header.Del(name)
	}
	for i, value := range header["Authorization"] {
		header["Authorization"][i] = credentials(value)
	}
	fmt.Fprintf(w, "%q %q ", r.Method, r.Target)
	header.Write(w)
	fmt.Fprintf(w, "\r\n%s", r.Body)
}

// params returns all parameters but those named as one text: those of the query
// and the form, files included. A query or body that is no form is taken whole.
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

// elements returns all elements below the root but the given ones as one text, in the order
// of their names.
func (in *Input) elements(without ...string) (string, error) {
	root, err := in.xmlRoot()
	if err != nil {
		return "", err
	}
	if root == nil {
		return "", unclear("the body is no XML")
	}
	var all []string
	for _, e := range root.Elements {
		if !slices.Contains(without, e.Name) {
			all = append(all, canonical(e))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n"), nil
}

// wholeForm reads a form with the hashes of its files; false if the body is no form,
// or a broken one.
func wholeForm(r *Request) (url.Values, bool) {
	kind, params, _ := bodyType(r.Header.Values("Content-Type"))
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
