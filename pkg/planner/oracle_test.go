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
	play := func(seed uint64) {
		most := math.MaxInt
		if seed%4 == 0 {
			most = 1
		}
		compare(t, drawLoad(rand.New(rand.NewPCG(seed, 5))), most)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	drawn := *seeds
	if testing.Short() {
		drawn /= 6
	}
	play(3573) // a call that waits in vain for a permit ends the reservation of another one
	for seed := *firstRun; seed < *firstRun+drawn; seed++ {
		play(seed)
	}
}

// drawLoad draws a load in which calls are also cancelled while another one is sent.
func drawLoad(r *rand.Rand) *oracle.Load {
	load := oracle.Draw(r)
	if r.IntN(4) == 0 {
		for _, c := range load.Calls {
			c.Cancels = max(0, 1+r.IntN(6*len(load.Calls))-5*len(load.Calls))
		}
	}
	return load
}
