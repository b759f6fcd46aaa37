package scheduler

import "time"

// An Event is something that happened to a call. Its pointers are good only
// while it is observed.
type Event struct {
	Kind    EventKind
	Call    *Call
	Attempt *Attempt  // of EventAttempt
	Reason  Reason    // of EventRefused
	Limit   string    // of EventPaused; empty: the upstream
	Until   time.Time // of EventPaused

	route *route // of EventAccepted and EventRefused
}

// EventKind says what happened.
type EventKind uint8

const (
	EventAccepted EventKind = iota
	EventRefused
	EventSending // an attempt begins
	EventAttempt // an attempt has ended
	EventWaiting // after an attempt, or a decision, the call waits for the next
	EventPaused  // an answer has paused a limit's key or the upstream
	EventEnded   // the call is finished or unknown
)

var eventNames = [...]string{"accepted", "refused", "sending", "attempt", "waiting", "paused", "ended"}

func (k EventKind) String() string { return eventNames[k] }
