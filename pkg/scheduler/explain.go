package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Why a call waits, is refused or has no answer, in words for people.

// describe returns a call with its ETA and the reason why it waits.
func describe(now time.Time, u *upstreamState, c *call) *Call {
	d := c.told()
	switch d.State {
	case Unknown:
		d.Pending = pendingOf(d, u.loop.progress(d.ID), !u.shut() && repeatIsSafe(now, u, c))
		return d
	case Waiting:
	default:
		return d
	}
	if u.shut() {
		d.WaitingFor = &WaitingFor{Removed: true}
		return d
	}
	tellFree(now, u, d)
	if u.budget.holds(c) {
		d.ETA, _ = u.forecast(now, c, nil)
		d.WaitingFor = &WaitingFor{Limit: repeatLimit, Until: d.ETA}
		return d
	}
	eta, why := u.forecast(now, c, hungPermits(now, u))
	d.ETA, d.WaitingFor = eta, &why
	d.ETA, d.WaitingFor.Until = toMonotonic(now, d.ETA), toMonotonic(now, d.WaitingFor.Until) // with the wall clock of now
	switch {
	case d.ETA.IsZero():
		tellHung(now, u, d.WaitingFor)
		tellFirst(u, d.WaitingFor, c)
	case !d.ETA.After(now) && u.circuit.full(now):
		d.ETA, d.WaitingFor = time.Time{}, &WaitingFor{Limit: ConcurrencyLimit}
		tellFlying(now, u, d.WaitingFor)
	case !d.ETA.After(now):
		d.WaitingFor = nil // it goes at once
	default:
		tellPause(now, u, d.WaitingFor)
		tellSlowed(now, u, d.WaitingFor)
		tellLate(now, u, d.WaitingFor)
		tellFirst(u, d.WaitingFor, c)
	}
	return d
}

// tellFree adds how many permits are free to those that a waiting call takes. A limit that a reload
// has taken away has none.
func tellFree(now time.Time, u *upstreamState, d *Call) {
	d.Permits = slices.Clone(d.Permits) // those of a stored call are the store's
	free := make([]int, len(d.Permits))
	for i, p := range d.Permits {
		if limit := u.limitNamed(p.Limit); limit >= 0 {
			free[i] = u.ledger.Usage(now, limit, p.Key).Free
			d.Permits[i].Free = &free[i]
		}
	}
}

// tellPause adds by whom, since when and why the limit is paused for which a call waits.
func tellPause(now time.Time, u *upstreamState, f *WaitingFor) {
	if i := u.limitNamed(f.Limit); i >= 0 && f.Paused && f.Breaker == "" {
		f.Pause = pauseOn(now, u, i, f.Key).String()
	}
}

// tellLate adds the permits that are out without an answer to the reason why a call waits.
func tellLate(now time.Time, u *upstreamState, f *WaitingFor) {
	if limit := u.limitNamed(f.Limit); limit >= 0 && !f.Paused {
		f.Late, _ = u.ledger.Cooling(now, limit, f.Key)
	}
}

// tellFirst adds the call that is first in line to the reason why another one waits.
func tellFirst(u *upstreamState, f *WaitingFor, c *call) {
	limit := u.limitNamed(f.Limit)
	if limit < 0 {
		return
	}
	if first, ok := u.planner.First(limit, f.Key); ok && first != c {
		f.Next = first.ID
	}
}

// refusal says why a new call cannot be taken; nil if it can.
func refusal(now time.Time, u *upstreamState, c *call) *Error {
	if u.loop.stopping {
		return errStopping(c.Upstream)
	}
	if full := full(u.service, u.usage.bytes.Load(), c.bytes, u.MaxWaitingBytes); full != nil {
		return full
	}
	eta, why := u.forecast(now, c, nil)
	if !eta.After(c.Deadline) {
		return nil
	}
	e := &Error{Reason: PastDeadline, Limit: why.Limit, RetryAfter: eta.Sub(c.Deadline)}
	limit := fmt.Sprintf("limit %q", why.Limit)
	if why.Key != "" {
		limit += fmt.Sprintf(" of key %q", why.Key)
	}
	late := fmt.Sprintf("later than the call may wait (until %s: %s)", stamp(c.Deadline), bound(u.service, c))
	switch {
	case why.Breaker != "" && u.circuit.due(now, c).After(c.Deadline):
		e.Reason = Paused
		e.Detail = fmt.Sprintf("the circuit breaker of upstream %q is open (%s), and such a call probes it at %s at the earliest, %s", u.Name, u.circuit.reason, stamp(u.circuit.due(now, c)), late)
	case why.Breaker == "" && why.Paused && why.Limit == ConcurrencyLimit && why.Until.After(c.Deadline):
		e.Reason = Paused
		e.Detail = fmt.Sprintf("upstream %q is paused until %s, %s; it was paused %v", u.Name, stamp(why.Until), late, pauseOn(now, u, 0, ""))
	case why.Breaker != "":
		e.Detail = fmt.Sprintf("the circuit breaker of upstream %q is open (%s), and with the calls ahead (%d) the call could go at %s, %s", u.Name, why.Breaker, why.Ahead, stamp(eta), late)
	case why.Paused:
		if why.Until.After(c.Deadline) {
			e.Reason = Paused
		}
		by := pauseOn(now, u, u.limitNamed(why.Limit), why.Key)
		if why.Limit == ConcurrencyLimit {
			limit = fmt.Sprintf("upstream %q", u.Name)
		}
		e.Detail = fmt.Sprintf("%s is paused until %s, and with the calls ahead the call could go at %s, %s; it was paused %v", limit, stamp(why.Until), stamp(eta), late, by)
	case why.Limit == "":
		e.Detail = fmt.Sprintf("the call must not go before %s, %s", stamp(eta), late)
	default:
		e.Detail = fmt.Sprintf("the call could go at %s, %s: all permits of %s are out until then, or go to calls ahead (%d)", stamp(eta), late, limit, why.Ahead)
	}
	return e
}

// bound names what ends the wait of a new call.
func bound(sv *service, c *call) string {
	earliest := later(c.AcceptedAt, toMonotonic(c.AcceptedAt, c.NotBefore))
	switch {
	case c.caller != nil && c.Deadline.Equal(c.caller.gone):
		return fmt.Sprintf("client_timeout of upstream %q, %v, less the usual time of an answer", sv.Name, sv.ClientTimeout)
	case !c.Async && c.Deadline.Equal(c.AcceptedAt.Add(sv.MaxWait)):
		return fmt.Sprintf("max_wait of upstream %q, %v", sv.Name, sv.MaxWait)
	case c.Deadline.Equal(earliest.Add(sv.MaxAge)):
		return fmt.Sprintf("max_age of upstream %q, %v", sv.Name, sv.MaxAge)
	case sv.Signer == nil && sv.Signature.Life > 0 && c.Deadline.Equal(c.AcceptedAt.Add(sv.Signature.Life)):
		return fmt.Sprintf("signature.life of upstream %q, %v", sv.Name, sv.Signature.Life)
	}
	return "the deadline that its caller set"
}

// explain says why a call that has ended has no answer. Now is the call after the queries about
// it, which may have decided it since.
func explain(c *call, now *Call) *Error {
	e := &Error{Reason: c.history().reason, Upstream: c.Upstream, Call: c.Call.snapshot()}
	last, result := c.Last(), c.history().result
	if result == nil {
		result = &upstream.Result{} // it was never sent
	}
	switch {
	case c.State == Unknown:
		e.Reason = NoAnswer
		if errors.Is(result.Err, upstream.ErrStatus) {
			e.cause = result.Err
		}
		e.Detail = fmt.Sprintf("call %s was sent and may have been executed: %s; query before you send it again", c.ID, last.Reason)
		if now.State.Finished() {
			e.Detail = fmt.Sprintf("call %s was sent and is %s, which its answer did not say: %s; query it for its details", c.ID, now.State, now.lastWords())
		}
	case e.Reason == Stopping:
		e.RetryAfter, e.Detail = time.Second, errStopping(c.Upstream).Detail
	case e.Reason == NotFound:
		e.Detail = fmt.Sprintf("upstream %q was taken out of the configuration while call %s waited; nothing was executed", c.Upstream, c.ID)
	case c.State == Cancelled && c.EndedBy != "":
		e.Reason = WrongState
		e.Detail = fmt.Sprintf("call %s has ended call %s (ends) before that was sent; nothing was executed", c.EndedBy, c.ID)
	case result.Unreachable:
		e.Reason, e.RetryAfter = Unreachable, time.Second
		e.Detail = fmt.Sprintf("upstream %q cannot be reached: %s; nothing was executed", c.Upstream, last.Reason)
	case result.Unsigned || result.Unprocessed:
		e.Reason, e.RetryAfter = Unreachable, time.Second
		if result.Unsigned {
			e.cause = upstream.ErrSigner
		}
		e.Detail = fmt.Sprintf("call %s could not be handed to upstream %q for now: %s; nothing was executed", c.ID, c.Upstream, last.Reason)
	case errors.Is(result.Err, ErrFull):
		e.Reason, e.RetryAfter, e.cause = DiskFull, time.Second, result.Err
		e.Detail = fmt.Sprintf("the store's disk is full, and call %s was not sent; free some space, or send it again later", c.ID)
	case c.State == Failed && last != nil:
		e.Reason = NotSent
		e.Detail = fmt.Sprintf("call %s was not sent: %s", c.ID, last.Reason)
	case e.Reason == Paused:
		e.Detail = fmt.Sprintf("upstream %q %s, and call %s could wait until %s only; nothing was executed", c.Upstream, c.history().paused, c.ID, stamp(c.Deadline))
	case e.Reason == PastDeadline:
		e.Detail = fmt.Sprintf("the slot of call %s did not come before it could wait no longer (%s); nothing was executed", c.ID, stamp(c.Deadline))
	default:
		e.Reason = WrongState
		e.Detail = fmt.Sprintf("call %s is %s", c.ID, c.State)
	}
	return e
}

func errNoUpstream(upstream string) *Error {
	return &Error{Reason: NotFound, Upstream: upstream, Detail: fmt.Sprintf("upstream %q is not configured", upstream)}
}

func errStopping(upstream string) *Error {
	return &Error{Reason: Stopping, Upstream: upstream, Detail: "the scheduler is shutting down, or has shut down, and takes no more calls; give the call to another process, or to the next one"}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
