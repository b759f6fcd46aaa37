package api

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

	// EventTookOver: this replica of a fleet has the calls now. EventCommitsLost: the database had lost commits before, and
	// calls that waited are unknown. Neither has an upstream.
	EventTookOver    = "took_over"
	EventCommitsLost = "commits_lost"

	// EventState is the current state of the call that a subscription names: at its
	// beginning, and, while the call waits, with each heartbeat and after each pause
	// and resume by an operator.
	EventState = "state"
	// EventLost is a [Lost].
	EventLost = "lost"
)

// EventKinds are all kinds, but for those of the stream itself.
var EventKinds = []string{EventAccepted, EventRefused, EventSending, EventAttempt, EventWaiting, EventPaused, EventResumed, EventEnded, EventTookOver, EventCommitsLost}

// An Event is a step in the life of a call, a change of a pause, or one of the fleet.
type Event struct {
	At Instant `json:"at"`
	// Event is its kind.
	Event string `json:"event"`
	// Call is an id; absent if the event is about the upstream.
	Call string `json:"call,omitempty"`
	// Numbers are the business numbers of the call.
	Numbers map[string]string `json:"numbers,omitempty"`
	// Upstream is empty if the event is about the fleet.
	Upstream string `json:"upstream"`
	State    State  `json:"state,omitempty"`
	Priority int    `json:"priority"`
	// ETA is that of a waiting call, when the event was written.
	ETA Instant `json:"eta,omitzero"`
	// Attempt is the one that has ended.
	Attempt *Attempt `json:"attempt,omitempty"`
	// Reason is that of a refusal; of an end as in Call; of a pause its cause: answer,
	// operator, down, failing or silent; of took_over how the owner before has ended: clean, crash or buried.
	Reason string `json:"reason,omitempty"`
	// Limit is that of a pause; none: the upstream.
	Limit string `json:"limit,omitempty"`
	// Key is one of Limit; none: all keys.
	Key string `json:"key,omitempty"`
	// Until is the end of a pause.
	Until Instant `json:"until,omitzero"`
	// Deadline of an accepted or refused call is the one that its caller or max_wait
	// sets.
	Deadline Instant `json:"deadline,omitzero"`
	// NotBefore is that of an accepted or refused call.
	NotBefore Instant `json:"not_before,omitzero"`
	// Route is that of an accepted or refused call, with routes=true.
	Route *Route `json:"route,omitempty"`
}

// EventList has the latest events, the newest first.
type EventList struct {
	At     Instant `json:"at"`
	Events []Event `json:"events"`
}

// A Route is the permits that a call takes, and its flow.
type Route struct {
	// Keys are by limit; empty where the limit has one key.
	Keys map[string]string `json:"keys"`
	// Costs are permits by limit, where they are not 1.
	Costs map[string]int `json:"costs,omitempty"`
	Flow  string         `json:"flow"`
	// Weighted: the configuration gives the flow a weight.
	Weighted bool `json:"weighted,omitempty"`
}

// Lost reports events that a subscription asked for and the server no longer has.
type Lost struct {
	// Lost is the number of events; 0 with restarted.
	Lost uint64 `json:"lost"`
	// Restarted: the process has changed, and the number is not known.
	Restarted bool `json:"restarted,omitempty"`
}
