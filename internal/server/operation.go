package server

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// An Operation is one method and path of the admin API. Its routes, the checks of its
// parameters and its documentation are made from it.
type Operation struct {
	Method, Path string
	ID           string
	Summary      string
	// Doc says more about it; it may be empty.
	Doc   string
	Scope access.Scope // that a caller needs
	Probe bool         // it is on the monitor's listener too, for every client
	// Replica: each replica of a fleet does it, also one that does not have the calls.
	Replica bool
	Params  []Param
	// Prefers: the header Prefer: wait=10 waits for the end of the call.
	Prefers bool
	// In and Out are examples of the bodies, of types of internal/api. In is nil if the
	// operation takes no body, Out if its answer is not JSON.
	In, Out any
	// Optional: the body may be left out.
	Optional bool
	// Lines: the bodies are NDJSON, and In and Out have examples of their lines.
	Lines  bool
	Status int    // of a success
	Media  string // of an answer that is not JSON

	serve func(*Admin, *Operation) http.Handler
	most  int64 // bytes of the body; 0: those of a submission
}

// handles returns an operation whose bodies are an In and an Out of internal/api. The
// whole body is read within the API's bounds; an error is answered as a problem.
func handles[In, Out any](op Operation, in In, out Out, do func(*Admin, request[In]) (Out, error)) Operation {
	if _, empty := any(in).(none); !empty {
		op.In = in
	}
	op.Out = out
	op.serve = func(a *Admin, op *Operation) http.Handler {
		return inBounds(a, op, func(w http.ResponseWriter, r request[In]) error {
			out, err := do(a, r)
			if err != nil {
				return err
			}
			return answer(w, r.Request, op.Status, out)
		})
	}
	return op
}

// lines returns an operation whose bodies have an In and an Out on each line. The answer comes
// when all of it is there.
func lines[In, Out any](op Operation, in []In, out []Out, do func(*Admin, request[In]) ([]Out, error)) Operation {
	op.In, op.Out, op.Lines, op.most = in, out, true, maxBatchBytes
	op.serve = func(a *Admin, op *Operation) http.Handler {
		return inBounds(a, op, func(w http.ResponseWriter, r request[In]) error {
			out, err := do(a, r)
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", ndjson)
			w.WriteHeader(op.Status)
			for _, line := range out {
				encodeJSON(w, line)
			}
			return nil
		})
	}
	return op
}

// streams returns an operation that writes its answer itself. Errors are from before the
// answer.
func streams(op Operation, do func(*Admin, http.ResponseWriter, request[none]) error) Operation {
	op.serve = func(a *Admin, op *Operation) http.Handler {
		return inBounds(a, op, func(w http.ResponseWriter, r request[none]) error { return do(a, w, r) })
	}
	return op
}

// plain returns an operation that has a handler of its own.
func plain(op Operation, handler func(*Admin) http.Handler) Operation {
	op.serve = func(a *Admin, _ *Operation) http.Handler { return handler(a) }
	return op
}

// A request is a request of an operation. Its body is an In of internal/api.
type request[In any] struct {
	*http.Request
	op    *Operation
	query url.Values // its parameters, checked
	// responseHeader takes header fields of a successful response.
	responseHeader http.Header
	bytes          []byte
}

// none is the body of an operation that takes none.
type none struct{}

// body parses the body. With faults, it returns the members that were read.
func (r request[In]) body() (In, *faults) {
	var in In
	f := &faults{}
	readJSON(r.bytes, &in, f)
	return in, f
}

func (r request[In]) caller() access.Caller { return access.From(r.Context()) }

// inBounds returns a handler that reads the body within the bounds of the API.
func inBounds[In any](a *Admin, op *Operation, do func(http.ResponseWriter, request[In]) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op.In == nil {
			if err := bodiless(w, r); err != nil {
				writeProblem(w, r, err)
				return
			}
		}
		limit := cmp.Or(op.most, a.maxBody)
		if op.Scope == access.Open { // its clients need not be known
			limit = smallBody
		}
		body, release, err := a.body(w, r, limit)
		if err != nil {
			if op.Lines && asError(err).Reason == scheduler.TooLarge {
				err = &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has more than %d bytes, the most of a batch; send it in parts", maxBatchBytes)}
			}
			writeProblem(w, r, err)
			return
		}
		defer release()
		if err = op.takes(r, body); err == nil {
			in := request[In]{Request: r, op: op, responseHeader: w.Header(), bytes: body}
			if in.query, err = op.query(r); err == nil {
				err = do(w, in)
			}
		}
		switch {
		case err == nil:
		case goesOn(err) && a.goOn(w, r, body, joins(asError(err)) && submitsByKey(r)):
		default:
			writeProblem(w, r, err)
		}
	})
}

// ndjson is the media type of lines of JSON.
const ndjson = "application/x-ndjson"

// takes refuses a body of another media type: a web page of another origin can send one
// without asking.
func (op *Operation) takes(r *http.Request, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	want, hint := "application/json", "the body must be JSON; send it with the header Content-Type: application/json (curl --json does)"
	if op.Lines {
		want, hint = ndjson, "the body must be NDJSON, a JSON object on each line; send it with the header Content-Type: "+ndjson
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != want {
		return &scheduler.Error{Reason: wrongMedia, Detail: hint}
	}
	return nil
}

// answer writes a body of internal/api. That of a single resource has a validator, by which
// a client asks whether it has changed (RFC 9110, section 13).
func answer(w http.ResponseWriter, r *http.Request, status int, out any) error {
	var body bytes.Buffer
	if err := encodeJSON(&body, out); err != nil {
		return err
	}
	h := w.Header()
	if r.Method == http.MethodGet && strings.Contains(r.Pattern, "{") {
		sum := sha256.Sum256(body.Bytes())
		tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)
		if matches(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.Copy(w, &body)
	return nil
}

// matches reports whether a list of validators has one of them.
func matches(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == tag {
			return true
		}
	}
	return false
}
