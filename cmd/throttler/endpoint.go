package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// An endpoint is a listener as the configuration names it: for the clients of an upstream, or
// for the notifications of its platform.
type endpoint struct {
	upstream      string
	notifications bool
}

// endpoints returns the endpoints of a configuration, ordered by upstream.
func endpoints(cfg *config.Config) (all []endpoint) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Listeners)) {
		all = append(all, endpoint{name, false})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Notifications)) {
		all = append(all, endpoint{name, true})
	}
	slices.SortStableFunc(all, func(a, b endpoint) int { return cmp.Compare(a.upstream, b.upstream) })
	return all
}

// key returns the path of the address in the configuration.
func (d endpoint) key() string {
	if d.notifications {
		return "upstreams." + d.upstream + ".notifications.listen"
	}
	return "upstreams." + d.upstream + ".listen"
}

// addr returns the address in a configuration, empty if that has no such endpoint.
func (d endpoint) addr(cfg *config.Config) string {
	if !d.notifications {
		return cfg.Listeners[d.upstream].Listen
	}
	if n := cfg.Notifications[d.upstream]; n != nil {
		return n.Listen
	}
	return ""
}
