// Package wheel holds very many single-shot timeouts: to set, cancel or move
// one takes the same few steps whether it is due in a millisecond or a year,
// and whether ten others wait or ten million.
//
// [Wheel] is passive: no goroutine, clock or lock. Its owner calls Insert, sleeps
// until Next, and calls Advance. [Timer] runs one: NewTimeout, Stop, Drain.
//
// Time is counted in ticks. A level has 64 slots, and a slot of one level is
// as wide as the whole level below. With a tick of 1ms:
//
//	level   slot     whole level        level   slot     whole level
//	  0     1ms      64ms                 3     4.4min   4.7h
//	  1     64ms     4.1s                 4     4.7h     12.4 days
//	  2     4.1s     4.4min               5     12.4d    2.2 years
//
// and so on to level 10, which takes any time.Duration even at a tick of 1ns.
// Write the tick of a deadline as a number in base 64: the highest digit in
// which it differs from the present tick says the level, that digit the slot.
// When time enters a slot, its timeouts move down. Here with 4 slots a level,
// a timeout due at tick 27, which is 1·16 + 2·4 + 3, or 123 in base 4:
//
//	at tick    level 2 (16s)    level 1 (4s)    level 0 (1s)
//	 0 = 000   [. X . .]        [. . . .]       [. . . .]     slot 1
//	16 = 100   [. . . .]        [. . X .]       [. . . .]     slot 2
//	24 = 120   [. . . .]        [. . . .]       [. . . X]     slot 3
//	27 = 123   it fires
//
// Nothing happens in between: a bitmap per level names the next slot in use,
// so empty ticks cost nothing, and a timeout moves at most once per level.
//
// A timeout is never early: deadlines round up to a tick, the clock down. Not
// promised: firing before the end of that tick, an order within one tick, and
// memory given back after a peak (32 bytes each, for pointer-sized values).
//
// Sources: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP
// 1987; tokio's time wheel (levels by highest differing bit, bitmaps); Kafka's
// TimingWheel.java (no empty ticks); Netty's HashedWheelTimer (what Timer does).
package wheel

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

const (
	slotBits = 6
	slots    = 1 << slotBits
	// levels is the least that covers the 63 bits of a time.Duration, so that no
	// deadline needs a list of its own for being too far away.
	levels = (63 + slotBits - 1) / slotBits
)

// What a node's list field says: below dueLists, the slot that holds it, level by
// level; then one of the two lists of what was due when it came in; and for a free node
// how its last timeout ended.
const (
	dueLists  = levels * slots
	listCount = dueLists + 2

	endFired     = listCount
	endCancelled = listCount + 1
)

// chunkNodes is the number of nodes by which the slab grows. Chunks never move, so
// growing copies nothing and stalls nobody at ten million timeouts.
const chunkNodes = 1024

// Wheel holds single-shot timeouts, each with a value. An instant is a time.Duration
// since an origin that the owner picks, on a clock that does not go back.
//
// A Wheel has one owner: its methods must not be called concurrently.
type Wheel[T any] struct {
	tick uint64 // nanoseconds

	// now is the tick that the wheel has reached: all slots lie ahead of it, save the
	// slot of now itself on level 0. goal is the tick up to which Advance was asked.
	now, goal uint64

	// occupied has a bit for each slot that is not empty. A lower level is always due
	// before a higher one, and slots of a level are due in order, as all of a level's
	// deadlines agree with now in the digits above: the first bit is the next slot.
	occupied [levels]uint64
	lists    [listCount]list

	// draining is 0 or 1: the due list that is being fired. What comes in with a
	// deadline already reached goes to the other, so Advance ends even if every
	// callback inserts such a timeout.
	draining uint16

	chunks  []*[chunkNodes]node[T]
	used    uint32 // nodes ever handed out, with node 0, which means none
	free    uint32 // first free node; they are linked by next
	pending int
}

// list is a doubly linked list of nodes, by index; 0 is none.
type list struct{ head, tail uint32 }

// node is a timeout. Links are indices, so that nodes of a pointer-free T are invisible
// to the garbage collector, and fill half a cache line.
type node[T any] struct {
	value      T
	tick       uint64
	next, prev uint32
	generation uint32 // of the handle that is valid now, or will be next
	list       uint16
}

// Handle names a timeout of one Wheel. It stays safe to use for ever: once its timeout
// has fired or was cancelled, it names nothing. The zero Handle names nothing either.
type Handle struct{ index, generation uint32 }

// New returns an empty wheel at instant 0. It panics if tick is not positive.
func New[T any](tick time.Duration) *Wheel[T] {
	if tick <= 0 {
		panic(fmt.Sprintf("wheel: New(%v): tick must be positive", tick))
	}
	return &Wheel[T]{tick: uint64(tick), used: 1}
}

// Len returns the number of timeouts that have neither fired nor been cancelled.
func (w *Wheel[T]) Len() int { return w.pending }

// Insert adds a timeout that fires at the first tick not before at. If the wheel has
// reached that tick already, it fires in the next Advance.
func (w *Wheel[T]) Insert(at time.Duration, value T) Handle {
	i, n := w.alloc()
	n.value = value
	w.schedule(i, n, at)
	w.pending++
	return Handle{i, n.generation}
}

// Cancel removes a timeout and returns its value. It reports false, and does nothing,
// if the timeout has fired or been cancelled.
func (w *Wheel[T]) Cancel(h Handle) (value T, ok bool) {
	n := w.find(h)
	if n == nil {
		return value, false
	}
	return w.remove(h.index, n, endCancelled), true
}

// Reschedule gives a timeout a new deadline, earlier or later; the handle stays valid.
// It reports false, and does nothing, if the timeout has fired or been cancelled.
func (w *Wheel[T]) Reschedule(h Handle, at time.Duration) bool {
	n := w.find(h)
	if n == nil {
		return false
	}
	w.unlink(n)
	w.schedule(h.index, n, at)
	return true
}

// Advance moves the wheel to now and fires every timeout that is due, in order of
// ticks. An instant before the last one is taken as the last one.
//
// A timeout has left the wheel when fire sees its value, and fire may call any method
// of the wheel. What it inserts for a later tick up to now still fires in this call;
// what it inserts for a tick already reached fires in the next, and Next says that it
// is due at once.
func (w *Wheel[T]) Advance(now time.Duration, fire func(value T)) {
	w.raise(now)
	for value, ok := w.pop(); ok; value, ok = w.pop() {
		fire(value)
	}
}

// Next returns when to call Advance next, which is never later than the tick of the
// earliest deadline; ok is false if the wheel is empty. It may be earlier, when
// timeouts have to move down a level: at most once per level for each timeout. An
// instant that has passed means at once.
func (w *Wheel[T]) Next() (at time.Duration, ok bool) {
	if w.pending == 0 {
		return 0, false
	}
	tick := w.now
	if w.lists[dueLists].head == 0 && w.lists[dueLists+1].head == 0 {
		_, _, tick = w.first()
	}
	return w.instant(tick), true
}

// raise sets the tick up to which pop fires, and lets it see what was inserted too late
// since the last raise.
func (w *Wheel[T]) raise(now time.Duration) {
	w.goal = max(w.goal, w.tickAt(now))
	if w.lists[dueLists+w.draining].head == 0 {
		w.draining ^= 1
	}
}

// seek moves the wheel on, as far as goal, to the next timeout that is due, and reports
// whether there is one.
func (w *Wheel[T]) seek() bool {
	for w.lists[dueLists+w.draining].head == 0 {
		level, slot, start := w.first()
		if level == levels || start > w.goal {
			w.now = w.goal
			return false
		}
		w.now = start
		if level == 0 {
			return true
		}
		w.moveDown(level, slot)
	}
	return true
}

// pop takes out the next timeout that is due by goal.
func (w *Wheel[T]) pop() (value T, ok bool) {
	if !w.seek() {
		return value, false
	}
	i := w.lists[dueLists+w.draining].head
	if i == 0 {
		i = w.lists[w.now%slots].head
	}
	return w.remove(i, w.node(i), endFired), true
}

// first returns the first occupied slot, and the tick at which it starts. Its level is
// levels if there is none.
func (w *Wheel[T]) first() (level, slot int, start uint64) {
	for level, occupied := range w.occupied {
		if occupied != 0 {
			slot := bits.TrailingZeros64(occupied)
			below := uint64(1)<<((level+1)*slotBits) - 1 // all ones for the top level: the shift gives 0
			return level, slot, w.now&^below | uint64(slot)<<(level*slotBits)
		}
	}
	return levels, 0, 0
}

// moveDown spreads a slot, which starts now, over the levels below. It is the one step
// that takes the longer the more timeouts there are: it visits each one in the slot.
func (w *Wheel[T]) moveDown(level, slot int) {
	id := level*slots + slot
	i := w.lists[id].head
	w.lists[id] = list{}
	w.occupied[level] &^= 1 << slot
	for i != 0 {
		n := w.node(i)
		next := n.next
		w.place(i, n)
		i = next
	}
}

// schedule puts a node that is in no list where its deadline belongs.
func (w *Wheel[T]) schedule(i uint32, n *node[T], at time.Duration) {
	n.tick = w.tickFrom(at)
	if n.tick <= w.now {
		w.push(dueLists+(w.draining^1), i, n)
		return
	}
	w.place(i, n)
}

// place puts a node, which is not due before now, in its slot.
func (w *Wheel[T]) place(i uint32, n *node[T]) {
	level := (bits.Len64((n.tick^w.now)|(slots-1)) - 1) / slotBits
	slot := n.tick >> (level * slotBits) % slots
	w.occupied[level] |= 1 << slot
	w.push(uint16(level*slots)+uint16(slot), i, n)
}

func (w *Wheel[T]) push(id uint16, i uint32, n *node[T]) {
	l := &w.lists[id]
	n.list, n.next, n.prev = id, 0, l.tail
	if l.tail == 0 {
		l.head = i
	} else {
		w.node(l.tail).next = i
	}
	l.tail = i
}

func (w *Wheel[T]) unlink(n *node[T]) {
	l := &w.lists[n.list]
	if n.prev == 0 {
		l.head = n.next
	} else {
		w.node(n.prev).next = n.next
	}
	if n.next == 0 {
		l.tail = n.prev
	} else {
		w.node(n.next).prev = n.prev
	}
	if l.head == 0 && n.list < dueLists {
		w.occupied[n.list/slots] &^= 1 << (n.list % slots)
	}
}

// remove ends a timeout and frees its node. A node whose generations are used up is
// never used again, so that no handle, however old, can name another timeout.
func (w *Wheel[T]) remove(i uint32, n *node[T], end uint16) T {
	w.unlink(n)
	w.pending--
	value := n.value
	var zero T
	n.value = zero // what it points to must be able to leave memory
	n.list = end
	n.generation++
	if n.generation != math.MaxUint32 {
		n.next = w.free
		w.free = i
	}
	return value
}

func (w *Wheel[T]) alloc() (uint32, *node[T]) {
	if i := w.free; i != 0 {
		n := w.node(i)
		w.free = n.next
		return i, n
	}
	if int(w.used/chunkNodes) == len(w.chunks) {
		w.chunks = append(w.chunks, new([chunkNodes]node[T]))
	}
	i := w.used
	if i == math.MaxUint32 {
		panic("wheel: Insert: more than 4294967294 timeouts")
	}
	w.used++
	return i, w.node(i)
}

func (w *Wheel[T]) node(i uint32) *node[T] {
	return &w.chunks[i/chunkNodes][i%chunkNodes]
}

// find returns the node of a timeout that waits, or nil.
func (w *Wheel[T]) find(h Handle) *node[T] {
	if h.index == 0 || h.index >= w.used {
		return nil
	}
	if n := w.node(h.index); n.generation == h.generation {
		return n
	}
	return nil
}

// handles returns the handles of all timeouts that wait, in no order.
func (w *Wheel[T]) handles() []Handle {
	all := make([]Handle, 0, w.pending)
	for i := uint32(1); i < w.used; i++ {
		if n := w.node(i); n.list < listCount {
			all = append(all, Handle{i, n.generation})
		}
	}
	return all
}

// tickFrom returns the first tick that is not before at.
func (w *Wheel[T]) tickFrom(at time.Duration) uint64 {
	if at <= 0 {
		return 0
	}
	return uint64(at-1)/w.tick + 1
}

// tickAt returns the last tick that is not after now. The last tick of all, which a
// time.Duration may not reach, is cut short, so that the greatest deadline can fire.
func (w *Wheel[T]) tickAt(now time.Duration) uint64 {
	if now == math.MaxInt64 {
		return w.tickFrom(now)
	}
	return uint64(max(now, 0)) / w.tick
}

// instant is when a tick starts; see tickAt for the last one.
func (w *Wheel[T]) instant(tick uint64) time.Duration {
	high, low := bits.Mul64(tick, w.tick)
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(low)
}
