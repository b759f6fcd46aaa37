package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// followUps runs what follows the end of a submitted call: a webhook to its callback, and
// queries about an unknown outcome. Each runs beside the loop, and ends with a stop.
type followUps struct {
	s    *Scheduler
	ctx  context.Context // ends with the beginning of a stop
	stop context.CancelFunc
	work sync.WaitGroup

	refused atomic.Int64 // webhooks that could not be handed over, since they were last retried
}

func newFollowUps(s *Scheduler) *followUps {
	f := &followUps{s: s}
	f.ctx, f.stop = context.WithCancel(s.cuts)
	return f
}

// resumeAll takes up the follow-ups that an earlier process left, and retries webhooks.
func (f *followUps) resumeAll(upstreams map[string]*service) {
	names := slices.Collect(maps.Keys(upstreams))
	f.work.Go(func() { f.resume(names) })
	f.work.Go(f.retryWebhooks)
}

// resume takes up the follow-ups of calls of some upstreams that were left in the store.
func (f *followUps) resume(upstreams []string) {
	f.deliver(upstreams)
	j := f.s.journal
	j.each(f.ctx, j.unknown, func(c *Call) {
		if !slices.Contains(upstreams, c.Upstream) {
			return
		}
		f.s.withCall(f.ctx, c.ID, Unknown, func(_ time.Time, c *call) {
			if c != nil && !f.s.loop.stopping {
				f.query(c)
			}
		})
	})
}

// after starts the follow-ups of a submitted call that has ended. The loop calls it.
func (f *followUps) after(now time.Time, c *call) {
	switch {
	case c.Handled():
		f.s.relay.wake()
	case c.Callback != "":
		var sv *service
		if to := f.s.loop.upstreams[c.webhookUpstream()]; to != nil { // it may be removed
			sv = to.service
		}
		snapshot := c.Call.snapshot()
		f.work.Go(func() { f.notify(sv, f.withAnswer(snapshot), now) })
	}
	f.query(c)
}

// withAnswer adds the answer to a call that was read from the store, which leaves it there.
func (f *followUps) withAnswer(c *Call) *Call {
	if last := c.Last(); c.Response == nil && c.Durable && last != nil && last.Status != 0 {
		if stored, err := f.s.journal.get(f.ctx, c.ID); err == nil {
			c.Response = stored.Response
		}
	}
	return c
}

// query starts the queries about a call if it is unknown, and none are under way. The loop
// calls it.
func (f *followUps) query(c *call) {
	sv := c.up.service
	if c.State != Unknown || !c.Async || c.Resolves != "" || len(sv.resolvers) == 0 || c.flight.resolved != nil {
		return
	}
	snapshot := c.Call.snapshot()
	ctx, resolved := context.WithCancel(f.ctx)
	c.flight.resolved = resolved
	c.flight.queries++
	f.work.Go(func() {
		f.queryUntilDecided(ctx, sv, snapshot, c.request)
		resolved()
		f.s.loop.post(func(time.Time) {
			if c.flight.queries--; c.flight.queries == 0 {
				c.flight.resolved = nil
			}
			c.up.rest(c)
		})
	})
}
