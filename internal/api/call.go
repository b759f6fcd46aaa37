package api

import "time"

// A State is where a call is in its life.
type State string

const (
	Waiting   State = "waiting"   // for its slot, or for its not_before
	Sending   State = "sending"   // an attempt is in flight
	Done      State = "done"      // executed
	Failed    State = "failed"    // refused by the upstream for good
	Unknown   State = "unknown"   // may have been executed; not finished
	Expired   State = "expired"   // its deadline, or max_age, passed before it was sent
	Exhausted State = "exhausted" // not executed, and its attempts are used up
	Cancelled State = "cancelled" // by its caller, before it was sent
)

// Finished reports whether the state is final.
func (s State) Finished() bool { return s != Waiting && s != Sending && s != Unknown }

// A Call is a call as it is at one moment.
type Call struct {
	ID         string            `json:"id"`
	Upstream   string            `json:"upstream"`
	State      State             `json:"state"`
	Priority   int               `json:"priority"`
	Async      bool              `json:"async"`              // it was submitted: no client waits for the response
	Durable    bool              `json:"durable"`            // it survives the process
	Callback   string            `json:"callback,omitempty"` // target of the webhook about its end
	Resolves   string            `json:"resolves,omitempty"` // id of the unknown call that it asks about
	Numbers    map[string]string `json:"numbers,omitempty"`  // business numbers, by the names of the configuration
	AcceptedAt time.Time         `json:"accepted_at"`
	NotBefore  time.Time         `json:"not_before,omitzero"`
	Deadline   time.Time         `json:"deadline,omitzero"`
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Reason     string            `json:"reason,omitempty"`   // why it ended without an answer: gone (its client has left), past_deadline, paused or stopping
	EndedBy    string            `json:"ended_by,omitempty"` // id of the call that ended it, such as a cancel of its order: it is not sent again
	ETA        time.Time         `json:"eta,omitzero"`       // only while it waits, and not if it is unknown: see WaitingFor
	Attempts   []Attempt         `json:"attempts"`           // a bounded number: the first, those of unknown outcome, the last
	Decisions  []Decision        `json:"decisions,omitempty"`
	WaitingFor *WaitingFor       `json:"waiting_for,omitempty"`
	Response   *Response         `json:"response,omitempty"`
}

// A Decision is what a person, or a query, has decided about the call while it was unknown.
type Decision struct {
	At              time.Time `json:"at"`
	By              string    `json:"by,omitempty"`
	Attempt         int       `json:"attempt"` // the last one at that time
	As              string    `json:"as"`      // done, failed or not_executed; unknown: sent again
	Reason          string    `json:"reason,omitempty"`
	AcceptDuplicate bool      `json:"accept_duplicate,omitempty"` // though the upstream does not recognise the repeat
}

// An Attempt is one sending of a call on the wire.
type Attempt struct {
	N       int       `json:"n"` // from 1
	SentAt  time.Time `json:"sent_at"`
	EndedAt time.Time `json:"ended_at,omitzero"`
	Status  int       `json:"status,omitzero"`   // of the response; none: there was no response
	Outcome string    `json:"outcome,omitempty"` // done, failed, not_executed or unknown; none: it is in flight
	Reason  string    `json:"reason,omitempty"`
	// Resolved marks an attempt that a person has decided to be not executed.
	Resolved bool `json:"resolved,omitempty"`
}

// ConcurrencyLimit is the name of the limit that every upstream has: its
// concurrency. A pause of it is a pause of the upstream.
const ConcurrencyLimit = "concurrency"

// WaitingFor is the reason why a call waits.
type WaitingFor struct {
	Limit  string    `json:"limit"` // empty: the call waits for the instant Until, not for a limit
	Key    string    `json:"key"`
	Until  time.Time `json:"until,omitzero"`
	Ahead  int       `json:"ahead"`            // permits that calls ahead of it will take
	Next   string    `json:"next,omitempty"`   // id of the first call in line there, if it is another one
	Paused bool      `json:"paused,omitempty"` // the limit or its key is paused, whether permits are free or not
	Pause  string    `json:"pause,omitempty"`  // by whom, since when and why
	// Late is how many permits there are out because their attempts ended without an answer:
	// the upstream may count them until the configured late after.
	Late int `json:"late,omitempty"`
	// KeysFull: max_keys other keys of the limit have permits out, whether permits of this
	// key are free or not.
	KeysFull bool `json:"keys_full,omitempty"`
	// Removed: the upstream is not in the configuration any more, and the call waits until
	// it is there again.
	Removed bool `json:"removed,omitempty"`
	// InFlight attempts hold the permits that it waits for, and take far longer than attempts
	// do; or the circuit breaker has just closed and lets few begin at a time. There is no eta
	// before one ends. The oldest was sent then; Timeout is a duration such as 30s.
	InFlight     int       `json:"in_flight,omitempty"`
	OldestSentAt time.Time `json:"oldest_sent_at,omitzero"`
	Timeout      string    `json:"timeout,omitempty"`
	// Breaker is why the upstream's circuit breaker is open, if that is what it waits for.
	Breaker string `json:"breaker,omitempty"`
}

// A Response is the upstream's response to a call, as it is kept.
type Response struct {
	Status    int     `json:"status"`
	Headers   Headers `json:"headers"`
	Body      []byte  `json:"body_base64"`
	Truncated bool    `json:"truncated,omitempty"` // Body is only the beginning
}

// A Page is one page of a list of calls. They come without their Response, which may be
// large: GET /v1/calls/{id} has it.
type Page struct {
	Calls []*Call `json:"calls"`
	Next  string  `json:"next,omitempty"` // cursor of the next page; none: this is the last one
}

// A Resolution is a decision about an unknown call.
type Resolution struct {
	As     State  `json:"as"` // done, failed, or not_executed: it is sent again (waiting means the same)
	Reason string `json:"reason,omitempty"`
}

// A Retry is a decision to send an unknown call again, though it may then be executed twice.
type Retry struct {
	Reason string `json:"reason,omitempty"`
}
