// Package fieldname finds the names of fields that are spelt otherwise than net/http spells them. The keys of an [http.Header]
// are canonical, and some old servers look for names such as SOAPAction in one spelling only: RFC 9110, section 5.1, lets them
// be in any case.
package fieldname

import (
	"bytes"
	"net/http"
)

// Others returns the names of the fields in a head that differ from [http.CanonicalHeaderKey]; nil if none does. The first line has none,
// nor have lines that go on a field.
func Others(head []byte) (names []string) {
	head = head[bytes.IndexByte(head, '\n')+1:]
	for {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			return names
		}
		line := head[:end]
		head = head[end+1:]
		if n := canonicalLength(line); n < len(line) && line[n] != ':' {
			if n = bytes.IndexByte(line, ':'); n > 0 && line[0] != ' ' && line[0] != '\t' {
				if name := string(line[:n]); http.CanonicalHeaderKey(name) != name {
					names = append(names, name)
				}
			}
		}
	}
}

// canonicalLength returns the length of the canonical name at the begin of a line, at least as far as it is one.
func canonicalLength(line []byte) (n int) {
	upper := true
	for n < len(line) {
		switch c := line[n]; {
		case c == '-':
			upper = true
		case upper && 'A' <= c && c <= 'Z', !upper && 'a' <= c && c <= 'z':
			upper = false
		case '0' <= c && c <= '9':
			upper = false
		default:
			return n
		}
		n++
	}
	return n
}
