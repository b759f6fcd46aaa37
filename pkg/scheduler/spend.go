package scheduler

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What is stored of a limit's permits before the first byte goes out depends on
// how long a crash may cost them:
//
//	window          durable call     other call
//	≤ long_window   its permits      once per process: "all of them may be out"
//	> long_window   a block, taken ahead of the sends that it covers
//
// After a crash, whatever was stored and not heard of again is out until
// restart + late + window. So the sends of waiting callers cost no sync of their
// own, and a crash at most late + window, or one block.

// A spender keeps book of the permits of an upstream that the store knows about.
// It is owned by the loop.
type spender struct {
	long   time.Duration
	nextID func() int64
	every  map[string]*block  // by limit: the hold on all of its permits
	blocks map[blockID]*block // the latest of each key
	over   []Hold             // of blocks that are used up
	sweep  int                // number of blocks at which to look for those that are over
}

type blockID struct{ limit, key string }

// A block is permits that the store knows to be out, taken ahead of the calls
// that use them.
type block struct {
	Hold
	stored bool
	left   int // permits that no call has used yet
	flying int // calls in flight that use it
}

func newSpender(long time.Duration, nextID func() int64) *spender {
	return &spender{long: long, nextID: nextID, every: make(map[string]*block), blocks: make(map[blockID]*block), sweep: 1024}
}

// long tells whether a limit's permits are stored in blocks.
func (l *limit) long(window time.Duration) bool {
	if l.Calendar != nil {
		return l.Calendar.Unit != quota.Minute || window < time.Minute
	}
	return l.Window > window
}

// take returns the permits that a call has out, and the blocks that the store must
// know of before the call goes out.
func (sp *spender) take(now time.Time, p *planner, c *call) (own, take []Hold) {
	f := c.flight
	f.blocks = f.blocks[:0]
	for _, h := range c.Spent {
		if h.Back.After(now) { // of an attempt before
			own = append(own, h)
		}
	}
	for _, n := range f.needs {
		l := &p.limits[n.Limit]
		var b *block
		switch {
		case l.long(sp.long):
			b = sp.block(now, p.Name, l, n)
			b.left -= n.Cost
			b.flying++
		case c.Durable:
			own = append(own, Hold{Upstream: p.Name, Limit: l.Name, Key: n.Key, Permits: n.Cost})
			continue
		default:
			if b = sp.every[l.Name]; b == nil {
				b = &block{Hold: Hold{ID: sp.nextID(), Upstream: p.Name, Limit: l.Name, Every: true}}
				sp.every[l.Name] = b
			}
		}
		f.blocks = append(f.blocks, b)
		if !b.stored { // who else needs it meanwhile stores it too
			take = append(take, b.Hold)
		}
	}
	return own, take
}

// block returns one with room for the need.
func (sp *spender) block(now time.Time, upstream string, l *limit, n quota.Need) *block {
	id := blockID{l.Name, n.Key}
	b := sp.blocks[id]
	if b != nil && b.left >= n.Cost {
		return b
	}
	if b != nil && b.flying == 0 {
		sp.over = append(sp.over, b.settled(now))
	}
	// A hundredth of the limit: that is what a crash can waste.
	size := max(n.Cost, min(l.capacity()/100, 1000))
	b = &block{Hold: Hold{ID: sp.nextID(), Upstream: upstream, Limit: l.Name, Key: n.Key, Permits: size}, left: size}
	sp.blocks[id] = b
	return b
}

// back takes in how an attempt ended. It returns the call's permits that are out
// still, and the blocks of which is now known when they come back.
func (sp *spender) back(now time.Time, p *planner, c *call, r *upstream.Result) (own, settled []Hold) {
	for _, h := range c.Spent {
		if !h.Back.IsZero() {
			own = append(own, h)
		}
	}
	for _, n := range c.flight.needs {
		l := &p.limits[n.Limit]
		at := p.ledger.Back(now, n.Limit, p.attemptOf(c.flight, n, r))
		b := c.flight.block(l.Name)
		switch {
		case b == nil:
			if c.Durable && !at.IsZero() {
				own = append(own, Hold{Upstream: p.Name, Limit: l.Name, Key: n.Key, Permits: n.Cost, Back: at})
			}
		case !b.Every:
			b.flying--
			if at.After(b.Back) {
				b.Back = at
			}
			if b.flying == 0 && sp.blocks[blockID{l.Name, n.Key}] != b {
				sp.over = append(sp.over, b.settled(now))
			}
		}
	}
	if len(sp.blocks) > sp.sweep {
		sp.forget(now)
	}
	settled, sp.over = sp.over, nil
	return own, settled
}

// settled returns the hold of a block that nobody uses any more.
func (b *block) settled(now time.Time) Hold {
	h := b.Hold
	if h.Back.IsZero() {
		h.Back = now
	}
	return h
}

// forget drops the blocks of keys whose permits are all back.
func (sp *spender) forget(now time.Time) {
	for id, b := range sp.blocks {
		if b.flying == 0 && !b.Back.After(now) {
			delete(sp.blocks, id)
			sp.over = append(sp.over, b.settled(now))
		}
	}
	sp.sweep = max(1024, 2*len(sp.blocks))
}

// block returns the one that an attempt uses of a limit, nil if none.
func (f *flight) block(limit string) *block {
	for _, b := range f.blocks {
		if b.Limit == limit {
			return b
		}
	}
	return nil
}
