package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Reload takes another set of upstreams from now on; the rest of the config stays.
// On an error, which joins all faults, nothing has changed.
//
// No call is lost. Those that wait go by the new limits. Of an upstream that is no
// longer there new ones are refused, those in memory go by the old limits, and those
// that wait in the store wait until it is there again.
//
// A limit whose calls, cost, guard or counted outcomes have changed keeps the
// permits that are out. One whose window, key or condition has is a new limit: it
// counts what is sent from now on, and what is in flight. Under its name it stays
// paused, as its keys do where they are computed as before.
func (s *Scheduler) Reload(c Config) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	next, err := compile(c)
	if err != nil {
		return err
	}
	// The expressions of all calls are evaluated here, so that the loop goes on.
	inHand := make(map[*service][]*call)
	if !s.ask(func(time.Time) {
		for _, c := range s.loop.calls {
			if sv := next[c.Upstream]; sv != nil {
				inHand[sv] = append(inHand[sv], c)
			}
		}
	}) {
		return errStopping("")
	}
	routes := make(map[*call]*route)
	for sv, calls := range inHand {
		for _, c := range calls {
			routes[c] = sv.reroute(upstream.NewInput(c.request))
		}
	}
	if !s.ask(func(now time.Time) {
		s.loop.reload(now, next, routes)
		s.services.Store(&next)
	}) {
		return errStopping("")
	}
	return nil
}

// reload puts the planners under other services.
func (l *loop) reload(now time.Time, next map[string]*service, routes map[*call]*route) {
	inHand := make(map[*planner][]*call)
	for c, r := range routes {
		if l.calls[c.ID] == c {
			c.route = r
		}
	}
	for _, c := range l.calls {
		p := l.planners[c.Upstream]
		inHand[p] = append(inHand[p], c)
	}
	for name, p := range l.planners {
		if next[name] != nil {
			continue
		}
		p.retired = true
		// A call keeps its upstream, and whom it will tell of its end.
		told, _, _ := strings.Cut(name, callbackSeparator)
		teller := l.planners[told]
		if p.waiting == 0 && len(inHand[p]) == 0 && (teller == nil || teller.waiting == 0 && len(inHand[teller]) == 0) {
			l.dismiss(now, p)
		}
	}
	var again []string
	for name, sv := range next {
		if p := l.planners[name]; p != nil {
			p.reload(now, sv, inHand[p])
		} else {
			l.planners[name] = l.newPlanner(sv)
			l.welcome(now, l.planners[name])
			again = append(again, name)
		}
	}
	if len(again) > 0 && l.s.durable != nil && !l.stopping {
		l.s.after.Go(func() { l.s.reconsider(again) })
	}
}

// reload puts the planner under another service.
func (p *planner) reload(now time.Time, sv *service, calls []*call) {
	old := p.service
	for _, g := range p.gates {
		p.wheel.Cancel(g.timeout)
	}
	kept := sv.keeps(old)
	pauses := p.pauses(now, kept)
	p.ledger.Replace(now, sv.quotas(), kept)
	p.configure(sv)
	p.pause(now, pauses)
	p.begin()
	p.repeats.budget.Share = sv.Retry.Share
	if p.retired {
		p.retired = false
		p.backlog.rewind()
	}
	if old.URL != sv.URL {
		p.door = door{shut: now}
	}
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.seq, b.seq) })
	for _, c := range calls {
		if c.route.service != sv { // it came after the routes were computed
			c.route = sv.reroute(upstream.NewInput(c.request))
		}
		if c.flight != nil && c.flight.needs != nil {
			p.carry(now, c, kept)
		}
		if stale := sv.goodUntil(c.AcceptedAt, c.Deadline); stale.Before(c.Deadline) { // without a signer
			c.change().Deadline = stale
			if c.State == Waiting {
				at := stale.Sub(p.origin)
				if c.due > now.Sub(p.origin) {
					at = min(at, c.due)
				}
				timed, _ := p.wheel.Cancel(c.timeout)
				c.timeout = p.wheel.Insert(at, timed)
			}
		}
		if c.queued.lane != nil {
			c.queued = queued{}
			p.add(now, c)
		}
	}
	old.up.Close()
}

// A pause is one of a limit, or of one of its keys.
type pause struct {
	limit *limit
	key   string // empty: all of them
	until time.Time
}

// pauses returns those of the limits that are not kept.
func (p *planner) pauses(now time.Time, kept []int) (all []pause) {
	for i := range p.limits {
		if slices.Contains(kept, i) {
			continue
		}
		whole := p.ledger.Usage(now, i, "").PausedUntil
		all = append(all, pause{&p.limits[i], "", whole})
		for u := range p.ledger.Keys(now, i) {
			if u.PausedUntil.After(whole) {
				all = append(all, pause{&p.limits[i], u.Key, u.PausedUntil})
			}
		}
	}
	return all
}

// pause shuts the limits that have the names of those that were, as long as they
// were: who has shut one meant it, whatever its window was.
func (p *planner) pause(now time.Time, pauses []pause) {
	for _, was := range pauses {
		i := p.limitNamed(was.limit.Name)
		switch {
		case i < 0 || was.until.IsZero():
		case was.key == "":
			p.ledger.PauseLimit(i, was.until)
		case p.limits[i].PerKey == was.limit.PerKey:
			p.ledger.PauseKey(now, i, was.key, was.until)
		}
	}
}

// carry lets the attempt of a call that is in flight hold permits of the new limits.
func (p *planner) carry(now time.Time, c *call, kept []int) {
	var needs, fresh []quota.Need
	for _, n := range c.flight.needs {
		if i := slices.Index(kept, n.Limit); i >= 0 {
			n.Limit = i
			needs = append(needs, n)
		}
	}
	for _, n := range c.route.needs {
		if kept[n.Limit] < 0 {
			fresh = append(fresh, n)
		}
	}
	p.ledger.Charge(now, fresh)
	c.flight.needs = slices.Concat(needs, fresh)
}

// keeps returns for each limit the index of the old one whose permits it keeps, or -1.
func (sv *service) keeps(old *service) []int {
	kept := make([]int, len(sv.limits))
	for i := range sv.limits {
		kept[i] = slices.IndexFunc(old.limits, sv.limits[i].sameAs)
	}
	return kept
}

// sameAs tells whether two limits count the same calls by the same key in the same window.
func (l *limit) sameAs(o limit) bool {
	return l.Name == o.Name && l.When == o.When && l.PerKey == o.PerKey && l.Kind().Equal(o.Kind())
}
