package scheduler

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// State is where a call stands; see the package doc for how they follow each other.
type State string

const (
	Waiting   State = "waiting"   // for its slot, or for a time before which it must not go
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

// Finished reports whether nothing follows the state.
func (s State) Finished() bool { return s != Waiting && s != Sending && s != Unknown }

// A Request is a call to be handed over.
type Request struct {
	Upstream string
	Method   string
	Target   string // path and query, as they go on the wire
	Header   http.Header
	Body     []byte

	// Priority is from -MaxPriority to MaxPriority; higher goes first.
	Priority int
	// NotBefore is the earliest instant at which the call is sent.
	NotBefore time.Time
	// Deadline is the latest instant at which the call is sent.
	Deadline time.Time
	// IdempotencyKey makes a second Submit of the same request return the same
	// call. It is not sent; what the upstream should see goes into Header.
	IdempotencyKey string
	// Callback names the target of the upstream's callbacks that is told of the
	// end of the call, if it was submitted.
	Callback string

	resolves string   // the unknown call that this one asks about
	by       *service // whose query or webhook it is, also after a reload without it; nil for everybody else
	tells    string   // the notice that it is the webhook of
}

func (r *Request) wire() *upstream.Request {
	return &upstream.Request{Method: r.Method, Target: r.Target, Header: r.Header, Body: r.Body}
}

// A Call is what is known of a call at one moment.
type Call struct {
	ID         string      `json:"id"`
	Upstream   string      `json:"upstream"`
	State      State       `json:"state"`
	Priority   int16       `json:"priority"`
	Async      bool        `json:"async"`              // nobody waits for the answer: it was handed over by Submit
	Durable    bool        `json:"durable"`            // it survives the process
	Callback   string      `json:"callback,omitempty"` // who is told of its end
	Resolves   string      `json:"resolves,omitempty"` // the unknown call that it asks about
	AcceptedAt time.Time   `json:"accepted_at"`
	NotBefore  time.Time   `json:"not_before,omitzero"`
	Deadline   time.Time   `json:"deadline,omitzero"`
	FinishedAt time.Time   `json:"finished_at,omitzero"`
	ETA        time.Time   `json:"eta,omitzero"` // only while it waits
	Attempts   []Attempt   `json:"attempts"`     // MaxAttempts of them: the first, those of unknown outcome, the last
	WaitingFor *WaitingFor `json:"waiting_for,omitempty"`
	Response   *Response   `json:"response,omitempty"`

	*Stored `json:"-"` // nil where nothing outlives the process
}

// A Stored is what a Durable keeps of a call besides.
type Stored struct {
	Seq   int64     // age: smaller is older, over all lives
	Lane  int64     // equal for calls that share a flow and take the same permits
	Due   time.Time // not before when it goes again
	Spent []Hold    // the permits that its attempts may have out
}

// An Attempt is one sending of a call.
type Attempt struct {
	N       int              `json:"n"`
	SentAt  time.Time        `json:"sent_at"`
	EndedAt time.Time        `json:"ended_at,omitzero"`
	Status  int              `json:"status,omitzero"`
	Outcome upstream.Outcome `json:"outcome,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	// Resolved tells that somebody has decided since that it was not executed.
	Resolved bool `json:"resolved,omitempty"`
}

// WaitingFor says why a call waits.
type WaitingFor struct {
	Limit string    `json:"limit"` // empty: for the instant Until, whatever the limits
	Key   string    `json:"key"`
	Until time.Time `json:"until,omitzero"`
	Ahead int       `json:"ahead"`          // permits that calls ahead of it will take
	Next  string    `json:"next,omitempty"` // id of the call that is first in line there, if it is another one
	// Paused tells that the limit or its key is shut, whatever is free of it.
	Paused bool `json:"paused,omitempty"`
}

// A Response is an upstream's answer as it is kept.
type Response struct {
	Status    int         `json:"status"`
	Headers   http.Header `json:"headers"`
	Body      []byte      `json:"body_base64"`
	Truncated bool        `json:"truncated,omitempty"` // Body is only the beginning
}

// abridged makes room for another attempt. The first one stays, as do those that may
// have been executed: what follows depends on them, also in another process.
func abridged(attempts []Attempt) []Attempt {
	if len(attempts) < MaxAttempts {
		return attempts
	}
	i := 1 + slices.IndexFunc(attempts[1:], func(a Attempt) bool { return a.Outcome != upstream.Unknown })
	return slices.Delete(attempts, max(1, i), max(1, i)+1)
}

// Last returns the last attempt, nil if there was none.
func (c *Call) Last() *Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[len(c.Attempts)-1]
}

// Outcome returns what the call came to so far: that of its last attempt, or
// not_executed if there was none. An unknown call stays so, though its last
// attempt was not executed.
func (c *Call) Outcome() upstream.Outcome {
	if c.State == Unknown {
		return upstream.Unknown
	}
	if a := c.Last(); a != nil && a.Outcome != "" {
		return a.Outcome
	}
	return upstream.NotExecuted
}

// Notice is the id of the webhook that tells what the call has come to: it is the
// same however often that is told. Empty if nobody is to be told.
func (c *Call) Notice() string {
	if c.Callback == "" || !c.Async || c.State != Unknown && !c.State.Finished() {
		return ""
	}
	attempts := 0 // a call may become unknown more than once
	if last := c.Last(); last != nil {
		attempts = last.N
	}
	return fmt.Sprintf("%s.%s.%d", c.ID, c.State, attempts)
}

// Waited returns how long the call waited until its last attempt, or until now
// if there was none.
func (c *Call) Waited(now time.Time) time.Duration {
	if a := c.Last(); a != nil {
		now = a.SentAt
	}
	return now.Sub(c.AcceptedAt)
}

// snapshot returns a copy that its receiver may keep.
func (c *Call) snapshot() Call {
	s := *c
	s.Attempts = slices.Clone(c.Attempts)
	if c.Stored != nil {
		stored := *c.Stored
		s.Stored = &stored
	}
	return s
}

// putOff notes, for a Durable, not before when the call goes again.
func (c *Call) putOff(due time.Time) {
	if c.Stored != nil {
		c.Due = due
	}
}

// A call is a Call in the scheduler's hands. The loop owns it, but for request,
// which never changes. A million of them may wait, so it is kept small: what only
// an attempt needs is in flight, and settled is made for those who wait.
type call struct {
	*Call   // is never changed, only replaced (see change): others hold it too
	request *upstream.Request
	route   *route
	bytes   int64

	seq     uint64        // age: smaller is older, over all attempts and lives
	due     time.Duration // on the loop's clock; not before it
	timeout wheel.Handle
	queued  queued  // its place in the planner
	flight  *flight // nil until it is sent for the first time, or ends before

	settled chan struct{} // if not nil, closed when it is finished or unknown
	noBody  bool          // its request stays out of the store
	gone    bool          // the waiter has gone
	near    bool          // counted in the backlog as one that waits in memory
}

// A flight is what is known of a call that has been sent.
type flight struct {
	sentAt    time.Time        // monotonic, of the last attempt
	firstSent time.Time        // monotonic, of the first one
	needs     []quota.Need     // the permits that it holds
	blocks    []*block         // in which the store knows them, if not with the call
	burnt     int              // attempts that count
	unreached int              // times it met a closed door in a row
	backoff   time.Duration    // the last one
	repeat    bool             // what comes next is a repeat that the retry budget must cover
	place     int              // among those that wait for it
	used      bool             // its bytes have been sent once
	doubt     bool             // an attempt may have executed it
	decided   func()           // ends the asking about it, nil if there is none
	result    *upstream.Result // the last answer, for the waiter
	reason    Reason           // why the call ended without one
}

// settling returns what is closed when the call is finished or unknown, nil if
// it is.
func (c *call) settling() <-chan struct{} {
	if c.State == Unknown || c.State.Finished() && c.settled == nil {
		return nil
	}
	if c.settled == nil {
		c.settled = make(chan struct{})
	}
	return c.settled
}

// change replaces what is told of the call by a copy, to be changed at once.
func (c *call) change() *Call {
	next := c.Call.snapshot()
	c.Call = &next
	return &next
}

// because notes why the call ends without an answer.
func (c *call) because(r Reason) {
	if c.flight == nil {
		c.flight = new(flight)
	}
	c.flight.reason = r
}

// sent returns what is known of its attempts, for reading.
func (c *call) sent() flight {
	if c.flight == nil {
		return flight{}
	}
	return *c.flight
}

// answer returns the last answer, nil if there is none.
func (c *call) answer() *upstream.Result {
	if c.flight == nil || c.flight.result == nil || c.flight.result.Response == nil {
		return nil
	}
	return c.flight.result
}
