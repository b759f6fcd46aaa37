package quota

// cooling are the permits of one key whose attempts have ended and that are not
// back yet: a queue by the instant at which they come back, on the window's clock.
// Ends come in nearly in order, so it is sorted by insertion from the back.
type cooling struct {
	ring  []batch // ring[head:] is the queue
	head  int32
	total int32
}

// A batch are permits that come back at one instant.
type batch struct {
	at   int64
	n    int32
	late int32 // those of n whose attempts had no answer
}

// at returns how many are out.
func (c *cooling) at(now int64) int {
	if c.total == 0 {
		return 0
	}
	for int(c.head) < len(c.ring) && c.ring[c.head].at <= now {
		c.total -= c.ring[c.head].n
		c.head++
	}
	return int(c.total)
}

// late returns how many that are out had no answer.
func (c *cooling) late(now int64) (n int) {
	c.at(now)
	for _, b := range c.ring[c.head:] {
		n += int(b.late)
	}
	return n
}

func (c *cooling) add(b batch) {
	if c.head > 0 && len(c.ring) == cap(c.ring) { // reuse the room in front before growing
		c.ring = c.ring[:copy(c.ring, c.ring[c.head:])]
		c.head = 0
	}
	c.total += b.n
	i := len(c.ring)
	for i > int(c.head) && c.ring[i-1].at > b.at {
		i--
	}
	if i > int(c.head) && c.ring[i-1].at == b.at {
		c.ring[i-1].n += b.n
		c.ring[i-1].late += b.late
		return
	}
	c.ring = append(c.ring, batch{})
	copy(c.ring[i+1:], c.ring[i:])
	c.ring[i] = b
}

// atMost returns the instant from which at most n are out, now or later.
func (c *cooling) atMost(now int64, n int) int64 {
	at, left := now, c.at(now)
	for i := int(c.head); left > n; i++ {
		at = c.ring[i].at
		left -= int(c.ring[i].n)
	}
	return at
}

// nth returns when the r-th of those that are out comes back, counted from 0;
// false if there are not as many.
func (c *cooling) nth(r int) (int64, bool) {
	for _, b := range c.ring[c.head:] {
		if r -= int(b.n); r < 0 {
			return b.at, true
		}
	}
	return 0, false
}

// shift lets everything that is out come back later by a step of the clock, which may be
// negative, and nothing before the floor.
func (c *cooling) shift(now, step, floor int64) {
	c.at(now)
	for i := int(c.head); i < len(c.ring); i++ {
		c.ring[i].at = max(c.ring[i].at+step, floor)
	}
}
