package upstream

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	pathpkg "path"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
)

// An answer holds the parts of a response that rules read. It belongs to one goroutine.
type answer struct {
	status  int
	header  http.Header
	body    []byte // the inspected beginning
	partial bool   // the body goes on
	failure string // error of a missing answer; see Rule.When
	sent    bool

	kind bodyKind
}

// bodyKind is the format of a body.
type bodyKind uint8

const (
	unseen bodyKind = iota
	isJSON
	isXML
	isDeep // JSON that is nested too deep to be read
	isOther
)

// unreadable says why the rules cannot read the body; empty if they can.
func (a *answer) unreadable() string {
	switch encoding := a.header.Get("Content-Encoding"); {
	case a.body == nil && a.partial && encoding != "":
		return "packed as " + strconv.Quote(encoding)
	case a.bodyKind() == isDeep:
		return errDeep.Error()
	}
	return ""
}

func (a *answer) bodyKind() bodyKind {
	if a.kind != unseen {
		return a.kind
	}
	start := bytes.TrimLeft(withoutMark(a.body), " \t\r\n")
	switch {
	case bytes.HasPrefix(start, []byte("<")):
		a.kind = isXML
	case tooDeep(start):
		a.kind = isDeep
	case a.partial && opens(start), gjson.ValidBytes(start):
		a.kind = isJSON
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

// value returns the value at a path of the body, nil if there is none.
func (a *answer) value(path string) any {
	switch a.bodyKind() {
	case isJSON:
		return jsonValue(a.body, path)
	case isXML:
		return xmlValue(a.body, path)
	}
	return nil
}

// xmlValue returns the text of the first element at a path of element names from
// the root, such as xml.err_code; nil if there is none. A * in a name stands for
// any characters, and a last name @id is an attribute.
func xmlValue(text []byte, path string) any {
	names := strings.Split(path, ".")
	attribute := ""
	if last := names[len(names)-1]; strings.HasPrefix(last, "@") {
		attribute, names = last[1:], names[:len(names)-1]
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false
	// Names and codes are ASCII in every encoding that platforms use; other bytes
	// of a text that is not UTF-8 are replaced.
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return ascii{r}, nil }
	depth, matched := 0, 0 // matched: number of names that the open elements match
	var found strings.Builder
	for {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; matched == depth-1 && matched < len(names) && nameMatches(names[matched], t.Name.Local) {
				matched++
			}
			if attribute != "" && matched == len(names) && depth == matched {
				for _, a := range t.Attr {
					if a.Name.Local == attribute {
						return a.Value
					}
				}
			}
		case xml.CharData:
			if depth == len(names) && matched == depth {
				found.Write(t)
			}
		case xml.EndElement:
			if depth == len(names) && matched == depth && attribute == "" {
				return strings.TrimSpace(found.String())
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
