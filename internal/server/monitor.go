package server

import (
	"net/http"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Monitor returns the handler of a listener for probes and scrapes: health checks and
// metrics, to everybody, and nothing else.
func (a *Admin) Monitor() http.Handler {
	mux := http.NewServeMux()
	for _, op := range Operations() {
		if op.Probe {
			mux.Handle(op.Method+" "+op.Path, op.serve(a, &op))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if _, pattern := mux.Handler(r); pattern == "" {
			writeProblem(w, r, &scheduler.Error{Reason: scheduler.NotFound, Detail: "the monitor has GET /healthz, /readyz and /metrics only; send other requests to the admin API"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}
