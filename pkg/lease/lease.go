// Package lease keeps account of the permits that a store knows to be out, so that a
// crash can never give them back early.
//
//	own, take, used := book.Take(now, needs, durable)   // before an attempt: store take first
//	own, over := book.Return(now, needs, used, durable, back)   // after it: settle over
//
// # Ahead of use
//
// A permit must be known to the store before the first byte of the call that uses it. To
// store each one would cost a sync per call, so the store is told of more at once, by
// the length of the limit's window and the kind of call:
//
//	window   durable call      other call
//	short    its own permits   once per process: "all permits may be out"
//	long     a lease           a lease
//
// A lease is permits of one key taken ahead of use: one at first, and each time twice as
// many, up to a hundredth of the limit and 1,000. Calls draw on it until it is used up;
// then it is settled with the latest instant at which one of its permits comes back.
//
//	limit of 500 per day    stored                      in use
//	first call              lease 1: 1 permit           1
//	calls 2 and 3           lease 2: 2 permits          2
//	calls 4 to 7            lease 3: 4 permits          4
//	calls 8 to 12           lease 4: 5 permits          5
//	lease 1 has ended       lease 1 back at midnight
//
// After a crash every permit that was stored and not settled is out until restart + late
// + window. So a crash costs a short limit at most late + window, and a long one the rest of
// a lease per key: about as many permits as the process has used, or fewer.
//
// A Book is pure: it takes now, owns no goroutine and calls no store. A nil *Book, that
// of a scheduler without a durable store, keeps nothing.
package lease

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A Hold is permits of one key of a limit that are out, as a store keeps them.
type Hold struct {
	ID       int64 // not 0 if it is not part of a call
	Upstream string
	Limit    string
	Key      string
	// Every means all permits of all keys.
	Every   bool
	Permits int
	// Back is when they come back; zero while that is not known.
	Back time.Time
	// Paused means that a person has paused the limit, or the key, until Back. Since is
	// when that was, Who the person's name and Reason why, for people; all may be empty.
	Paused bool
	Since  time.Time
	Who    string
	Reason string
}

// A Limit is a limit as a book needs to know it.
type Limit struct {
	Name  string
	Calls int
	Long  bool // its permits are leased
}

// A Book holds the leases of one upstream. It has one owner: its methods must not be
// called concurrently.
type Book struct {
	upstream string
	limits   []Limit
	nextID   func() int64
	whole    map[string]*Lease // by limit: the hold on all of its permits
	latest   map[leaseKey]*Lease
	over     []Hold // leases that are used up
	sweepAt  int    // number of leases at which idle ones are settled
}

type leaseKey struct{ limit, key string }

// A Lease is permits that the store knows to be out, taken ahead of the calls that use
// them.
type Lease struct {
	Hold
	stored bool
	left   int // permits that no call has used yet
	flying int // calls in flight that use it
}

// firstSweep is the number of leases from which on idle ones are looked for.
const firstSweep = 1024

// NewBook returns a book without leases. NextID gives the IDs of holds.
func NewBook(upstream string, nextID func() int64) *Book {
	return &Book{upstream: upstream, nextID: nextID, whole: make(map[string]*Lease), latest: make(map[leaseKey]*Lease), sweepAt: firstSweep}
}

// SetLimits gives the book the limits that needs index from now on.
func (b *Book) SetLimits(limits []Limit) {
	if b != nil {
		b.limits = limits
	}
}

// Take leases the permits of a call that is about to be sent. Own are those that are
// stored with the call; take are holds that the store must know before the first byte.
// Used has the leases that the call draws on, for Stored and Return.
func (b *Book) Take(now time.Time, needs []quota.Need, durable bool) (own, take []Hold, used []*Lease) {
	if b == nil {
		return nil, nil, nil
	}
	for _, n := range needs {
		l := &b.limits[n.Limit]
		var lease *Lease
		switch {
		case l.Long:
			lease = b.lease(now, l, n)
			lease.left -= n.Cost
			lease.flying++
		case durable:
			own = append(own, Hold{Upstream: b.upstream, Limit: l.Name, Key: n.Key, Permits: n.Cost})
			continue
		default:
			if lease = b.whole[l.Name]; lease == nil {
				lease = &Lease{Hold: Hold{ID: b.nextID(), Upstream: b.upstream, Limit: l.Name, Every: true}}
				b.whole[l.Name] = lease
			}
		}
		used = append(used, lease)
		if !lease.stored { // each call that needs it meanwhile stores it too
			take = append(take, lease.Hold)
		}
	}
	return own, take, used
}

// lease returns one with room for the need.
func (b *Book) lease(now time.Time, l *Limit, n quota.Need) *Lease {
	id := leaseKey{l.Name, n.Key}
	old := b.latest[id]
	if old != nil && old.left >= n.Cost {
		return old
	}
	if old != nil && old.flying == 0 {
		b.over = append(b.over, old.settled(now))
	}
	// The rest of a lease is what a crash can waste.
	size := 1
	if old != nil {
		size = 2 * old.Permits
	}
	size = max(n.Cost, min(size, l.Calls/100, 1000))
	lease := &Lease{Hold: Hold{ID: b.nextID(), Upstream: b.upstream, Limit: l.Name, Key: n.Key, Permits: size}, left: size}
	b.latest[id] = lease
	return lease
}

// Stored notes that the store knows the leases of a call.
func (b *Book) Stored(used []*Lease) {
	for _, lease := range used {
		lease.stored = true
	}
}

// Return ends an attempt of a call. Back returns how many permits of a need were used, and when
// they come back; a zero instant means that they are back. Unused permits stay in the lease. Own
// are the permits that are stored with the call and still out; over are the holds whose end is
// known now.
func (b *Book) Return(now time.Time, needs []quota.Need, used []*Lease, durable bool, back func(n quota.Need) (permits int, at time.Time)) (own, over []Hold) {
	if b == nil {
		return nil, nil
	}
	for _, n := range needs {
		l := &b.limits[n.Limit]
		lease := find(used, l.Name)
		permits, at := back(n)
		switch {
		case lease == nil:
			if durable && permits > 0 && !at.IsZero() {
				own = append(own, Hold{Upstream: b.upstream, Limit: l.Name, Key: n.Key, Permits: permits, Back: at})
			}
		case !lease.Every:
			lease.flying--
			lease.left += n.Cost - permits
			if at.After(lease.Back) {
				lease.Back = at
			}
			if lease.flying == 0 && b.latest[leaseKey{l.Name, n.Key}] != lease {
				b.over = append(b.over, lease.settled(now))
			}
		}
	}
	if len(b.latest) > b.sweepAt {
		b.sweep(now)
	}
	over, b.over = b.over, nil
	return own, over
}

// sweep settles the leases of keys whose permits are all back.
func (b *Book) sweep(now time.Time) {
	for id, lease := range b.latest {
		if lease.flying == 0 && !lease.Back.After(now) {
			delete(b.latest, id)
			b.over = append(b.over, lease.settled(now))
		}
	}
	b.sweepAt = max(firstSweep, 2*len(b.latest))
}

// settled returns the hold of a lease that no call uses any more.
func (l *Lease) settled(now time.Time) Hold {
	h := l.Hold
	if h.Back.IsZero() {
		h.Back = now
	}
	return h
}

// find returns the lease of a limit, nil if there is none.
func find(used []*Lease, limit string) *Lease {
	for _, lease := range used {
		if lease.Limit == limit {
			return lease
		}
	}
	return nil
}

// Out returns the holds of a call whose permits are out, or may be, at an instant.
func Out(holds []Hold, now time.Time) (out []Hold) {
	for _, h := range holds {
		if h.Back.After(now) {
			out = append(out, h)
		}
	}
	return out
}
