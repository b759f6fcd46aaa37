package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
)

// An Event is something that happened to a call, or, with a Call that has only an
// Upstream, to the upstream. Its pointers are good only while it is observed.
type Event struct {
	Kind    EventKind
	Call    *Call
	Attempt *Attempt  // of EventAttempt
	Alone   bool      // of EventAttempt: its answer limits this call alone
	Reason  Reason    // of EventRefused; of EventEnded that of its Call; of EventPaused and EventResumed: answer, operator, down, failing or silent
	Limit   string    // of EventPaused and EventResumed; empty: the upstream
	Key     string    // of the limit; empty: all of it
	Until   time.Time // of EventPaused

	service *service // of EventAccepted and EventRefused
	demand  *planner.Demand
}

// Causes of pauses, besides those of the circuit breaker.
const (
	byAnswer   Reason = "answer"
	byOperator Reason = "operator"
	byRestart  Reason = "restart" // of statuses alone: no event tells it
)

// Deadline returns until when the caller of an EventAccepted or EventRefused waits;
// zero if no caller does, and only MaxAge or the call's signature ends its wait. It may
// be called only while the event is observed.
func (e Event) Deadline() time.Time {
	if e.service == nil {
		return time.Time{}
	}
	earliest := e.Call.AcceptedAt
	if e.Call.NotBefore.After(earliest) {
		earliest = earliest.Add(e.Call.NotBefore.Sub(earliest)) // on the monotonic clock
	}
	if !e.Call.Deadline.Before(e.service.validUntil(e.Call.AcceptedAt, earliest.Add(e.service.MaxAge))) {
		return time.Time{}
	}
	return e.Call.Deadline
}

// Route returns the limits and the flow of the call of an EventAccepted or EventRefused,
// nil of other events. It may be called when the event is over.
func (e Event) Route() *Route {
	if e.service == nil {
		return nil
	}
	return e.service.routeOf(e.demand)
}

// ReadRoute makes r the route of the event, as Route gives it, and uses its maps again. It reports
// whether the event has one.
func (e Event) ReadRoute(r *Route) bool {
	if e.service != nil {
		e.service.fill(r, e.demand)
	}
	return e.service != nil
}

// EventKind says what happened.
type EventKind uint8

const (
	EventAccepted EventKind = iota
	EventRefused
	EventSending // an attempt begins
	EventAttempt // an attempt has ended
	EventWaiting // after an attempt, or a decision, the call waits for the next
	EventPaused  // an answer, or Pause, has paused a limit's key, a limit or the upstream
	EventEnded   // the call is finished or unknown, and its store has that
	EventResumed // Resume has ended a pause
)

var eventNames = [...]string{"accepted", "refused", "sending", "attempt", "waiting", "paused", "ended", "resumed"}

func (k EventKind) String() string { return eventNames[k] }
