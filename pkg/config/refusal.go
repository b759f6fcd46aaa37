package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"text/template"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Refusal is the shape of Throttler's own answers on a data listener. It is
// that of the platform's errors, so that the platform's client libraries
// understand them.
type Refusal struct {
	// Status replaces the status of the answer; 0 keeps it.
	Status int
	// Header is added to the header of every answer.
	Header http.Header

	literal string
	body    *template.Template // nil: literal
}

type fileRefusal struct {
	// Status replaces the status of Throttler's own answers; 0 keeps it.
	Status int `key:"status"`
	// Headers are added; names are compared without regard to case. Without a
	// content-type it is application/problem+json.
	Headers map[string]string `key:"headers"`
	// Body is sent unchanged or, if it contains {{, is a text/template over [Problem]
	// with the functions json and replace. Default: the preset's; an empty one is a
	// problem of RFC 9457.
	Body string `key:"body"`
}

// A Problem is the content of a refusal, and the data of its template.
type Problem struct {
	Status     int    // by Throttler's own rules, before Refusal.Status replaces it
	Title      string // the status in words
	Detail     string
	Outcome    upstream.Outcome // not_executed, or unknown if the call may have been executed
	Call       string           // id; empty if the call was never accepted
	RetryAfter int              // seconds; 0 if unknown

	Request *upstream.Request // the refused request; nil if it was not read
}

// Param returns a parameter of the request, from its query or form, or an empty
// text if it is absent or unclear: the shape of some platforms' errors depends on one.
func (p Problem) Param(name string) string {
	if p.Request == nil {
		return ""
	}
	value, _ := upstream.NewInput(p.Request).Param(name)
	return value
}

// Body returns the body of a refusal. If neither the file nor the preset has
// one, the error is [errors.ErrUnsupported], and the server chooses the body:
// application/problem+json (RFC 9457) in the sidecar.
func (r *Refusal) Body(p Problem) ([]byte, error) {
	if r.body == nil {
		if r.literal == "" {
			return nil, errors.ErrUnsupported
		}
		return []byte(r.literal), nil
	}
	var b bytes.Buffer
	if err := r.body.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// samples are refusals that take different branches of a template.
var samples = []Problem{
	{Status: 429, Title: "Too Many Requests", Detail: `a "quoted" detail`, Outcome: upstream.NotExecuted, RetryAfter: 1},
	{Status: 504, Title: "Gateway Timeout", Detail: "no answer", Outcome: upstream.Unknown, Call: "c1"},
	{Status: 400, Title: "Bad Request", Detail: "no key", Outcome: upstream.NotExecuted, Call: "c1"},
}

var (
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	// serverHeaders are set by the HTTP server.
	serverHeaders = regexp.MustCompile("^(Connection|Content-Length|Transfer-Encoding|Trailer|Upgrade|Retry-After|Throttler-.*)$")
)

// convert compiles a refusal and executes it on the samples: an unknown field
// is found only in execution.
func (f fileRefusal) convert(faults *faultList, path string) *Refusal {
	c := &Refusal{Status: f.Status, Header: make(http.Header), literal: f.Body}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		faults.add(path+".status", "is %d, must be between 200 and 599, or 0 to keep Throttler's own", f.Status)
	}
	for name, value := range f.Headers {
		at := path + ".headers." + name
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			faults.add(at, "is not a header name")
		case serverHeaders.MatchString(canonical):
			faults.add(at, "is set by Throttler itself")
		case strings.ContainsAny(value, "\r\n\x00"):
			faults.add(at, "holds a line break or a NUL")
		}
		c.Header.Set(name, value)
	}
	if !strings.Contains(f.Body, "{{") {
		return c
	}
	t, err := template.New("body").Funcs(template.FuncMap{"json": toJSON, "replace": strings.ReplaceAll}).Parse(f.Body)
	if err != nil {
		faults.add(path+".body", "%s; the language is that of text/template, such as {{json .Detail}}", strings.TrimPrefix(err.Error(), "template: "))
		return c
	}
	c.body = t
	kind := c.Header.Get("Content-Type") // application/problem+json if not given
	for _, p := range samples {
		body, err := c.Body(p)
		if err == nil && (kind == "" || strings.Contains(kind, "json")) && !json.Valid(body) {
			err = fmt.Errorf("gives no valid JSON for a refusal with status %d; write {{json .Detail}} for a text in quotes, or give another content-type", p.Status)
		}
		if err != nil {
			var exec template.ExecError
			if errors.As(err, &exec) {
				err = errors.New(wordTemplate(strings.TrimPrefix(exec.Error(), "template: ")))
			}
			faults.add(path+".body", "%w", err)
			break
		}
	}
	return c
}

// noField matches the error of a template whose field a refusal does not have.
var noField = regexp.MustCompile(`can't evaluate field (\w+) in type config\.Problem`)

// wordTemplate words an error of a template's execution.
func wordTemplate(message string) string {
	m := noField.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	var names []string
	for f := range reflect.TypeFor[Problem]().Fields() {
		names = append(names, "."+f.Name)
	}
	return fmt.Sprintf("a refusal has no .%s; it has %s and .Param \"NAME\"%s", m[1], strings.Join(names, ", "), hint.Meant("."+m[1], names))
}

// toJSON is the function json of templates: a text in quotes, escaped.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
