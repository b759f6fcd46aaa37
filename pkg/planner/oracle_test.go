package planner

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/oracle"
)

var (
	seeds    = flag.Uint64("seeds", 500, "how many drawn loads TestPlannerAgainstOracle compares")
	firstRun = flag.Uint64("seed", 0, "the first of them")
)

// TestPlannerAgainstOracle draws loads with limits of every kind. Each call is sent at
// exactly the instants at which a scheduler that looks at everything sends it; with a
// Dispatch that sends all calls, and with one that sends a single call.
func TestPlannerAgainstOracle(t *testing.T) {
	for seed := *firstRun; seed < *firstRun+*seeds; seed++ {
		most := math.MaxInt
		if seed%4 == 0 {
			most = 1
		}
		compare(t, oracle.Draw(rand.New(rand.NewPCG(seed, 5))), most)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzPlanner lets the fuzzer draw the loads: each byte decides one draw, those beyond
// the last byte are random.
func FuzzPlanner(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0x40, 0, 0, 0x20, 0xff})
	for _, n := range []int{40, 200, 1000} {
		data := make([]byte, n)
		r := rand.New(rand.NewPCG(uint64(n), 5))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		source := &byteSource{data: data, rest: rand.NewPCG(uint64(len(data)), 5)}
		most := math.MaxInt
		if n := source.Uint64() % 8; n > 3 {
			most = int(n - 3)
		}
		compare(t, oracle.Draw(rand.New(source)), most)
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
