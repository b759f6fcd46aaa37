package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// followUps runs what follows the end of a submitted call: a webhook to its callback, and
// queries about an unknown outcome. Each runs beside the loop, and ends with a stop.
type followUps struct {
	s    *Scheduler
	ctx  context.Context // ends with the beginning of a stop
	stop context.CancelFunc
	work sync.WaitGroup

	questions *questions

	refused atomic.Int64 // webhooks that could not be handed over, since they were last retried
}

func newFollowUps(s *Scheduler) *followUps {
	f := &followUps{s: s, questions: newQuestions()}
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

// after starts the follow-ups of a call that has ended. The loop calls it.
func (f *followUps) after(now time.Time, c *call) {
	f.tell(now, c.Call)
	f.query(c)
}

// tell tells of the end of a submitted call.
func (f *followUps) tell(now time.Time, c *Call) {
	switch {
	case c.Handled():
		f.s.relay.wake()
	case c.Callback != "":
		var sv *service
		if to := f.s.loop.upstreams[c.webhookUpstream()]; to != nil { // it may be removed
			sv = to.service
		}
		snapshot := c.snapshot()
		f.work.Go(func() { f.notify(sv, f.withAnswer(snapshot), now) })
	}
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

// query starts the queries about a call if it is unknown, a resolver fits it, and none are
// under way. The loop calls it.
func (f *followUps) query(c *call) {
	sv := c.up.service
	if c.State != Unknown {
		f.questions.drop(c.ID)
		return
	}
	if c.Resolves != "" {
		return
	}
	may, err := mayResolve(sv, upstream.NewInput(c.request), sv.Signer != nil)
	if err != nil {
		f.doubt(f.questions.entry(c.Call.snapshot()), c.Call, err)
	}
	if !may {
		return
	}
	if !c.Async { // Do queries for its caller; after that a notification, or a query of the caller, decides
		f.questions.part(c.Call)
		return
	}
	if c.flight.resolved != nil {
		return
	}
	snapshot := c.Call.snapshot()
	snapshot.Response = nil // the store has it
	ctx, resolved := context.WithCancel(f.ctx)
	c.flight.resolved = resolved
	c.flight.queries++
	q := f.questions.open(snapshot) // at once: a notification may come with the next message
	request, until := c.request, c.askedUntil(sv)
	f.work.Go(func() {
		f.queryUntilDecided(ctx, sv, snapshot, request, until, q)
		resolved()
		f.s.loop.post(func(time.Time) {
			if c.flight.queries--; c.flight.queries == 0 {
				c.flight.resolved = nil
				f.settled(c)
			}
			c.up.rest(c)
		})
	})
}

// settled notes that the queries about a call have ended. A call that is still unknown is
// queried again if a notification has come meanwhile. The loop calls it.
func (f *followUps) settled(c *call) {
	switch {
	case c.State != Unknown:
		f.questions.drop(c.ID)
	case f.questions.rest(c.ID) && f.ctx.Err() == nil:
		f.query(c)
	}
}

// notified queries at once the calls that a notification concerns, and returns their number.
func (f *followUps) notified(upstream string, numbers map[string]string) (asked int) {
	asked, idle := f.questions.wake(upstream, numbers)
	for _, c := range idle {
		if !c.Async {
			f.askLate(c)
			continue
		}
		f.s.withCall(f.ctx, c.ID, Unknown, func(_ time.Time, c *call) {
			if c != nil && !f.s.loop.stopping {
				f.query(c)
			}
		})
	}
	return asked
}

// askLate queries once about an unknown call whose caller has its answer.
func (f *followUps) askLate(c *Call) {
	f.s.loop.ask(f.ctx, func(time.Time) {
		if f.s.loop.stopping {
			return
		}
		q := f.questions.open(c)
		f.work.Go(func() {
			f.queryOnce(c, q)
			f.rest(c)
		})
	})
}

// rest notes that the query about a call whose caller has its answer is over. The call is
// queried again if a notification has come meanwhile.
func (f *followUps) rest(c *Call) {
	if f.questions.rest(c.ID) && f.ctx.Err() == nil {
		f.askLate(c)
	}
}

// repeatIsSafe reports whether the upstream recognises a repeat of an unknown call that is not
// in memory now.
func (f *followUps) repeatIsSafe(ctx context.Context, c *Call) bool {
	sv := f.s.service(c.Upstream)
	if sv == nil {
		return false
	}
	request, history, now := f.s.journal.request(ctx, c), flightOf(time.Now(), c), time.Now()
	return request != nil && history != nil && sv.up.Repeatable(upstream.NewInput(request)) && sv.recognises(now, *history)
}
