package upstream

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/vm"

	"github.com/seed-30fe103d/throttler/pkg/internal/xmltext"
)

// An Input gives expressions the parts of a request: each part is parsed once,
// at its first use. It belongs to one goroutine.
//
// Limits must count the request that the platform reads. So a part that servers parse in
// several ways is an error, and so is a value that is there twice, or under another
// spelling of its name: some platforms take the first, others the last, and some ignore
// the case of names.
type Input struct {
	r     *Request
	paths *paths
	query *params
	form  *params
	json  *document
	xml   *xmlDocument
	key   string // that Idempotency names; empty for none

	reply *answer   // to the request; nil for none
	up    *Upstream // of the reply

	env     any   // see variables; nil before their first use
	machine vm.VM // runs one expression after the other
}

// NewInput returns the Input of a request.
func NewInput(r *Request) *Input { return &Input{r: r} }

// variables returns the variables of request expressions, a requestEnv.
func (in *Input) variables() any {
	if in.env == nil {
		in.env = requestEnv{
			Method:  in.r.Method,
			Path:    in.path,
			Segment: in.segment,
			Query:   in.queryParam,
			Form:    in.formParam,
			Param:   in.Param,
			Header:  in.header,
			JSON:    in.jsonValue,
			XML:     in.xmlValue,
		}
	}
	return in.env
}

func (in *Input) answer(a *answer) answerEnv {
	env := answerEnv{requestEnv: in.variables().(requestEnv), Status: a.status, Body: a.value, Error: a.failure, Sent: a.sent, Repeat: in.r.Repeat, Keyed: in.key != ""}
	env.Header = func(name string) (string, error) { return a.header.Get(name), nil }
	env.Remaining = a.remaining
	return env
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
	if respelled(in.json.text, path) {
		return nil, errSpelling
	}
	return jsonValue(in.json.text, path), nil
}

// xmlValue returns the text of the element at a path of an XML body, nil if there is none.
func (in *Input) xmlValue(path string) (any, error) {
	root, err := in.xmlRoot()
	if root == nil {
		return nil, err
	}
	return elementText(root, path)
}

// xmlRoot returns the root element of an XML body, nil if the body is no XML.
func (in *Input) xmlRoot() (*xmltext.Element, error) {
	if in.xml == nil {
		in.xml = readXML(in.r)
	}
	return in.xml.root, in.xml.err
}

// field returns a parameter, or the value at a JSON path, as text; empty if there is none.
func (in *Input) field(name string) string {
	if v, err := in.Param(name); err == nil && v != "" {
		return v
	}
	v, err := in.jsonValue(name)
	if err != nil || v == nil {
		return ""
	}
	return fmt.Sprint(v)
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
