package main

import (
	"context"
	"os/exec"
	"slices"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// A limiter is one row of a table.
type limiter struct {
	name string
	// shape groups limiters that do not disturb each other: those of one shape run at
	// the same time, with shifted phases.
	shape shape
	// open puts the limiter in front of a receiver.
	open func(w workload, receiver string) (driver, error)
}

type shape int

const (
	proxied shape = iota // ours, a proxy
	held                 // the reference for ours
	packed               // calls are sent as early as possible
	smooth               // calls are sent at even distances
)

// Names of the limiters that the verdict compares.
const (
	ours = "throttler"
	bare = "bare hold ledger"
)

// limiters returns the limiters that this machine has, and a line for each other one.
func limiters(binary string) (all []limiter, missing []string) {
	all = []limiter{
		{ours, proxied, func(w workload, receiver string) (driver, error) { return openThrottler(binary, w, receiver) }},
		{bare, held, local(func(w workload) gate { return newHold(w) })},
		{"x/time/rate burst=N", packed, local(func(w workload) gate { return tokens(w, w.calls) })},
		{"failsafe-go bursty", packed, local(func(w workload) gate {
			return permits(ratelimiter.NewBursty[any](uint(w.calls), w.window))
		})},
		{"redis_rate", packed, program("redis-server", openRedis)},
		{"x/time/rate burst=1", smooth, local(func(w workload) gate { return tokens(w, 1) })},
		{"uber/ratelimit, no slack", smooth, local(leaky)},
		{"failsafe-go smooth", smooth, local(func(w workload) gate {
			return permits(ratelimiter.NewSmooth[any](uint(w.calls), w.window))
		})},
		{"nginx limit_req", smooth, program("nginx", openNginx)},
	}
	all = slices.DeleteFunc(all, func(l limiter) bool {
		if l.open == nil {
			missing = append(missing, l.name+" is left out: its server is not on PATH")
		}
		return l.open == nil
	})
	return all, missing
}

// groups returns the limiters in groups that run at the same time.
func (w workload) groups(all []limiter) (groups [][]limiter) {
	for i, l := range all {
		if i > 0 && (!w.dense || l.shape == all[i-1].shape) {
			last := &groups[len(groups)-1]
			*last = append(*last, l)
			continue
		}
		groups = append(groups, []limiter{l})
	}
	return groups
}

// program returns a function that opens a limiter with a program on PATH; nil if
// there is no such program.
func program(name string, open func(path string, w workload, receiver string) (driver, error)) func(workload, string) (driver, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	return func(w workload, receiver string) (driver, error) { return open(path, w, receiver) }
}

// local returns a function that opens a limiter of this process.
func local(make func(workload) gate) func(workload, string) (driver, error) {
	return func(w workload, receiver string) (driver, error) {
		return &inProcess{make(w), newClient(receiver)}, nil
	}
}

func tokens(w workload, burst int) gate {
	l := rate.NewLimiter(rate.Limit(float64(w.calls)/w.window.Seconds()), burst)
	return waiter(func() error { return l.Wait(context.Background()) })
}

func leaky(w workload) gate {
	l := ratelimit.New(w.calls, ratelimit.Per(w.window), ratelimit.WithoutSlack)
	return waiter(func() error { l.Take(); return nil })
}

func permits(l ratelimiter.RateLimiter[any]) gate {
	return waiter(func() error { return l.AcquirePermit(context.Background()) })
}
