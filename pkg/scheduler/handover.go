package scheduler

import (
	"cmp"
	"context"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// reloadStep is how many calls the loop takes over to another configuration before it looks
// at anything else: a tenth of a millisecond, and what the garbage collector adds.
const reloadStep = 16

// A reload puts other services into force. Its steps are messages to the loop, so that slots
// are kept however many calls wait:
//
//	begin     each upstream gets a second ledger and planner, under the other limits
//	stage     each call gets a place there; calls go on by the old limits
//	commit    one message: from here on calls go by the new limits
//	settle    each call leaves its old place; callers of removed upstreams are refused
//
// Demands are computed beside the loop. A reload that is given up before the commit has
// changed nothing.
type reload struct {
	s         *Scheduler
	next      map[string]*service
	handovers map[*upstreamState]*handover
	demands   map[*call]*planner.Demand

	// Of tests.
	step    int    // calls of a step
	between func() // runs beside the loop after each step
}

func newReload(s *Scheduler, next map[string]*service) *reload {
	return &reload{
		s: s, next: next, handovers: make(map[*upstreamState]*handover), demands: make(map[*call]*planner.Demand),
		step: reloadStep, between: func() {},
	}
}

// run is the reload.
func (r *reload) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		r.abandon()
		return err
	}
	if err := r.do(r.commit); err != nil {
		return err
	}
	return r.end()
}

// end does all that follows the commit.
func (r *reload) end() error {
	if err := r.walk(context.Background(), r.settle); err != nil {
		return err
	}
	return r.do(r.finish)
}

// do runs a step in the loop. It does not end before, so that both can use the reload.
func (r *reload) do(step func(now time.Time)) error {
	return r.s.loop.ask(context.Background(), step)
}

// walk does something for all calls in memory, in steps. Those that come meanwhile may be
// among them.
func (r *reload) walk(ctx context.Context, do func(now time.Time, c *call)) error {
	calls := reflect.ValueOf(r.s.loop.calls).MapRange() // unlike range it can rest
	for more := true; more; r.between() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.do(func(now time.Time) {
			for range r.step {
				if more = calls.Next(); !more {
					return
				}
				do(now, calls.Value().Interface().(*call))
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// prepare does all that goes before the commit.
func (r *reload) prepare(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := r.do(r.begin); err != nil {
		return err
	}
	var calls []*call
	if err := r.walk(ctx, func(_ time.Time, c *call) {
		if r.handovers[c.up] != nil {
			calls = append(calls, c)
		}
	}); err != nil {
		return err
	}
	compared := 0
	slices.SortFunc(calls, func(a, b *call) int {
		if compared++; compared%512 == 0 {
			runtime.Gosched() // a slot that is due meanwhile needs a processor
		}
		return cmp.Or(cmp.Compare(b.item.Priority, a.item.Priority), cmp.Compare(a.item.Seq, b.item.Seq))
	})
	for more := true; more; {
		for some := range slices.Chunk(calls, r.step) {
			if err := r.stage(ctx, some); err != nil {
				return err
			}
		}
		calls = nil
		if err := r.do(func(time.Time) {
			for _, h := range r.handovers {
				calls = append(calls, h.calls.Late()...)
			}
		}); err != nil {
			return err
		}
		more = len(calls) > r.step
	}
	return r.stage(ctx, calls) // the commit stages the few that come after this look
}

// begin gives the upstreams their second ledgers and planners.
func (r *reload) begin(now time.Time) {
	for name, sv := range r.next {
		if u := r.s.loop.upstreams[name]; u != nil {
			r.handovers[u] = newHandover(now, u, sv, r.demands)
		}
	}
}

// stage gives calls their places in the second planners.
func (r *reload) stage(ctx context.Context, calls []*call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, c := range calls {
		r.demands[c] = r.handovers[c.up].next.redemand(upstream.NewInput(c.request), c.query)
	}
	err := r.do(func(now time.Time) {
		for _, c := range calls {
			r.handovers[c.up].calls.Stage(now, &c.item, r.demands[c])
		}
	})
	r.between()
	return err
}

// abandon gives the second planners up.
func (r *reload) abandon() {
	for _, h := range r.handovers {
		for more := true; more; {
			if r.do(func(now time.Time) { more = h.calls.Abandon(now, r.step) }) != nil {
				return
			}
		}
	}
}

// commit puts the services into force.
func (r *reload) commit(now time.Time) {
	l := r.s.loop
	for name, u := range l.upstreams {
		if r.next[name] == nil {
			u.removed = true
		} else {
			r.handovers[u].commit(now)
		}
	}
	added := l.attachAll(now, r.next)
	r.s.services.Store(&r.next)
	if len(added) > 0 && !l.stopping && r.s.journal.outlives() { // in the loop, which a stop waits for first
		r.s.followUps.work.Go(func() { r.s.followUps.resume(added) })
	}
}

// settle does for a call that is in memory after the commit all that was left.
func (r *reload) settle(now time.Time, c *call) {
	switch h := r.handovers[c.up]; {
	case h != nil:
		h.settle(now, c)
		h.shorten(now, c)
	case c.up.removed:
		c.up.refuseCaller(now, c)
	}
}

// finish ends the reload, and lets upstreams go that are left out and have no calls. A call
// keeps its upstream, and the webhook upstream that will tell its end.
func (r *reload) finish(now time.Time) {
	l := r.s.loop
	for u, h := range r.handovers {
		u.handover = nil
		h.old.up.Close()
	}
	for name, u := range l.upstreams {
		if r.next[name] == nil && u.idle() && (u.webhook == nil || l.upstreams[u.webhook.upstream].idle()) {
			l.detach(now, u)
		}
	}
}

// A handover is the part of a reload that puts one upstream under another service. The
// loop owns it, but for next.
type handover struct {
	up        *upstreamState
	old, next *service
	kept      []int // see keeps
	limits    []quota.Limit
	ledger    *quota.Ledger
	calls     *planner.Succession[*call]
	demands   map[*call]*planner.Demand // those that have been computed
}

func newHandover(now time.Time, u *upstreamState, next *service, demands map[*call]*planner.Demand) *handover {
	h := &handover{up: u, old: u.service, next: next, kept: next.keeps(u.service), limits: next.quotas(), demands: demands}
	h.ledger = u.ledger.Successor(now, h.limits, h.kept)
	h.calls = planner.Succeed(u.planner, h.ledger, h.limits, h.kept, next.weight)
	return h
}

// demand returns the demand of a call under the new limits.
func (h *handover) demand(c *call) *planner.Demand {
	if d := h.demands[c]; d != nil {
		return d
	}
	return h.next.redemand(upstream.NewInput(c.request), c.query)
}

// commit puts the upstream under the new service.
func (h *handover) commit(now time.Time) {
	u, old, sv := h.up, h.old, h.next
	for _, c := range h.calls.Late() {
		h.calls.Stage(now, &c.item, h.demand(c))
	}
	pauses, answered := h.lostPauses(now), carriedPauses(now, u, sv, h.kept)
	h.ledger.Begin(now)
	sv.usage = old.usage
	u.slow.carry(u, sv)
	u.service, u.ledger, u.handover = sv, h.ledger, h
	u.answerPauses, u.misled = answered, nil
	u.leases.SetLimits(sv.leaseLimits(u.loop.longWindow))
	h.restorePauses(now, pauses)
	u.slow.resume(now)
	u.planner = h.calls.Begin(now)
	u.budget.share(sv.Retry.Share)
	if u.removed {
		u.removed = false
		u.window.Rewind()
	}
	if old.URL != sv.URL {
		u.circuit.reset(now)
		u.slow.reset()
	}
	if old.Breaker != sv.Breaker {
		u.circuit.Set(sv.Breaker)
	}
	for e := u.flying.Front(); e != nil; e = e.Next() {
		h.carry(now, e.Value.(*call))
	}
}

// carry lets the attempt of a call that is in flight hold permits of the new limits.
func (h *handover) carry(now time.Time, c *call) {
	h.settle(now, c)
	var needs, fresh []quota.Need
	for _, n := range c.flight.needs {
		if i := slices.Index(h.kept, n.Limit); i >= 0 {
			n.Limit = i
			needs = append(needs, n)
		}
	}
	for _, n := range c.item.Demand.Needs {
		if h.kept[n.Limit] < 0 {
			fresh = append(fresh, n)
		}
	}
	h.ledger.Charge(now, fresh)
	c.flight.needs = slices.Concat(needs, fresh)
}

// settle makes sure after the commit that the demand of a call is the new one. It does
// nothing if no handover is under way.
func (h *handover) settle(now time.Time, c *call) {
	if h == nil || c.generation == h.next.generation {
		return
	}
	if !h.calls.Settle(now, &c.item) {
		c.item.Demand = h.demand(c)
	}
	c.generation = h.next.generation
}

// shorten ends the wait of a call sooner if its signature is not valid for as long.
func (h *handover) shorten(now time.Time, c *call) {
	u := h.up
	if stale := u.validUntil(c.AcceptedAt, c.Deadline); stale.Before(c.Deadline) { // without a signer
		c.change().Deadline = stale
		if c.State == Waiting {
			u.noteDeadline(stale)
			u.loop.wheel.Reschedule(c.timeout, u.wakeUp(now, c))
		}
	}
}

// A limitPause is a pause of a limit, or of one of its keys.
type limitPause struct {
	limit *limit
	key   string // empty: all of them
	until time.Time
}

// lostPauses returns the pauses of the limits that are not kept.
func (h *handover) lostPauses(now time.Time) (all []limitPause) {
	u := h.up
	for i := range u.limits {
		if slices.Contains(h.kept, i) {
			continue
		}
		whole := u.ledger.Usage(now, i, "").PausedUntil
		all = append(all, limitPause{&u.limits[i], "", whole})
		for k := range u.ledger.PausedKeys(now, i) {
			if k.PausedUntil.After(whole) {
				all = append(all, limitPause{&u.limits[i], k.Key, k.PausedUntil})
			}
		}
	}
	return all
}

// restorePauses pauses the limits that have the names of paused ones: a pause is meant
// for the limit, whichever its window was.
func (h *handover) restorePauses(now time.Time, pauses []limitPause) {
	u := h.up
	for _, was := range pauses {
		i := u.limitNamed(was.limit.Name)
		switch {
		case i < 0 || was.until.IsZero():
		case was.key == "":
			u.ledger.PauseLimit(i, was.until)
		case u.limits[i].PerKey == was.limit.PerKey:
			u.ledger.PauseKey(now, i, was.key, was.until)
		}
	}
}
