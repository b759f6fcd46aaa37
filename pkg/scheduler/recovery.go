package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// pollEvery is how often calls whose time has come near are read from disk.
const pollEvery = horizon / 2

// recover takes over the state that an earlier process left in the store, before the
// loop runs. Permits of attempts without a recorded end come back at restart + late +
// window; calls that were being sent are unknown, and go again only where the upstream
// recognises the repeat.
func (l *loop) recover() error {
	past, err := l.journal.recover(l.cuts, l.recentAttempts(), l.repeatAfterCrash)
	if err != nil {
		return fmt.Errorf("throttler: %w", err)
	}
	now := time.Now()
	if past.Step.Abs() > time.Second {
		l.log.Warn("the wall clock was stepped while no process ran; permits of calendar windows that are out come back a window later at most", "step", past.Step.String())
	}
	l.seq, l.alive, l.timeouts = uint64(past.Seq), past.Alive, past.Timeouts
	l.holdID = past.Epoch << 32
	for _, name := range slices.Sorted(maps.Keys(past.Backlog)) {
		b := past.Backlog[name]
		if u := l.upstreams[name]; u != nil {
			u.inherit(b)
			continue
		}
		l.absent[name] = detached{since: now, backlog: b}
		if n := b.Waiting + b.Unknown; n > 0 {
			l.log.Warn("calls of an upstream that is not configured stay in the store", "upstream", name, "calls", n)
		}
	}
	known := l.restore(now, past)
	if past.Restored {
		l.restored = now
		for _, u := range l.upstreams {
			known = append(known, u.fill(now, l.lastEnd(u, now))...)
		}
	}
	if err := l.journal.restate(l.cuts, known); err != nil {
		return fmt.Errorf("throttler: %w", err)
	}
	l.wheel.Insert(0, poll{l: l})
	switch n := past.Interrupted; {
	case past.Restored:
		l.log.Warn("the store is an earlier state of itself: the calls that waited in it are unknown, and limits are full for a window", "calls", n)
	case n > 0:
		l.log.Warn("calls of the last process were being sent, and have no recorded end; they may have been executed", "calls", n)
	}
	l.tellRecovered(now, past)
	return nil
}

// tellRecovered logs what the store had.
func (l *loop) tellRecovered(now time.Time, past *Recovered) {
	var all Backlog
	for _, b := range past.Backlog {
		all.Waiting += b.Waiting
		all.Unknown += b.Unknown
	}
	pauses := 0
	for _, h := range l.pauses {
		if h.Back.After(now) {
			pauses++
		}
	}
	l.log.Info("restored from the store", "waiting", all.Waiting, "unknown", all.Unknown, "interrupted", past.Interrupted, "pauses", pauses, "idempotency_keys", past.Keys)
}

// recentAttempts returns how far back ended attempts can still have permits of short
// windows out.
func (l *loop) recentAttempts() time.Duration {
	recent := time.Duration(0)
	for _, u := range l.upstreams {
		for i := range u.limits {
			if !u.limits[i].long(l.longWindow) {
				recent = max(recent, u.limits[i].Kind().Length()+u.Late+2*time.Minute) // with skew
			}
		}
	}
	return recent
}

// restore gives the ledgers the permits that are out, and returns them with the instants
// at which they come back.
func (l *loop) restore(now time.Time, past *Recovered) []lease.Hold {
	var known []lease.Hold
	for _, h := range past.Holds {
		u := l.upstreams[h.Upstream]
		if h.Paused && !h.Back.After(now) {
			continue // it has ended
		}
		if h.Paused {
			h.ID = l.nextHold()
			l.pauses[pauseOf(&h)] = h
		}
		switch {
		case u == nil && !h.Paused:
			d := l.absent[h.Upstream]
			d.since, d.step, d.holds = now, past.Step, append(d.holds, h)
			l.absent[h.Upstream] = d
		case u != nil && !u.restore(now, l.lastEnd(u, now), past.Step, &h):
			continue // there is no such limit any more
		}
		known = append(known, h)
	}
	return known
}

// lastEnd returns the instant by which the attempts of the last process at an upstream have ended,
// if that process was seen to be gone at an instant. Of a leased store a hold may be about a process before that, whose
// attempts go on no longer than those that begin now, or by the time-outs that the last owner left.
func (l *loop) lastEnd(u *upstreamState, seen time.Time) time.Time {
	end, timeout := seen, max(u.up.Timeout, l.timeouts[u.Name])
	if !l.alive.IsZero() {
		end = later(seen, l.alive.Add(timeout))
	}
	until := end
	if l.journal.allowed() != nil {
		until = later(end, seen.Add(timeout))
	}
	u.ledger.Outlived(until)
	return end
}

// repeatAfterCrash decides about a call that was being sent when the last process ended. In a
// restored copy only webhooks are repeated: another call may have been answered since, and
// that answer acted upon.
func (l *loop) repeatAfterCrash(e *Entry) (at time.Time, ok bool) {
	if sv := l.service(e.Call.Upstream); e.Restored && (sv == nil || sv.webhook == nil) {
		return at, false
	}
	c := l.rehydrateOne(e)
	if c == nil {
		return at, false
	}
	sv, now := l.service(c.Upstream), time.Now()
	broken := &upstream.Result{Outcome: upstream.Unknown, Sent: true}
	attempt := sv.retryAttempt(c.request, *c.flight, broken)
	attempt.Number = c.flight.counted // it is among the attempts that the store knows
	d := sv.Retry.Next(now, attempt, l.random())
	n := nextAttempt(now, sv, true, *c.flight, broken, d)
	return n.at, n.again && n.at.Before(c.Deadline)
}

// rehydrate makes calls of stored entries whose upstream is configured.
func (l *loop) rehydrate(entries []Entry) []*call {
	var calls []*call
	for i := range entries {
		if c := l.rehydrateOne(&entries[i]); c != nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// rehydrateOne makes a call of a stored entry, nil if its upstream is not configured or
// its request was not kept. The caller that waited for it has left. It may run outside
// the loop.
func (l *loop) rehydrateOne(e *Entry) *call {
	sv := l.service(e.Call.Upstream)
	if sv == nil || e.Request == nil {
		return nil
	}
	c := &call{Call: e.Call, request: e.Request, query: e.Call.Resolves != "", bytes: e.Bytes, generation: sv.generation}
	c.item.Value, c.item.Priority, c.item.Seq = c, c.Priority, uint64(c.Seq)
	c.item.Demand = sv.redemand(upstream.NewInput(e.Request), c.query)
	if !c.query {
		c.identities, _ = identitiesOf(sv, upstream.NewInput(e.Request))
	}
	now := time.Now()
	c.Async = true
	c.AcceptedAt, c.Deadline = toMonotonic(now, c.AcceptedAt), toMonotonic(now, c.Deadline)
	if c.Due.After(now) {
		c.due = toMonotonic(now, c.Due).Sub(l.origin)
	}
	if c.flight = flightOf(now, c.Call); c.flight != nil {
		c.Deadline = sv.repeatableUntil(c.flight, c.Deadline)
	}
	return c
}

// flightOf returns the history that the attempts of a stored call tell, nil if there are
// none.
func flightOf(now time.Time, c *Call) *flight {
	if len(c.Attempts) == 0 {
		return nil
	}
	f := &flight{endedBy: c.EndedBy}
	retried, duplicate := c.retried()
	for _, a := range c.Attempts {
		if f.firstSent.IsZero() && a.N > duplicate {
			f.firstSent = toMonotonic(now, a.SentAt)
		}
		doubtful, anew := a.Outcome == upstream.Unknown && !a.Resolved, a.N > retried
		f.used = f.used || a.Status != 0 || a.Outcome != upstream.NotExecuted
		f.maybe = f.maybe || doubtful
		f.repeat = doubtful && anew
		if anew && (doubtful || a.Outcome == upstream.Failed && !a.Resolved) {
			f.counted++
		}
	}
	return f
}

// toMonotonic puts an instant of the wall clock on the monotonic one.
func toMonotonic(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now))
}

// A poll fetches from disk the calls that were delayed and whose time has come near. A
// call that was not delayed, and waits on disk past its deadline, ends when its turn
// comes, or when it is asked about.
type poll struct {
	l     *loop
	after Position
}

func (p poll) Fire(now time.Time) {
	l := p.l
	if l.stopping {
		l.wheel.Insert(now.Sub(l.origin)+pollEvery, poll{l: l})
		return
	}
	var page *Page
	var calls []*call
	r := l.beginReading()
	l.beside(func() {
		if page = l.journal.waking(now.Add(horizon), p.after); page != nil {
			calls = l.rehydrate(page.Entries)
		}
	}, func(now time.Time) {
		l.load(now, r, calls...)
		if page != nil && !page.End && !l.crowded() {
			l.wheel.Insert(now.Sub(l.origin), poll{l, page.Last})
			return
		}
		l.wheel.Insert(now.Sub(l.origin)+pollEvery, poll{l: l})
	})
}

// crowded reports whether no more calls should be fetched from disk for now.
func (l *loop) crowded() bool {
	for _, u := range l.upstreams {
		if u.window.Crowded() {
			return true
		}
	}
	return false
}
