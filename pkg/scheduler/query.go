package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Get returns a call.
func (s *Scheduler) Get(ctx context.Context, id string) (*Call, error) {
	var live *Call
	if err := s.loop.ask(ctx, func(now time.Time) {
		if c := s.loop.calls[id]; c != nil {
			live = look(now, c.up, c)
		}
	}); err != nil {
		return nil, err
	}
	if live != nil {
		return live, nil
	}
	return s.stored(ctx, id)
}

// stored returns a call that is not in memory.
func (s *Scheduler) stored(ctx context.Context, id string) (*Call, error) {
	c, err := s.journal.get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case !c.Durable || c.State != Waiting:
	case c.Deadline.After(time.Now()):
		return s.forecastStored(ctx, c), nil
	default: // its turn has not come, and need not
		s.withCall(ctx, id, Waiting, func(now time.Time, c *call) {
			if c != nil && c.State == Waiting && !now.Before(c.Deadline) {
				c.up.expire(now, c)
			}
		})
	}
	return c, nil
}

// forecastStored returns a call on disk with its ETA, if it still waits there.
func (s *Scheduler) forecastStored(ctx context.Context, stored *Call) *Call {
	e := s.journal.fetch(ctx, stored.ID)
	if e == nil { // it has gone on meanwhile
		return stored
	}
	c := s.loop.rehydrateOne(e)
	if c == nil {
		return stored
	}
	var live *Call
	if s.loop.ask(ctx, func(now time.Time) {
		if u := s.loop.upstreams[c.Upstream]; u != nil {
			c.up = u
			u.reroute(c)
			live = look(now, u, c)
		}
	}) != nil || live == nil {
		return stored
	}
	return live
}

// withCall runs f in the loop for a call that is in memory, or that the store has in a
// state, Waiting or Unknown; else c is nil. The message that takes the call into memory is
// that of f: the call is not sent before. An unknown call whose caller had the answer stays
// on disk, as it never goes again.
func (s *Scheduler) withCall(ctx context.Context, id string, in State, f func(now time.Time, c *call)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	inLoop := context.WithoutCancel(ctx) // a reading that has begun must end
	var r *reading
	err := s.loop.ask(inLoop, func(now time.Time) {
		if c := s.loop.calls[id]; c != nil || !s.journal.outlives() {
			f(now, c)
			return
		}
		r = s.loop.beginReading()
	})
	if err != nil || r == nil {
		return err
	}
	var stored []*call
	if e := s.journal.fetch(ctx, id); e != nil && e.Call.State == in && (e.Call.Async || in == Waiting) {
		if c := s.loop.rehydrateOne(e); c != nil {
			stored = append(stored, c)
		}
	}
	return s.loop.ask(inLoop, func(now time.Time) {
		s.loop.load(now, r, stored...)
		f(now, s.loop.calls[id])
	})
}

// A watch counts the callers of Wait for a call that is on disk only. The call takes its
// channel with it into memory, and closes it at its end.
type watch struct {
	ended   chan struct{}
	callers int
}

// watch returns a channel that is closed when a call is recorded as finished or unknown,
// nil if it is. A call on disk stays there: its turn has not come.
func (s *Scheduler) watch(ctx context.Context, id string) (ended <-chan struct{}, onDisk bool, leave func()) {
	l := s.loop
	l.ask(ctx, func(time.Time) {
		if c := l.calls[id]; c != nil {
			ended = c.whenEnded()
			return
		}
		w := l.watched[id]
		if w == nil {
			w = &watch{ended: make(chan struct{})}
			l.watched[id] = w
		}
		w.callers++
		ended, onDisk = w.ended, true
	})
	return ended, onDisk, func() {
		if !onDisk {
			return
		}
		l.ask(ctx, func(time.Time) {
			if w := l.watched[id]; w != nil && w.ended == ended {
				if w.callers--; w.callers == 0 {
					delete(l.watched, id)
				}
			}
		})
	}
}

// Wait returns a call when it is finished or unknown, or as it is when ctx ends.
func (s *Scheduler) Wait(ctx context.Context, id string) (*Call, error) {
	inLoop := context.WithoutCancel(ctx) // the call is returned as it is when ctx ends
	ended, onDisk, leave := s.watch(inLoop, id)
	defer leave()
	for ended != nil {
		var deadline <-chan time.Time
		if onDisk {
			c, err := s.Get(inLoop, id) // ends a call on disk that has passed its deadline
			if err != nil || c.State == Unknown || c.State.Finished() {
				return c, err
			}
			deadline = time.After(max(time.Until(c.Deadline), time.Second))
		}
		select {
		case <-deadline:
			continue
		case <-ended:
		case <-ctx.Done():
		case <-s.closed:
		}
		break
	}
	return s.Get(inLoop, id)
}

// List returns the calls that match a filter, by growing id, without their Response: Get
// has it.
func (s *Scheduler) List(ctx context.Context, f Filter) ([]*Call, error) {
	calls, err := s.journal.list(ctx, f)
	if err != nil {
		return nil, err
	}
	live := make([]*Call, len(calls))
	if err := s.loop.ask(ctx, func(now time.Time) {
		for i, stored := range calls {
			if c := s.loop.calls[stored.ID]; c != nil {
				live[i] = look(now, c.up, c)
				live[i].Response = nil
			}
		}
	}); err != nil {
		return nil, err
	}
	for i, c := range live {
		if c != nil {
			calls[i] = c
		}
	}
	return calls, nil
}

// Upstreams returns how the upstreams stand, by name.
func (s *Scheduler) Upstreams(ctx context.Context) ([]UpstreamStatus, error) {
	var all []UpstreamStatus
	if err := s.loop.ask(ctx, func(now time.Time) {
		for _, name := range slices.Sorted(maps.Keys(s.loop.upstreams)) {
			all = append(all, statusOf(now, s.loop.upstreams[name]))
		}
	}); err != nil {
		return nil, err
	}
	return all, nil
}

// Status returns how one upstream stands; the error is [NotFound] if there is none
// of the name.
func (s *Scheduler) Status(ctx context.Context, upstream string) (UpstreamStatus, error) {
	var st UpstreamStatus
	known := false
	if err := s.loop.ask(ctx, func(now time.Time) {
		if u := s.loop.upstreams[upstream]; u != nil {
			st, known = statusOf(now, u), true
		}
	}); err != nil {
		return UpstreamStatus{}, err
	}
	if !known {
		return UpstreamStatus{}, errNoUpstream(upstream)
	}
	return st, nil
}

// Limits returns how all limits stand, by upstream and in the order of the config.
func (s *Scheduler) Limits(ctx context.Context) ([]LimitStatus, error) {
	var all []LimitStatus
	var names []string
	if err := s.loop.ask(ctx, func(time.Time) { names = slices.Sorted(maps.Keys(s.loop.upstreams)) }); err != nil {
		return nil, err
	}
	for _, name := range names {
		for i, there := 0, true; there; i++ { // each by itself: one may have a hundred thousand keys
			var st LimitStatus
			there = false
			if err := s.loop.ask(ctx, func(now time.Time) {
				if u := s.loop.upstreams[name]; u != nil && i < len(u.limits) {
					st, there = limitStatusOf(now, u, i), true
				}
			}); err != nil {
				return nil, err
			}
			if there {
				all = append(all, st)
			}
		}
	}
	return all, nil
}

// Config returns the upstreams as they are configured now, defaults filled in.
func (s *Scheduler) Config() map[string]Upstream {
	all := make(map[string]Upstream)
	for name, sv := range *s.services.Load() {
		if sv.webhook == nil {
			all[name] = sv.Upstream
		}
	}
	return all
}

// Upstream returns an upstream as it is configured now, defaults filled in; false
// if there is none of the name.
func (s *Scheduler) Upstream(name string) (Upstream, bool) {
	sv := s.service(name)
	if sv == nil {
		return Upstream{}, false
	}
	return sv.Upstream, true
}
