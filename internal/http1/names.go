package http1

import (
	"bytes"
	"net/http"
)

// Names returns the names of a request's fields as its client has spelt them, where they differ from the keys of its Header, such
// as SOAPAction; nil if none does, and for a request of another server. It is for the handler.
func Names(r *http.Request) []string {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if c == nil {
		return nil
	}
	return c.names
}

// fieldNames returns the names of fields in a head, or in the part of it behind the first line, that differ from
// [http.CanonicalHeaderKey]. Lines that go on a field have none.
func fieldNames(head []byte) (names []string) {
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
