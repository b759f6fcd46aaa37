package upstream

import (
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// hopByHop are the fields of RFC 9110, section 7.6.1, and those that describe the
// one connection that a request came by.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Host", "Expect",
}

// EndToEnd returns a header without what concerns one hop: the hop-by-hop fields, those that
// Connection names, and Throttler's own. It shares the values of h.
func EndToEnd(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range Fields(h) {
		out[name] = values
	}
	return out
}

// Fields returns the fields that [EndToEnd] keeps, in no order.
func Fields(h http.Header) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		named := h["Connection"]
		for name, values := range h {
			if ofOneHop(name, named) {
				continue
			}
			if !yield(name, values) {
				return
			}
		}
	}
}

// ofOneHop reports whether a field concerns one hop; named are the values of Connection.
func ofOneHop(name string, named []string) bool {
	name = http.CanonicalHeaderKey(name) // a caller may have spelt it otherwise
	return slices.Contains(hopByHop, name) || strings.HasPrefix(name, "Throttler-") || listed(named, name)
}

// endToEnd reports whether all fields of a header go to the other end.
func endToEnd(h http.Header) bool {
	for name := range h {
		if ofOneHop(name, nil) { // Connection is one itself
			return false
		}
	}
	return true
}

// listed reports whether lists, such as those of Connection, name a field.
func listed(lists []string, field string) bool {
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(textproto.TrimString(name), field) {
				return true
			}
		}
	}
	return false
}
