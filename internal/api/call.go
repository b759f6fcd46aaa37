package api

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

// States are all states.
var States = []State{Waiting, Sending, Done, Failed, Unknown, Expired, Exhausted, Cancelled}

// Finished reports whether the state is final.
func (s State) Finished() bool { return s != Waiting && s != Sending && s != Unknown }

// An Outcome is the result of an attempt.
type Outcome string

// Outcomes are all outcomes; those of decisions about unknown calls are the first three.
var Outcomes = []Outcome{"done", "failed", "not_executed", "unknown"}

// An Origin is the way on which a call came.
type Origin string

// Origins are all origins.
var Origins = []Origin{"data", "admin", "embedded", "query", "webhook"}

// CallFacts are the members that a call has in lists too.
type CallFacts struct {
	// ID is opaque. A newer call has a greater one.
	ID       string `json:"id"`
	Upstream string `json:"upstream"`
	State    State  `json:"state"`
	Priority int    `json:"priority"`
	Method   string `json:"method,omitempty"`
	// Path is that of the request, without its query.
	Path string `json:"path,omitempty"`
	// Numbers are its business numbers, by the names of the configuration.
	Numbers map[string]string `json:"numbers,omitempty"`
	// Flow is the party with which it shares the quota fairly.
	Flow   string `json:"flow,omitempty"`
	Origin Origin `json:"origin,omitempty"`
	// SubmittedBy is the name of the caller of the admin API that handed it over.
	SubmittedBy    string `json:"submitted_by,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Async: it was submitted, and no client waits for the response.
	Async bool `json:"async"`
	// Durable: it survives the process.
	Durable bool `json:"durable"`
	// Callback is the target of the webhook about its end.
	Callback string `json:"callback,omitempty"`
	// Resolves is the id of the unknown call that it asks about.
	Resolves   string  `json:"resolves,omitempty"`
	AcceptedAt Instant `json:"accepted_at"`
	NotBefore  Instant `json:"not_before,omitzero"`
	Deadline   Instant `json:"deadline,omitzero"`
	FinishedAt Instant `json:"finished_at,omitzero"`
	// Reason is why it ended without an answer: gone (its client has left), past_deadline,
	// paused or stopping.
	Reason string `json:"reason,omitempty"`
	// EndedBy is the id of the call that ended it, such as a cancel of its order: it is not
	// sent again.
	EndedBy string `json:"ended_by,omitempty"`
	// ETA is there only while it waits, and not if it is unknown: see waiting_for.
	ETA        Instant     `json:"eta,omitzero"`
	WaitingFor *WaitingFor `json:"waiting_for,omitempty"`
	// Unknown is there while the call is unknown.
	Unknown *UnknownCall `json:"unknown,omitempty"`
}

// A CallSummary is a call in a list.
type CallSummary struct {
	CallFacts
	// AttemptCount is the number of its last attempt, 0 before the first.
	AttemptCount int      `json:"attempt_count"`
	LastAttempt  *Attempt `json:"last_attempt,omitempty"`
}

// A Call is a call as it is at one moment.
type Call struct {
	CallFacts
	// Permits are those that each attempt takes.
	Permits []Permit `json:"permits,omitempty"`
	// SignatureUntil is when the signature of its caller ends to be good: it is not sent later. Absent
	// where signatures do not age, or are made for each attempt, and when the call has finished.
	SignatureUntil Instant `json:"signature_until,omitzero"`
	// Attempts are a bounded number: the first, those of unknown outcome, the last.
	Attempts []Attempt `json:"attempts"`
	// Decisions are those of people, the oldest first.
	Decisions []Decision `json:"decisions,omitempty"`
	// Response is the answer of the upstream: with include=response only.
	Response *Response `json:"response,omitempty"`
}

// Last returns the last attempt, nil if there was none.
func (c *Call) Last() *Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[len(c.Attempts)-1]
}

// A Permit is the part of one limit that an attempt takes.
type Permit struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	Cost  int    `json:"cost"`
	// Free is how many of the limit and the key are free now, while the call waits; none while they are
	// paused. An attempt goes when all that it takes are free, and its turn has come.
	Free *int `json:"free,omitempty"`
}

// An Attempt is one sending of a call on the wire.
type Attempt struct {
	// N counts from 1.
	N       int     `json:"n"`
	SentAt  Instant `json:"sent_at"`
	EndedAt Instant `json:"ended_at,omitzero"`
	// Status is that of the response; none if there was no response.
	Status int `json:"status,omitzero"`
	// Outcome is absent while the attempt is in flight.
	Outcome Outcome `json:"outcome,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	// Resolved marks an attempt that a person has decided to be not executed.
	Resolved bool `json:"resolved,omitempty"`
}

// A Decision is one of a person about an unknown call.
type Decision struct {
	At Instant `json:"at"`
	// By is the name of the person or the program.
	By string `json:"by"`
	// Attempt is the number of the one that the person saw.
	Attempt int `json:"attempt"`
	// As is the asserted outcome; unknown: the call was sent again, though it may then be
	// executed twice.
	As     Outcome `json:"as"`
	Reason string  `json:"reason,omitempty"`
}

// An UnknownCall is the state of an unknown call, and its next step.
type UnknownCall struct {
	Since Instant `json:"since"`
	// Attempt is the number of the one whose outcome is unknown.
	Attempt int    `json:"attempt"`
	Why     string `json:"why,omitempty"`
	// Next is query or person: a query to the platform comes, or a person has to decide.
	Next    string  `json:"next"`
	Queries Queries `json:"queries"`
	// RepeatIsSafe: the upstream recognises a repeat, and does not execute it twice.
	RepeatIsSafe bool `json:"repeat_is_safe"`
}

// Values of Next of an unknown call.
const (
	NextQuery  = "query"
	NextPerson = "person"
)

// Queries are those about one unknown call.
type Queries struct {
	Made   int     `json:"made"`
	Most   int     `json:"most"`
	NextAt Instant `json:"next_at,omitzero"`
	LastAt Instant `json:"last_at,omitzero"`
	// LastCall is the id of the last query that has ended: it is a call too. Answer is what the
	// upstream said to it, such as status 404, which has decided nothing.
	LastCall string `json:"last_call,omitempty"`
	Answer   string `json:"answer,omitempty"`
}

// ConcurrencyLimit is the name of the limit that every upstream has: its
// concurrency. A pause of it is a pause of the upstream.
const ConcurrencyLimit = "concurrency"

// WaitingFor is the reason why a call waits.
type WaitingFor struct {
	// Limit is empty if the call waits for the instant until, not for a limit.
	Limit string  `json:"limit,omitempty"`
	Key   string  `json:"key,omitempty"`
	Until Instant `json:"until,omitzero"`
	// Ahead is the number of permits that calls ahead of it will take.
	Ahead int `json:"ahead"`
	// Next is the id of the first call in line there, if it is another one.
	Next string `json:"next,omitempty"`
	// Paused: the limit or its key is paused, whether permits are free or not.
	Paused bool `json:"paused,omitempty"`
	// Pause says by whom, since when and why.
	Pause string `json:"pause,omitempty"`
	// Slowed is how calls of the limit or the key are held apart, since the upstream limited some.
	Slowed *Slowed `json:"slowed,omitempty"`
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
	// before one ends. The oldest was sent at oldest_sent_at, and none takes longer than timeout_ms.
	InFlight     int     `json:"in_flight,omitempty"`
	OldestSentAt Instant `json:"oldest_sent_at,omitzero"`
	TimeoutMs    int64   `json:"timeout_ms,omitempty"`
	// Breaker is why the upstream's circuit breaker is open, if it waits for that.
	Breaker string `json:"breaker,omitempty"`
}

// A Response is the upstream's response to a call, as it is kept.
type Response struct {
	Status  int     `json:"status"`
	Headers Headers `json:"headers"`
	Body    []byte  `json:"body_base64"`
	// Truncated: the body is only the beginning.
	Truncated bool `json:"truncated,omitempty"`
}

// Calls is one page of a list of calls.
type Calls struct {
	Calls []CallSummary `json:"calls"`
	// Next is the cursor of the next page; none: this is the last one. It is opaque, and good
	// for the same filter only.
	Next string `json:"next,omitempty"`
}
