package workload

import (
	"hash/maphash"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the arrivals that are kept: 48 bytes each, and 8 for each key and each cost that is
// not 1. With more than four of these for a call, fewer calls are kept.
const (
	MaxRecent      = 50_000
	maxRecentWords = 4 * MaxRecent
	maxShapes      = 10_000 // different sets of limits, with their upstreams
)

// Recent keeps the latest arrivals, as a recording has them: the instant, the upstream, the
// priority, the wait, the delay, and the keys and the flow as hashes of 64 bits. The hashes differ
// from one process to the next. Its methods may be called at the same time.
type Recent struct {
	seed maphash.Seed

	mu       sync.Mutex
	arrivals []recent // a ring: number n is at n % MaxRecent
	next     uint64   // number of the next arrival
	words    []uint64 // a ring of keys and costs
	nextWord uint64
	shapes   map[string]*shape

	// Of the arrival that is being added, to be used again.
	limits []string
	name   []byte // of its shape
}

// A recent is an arrival of the ring.
type recent struct {
	at          int64 // microseconds since 1970, as events have it
	flow        uint64
	firstWord   uint64
	shape       *shape
	wait, delay uint32 // milliseconds
	priority    int8
}

// A shape is the part of an arrival that many have in common.
type shape struct {
	upstream string
	limits   []string // sorted
	costs    []bool   // a limit's word is followed by one with its cost
	flow     string   // with a weight: its name is in the configuration
}

// NewRecent returns an empty ring.
func NewRecent() *Recent {
	return &Recent{seed: maphash.MakeSeed(), shapes: make(map[string]*shape)}
}

// Add keeps an arrival in place of the oldest one. It keeps nothing of its route.
func (r *Recent) Add(at time.Time, a Arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shapeOf(a)
	kept := recent{
		at: at.UnixMicro(), shape: s, firstWord: r.nextWord,
		wait: milliseconds(a.MaxWait), delay: milliseconds(a.Delay), priority: int8(a.Priority),
	}
	if s.flow == "" {
		kept.flow = r.hash(a.Route.Flow)
	}
	for i, limit := range s.limits {
		r.words = put(r.words, r.nextWord, maxRecentWords, r.hash(a.Route.Keys[limit]))
		r.nextWord++
		if s.costs[i] {
			r.words = put(r.words, r.nextWord, maxRecentWords, uint64(a.Route.Costs[limit]))
			r.nextWord++
		}
	}
	r.arrivals = put(r.arrivals, r.next, MaxRecent, kept)
	r.next++
}

// put sets number n of a ring.
func put[T any](ring []T, n uint64, most int, v T) []T {
	if len(ring) < most {
		return append(ring, v)
	}
	ring[n%uint64(most)] = v
	return ring
}

// milliseconds returns a duration in milliseconds; one above 49 days is as good as any.
func milliseconds(d time.Duration) uint32 {
	return uint32(min(d.Milliseconds(), math.MaxUint32))
}

// hash returns the hash of a key or a flow, 0 for the empty one.
func (r *Recent) hash(key string) uint64 {
	if key == "" {
		return 0
	}
	return max(1, maphash.String(r.seed, key))
}

// shapeOf returns the shape of an arrival.
func (r *Recent) shapeOf(a Arrival) *shape {
	limits, flow := r.limits[:0], ""
	for limit := range a.Route.Keys {
		limits = append(limits, limit)
	}
	slices.Sort(limits)
	if a.Route.Weighted {
		flow = a.Route.Flow
	}
	name := append(append(append(r.name[:0], a.Upstream...), 0), flow...)
	for _, limit := range limits {
		name = append(append(name, 0), limit...)
		if _, costs := a.Route.Costs[limit]; costs {
			name = append(name, 1)
		}
	}
	r.limits, r.name = limits, name
	if known := r.shapes[string(name)]; known != nil {
		return known
	}
	if len(r.shapes) >= maxShapes {
		clear(r.shapes)
	}
	s := &shape{upstream: a.Upstream, limits: slices.Clone(limits), flow: flow}
	for _, limit := range limits {
		_, costs := a.Route.Costs[limit]
		s.costs = append(s.costs, costs)
	}
	r.shapes[string(name)] = s
	return s
}

// Write writes the arrivals from an instant on as a recording, for upstreams with these limits by
// name, and returns their number. A call keeps the keys that it had when it came in: it is not
// under limits that were added since, and limits and upstreams that are not there any more are
// left out.
func (r *Recent) Write(w io.Writer, from time.Time, limits map[string][]string) (n int, err error) {
	recorder := NewRecorder(w, limits, true) // they are hashes already
	for _, k := range r.since(from.UnixMicro(), limits) {
		if err := recorder.Write(k.at, k.Arrival); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A dated is an arrival with its instant.
type dated struct {
	at time.Time
	Arrival
}

// since returns the arrivals from an instant on, in microseconds.
func (r *Recent) since(from int64, limits map[string][]string) (all []dated) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := r.next - min(r.next, MaxRecent); n < r.next; n++ {
		k := &r.arrivals[n%MaxRecent]
		if known, ok := limits[k.shape.upstream]; ok && k.at >= from && k.firstWord+maxRecentWords >= r.nextWord {
			all = append(all, dated{time.UnixMicro(k.at), r.arrival(k, known)})
		}
	}
	return all
}

// arrival returns an arrival of the ring, under the limits that are known.
func (r *Recent) arrival(k *recent, known []string) Arrival {
	route := &scheduler.Route{Keys: make(map[string]string), Flow: hashText(k.flow)}
	if k.shape.flow != "" {
		route.Flow, route.Weighted = k.shape.flow, true
	}
	word := k.firstWord
	for i, limit := range k.shape.limits {
		key, cost := r.words[word%maxRecentWords], uint64(1)
		if word++; k.shape.costs[i] {
			cost = r.words[word%maxRecentWords]
			word++
		}
		if !slices.Contains(known, limit) {
			continue
		}
		if route.Keys[limit] = hashText(key); k.shape.costs[i] {
			if route.Costs == nil {
				route.Costs = make(map[string]int)
			}
			route.Costs[limit] = int(cost)
		}
	}
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	return Arrival{Upstream: k.shape.upstream, Route: route, Priority: int(k.priority), MaxWait: ms(k.wait), Delay: ms(k.delay)}
}
