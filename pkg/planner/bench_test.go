package planner

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A bench is the owner of a planner under three limits, the last with 10,000 keys. Its
// calls are of ten flows.
type bench struct {
	planner *Planner[*job]
	ledger  *quota.Ledger
	demands []*Demand
	seq     uint64
}

type job struct{ Item[*job] }

func newBench(limits ...quota.Limit) *bench {
	b := &bench{ledger: quota.New(start, limits...)}
	b.planner = New[*job](start, wheel.New[Timeout](100*time.Microsecond), b.ledger, limits, func(string) float64 { return 1 })
	for i := range 10_000 {
		d := &Demand{ID: fmt.Sprint("/", i), Flow: fmt.Sprint(i % 10), Cost: 1}
		d.Needs = []quota.Need{{Limit: 0, Cost: 1}, {Limit: 1, Cost: 1}, {Limit: 2, Key: d.ID, Cost: 1}}
		b.demands = append(b.demands, d)
	}
	return b
}

// add lets a call wait as the youngest.
func (b *bench) add(j *job) {
	b.seq++
	j.Seq, j.Value, j.Demand = b.seq, j, b.demands[b.seq%uint64(len(b.demands))]
	b.planner.Add(start, &j.Item)
}

// back ends the attempt of a call, whose permits come back now.
func (b *bench) back(j *job) {
	b.ledger.Return(start, j.Demand.Needs, quota.Attempt{Sent: start, End: start, Fate: quota.Uncounted})
	b.planner.Check(start, j.Demand.Needs)
}

// BenchmarkSend is a call from Add to the return of its permits: while no other waits,
// and while 100,000 do, of which it is the last.
func BenchmarkSend(b *testing.B) {
	most := quota.Limit{Calls: quota.MaxCalls, Window: quota.Sliding(sec)}
	b.Run("none waits", func(b *testing.B) {
		s, j := newBench(most, most, most), new(job)
		for b.Loop() {
			s.add(j)
			s.planner.Dispatch(start, math.MaxInt, s.back)
		}
	})
	b.Run("100,000 wait", func(b *testing.B) {
		s := newBench(quota.Limit{Calls: 1, Window: quota.InFlight()}, most, most)
		var sent *job
		send := func(j *job) { sent = j }
		for range 100_000 {
			s.add(new(job))
			s.planner.Dispatch(start, math.MaxInt, send)
		}
		for b.Loop() {
			s.back(sent)
			s.add(sent)
			s.planner.Dispatch(start, math.MaxInt, send)
		}
		if n := s.planner.Held(0); n != 99_999 {
			b.Fatal(n, "calls wait")
		}
	})
}

// BenchmarkETA is an estimate while a million calls wait, and the heap that each takes.
func BenchmarkETA(b *testing.B) {
	const n = 1_000_000
	s := newBench(quota.Limit{Calls: 100, Window: quota.Sliding(sec)}, quota.Limit{Calls: 50, Window: quota.Sliding(sec)}, quota.Limit{Calls: 10, Window: quota.Sliding(sec)})
	s.planner.Observe(20 * ms)
	before := heapInUse()
	jobs := make([]job, n)
	for i := range jobs {
		s.add(&jobs[i])
		s.planner.Dispatch(start, math.MaxInt, func(*job) {})
	}
	size := float64(heapInUse() - before)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 7919) % n
		s.planner.ETA(start, &jobs[i].Item, Elsewhere{})
	}
	b.ReportMetric(size/n, "B/call")
	runtime.KeepAlive(jobs)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
