package quota

// sliding is a window (t−length, t]: a permit is out until length after the
// attempt's end. A length of zero is concurrency.
type sliding struct {
	length int64
	// The permits that are out, by the instant at which they come back: a queue
	// in ring[head:], sorted. Ends come in nearly in order, so it is sorted by
	// insertion from the back.
	ring  []cooling
	head  int
	total int
}

// cooling are permits that come back at one instant.
type cooling struct {
	at int64
	n  int
}

func (s *sliding) used(now instant) int {
	for s.head < len(s.ring) && s.ring[s.head].at <= now.mono {
		s.total -= s.ring[s.head].n
		s.head++
	}
	if s.head == len(s.ring) {
		s.ring, s.head = s.ring[:0], 0
	}
	return s.total
}

func (s *sliding) charge(now, _, end instant, cost int) {
	at := end.mono + s.length
	if s.used(now); at <= now.mono {
		return
	}
	if s.head > 0 && len(s.ring) == cap(s.ring) { // reuse the room in front before growing
		s.ring = s.ring[:copy(s.ring, s.ring[s.head:])]
		s.head = 0
	}
	s.total += cost
	i := len(s.ring)
	for i > s.head && s.ring[i-1].at > at {
		i--
	}
	if i > s.head && s.ring[i-1].at == at {
		s.ring[i-1].n += cost
		return
	}
	s.ring = append(s.ring, cooling{})
	copy(s.ring[i+1:], s.ring[i:])
	s.ring[i] = cooling{at, cost}
}

func (s *sliding) fits(now instant, n int) int64 {
	at, left := now.mono, s.used(now)
	if n == 0 && left > 0 {
		return s.ring[len(s.ring)-1].at
	}
	for i := s.head; left > n; i++ {
		at = s.ring[i].at
		left -= s.ring[i].n
	}
	return at
}

func (s *sliding) expect(now, from instant, calls, inFlight, last int, trip int64) int64 {
	rounds, r := last/calls, last%calls
	return s.nth(now, from, calls-inFlight, r, trip) + int64(rounds)*(s.length+trip)
}

// nth returns when the r-th of calls permits can be had, from the instant from
// on; held of them are not in flight.
func (s *sliding) nth(now, from instant, held, r int, trip int64) int64 {
	held -= s.used(now)
	if r < held { // not taken by anybody
		return from.mono
	}
	r -= held
	out := s.ring[s.head:]
	for i := range out {
		if r -= out[i].n; r < 0 {
			return max(from.mono, out[i].at)
		}
	}
	return max(from.mono, now.mono+trip+s.length)
}
