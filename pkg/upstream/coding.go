package upstream

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Content codings of answers (RFC 9110, section 8.4.1; RFC 7932 for br, RFC 8878 for zstd). The
// bytes that pass to the client are never changed.

const (
	// maxCodings bounds the codings of one body.
	maxCodings = 5
	// maxZstdWindow is the greatest window of zstd as a coding (RFC 9659). That of br is 16 MiB.
	maxZstdWindow = 8 << 20
)

// A coder returns a reader of a coded text.
type coder func(coded []byte) (io.Reader, error)

// coders are the codings that are read, by their names in small letters.
var coders = map[string]coder{
	"gzip":    ungzip,
	"x-gzip":  ungzip, // the same (RFC 9110, section 8.4.1.3)
	"deflate": inflate,
	"br":      func(coded []byte) (io.Reader, error) { return brotli.NewReader(bytes.NewReader(coded)), nil },
	"zstd": func(coded []byte) (io.Reader, error) {
		return zstd.NewReader(bytes.NewReader(coded), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	},
}

func ungzip(coded []byte) (io.Reader, error) { return gzip.NewReader(bytes.NewReader(coded)) }

// inflate reads deflate with or without the header of zlib: RFC 9110, section 8.4.1.2, wants it,
// and notes that some servers leave it out.
func inflate(coded []byte) (io.Reader, error) {
	if len(coded) >= 2 && coded[0]&0x0f == 8 && (int(coded[0])<<8|int(coded[1]))%31 == 0 {
		return zlib.NewReader(bytes.NewReader(coded))
	}
	return flate.NewReader(bytes.NewReader(coded)), nil
}

// decoded returns the first bytes of a body without its codings, up to max, and whether it goes
// on. Why is not empty if it cannot be read. No coding gets more than max bytes to decode, and none
// gives more.
func decoded(header http.Header, body []byte, truncated bool, max int64) (plain []byte, partial bool, why unclear) {
	names := codings(header)
	if len(names) == 0 || len(body) == 0 {
		return body, truncated, ""
	}
	if len(names) > maxCodings {
		return nil, truncated, unclear(fmt.Sprintf("the answer's body is in %d codings, and at most %d are read", len(names), maxCodings))
	}
	plain, partial = body, truncated
	other := ""
	for _, name := range slices.Backward(names) { // the last one was applied last
		c := coders[name]
		if c == nil {
			other = name
			continue
		}
		if plain, partial, why = decode(c, name, plain, partial, max); why != "" {
			return nil, truncated, why
		}
	}
	if other != "" && !isText(plain) {
		if len(other) > 20 || !token(other) {
			other = "with another name"
		}
		return nil, truncated, unclear("the answer's body is in a coding that is not read, " + other)
	}
	return plain, partial, ""
}

// codings returns the codings of a body in the order in which they were applied, in small letters.
func codings(header http.Header) (names []string) {
	for _, field := range header.Values("Content-Encoding") {
		for name := range strings.SplitSeq(field, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
				names = append(names, name)
			}
		}
	}
	return names
}

// isText reports whether a body under a name that is none of a known coding is plain text. Servers
// write charsets there, such as UTF-8 or GBK, none or binary; the bytes of a coding are no text.
func isText(body []byte) bool {
	if bytes.ContainsFunc(body, func(c rune) bool { return c < ' ' && c != '\t' && c != '\r' && c != '\n' }) {
		return false
	}
	return utf8.Valid(body) || opens(withoutMark(body)) || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// decode undoes one coding.
func decode(c coder, name string, coded []byte, truncated bool, max int64) (plain []byte, partial bool, why unclear) {
	broken := unclear("the answer's body is no valid " + name)
	defer func() { // a fault of a coder harms this answer alone
		if recover() != nil {
			plain, why = nil, broken
		}
	}()
	r, err := c(coded)
	if err == nil {
		if closer, ok := r.(interface{ Close() }); ok { // of zstd
			defer closer.Close()
		}
		plain, err = io.ReadAll(io.LimitReader(r, max+1)) // keeps the bytes before an error
	}
	cutOff := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case int64(len(plain)) > max:
		return plain[:max], true, ""
	case err == nil, cutOff && truncated:
		return plain, truncated, ""
	case cutOff:
		return nil, false, errCut
	}
	return nil, false, broken
}

// offer returns a request that offers no coding which is not read: an answer in such a coding could
// not be judged.
func offer(r *Request) *Request {
	for name, offers := range r.Header {
		if !strings.EqualFold(name, "Accept-Encoding") {
			continue
		}
		if narrow, changed := narrowed(offers); changed {
			other := *r // it shares all but the header
			other.Header = maps.Clone(r.Header)
			other.Header[name] = narrow
			r = &other
		}
	}
	return r
}

// narrowed returns the values of an Accept-Encoding without the codings that are not read, and
// whether there are any. An offer of all codings becomes one of gzip.
func narrowed(offers []string) (narrow []string, changed bool) {
	var kept []string
	for _, field := range offers {
		for offer := range strings.SplitSeq(field, ",") {
			offer = strings.TrimSpace(offer)
			name, weight, weighted := strings.Cut(offer, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			switch {
			case name == "":
			case name == "identity", coders[name] != nil, refused(weight):
				kept = append(kept, offer)
			default:
				changed = true
				if name != "*" || slices.ContainsFunc(offers, func(f string) bool { return strings.Contains(strings.ToLower(f), "gzip") }) {
					continue
				}
				if offer = "gzip"; weighted {
					offer += ";" + weight
				}
				kept = append(kept, offer)
			}
		}
	}
	if len(kept) == 0 {
		kept = []string{"identity"}
	}
	return []string{strings.Join(kept, ", ")}, changed
}

// refused reports whether the weight of an offer is 0: the coding is not wanted.
func refused(weight string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(weight), " ", ""), "q=")
	return ok && q != "" && strings.Trim(q, "0.") == ""
}
