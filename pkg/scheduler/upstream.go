package scheduler

import (
	"cmp"
	"container/list"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/paging"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// An upstreamState is all that the loop knows of one upstream. Each part has an owner
// that knows nothing of the others; the loop alone calls them.
type upstreamState struct {
	*service // as it is configured now
	loop     *loop

	ledger  *quota.Ledger           // which permits are out
	planner *planner.Planner[*call] // which call goes next, and when the others will
	circuit circuit                 // whether calls may go there, by its breaker
	slow    slowdown                // how far apart calls go, since it has limited some
	answerPauses
	budget   *budgetQueue   // which repeats the retry budget covers
	leases   *lease.Book    // which permits the store knows to be out; nil without one
	window   *paging.Window // which calls of the store are in memory
	handover *handover      // to the present service, while it is under way

	flying  list.List    // calls in flight, in the order in which they were sent
	count   [phases]int  // calls by phase
	soonest time.Time    // no waiting call has an earlier deadline; zero while some are not known
	removed bool         // it is not in the configuration any more
	misled  map[int]bool // limits whose answers have told an impossible cost
}

func newUpstreamState(l *loop, sv *service) *upstreamState {
	u := &upstreamState{service: sv, loop: l, window: paging.NewWindow(0)}
	limits := sv.quotas()
	u.ledger = quota.New(l.origin, limits...)
	u.ledger.OnStep = u.clockStepped
	u.planner = planner.New[*call](l.origin, l.wheel, u.ledger, limits, sv.weight)
	u.circuit.up = u
	u.slow.begin(u)
	u.circuit.Set(sv.Breaker)
	u.budget = newBudgetQueue(u)
	if l.journal.outlives() {
		u.leases = lease.NewBook(sv.Name, l.nextHold)
		u.leases.SetLimits(sv.leaseLimits(l.longWindow))
	}
	return u
}

func (u *upstreamState) clockStepped(step time.Duration) {
	u.loop.log.Warn("the wall clock was stepped; permits of calendar windows that are out come back a window later at most", "upstream", u.Name, "step", step.String())
}

// setPhase moves a call from one count to another.
func (u *upstreamState) setPhase(c *call, to phase) {
	if to == waiting {
		u.noteDeadline(c.Deadline)
	}
	u.count[c.counted]--
	u.count[to]++
	switch {
	case c.counted == uncounted && to != uncounted:
		u.usage.bytes.Add(c.bytes)
	case c.counted != uncounted && to == uncounted:
		u.usage.bytes.Add(-c.bytes)
	}
	c.counted = to
	u.publish()
}

// noteDeadline keeps the deadline of a waiting call, if it is the earliest.
func (u *upstreamState) noteDeadline(at time.Time) {
	if u.count[waiting] == 0 || at.Before(u.soonest) {
		u.soonest = at
	}
}

// publish tells the usage how many calls are pending.
func (u *upstreamState) publish() {
	u.usage.waiting.Store(int64(u.count[waiting]))
	u.usage.unknown.Store(int64(u.count[unresolved]))
}

// grow counts bytes that a call holds besides its request.
func (u *upstreamState) grow(c *call, bytes int64) {
	c.bytes += bytes
	u.usage.bytes.Add(bytes)
}

// inherit takes over calls that lie in the store.
func (u *upstreamState) inherit(b Backlog) {
	if u.leases == nil {
		return
	}
	u.window = paging.NewWindow(b.Waiting)
	u.count[waiting], u.count[unresolved], u.soonest = b.Waiting, b.Unknown, time.Time{}
	u.usage.bytes.Store(b.Bytes)
	u.publish()
}

// dispatch sends every call that can go.
func (u *upstreamState) dispatch(now time.Time) {
	most := 0
	if !u.shut() {
		most = u.circuit.probe(now)
	}
	u.planner.Dispatch(now, most, func(c *call) { u.send(now, c) })
}

// shut reports whether the upstream keeps its calls and sends none: it was taken out of the
// configuration. Webhooks about its calls go on.
func (u *upstreamState) shut() bool { return u.removed && u.webhook == nil }

// idle reports whether the upstream counts no calls, in memory or on disk; nil counts none.
func (u *upstreamState) idle() bool {
	return u == nil || u.count == [phases]int{uncounted: u.count[uncounted]}
}

// refuseCaller ends a waiting call whose caller waits, if the upstream sends none any more.
func (u *upstreamState) refuseCaller(now time.Time, c *call) {
	if u.shut() && c.State == Waiting && !c.Async {
		c.because(NotFound)
		u.finish(now, c, Cancelled)
	}
}

// reroute makes sure that the demand of a call is one of the present configuration.
func (u *upstreamState) reroute(c *call) {
	if c.generation != u.generation {
		c.item.Demand, c.generation = u.redemand(upstream.NewInput(c.request), c.query), u.generation
	}
}

// pausedUntil returns until when no call of the upstream goes, by a pause or because it
// is down; the zero time if some may.
func (u *upstreamState) pausedUntil(now time.Time) time.Time {
	until := u.ledger.Usage(now, 0, "").PausedUntil
	if at := u.circuit.Until(now); at.After(until) {
		return at
	}
	return until
}

// pause pauses a limit, or a key of it if one is given, until an instant; the zero
// instant ends the pause.
func (u *upstreamState) pause(now time.Time, limit int, key string, until time.Time) error {
	l := &u.limits[limit]
	switch {
	case key == "":
		u.ledger.PauseLimit(limit, until)
	case l.PerKey == "":
		return &Error{Reason: BadRequest, Upstream: u.Name, Limit: l.Name, Detail: fmt.Sprintf("limit %q has no keys; leave the key %q out to pause all of it", l.Name, key)}
	case !u.ledger.PauseKey(now, limit, key, until):
		return &Error{Reason: Full, Upstream: u.Name, Limit: l.Name, RetryAfter: time.Second, Detail: fmt.Sprintf("%d keys of limit %q (its max_keys) have permits out, and it takes no pause of another one; pause the whole limit, or raise max_keys", cmp.Or(l.MaxKeys, quota.DefaultMaxKeys), l.Name)}
	}
	u.planner.CheckLimit(now, limit)
	return nil
}

// holds returns the permits that are out.
func (u *upstreamState) holds(now time.Time) []lease.Hold {
	var all []lease.Hold
	for _, h := range u.ledger.Save(now) {
		all = append(all, lease.Hold{Upstream: u.Name, Limit: u.limits[h.Limit].Name, Key: h.Key, Every: h.All, Permits: h.Permits, Back: h.Back})
	}
	return all
}

// restore gives the ledger permits that are out, or a pause, and fills in when they come
// back; false if they are back, or there is no such limit. An attempt without a recorded end ended by the
// instant ended, if at all. Step is as in [quota.Ledger.Restore].
func (u *upstreamState) restore(now, ended time.Time, step time.Duration, h *lease.Hold) bool {
	limit := u.limitNamed(h.Limit)
	if h.Paused {
		limit = u.pausable(h.Limit)
	}
	switch {
	case h.Limit == circuitHold:
		u.circuit.restore(now, h)
		return true
	case limit < 0:
		return false
	case h.Paused:
		return u.pause(now, limit, h.Key, toMonotonic(now, h.Back)) == nil
	case h.Back.IsZero():
		h.Back = u.ledger.Back(now, limit, quota.Attempt{Sent: ended, End: ended, Fate: quota.Unanswered})
	}
	if h.Back.IsZero() {
		return false
	}
	if h.Every {
		u.ledger.HoldAll(now, step, limit, h.Back)
	} else {
		u.ledger.Restore(now, step, quota.Held{Limit: limit, Key: h.Key, Permits: h.Permits, Back: h.Back})
	}
	return true
}

// fill holds all permits of all limits, as after attempts that ended then, and returns these
// holds.
func (u *upstreamState) fill(now, ended time.Time) []lease.Hold {
	var all []lease.Hold
	for i := range u.limits {
		if h := (lease.Hold{Upstream: u.Name, Limit: u.limits[i].Name, Every: true}); u.restore(now, ended, 0, &h) {
			all = append(all, h)
		}
	}
	return all
}
