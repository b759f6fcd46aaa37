package scheduler

import (
	"context"
	"maps"
	"time"
)

// How much of a backlog is in memory, per upstream.
const (
	nearCalls = 8192
	nearLane  = nearCalls / 4 // of one lane, so that a full key leaves room for others
	nearBytes = 64 << 20      // of bodies and headers
	pageCalls = 512           // read at a time
	horizon   = time.Minute   // what is due later waits on disk
	lookEvery = horizon / 2   // for what has come near
)

// A backlog is what of an upstream's durable calls waits on disk only. It is owned
// by the loop.
//
// All that goes before the cursor is in memory. A held lane has a position of its
// own for that: it has as much in memory as it may, and the rest on disk. A call that
// is submitted goes to memory if nothing on disk goes before it and there is room.
type backlog struct {
	far    int // calls on disk only
	near   int // calls that wait in memory
	bytes  int64
	lanes  map[int64]int      // near calls by lane
	hand   map[int64]struct{} // those in hand, by seq: near, sent, or not yet recorded
	cursor Position
	done   bool      // nothing comes after the cursor
	again  *Position // from there to the cursor something was left to the disk; nil if not
	held   map[int64]Position
	reads  *stretch // what is being read, nil if nothing
}

func newBacklog(far int) *backlog {
	return &backlog{far: far, cursor: first, done: far == 0, lanes: make(map[int64]int), hand: make(map[int64]struct{}), held: make(map[int64]Position)}
}

func (c *call) position() Position { return Position{Priority: int(c.Priority), Seq: int64(c.seq)} }

// below is just before a position.
func (p Position) below() Position { return Position{Priority: p.Priority, Seq: p.Seq - 1} }

// behind tells whether calls on disk go before the call.
func (b *backlog) behind(c *call) bool {
	at := c.position()
	if from, held := b.held[c.Lane]; held {
		return from.before(at)
	}
	return !b.done && b.cursor.before(at)
}

// takes decides whether a new call waits in memory.
func (b *backlog) takes(c *call) bool {
	if b.behind(c) || !b.makesRoom(c) {
		b.miss(c)
		return false
	}
	return true
}

// makesRoom decides about a call that goes before all that is on disk: it waits in
// memory, unless there is far too much.
func (b *backlog) makesRoom(c *call) bool {
	calls, lane := nearCalls, nearLane
	if !b.done {
		calls *= 2
	}
	_, held := b.held[c.Lane]
	if held {
		lane *= 2
	}
	at := c.position().below()
	full := b.near >= calls || b.bytes >= nearBytes
	switch {
	case full && !held:
		if b.done || at.before(b.cursor) {
			b.cursor, b.done = at, false
		}
		if b.again != nil && !b.again.before(b.cursor) {
			b.again = nil
		}
		return false
	case full || b.lanes[c.Lane] >= lane:
		b.hold(c.Lane, at)
		return false
	}
	return true
}

// hold leaves the calls of a lane to the disk, from a position on.
func (b *backlog) hold(lane int64, from Position) {
	if held, ok := b.held[lane]; !ok || from.before(held) {
		b.held[lane] = from
	}
}

// enter and leave count a call that waits in memory.
func (b *backlog) enter(c *call) {
	if b == nil || c.near || !c.Durable || !c.Async {
		return
	}
	c.near = true
	b.near++
	b.bytes += c.bytes
	b.lanes[c.Lane]++
	b.hand[int64(c.seq)] = struct{}{}
}

func (b *backlog) leave(c *call) {
	if b == nil || !c.near {
		return
	}
	c.near = false
	b.near--
	b.bytes -= c.bytes
	if b.lanes[c.Lane]--; b.lanes[c.Lane] == 0 {
		delete(b.lanes, c.Lane)
	}
}

// forget drops a call that the loop has no more in hand.
func (b *backlog) forget(c *call) {
	if b != nil {
		delete(b.hand, int64(c.seq))
	}
}

// A stretch is what is read next: of one held lane, or of all that follow the cursor.
type stretch struct {
	from    Position
	lane    int64
	ofLane  bool
	hand    map[int64]struct{}
	counts  map[int64]int
	held    map[int64]Position
	skipped map[int64]Position // lanes that have as much in memory as they may
	missed  *Position          // something was left to the disk there meanwhile
}

// next returns the stretch to be read now, nil if none.
func (b *backlog) next() *stretch {
	if b.reads != nil || b.bytes >= nearBytes/2 {
		return nil
	}
	for lane, from := range b.held {
		if b.lanes[lane] <= nearLane/2 && b.near < nearCalls {
			return &stretch{from: from, lane: lane, ofLane: true, hand: maps.Clone(b.hand)}
		}
	}
	if b.done && b.again == nil || b.near > nearCalls/2 {
		return nil
	}
	from := b.cursor
	if b.again != nil {
		from = *b.again
	}
	return &stretch{from: from, hand: maps.Clone(b.hand), counts: maps.Clone(b.lanes), held: maps.Clone(b.held), skipped: make(map[int64]Position)}
}

// wants chooses what is read of the stretch.
func (st *stretch) wants(p Position, lane int64) bool {
	if _, known := st.hand[p.Seq]; known {
		return false
	}
	if st.ofLane {
		return lane == st.lane
	}
	if _, held := st.held[lane]; held {
		return false
	}
	if _, skipped := st.skipped[lane]; skipped {
		return false
	}
	if st.counts[lane] >= nearLane {
		st.skipped[lane] = p.below()
		return false
	}
	st.counts[lane]++
	return true
}

// read takes in that a stretch has been read, up to a position. What was left to
// the disk meanwhile is still to be read.
func (b *backlog) read(st *stretch, page *Page) {
	b.reads = nil
	last, end := page.Last, page.End
	if st.ofLane {
		if at := st.missed; at != nil && (end || at.before(last)) {
			last, end = *at, false
		}
		switch {
		case b.held[st.lane] != st.from:
		case end:
			delete(b.held, st.lane)
		default:
			b.held[st.lane] = last
		}
		return
	}
	for lane, from := range st.skipped {
		if at := st.missed; at != nil && at.before(from) {
			from = *at
		}
		b.hold(lane, from)
	}
	again := b.again != nil && *b.again == st.from
	if again {
		b.again = &last
	}
	switch {
	case b.cursor != st.from && !again: // it was put back meanwhile
	case !last.before(b.cursor):
		b.cursor, b.done = last, end
		fallthrough
	case end:
		b.again = nil
	}
	switch at := st.missed; {
	case at == nil:
	case !at.before(b.cursor):
		b.done = false
	case b.again == nil || at.before(*b.again):
		b.again = at
	}
}

// rewind begins to read again: what was read meanwhile could not be taken in hand.
func (b *backlog) rewind() {
	if b != nil && b.far > 0 {
		b.cursor, b.done, b.again = first, false, nil
		clear(b.held)
		if b.reads != nil {
			from := first
			b.reads.missed = &from
		}
	}
}

// beyond returns how many calls on disk go before one that is not in memory.
func (b *backlog) beyond(c *call) int {
	if b == nil || c.near || c.State != Waiting || !c.Durable || !b.behind(c) {
		return 0
	}
	return b.far
}

// miss takes note that a call was left to the disk while something is read.
func (b *backlog) miss(c *call) {
	at := c.position().below()
	if st := b.reads; st != nil && (!st.ofLane || st.lane == c.Lane) && (st.missed == nil || at.before(*st.missed)) {
		st.missed = &at
	}
}

// parks tells whether a new call waits on disk only.
func (l *loop) parks(now time.Time, p *planner, c *call) bool {
	if p.backlog == nil || !c.Durable || !c.Async || c.noBody {
		return false
	}
	return c.due > now.Sub(l.origin)+horizon || !p.backlog.takes(c)
}

// refill reads calls from disk if there is room for them.
func (l *loop) refill(now time.Time, p *planner) {
	if p.backlog == nil || p.retired || l.stopping {
		return
	}
	st := p.backlog.next()
	if st == nil {
		return
	}
	p.backlog.reads = st
	l.busy++
	l.s.work.Go(func() {
		page, err := l.s.durable.Scan(context.WithoutCancel(l.s.ctx), p.Name, st.from, now.Add(horizon), pageCalls, st.wants)
		var calls []*call
		if err != nil {
			l.s.fail(err)
		} else {
			calls = l.s.reviveAll(page.Entries)
		}
		l.post(func(now time.Time) {
			l.busy--
			if err == nil {
				p.backlog.read(st, page)
				l.load(now, calls)
			}
		})
	})
}

// load takes calls from disk in hand.
func (l *loop) load(now time.Time, calls []*call) {
	for _, c := range calls {
		p := l.planners[c.Upstream]
		if l.calls[c.ID] != nil || l.accepting[c.ID] || l.stopping || p == nil || p.backlog == nil {
			continue
		}
		l.calls[c.ID] = c
		if c.State == Waiting {
			p.backlog.far = max(0, p.backlog.far-1)
			l.wait(now, c)
		}
	}
}

// A look fetches from disk what has come near of the calls that were put off. A call
// that was not, and waits on disk past its deadline, ends when its turn comes, or
// when somebody asks for it.
type look struct {
	l     *loop
	after Position
}

func (k look) timeoutAt(now time.Time) {
	l := k.l
	if l.stopping {
		l.wheel.Insert(now.Sub(l.origin)+lookEvery, look{l: l})
		return
	}
	l.busy++
	l.s.work.Go(func() {
		page, err := l.s.durable.Waking(context.WithoutCancel(l.s.ctx), now.Add(horizon), k.after, pageCalls)
		if err != nil {
			l.s.fail(err)
			page = &Page{End: true}
		}
		calls := l.s.reviveAll(page.Entries)
		l.post(func(now time.Time) {
			l.busy--
			l.load(now, calls)
			next := look{l: l}
			if !page.End && l.room() {
				next.after = page.Last
				l.wheel.Insert(now.Sub(l.origin), next)
				return
			}
			l.wheel.Insert(now.Sub(l.origin)+lookEvery, next)
		})
	})
}

// room tells whether more may be fetched from disk.
func (l *loop) room() bool {
	for _, p := range l.planners {
		if p.backlog.near > 2*nearCalls || p.backlog.bytes > nearBytes {
			return false
		}
	}
	return true
}
