package upstream

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	pathpkg "path"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
)

// An answer holds the parts of a response that rules read. It belongs to one goroutine.
type answer struct {
	status  int
	header  http.Header
	body    []byte  // the inspected beginning, decoded
	partial bool    // the body goes on
	why     unclear // the body cannot be read; empty if it can
	failure string  // error of a missing answer; see Rule.When
	sent    bool
	strict  bool // a member that a partial body does not show is an error, whatever the status

	kind bodyKind
}

// Reasons why a body of an answer has no members.
const (
	errCut    = unclear("the answer's body is cut off")
	errUnseen = unclear("the answer's body goes on after the bytes that were read (inspect)")
)

// newAnswer returns an answer with the first bytes of its body, of which up to max are decoded.
func newAnswer(status int, header http.Header, body []byte, truncated bool, max int64) *answer {
	a := &answer{status: status, header: header, sent: true}
	a.body, a.partial, a.why = decoded(header, body, truncated, max)
	return a
}

// bodyKind is the format of a body.
type bodyKind uint8

const (
	unseen bodyKind = iota
	isJSON
	isXML
	isDeep // JSON that is nested too deep to be read
	isCut  // the beginning of a JSON text, and no more
	isOther
)

func (a *answer) bodyKind() bodyKind {
	if a.kind != unseen {
		return a.kind
	}
	start := a.start()
	switch {
	case bytes.HasPrefix(start, []byte("<")):
		a.kind = isXML
	case tooDeep(start):
		a.kind = isDeep
	case a.partial && opens(start), gjson.ValidBytes(start):
		a.kind = isJSON
	case opens(start) && cut(start):
		a.kind = isCut
	default:
		a.kind = isOther
	}
	return a.kind
}

// remaining returns what the fields say is left of a quota, nil if they say nothing.
func (a *answer) remaining() any {
	if n, known := retryafter.Remaining(a.header); known {
		return n
	}
	return nil
}

// start returns the body from its first character.
func (a *answer) start() []byte { return bytes.TrimLeft(withoutMark(a.body), " \t\r\n") }

// cut reports whether a text is the beginning of a JSON text.
func cut(text []byte) bool {
	var value json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(text)).Decode(&value), io.ErrUnexpectedEOF)
}

// empty reports whether the answer has no body.
func (a *answer) empty() bool {
	return a.why == "" && !a.partial && len(a.start()) == 0
}

// whole reports whether all of the body was read, and is a JSON object or array, or an XML
// document that is no HTML page.
func (a *answer) whole() bool {
	switch {
	case a.why != "" || a.partial:
		return false
	case a.bodyKind() == isJSON:
		return opens(a.start())
	}
	return a.bodyKind() == isXML && isDocument(a.body)
}

// value returns the value at a path of the body, nil if there is none. The error is that of a body
// that cannot be read. A body that goes on may have the member further on: above status 299 it is
// an error that it was not read, since the answer to a call that fails is short.
func (a *answer) value(path string) (any, error) {
	if a.why != "" {
		return nil, a.why
	}
	var v any
	switch a.bodyKind() {
	case isDeep:
		return nil, errDeep
	case isCut:
		return nil, errCut
	case isJSON:
		v = a.member(path)
	case isXML:
		var open bool
		if v, open = xmlValue(a.body, path); open && !a.partial {
			return nil, errCut
		}
	}
	if v == nil && a.partial && (a.strict || a.status >= 300) {
		return nil, errUnseen
	}
	return v, nil
}

// member returns the value at a path of a JSON body. At the end of a body that goes on, a value may
// go on too, so it is not seen.
func (a *answer) member(path string) any {
	v := gjson.GetBytes(a.body, path)
	if a.partial && v.Exists() && (v.Index == 0 || v.Index+len(v.Raw) >= len(a.body)) {
		return nil
	}
	return exact(v)
}

// isDocument reports whether a text is one whole XML document, and no HTML page.
func isDocument(text []byte) bool {
	d := xmlDecoder(text)
	d.Strict = true
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		if err != nil {
			return err == io.EOF && roots == 1
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth == 1 {
				roots++
				if strings.EqualFold(t.Name.Local, "html") {
					return false
				}
			}
		case xml.EndElement:
			depth--
		}
	}
}

// xmlDecoder returns a decoder of a text in any encoding. Names and codes are ASCII in every
// encoding that platforms use; other bytes of a text that is not UTF-8 are replaced.
func xmlDecoder(text []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(withoutMark(text)))
	d.Strict = false
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return ascii{r}, nil }
	return d
}

// xmlValue returns the text of the first element at a path of element names from
// the root, such as xml.err_code; nil if there is none. A * in a name stands for
// any characters, and a last name @id is an attribute. Open is true if the text ends within an
// element of the path.
func xmlValue(text []byte, path string) (value any, open bool) {
	names := strings.Split(path, ".")
	attribute := ""
	if last := names[len(names)-1]; strings.HasPrefix(last, "@") {
		attribute, names = last[1:], names[:len(names)-1]
	}
	d := xmlDecoder(text)
	depth, matched := 0, 0 // matched: number of names that the open elements match
	var found strings.Builder
	for {
		token, err := d.Token()
		if err != nil {
			return nil, matched > 0
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; matched == depth-1 && matched < len(names) && nameMatches(names[matched], t.Name.Local) {
				matched++
			}
			if attribute != "" && matched == len(names) && depth == matched {
				for _, a := range t.Attr {
					if a.Name.Local == attribute {
						return a.Value, false
					}
				}
			}
		case xml.CharData:
			if depth == len(names) && matched == depth {
				found.Write(t)
			}
		case xml.EndElement:
			if depth == len(names) && matched == depth && attribute == "" {
				return strings.TrimSpace(found.String()), false
			}
			depth--
			matched = min(matched, depth)
		}
	}
}

func nameMatches(pattern, name string) bool {
	ok, err := pathpkg.Match(pattern, name)
	return ok && err == nil
}

// ascii reads a text with a ? for each byte that is not ASCII.
type ascii struct{ io.Reader }

func (r ascii) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	for i, c := range p[:n] {
		if c >= 0x80 {
			p[i] = '?'
		}
	}
	return n, err
}
