package upstream

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// A Request is the request of a call, without host and connection.
type Request struct {
	Method string
	// Target is the request target: path and query, escaped.
	Target string
	// Header has no Host, no Content-Length and no hop-by-hop fields; those that a
	// signer sets are not sent. Its keys are canonical: [Canonical].
	Header http.Header
	// Names are the names of fields as they go out over HTTP/1.1 where they are spelt otherwise than
	// the keys of Header, such as SOAPAction. HTTP/2 has lower case alone.
	Names []string
	Body  []byte
	// Latest, if not zero, is the end of the validity of the caller's signature:
	// no byte is sent later.
	Latest time.Time
	// Repeat is true if an earlier sending of the same call may have been executed.
	Repeat bool
	// Renewed is true if the last answer to the call was a 401, and the signer has renewed its
	// credentials since: a further 401 is judged as any answer. See [Renewer].
	Renewed bool
	// Revoked, if not nil, is set when another call ends this one. No byte is sent if it is
	// set before the request has its connection.
	Revoked *atomic.Bool
	// Allowed, if not nil, is asked when the request has its connection. No byte is sent if it is
	// false.
	Allowed func() bool
}

// Clone returns a deep copy.
func (r *Request) Clone() *Request {
	return &Request{r.Method, r.Target, r.Header.Clone(), slices.Clone(r.Names), bytes.Clone(r.Body), r.Latest, r.Repeat, r.Renewed, r.Revoked, r.Allowed}
}

// Check returns an error if the request cannot be sent.
func (r *Request) Check() error {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace || !token(r.Method):
		return fmt.Errorf("method %q is not forwarded", r.Method)
	case !strings.HasPrefix(r.Target, "/"):
		return fmt.Errorf("target %q must begin with a slash", printable(r.Target))
	case strings.HasPrefix(r.Target, "//"): // net/url, and many a server, takes it for a host
		return fmt.Errorf("target %q must begin with one slash, not with two", printable(r.Target))
	}
	path, _, _ := strings.Cut(r.Target, "?")
	for i := range len(r.Target) {
		if c := r.Target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return fmt.Errorf("target %q holds a control byte, a space or a #", printable(path))
		}
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return fmt.Errorf("path %q has a broken escape", printable(path))
	}
	for segment := range strings.FieldsFuncSeq(plain, func(c rune) bool { return c == '/' || c == '\\' }) {
		// Some servers drop path parameters before they resolve the segment.
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return fmt.Errorf("path %q has a %s segment", printable(path), name)
		}
	}
	if strings.ContainsFunc(plain, control) {
		return fmt.Errorf("path %q holds a control byte", printable(path))
	}
	for name, values := range r.Header {
		if !token(name) {
			return fmt.Errorf("header name %q is not a token", name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) { // RFC 9110, section 5.5
				return fmt.Errorf("header %s holds a line break or another control byte", name)
			}
		}
	}
	return nil
}

func control(c rune) bool { return c < ' ' || c == 0x7f }

func token(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// printable shortens a text for an error.
func printable(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return s
}
