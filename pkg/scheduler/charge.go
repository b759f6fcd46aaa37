package scheduler

import (
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Costs that answers tell: ActualCost of limits.

// charges returns ActualCost of each limit; nil if no limit has one.
func charges(limits []Limit) (all []string) {
	for i, l := range limits {
		if l.ActualCost != "" && all == nil {
			all = make([]string, len(limits))
		}
		if all != nil {
			all[i] = l.ActualCost
		}
	}
	return all
}

// quota is the attempt as the ledger needs to know it for one of its needs.
func (e ending) quota(u *upstreamState, f *flight, n quota.Need) quota.Attempt {
	r := e.result
	a := quota.Attempt{Sent: f.sentAt, End: r.AnsweredAt, Fate: quota.Unanswered}
	if r.SentAt.After(a.Sent) { // after a dial, a signature, a write of the store
		a.Sent = r.SentAt
	}
	a.Written = r.WrittenAt
	switch {
	case !r.Sent, r.Answered && !u.limits[n.Limit].counted(r.Outcome):
		a.Fate = quota.Uncounted
	case r.Answered:
		a.Fate = quota.Answered
		if charge := e.charge(u, n); charge.Told && charge.Permits <= n.Cost {
			a.Unused = n.Cost - charge.Permits
		}
	}
	return a
}

// charge returns the cost of a need as the answer tells it. After a reload it is not told: the
// limits may have changed.
func (e ending) charge(u *upstreamState, n quota.Need) upstream.Charge {
	if at := n.Limit - 1; e.by == u.service && at >= 0 && at < len(e.result.Charges) { // the first limit is the upstream's own
		return e.result.Charges[at]
	}
	return upstream.Charge{}
}

// warnOfCharges logs answers that tell an impossible cost: once per limit and configuration.
func warnOfCharges(u *upstreamState, c *call, e ending) {
	if len(e.result.Charges) == 0 {
		return
	}
	for _, n := range c.flight.needs {
		charge := e.charge(u, n)
		u.loop.uncomputed.note(u.Name, charge.Err)
		above := charge.Told && charge.Permits > n.Cost
		if !above && charge.Err == nil || u.misled[n.Limit] {
			continue
		}
		if u.misled == nil {
			u.misled = make(map[int]bool)
		}
		u.misled[n.Limit] = true
		log := u.loop.log.With("upstream", u.Name, "limit", u.limits[n.Limit].Name, "call", c.ID, "cost", n.Cost)
		if above {
			log.Warn("an answer tells a cost above that of its call, and the limit may be exceeded; raise its cost", "actual_cost", charge.Permits)
			continue
		}
		log.Warn("an answer tells no usable cost, and its call counts with all of it", "error", charge.Err)
	}
}
