package upstream

import (
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the fields of RFC 9110, section 7.6.1, and those that describe the
// one connection that a request came by.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Host", "Expect",
}

// EndToEnd returns a copy of a header without what concerns one hop: the
// hop-by-hop fields, those that Connection names, and Throttler's own.
func EndToEnd(h http.Header) http.Header {
	out := h.Clone()
	if out == nil {
		out = make(http.Header)
	}
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	for name := range out {
		if strings.HasPrefix(name, "Throttler-") {
			delete(out, name)
		}
	}
	return out
}
