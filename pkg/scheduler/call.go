package scheduler

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// State is where a call stands; the package doc draws how they follow each other.
type State string

const (
	Waiting   State = "waiting"   // for its slot, or for a time before which it must not go
	Sending   State = "sending"   // an attempt is in flight, or its end is being stored
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
	// Header has the fields, which go out over HTTP/1.1 under its keys as they are given. Rules and signers find a field under any
	// spelling.
	Header http.Header
	// Names are names of fields as they go out over HTTP/1.1, where those differ from canonical keys of Header.
	Names []string
	Body  []byte

	// Priority is from -MaxPriority to MaxPriority; higher goes first.
	Priority int
	// NotBefore is the earliest instant at which the call is sent.
	NotBefore time.Time
	// Deadline is the latest instant at which the call is sent.
	Deadline time.Time
	// IdempotencyKey makes a second Submit of the same request return the same call, for
	// as long as the store keeps it. Do ignores it unless the call is durable: only with a
	// [Durable] store, and if Upstream.Durable holds for the request. Two calls of Do
	// with one key are else two payments. The key is not sent; the upstream's own key goes
	// into Header.
	IdempotencyKey string
	// SubmittedBy is the name of the caller of the admin API that hands the call over; it is kept
	// with the call. Empty for none.
	SubmittedBy string
	// Origin is the way on which the call comes; empty means OriginEmbedded.
	Origin Origin
	// Callback names the target of the upstream's callbacks that is told of the
	// end of the call, if it was submitted.
	Callback string
	// NoCopy tells that Header and Body are not changed any more: the call keeps them,
	// and no copy.
	NoCopy bool
	// Client, if set, lets Do and Begin make the attempts of the call themselves, without a
	// goroutine for each.
	Client interface {
		// Leave is called at once if ctx ends during an attempt, on another goroutine, with the
		// results of Do. Do returns them when the attempt has ended and Leave has returned, and
		// Begin passes them on then.
		Leave(c *Call, err error)
		// Left reports whether the client has left, where that may be known before ctx ends. It is
		// asked before each attempt of a call that has waited. If it is true nothing is sent; ctx
		// must end then.
		Left() bool
	}

	origin  *origin // nil for a call of a caller
	arrived string  // id of one that has arrived in the store
}

// An origin is why the scheduler makes a call of its own. The call goes by a service of
// its origin, also after a reload without it.
type origin struct {
	by       *service
	resolves string // id of the unknown call that this one queries
	notice   string // id of the notice that this one, a webhook, delivers
}

func (r *Request) wire() *upstream.Request {
	header, names := upstream.Canonical(r.Header)
	return &upstream.Request{Method: r.Method, Target: r.Target, Header: header, Names: append(names, r.Names...), Body: r.Body}
}

// A Call is the state of a call at one moment.
type Call struct {
	ID         string
	Upstream   string
	State      State
	Priority   int16
	Async      bool              // no caller waits for the answer: it was handed over by Submit
	Durable    bool              // it survives the process
	Repeated   bool              // the request had the idempotency key or the identity of this call, which was accepted before; only in answers of Submit and Do
	Callback   string            // target that is told of its end; "/ended" is Config.Ended
	Resolves   string            // id of the unknown call that it queries
	Numbers    map[string]string // business numbers by name; see Upstream.Numbers. It is never changed
	AcceptedAt time.Time
	NotBefore  time.Time
	Deadline   time.Time
	FinishedAt time.Time
	Reason     Reason    // why it ended without an answer: Gone, PastDeadline, Paused or Stopping; empty: see its last attempt
	EndedBy    string    // id of the call that ended it, see Upstream.Ends; its own id if Cancel ended a call that may have been executed
	ETA        time.Time // only while it waits; zero if it is not known, see WaitingFor
	Attempts   []Attempt // maxAttempts of them: the first, those of unknown outcome, the last
	WaitingFor *WaitingFor
	Response   *Response

	// The facts by which people know the call. They never change.
	Method         string
	Path           string // of the target, without its query
	Flow           string
	Permits        []Permit // that each attempt takes; only in what Get, List, Wait and Submit return
	Origin         Origin
	SubmittedBy    string // name of the caller of the admin API; empty for none
	IdempotencyKey string

	Decisions []Decision // by people and queries, the oldest first; maxDecisions of them, the last
	Pending   *Pending   // only while it is unknown: what happens next

	*Stored // nil where nothing outlives the process

	// Permits are computed from these when a reader wants them: most calls end unread.
	demand *planner.Demand
	by     *service // whose limits the demand names; nil if Permits are set
}

// A Stored is the part of a call that only a [Durable] keeps.
type Stored struct {
	Seq         int64        // age: smaller is older, over all lives
	Class       int64        // equal for calls that share a flow and take the same permits
	Due         time.Time    // not before when it goes again
	Outstanding []lease.Hold // the permits that its attempts may have out

	// Of calls from PendingEnds: when Config.Ended gets the end, and how often it has failed.
	HandleAt time.Time
	Failures int
}

// An Attempt is one sending of a call.
type Attempt struct {
	N       int
	SentAt  time.Time
	EndedAt time.Time
	Status  int
	Outcome upstream.Outcome
	Reason  string
	// Resolved marks an attempt that a person has decided to be not executed.
	Resolved bool
}

// WaitingFor says why a call waits.
type WaitingFor struct {
	Limit string // empty: for the instant Until, whichever the limits
	Key   string
	Until time.Time
	Ahead int    // permits that calls ahead of it will take
	Next  string // id of the call that is first in line there, if it is another one
	// Paused tells that the limit or its key is paused, however much is free of it. Pause
	// says by whom, since when and why.
	Paused bool
	Pause  string
	// Slowed says how calls of the limit or the key are held apart, since the upstream has limited
	// some; nil if they are not.
	Slowed *Slowed
	// Late is how many permits of Key are out because their attempts ended without an answer:
	// the upstream may count them until [Upstream].Late after.
	Late int
	// KeysFull tells that MaxKeys other keys of the limit have permits out, however many
	// are free of Key.
	KeysFull bool
	// Removed tells that the upstream was taken out of the configuration: the call waits
	// until it is there again, and all other fields are empty.
	Removed bool
	// InFlight, if not zero, is how many attempts hold the permits that the call waits for
	// and take far longer than attempts do; of [ConcurrencyLimit] also how many there are
	// while a circuit breaker that has just closed lets few begin. Until is zero, and the
	// call has no ETA. Timeout bounds each attempt.
	InFlight     int
	OldestSentAt time.Time
	Timeout      time.Duration
	// Breaker is why the circuit breaker of the upstream is open; empty if it is not the
	// reason of the wait.
	Breaker string
}

// maxAttempts is the greatest number of attempts that a Call has.
const maxAttempts = 20

// abridged makes room for another attempt. The first one stays, as do those that may
// have been executed: the decision about a repeat depends on them, also in another
// process.
func abridged(attempts []Attempt) []Attempt {
	if len(attempts) < maxAttempts {
		return attempts
	}
	i := 1 + slices.IndexFunc(attempts[1:], func(a Attempt) bool { return a.Outcome != upstream.Unknown })
	return slices.Delete(attempts, max(1, i), max(1, i)+1)
}

// ended reports whether the call is finished or unknown.
func (c *Call) ended() bool { return c.State == Unknown || c.State.Finished() }

// Last returns the last attempt, nil if there was none.
func (c *Call) Last() *Attempt {
	if len(c.Attempts) == 0 {
		return nil
	}
	return &c.Attempts[len(c.Attempts)-1]
}

// Outcome returns the outcome of the call so far: that of its last attempt, or
// not_executed if there was none. An unknown call stays so, though its last
// attempt was not executed, until a query or a person has decided otherwise.
func (c *Call) Outcome() upstream.Outcome {
	switch {
	case c.State == Unknown, c.State == Done:
		return upstream.Outcome(c.State)
	case c.State == Failed && slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Outcome == upstream.Unknown }):
		return upstream.Failed
	}
	if a := c.Last(); a != nil && a.Outcome != "" {
		return a.Outcome
	}
	return upstream.NotExecuted
}

// Answer returns the upstream's last answer for a repeat of the call; nil if the call waits, if
// the answer was not kept whole, or if it contradicts the outcome: "limited" is no answer to a
// call that a query has found done.
func (c *Call) Answer() *Response {
	if c.Response == nil || c.Response.Truncated || c.State != Unknown && !c.State.Finished() {
		return nil
	}
	if last := c.Last().Outcome; last != c.Outcome() && last != upstream.Unknown {
		return nil
	}
	return c.Response
}

// toEnded is the Callback of calls whose end Config.Ended handles. No target of a
// configuration can have the name.
const toEnded = "/ended"

// Handled reports whether Config.Ended handles the end of the call.
func (c *Call) Handled() bool { return c.Callback == toEnded }

// Notice is the id of the notice that tells the end of the call, by a webhook or to
// Config.Ended: it is the same however often the end is told. Empty if there is nothing
// to tell.
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

// SetHeaders sets the headers that tell a client of its call: Throttler-Call, its id;
// Throttler-Outcome; and Throttler-Wait, how long it waited, in milliseconds.
func (c *Call) SetHeaders(h http.Header, now time.Time) {
	v := []string{c.ID, strconv.FormatInt(c.Waited(now).Milliseconds(), 10), string(c.Outcome())}
	h["Throttler-Call"], h["Throttler-Wait"], h["Throttler-Outcome"] = v[:1:1], v[1:2:2], v[2:]
}

// snapshot returns a copy that its receiver may keep.
func (c *Call) snapshot() *Call {
	var s *Call
	if n := len(c.Attempts); n <= 1 { // as most calls have: one allocation, with room for the first attempt
		both := struct {
			Call
			only [1]Attempt
		}{Call: *c}
		copy(both.only[:], c.Attempts)
		s = &both.Call
		s.Attempts = both.only[:n]
	} else {
		clone := *c
		s = &clone
		s.Attempts = slices.Clone(c.Attempts)
	}
	s.Decisions = slices.Clone(c.Decisions)
	if c.Stored != nil {
		stored := *c.Stored
		s.Stored = &stored
	}
	return s
}

// permits returns the permits that each attempt takes.
func (c *Call) permits() []Permit {
	if c.by == nil {
		return c.Permits
	}
	return c.by.permits(c.demand)
}

// whole returns a copy for readers, with its permits.
func (c *Call) whole() *Call {
	s := c.snapshot()
	s.Permits, s.demand, s.by = c.permits(), nil, nil
	return s
}

// told returns a copy for readers. The end of an attempt is told with the state that follows it.
func (c *Call) told() *Call {
	s := c.whole()
	if last := s.Last(); s.State == Sending && last != nil {
		*last, s.Response = Attempt{N: last.N, SentAt: last.SentAt}, nil
	}
	return s
}

// become puts the call into a state.
func (c *Call) become(now time.Time, state State) {
	c.State = state
	if state.Finished() {
		c.FinishedAt = now
	}
}

// delayUntil notes, for a Durable, not before when the call goes again.
func (c *Call) delayUntil(due time.Time) {
	if c.Stored != nil {
		c.Due = due
	}
}

// spent returns the holds that are stored with a call, and setSpent replaces them.
func (c *Call) spent() []lease.Hold {
	if c.Stored == nil {
		return nil
	}
	return c.Outstanding
}

func (c *Call) setSpent(holds []lease.Hold) {
	if c.Stored != nil {
		c.Outstanding = holds
	}
}
