package signer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A form holds the parameters of a request: in the query, in an urlencoded body,
// or in a multipart one. Parameters that are not set keep their bytes and their
// place. The query's value counts for a name that is in both.
type form struct {
	path        string
	query, body pairs
	parts       []part // of a multipart body
	boundary    string
	encoded     bool // the body is urlencoded
}

// A part is one of a multipart body.
type part struct {
	header textproto.MIMEHeader
	name   string // empty for a file, which is no parameter
	value  []byte
}

// signedBody returns the text that stands for the body in a signature: of a multipart
// body the named part, which is empty if there is none; else the body.
func signedBody(r *upstream.Request, name string) (string, error) {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		return string(r.Body), nil
	}
	f := new(form)
	if err := f.readParts(r.Body, params["boundary"]); err != nil {
		return "", errMultipart
	}
	text, found := "", false
	for _, p := range f.parts {
		if p.name != name {
			continue
		}
		if found {
			return "", fmt.Errorf("the multipart body has the part %s twice, and one is signed; send it once", name)
		}
		text, found = string(p.value), true
	}
	return text, nil
}

var errMultipart = errors.New("the multipart body is malformed")

func openForm(r *upstream.Request) (*form, error) {
	path, query, _ := strings.Cut(r.Target, "?")
	f := &form{path: path}
	var err error
	if f.query, err = parsePairs(query); err != nil {
		return nil, fmt.Errorf("the query is malformed")
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		f.encoded = true
		if f.body, err = parsePairs(string(r.Body)); err != nil {
			return nil, errors.New("the form in the body is malformed")
		}
	case "multipart/form-data":
		if err := f.readParts(r.Body, params["boundary"]); err != nil {
			return nil, errMultipart
		}
	}
	return f, nil
}

func (f *form) readParts(body []byte, boundary string) error {
	f.boundary = boundary
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		p, err := reader.NextRawPart()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		value, err := io.ReadAll(p)
		if err != nil {
			return err
		}
		name := p.FormName()
		if p.FileName() != "" {
			name = ""
		}
		f.parts = append(f.parts, part{p.Header, name, value})
	}
}

func (f *form) part(name string) *part {
	for i := range f.parts {
		if f.parts[i].name == name {
			return &f.parts[i]
		}
	}
	return nil
}

func (f *form) get(name string) string {
	if p := f.query.find(name); p != nil {
		return p.value
	}
	if p := f.body.find(name); p != nil {
		return p.value
	}
	if p := f.part(name); p != nil {
		return string(p.value)
	}
	return ""
}

// set changes a parameter in its place; a new one goes to the place of app_id.
func (f *form) set(name, value string) {
	for _, at := range []string{name, "app_id"} {
		switch {
		case f.query.find(at) != nil:
			f.query.set(name, value)
			return
		case f.body.find(at) != nil:
			f.body.set(name, value)
			return
		case f.part(at) != nil:
			if p := f.part(name); p != nil {
				p.value = []byte(value)
				return
			}
			header := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + name + `"`}}
			f.parts = append(f.parts, part{header, name, []byte(value)})
			return
		}
	}
	f.query.set(name, value)
}

// names returns the distinct names.
func (f *form) names() []string {
	var all []string
	seen := make(map[string]bool)
	add := func(name string) {
		if name != "" && !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	for _, p := range f.query {
		add(p.name)
	}
	for _, p := range f.body {
		add(p.name)
	}
	for _, p := range f.parts {
		add(p.name)
	}
	return all
}

// close writes the parameters back into the request.
func (f *form) close(r *upstream.Request) error {
	r.Target = f.path
	if len(f.query) > 0 {
		r.Target += "?" + f.query.String()
	}
	switch {
	case f.encoded:
		r.Body = []byte(f.body.String())
	case f.parts != nil:
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		if err := w.SetBoundary(f.boundary); err != nil {
			return err
		}
		for _, p := range f.parts {
			to, err := w.CreatePart(p.header)
			if err != nil {
				return err
			}
			to.Write(p.value)
		}
		w.Close()
		r.Body = b.Bytes()
	}
	return nil
}

// pairs is an urlencoded text in its own order.
type pairs []pair

type pair struct{ raw, name, value string }

func parsePairs(s string) (pairs, error) {
	var all pairs
	if s == "" {
		return nil, nil
	}
	for raw := range strings.SplitSeq(s, "&") {
		name, value, _ := strings.Cut(raw, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, err
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, err
		}
		all = append(all, pair{raw, name, value})
	}
	return all, nil
}

func (p pairs) find(name string) *pair {
	for i := range p {
		if p[i].name == name {
			return &p[i]
		}
	}
	return nil
}

func (p *pairs) set(name, value string) {
	next := pair{url.QueryEscape(name) + "=" + url.QueryEscape(value), name, value}
	if old := p.find(name); old != nil {
		*old = next
		return
	}
	*p = append(*p, next)
}

func (p pairs) String() string {
	raw := make([]string, len(p))
	for i := range p {
		raw[i] = p[i].raw
	}
	return strings.Join(raw, "&")
}
