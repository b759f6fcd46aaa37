package scheduler

import "time"

// An Event is something that happened to a call, or, with a Call that has only an
// Upstream, to that. Its pointers are good only while it is observed.
type Event struct {
	Kind    EventKind
	Call    *Call
	Attempt *Attempt  // of EventAttempt
	Reason  Reason    // of EventRefused
	Limit   string    // of EventPaused and EventResumed; empty: the upstream
	Key     string    // of the limit; empty: all of it
	Until   time.Time // of EventPaused

	route *route // of EventAccepted and EventRefused
}

// Deadline returns until when the caller of an EventAccepted or EventRefused waits;
// zero if nobody does, and only MaxAge or the call's signature ends its wait. It may
// be called only while the event is observed.
func (e Event) Deadline() time.Time {
	if e.route == nil {
		return time.Time{}
	}
	sv, earliest := e.route.service, e.Call.AcceptedAt
	if e.Call.NotBefore.After(earliest) {
		earliest = earliest.Add(e.Call.NotBefore.Sub(earliest)) // on the monotonic clock
	}
	if !e.Call.Deadline.Before(sv.goodUntil(e.Call.AcceptedAt, earliest.Add(sv.MaxAge))) {
		return time.Time{}
	}
	return e.Call.Deadline
}

// EventKind says what happened.
type EventKind uint8

const (
	EventAccepted EventKind = iota
	EventRefused
	EventSending // an attempt begins
	EventAttempt // an attempt has ended
	EventWaiting // after an attempt, or a decision, the call waits for the next
	EventPaused  // an answer, or Pause, has shut a limit's key, a limit or the upstream
	EventEnded   // the call is finished or unknown
	EventResumed // Resume has opened what was shut
)

var eventNames = [...]string{"accepted", "refused", "sending", "attempt", "waiting", "paused", "ended", "resumed"}

func (k EventKind) String() string { return eventNames[k] }

// A Route is what a call takes of its upstream's limits, and whose share it is of.
type Route struct {
	// Keys has the key for each limit that the call stands under, by its name;
	// an empty one where the limit has one key.
	Keys map[string]string `json:"keys"`
	// Costs has the permits that it takes of a limit, where it is not one.
	Costs map[string]int `json:"costs,omitempty"`
	Flow  string         `json:"flow"`
	// Weighted tells that the configuration names the flow, to give it a weight.
	Weighted bool `json:"weighted,omitempty"`

	compiled *route
}

// Route returns what the call of an EventAccepted or EventRefused takes, nil of
// other events. It may be called when the event is over.
func (e Event) Route() *Route {
	if e.route == nil {
		return nil
	}
	sv := e.route.service
	told := &Route{Keys: make(map[string]string), Flow: e.route.flow}
	told.Weighted = sv.weighs(told.Flow)
	for _, n := range e.route.needs {
		l := &sv.limits[n.Limit]
		if n.Limit == 0 {
			continue // the upstream's own
		}
		told.Keys[l.Name] = n.Key
		if n.Cost != 1 {
			if told.Costs == nil {
				told.Costs = make(map[string]int)
			}
			told.Costs[l.Name] = n.Cost
		}
	}
	return told
}
