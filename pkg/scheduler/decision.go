package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Decisions about unknown calls. Resolve asserts what the platform says of a call; Retry admits
// that nobody knows:
//
//	decision               the call       its earlier attempts            the repeat
//	done, failed           ends           stay of unknown outcome         -
//	not_executed           waits again    were not executed (Resolved)    is the only one
//	not_executed, a query  waits again    stay of unknown outcome         takes an attempt, and the retry budget
//	unknown (Retry)        waits again    stay of unknown outcome         must be recognised, or accepted as a duplicate
//
// Each is checked in the message that takes effect, against the attempt that it names.

// A Decision is what a person, or a query, has decided about an unknown call; see
// [Scheduler.Resolve] and [Scheduler.Retry].
type Decision struct {
	At time.Time // set by the scheduler
	By string    // name of the person or the program, or "query" with its id; may be empty
	// Attempt is the number of the last attempt that the person saw. If the call has changed since,
	// the decision is refused ([ChangedSince]). Zero, for programs that decide by the state at
	// the platform, fits any.
	Attempt int
	As      upstream.Outcome // done, failed or not_executed; unknown: sent again by Retry
	Reason  string
	// AcceptDuplicate lets Retry send the call though the upstream does not recognise the
	// repeat. Of a decision that was taken it tells that the upstream does not.
	AcceptDuplicate bool
}

// Bounds of decisions. The texts are counted in bytes.
const (
	maxDecisions = 20 // of a Call
	maxBy        = 200
	maxReason    = 500
)

// A Pending says what happens next to an unknown call.
type Pending struct {
	Since        time.Time // the end of the first attempt that may have executed it
	Attempt      int       // the last one, which a decision names
	Why          string    // the reason of the last attempt that may have executed it
	Person       bool      // a person has to decide; else a query comes
	Queries      int       // that this process has made
	MaxQueries   int       // that it makes by itself; zero if no Resolve fits
	NextQuery    time.Time // zero if none comes, or one is under way
	LastQuery    time.Time // zero if none was made
	Query        string    // id of the last query that has ended; empty for none
	Answer       string    // to that query, such as status 404; it has decided nothing
	RepeatIsSafe bool      // the upstream recognises a repeat, and Retry needs no AcceptDuplicate
}

// String says by whom the call was decided, as what, and why.
func (d Decision) String() string {
	s := "resolved as " + string(d.As)
	if d.As == upstream.Unknown {
		s = "sent again"
		if d.AcceptDuplicate {
			s += ", though it may be executed twice"
		}
	}
	if d.By != "" {
		s += " by " + d.By
	}
	if d.Reason != "" {
		s += ": " + d.Reason
	}
	return s
}

// state is that of the call after the decision.
func (d Decision) state() State {
	switch d.As {
	case upstream.Done:
		return Done
	case upstream.Failed:
		return Failed
	}
	return Waiting
}

// check refuses a decision that no call can have.
func (d Decision) check() *Error {
	if d.Attempt < 0 {
		return badRequest("", "attempt is %d, must be the number of the last attempt that was seen, from 1 on", d.Attempt)
	}
	return checkWords("", words{"by", d.By, maxBy}, words{"reason", d.Reason, maxReason})
}

// words are a text by a person, which is kept.
type words struct {
	name, text string
	most       int // bytes
}

// checkWords refuses texts that are too long, or would spoil the lines in which they are shown.
func checkWords(upstream string, all ...words) *Error {
	for _, w := range all {
		if len(w.text) > w.most || strings.ContainsFunc(w.text, unicode.IsControl) {
			return badRequest(upstream, "%s has %d bytes; at most %d are kept, without control characters", w.name, len(w.text), w.most)
		}
	}
	return nil
}

// decided returns the call after a decision about it.
func (c *Call) decided(now time.Time, d Decision) *Call {
	next := c.snapshot()
	next.become(now, d.state())
	next.Pending, d.At = nil, now
	if last := next.Last(); last != nil && d.Attempt == 0 {
		d.Attempt = last.N
	}
	next.Decisions = append(next.Decisions, d)
	next.Decisions = next.Decisions[max(0, len(next.Decisions)-maxDecisions):]
	return next
}

// lastWords returns the reason of the last attempt, and the decision about it.
func (c *Call) lastWords() string {
	last := c.Last()
	if last == nil {
		return ""
	}
	if n := len(c.Decisions); n > 0 && c.Decisions[n-1].Attempt == last.N {
		return last.Reason + "; " + c.Decisions[n-1].String()
	}
	return last.Reason
}

// changedSince refuses a decision about an attempt if the call was sent again since, or is not
// unknown any more; nil if it is as the decision has it.
func changedSince(c *Call, d Decision) *Error {
	last := c.Last()
	if d.Attempt == 0 || last == nil {
		return nil
	}
	wasUnknown := slices.ContainsFunc(c.Attempts, func(a Attempt) bool { return a.Outcome == upstream.Unknown })
	if last.N == d.Attempt && (c.State == Unknown || !wasUnknown) {
		return nil
	}
	became := fmt.Sprintf("it is %s now, after attempt %d", c.State, last.N)
	if n := len(c.Decisions); n > 0 && c.Decisions[n-1].Attempt >= d.Attempt {
		became += fmt.Sprintf(" (attempt %d was %v)", c.Decisions[n-1].Attempt, c.Decisions[n-1])
	}
	return &Error{Reason: ChangedSince, Upstream: c.Upstream, Call: c.told(),
		Detail: fmt.Sprintf("call %s has changed since attempt %d, which the decision is about: %s; look at it again before you decide", c.ID, d.Attempt, became)}
}

// undecidable says why a decision about a call in memory is not taken; nil if it is. The loop
// calls it.
func undecidable(now time.Time, u *upstreamState, c *call, d Decision, person bool) *Error {
	if changed := changedSince(c.Call, d); changed != nil {
		return changed
	}
	if c.State != Unknown || !c.Async {
		return wrongState(c.Call, "only an unknown call can be resolved, or sent again")
	}
	if d.state() != Waiting {
		return nil
	}
	if spent := unsendable(now, u.service, c, person); spent != nil {
		return spent
	}
	if d.As == upstream.Unknown && !d.AcceptDuplicate && !repeatIsSafe(now, u, c) {
		return mayExecuteTwice(c.Call)
	}
	return nil
}

// mayExecuteTwice refuses to send a call again.
func mayExecuteTwice(c *Call) *Error {
	return &Error{Reason: MayExecuteTwice, Upstream: c.Upstream, Call: c.told(),
		Detail: fmt.Sprintf("call %s may have been executed, and upstream %q does not recognise a repeat of it (idempotency, idempotent): sent again it may be executed twice; look it up there and resolve it, ask, or accept the duplicate", c.ID, c.Upstream)}
}

// undecidableStored says why a decision about a call that is not in memory is not taken; nil if
// it is.
func undecidableStored(c *Call, d Decision, configured bool) *Error {
	if changed := changedSince(c, d); changed != nil {
		return changed
	}
	switch again := d.state() == Waiting; {
	case c.State != Unknown:
		return wrongState(c, "only an unknown call can be resolved, or sent again")
	case again && !c.Async:
		return wrongState(c, "its caller had that answer; it can be resolved as done or failed, but only its caller can send it again")
	case again && !configured:
		return notConfigured(c, "send it again then; it can be resolved as done or failed now")
	case again:
		return wrongState(c, "its request was not kept; it can be resolved as done or failed, and submitted anew")
	}
	return nil
}

// repeatIsSafe reports whether the upstream recognises a repeat of an unknown call now. The loop
// calls it.
func repeatIsSafe(now time.Time, u *upstreamState, c *call) bool {
	u.reroute(c)
	return c.item.Demand.Repeatable && u.recognises(now, c.history())
}

// A progress is how far the queries about an unknown call are.
type progress struct {
	made, most int
	next, last time.Time
	query      string // id of the last one that has ended
	answer     string // to it
	idle       bool   // none comes
}

// pendingOf says what happens next to an unknown call.
func pendingOf(c *Call, p progress, safe bool) *Pending {
	n := &Pending{Person: p.idle, Queries: p.made, MaxQueries: p.most, NextQuery: p.next, LastQuery: p.last, Query: p.query, Answer: p.answer, RepeatIsSafe: safe}
	if last := c.Last(); last != nil {
		n.Attempt = last.N
	}
	for _, a := range c.Attempts {
		if a.Outcome != upstream.Unknown || a.Resolved {
			continue
		}
		if n.Since.IsZero() {
			n.Since = a.EndedAt
		}
		n.Why = a.Reason
	}
	if p.query == "" && p.answer != "" { // why there is no query
		n.Why, n.Answer = n.Why+"; "+p.answer, ""
	}
	return n
}

// retried returns the last attempt before a person let the call begin anew by Retry, 0 if there
// is none, and the one before it was sent in spite of a duplicate.
func (c *Call) retried() (attempt, duplicate int) {
	for _, d := range c.Decisions {
		if d.As == upstream.Unknown {
			attempt = d.Attempt
			if d.AcceptDuplicate {
				duplicate = d.Attempt
			}
		}
	}
	return attempt, duplicate
}

// notConfigured refuses a decision that only the upstream's configuration makes possible.
func notConfigured(c *Call, then string) *Error {
	return wrongState(c, fmt.Sprintf("its upstream %q is not configured, and it stays in the store; put the upstream into the configuration again, and %s", c.Upstream, then))
}

func wrongState(c *Call, why string) *Error {
	return &Error{Reason: WrongState, Upstream: c.Upstream, Call: c.told(), Detail: fmt.Sprintf("call %s is %s: %s", c.ID, c.State, why)}
}

var resolutions = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted}

// checkResolution refuses an outcome that Resolve cannot assert.
func checkResolution(d Decision) *Error {
	if !slices.Contains(resolutions, d.As) {
		return badRequest("", "an unknown call can be resolved as done, failed or not_executed, not as %q; Retry sends it again though its outcome stays unknown", d.As)
	}
	return nil
}
