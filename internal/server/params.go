package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Param is a parameter of the query.
type Param struct {
	Name, Doc string
	Type      string   // string, integer, boolean or instant (RFC 3339)
	Enum      []string // values of a string; nil: any
	Repeated  bool     // it may be there several times
	Required  bool     // it must be there
	Prefix    bool     // Name begins the names of parameters
	Max       int      // of an integer from 1; its default is Default
	Default   int
}

// query returns the parameters of a request. It refuses unknown ones, repeated ones and
// values that are none.
func (op *Operation) query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be parsed")
	}
	f := &faults{}
	for name, values := range q {
		i := slices.IndexFunc(op.Params, func(p Param) bool {
			return p.Name == name && !p.Prefix || p.Prefix && len(name) > len(p.Name) && strings.HasPrefix(name, p.Name)
		})
		if i < 0 {
			f.param(name, "parameter %q is unknown; %s", name, op.knownParams())
			continue
		}
		p := op.Params[i]
		if len(values) > 1 && !p.Repeated {
			f.param(name, "parameter %q is there %d times; give it once", name, len(values))
		}
		for _, v := range values {
			if fault := p.fault(v); fault != "" {
				f.param(name, "%s", fault)
			}
		}
	}
	for _, p := range op.Params {
		if p.Required && q.Get(p.Name) == "" {
			f.param(p.Name, "parameter %q is missing", p.Name)
		}
	}
	return q, f.err()
}

func (op *Operation) knownParams() string {
	var names []string
	for _, p := range op.Params {
		if p.Prefix {
			p.Name += "NAME"
		}
		names = append(names, p.Name)
	}
	text := "there are no parameters here"
	if len(names) > 0 {
		text = "there are: " + strings.Join(names, ", ")
	}
	if op.Prefers {
		text += "; to wait for the end of the call, send the header Prefer: wait=10"
	}
	return text
}

// fault returns the fault of a value, empty if there is none.
func (p *Param) fault(value string) string {
	switch {
	case p.Type == "integer":
		if n, err := strconv.Atoi(value); err != nil || n < 1 || n > p.Max {
			return fmt.Sprintf("%s %q is not a whole number from 1 to %d", p.Name, value, p.Max)
		}
	case p.Type == "boolean":
		if value != "true" && value != "false" {
			return fmt.Sprintf("%s %q must be true or false", p.Name, value)
		}
	case p.Type == "instant" && !parsedInstant(value):
		return fmt.Sprintf("%s %q is not an instant of RFC 3339 such as 2026-11-21T09:00:00Z", p.Name, value)
	case p.Enum != nil && !slices.Contains(p.Enum, value):
		return fmt.Sprintf("%s %q is unknown; there are %s", p.Name, value, strings.Join(p.Enum, ", "))
	}
	return ""
}

// number returns the value of an integer.
func (op *Operation) number(q url.Values, name string) int {
	if n, err := strconv.Atoi(q.Get(name)); err == nil {
		return n
	}
	i := slices.IndexFunc(op.Params, func(p Param) bool { return p.Name == name })
	return op.Params[i].Default
}
