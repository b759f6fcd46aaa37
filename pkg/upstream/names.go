package upstream

import (
	"net/http"
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

// AnswerNames returns the names of an answer's fields as the upstream has spelt them over HTTP/1.1, where they differ from the keys of its
// header; nil if none does, for a head of more than 8 KiB, and for an answer that was stored.
func AnswerNames(resp *http.Response) []string { return h1.Names(resp) }

// Canonical returns a header with the keys of [http.CanonicalHeaderKey], and the names of the fields whose keys were spelt
// otherwise, nil if there are none: then the header is h itself. Several spellings of one name are one field, and the first of the
// names counts.
func Canonical(h http.Header) (canonical http.Header, names []string) {
	for name := range h {
		if http.CanonicalHeaderKey(name) != name {
			names = append(names, name)
		}
	}
	if names == nil {
		return h, nil
	}
	slices.Sort(names) // the order of a map is none
	canonical = make(http.Header, len(h))
	for name, values := range h {
		if http.CanonicalHeaderKey(name) == name {
			canonical[name] = slices.Clip(values)
		}
	}
	for _, name := range names {
		key := http.CanonicalHeaderKey(name)
		canonical[key] = slices.Clip(append(canonical[key], h[name]...))
	}
	return canonical, names
}

// Spelt returns a header with the fields of h under names of their own, where names has some. It is h itself if no name is one
// of its fields, and shares its values else.
func Spelt(h http.Header, names []string) http.Header {
	copied := false
	for _, name := range names {
		key := http.CanonicalHeaderKey(name)
		values, there := h[key]
		if !there || key == name {
			continue
		}
		if !copied {
			own := make(http.Header, len(h))
			for key, values := range h {
				own[key] = values
			}
			h, copied = own, true
		}
		delete(h, key)
		h[name] = values
	}
	return h
}
