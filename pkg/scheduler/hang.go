package scheduler

import (
	"cmp"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// minPatience is the shortest time after which an attempt hangs.
const minPatience = time.Second

// A hang is attempts that have been in flight for much longer than attempts take: no
// estimate counts upon their permits.
type hang struct {
	attempts, permits int
	oldest            time.Time
}

// hungAt returns the hung attempts of a key, or those of all keys if they have all places of
// the limit, so that the key has none.
func hungAt(now time.Time, u *upstreamState, limit int, key string) (h hang) {
	patience := max(minPatience, 4*u.planner.Trip())
	first := u.flying.Front()
	if first == nil || now.Sub(first.Value.(*call).flight.sentAt) < patience {
		return h
	}
	full := u.ledger.Full(now, limit, key)
	places := make(map[string]struct{})
	for at := first; at != nil; at = at.Next() {
		f := at.Value.(*call).flight
		if now.Sub(f.sentAt) < patience {
			break // and all others were sent later
		}
		for _, n := range f.needs {
			if n.Limit != limit || n.Key != key && !full {
				continue
			}
			if h.attempts++; h.attempts == 1 {
				h.oldest = f.sentAt
			}
			h.permits += n.Cost
			places[n.Key] = struct{}{}
		}
	}
	switch {
	case !full:
		return h
	case len(places) < cmp.Or(u.limits[limit].MaxKeys, quota.DefaultMaxKeys):
		return hang{}
	}
	h.permits = u.ledger.Calls(limit)
	return h
}

// hungPermits returns how many permits of a key are not expected back.
func hungPermits(now time.Time, u *upstreamState) func(limit int, key string) int {
	return func(limit int, key string) int { return hungAt(now, u, limit, key).permits }
}

// tellHung adds the attempts to the reason why a call waits whose end it waits for.
func tellHung(now time.Time, u *upstreamState, f *WaitingFor) {
	limit := u.limitNamed(f.Limit)
	h := hungAt(now, u, limit, f.Key)
	f.KeysFull = u.ledger.Full(now, limit, f.Key)
	f.InFlight, f.OldestSentAt, f.Timeout = h.attempts, h.oldest, cmp.Or(u.Timeout, upstream.DefaultTimeout)
}

// tellFlying is tellHung for a call that waits for any attempt to end.
func tellFlying(now time.Time, u *upstreamState, f *WaitingFor) {
	f.InFlight, f.OldestSentAt, f.Timeout = u.flying.Len(), now, cmp.Or(u.Timeout, upstream.DefaultTimeout)
	if first := u.flying.Front(); first != nil {
		f.OldestSentAt = first.Value.(*call).flight.sentAt
	}
}
