package scheduler

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// recover takes over what an earlier process left in the store, before the loop
// runs. Permits of attempts that were never heard of again come back at restart +
// late + window; calls that were being sent are unknown, and go again only where
// the upstream recognises the repeat.
func (s *Scheduler) recover() error {
	l := s.loop
	recent := time.Duration(0)
	for _, p := range l.planners {
		for i := range p.limits {
			if !p.limits[i].long(s.long) {
				recent = max(recent, p.limits[i].Window+p.Late+2*time.Minute) // a minute that is aligned, and skew
			}
		}
	}
	past, err := s.durable.Recover(s.ctx, recent, s.repeat)
	if err != nil {
		return err
	}
	now := time.Now()
	if behind := past.Mark.Sub(now); behind > 0 {
		s.log.Warn("the wall clock is behind what the store has seen; nothing comes back sooner for it", "behind", behind.String())
	}
	l.seq = uint64(past.Seq)
	l.blocks = past.Epoch << 32
	for _, name := range slices.Sorted(maps.Keys(past.Backlog)) {
		b := past.Backlog[name]
		if p := l.planners[name]; p != nil {
			p.inherit(b)
			continue
		}
		l.absent[name] = absent{backlog: b}
		if n := b.Waiting + b.Unknown; n > 0 {
			s.log.Warn("calls of an upstream that is not configured stay in the store", "upstream", name, "calls", n)
		}
	}
	if err := s.durable.Restate(s.ctx, l.restore(now, past)); err != nil {
		return err
	}
	l.wheel.Insert(0, look{l: l})
	if n := past.Broken; n > 0 {
		s.log.Warn("calls were being sent when the last process ended; they may have been executed", "calls", n)
	}
	return nil
}

// restore gives the ledgers what is out, and returns it with the instants at which
// it comes back.
func (l *loop) restore(now time.Time, past *Past) []Hold {
	var known []Hold
	for _, h := range past.Holds {
		p := l.planners[h.Upstream]
		if h.Paused {
			h.ID = l.nextHold()
			l.pauses[h.pause()] = h
		}
		switch {
		case p == nil && !h.Paused:
			a := l.absent[h.Upstream]
			a.holds = append(a.holds, h)
			l.absent[h.Upstream] = a
		case p != nil && !p.restore(now, past.Mark, &h):
			continue // there is no such limit any more
		}
		known = append(known, h)
	}
	return known
}

// repeat decides about a call that was being sent when the last process ended.
func (s *Scheduler) repeat(e *Entry) (at time.Time, ok bool) {
	c := s.revive(e)
	if c == nil {
		return at, false
	}
	p := s.loop.planners[c.Upstream]
	broken := &upstream.Result{Outcome: upstream.Unknown, Sent: true}
	repeatable, until := p.repeatable(c, broken)
	d := p.Retry.Next(time.Now(), retry.Attempt{
		Number: c.flight.burnt, Outcome: retry.Unknown, Repeatable: repeatable, Until: until,
	}, rand.Float64())
	return d.At, d.Again && p.mayGoAgain(c, broken) && d.At.Before(c.Deadline)
}

// reviveAll makes calls of those entries whose upstream is configured.
func (s *Scheduler) reviveAll(entries []Entry) []*call {
	var calls []*call
	for i := range entries {
		if c := s.revive(&entries[i]); c != nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// revive makes a call of what the store knows of it, nil if its upstream is not
// configured or its request was not kept. Whoever waited for it has gone.
func (s *Scheduler) revive(e *Entry) *call {
	sv := s.service(e.Call.Upstream)
	if sv == nil || e.Request == nil {
		return nil
	}
	in := upstream.NewInput(e.Request)
	c := &call{
		Call: e.Call, request: e.Request, route: sv.reroute(in),
		bytes: e.Bytes, seq: uint64(e.Call.Seq),
	}
	now := time.Now()
	c.Async = true
	c.AcceptedAt, c.Deadline = anchor(now, c.AcceptedAt), anchor(now, c.Deadline)
	if c.Due.After(now) {
		c.due = anchor(now, c.Due).Sub(s.loop.origin)
	}
	if c.flight = flightOf(now, c.Call); c.flight != nil {
		c.Deadline = sv.goodFor(c.flight, c.Deadline)
	}
	return c
}

// flightOf returns what the attempts of a stored call tell, nil if there are none.
func flightOf(now time.Time, c *Call) *flight {
	if len(c.Attempts) == 0 {
		return nil
	}
	f := &flight{firstSent: anchor(now, c.Attempts[0].SentAt)}
	for _, a := range c.Attempts {
		f.used = f.used || a.Status != 0 || a.Outcome != upstream.NotExecuted
		if f.repeat = a.Outcome == upstream.Unknown && !a.Resolved; f.repeat {
			f.burnt++
			f.doubt = true
		}
	}
	return f
}

// anchor puts an instant of the wall clock on the monotonic one.
func anchor(now, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now))
}

// fetch takes a call in hand that is on disk only. It leaves an unknown one whose
// caller has been told so: that never goes again.
func (s *Scheduler) fetch(ctx context.Context, id string) {
	if e := s.entry(ctx, id); e != nil && (e.Call.Async || e.Call.State == Waiting) {
		if c := s.revive(e); c != nil {
			s.ask(ctx, func(now time.Time) { s.loop.load(now, []*call{c}) })
		}
	}
}

// foresee tells when a call on disk can be expected to go.
func (s *Scheduler) foresee(ctx context.Context, told *Call) {
	if e := s.entry(ctx, told.ID); e != nil { // else it has gone on meanwhile
		if c := s.revive(e); c != nil {
			var now Call
			if s.ask(ctx, func(at time.Time) { now = s.loop.look(at, c) }) == nil {
				*told = now
			}
		}
	}
}

// entry returns a durable call that waits or is unknown, nil if there is none.
func (s *Scheduler) entry(ctx context.Context, id string) (e *Entry) {
	if s.durable == nil {
		return nil
	}
	err := s.reading(func() (err error) {
		e, err = s.durable.Fetch(ctx, id)
		return err
	})
	if err != nil {
		s.check(err)
		return nil
	}
	return e
}

// reconsider does what follows the end of calls of some upstreams that were left in
// the store: telling whoever wants to know, and asking about what is unknown.
func (s *Scheduler) reconsider(upstreams []string) {
	s.tellUntold(upstreams)
	unknown := func(ctx context.Context, after string, most int) ([]*Call, error) {
		return s.durable.List(ctx, Filter{State: Unknown, After: after, Max: most})
	}
	s.each(unknown, upstreams, func(c *Call) {
		s.fetch(s.afterCtx, c.ID)
		s.ask(s.afterCtx, func(time.Time) {
			if c := s.loop.calls[c.ID]; c != nil && !s.loop.stopping {
				s.loop.inquire(c)
			}
		})
	})
}

// each does something with the calls of some upstreams that a list of the store has,
// until a stop.
func (s *Scheduler) each(list func(ctx context.Context, after string, most int) ([]*Call, error), upstreams []string, do func(*Call)) {
	for after, more := "", true; more; {
		var calls []*Call
		err := s.reading(func() (err error) {
			calls, err = list(s.afterCtx, after, pageCalls)
			return err
		})
		if err != nil {
			s.check(err)
			return
		}
		for _, c := range calls {
			if s.afterCtx.Err() != nil {
				return
			}
			if after = c.ID; slices.Contains(upstreams, c.Upstream) {
				do(c)
			}
		}
		more = len(calls) == pageCalls
	}
}

// fail ends the scheduler: its store can promise nothing any more. Nothing is
// accepted or sent after it; attempts in flight end.
func (s *Scheduler) fail(err error) {
	s.failing.Do(func() {
		s.failure = err
		close(s.failed)
		s.log.Error("the store has failed; nothing more is accepted or sent", "err", err)
		s.loop.post(s.loop.stop)
	})
}

// Failed is closed when the store has failed: the scheduler accepts and sends
// nothing any more, and Close tells why. The process should end; the next one
// finds what is known.
func (s *Scheduler) Failed() <-chan struct{} { return s.failed }

// check ends the scheduler if an error of the store says so.
func (s *Scheduler) check(err error) {
	if errors.Is(err, ErrBroken) {
		s.fail(err)
	}
}

// hasFailed tells whether the store has failed.
func (s *Scheduler) hasFailed() bool {
	select {
	case <-s.failed:
		return true
	default:
		return false
	}
}

// storeOf returns where a call is kept.
func (s *Scheduler) storeOf(c *Call) Store {
	if c.Durable {
		return s.durable
	}
	return s.store
}

// intend stores what must be known of an attempt before its first byte.
func (s *Scheduler) intend(c *call, intent *Call, take []Hold) error {
	if s.hasFailed() {
		return ErrBroken
	}
	ctx := context.WithoutCancel(s.ctx)
	var err error
	switch {
	case intent.Durable:
		err = s.durable.Intend(ctx, intent, take)
	case len(take) > 0:
		err = s.durable.Intend(ctx, nil, take)
	}
	if err != nil {
		s.check(err)
		return err
	}
	if len(take) > 0 {
		s.loop.post(func(time.Time) {
			for _, b := range c.flight.blocks {
				b.stored = true
			}
		})
	}
	if !intent.Durable {
		return s.store.Intend(ctx, intent, nil)
	}
	return nil
}

// vanish drops a call about which the store knows that it is not waiting.
func (l *loop) vanish(now time.Time, c *call) {
	p := l.planners[c.Upstream]
	never := &upstream.Result{Outcome: upstream.NotExecuted, AnsweredAt: now}
	l.busy--
	p.sending--
	p.door.heard(now, c, never)
	if p.spender != nil {
		_, settled := p.spender.back(now, p, c, never)
		l.settled(settled)
	}
	p.back(now, c.flight, never)
	p.backlog.forget(c)
	if p.backlog != nil { // it was counted when it was read
		p.waiting++
		p.backlog.far++
	}
	delete(l.calls, c.ID)
	if c.settled != nil {
		close(c.settled)
	}
}

// settled stores when the permits of blocks come back. Nobody waits for that.
func (l *loop) settled(holds []Hold) {
	if len(holds) == 0 {
		return
	}
	l.busy++
	l.s.work.Go(func() {
		if err := l.s.durable.Settle(context.WithoutCancel(l.s.ctx), holds); err != nil {
			l.s.check(err)
		}
		l.post(func(time.Time) { l.busy-- })
	})
}
