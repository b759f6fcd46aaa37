package upstream

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"github.com/tidwall/match"
)

// maxDepth bounds the nesting of JSON texts that are read. gjson recurses at each level,
// and the end of a goroutine's stack is the end of the process.
const maxDepth = 1000

// Reasons why JSON is not read.
var (
	errDeep  = unclear(fmt.Sprintf("nested deeper than %d levels", maxDepth))
	errTwice = unclear("a name occurs twice in a JSON object")

	errHalf     = unclear("in its charset a backslash, or a bracket, may be the second half of a character; send UTF-8")
	errSpelling = unclear("a name is there in another spelling only, such as in capitals")
)

// An unclear is the reason why an expression cannot be computed for a request. It holds
// no value of the request but the names of its media type and charset.
type unclear string

func (u unclear) Error() string { return string(u) }

// A document is the body of a request as JSON: its text, nil if it is none, or why it
// cannot be read.
type document struct {
	text []byte
	err  error
}

// readBody reads a body as JSON. RFC 8259, section 8.1, lets a platform ignore a byte
// order mark. A body that is not JSON, but begins like it or is said to be, may be JSON to
// the platform, such as up to its first fault.
func readBody(r *Request) *document {
	text := withoutMark(r.Body)
	kind, options, err := contentType(r)
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return &document{}
	case err != nil:
		return &document{err: err}
	case splits(options, text, '\\'):
		return &document{err: errHalf}
	case tooDeep(text):
		return &document{err: errDeep}
	case !utf8.Valid(text) || !gjson.ValidBytes(text): // a broken character is read in several ways
		if kind == urlencodedForm || kind == multipartForm || !opens(text) && !strings.HasSuffix(kind, "/json") && !strings.HasSuffix(kind, "+json") {
			return &document{}
		}
		return &document{err: unclear("the body is not valid JSON")}
	case ambiguous(text):
		return &document{err: errTwice}
	}
	return &document{text: text}
}

// respelled reports whether an object of a JSON text, on the way of a path, has a name
// that differs from the path's only in its case. Paths with more of gjson's syntax than
// names, indices and * are not looked at.
func respelled(text []byte, path string) bool {
	if strings.ContainsAny(path, `\|@{}[]()!"`) {
		return false
	}
	return differs(gjson.ParseBytes(text), strings.Split(path, "."))
}

func differs(value gjson.Result, path []string) (found bool) {
	if len(path) == 0 || !value.IsObject() && !value.IsArray() {
		return false
	}
	value.ForEach(func(name, member gjson.Result) bool {
		switch {
		case value.IsArray(), match.Match(name.String(), path[0]):
			found = differs(member, path[1:])
		default:
			found = match.Match(strings.ToLower(name.String()), strings.ToLower(path[0]))
		}
		return !found
	})
	return found
}

// jsonValue returns the value at a path of a JSON text, nil if there is none. A *
// in the path stands for any characters of a name.
func jsonValue(json []byte, path string) any { return exact(gjson.GetBytes(json, path)) }

// exact returns a value of a JSON text. No two whole numbers are one value.
func exact(v gjson.Result) any {
	switch {
	case v.IsObject():
		members := make(map[string]any)
		v.ForEach(func(name, member gjson.Result) bool {
			members[name.String()] = exact(member)
			return true
		})
		return members
	case v.IsArray():
		elements := []any{}
		v.ForEach(func(_, element gjson.Result) bool {
			elements = append(elements, exact(element))
			return true
		})
		return elements
	case v.Type == gjson.Number && !strings.ContainsAny(v.Raw, ".eE"):
		if n := v.Int(); v.Raw == fmt.Sprint(n) {
			return int(n)
		}
		return v.Raw // an int cannot hold it exactly
	}
	return v.Value()
}

// withoutMark returns a text without its byte order mark.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// opens reports whether a text begins like a JSON object or array.
func opens(text []byte) bool {
	start := bytes.TrimLeft(text, " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[')
}

// tooDeep reports whether a text is nested deeper than maxDepth.
func tooDeep(text []byte) bool {
	return !walk(text, func(int, []byte) bool { return true })
}

// ambiguous reports whether an object of a JSON text has a name twice: RFC 8259,
// section 4, leaves open which of the two counts. A path may lead through any object, so
// all of them are looked at.
func ambiguous(text []byte) bool {
	type member struct {
		object int
		name   string
	}
	seen := make(map[member]bool)
	return !walk(text, func(object int, quoted []byte) bool {
		m := member{object, string(quoted)}
		if bytes.ContainsRune(quoted, '\\') {
			m.name = `"` + gjson.ParseBytes(quoted).String() + `"`
		}
		twice := seen[m]
		seen[m] = true
		return !twice
	})
}

// walk calls f for each name in the objects of a text that begins like JSON, with the
// offset of its object, until f returns false. It returns false then, and where the text
// is nested deeper than maxDepth. It is one pass without recursion, and the rest of the
// text need not be valid.
func walk(text []byte, f func(object int, quoted []byte) bool) bool {
	if !opens(text) {
		return true
	}
	var open []int // offsets of objects and arrays
	var quoted []byte
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			from := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			quoted = text[from:min(i+1, len(text))]
		case ':':
			if len(open) > 0 && !f(open[len(open)-1], quoted) {
				return false
			}
		case '{', '[':
			if len(open) == maxDepth {
				return false
			}
			open = append(open, i)
		case '}', ']':
			open = open[:max(0, len(open)-1)]
		}
	}
	return true
}
