package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/retry"
)

// A circuit is the way to an upstream: its breaker, the reason why that is open, and the
// probes. The loop alone calls it.
type circuit struct {
	retry.Breaker
	up        *upstreamState
	reason    string    // why it is open
	since     time.Time // it is open
	listening bool      // a listener is in the wheel

	begun, over []lease.Hold  // to be stored
	storing     bool          // others are being stored
	stored      chan struct{} // if not nil, closed when all are
}

const (
	// circuitHold is the name under which the store knows that a circuit is open. No limit
	// has it: names have no such signs.
	circuitHold = "(breaker)"
	// circuitKept is how long the store knows it at most.
	circuitKept = 30 * 24 * time.Hour
)

// probe sends the probe of an open circuit if one is due, and returns how many other
// calls may begin. The probe is a call that may be repeated, or a query about an unknown
// one, if any can go; later another call, which becomes unknown if the probe fails.
func (ci *circuit) probe(now time.Time) (others int) {
	most := ci.Allow(now)
	if most == 0 || !ci.Open() {
		return most
	}
	if it := ci.up.planner.Probe(now); it != nil {
		ci.up.send(now, it.Value)
		return 0
	}
	if !ci.Risk(now) {
		return 0
	}
	return most
}

// full reports whether calls wait for the end of attempts because the circuit has just
// closed: they begin one by one, more with each answer.
func (ci *circuit) full(now time.Time) bool { return !ci.Open() && ci.Allow(now) == 0 }

// due returns when a call may be the next probe; zero if the circuit is closed.
func (ci *circuit) due(now time.Time, c *call) time.Time {
	at := ci.Until(now)
	if !at.IsZero() && !c.item.Demand.Repeatable && ci.RiskAt().After(at) {
		return ci.RiskAt()
	}
	return at
}

// begin notes an attempt.
func (ci *circuit) begin(now time.Time, c *call) {
	ci.Begin(now, c.item.Seq)
	if !ci.listening {
		ci.listen(now)
	}
}

// listen opens the circuit if the upstream is silent, or looks again when it may be.
func (ci *circuit) listen(now time.Time) {
	opened, at := ci.Listen(now, ci.up.loop.random())
	if ci.listening = !at.IsZero(); ci.listening {
		ci.up.loop.wheel.Insert(at.Sub(ci.up.loop.origin), listener{ci})
	}
	if opened {
		ci.opened(now, fmt.Sprintf("no answer for %v, with %d attempts in flight", now.Sub(ci.Heard()).Round(time.Millisecond), ci.up.count[sending]))
	}
}

// A listener is in the wheel for the instant at which an upstream may be silent.
type listener struct{ *circuit }

func (l listener) Fire(now time.Time) { l.listen(now) }

// judge tells the breaker how far an attempt got.
func (ci *circuit) judge(now time.Time, c *call, e ending) {
	r := e.result
	before, failures, reach := ci.Health(), ci.Failures(), reachOf(r)
	if ci.up.loop.stopping { // which may have ended the attempt
		reach = retry.Unproven
	}
	if !ci.Record(now, c.item.Seq, e.subject, c.flight.sentAt, reach, ci.up.loop.random()) {
		return
	}
	switch {
	case !ci.Open():
		ci.closed(now, before, failures)
	case before == retry.Healthy && ci.Health() == retry.Failing:
		ci.opened(now, fmt.Sprintf("the outcomes of %d of the last %d calls are unknown; the last one: %s", ci.up.Breaker.Unknown, ci.up.Breaker.Of, r.Reason))
	case before == retry.Healthy:
		ci.opened(now, r.Reason)
	default:
		ci.schedule()
	}
}

// schedule has the loop dispatch when the next probe is due.
func (ci *circuit) schedule() {
	for _, at := range []time.Time{ci.ProbeAt(), ci.RiskAt()} {
		ci.up.loop.wheel.Insert(at.Sub(ci.up.loop.origin), dispatchAgain{})
	}
}

// dispatchAgain is in the wheel so that the loop dispatches again.
type dispatchAgain struct{}

func (dispatchAgain) Fire(time.Time) {}

// opened tells that the breaker has opened.
func (ci *circuit) opened(now time.Time, reason string) {
	ci.reason, ci.since = reason, now
	ci.schedule()
	cause := ci.Health().String()
	ci.up.loop.log.Warn("the circuit breaker of an upstream opened; its calls wait, and one at a time probes it", "upstream", ci.up.Name, "cause", cause, "reason", reason, "probe_in", ci.ProbeAt().Sub(now).String())
	ci.up.loop.observe(Event{Kind: EventPaused, Call: &Call{Upstream: ci.up.Name}, Reason: Reason(cause), Until: ci.ProbeAt()})
	if ci.Health() != retry.Down { // a dial is no loss, so the next process finds out by itself
		ci.keep(now, now.Add(circuitKept))
	}
}

// closed tells that the breaker has closed after so many failures.
func (ci *circuit) closed(now time.Time, was retry.Health, failures int) {
	ci.up.loop.log.Info("the circuit breaker of an upstream closed", "upstream", ci.up.Name, "cause", was.String(), "open_for", now.Sub(ci.since).Round(time.Millisecond).String(), "failures", failures)
	ci.up.loop.observe(Event{Kind: EventResumed, Call: &Call{Upstream: ci.up.Name}, Reason: Reason(was.String())})
	ci.reason = ""
	ci.keep(now, time.Time{})
}

// reset closes the breaker: a person says that the upstream is well, or it is another one.
func (ci *circuit) reset(now time.Time) {
	was, failures := ci.Health(), ci.Failures()
	ci.Reset(now)
	if was != retry.Healthy {
		ci.closed(now, was, failures)
	}
}

// restore opens the circuit as an earlier process left it, unless the hold is over.
func (ci *circuit) restore(now time.Time, h *lease.Hold) {
	if health := retry.Health(h.Permits); h.Back.After(now) && ci.up.Breaker.Unknown > 0 && (health == retry.Failing || health == retry.Silent) {
		ci.Restore(now, health, ci.up.loop.random())
		ci.reason, ci.since = cmp.Or(h.Reason, "it was open before this process had the calls"), now
		if !h.Since.IsZero() {
			ci.since = toMonotonic(now, h.Since)
		}
		ci.schedule()
	}
}

// keep stores that the circuit is open until an instant at most, or that it is closed, in
// the order in which that became so.
func (ci *circuit) keep(now, until time.Time) {
	l := ci.up.loop
	begun, over := l.notePause(now, lease.Hold{Upstream: ci.up.Name, Limit: circuitHold, Permits: int(ci.Health()), Back: until, Paused: true, Since: ci.since, Reason: ci.reason})
	ci.begun, ci.over = append(ci.begun, begun...), append(ci.over, over...)
	ci.store()
}

// whenStored returns a channel that is closed when all changes are stored, nil if they are.
func (ci *circuit) whenStored() <-chan struct{} {
	if ci.storing && ci.stored == nil {
		ci.stored = make(chan struct{})
	}
	return ci.stored
}

// store stores the changes that have come while others were being stored.
func (ci *circuit) store() {
	begun, over := ci.begun, ci.over
	switch {
	case ci.storing:
		return
	case len(begun)+len(over) == 0:
		if ci.stored != nil {
			close(ci.stored)
			ci.stored = nil
		}
		return
	}
	ci.begun, ci.over, ci.storing = nil, nil, true
	l := ci.up.loop
	l.beside(func() { l.journal.pause(context.Background(), begun, over) }, func(time.Time) {
		ci.storing = false
		ci.store()
	})
}
