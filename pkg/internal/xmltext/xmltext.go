// Package xmltext reads the XML of requests. Limits count, and signers sign, the request
// that the platform reads. So it reads only XML that all parsers read alike: UTF-8, without a
// document type and its entities, comments and processing instructions, and with the text of
// an element in one piece.
package xmltext

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Bounds of a text.
const (
	MaxDepth    = 100
	MaxElements = 10_000
)

// Reasons why a text is not read. They hold none of its values.
var (
	errBroken = errors.New("the XML cannot be parsed, or is not UTF-8")
	errLarge  = fmt.Errorf("the XML has more than %d elements, or is nested deeper than %d levels", MaxElements, MaxDepth)
	errMarkup = errors.New("the XML has a document type, a comment or a processing instruction, which servers read in several ways")
	errPieces = errors.New("the XML has an element with several pieces of text, or with text beside elements, which servers read in several ways")
)

// An Element is an element of a text.
type Element struct {
	Name     string // with its prefix, as it is written
	Text     string // unescaped; empty if there are Elements
	Elements []*Element
	From, To int // its bytes in the text
}

// Read returns the root element of a text, which may begin with a byte order mark.
func Read(text []byte) (*Element, error) {
	start := len(text) - len(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if !utf8.Valid(text) {
		return nil, errBroken
	}
	r := reader{d: xml.NewDecoder(bytes.NewReader(text[start:])), start: start}
	for first := true; ; first = false {
		from := r.offset()
		token, err := r.d.RawToken()
		switch {
		case err == io.EOF && len(r.open) == 0 && r.root != nil:
			return r.root, nil
		case err != nil: // also in another encoding
			return nil, errBroken
		}
		if err := r.add(token, from, first); err != nil {
			return nil, err
		}
	}
}

type reader struct {
	d     *xml.Decoder
	start int // length of the byte order mark
	root  *Element
	open  []*openElement
	count int
}

// An openElement is an element whose end tag has not been read.
type openElement struct {
	*Element
	text    []byte
	hasText bool // more than white space
}

func (r *reader) offset() int { return r.start + int(r.d.InputOffset()) }

// innermost returns the innermost open element, nil if there is none.
func (r *reader) innermost() *openElement {
	if len(r.open) == 0 {
		return nil
	}
	return r.open[len(r.open)-1]
}

func (r *reader) add(token xml.Token, from int, first bool) error {
	switch t := token.(type) {
	case xml.StartElement:
		return r.begin(&Element{Name: qualified(t.Name), From: from})
	case xml.EndElement:
		e := r.innermost()
		if e == nil || e.Name != qualified(t.Name) {
			return errBroken
		}
		if len(e.Elements) == 0 {
			e.Text = string(e.text)
		}
		e.To, r.open = r.offset(), r.open[:len(r.open)-1]
		return nil
	case xml.CharData:
		return r.text(t)
	case xml.ProcInst:
		if first && t.Target == "xml" {
			return nil
		}
	}
	return errMarkup
}

func (r *reader) begin(e *Element) error {
	if r.count++; r.count > MaxElements || len(r.open) == MaxDepth {
		return errLarge
	}
	switch parent := r.innermost(); {
	case parent != nil && parent.hasText:
		return errPieces
	case parent != nil:
		parent.Elements = append(parent.Elements, e)
	case r.root != nil:
		return errBroken
	default:
		r.root = e
	}
	r.open = append(r.open, &openElement{Element: e})
	return nil
}

// text adds a piece. White space around a CDATA section is no piece of its own.
func (r *reader) text(piece []byte) error {
	hasText := len(bytes.TrimSpace(piece)) > 0
	e := r.innermost()
	switch {
	case e == nil && hasText:
		return errBroken
	case e == nil:
		return nil
	case hasText && (len(e.Elements) > 0 || e.hasText):
		return errPieces
	}
	e.text, e.hasText = append(e.text, piece...), e.hasText || hasText
	return nil
}

// qualified returns a name with its prefix, as it is written.
func qualified(name xml.Name) string {
	if name.Space == "" {
		return name.Local
	}
	return name.Space + ":" + name.Local
}
