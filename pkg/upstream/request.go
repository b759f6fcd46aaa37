package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
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
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return fmt.Errorf("path %q has a %s segment", printable(path), name)
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
//
// Limits must count the request that the platform reads. So a part that cannot be
// parsed whole is an error, and so is a value that is there twice: some platforms take
// the first, others the last.
type Input struct {
	r     *Request
	query *params
	form  *params
	json  *document
}

// NewInput returns the Input of a request.
func NewInput(r *Request) *Input { return &Input{r: r} }

var escapes = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// path returns the path as RFC 3986, section 6.2.2, normalises it: unreserved
// characters are plain, and other escapes in upper case.
func (in *Input) path() string {
	path, _, _ := strings.Cut(in.r.Target, "?")
	return escapes.ReplaceAllStringFunc(path, func(escape string) string {
		if c, err := url.PathUnescape(escape); err == nil && url.QueryEscape(c) == c {
			return c
		}
		return strings.ToUpper(escape)
	})
}

func (in *Input) queryParam(name string) (string, error) {
	value, _, err := in.queryParams().get(name)
	return value, err
}

func (in *Input) formParam(name string) (string, error) {
	value, _, err := in.formParams().get(name)
	return value, err
}

// Param returns a parameter of the query or the form; empty if there is none.
func (in *Input) Param(name string) (string, error) {
	value, inQuery, err := in.queryParams().get(name)
	if err != nil {
		return "", err
	}
	other, inForm, err := in.formParams().get(name)
	switch {
	case err != nil:
		return "", err
	case !inQuery:
		return other, nil
	case inForm && other != value:
		return "", unclear("query and form have two values of one parameter")
	}
	return value, nil
}

func (in *Input) header(name string) (string, error) {
	if len(in.r.Header.Values(name)) > 1 {
		return "", unclear("a header occurs twice")
	}
	return in.r.Header.Get(name), nil
}

// jsonValue returns the value at a path of a JSON body, nil if there is none.
func (in *Input) jsonValue(path string) (any, error) {
	if in.json == nil {
		in.json = readBody(in.r)
	}
	if in.json.text == nil {
		return nil, in.json.err
	}
	return jsonValue(in.json.text, path), nil
}

// has reports whether a parameter, or the value at a JSON path, exists and is not empty.
func (in *Input) has(name string) bool {
	if v, err := in.Param(name); err == nil && v != "" {
		return true
	}
	v, err := in.jsonValue(name)
	return err == nil && v != nil && v != ""
}

func (in *Input) queryParams() *params {
	if in.query == nil {
		_, raw, _ := strings.Cut(in.r.Target, "?")
		in.query = parseParams(raw, "the query cannot be parsed")
	}
	return in.query
}

func (in *Input) formParams() *params {
	if in.form == nil {
		in.form = parseForm(in.r)
	}
	return in.form
}

// params are the parameters of a query or a form, or why they cannot be read whole.
type params struct {
	values url.Values
	err    error
}

func (p *params) get(name string) (value string, there bool, err error) {
	if p.err != nil {
		return "", false, p.err
	}
	for other := range p.values { // some platforms compare names without regard to case
		if other != name && strings.EqualFold(other, name) {
			return "", true, unclear("the name of a parameter differs in case only")
		}
	}
	values := p.values[name]
	if len(values) > 1 {
		return "", true, unclear("a parameter occurs twice")
	}
	return p.values.Get(name), len(values) == 1, nil
}

func parseParams(raw string, broken unclear) *params {
	values, err := url.ParseQuery(raw)
	if err != nil { // it may quote the text
		return &params{err: broken}
	}
	return &params{values: values}
}

// parseForm reads an urlencoded or multipart body without its files.
func parseForm(r *Request) *params {
	const broken = unclear("the form cannot be parsed")
	types := r.Header.Values("Content-Type")
	if len(r.Body) == 0 || len(types) == 0 {
		return &params{}
	}
	kind, options, err := mime.ParseMediaType(types[0])
	if len(types) > 1 || err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return &params{err: unclear("its Content-Type cannot be parsed")}
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		return parseParams(string(r.Body), broken)
	case "multipart/form-data":
		form := make(url.Values)
		parts := multipart.NewReader(bytes.NewReader(r.Body), options["boundary"])
		for {
			part, err := parts.NextPart()
			if err == io.EOF {
				return &params{values: form}
			}
			if err != nil {
				return &params{err: broken}
			}
			if part.FileName() != "" {
				continue
			}
			value, err := io.ReadAll(part)
			if err != nil {
				return &params{err: broken}
			}
			form.Add(part.FormName(), string(value))
		}
	}
	return &params{}
}
