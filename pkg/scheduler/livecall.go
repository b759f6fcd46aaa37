package scheduler

import (
	"container/list"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/paging"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A call is a Call in the scheduler's memory. The loop owns it, except request, query and
// identities, which never change. A million of them may wait, so it is kept small: the part that
// only an attempt needs is in flight.
type call struct {
	*Call   // is never changed, only replaced (see change): others hold it too
	request *upstream.Request
	up      *upstreamState // nil until it is admitted
	bytes   int64

	identities *identities // nil for none; it is never replaced

	item    planner.Item[*call] // its place in the planner, its demand and its age
	due     time.Duration       // on the loop's clock; not before it
	timeout wheel.Handle
	flight  *flight // nil until it is sent for the first time, or ends before
	caller  *caller // of Do or Begin, nil if it was submitted

	generation uint32 // of the service that computed the demand
	counted    phase  // as which its upstream counts it
	noBody     bool   // its request stays out of the store
	query      bool   // it asks about an unknown call; it never changes
	resident   bool   // counted by paging as one that waits in memory
	ending     bool   // its end is being recorded: a cancel or a decision waits for that
	stored     bool   // the store has its last state
}

// A phase is the state of a call as its upstream counts it.
type phase uint8

const (
	uncounted  phase = iota // not counted: not accepted yet, or over
	waiting                 // for permits, for its time, or on disk
	sending                 // an attempt is in flight
	recording               // an attempt has ended; its call is being stored
	unresolved              // unknown, and waits for a decision
	phases
)

// A flight is the part of a call that has been sent, or has ended.
type flight struct {
	sentAt     time.Time        // monotonic, of the last attempt
	firstSent  time.Time        // monotonic, of the first one
	needs      []quota.Need     // the permits that it holds
	leases     []*lease.Lease   // in which the store knows them, if not with the call
	counted    int              // attempts that count
	failures   int              // attempts in a row that did not get through
	backoff    time.Duration    // the last one
	repeat     bool             // the next attempt is a repeat that the retry budget must cover
	budgetSlot int              // its place among the calls that wait for the budget
	used       bool             // its bytes have been sent once
	maybe      bool             // an attempt may have executed it
	resolved   func()           // ends the queries about it, nil if there are none
	queries    int              // goroutines that query about it, or are about to end
	place      *list.Element    // among the attempts in flight, nil if it is not
	result     *upstream.Result // the last answer, for the caller
	reason     Reason           // why the call ended without one
	paused     string           // its pauses and limits then, if these are the reason
	endedBy    string           // id of the call that ended it: it is not sent again
}

// carryOver takes the fields that the loop has changed since the attempt began.
func (f *flight) carryOver(now *flight) {
	f.needs, f.leases, f.place, f.result, f.reason, f.budgetSlot = now.needs, now.leases, now.place, now.result, now.reason, now.budgetSlot
	f.resolved, f.queries, f.endedBy = now.resolved, now.queries, now.endedBy
}

// renew lets the call begin anew, as a person has decided: with all its attempts. If that
// was in spite of a duplicate, the upstream recognises repeats of the next attempt at best.
func (f *flight) renew(d Decision) {
	f.counted, f.backoff, f.endedBy = 0, 0, ""
	f.maybe = d.As == upstream.Unknown
	if d.AcceptDuplicate {
		f.firstSent = time.Time{}
	}
}

// history returns the flight of a call, the zero flight if it has none, for reading.
func (c *call) history() flight {
	if c.flight == nil {
		return flight{}
	}
	return *c.flight
}

// change replaces the Call by a copy, to be changed at once.
func (c *call) change() *Call {
	c.Call = c.Call.snapshot()
	return c.Call
}

// because notes why the call ends without an answer.
func (c *call) because(r Reason) {
	if c.flight == nil {
		c.flight = new(flight)
	}
	c.flight.reason = r
}

// answer returns the last answer, nil if there is none.
func (c *call) answer() *upstream.Result {
	if c.flight == nil || c.flight.result == nil || c.flight.result.Response == nil {
		return nil
	}
	return c.flight.result
}

// askedUntil returns until when the last answer asks to leave the upstream alone, zero if that is not
// in memory.
func (c *call) askedUntil(sv *service) time.Time {
	r := c.history().result
	if r == nil {
		return time.Time{}
	}
	return r.AnsweredAt.Add(min(r.Asked, sv.up.MaxPause))
}

// streams returns the last answer if it goes to the caller while it is copied, else nil.
func (c *call) streams() *streamed {
	if a := c.answer(); a != nil {
		s, _ := a.Response.Body.(*streamed)
		return s
	}
	return nil
}

// passesOn reports whether the caller of a call that ends in a state gets the last answer.
// It does not where that says less than is known: an earlier attempt may have executed the
// call.
func (c *call) passesOn(end State) bool {
	return end != Unknown || c.flight.result.Outcome == upstream.Unknown
}

// abandoned reports whether the caller has left, before its answer was its own.
func (c *call) abandoned() bool { return c.caller != nil && c.caller.left }

// tell wakes the caller of a call, once. The caller reads the call from then on.
func (c *call) tell(end *Call) {
	if c.caller != nil && c.caller.end == nil {
		c.caller.end = end
		c.caller.over.Store(true)
		c.callAgain()
	}
}

// discardAnswer closes the answer of a call that no caller reads.
func (c *call) discardAnswer() {
	if a := c.answer(); a != nil {
		a.Response.Body.Close()
	}
}

// row is the call as paging knows it.
func (c *call) row() paging.Row {
	return paging.Row{Position: paging.Position{Priority: int(c.Priority), Seq: int64(c.item.Seq)}, Class: c.Class, Bytes: c.bytes}
}

// pages reports whether paging counts the call: it is on disk too, and no caller waits.
func (c *call) pages() bool { return c.Durable && c.Async }

// Fire is the instant that a waiting call has in the wheel: its deadline, or the end of
// its delay.
func (c *call) Fire(now time.Time) { c.up.fire(now, c) }

// requestSize estimates the memory that a request holds, in bytes.
func requestSize(r *upstream.Request) int64 {
	return int64(len(r.Target)+len(r.Body)) + headerSize(r.Header)
}
