package upstream

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/vm"
)

const (
	errEscape   = unclear("its path has a broken escape")
	errReadings = unclear("its path has a double or escaped slash, a backslash or a semicolon, and gives another value to servers that read it otherwise")
)

// A reading is the way in which a server reads a path. Servers take an escaped slash for a part of a segment (RFC 3986, 2.2) or
// for a slash, a backslash for itself or for a slash, several slashes for themselves or for one, and keep the parameters of a
// segment, or cut them at the semicolon before they unescape the path, or after.
type reading struct {
	slashes, backslashes, merged bool
	cut                          cutting
}

type cutting uint8

const (
	noCut cutting = iota
	cutFirst
	cutLast
)

// readings are all of them; the first is that of RFC 3986.
var readings = func() (all []reading) {
	for _, slashes := range []bool{false, true} {
		for _, backslashes := range []bool{false, true} {
			for _, merged := range []bool{false, true} {
				for _, cut := range []cutting{noCut, cutFirst, cutLast} {
					all = append(all, reading{slashes, backslashes, merged, cut})
				}
			}
		}
	}
	return all
}()

// A readPath is a path in a reading, in one spelling: the characters of RFC 3986, section 3.3, are plain, and all others escaped in
// upper case.
type readPath struct {
	whole string
	parts string // with its escaped slashes as parts of their segments
}

func (r reading) of(raw string) readPath {
	apart := r
	apart.slashes = false
	return readPath{r.path(raw), apart.path(raw)}
}

// paths are the readings of a request's path, each once.
type paths struct {
	all  []readPath // that of RFC 3986 first
	at   int        // index of the one that an expression sees
	seen bool       // by the expression that runs
	err  error
}

// readPaths returns the readings of the path of a target.
func readPaths(target string) *paths {
	path, _, _ := strings.Cut(target, "?")
	plain, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return &paths{err: errEscape}
	case !strings.Contains(plain, "//") && strings.Count(plain, "/") == strings.Count(path, "/") && !strings.ContainsAny(plain, `;\`):
		return &paths{all: []readPath{readings[0].of(path)}}
	}
	p := &paths{}
	for _, r := range readings {
		if one := r.of(path); !slices.Contains(p.all, one) {
			p.all = append(p.all, one)
		}
	}
	return p
}

// escapedSlash stands for an escaped slash that is a part of its segment.
const escapedSlash rune = -1

// path returns a path, whose escapes are whole, as the server reads it.
func (r reading) path(raw string) string {
	var read []rune // bytes, and escapedSlash
	cutting := false
	for i := 0; i < len(raw); i++ {
		c, escaped := rune(raw[i]), false
		if c == '%' {
			c, escaped = rune(hexByte(raw[i+1:i+3])), true
			i += 2
		}
		if c == '\\' && r.backslashes {
			c = '/'
		} else if c == '/' && escaped && !r.slashes {
			c = escapedSlash
		}
		switch {
		case c == ';' && (r.cut == cutLast || r.cut == cutFirst && !escaped):
			cutting = true
		case c == '/' && (r.cut == cutLast || !escaped):
			cutting = false
		}
		if !cutting && !(r.merged && c == '/' && len(read) > 0 && read[len(read)-1] == '/') {
			read = append(read, c)
		}
	}
	var one strings.Builder
	for _, c := range read {
		switch {
		case c == escapedSlash:
			one.WriteString("%2F")
		case isPathByte(byte(c)):
			one.WriteByte(byte(c))
		default:
			fmt.Fprintf(&one, "%%%02X", c)
		}
	}
	return one.String()
}

// hexByte returns the byte of two hexadecimal digits.
func hexByte(digits string) byte {
	b, _ := strconv.ParseUint(digits, 16, 8)
	return byte(b)
}

func isPathByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/-._~!$&'()*+,;=:@", c) >= 0
}

// path returns the path in the reading that an expression is to see.
func (in *Input) path() (string, error) {
	p := in.pathReadings()
	p.seen = true
	if p.err != nil {
		return "", p.err
	}
	return p.all[p.at].whole, nil
}

// segment returns the n-th segment of the path, unescaped, for platforms that part the path at its slashes before they unescape it:
// an escaped slash is a part of its segment. It is empty behind the last one.
func (in *Input) segment(n int) (string, error) {
	p := in.pathReadings()
	p.seen = true
	switch {
	case p.err != nil:
		return "", p.err
	case n < 1:
		return "", unclear("a path has no segment below 1")
	}
	segments := strings.Split(p.all[p.at].parts, "/")
	if n >= len(segments) {
		return "", nil
	}
	return url.PathUnescape(segments[n])
}

func (in *Input) pathReadings() *paths {
	if in.paths == nil {
		in.paths = readPaths(in.r.Target)
	}
	return in.paths
}

// run runs a program over the variables of env. Its value must be the same in each reading of the path: else a limit might count
// another request than the platform executes.
func (in *Input) run(program *vm.Program, env any) (any, error) {
	if in.paths != nil {
		in.paths.seen = false
	}
	v, err := in.machine.Run(program, env)
	if in.paths == nil || !in.paths.seen || err != nil && !absent(err) {
		return v, err
	}
	defer func() { in.paths.at = 0 }()
	for in.paths.at = 1; in.paths.at < len(in.paths.all); in.paths.at++ {
		other, failed := in.machine.Run(program, env)
		if failed != nil && !absent(failed) || !reflect.DeepEqual(orFalse(other, failed), orFalse(v, err)) {
			return nil, errReadings
		}
	}
	return v, err
}

// orFalse returns the value of a run: an absent value leaves a condition false.
func orFalse(v any, err error) any {
	if err != nil {
		return false
	}
	return v
}
