package upstream

import (
	"errors"
	"fmt"
	"mime"
	"regexp"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/quoted"
)

// asciiBelow matches charsets whose bytes below 0x80 are those of ASCII, by their names at IANA and in Java: a name or a value
// that a limit looks for is the same bytes in each of them. UTF-16, UTF-32, UTF-7, EBCDIC and the charsets that shift by
// escapes, such as ISO-2022-JP and HZ-GB-2312, are no such charsets.
var asciiBelow = regexp.MustCompile(`^(utf-?8|(us-)?ascii|iso[-_]?8859[-_][0-9]{1,2}|latin-?[0-9]{1,2}|(windows-|x-cp|cp)(125[0-8]|874|949)|` +
	`koi8-?(r|u|ru|t)|tis-?620|macintosh|(ibm|cp)866|euc[-_](kr|jp|tw|cn)|ks_c_5601-1987|ms949|` + halves + `)$`)

// asciiHalves matches those of them in which the second byte of a character may be that of a letter or of one of @[\]^_`{|}~. None
// of these parts the names and values of a form.
var asciiHalves = regexp.MustCompile(`^(` + halves + `)$`)

const halves = `gbk|gb[-_]?2312|gb18030|big5(-hkscs)?|shift[-_]jis|sjis|(windows-|cp|ms)(932|936|950)|windows-31j`

const errMedia = unclear("its Content-Type cannot be parsed")

// contentType returns the type of a body, empty if the request has none. A body that is
// compressed, or has another charset, is another one to servers that know the encoding.
func contentType(r *Request) (kind string, options map[string]string, err error) {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if !strings.EqualFold(coding, "identity") {
			return "", nil, unclear("the body has a Content-Encoding")
		}
	}
	kind, options, err = bodyType(r.Header.Values("Content-Type"))
	if charset := options["charset"]; err == nil && charset != "" && !asciiBelow.MatchString(strings.ToLower(charset)) {
		return "", nil, unclear(fmt.Sprintf("its charset %q is neither UTF-8 nor another one that is known to have the bytes of ASCII", printable(charset)))
	}
	return kind, options, err
}

// bodyType returns the media type of fields, each of which may hold several. Some clients send their type twice, once with a
// charset, and servers take the first or the last: both must be one type, with one charset (that of a type without one is UTF-8)
// and one boundary.
func bodyType(fields []string) (kind string, options map[string]string, err error) {
	var all []string
	for _, list := range fields {
		all = append(all, quoted.Split(list, ',')...)
	}
	for i, text := range all {
		one, with, err := mime.ParseMediaType(text)
		sloppy := errors.Is(err, mime.ErrInvalidMediaParameter)
		switch {
		case err != nil && !sloppy, sloppy && strings.Contains(strings.ToLower(text), "charset="):
			return "", nil, errMedia
		case i == 0:
			kind, options = one, with
		case one != kind:
			return "", nil, unclear(fmt.Sprintf("its Content-Type names two types, %q and %q", printable(kind), printable(one)))
		case with["boundary"] != options["boundary"], charsetName(with) != charsetName(options):
			return "", nil, unclear(fmt.Sprintf("its Content-Type names %q twice, with several charsets or boundaries", printable(kind)))
		case with["charset"] != "":
			options = with
		}
	}
	return kind, options, nil
}

func charsetName(options map[string]string) string {
	name := strings.ToLower(options["charset"])
	if name == "" || name == "utf8" || name == "us-ascii" {
		return "utf-8"
	}
	return name
}

// splits reports whether a byte of a text in a charset may be the second half of a character, and that byte itself to a server that
// reads the text as UTF-8.
func splits(options map[string]string, text []byte, b byte) bool {
	if !asciiHalves.MatchString(strings.ToLower(options["charset"])) {
		return false
	}
	for i := 1; i < len(text); i++ {
		if text[i] == b && text[i-1] >= 0x80 {
			return true
		}
	}
	return false
}
