package preview

import (
	"errors"
	"maps"
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// maxDemands is the number of routes of an upstream whose demands are kept.
const maxDemands = 100_000

// A router computes the demand of each route of an upstream once.
type router struct {
	*scheduler.Router
	name   string
	limits []quota.Limit // the first is the upstream's concurrency
	known  map[*scheduler.Route]*demand
}

// A demand is the permits that a call takes, and its flow.
type demand struct {
	*planner.Demand
	// counted are the permits that the upstream counts. It knows nothing of the
	// concurrency that we keep, and every call of a preview is done.
	counted []quota.Need
	tallied bool // the collector knows the keys
}

// newRouters compiles the upstreams of a configuration, sorted by name. The error joins
// all faults.
func newRouters(c scheduler.Config) (routers []*router, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		compiled, fault := scheduler.NewRouter(name, c.Upstreams[name])
		if fault != nil {
			err = errors.Join(err, fault)
			continue
		}
		routers = append(routers, &router{
			Router: compiled, name: name, limits: compiled.Limits(), known: make(map[*scheduler.Route]*demand),
		})
	}
	return routers, err
}

// demand returns the demand of a route. The error is a [*scheduler.Error].
func (r *router) demand(route *scheduler.Route) (*demand, error) {
	if d := r.known[route]; d != nil {
		return d, nil
	}
	taken, err := r.Demand(route)
	if err != nil {
		return nil, err
	}
	d := &demand{Demand: taken}
	for _, n := range taken.Needs[1:] {
		if !r.limits[n.Limit].Partly {
			d.counted = append(d.counted, n)
		}
	}
	if len(r.known) >= maxDemands {
		clear(r.known)
	}
	r.known[route] = d
	return d, nil
}
