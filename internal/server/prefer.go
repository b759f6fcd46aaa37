package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/quoted"
)

// submits reports whether a request asks to be submitted, by the preference respond-async: RFC 7240, 4.1.
func submits(h http.Header) bool {
	value, given := preference(h, "respond-async")
	return given && value == ""
}

// preference returns the value of a preference, empty if it has none: RFC 7240, 2. The first of a name counts.
func preference(h http.Header, name string) (value string, given bool) {
	for _, line := range h["Prefer"] {
		for _, p := range quoted.Split(line, ',') {
			if found, value := preferred(p); strings.EqualFold(found, name) {
				return value, true
			}
		}
	}
	return "", false
}

// preferred returns the name and the value of one preference, without its parameters.
func preferred(p string) (name, value string) {
	p, _, _ = quoted.Cut(p, ';')
	name, value, _ = quoted.Cut(p, '=')
	return strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)
}

// withoutAsync returns the fields Prefer for the platform of a submitted call, nil if nothing is left of them: without
// respond-async, and without wait, which says when an answer is to be 202 (RFC 7240, 4.3). A field that has neither
// stays as it is, and so does each other preference: they are independent of each other.
func withoutAsync(fields []string) (kept []string) {
	for _, line := range fields {
		all := quoted.Split(line, ',')
		rest := slices.DeleteFunc(slices.Clone(all), func(p string) bool {
			name, _ := preferred(p)
			return strings.EqualFold(name, "respond-async") || strings.EqualFold(name, "wait")
		})
		switch {
		case len(rest) == len(all):
			kept = append(kept, line)
		case slices.ContainsFunc(rest, func(p string) bool { return p != "" }):
			kept = append(kept, strings.Join(rest, ", "))
		}
	}
	return kept
}
