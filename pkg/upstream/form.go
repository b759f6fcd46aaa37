package upstream

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	errTwiceParam = unclear("a parameter occurs twice")
	errForm       = unclear("the form cannot be parsed")
)

// Types of bodies that are forms.
const (
	urlencodedForm = "application/x-www-form-urlencoded"
	multipartForm  = "multipart/form-data"
)

// params are the parameters of a query or a form, or why they cannot be read whole.
type params struct {
	values url.Values
	names  map[string]int // values by loose name
	err    error
}

func newParams(values url.Values) *params {
	p := &params{values: values, names: make(map[string]int)}
	for name, v := range values {
		p.names[loose(name)] += len(v)
	}
	return p
}

// loose returns what the spellings of a name have in common. PHP strips leading spaces and
// takes dots and spaces for underscores, Ruby's Rack strips spaces, and some servers end a
// name at a zero byte, or ignore the case.
func loose(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return underscores.Replace(strings.ToLower(strings.TrimSpace(name)))
}

var underscores = strings.NewReplacer(".", "_", " ", "_")

func (p *params) get(name string) (value string, there bool, err error) {
	values, n := p.values[name], p.names[loose(name)]
	switch {
	case p.err != nil:
		return "", false, p.err
	case n > 1:
		return "", true, errTwiceParam
	case n > len(values):
		return "", true, errSpelling
	}
	return p.values.Get(name), n == 1, nil
}

func parseParams(raw string, broken unclear) *params {
	values, err := url.ParseQuery(raw)
	if err != nil { // it may quote the text
		return &params{err: broken}
	}
	return newParams(values)
}

// parseForm reads an urlencoded or multipart body without its files. Ruby's Rack takes a
// POST without a Content-Type for a form.
func parseForm(r *Request) *params {
	if len(r.Body) == 0 {
		return &params{}
	}
	kind, options, err := contentType(r)
	switch {
	case err != nil:
		return &params{err: err}
	case kind == urlencodedForm, kind == "" && r.Method == http.MethodPost:
		return parseParams(string(r.Body), errForm)
	case kind == multipartForm:
		form, ok := parseMultipart(string(r.Body), options["boundary"])
		if !ok {
			return &params{err: errForm}
		}
		return newParams(form)
	}
	return &params{}
}

// extended is a name in the notation of RFC 5987, which RFC 7578, section 4.2, forbids.
var extended = regexp.MustCompile(`(?i)(^|[;\s])name\*`)

// half is a backslash that may escape the next byte, or be the second half of a character: forms have no charset of their own.
var half = regexp.MustCompile(`[^\x00-\x7f]\\`)

// parseMultipart reads the fields of a multipart form. It takes the one form that all
// readers read alike: lines that end in CRLF, nothing before the first boundary or behind
// the last one, and no field with an encoding of its own.
func parseMultipart(body, boundary string) (form url.Values, ok bool) {
	body, found := strings.CutPrefix(strings.TrimPrefix(body, "\r\n"), "--"+boundary)
	if !found || boundary == "" {
		return nil, false
	}
	form = make(url.Values)
	parts := strings.Split(body, "\r\n--"+boundary)
	last := len(parts) - 1
	if end := parts[last]; last == 0 || end != "--" && end != "--\r\n" {
		return nil, false
	}
	for _, part := range parts[:last] {
		head, content, found := strings.Cut(part, "\r\n\r\n")
		name, file, ok := disposition(head)
		if !found || !ok || strings.Contains(content, "\n--"+boundary) { // a line of it is a boundary to others
			return nil, false
		}
		if !file {
			form.Add(name, content)
		}
	}
	return form, true
}

// disposition reads the header of a field, whose lines begin with CRLF.
func disposition(head string) (name string, file, ok bool) {
	disposed, named := false, false
	lines := strings.Split(head, "\r\n")
	for _, line := range lines[1:] {
		field, value, found := strings.Cut(line, ":")
		if !found || !token(field) || strings.ContainsFunc(value, func(c rune) bool { return control(c) && c != '\t' }) {
			return "", false, false
		}
		switch value = strings.TrimSpace(value); strings.ToLower(field) {
		case "content-transfer-encoding":
			if !slices.Contains([]string{"7bit", "8bit", "binary"}, strings.ToLower(value)) {
				return "", false, false
			}
		case "content-disposition":
			kind, options, err := mime.ParseMediaType(value)
			if err != nil || kind != "form-data" || disposed || extended.MatchString(value) || half.MatchString(value) {
				return "", false, false
			}
			disposed = true
			name, named = options["name"]
			_, file = options["filename"]
		}
	}
	return name, file, named && lines[0] == ""
}
