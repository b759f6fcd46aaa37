package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A stay is that of a request at a replica.
type stay struct {
	since  time.Time
	latest time.Time // until which it waits for a replica that takes it
	doubt  bool      // a replica may have taken it
	joined bool      // a call that was accepted before may stand for it, as the limits of the replica say
}

// unknown returns the error of a request of which a call may be executed; nil if none is.
func (at stay) unknown() error {
	switch {
	case at.doubt:
		return errOwnerGone
	case at.joined:
		return errStands
	}
	return nil
}

// stayKey is the key of the stay that a request has had before it is served, in its context.
type stayKey struct{}

// stayOf returns the stay that a request has had. Once it is in doubt, no refusal may tell that nothing is executed.
func stayOf(r *http.Request) stay {
	at, _ := r.Context().Value(stayKey{}).(stay)
	return at
}

// told returns the error that the client of a request is told.
func told(r *http.Request, err error) error {
	if unsent(asError(err)) {
		return cmp.Or(stayOf(r).unknown(), err)
	}
	return err
}

// overLink reports whether a request was passed on by another replica, to which it can be left. A request that is made here
// for such a one is not.
func overLink(r *http.Request) bool {
	return link.From(r.Context()) != nil && r.Context().Value(madeHere{}) == nil
}

// standing is the outcome of a call that waits: the 202 of a new call has it, and an answer of leave.
const standing = "accepted"

// leave answers over a link that a request is left to another replica: nothing of it was done here, but for a call that is
// in doubt, or stands for it.
func leave(w http.ResponseWriter, at stay) {
	link.NotTaken(w.Header())
	switch {
	case at.doubt:
		w.Header().Set("Throttler-Outcome", string(upstream.Unknown))
	case at.joined:
		w.Header().Set("Throttler-Outcome", standing)
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

// leftBy notes an answer of leave. Where the limits of the replica are others, another one need not know the call.
func (at *stay) leftBy(peer *link.Peer, outcome string) {
	switch {
	case outcome == string(upstream.Unknown), outcome == standing && peer.Differs:
		at.doubt = true
	case outcome == standing:
		at.joined = true
	}
}

// goesOn reports whether an error of this replica leaves the request to the next one: nothing of it was done.
func goesOn(err error) bool {
	e := asError(err)
	return e.Reason == scheduler.Stopping && unsent(e)
}

// unsent reports whether an error tells that nothing was executed.
func unsent(e *scheduler.Error) bool {
	return e.Outcome() == upstream.NotExecuted && (e.Call == nil || e.Call.Outcome() == upstream.NotExecuted)
}

// joins reports whether a call that was accepted before may stand for a request that a stop has left: it could not be read
// any more. The refusal of a new call names its upstream.
func joins(e *scheduler.Error) bool { return e.Call == nil && e.Upstream == "" }
