// Package wheel holds very many single-shot timeouts: to set, cancel or move
// one takes the same few steps whether it is due in a millisecond or a year,
// and whether ten others wait or ten million.
//
// [Wheel] is passive: no goroutine, clock or lock. Its owner calls Insert, sleeps
// until Next, and calls Advance. [Timer] runs wheels on goroutines of its own:
// NewTimeout, Stop, Drain. Throttler's scheduler owns a Wheel and needs no Timer.
//
// Time is counted in ticks. A slot of a level is 64 times as wide as one of the
// level below, and a level reaches 64 to 128 slots ahead. With a tick of 1ms:
//
//	level   slot     reaches           level   slot     reaches
//	  0     1ms      64ms                3     4.4min   4.7h
//	  1     64ms     4.1s                4     4.7h     12.4 days
//	  2     4.1s     4.4min              5     12.4d    2.2 years
//
// and so on to level 10, which takes any time.Duration even at a tick of 1ns.
// A timeout goes to the lowest level that reaches it, and down a level when time
// enters the slot before its own. Here with 4 for 64, so that a ring has 8 places,
// a timeout due at tick 45:
//
//	tick   level 2, slots of 16   level 1, slots of 4   level 0
//	  0    [. . X . . . . .]      [. . . . . . . .]     [. . . . . . . .]
//	 16    [. . . . . . . .]      [. . . X . . . .]     [. . . . . . . .]
//	 40    [. . . . . . . .]      [. . . . . . . .]     [. . . . . X . .]
//	 45    it fires
//
// On level 2 its slot is 45/16 = 2; on level 1 it is 45/4 = 11, place 3 of the ring.
// Nothing happens in between: a bitmap per level names the next slot in use, so
// empty ticks cost nothing, and a timeout moves at most once per level. A slot is
// emptied ahead of its time, so that Timer can spread the work over several steps
// and fire due timeouts in between.
//
// A timeout is never early: deadlines round up to a tick, the clock down. Not
// promised: firing before the end of that tick, an order within one tick, and
// memory given back after a peak (32 bytes each, for pointer-sized values).
//
// Sources: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP
// 1987; tokio's time wheel (a bitmap per level); Kafka's TimingWheel.java (no
// empty ticks); Netty's HashedWheelTimer (the model of Timer).
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
	// ring is the number of slots of a level: those of the present turn, and those of
	// the next, into which the level above is spread ahead of time.
	ring = 2 * slots
	// levels is the least number that covers the 63 bits of a time.Duration, so
	// that no list is needed for deadlines too far away.
	levels = (63 + slotBits - 1) / slotBits
)

// Wheel holds single-shot timeouts, each with a value. An instant is a time.Duration
// since an origin that the owner picks, on a clock that does not go back.
//
// A Wheel has one owner: its methods must not be called concurrently.
type Wheel[T any] struct {
	tick uint64 // nanoseconds

	// now is the tick that the wheel has reached: all slots lie ahead of it, except
	// the slot of now itself on level 0. goal is the tick up to which Advance was
	// asked.
	now, goal uint64

	// occupied has a bit for each slot that is not empty, in a word for the even and one
	// for the odd turns of the level. Only the present turn and the next are in use.
	occupied [levels][2]uint64
	lists    [listCount]list

	// draining is 0 or 1: the due list that is being fired. A timeout inserted
	// with a deadline already reached goes to the other, so Advance ends even if
	// every callback inserts one.
	draining uint16

	chunks  []*[chunkNodes]node[T]
	used    uint32 // nodes ever allocated, including node 0, which means none
	free    uint32 // first free node; they are linked by next
	pending int
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
// A timeout has left the wheel when fire gets its value, and fire may call any method
// of the wheel. A timeout that fire inserts for a later tick up to now fires in this
// call; one for a tick already reached fires in the next call, and Next says that it
// is due at once.
func (w *Wheel[T]) Advance(now time.Duration, fire func(value T)) {
	w.raise(now)
	for w.seek(math.MaxInt) == due {
		fire(w.pop())
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
	if w.overdue() {
		return w.instant(w.now), true
	}
	tick := uint64(math.MaxUint64)
	for level := range levels {
		if start, ok := w.first(level); ok {
			tick = min(tick, opens(level, start))
		}
	}
	return w.instant(max(tick, w.now)), true
}

// raise sets the tick up to which seek goes, and makes the timeouts due that were
// inserted after their tick since the last raise.
func (w *Wheel[T]) raise(now time.Duration) {
	w.goal = max(w.goal, w.tickAt(now))
	if w.lists[dueLists+w.draining].head == 0 {
		w.draining ^= 1
	}
}

// overdue reports whether there are timeouts that were inserted after their tick.
func (w *Wheel[T]) overdue() bool {
	return w.lists[dueLists].head != 0 || w.lists[dueLists+1].head != 0
}

// found is the result of seek.
type found uint8

const (
	idle found = iota // nothing to do before goal
	due               // pop returns a timeout
	busy              // the budget is spent
)

// seek moves the wheel to the next timeout that is due, no further than goal. On the
// way it moves about budget timeouts down a level.
func (w *Wheel[T]) seek(budget int) found {
	for w.lists[dueLists+w.draining].head == 0 && w.lists[w.now%ring].head == 0 {
		tick, ok := w.first(0)
		level, start := w.nextMove()
		switch {
		case ok && tick <= w.goal && (level == 0 || tick < start):
			w.now = tick
			return due
		case level == 0:
			w.now = w.goal
			return idle
		case budget <= 0:
			return busy
		}
		w.now = max(w.now, opens(level, start))
		budget -= w.moveDown(level, start, budget)
	}
	return due
}

// pop takes out the timeout that seek found.
func (w *Wheel[T]) pop() T {
	i := w.lists[dueLists+w.draining].head
	if i == 0 {
		i = w.lists[w.now%ring].head
	}
	return w.remove(i, w.node(i), endFired)
}

// first returns the tick at which the first occupied slot of a level starts.
func (w *Wheel[T]) first(level int) (start uint64, ok bool) {
	turn := w.now >> ((level + 1) * slotBits)
	occupied := w.occupied[level][turn%2]
	if occupied == 0 {
		turn++
		occupied = w.occupied[level][turn%2]
	}
	slot := turn<<slotBits | uint64(bits.TrailingZeros64(occupied))
	return slot << (level * slotBits), occupied != 0
}

// nextMove returns the earliest slot that opens by goal. Its timeouts must move down
// before time enters it. The level is 0 if there is none.
func (w *Wheel[T]) nextMove() (level int, start uint64) {
	for l := 1; l < levels; l++ {
		s, ok := w.first(l)
		if ok && opens(l, s) <= w.goal && (level == 0 || s < start) {
			level, start = l, s
		}
	}
	return level, start
}

// opens returns the tick from which a slot may be emptied: on level 0 its own start,
// elsewhere one slot earlier, when the level below reaches all of it.
func opens(level int, start uint64) uint64 {
	if level == 0 {
		return start
	}
	return start - 1<<(level*slotBits)
}

// moveDown moves about budget timeouts of an open slot to the levels below, and
// returns their number. It takes the list from both ends, so that two nodes are
// fetched from memory at a time.
func (w *Wheel[T]) moveDown(level int, start uint64, budget int) (moved int) {
	slot := start >> (level * slotBits) % ring
	l := &w.lists[level*ring+int(slot)]
	i, j := l.head, l.tail
	for i != 0 && moved < budget {
		first, last := w.node(i), w.node(j)
		next, prev := first.next, last.prev
		w.place(i, first)
		moved++
		if i != j {
			w.place(j, last)
			moved++
		}
		if i == j || next == j {
			next, prev = 0, 0
		}
		i, j = next, prev
	}
	l.head, l.tail = i, j
	if i == 0 {
		w.occupied[level][slot/slots] &^= 1 << (slot % slots)
	} else {
		w.node(i).prev, w.node(j).next = 0, 0
	}
	return moved
}

// schedule puts a node that is in no list into the list of its deadline.
func (w *Wheel[T]) schedule(i uint32, n *node[T], at time.Duration) {
	n.tick = w.tickFrom(at)
	if n.tick <= w.now {
		w.push(dueLists+(w.draining^1), i, n)
		return
	}
	w.place(i, n)
}

// place puts a node that is due after now in its slot, on the lowest level where that
// slot has not opened.
func (w *Wheel[T]) place(i uint32, n *node[T]) {
	level := (bits.Len64((n.tick-w.now)|(slots-1)) - 1) / slotBits
	if level > 0 && n.tick>>(level*slotBits)-w.now>>(level*slotBits) == 1 {
		level--
	}
	slot := n.tick >> (level * slotBits) % ring
	w.occupied[level][slot/slots] |= 1 << (slot % slots)
	w.push(uint16(level*ring)+uint16(slot), i, n)
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
