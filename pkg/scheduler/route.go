package scheduler

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The one compiler of demands: from a request to the permits and the flow that its call
// takes. It runs on the goroutine of the caller, not in the loop.

// demand returns the demand of a call, or why the call is refused.
func (sv *service) demand(in *upstream.Input, query bool) (*planner.Demand, *Error) {
	return sv.demandIf(in, query, func(e *Error) *Error { return e })
}

// redemand returns the demand of a call that was accepted under another configuration,
// and is not refused any more: a key that is missing is the empty one, a cost above the
// limit all of it.
func (sv *service) redemand(in *upstream.Input, query bool) *planner.Demand {
	d, _ := sv.demandIf(in, query, func(*Error) *Error { return nil })
	return d
}

// demandIf asks for each fault of a call whether it refuses the call. A query is one that
// a resolver has made.
func (sv *service) demandIf(in *upstream.Input, query bool, refuse func(*Error) *Error) (*planner.Demand, *Error) {
	needs := make([]quota.Need, 0, len(sv.limits))
	for i := range sv.limits {
		n, under, fault := sv.limits[i].need(i, in, refuse)
		if fault != nil {
			return nil, fault
		}
		if under {
			needs = append(needs, n)
		}
	}
	if err := sv.up.Certified(in); err != nil {
		if e := refuse(&Error{Reason: BadKey, Detail: err.Error()}); e != nil {
			return nil, e
		}
	}
	flow, err := sv.flow(in)
	if err != nil {
		if e := refuse(&Error{Reason: BadKey, Detail: fmt.Sprintf("share_by: %v", err)}); e != nil {
			return nil, e
		}
	}
	return planner.NewDemand(flow, needs, query || sv.up.Repeatable(in)), nil
}

// need returns the permits that a call takes of the limit; false if it is not under it.
func (l *limit) need(index int, in *upstream.Input, refuse func(*Error) *Error) (n quota.Need, under bool, refused *Error) {
	n = quota.Need{Limit: index}
	bad := func(part string, err error) *Error {
		return refuse(&Error{Reason: BadKey, Limit: l.Name, Detail: fmt.Sprintf("limit %q: %s: %v", l.Name, part, err)})
	}
	if under, err := l.covers(in); err != nil {
		if e := bad("when", err); e != nil {
			return n, false, e
		}
	} else if !under {
		return n, false, nil
	}
	var err error
	if n.Key, err = l.keyOf(in); err != nil {
		if e := bad("per_key", err); e != nil {
			return n, false, e
		}
	}
	if n.Cost, err = l.costOf(in); err != nil {
		if e := bad("cost", err); e != nil {
			return n, false, e
		}
		n.Cost = 1
	}
	if n.Cost > l.capacity() {
		if e := refuse(l.tooDear(n.Cost)); e != nil {
			return n, false, e
		}
		n.Cost = l.capacity()
	}
	return n, true, nil
}

func (l *limit) tooDear(cost int) *Error {
	return &Error{Reason: CostTooHigh, Limit: l.Name, Detail: fmt.Sprintf("the call costs %d permits of limit %q, which has %d", cost, l.Name, l.capacity())}
}

// covers reports whether a call is under the limit.
func (l *limit) covers(in *upstream.Input) (bool, error) {
	if l.when == nil {
		return true, nil
	}
	return l.when.Bool(in)
}

// keyOf returns the key of a call; empty where the limit has one key.
func (l *limit) keyOf(in *upstream.Input) (string, error) {
	if l.perKey == nil {
		return "", nil
	}
	return l.perKey.Key(in)
}

// costOf returns the permits that a call takes.
func (l *limit) costOf(in *upstream.Input) (int, error) {
	if l.cost == nil {
		return 1, nil
	}
	return l.cost.Cost(in)
}

// flow returns the flow of a call; empty where all calls are one flow.
func (sv *service) flow(in *upstream.Input) (string, error) {
	if sv.shareBy == nil {
		return "", nil
	}
	value, err := sv.shareBy.Key(in)
	return sv.flowNamed(value), err
}

// limitNamed returns the index of a limit, -1 if there is none.
func (sv *service) limitNamed(name string) int {
	return slices.IndexFunc(sv.limits, func(l limit) bool { return l.Name == name })
}

// pausable returns the index of the limit that a pause names, -1 if there is none. A
// pause of the upstream is one of the first limit, which counts all calls.
func (sv *service) pausable(limit string) int {
	if limit == "" {
		return 0
	}
	return sv.limitNamed(limit)
}

func (sv *service) limitNames() string {
	var names []string
	for _, l := range sv.limits {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}

// flowNamed returns the flow of a value of share_by: one that has a weight is the
// same in any case, since the names of weights are; others are as they are written.
func (sv *service) flowNamed(value string) string {
	if small := strings.ToLower(value); sv.weighs(small) {
		return small
	}
	return value
}

// weighs reports whether the configuration names the flow, to give it a weight.
func (sv *service) weighs(flow string) bool {
	_, ok := sv.Weights[flow]
	return ok
}

func (sv *service) weight(flow string) float64 {
	if sv.weighs(flow) {
		return sv.Weights[flow]
	}
	return 1
}

// class returns a number that is equal for calls of one flow with equal demands, in each
// process: it depends on the names of limits, not on their order.
func (sv *service) class(d *planner.Demand) int64 {
	h := fnv.New64a()
	io.WriteString(h, strconv.Quote(d.Flow))
	for _, n := range d.Needs {
		fmt.Fprintf(h, " %s*%d%q", sv.limits[n.Limit].Name, n.Cost, n.Key)
	}
	return int64(h.Sum64())
}

// permits returns the permits of a demand, by the names of the limits.
func (sv *service) permits(d *planner.Demand) []Permit {
	all := make([]Permit, 0, len(d.Needs))
	for _, n := range d.Needs {
		if n.Limit != 0 { // the upstream's own, which each call takes
			all = append(all, Permit{Limit: sv.limits[n.Limit].Name, Key: n.Key, Cost: n.Cost})
		}
	}
	return all
}

// A Route is the limits and the flow of a call, by their names: a demand that is
// independent of one configuration.
type Route struct {
	// Keys has the key for each limit that the call stands under, by its name;
	// an empty one where the limit has one key.
	Keys map[string]string
	// Costs has the permits that it takes of a limit, where it is not one.
	Costs map[string]int
	Flow  string
	// Weighted tells that the configuration names the flow, to give it a weight.
	Weighted bool
}

// routeOf returns the route of a demand.
func (sv *service) routeOf(d *planner.Demand) *Route {
	r := &Route{}
	sv.fill(r, d)
	return r
}

// fill makes a route that of a demand. Its maps are used again.
func (sv *service) fill(r *Route, d *planner.Demand) {
	r.Flow, r.Weighted = d.Flow, sv.weighs(d.Flow)
	if r.Keys == nil {
		r.Keys = make(map[string]string)
	}
	clear(r.Keys)
	clear(r.Costs)
	for _, n := range d.Needs {
		if n.Limit == 0 {
			continue // the upstream's own
		}
		l := &sv.limits[n.Limit]
		r.Keys[l.Name] = n.Key
		if n.Cost != 1 {
			if r.Costs == nil {
				r.Costs = make(map[string]int)
			}
			r.Costs[l.Name] = n.Cost
		}
	}
}

// A Router tells the demands of the calls of one upstream, and the limits that a planner
// needs for them. It sends nothing: it is for tools that play loads.
type Router struct{ sv *service }

// NewRouter compiles an upstream. The error joins all faults.
func NewRouter(name string, u Upstream) (*Router, error) {
	services, err := compile(Config{Upstreams: map[string]Upstream{name: u}}, 0)
	if err != nil {
		return nil, err
	}
	return &Router{services[name]}, nil
}

// Upstream returns the configuration, defaults filled in.
func (r *Router) Upstream() Upstream { return r.sv.Upstream }

// Limits returns the limits of a ledger for it; the first is the concurrency.
func (r *Router) Limits() []quota.Limit { return r.sv.quotas() }

// Weight returns the weight of a flow.
func (r *Router) Weight(flow string) float64 { return r.sv.weight(flow) }

// Covers reports whether a call is under a limit, by its index in Limits.
func (r *Router) Covers(limit int, in *upstream.Input) (bool, error) {
	return r.sv.limits[limit].covers(in)
}

// Key returns the key of a call under a limit; empty where the limit has one key.
func (r *Router) Key(limit int, in *upstream.Input) (string, error) {
	return r.sv.limits[limit].keyOf(in)
}

// Cost returns the permits of a limit that a call takes.
func (r *Router) Cost(limit int, in *upstream.Input) (int, error) {
	return r.sv.limits[limit].costOf(in)
}

// Flow returns the flow of a call; empty where all calls are one flow.
func (r *Router) Flow(in *upstream.Input) (string, error) { return r.sv.flow(in) }

// A Description is how a call of a request would be treated.
type Description struct {
	Permits    []Permit // that each attempt takes, but for the upstream's own concurrency
	Flow       string   // empty where all calls are one flow
	Numbers    map[string]string
	Identity   string // empty for none
	Repeatable bool   // the upstream itself recognises a repeat
}

// Describe tells how a call of a request would be treated. The error is an [*Error] that says why
// it would be refused.
func (r *Router) Describe(request *upstream.Request) (*Description, error) {
	sv, in := r.sv, upstream.NewInput(request)
	if refused := checkRequest(sv, &Request{Upstream: sv.Name, Body: request.Body}, request); refused != nil {
		return nil, refused
	}
	demand, refused := sv.demand(in, false)
	if refused != nil {
		return nil, refused
	}
	c := &call{Call: &Call{}}
	if refused := identify(sv, c, in); refused != nil {
		return nil, refused
	}
	_, identity, _ := strings.Cut(c.identities.identity(), "\x00")
	d := &Description{
		Flow: demand.Flow, Numbers: c.Numbers, Identity: identity,
		Repeatable: sv.up.Repeatable(in),
	}
	for _, n := range demand.Needs {
		if n.Limit > 0 {
			d.Permits = append(d.Permits, Permit{Limit: sv.limits[n.Limit].Name, Key: n.Key, Cost: n.Cost})
		}
	}
	return d, nil
}

// Demand returns the demand of a route. The error is an [*Error]: CostTooHigh.
func (r *Router) Demand(route *Route) (*planner.Demand, error) {
	needs := []quota.Need{{Cost: 1}}
	for i := range r.sv.limits[1:] {
		l := &r.sv.limits[i+1]
		key, under := route.Keys[l.Name]
		if !under {
			continue
		}
		n := quota.Need{Limit: i + 1, Key: key, Cost: max(1, route.Costs[l.Name])}
		if n.Cost > l.capacity() {
			return nil, l.tooDear(n.Cost)
		}
		needs = append(needs, n)
	}
	return planner.NewDemand(r.sv.flowNamed(route.Flow), needs, false), nil
}
