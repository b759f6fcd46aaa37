package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A workload is a quota and the instants at which calls under it are due.
type workload struct {
	name    string
	calls   int // N
	window  time.Duration
	due     []time.Duration // sorted, from the start
	backlog bool            // all due at once: its makespan has an optimum
	dense   bool            // too much for one machine to have all limiters run at a time
}

// workloads are the ones of the table.
func workloads() []workload {
	return []workload{
		backlog(100, time.Second, false),
		backlog(50, 200*time.Millisecond, true),
		backlog(1000, time.Second, true),
		bursty(100, time.Second),
	}
}

// backlog is ten windows' worth of calls, due at once.
func backlog(calls int, window time.Duration, dense bool) workload {
	return workload{
		name:  fmt.Sprintf("backlog %d per %v", calls, window),
		calls: calls, window: window, dense: dense, backlog: true,
		due: make([]time.Duration, 10*calls),
	}
}

// bursty is an open loop of ten windows at 80% of the quota: bursts of N/10 to N
// calls that are due at once, at instants that have no pattern. It is the same
// in every run.
func bursty(calls int, window time.Duration) workload {
	w := workload{
		name:  fmt.Sprintf("bursty %d per %v", calls, window),
		calls: calls, window: window,
	}
	random := rand.New(rand.NewPCG(4, 80))
	total := calls * 10 * 8 / 10
	for len(w.due) < total {
		at := time.Duration(random.Int64N(int64(10 * window)))
		size := calls/10 + random.IntN(calls-calls/10+1)
		for range min(size, total-len(w.due)) {
			w.due = append(w.due, at)
		}
	}
	slices.Sort(w.due)
	return w
}

// optimal is the least time from the first arrival of a backlog to the last.
func (w workload) optimal() time.Duration {
	full := (len(w.due) + w.calls - 1) / w.calls
	return time.Duration(full-1) * w.window
}

// oracle returns when a greedy scheduler would send the calls that knows the
// limit, and whose calls arrive and are answered in no time.
func (w workload) oracle() []time.Duration {
	sent := slices.Clone(w.due)
	for k := w.calls; k < len(sent); k++ {
		sent[k] = max(sent[k], sent[k-w.calls]+w.window)
	}
	return sent
}

// most is the most arrivals in any window (t−W, t].
func (w workload) most(arrivals []time.Duration) int {
	most, first := 0, 0
	for last, at := range arrivals {
		for at-arrivals[first] >= w.window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// refused is how many arrivals a receiver turns away that keeps a sliding log of
// those it let through.
func (w workload) refused(arrivals []time.Duration) int {
	var through []time.Duration
	for _, at := range arrivals {
		if n := len(through); n < w.calls || at-through[n-w.calls] >= w.window {
			through = append(through, at)
		}
	}
	return len(arrivals) - len(through)
}

// late is how long after the oracle's calls these arrived, the 99th percentile:
// the k-th arrival against the k-th instant of the oracle, for the calls are all alike.
func (w workload) late(arrivals []time.Duration) time.Duration {
	waits := w.oracle()
	for k := range waits {
		waits[k] = max(0, arrivals[k]-waits[k])
	}
	slices.Sort(waits)
	return waits[len(waits)*99/100]
}
