package server

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// admit lets callers to an operation that may do its scope.
func admit(a *Admin, scope access.Scope, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted, leave, err := a.Guard.Admit(r, scope)
		if err != nil {
			turnAway(w, r, err, a.Log)
			return
		}
		defer leave()
		h.ServeHTTP(w, admitted)
	})
}

// turnAway answers a request without a caller that may do it.
func turnAway(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	if refusal := challenge(w.Header(), err); refusal != nil && refusal.Wrong {
		log.Warn("admin: a wrong token", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr)
	}
	writeProblem(w, r, err)
}

// visible refuses a call that the caller of a request may not see, as one that is not
// there.
func visible(a *Admin, r *http.Request, id string) error {
	caller := access.From(r.Context())
	if !caller.Own() {
		return nil
	}
	call, err := a.Scheduler.Get(r.Context(), id)
	if err != nil && asError(err).Reason != scheduler.NotFound {
		return err
	}
	if err != nil || !caller.Sees(call.SubmittedBy) {
		return &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("%s has submitted no call %s, or it has been forgotten", caller.Name, id)}
	}
	return nil
}
