package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// An absent upstream is one that was configured and may be so again: by a reload,
// or for the next process. What is out of its limits stays out meanwhile.
type absent struct {
	holds   []Hold
	backlog UpstreamStatus // what waits in the store
}

// dismiss lets an upstream go of which nothing is in hand any more.
func (l *loop) dismiss(now time.Time, p *planner) {
	p.up.Close()
	delete(l.planners, p.Name)
	if holds := p.holds(now); len(holds) > 0 {
		l.absent[p.Name] = absent{holds: holds}
	}
}

// welcome gives an upstream what it had when it was configured before.
func (l *loop) welcome(now time.Time, p *planner) {
	a := l.absent[p.Name]
	delete(l.absent, p.Name)
	p.inherit(a.backlog)
	for _, h := range slices.AppendSeq(a.holds, maps.Values(l.pauses)) {
		if h.Upstream == p.Name && (h.Back.IsZero() || h.Back.After(now)) {
			p.restore(now, now, &h)
		}
	}
}

// inherit takes over calls that wait in the store.
func (p *planner) inherit(b UpstreamStatus) {
	if p.backlog != nil {
		p.backlog = newBacklog(b.Waiting)
		p.waiting, p.unknown, p.bytes = b.Waiting, b.Unknown, b.Bytes
	}
}

// restore gives the ledger permits that are out, or a pause, and says when they come
// back; false if there is no such limit. Mark is as in [quota.Ledger.Restore].
func (p *planner) restore(now, mark time.Time, h *Hold) bool {
	limit := p.limitNamed(h.Limit)
	if h.Paused {
		limit = p.toShut(h.Limit)
	}
	switch {
	case limit < 0:
		return false
	case h.Paused:
		return p.shut(now, limit, h.Key, anchor(now, h.Back)) == nil
	case h.Back.IsZero():
		h.Back = p.ledger.Back(now, limit, quota.Attempt{Sent: now, End: now, Fate: quota.Unanswered})
	}
	if h.Every {
		p.ledger.HoldAll(now, mark, limit, h.Back)
	} else {
		p.ledger.Restore(now, mark, quota.Held{Limit: limit, Key: h.Key, Permits: h.Permits, Back: h.Back})
	}
	return true
}

// holds returns what is out, for whoever comes next.
func (l *loop) holds(now time.Time) []Hold {
	var all []Hold
	for _, p := range l.planners {
		all = append(all, p.holds(now)...)
	}
	for _, a := range l.absent {
		all = append(all, a.holds...)
	}
	return slices.AppendSeq(all, maps.Values(l.pauses))
}

func (p *planner) holds(now time.Time) []Hold {
	var all []Hold
	for _, h := range p.ledger.Save(now) {
		all = append(all, Hold{Upstream: p.Name, Limit: p.limits[h.Limit].Name, Key: h.Key, Every: h.All, Permits: h.Permits, Back: h.Back})
	}
	return all
}
