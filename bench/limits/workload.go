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
	dense   bool            // all limiters at the same time would be too much for one machine
}

// workloads returns the workloads of the tables.
func workloads() []workload {
	return []workload{
		backlog(100, time.Second, false),
		backlog(50, 200*time.Millisecond, true),
		backlog(1000, time.Second, true),
		bursty(100, time.Second),
	}
}

// backlog returns ten windows of calls, all due at once.
func backlog(calls int, window time.Duration, dense bool) workload {
	return workload{
		name:  fmt.Sprintf("backlog %d per %v", calls, window),
		calls: calls, window: window, dense: dense, backlog: true,
		due: make([]time.Duration, 10*calls),
	}
}

// bursty returns an open loop of ten windows at 80% of the quota: bursts of N/10
// to N calls that are due at once, at random instants. It is the same in every
// run.
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

// optimal returns the least time from the first arrival of a backlog to the last.
func (w workload) optimal() time.Duration {
	full := (len(w.due) + w.calls - 1) / w.calls
	return time.Duration(full-1) * w.window
}

// oracle returns the instants at which a greedy scheduler sends the calls: it
// knows the limit, and its calls arrive and are answered in no time.
func (w workload) oracle() []time.Duration {
	sent := slices.Clone(w.due)
	for k := w.calls; k < len(sent); k++ {
		sent[k] = max(sent[k], sent[k-w.calls]+w.window)
	}
	return sent
}

// most returns the greatest number of arrivals in any window (t−W, t].
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

// refused returns the number of refusals of a receiver that keeps a sliding log of
// admitted calls.
func (w workload) refused(arrivals []time.Duration) int {
	var admitted []time.Duration
	for _, at := range arrivals {
		if n := len(admitted); n < w.calls || at-admitted[n-w.calls] >= w.window {
			admitted = append(admitted, at)
		}
	}
	return len(arrivals) - len(admitted)
}

// late returns the 99th percentile of the arrivals' lateness: that of the k-th arrival
// after the k-th instant of the oracle, since all calls are alike.
func (w workload) late(arrivals []time.Duration) time.Duration {
	waits := w.oracle()
	for k := range waits {
		waits[k] = max(0, arrivals[k]-waits[k])
	}
	slices.Sort(waits)
	return waits[len(waits)*99/100]
}
