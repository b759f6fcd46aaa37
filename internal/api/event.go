package api

import "time"

// Kinds of events. The reason of paused and resumed events is their cause: answer,
// operator, or that of the circuit breaker.
const (
	EventAccepted = "accepted" // a call was accepted
	EventRefused  = "refused"  // a call was refused
	EventSending  = "sending"  // an attempt begins
	EventAttempt  = "attempt"  // an attempt has ended
	EventWaiting  = "waiting"  // a call waits for its next attempt
	EventPaused   = "paused"   // an upstream, a limit or a key was paused
	EventResumed  = "resumed"  // a pause was ended before its time
	EventEnded    = "ended"    // a call is finished, or unknown

	// EventState is the current state of the call that a subscription names: at its
	// beginning, and, while the call waits, with each heartbeat and after each pause
	// and resume by an operator.
	EventState = "state"
	// EventLost is a [Lost].
	EventLost = "lost"
)

// An Event is a step in the life of a call, or a change of a pause.
type Event struct {
	At       time.Time `json:"at"`
	Event    string    `json:"event"` // its kind
	Call     string    `json:"call"`  // id; empty: the event is about the upstream
	Upstream string    `json:"upstream"`
	State    State     `json:"state"`
	Priority int       `json:"priority"`
	ETA      time.Time `json:"eta,omitzero"`      // of a waiting call, when the event was written
	Attempt  *Attempt  `json:"attempt,omitempty"` // that has ended
	Reason   string    `json:"reason,omitempty"`  // of a refusal; of an end as in Call; of a pause its cause: answer, operator, down, failing or silent
	Limit    string    `json:"limit,omitempty"`   // of a pause; none: the upstream
	Key      string    `json:"key,omitempty"`     // of Limit; none: all keys
	Until    time.Time `json:"until,omitzero"`    // end of a pause
	// Deadline of an accepted or refused call is the one that its caller or max_wait
	// sets.
	Deadline  time.Time `json:"deadline,omitzero"`
	NotBefore time.Time `json:"not_before,omitzero"` // of an accepted or refused call
	Route     *Route    `json:"route,omitempty"`     // of an accepted or refused call, if the subscription wants routes
}

// A Route is the permits that a call takes, and its flow.
type Route struct {
	Keys     map[string]string `json:"keys"`            // by limit; empty where the limit has one key
	Costs    map[string]int    `json:"costs,omitempty"` // permits by limit, where they are not 1
	Flow     string            `json:"flow"`
	Weighted bool              `json:"weighted,omitempty"` // the configuration gives the flow a weight
}

// Lost reports events that a subscription asked for and the server no longer has.
type Lost struct {
	Lost      uint64 `json:"lost"`                // events; 0 with Restarted
	Restarted bool   `json:"restarted,omitempty"` // the process has changed: the number is not known
}
