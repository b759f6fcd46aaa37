package scheduler

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// attemptTimes are the longest time-outs of attempts that may go on, by upstream, of this owner and those before it. A leased
// store keeps them for the next owner, whose configuration may be another one. They are guarded by Scheduler.reloading.
type attemptTimes struct {
	in     Leased // nil for a store that has one process
	stored map[string]time.Duration
}

// timeoutsOf returns the time-outs of upstreams.
func timeoutsOf(services map[string]*service) map[string]time.Duration {
	all := make(map[string]time.Duration)
	for name, sv := range services {
		all[name] = sv.up.Timeout
	}
	return all
}

// extend stores the time-outs of upstreams, before an attempt goes by them. Longer ones that are stored stay.
func (a *attemptTimes) extend(ctx context.Context, next map[string]*service) error {
	all := timeoutsOf(next)
	for name, timeout := range a.stored {
		all[name] = max(all[name], timeout)
	}
	return a.store(ctx, all)
}

func (a *attemptTimes) store(ctx context.Context, all map[string]time.Duration) error {
	if a.in == nil || maps.Equal(all, a.stored) {
		return nil
	}
	if err := a.in.Timeouts(ctx, all); err != nil {
		return fmt.Errorf("throttler: the time-outs of attempts could not be stored: %w", err)
	}
	a.stored = all
	return nil
}

// longest returns the longest of the stored time-outs.
func (a *attemptTimes) longest() (longest time.Duration) {
	for _, timeout := range a.stored {
		longest = max(longest, timeout)
	}
	return longest
}

// shorten stores the time-outs in force whenever all attempts have ended that began by longer ones: of owners before this
// one, or before a reload. It ends with ctx.
func (a *attemptTimes) shorten(ctx context.Context, s *Scheduler) {
	for {
		s.reloading.Lock()
		longest, generation := a.longest(), s.generation
		s.reloading.Unlock()
		select {
		case <-time.After(max(longest, time.Second)):
		case <-ctx.Done():
			return
		}
		s.reloading.Lock()
		if s.generation == generation && ctx.Err() == nil {
			if err := a.store(ctx, timeoutsOf(*s.services.Load())); err != nil {
				s.log.Warn("the next owner may hold back for longer than it need", "err", err) // until a later try
			}
		}
		s.reloading.Unlock()
	}
}
