package planner

// A treap holds the calls of a class in order and tells how many go before one (Seidel
// and Aragon, "Randomized Search Trees", 1996). The items are its nodes. Each operation
// is O(log n); the first call is at hand.
type treap[T any] struct {
	root, head *Item[T]
}

// rank is that of a call within its class.
func (it *Item[T]) rank() rank { return rank{priority: int(it.Priority), seq: it.Seq} }

// weight is as good as random, as it scatters the age (Knuth, multiplicative hashing).
// That of a parent is the greatest of its subtree.
func (it *Item[T]) weight() uint32 { return uint32((it.Seq * 0x9E3779B97F4A7C15) >> 32) }

func (it *Item[T]) size() uint32 {
	if it == nil {
		return 0
	}
	return it.count
}

func (it *Item[T]) recount() { it.count = 1 + it.left.size() + it.right.size() }

func (t *treap[T]) size() int       { return int(t.root.size()) }
func (t *treap[T]) first() *Item[T] { return t.head }

func (t *treap[T]) add(it *Item[T]) {
	it.left, it.right, it.count = nil, nil, 1
	before, after := split(t.root, it.rank())
	t.root = join(join(before, it), after)
	if t.head == nil || it.rank().before(t.head.rank()) {
		t.head = it
	}
}

func (t *treap[T]) remove(it *Item[T]) {
	t.root = without(t.root, it)
	it.left, it.right, it.count = nil, nil, 0
	if t.head == it {
		t.head = leftmost(t.root)
	}
}

// replace puts a call where another one of its rank is.
func (t *treap[T]) replace(it, by *Item[T]) {
	at := &t.root
	for *at != it {
		if it.rank().before((*at).rank()) {
			at = &(*at).left
		} else {
			at = &(*at).right
		}
	}
	*at = by
	by.left, by.right, by.count = it.left, it.right, it.count
	if t.head == it {
		t.head = by
	}
}

// before returns how many calls go before a rank.
func (t *treap[T]) before(r rank) int {
	n := uint32(0)
	for it := t.root; it != nil; {
		if it.rank().before(r) {
			n += 1 + it.left.size()
			it = it.right
		} else {
			it = it.left
		}
	}
	return int(n)
}

func leftmost[T any](it *Item[T]) *Item[T] {
	for it != nil && it.left != nil {
		it = it.left
	}
	return it
}

// split parts a subtree in the calls that go before a rank, and the rest.
func split[T any](it *Item[T], r rank) (before, rest *Item[T]) {
	if it == nil {
		return nil, nil
	}
	if it.rank().before(r) {
		it.right, rest = split(it.right, r)
		it.recount()
		return it, rest
	}
	before, it.left = split(it.left, r)
	it.recount()
	return before, it
}

// join makes one subtree of two, all of the first going before all of the second.
func join[T any](a, b *Item[T]) *Item[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.weight() > b.weight():
		a.right = join(a.right, b)
		a.recount()
		return a
	}
	b.left = join(a, b.left)
	b.recount()
	return b
}

func without[T any](t, it *Item[T]) *Item[T] {
	switch {
	case t == it:
		return join(it.left, it.right)
	case it.rank().before(t.rank()):
		t.left = without(t.left, it)
	default:
		t.right = without(t.right, it)
	}
	t.recount()
	return t
}
