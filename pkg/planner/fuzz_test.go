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
			churn(t, r, true)
		case 1:
			estimates(t, r)
		case 2, 3, 4, 5:
			churn(t, r, false)
		case 6, 7, 8, 9:
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

// churn adds, cancels and ends calls, one at a time, and after each step every call has
// gone that may go: after a single Dispatch if there is one limit. In a crowd there are so
// many keys that a Dispatch does not look at all reservations, or at all parked calls.
func churn(t *testing.T, r *rand.Rand, crowd bool) {
	keys, steps, most := 1, 200, 4 // limits
	if crowd {
		keys, steps, most = 4*batch, 300, 2
	}
	var limits []quota.Limit
	for i := range 1 + r.IntN(most) {
		limits = append(limits, quota.Limit{Name: fmt.Sprint(i), Calls: 2 + r.IntN(3), Window: []quota.Window{quota.InFlight(), quota.Sliding(sec)}[r.IntN(2)]})
	}
	g := newRig(t, nil, limits...)
	add := func(key string) {
		var needs []quota.Need
		for i, first := 0, r.IntN(len(limits)); i < len(limits); i++ {
			if limit := (first + i) % len(limits); i == 0 || r.IntN(2) == 0 {
				needs = append(needs, need(limit, key, 1+r.IntN(limits[limit].Calls)))
			}
		}
		g.urgent(fmt.Sprint("a", len(g.calls)), int16(r.IntN(3)), needs...)
	}
	back := func(key string) {
		first := ""
		for name := range g.sent {
			if g.calls[name].Demand.Needs[0].Key == key && (first == "" || name < first) {
				first = name
			}
		}
		if first != "" {
			g.back(first)
			delete(g.sent, first)
		}
	}
	settle := func(key string) {
		_, more := g.once(math.MaxInt)
		if len(limits) == 1 {
			g.wantAllGone(key)
		}
		for at, ok := g.wheel.Next(); more || ok && at <= g.now; at, ok = g.wheel.Next() {
			if !ok || at > g.now {
				t.Fatalf("there is more to look at, and the wheel fires at %v", at)
			}
			g.wheel.Advance(g.now, func(t Timeout) { t.Fire(g.time()) })
			_, more = g.once(math.MaxInt)
		}
		g.wantAllGone(key)
	}
	for i := range 3 * keys {
		add(fmt.Sprint(i % keys))
	}
	g.run(0)
	for range steps {
		key := fmt.Sprint(r.IntN(keys))
		if g.onSend = nil; r.IntN(4) == 0 {
			g.onSend = func(string) { back(key); back(key) }
		}
		switch r.IntN(8) {
		case 0, 1, 2:
			add(key)
		case 3, 4:
			if name, ok := g.planner.First(0, key); ok {
				g.planner.Remove(g.time(), g.calls[name])
			}
		case 5, 6:
			back(key)
		case 7:
			g.run(g.now + time.Duration(r.IntN(300))*ms)
		}
		settle(key)
	}
}

// wantAllGone checks that no call of a key waits that may go: for each call, in their
// order, it looks whether the ledger has the permits, and no earlier one reserves them.
func (r *rig) wantAllGone(key string) {
	r.t.Helper()
	var line []*Item[string]
	for _, it := range r.calls {
		if it.Queued() && it.Demand.Needs[0].Key == key {
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

// estimates lets calls wait in line, asks for the ETA of each, and compares it with when
// the call is then sent. Half of the estimates are off by a tenth of the wait of the last
// call at most. Some of the calls wait elsewhere, until the estimates have been asked for.
func estimates(t *testing.T, r *rand.Rand) {
	window := time.Duration(50+r.IntN(1000)) * ms
	kinds := []quota.Window{quota.Sliding(window), quota.InFlight()}
	g := newRig(t, map[string]float64{"a": 1, "b": 2, "c": 3}, quota.Limit{Name: "app", Calls: 1 + r.IntN(3), Window: kinds[r.IntN(2)]},
		quota.Limit{Name: "wide", Calls: 1 + r.IntN(3), Window: quota.Sliding(2 * window)})
	trip := time.Duration(1+r.IntN(100)) * ms
	g.trip = trip
	for range 40 {
		g.planner.Observe(trip)
	}
	flows, priorities, wide, stored := 1+r.IntN(4), 1+r.IntN(2), r.IntN(3) == 0, 0
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
		if wide && i%3 == 0 {
			needs = append(needs, need(1, "", 1))
		}
		g.calls[name(i)] = &Item[string]{Value: name(i), Demand: demand(flowOf(name(i)), needs...), Seq: uint64(i + 1), Priority: int16(i % priorities)}
		g.planner.Add(g.time(), g.calls[name(i)])
	}
	if stored == 0 {
		g.dispatch(math.MaxInt)
	}
	for _, cl := range g.planner.classes {
		if n, most := depth(cl.calls.root), 20+4*int(math.Log2(float64(1+cl.calls.size()))); n > most {
			t.Fatalf("%d calls of a class are in a tree of depth %d, want %d at most", cl.calls.size(), n, most)
		}
	}
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
