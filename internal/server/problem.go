package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// problemTypes is the URL of the types of problems; the path of each is served too.
const problemTypes = "https://github.com/seed-30fe103d/throttler/problems/"

// faults are all faults of a request, or of a configuration.
type faults struct {
	reason scheduler.Reason // empty: bad_request
	detail string           // empty: the details of all
	all    []api.Fault
	empty  bool // there is no body
}

// add notes a fault of a member of the body. A member has one.
func (f *faults) add(pointer, format string, args ...any) {
	if pointer == "" || !slices.ContainsFunc(f.all, func(other api.Fault) bool { return other.Pointer == pointer }) {
		f.all = append(f.all, api.Fault{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
}

// param notes a fault of a parameter of the query.
func (f *faults) param(name, format string, args ...any) {
	f.all = append(f.all, api.Fault{Parameter: name, Detail: fmt.Sprintf(format, args...)})
	slices.SortFunc(f.all, func(a, b api.Fault) int { return strings.Compare(a.Parameter, b.Parameter) })
}

// err returns the error of the faults, nil if there are none.
func (f *faults) err() error {
	if len(f.all) == 0 {
		return nil
	}
	return f
}

func (f *faults) Error() string {
	if f.detail != "" {
		return f.detail
	}
	details := make([]string, len(f.all))
	for i, fault := range f.all {
		details[i] = fault.Detail
		if i > 0 {
			details[i] = strings.TrimPrefix(fault.Detail, notJSON)
		}
	}
	return strings.Join(details, "; ")
}

// As makes the faults an error of the scheduler.
func (f *faults) As(target any) bool {
	e, ok := target.(**scheduler.Error)
	if ok {
		*e = &scheduler.Error{Reason: scheduler.BadRequest, Detail: f.Error()}
		if f.reason != "" {
			(*e).Reason = f.reason
		}
	}
	return ok
}

// BadConfig is the error of a configuration with faults, for the Reload and the Plan of an [AdminConfig].
func BadConfig(detail string, all []api.Fault) error {
	return &faults{reason: badConfig, detail: detail, all: all}
}

// BadRequest is the error of a request with faults, for the Plan of an [AdminConfig].
func BadRequest(all []api.Fault) error { return &faults{all: all} }

// problemOf returns an error of a request of the admin API as a problem. It says nothing of
// whether a call was executed: the error is about the request.
func problemOf(r *http.Request, err error) api.Problem {
	p := apiProblem(asError(err))
	p.Type, p.Instance, p.Outcome = problemTypes+p.Reason, r.URL.EscapedPath(), ""
	if p.Reason == "" {
		p.Type = "about:blank"
	}
	if f := (*faults)(nil); errors.As(err, &f) {
		p.Errors = slices.DeleteFunc(slices.Clone(f.all), func(fault api.Fault) bool { return fault.Pointer == "" && fault.Parameter == "" })
	}
	return p
}

// writeProblem answers a request of the admin API with an error.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(r, told(r, err))
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.Call != "" {
		h.Set("Throttler-Call", p.Call)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	var body bytes.Buffer
	encodeJSON(&body, p)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(p.Status)
	w.Write(body.Bytes())
}

// getProblem explains a reason.
func getProblem(a *Admin, w http.ResponseWriter, r request[none]) error {
	reason := scheduler.Reason(r.PathValue("reason"))
	s, ok := statuses[reason]
	if !ok {
		return &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("there is no problem %q", reason)}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, fmt.Sprintf("%s (status %d)\n\n%s.\n", reason, s.status, s.title))
	return err
}
