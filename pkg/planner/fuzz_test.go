package planner

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// FuzzPlanner lets the fuzzer draw the loads: each byte decides one draw, those beyond
// the last byte are random.
func FuzzPlanner(f *testing.F) {
	f.Add([]byte{})
	for kind := range byte(16) {
		data := []byte{kind}
		r := rand.New(rand.NewPCG(uint64(kind), 5))
		for range 200 {
			data = append(data, byte(r.Uint32()))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		source := &byteSource{data: data, rest: rand.NewPCG(uint64(len(data)), 5)}
		switch r := rand.New(source); r.IntN(16) {
		case 0:
			crowd(t, r)
		case 1:
			estimates(t, r)
		case 2, 3, 4, 5:
			compare(t, drawLoad(r), 1+r.IntN(4))
		default:
			compare(t, drawLoad(r), math.MaxInt)
		}
	})
}

// A byteSource is a source of numbers that the fuzzer picks.
type byteSource struct {
	data []byte
	rest rand.Source
}

func (s *byteSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	b := uint64(s.data[0])
	s.data = s.data[1:]
	return b<<56 | 1<<55 | b // rand takes the high bits or the low ones
}

// crowd plays more reservations, or parked calls, than a batch. Calls come, are
// cancelled and end, one at a time, and after each step every call has gone that may go:
// after a single Dispatch if there is one limit, else after all batches.
func crowd(t *testing.T, r *rand.Rand) {
	limits := []quota.Limit{{Name: "a", Calls: 2, Window: quota.InFlight()}, {Name: "b", Calls: 2, Window: quota.InFlight()}}[:1+r.IntN(2)]
	g := newRig(t, nil, limits...)
	keys := batch + r.IntN(batch/2)
	add := func(key int) {
		var needs []quota.Need
		for limit := range limits {
			needs = append(needs, need(limit, fmt.Sprint(key), 1+r.IntN(2)))
		}
		g.urgent(fmt.Sprint("a", len(g.calls)), int16(r.IntN(3)), needs...)
	}
	settle := func() {
		more := g.planner.Dispatch(g.time(), math.MaxInt, func(name string) { g.sent[name] = g.now })
		if next, ok := g.wheel.Next(); more && (!ok || next > g.now) {
			t.Fatalf("there is more to look at, and the wheel fires at %v", next)
		}
		if len(limits) == 1 {
			g.wantAllGone()
		}
		g.dispatch(math.MaxInt)
	}
	for range 3 {
		for key := range keys {
			add(key)
		}
		settle()
	}
	g.wantAllGone()
	for range 20 {
		switch r.IntN(3) {
		case 0:
			add(r.IntN(keys))
		case 1:
			if name := g.any(r, func(it *Item[string]) bool { return it.Queued() }); name != "" {
				g.planner.Remove(g.time(), g.calls[name])
			}
		case 2:
			if name := g.any(r, func(it *Item[string]) bool { _, sent := g.sent[it.Value]; return sent }); name != "" {
				g.back(name)
				delete(g.sent, name)
			}
		}
		settle()
		g.wantAllGone()
	}
	g.wantBalanced()
}

// any picks one of the calls that fit; empty if none does.
func (r *rig) any(random *rand.Rand, fits func(*Item[string]) bool) string {
	n := len(r.calls)
	for i, from := 0, random.IntN(n); i < n; i++ {
		name := fmt.Sprint("a", (from+i)%n)
		if it := r.calls[name]; it != nil && fits(it) {
			return name
		}
	}
	return ""
}

// wantAllGone checks that no call waits that may go: for each call, in their order, it
// looks whether the ledger has the permits, and no earlier one reserves them.
func (r *rig) wantAllGone() {
	r.t.Helper()
	var line []*Item[string]
	for _, it := range r.calls {
		if it.Queued() {
			line = append(line, it)
		}
	}
	slices.SortFunc(line, func(a, b *Item[string]) int { return cmp.Or(int(b.Priority)-int(a.Priority), int(a.Seq)-int(b.Seq)) })
	reserved := map[keyID]bool{}
	for _, it := range line {
		var lacks []keyID
		free := true
		for _, n := range it.Demand.Needs {
			id := keyID{n.Limit, n.Key}
			free = free && !reserved[id]
			if at := r.ledger.Next(r.time(), n); at.IsZero() || at.After(r.time()) {
				lacks = append(lacks, id)
			}
		}
		switch {
		case free && len(lacks) == 0:
			r.t.Fatalf("%s waits, and nothing holds it", it.Value)
		case free && len(lacks) == 1:
			reserved[lacks[0]] = true
		}
	}
}

// wantBalanced checks that no treap of calls is much deeper than a balanced tree.
func (r *rig) wantBalanced() {
	r.t.Helper()
	for id, cl := range r.planner.classes {
		if n, most := depth(cl.calls.root), 20+4*int(math.Log2(float64(1+cl.calls.size()))); n > most {
			r.t.Fatalf("class %s: %d calls in a tree of depth %d, want %d at most", id, cl.calls.size(), n, most)
		}
	}
}

// estimates lets calls wait in line, asks for the ETA of each, and compares it with when
// the call is then sent. Half of the estimates are off by a tenth of the wait of the last
// call at most. Some of the calls wait elsewhere, until the estimates have been asked for.
func estimates(t *testing.T, r *rand.Rand) {
	window := time.Duration(50+r.IntN(1000)) * ms
	kinds := []quota.Window{quota.Sliding(window), quota.InFlight()}
	g := newRig(t, map[string]float64{"a": 1, "b": 2, "c": 3}, quota.Limit{Name: "app", Calls: 1 + r.IntN(3), Window: kinds[r.IntN(2)]},
		quota.Limit{Name: "wide", Calls: 1 + r.IntN(3), Window: quota.Sliding(10 * window)})
	trip := time.Duration(1+r.IntN(100)) * ms
	g.trip = trip
	for range 40 {
		g.planner.Observe(trip)
	}
	flows, priorities, wide, stored := 1+r.IntN(4), 1+r.IntN(2), r.IntN(5) == 0, 0
	if r.IntN(4) == 0 {
		flows = 40
	}
	if flows == 1 && priorities == 1 && !wide {
		stored = r.IntN(100)
	}
	name := func(i int) string { return string(rune('a'+i%flows)) + fmt.Sprint(i) }
	calls := 150 + r.IntN(300)
	for i := stored; i < calls; i++ {
		needs := []quota.Need{need(0, "", 1)}
		if wide && i%40 == 0 {
			needs = append(needs, need(1, "", 1))
		}
		g.calls[name(i)] = &Item[string]{Value: name(i), Demand: demand(flowOf(name(i)), needs...), Seq: uint64(i + 1), Priority: int16(i % priorities)}
		g.planner.Add(g.time(), g.calls[name(i)])
	}
	if stored == 0 {
		g.dispatch(math.MaxInt)
	}
	g.wantBalanced()
	told := map[string]time.Duration{}
	for i := stored; i < calls; i++ {
		if it := g.calls[name(i)]; it.Queued() {
			told[name(i)] = g.planner.ETA(g.time(), it, Elsewhere{Ahead: stored}).At.Sub(start)
		}
	}
	for i := range stored {
		g.calls[name(i)] = &Item[string]{Value: name(i), Demand: demand(flowOf(name(i)), need(0, "", 1)), Seq: uint64(i + 1)}
		g.planner.Add(g.time(), g.calls[name(i)])
	}
	g.run(24 * time.Hour)
	var off []time.Duration
	last := time.Duration(0)
	for name, told := range told {
		at, ok := g.sent[name]
		if !ok {
			t.Fatalf("%s was not sent", name)
		}
		off, last = append(off, (at-told).Abs()), max(last, at)
	}
	slices.Sort(off)
	if half := off[len(off)/2]; half > last/10 {
		t.Fatalf("half of the estimates are off by %v or more, the last call waits %v", half, last)
	}
}
