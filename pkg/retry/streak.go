package retry

import "time"

// maxStreaks bounds the keys that Streaks remembers.
const maxStreaks = 10_000

// Streaks counts, by key, how often in a row an upstream has limited calls without
// saying for how long. The zero value is ready to use; it belongs to one goroutine.
type Streaks[K comparable] struct{ byKey map[K]streak }

type streak struct {
	count int
	at    time.Time     // of the last limited answer
	wait  time.Duration // that followed it
}

// Limited counts an answer that limited an attempt, which was sent at an instant, and
// returns how long to wait: longer each time in a row. Attempts that were in flight
// together count once. Random is from [0, 1).
func (s *Streaks[K]) Limited(now time.Time, key K, sentAt time.Time, c Curve, random float64) time.Duration {
	if s.byKey == nil || len(s.byKey) >= maxStreaks { // a streak that is forgotten begins again
		s.byKey = make(map[K]streak)
	}
	k := s.byKey[key]
	if k.count == 0 || !sentAt.Before(k.at) {
		k = streak{k.count + 1, now, c.Delay(k.count+1, k.wait, random)}
		s.byKey[key] = k
	}
	return k.wait
}

// Empty reports whether there is no streak.
func (s *Streaks[K]) Empty() bool { return len(s.byKey) == 0 }

// End ends the streak of a key: a call passed.
func (s *Streaks[K]) End(key K) { delete(s.byKey, key) }
