package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Get returns a call. While the end of a durable call is being stored the call is sending: a
// reader of an end finds the same after a crash.
func (s *Scheduler) Get(ctx context.Context, id string) (*Call, error) {
	if live, err := s.live(ctx, id); err != nil || live != nil {
		return live, err
	}
	return s.stored(ctx, id)
}

// Request returns the request of a call that has not finished, as it was accepted; it must not be
// changed. The error has reason NotFound if there is none: it is erased when the call ends, and a
// request that stays out of the store (no_body), or that memory keeps only for queries, is not shown.
func (s *Scheduler) Request(ctx context.Context, id string) (*upstream.Request, error) {
	c, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var request *upstream.Request
	live, hidden := false, false
	if err := s.loop.ask(ctx, func(time.Time) {
		if c := s.loop.calls[id]; c != nil {
			live, hidden, request = true, c.noBody, c.request
		}
	}); err != nil {
		return nil, err
	}
	if !live {
		if e := s.journal.fetch(ctx, id); e != nil {
			hidden, request = e.NoBody, e.Request
		}
	}
	if request == nil || hidden {
		return nil, &Error{Reason: NotFound, Detail: fmt.Sprintf("call %s is %s, and its request is not kept", id, c.State)}
	}
	return request, nil
}

// live returns a call as it stands in memory, nil if it is not there.
func (s *Scheduler) live(ctx context.Context, id string) (live *Call, err error) {
	err = s.loop.ask(ctx, func(now time.Time) {
		if c := s.loop.calls[id]; c != nil {
			live = describe(now, c.up, c)
		}
	})
	return live, err
}

// stored returns a call that is not in memory.
func (s *Scheduler) stored(ctx context.Context, id string) (*Call, error) {
	c, err := s.journal.get(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.onDisk(ctx, c), nil
}

// onDisk returns a stored call that is not in memory as it stands: one that waits has its
// ETA, and ends if its deadline has passed; one that is unknown says what happens next.
func (s *Scheduler) onDisk(ctx context.Context, c *Call) *Call {
	switch {
	case c.State == Unknown:
		c.Pending = pendingOf(c, s.followUps.questions.progress(c.ID), s.followUps.repeatIsSafe(ctx, c))
	case !c.Durable || c.State != Waiting:
	case s.service(c.Upstream) == nil:
		c.WaitingFor = &WaitingFor{Removed: true}
	case c.Deadline.After(time.Now()):
		return s.forecastStored(ctx, c)
	default: // its turn has not come, and need not
		var ended <-chan struct{}
		s.withCall(ctx, c.ID, Waiting, func(now time.Time, live *call) {
			if live != nil && live.State == Waiting && !now.Before(live.Deadline) {
				ended = live.whenEnded()
				live.up.expire(now, live)
			}
		})
		if ended == nil || await(ctx, ended) != nil {
			return c
		}
		if expired, err := s.journal.get(ctx, c.ID); err == nil {
			return expired
		}
	}
	return c
}

// forecastStored returns a call on disk with its ETA, or as it is if it has gone on since.
func (s *Scheduler) forecastStored(ctx context.Context, stored *Call) *Call {
	e := s.journal.fetch(ctx, stored.ID)
	if e == nil { // it has gone on meanwhile
		if gone, err := s.live(ctx, stored.ID); err == nil && gone != nil {
			return gone
		}
		if ended, err := s.journal.get(ctx, stored.ID); err == nil {
			return ended
		}
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
			live = describe(now, u, c)
		}
	}) != nil || live == nil {
		return stored
	}
	return live
}

// withCall runs f in the loop for a call that is in memory, or that the store has in a
// state, Waiting or Unknown; else c is nil. The message that takes the call into memory is
// that of f: the call is not sent before, and one that stays unknown leaves memory again. An
// unknown call whose caller had the answer stays on disk, as it never goes again.
func (s *Scheduler) withCall(ctx context.Context, id string, in State, f func(now time.Time, c *call)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	inLoop := context.WithoutCancel(ctx) // a reading that has begun must end
	for {
		var r *reading
		var entry <-chan struct{}
		err := s.loop.ask(inLoop, func(now time.Time) {
			if c := s.loop.calls[id]; c != nil || !s.journal.outlives() {
				f(now, c)
				return
			}
			if entry = s.loop.entryOf(id); entry == nil {
				r = s.loop.beginReading()
			}
		})
		if entry != nil {
			if err := await(ctx, entry); err != nil {
				return err
			}
			continue
		}
		if err != nil || r == nil {
			return err
		}
		stored := s.fetch(ctx, id, in)
		again := false
		if err := s.loop.ask(inLoop, func(now time.Time) {
			if again = r.outdated(id) && s.loop.calls[id] == nil; again {
				s.loop.load(now, r)
				return
			}
			s.loop.load(now, r, stored...)
			c := s.loop.calls[id]
			f(now, c)
			if c != nil {
				c.up.rest(c)
			}
		}); err != nil || !again {
			return err
		}
	}
}

// awaitEntry waits until a call that is in the store has come into the loop: the store knows less of it.
func (s *Scheduler) awaitEntry(ctx context.Context, id string) {
	var entry <-chan struct{}
	s.loop.ask(ctx, func(time.Time) { entry = s.loop.entryOf(id) })
	if entry != nil {
		await(ctx, entry)
	}
}

// fetch reads a call that the store has in a state; there is none, or one.
func (s *Scheduler) fetch(ctx context.Context, id string, in State) (calls []*call) {
	e := s.journal.fetch(ctx, id)
	if e == nil || e.Call.State != in || in == Unknown && !e.Call.Async {
		return nil
	}
	return s.loop.rehydrate([]Entry{*e})
}

// watch begins to watch a call. Runs tells that there will be news, as the call is in memory and has
// not ended, or comes into the loop now; else the caller has to look for it. The watch is nil if the
// loop has ended.
func (s *Scheduler) watch(ctx context.Context, id string) (w *watch, runs bool) {
	l := s.loop
	l.ask(ctx, func(time.Time) {
		w = l.watched.join(id)
		c := l.calls[id]
		runs = l.accepting[id] || c != nil && c.State != Unknown
	})
	return w, runs
}

// unwatch ends the watch of a call by a caller.
func (s *Scheduler) unwatch(ctx context.Context, id string, w *watch) {
	s.loop.ask(ctx, func(time.Time) { s.loop.watched.leave(id, w) })
}

// Wait returns a call when it is finished or unknown, or as it is when ctx ends.
func (s *Scheduler) Wait(ctx context.Context, id string) (*Call, error) {
	inLoop := context.WithoutCancel(ctx) // the call is returned as it is when ctx ends
	for {
		w, runs := s.watch(inLoop, id)
		if w == nil {
			return s.Get(inLoop, id)
		}
		var late <-chan time.Time
		if !runs {
			c, err := s.Get(ctx, id)
			switch {
			case ctx.Err() != nil:
			case err != nil || c.ended():
				s.unwatch(inLoop, id, w)
				return c, err
			default: // one on disk ends when it is looked for after its deadline
				late = time.After(max(time.Until(c.Deadline), time.Second))
			}
		}
		more := true
		select {
		case <-w.news:
			if w.end != nil {
				return w.end.whole(), nil
			}
		case <-late:
		case <-ctx.Done():
			more = false
		case <-s.closed:
			more = false
		}
		s.unwatch(inLoop, id, w)
		if c, err := s.Get(inLoop, id); err != nil || c.ended() || !more {
			return c, err
		}
	}
}

// listRounds bounds the pages of the stores of which a page is made.
const listRounds = 10

// List returns a page of the calls that match a filter, without their Response: Get has it. Each
// matches when the list is made, whichever state it had when it was read from the store. A page
// that has a next one may have fewer than Max calls, or none.
func (s *Scheduler) List(ctx context.Context, f Filter) (*ListPage, error) {
	all := &ListPage{Next: f.After}
	for round := 0; round == 0 || round < listRounds && all.Next != "" && len(all.Calls) < f.Max; round++ { // others take the places of calls that have gone on
		page := f
		page.After = all.Next
		read, err := s.journal.list(ctx, page)
		if err != nil {
			return nil, err
		}
		full := len(read.Calls) == f.Max
		all.Calls, all.Next = append(all.Calls, read.Calls...), read.Next
		if err := s.refresh(ctx, all.Calls); err != nil {
			return nil, err
		}
		all.Calls = slices.DeleteFunc(all.Calls, func(c *Call) bool { return c == nil || !f.Matches(c) })
		if !full { // it has looked at enough
			break
		}
	}
	if f.Max > 0 && len(all.Calls) > f.Max {
		all.Calls = all.Calls[:f.Max]
		all.Next = all.Calls[f.Max-1].ID
	}
	return all, nil
}

// refresh replaces the calls of a list by what is known of them now; those that have been
// forgotten since become nil.
func (s *Scheduler) refresh(ctx context.Context, calls []*Call) (err error) {
	stored := make(map[int]*Call)
	if err := s.loop.ask(ctx, func(now time.Time) {
		for i, listed := range calls {
			if c := s.loop.calls[listed.ID]; c != nil {
				calls[i] = describe(now, c.up, c)
				calls[i].Response = nil
			} else if listed.State == Waiting || listed.State == Sending || listed.State == Unknown {
				stored[i] = listed
			}
		}
	}); err != nil {
		return err
	}
	for i, c := range stored {
		if c.Durable && c.State == Waiting || c.State == Unknown {
			c = s.onDisk(ctx, c)
		} else if c, err = s.stored(ctx, c.ID); errors.Is(err, ErrNotFound) {
			c = nil
		} else if err != nil {
			return err
		}
		if calls[i] = c; c != nil {
			c.Response = nil
		}
	}
	return ctx.Err()
}

// Upstreams returns how the upstreams stand, by name. One that was removed from the
// configuration is among them while it has calls.
func (s *Scheduler) Upstreams(ctx context.Context) ([]UpstreamStatus, error) {
	var all []UpstreamStatus
	if err := s.loop.ask(ctx, func(now time.Time) {
		all = statusesOf(now, s.loop)
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
		} else if _, known = s.loop.absent[upstream]; known {
			st = absentStatusOf(now, s.loop, upstream)
		}
	}); err != nil {
		return UpstreamStatus{}, err
	}
	if !known {
		return UpstreamStatus{}, errNoUpstream(upstream)
	}
	return st, nil
}

// Limits returns how all limits stand, by upstream and in the order of the config. With many keys
// it is as old as [LimitStatus] says. What its elements refer to is not to be changed.
func (s *Scheduler) Limits(ctx context.Context) ([]LimitStatus, error) {
	made, err := s.sampler.read(ctx, s.loop)
	return slices.Clone(made.limits), err
}

// Key returns how one key of a limit stands now, also one that is not in use; a limit without keys
// has the empty one. The error is [NotFound] if there is no such limit, and [BadRequest] if it has
// no keys.
func (s *Scheduler) Key(ctx context.Context, upstream, limit, key string) (st KeyStatus, err error) {
	if asked := s.loop.ask(ctx, func(now time.Time) { st, err = keyStatusOf(now, s.loop, upstream, limit, key) }); asked != nil {
		return st, asked
	}
	return st, err
}

// Flows returns the flows of an upstream that have calls waiting for permits, most first: a hundred
// at most. They are as old as [LimitStatus] says. The error is [NotFound] if there is no such upstream.
func (s *Scheduler) Flows(ctx context.Context, upstream string) ([]FlowStatus, error) {
	if _, err := s.Status(ctx, upstream); err != nil {
		return nil, err
	}
	made, err := s.sampler.read(ctx, s.loop)
	return slices.Clone(made.flows[upstream]), err
}

// Totals returns the running totals of all upstreams and limits, in no particular order. It costs
// the same however many calls and keys there are.
func (s *Scheduler) Totals(ctx context.Context) (all []Totals, err error) {
	err = s.loop.ask(ctx, func(now time.Time) { all = totalsOf(now, s.loop) })
	return all, err
}
