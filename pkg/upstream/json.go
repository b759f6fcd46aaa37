package upstream

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// maxDepth bounds the nesting of JSON texts that are read. gjson recurses at each level,
// and the end of a goroutine's stack is the end of the process.
const maxDepth = 1000

var errDeep = unclear(fmt.Sprintf("nested deeper than %d levels", maxDepth))

// An unclear is the reason why an expression cannot be computed for a request. It holds
// no value of the request.
type unclear string

func (u unclear) Error() string { return string(u) }

// lookup returns the value at a path of a JSON text, nil if there is none. A *
// in the path stands for any characters of a name.
func lookup(json []byte, path string) (any, error) {
	if tooDeep(json) {
		return nil, errDeep
	}
	if !gjson.ValidBytes(json) {
		return nil, nil
	}
	return jsonValue(json, path), nil
}

func jsonValue(json []byte, path string) any {
	v := gjson.GetBytes(json, path)
	if v.Type == gjson.Number && !strings.ContainsAny(v.Raw, ".eE") {
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

// tooDeep reports whether a text, valid JSON or not, is nested deeper than maxDepth. It
// is one pass without recursion.
func tooDeep(text []byte) bool {
	if !opens(text) {
		return false
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth = max(0, depth-1)
		}
	}
	return false
}
