package quota

import "time"

// paces are how keys of a limit are slowed down, those that are.
type paces map[string]pace

// A pace holds the calls of a key apart, however many permits are free.
type pace struct {
	next  int64                           // monotonic: none goes before
	ahead func(permits int) time.Duration // how long so many calls take
}

// next returns the monotonic instant before which no call of a key goes.
func (p paces) next(key string) int64 {
	if len(p) == 0 {
		return 0
	}
	return p[key].next
}

// wait returns how long after from the pace lets the call go that so many of the key go before.
func (p paces) wait(key string, from int64, ahead int) int64 {
	slowed, some := p[key]
	if !some {
		return 0
	}
	return max(0, slowed.next-from) + min(int64(slowed.ahead(ahead)), farthest)
}
