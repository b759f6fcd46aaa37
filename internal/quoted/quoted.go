// Package quoted parts the values of HTTP fields at bytes that are in no quoted text: RFC 9110,
// section 5.6.4.
//
// [Split] returns the elements of a list, [Cut] what stands before and behind one byte. A quoted
// text without its end goes on to the end of the value. Both are safe for concurrent use.
package quoted

import "strings"

// Split returns the parts of s between the bytes at, without white space around them. It returns one
// empty part for an empty s.
func Split(s string, at byte) (parts []string) {
	for more := true; more; {
		var part string
		part, s, more = Cut(s, at)
		parts = append(parts, strings.TrimSpace(part))
	}
	return parts
}

// Cut is [strings.Cut] at a byte that is in no quoted text.
func Cut(s string, at byte) (before, after string, found bool) {
	in := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case in && c == '\\':
			i++
		case c == '"':
			in = !in
		case c == at && !in:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
