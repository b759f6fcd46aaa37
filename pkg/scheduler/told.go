package scheduler

import (
	"fmt"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A Route is what a call takes of its upstream's limits, and whose share it is of.
type Route struct {
	// Keys has the key for each limit that the call stands under, by its name;
	// an empty one where the limit has one key.
	Keys map[string]string `json:"keys"`
	// Costs has the permits that it takes of a limit, where it is not one.
	Costs map[string]int `json:"costs,omitempty"`
	Flow  string         `json:"flow"`
	// Weighted tells that the configuration names the flow, to give it a weight.
	Weighted bool `json:"weighted,omitempty"`

	compiled *route
}

// Route returns what the call of an EventAccepted or EventRefused takes, nil of
// other events. It may be called when the event is over.
func (e Event) Route() *Route {
	if e.route == nil {
		return nil
	}
	sv := e.route.service
	told := &Route{Keys: make(map[string]string), Flow: e.route.flow}
	_, told.Weighted = sv.Weights[strings.ToLower(told.Flow)]
	for _, n := range e.route.needs {
		l := &sv.limits[n.Limit]
		if n.Limit == 0 {
			continue // the upstream's own
		}
		told.Keys[l.name] = n.Key
		if n.Cost != 1 {
			if told.Costs == nil {
				told.Costs = make(map[string]int)
			}
			told.Costs[l.name] = n.Cost
		}
	}
	return told
}

// compileRoute returns a route as the planner knows it.
func (sv *service) compileRoute(told *Route) (*route, error) {
	r := &route{service: sv, cost: 1, flow: told.Flow, needs: []quota.Need{{Cost: 1}}}
	for i := range sv.limits[1:] {
		l := &sv.limits[i+1]
		key, under := told.Keys[l.name]
		if !under {
			continue
		}
		n := quota.Need{Limit: i + 1, Key: key, Cost: max(1, told.Costs[l.name])}
		if n.Cost > l.capacity() {
			return nil, &Error{Reason: CostTooHigh, Limit: l.name, Detail: fmt.Sprintf("the call costs %d permits of limit %q, which has %d", n.Cost, l.name, l.capacity())}
		}
		r.cost = max(r.cost, n.Cost)
		r.needs = append(r.needs, n)
	}
	r.id = r.name()
	return r, nil
}
