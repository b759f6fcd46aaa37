package scheduler

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Step is what follows the first answer to a submitted call. Its words are those of the cases of
// throttler test.
type Step string

// The steps after an answer.
const (
	StepNothing Step = "nothing" // the call ends
	StepAgain   Step = "again"   // it was not executed, and goes again after the pause
	StepAlone   Step = "alone"   // likewise, and only this call waits
	StepRepeat  Step = "repeat"  // it may have been executed, and goes again: the upstream recognises a repeat
	StepQuery   Step = "query"   // it may have been executed, and a query settles it (Resolve)
	StepPerson  Step = "person"  // it may have been executed, and a person decides
)

// Follow tells the step after the first answer to a submitted call, which came now. As an attempt of the
// scheduler does, it makes a 202 unknown of which a query tells the end. The error says why there is no
// query, if a query that the configuration has cannot be made.
func (r *Router) Follow(now time.Time, request *upstream.Request, res *upstream.Result) (Step, error) {
	sv := r.sv
	doubtAccepted(sv, request, res)
	d := sv.Retry.Next(now, sv.retryAttempt(request, flight{firstSent: now}, res), 0.5)
	n := nextAttempt(now, sv, true, flight{firstSent: now}, res, d)
	switch {
	case res.Outcome != upstream.Unknown && !n.again:
		return StepNothing, nil
	case res.Outcome == upstream.NotExecuted && res.Alone:
		return StepAlone, nil
	case res.Outcome == upstream.NotExecuted:
		return StepAgain, nil
	case n.again && !n.at.After(sv.repeatableUntil(&n.flight, sv.validUntil(now, now.Add(sv.MaxAge)))):
		return StepRepeat, nil
	}
	in := upstream.NewQuestion(sv.up, request, res.Answer)
	query, err := resolverOf(sv, in, sv.Signer != nil)
	if query != nil {
		_, err = query.query(in)
	}
	if query == nil || err != nil {
		return StepPerson, err
	}
	return StepQuery, nil
}

// doubtAccepted makes a 202 that no rule has judged unknown, if a query can tell the end: the
// upstream has accepted the call, and may not have executed it yet.
func doubtAccepted(sv *service, request *upstream.Request, r *upstream.Result) {
	if r.Outcome != upstream.Done || r.Ruled || r.Response == nil || r.Response.StatusCode != http.StatusAccepted {
		return
	}
	fits, err := resolverOf(sv, upstream.NewQuestion(sv.up, request, r.Answer), true)
	if fits != nil || err != nil {
		r.Undecided("status 202: accepted, and resolve asks for its end", sv.up.MaxPause)
	}
}
