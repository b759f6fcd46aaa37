package server

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/access"
)

// An operation is one method and path of the admin API.
type operation struct {
	method, path string
	scope        access.Scope // that its caller needs
	handler      http.Handler
}

// A request is a request of an operation. Its body is an In of internal/api.
type request[In any] struct {
	*http.Request
	// responseHeader takes header fields of a successful response.
	responseHeader http.Header
}

// none is the body of an operation that takes none.
type none struct{}

// body parses the body. With an error, it returns the members that were read.
func (r request[In]) body() (In, error) {
	var in In
	err := readJSON(r.Body, &in)
	return in, err
}

// parseQuery returns the parameters of a request. It refuses unknown and repeated ones.
func parseQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be parsed")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, badRequest("parameter %q is unknown; %s", name, knownNames(known))
		}
		if len(values) > 1 {
			return nil, badRequest("parameter %q is there %d times; give it once", name, len(values))
		}
	}
	return q, nil
}

func knownNames(names []string) string {
	if len(names) == 0 {
		return "there are no parameters here"
	}
	return "there are: " + strings.Join(names, ", ")
}

// handle returns the HTTP handler of an operation. It reads the whole body within
// the API's bounds, and writes an Out of internal/api, or the error as a problem.
func handle[In, Out any](a *Admin, status int, do func(request[In]) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, release, err := readBody(w, r, a.maxBody, a.bodies.reserve)
		if err != nil {
			Refusal{}.write(w, asError(err), nil)
			return
		}
		defer release()
		r.Body = io.NopCloser(bytes.NewReader(body))
		out, err := do(request[In]{r, w.Header()})
		if err != nil {
			Refusal{}.write(w, asError(err), nil)
			return
		}
		writeJSON(w, status, out)
	})
}
