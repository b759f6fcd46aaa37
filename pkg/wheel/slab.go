package wheel

import "math"

// Values of a node's list field: below dueLists the slot that holds it, level by level;
// then one of the two lists of timeouts inserted after their tick; for a free node the
// end of its last timeout.
const (
	dueLists  = levels * ring
	listCount = dueLists + 2

	endFired     = listCount
	endCancelled = listCount + 1
)

// chunkNodes is the number of nodes by which the slab grows. Chunks never move, so
// growing copies nothing, and no call stalls at ten million timeouts.
const chunkNodes = 1024

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
		w.occupied[n.list/ring][n.list/slots%2] &^= 1 << (n.list % slots)
	}
}

// remove ends a timeout and frees its node. A node whose generations are used up is
// never used again, so that an old handle never names another timeout.
func (w *Wheel[T]) remove(i uint32, n *node[T], end uint16) T {
	w.unlink(n)
	w.pending--
	value := n.value
	var zero T
	n.value = zero // lets the collector free memory that the value points to
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

// find returns the node of a pending timeout, or nil.
func (w *Wheel[T]) find(h Handle) *node[T] {
	if h.index == 0 || h.index >= w.used {
		return nil
	}
	if n := w.node(h.index); n.generation == h.generation {
		return n
	}
	return nil
}

// handles returns the handles of all pending timeouts, in no order.
func (w *Wheel[T]) handles() []Handle {
	all := make([]Handle, 0, w.pending)
	for i := uint32(1); i < w.used; i++ {
		if n := w.node(i); n.list < listCount {
			all = append(all, Handle{i, n.generation})
		}
	}
	return all
}
