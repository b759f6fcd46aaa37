package scheduler

// A tree holds the calls of a lane in order and tells how many go before one: a
// treap (Seidel and Aragon 1996) whose nodes are the calls themselves. All is
// O(log n), but for the first, which is at hand.
type tree struct {
	root, head *call
}

// node is a call's place in its tree.
type node struct {
	left, right *call
	size        uint32 // of the subtree
	weight      uint32 // random; a parent's is the greatest of its subtree
}

// rank is that of a call within its lane.
func (c *call) rank() rank { return rank{priority: int(c.Priority), seq: c.seq} }

func (c *call) count() uint32 {
	if c == nil {
		return 0
	}
	return c.queued.size
}

func (c *call) measure() { c.queued.size = 1 + c.queued.left.count() + c.queued.right.count() }

func (t *tree) Len() int     { return int(t.root.count()) }
func (t *tree) first() *call { return t.head }

func (t *tree) add(c *call) {
	// The sequence number, scattered, is as good as random (Knuth, multiplicative hashing).
	c.queued.node = node{size: 1, weight: uint32((c.seq * 0x9E3779B97F4A7C15) >> 32)}
	before, after := cut(t.root, c.rank())
	t.root = join(join(before, c), after)
	if t.head == nil || c.rank().before(t.head.rank()) {
		t.head = c
	}
}

func (t *tree) remove(c *call) {
	t.root = without(t.root, c)
	c.queued.node = node{}
	if t.head == c {
		t.head = leftmost(t.root)
	}
}

// before returns how many calls go before the rank.
func (t *tree) before(r rank) int {
	n := uint32(0)
	for c := t.root; c != nil; {
		if c.rank().before(r) {
			n += 1 + c.queued.left.count()
			c = c.queued.right
		} else {
			c = c.queued.left
		}
	}
	return int(n)
}

func leftmost(c *call) *call {
	for c != nil && c.queued.left != nil {
		c = c.queued.left
	}
	return c
}

// cut parts a tree in what goes before the rank, and the rest.
func cut(c *call, r rank) (before, rest *call) {
	if c == nil {
		return nil, nil
	}
	if c.rank().before(r) {
		c.queued.right, rest = cut(c.queued.right, r)
		c.measure()
		return c, rest
	}
	before, c.queued.left = cut(c.queued.left, r)
	c.measure()
	return before, c
}

// join makes one tree of two, all of the first going before all of the second.
func join(a, b *call) *call {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.queued.weight > b.queued.weight:
		a.queued.right = join(a.queued.right, b)
		a.measure()
		return a
	}
	b.queued.left = join(a, b.queued.left)
	b.measure()
	return b
}

func without(t, c *call) *call {
	switch {
	case t == c:
		return join(c.queued.left, c.queued.right)
	case c.rank().before(t.rank()):
		t.queued.left = without(t.queued.left, c)
	default:
		t.queued.right = without(t.queued.right, c)
	}
	t.measure()
	return t
}
