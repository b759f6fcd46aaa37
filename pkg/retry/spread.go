package retry

import "time"

const (
	// spreadTime is how long refusals of several keys belong together.
	spreadTime = 2 * time.Second
	// spreadKeys is the number of keys by which a refusal concerns all of them.
	spreadKeys = 4
)

// A Spread tells whether refusals concern one key each, or all keys together, because the platform
// limits the account: those of several keys within a short time, while no more calls pass than are
// limited. The zero value is ready to use; it belongs to one goroutine.
type Spread[K comparable] struct {
	since           time.Time
	keys            [spreadKeys]K // that were limited since then
	seen            int
	passed, limited int
}

// Limited notes a refusal of a key, and reports whether it concerns all keys.
func (s *Spread[K]) Limited(now time.Time, key K) (all bool) {
	s.begin(now)
	s.limited++
	for _, k := range s.keys[:s.seen] {
		if k == key {
			return s.all()
		}
	}
	if s.seen < spreadKeys {
		s.keys[s.seen] = key
		s.seen++
	}
	return s.all()
}

// Passed notes that a call passed, of any key.
func (s *Spread[K]) Passed(now time.Time) {
	s.begin(now)
	s.passed++
}

// begin forgets answers that are too old.
func (s *Spread[K]) begin(now time.Time) {
	if now.Sub(s.since) > spreadTime {
		*s = Spread[K]{since: now}
	}
}

func (s *Spread[K]) all() bool { return s.seen == spreadKeys && s.limited >= s.passed }
