package upstream

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Request is the request of a call, without host and connection.
type Request struct {
	Method string
	// Target is the request target: path and query, escaped.
	Target string
	// Header has no Host, no Content-Length and no hop-by-hop fields; those that a
	// signer sets are not sent.
	Header http.Header
	Body   []byte
	// Latest, if not zero, is the end of the validity of the caller's signature:
	// no byte is sent later.
	Latest time.Time
	// Repeat is true if an earlier sending of the same call may have been executed.
	Repeat bool
}

// Clone returns a deep copy.
func (r *Request) Clone() *Request {
	return &Request{r.Method, r.Target, r.Header.Clone(), bytes.Clone(r.Body), r.Latest, r.Repeat}
}

// Check returns an error if the request cannot be sent.
func (r *Request) Check() error {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace || !token(r.Method):
		return fmt.Errorf("method %q is not forwarded", r.Method)
	case !strings.HasPrefix(r.Target, "/"):
		return fmt.Errorf("target %q must begin with a slash", printable(r.Target))
	case strings.HasPrefix(r.Target, "//"): // net/url, and many a server, takes it for a host
		return fmt.Errorf("target %q must begin with one slash, not with two", printable(r.Target))
	}
	path, _, _ := strings.Cut(r.Target, "?")
	for i := range len(r.Target) {
		if c := r.Target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return fmt.Errorf("target %q holds a control byte, a space or a #", printable(path))
		}
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("path %q has a broken escape", printable(path))
	}
	for _, segment := range strings.FieldsFunc(plain, func(c rune) bool { return c == '/' || c == '\\' }) {
		// Some servers drop path parameters before they resolve the segment.
		if name, _, _ := strings.Cut(segment, ";"); name == ".." {
			return fmt.Errorf("path %q has a .. segment", printable(path))
		}
	}
	if strings.ContainsFunc(plain, control) {
		return fmt.Errorf("path %q holds a control byte", printable(path))
	}
	for name, values := range r.Header {
		if !token(name) {
			return fmt.Errorf("header name %q is not a token", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return control(c) && c != '\t' }) { // RFC 9110, section 5.5
				return fmt.Errorf("header %s holds a line break or another control byte", name)
			}
		}
	}
	return nil
}

func control(c rune) bool { return c < ' ' || c == 0x7f }

func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

// printable shortens a text for an error.
func printable(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return s
}

// An Input gives expressions the parts of a request: each part is parsed once,
// at its first use. It belongs to one goroutine.
type Input struct {
	r     *Request
	query url.Values
	form  url.Values
}

// NewInput returns the Input of a request.
func NewInput(r *Request) *Input { return &Input{r: r} }

func (in *Input) path() string {
	path, _, _ := strings.Cut(in.r.Target, "?")
	return path
}

func (in *Input) queryParam(name string) string {
	if in.query == nil {
		_, raw, _ := strings.Cut(in.r.Target, "?")
		in.query, _ = url.ParseQuery(raw) // keeps the valid parameters, like net/http
	}
	return in.query.Get(name)
}

func (in *Input) formParam(name string) string {
	if in.form == nil {
		in.form = parseForm(in.r)
	}
	return in.form.Get(name)
}

// Param returns a parameter, from the query or else the form; empty if there is none.
func (in *Input) Param(name string) string {
	if v := in.queryParam(name); v != "" {
		return v
	}
	return in.formParam(name)
}

// has reports whether a parameter, or the value at a JSON path, exists and is not empty.
func (in *Input) has(name string) bool {
	if in.Param(name) != "" {
		return true
	}
	v, err := lookup(in.r.Body, name)
	return err == nil && v != nil && v != ""
}

// parseForm reads an urlencoded or multipart body without its files.
func parseForm(r *Request) url.Values {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		form, _ := url.ParseQuery(string(r.Body))
		return form
	case "multipart/form-data":
		form := make(url.Values)
		parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
		for {
			part, err := parts.NextPart()
			if err != nil {
				return form
			}
			if part.FileName() != "" {
				continue
			}
			if value, err := io.ReadAll(part); err == nil {
				form.Add(part.FormName(), string(value))
			}
		}
	}
	return url.Values{}
}
