package upstream

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/tidwall/match"

	"github.com/seed-30fe103d/throttler/pkg/internal/xmltext"
)

const (
	errTwiceElement = unclear("an element occurs twice")
	errElements     = unclear("the element of a text has elements")
)

// An xmlDocument is the body of a request as XML: its root, nil if the body is no XML, or
// the reason why it cannot be read.
type xmlDocument struct {
	root *xmltext.Element
	err  error
}

// readXML reads a body as XML. Some clients send XML as a form, so that the Content-Type
// decides only about a body that does not begin like XML.
func readXML(r *Request) *xmlDocument {
	text := bytes.TrimSpace(withoutMark(r.Body))
	kind, options, err := contentType(r)
	switch {
	case len(text) == 0:
		return &xmlDocument{}
	case err != nil:
		return &xmlDocument{err: err}
	case splits(options, text, ']'): // it may end a CDATA section
		return &xmlDocument{err: errHalf}
	case text[0] != '<' && !strings.HasSuffix(kind, "/xml") && !strings.HasSuffix(kind, "+xml"):
		return &xmlDocument{}
	}
	root, err := xmltext.Read(text)
	if err != nil {
		return &xmlDocument{err: unclear(err.Error())}
	}
	return &xmlDocument{root: root}
}

// elementText returns the text of the element at a path of names below the root, nil if
// there is none. A * in a name stands for any characters. As in a form, an element that is
// there twice on the way, or in another spelling, is an error.
func elementText(e *xmltext.Element, path string) (any, error) {
	for name := range strings.SplitSeq(path, ".") {
		var found *xmltext.Element
		for _, child := range e.Elements {
			if !match.Match(local(child.Name), local(name)) {
				continue
			}
			if found != nil {
				return nil, errTwiceElement
			}
			found = child
		}
		if found == nil {
			return nil, nil
		}
		if !match.Match(found.Name, name) {
			return nil, errSpelling
		}
		e = found
	}
	if len(e.Elements) > 0 {
		return nil, errElements
	}
	return strings.TrimSpace(e.Text), nil
}

// canonical returns a text of an element that is equal for equal elements only.
func canonical(e *xmltext.Element) string {
	if len(e.Elements) == 0 {
		return fmt.Sprintf("%s %q", e.Name, strings.TrimSpace(e.Text))
	}
	inside := make([]string, len(e.Elements))
	for i, child := range e.Elements {
		inside[i] = canonical(child)
	}
	return fmt.Sprintf("%s %q", e.Name, inside)
}

// local returns the part of an element's name that all its spellings share: some servers
// drop the prefix.
func local(name string) string { return loose(name[strings.LastIndexByte(name, ':')+1:]) }

// toXML writes an object as XML with the root xml: its members sorted by name, without
// empty ones.
var toXML = expr.Function("toXML", func(params ...any) (any, error) {
	object := params[0].(map[string]any)
	var b strings.Builder
	b.WriteString("<xml>")
	for _, name := range slices.Sorted(maps.Keys(object)) {
		v := object[name]
		if v == nil || v == "" {
			continue
		}
		if !elementName(name) {
			return nil, fmt.Errorf("%q is no name of an element", name)
		}
		b.WriteString("<" + name + ">")
		xml.EscapeText(&b, []byte(fmt.Sprint(v))) // a Builder has no errors
		b.WriteString("</" + name + ">")
	}
	b.WriteString("</xml>")
	return b.String(), nil
}, new(func(map[string]any) string))

// elementName reports whether a name of ASCII characters can be that of an element.
func elementName(name string) bool {
	for i, c := range name {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || !('0' <= c && c <= '9') && c != '-' && c != '.') {
			return false
		}
	}
	return name != ""
}
