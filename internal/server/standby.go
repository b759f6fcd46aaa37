package server

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// errNoOwner refuses all that only the replica with the calls can do.
var errNoOwner = &scheduler.Error{
	Reason: scheduler.NoOwner, RetryAfter: time.Second,
	Detail: "another replica has the calls, and this one waits for its end; nothing was sent: send the request to that one, or here again later",
}

// Standby returns the handler of an upstream's data listener while another replica has the calls: it
// refuses all of them, in the shape of the upstream's refusals.
func Standby(name string, shape Refusal) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shape.write(w, refused(nil, name, errNoOwner), &upstream.Request{Method: r.Method, Target: r.URL.RequestURI(), Header: r.Header})
	})
}

// StandbyAdmin returns the handler of the admin API and of the monitor meanwhile: the process is healthy,
// and not ready.
func StandbyAdmin() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			getHealth(nil, w, request[none]{Request: r})
			return
		}
		writeProblem(w, r, errNoOwner)
	})
}
