package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is how many bytes a process allocates at least before it collects them. With Go's
// own rule, as many as are in use, an idle sidecar with 4 MiB in use would collect garbage every
// few hundred requests.
const leastGarbage = 32 << 20

// leastHeap is the heap at which Go collects at first with a GOGC of 100; it grows with GOGC.
const leastHeap = 4 << 20

// gcPercent returns the GOGC of a process with so many bytes in use: Go's own, 100, if they are
// many.
func gcPercent(live uint64) int {
	return int(max(100, leastGarbage*100/max(live, leastHeap)))
}

// A sentinel is garbage from its making on: the collection that frees it runs its cleanup. The
// pointer keeps it out of the blocks of tiny objects, which live longer.
type sentinel struct{ _ *sentinel }

// tuneGC sets GOGC at each garbage collection, unless the environment sets GOGC or GOMEMLIMIT.
func tuneGC() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		setGC()
	}
}

func setGC() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
	runtime.AddCleanup(&sentinel{}, func(struct{}) { setGC() }, struct{}{})
}
