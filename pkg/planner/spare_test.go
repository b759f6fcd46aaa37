package planner

import (
	"math"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// TestLoneCallAllocatesLittle: a call that waits for nothing has its class, flow and key queues of the
// one before. The ledger allocates the usage of a new key.
func TestLoneCallAllocatesLittle(t *testing.T) {
	most := quota.Limit{Calls: quota.MaxCalls, Window: quota.Sliding(sec)}
	s, j := newBench(most, most, most), new(job)
	if n := testing.AllocsPerRun(100, func() {
		s.add(j)
		s.planner.Dispatch(start, math.MaxInt, s.back)
	}); n > 1 {
		t.Errorf("%v allocations, want at most 1", n)
	}
}

// TestSpareFlow: a flow that a reset forgets is the next one, as if it were new.
func TestSpareFlow(t *testing.T) {
	table := newFlowTable(1, func(string) float64 { return 2 })
	f := table.of("a")
	table.activate(f)
	f.waiting++
	table.pay(f, 1)
	table.leave(f)
	table.reset()
	if next := table.of("b"); next != f || next.name != "b" || next.virtual != 0 || table.idle.Size() > 0 {
		t.Errorf("%p %+v, want %p; %d are idle", next, next, f, table.idle.Size())
	}
}

func TestSpare(t *testing.T) {
	var s spare[int]
	for range 2 * maxSpare {
		s.put(new(int))
	}
	if len(s.items) != maxSpare {
		t.Errorf("%d objects are kept, want %d", len(s.items), maxSpare)
	}
	seen := make(map[*int]bool)
	for range 2 * maxSpare {
		x := s.take()
		if seen[x] {
			t.Fatal("an object is taken twice")
		}
		seen[x] = true
	}
	if len(s.items) > 0 {
		t.Errorf("%d objects are never taken", len(s.items))
	}
}
