package scheduler

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A route is what a call takes on its way: permits of limits, and a flow's share.
// It is computed by whoever submits the call, not by the loop.
type route struct {
	service *service // whose limits the needs name
	id      string   // equal for calls that take the same
	needs   []quota.Need
	cost    int // in the flow's share: the most that it needs of one limit
	flow    string
}

// route returns that of a call, or why it has none.
func (sv *service) route(in *upstream.Input) (*route, *Error) {
	return sv.routeBy(in, func(e *Error) *Error { return e })
}

// reroute returns that of a call which was accepted under another configuration.
// What would refuse it now does not: a key that is missing is the empty one, a
// cost above the limit all of it.
func (sv *service) reroute(in *upstream.Input) *route {
	r, _ := sv.routeBy(in, func(*Error) *Error { return nil })
	return r
}

// routeBy asks whether what is wrong with a call refuses it.
func (sv *service) routeBy(in *upstream.Input, refuse func(*Error) *Error) (*route, *Error) {
	r := &route{service: sv, cost: 1}
	bad := func(reason Reason, limit, format string, args ...any) *Error {
		return refuse(&Error{Reason: reason, Limit: limit, Detail: fmt.Sprintf(format, args...)})
	}
	for i := range sv.limits {
		l := &sv.limits[i]
		if under, err := l.covers(in); err != nil {
			if e := bad(BadKey, l.Name, "limit %q: when: %v", l.Name, err); e != nil {
				return nil, e
			}
		} else if !under {
			continue
		}
		n := quota.Need{Limit: i, Cost: 1}
		var err error
		if l.key != nil {
			if n.Key, err = l.key.Key(in); err != nil {
				if e := bad(BadKey, l.Name, "limit %q: per_key: %v", l.Name, err); e != nil {
					return nil, e
				}
			}
		}
		if l.price != nil {
			if n.Cost, err = l.price.Cost(in); err != nil {
				if e := bad(BadKey, l.Name, "limit %q: cost: %v", l.Name, err); e != nil {
					return nil, e
				}
				n.Cost = 1
			}
			if n.Cost > l.capacity() {
				if e := bad(CostTooHigh, l.Name, "the call costs %d permits of limit %q, which has %d", n.Cost, l.Name, l.capacity()); e != nil {
					return nil, e
				}
				n.Cost = l.capacity()
			}
		}
		r.cost = max(r.cost, n.Cost)
		r.needs = append(r.needs, n)
	}
	if sv.shareBy != nil {
		var err error
		if r.flow, err = sv.shareBy.Key(in); err != nil {
			if e := bad(BadKey, "", "share_by: %v", err); e != nil {
				return nil, e
			}
		}
		r.flow = sv.flowNamed(r.flow)
	}
	r.needs = slices.Clip(r.needs)
	r.id = r.name()
	return r, nil
}

// name returns a text that is equal for routes that are.
func (r *route) name() string {
	b := strconv.AppendQuote(make([]byte, 0, 64), r.flow)
	for _, n := range r.needs {
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(n.Limit), 10)
		b = append(b, '*')
		b = strconv.AppendInt(b, int64(n.Cost), 10)
		b = strconv.AppendQuote(b, n.Key)
	}
	return string(b)
}

// covers tells whether a call stands under the limit.
func (l *limit) covers(in *upstream.Input) (bool, error) {
	if l.when == nil {
		return true, nil
	}
	return l.when.Bool(in)
}

// counted tells whether an attempt that came to the outcome uses its permit up.
func (l *limit) counted(o upstream.Outcome) bool {
	return len(l.Counts) == 0 || o == upstream.Unknown || slices.Contains(l.Counts, o)
}

// reroute makes sure that a call's route is one of the planner's configuration.
func (l *loop) reroute(p *planner, c *call) {
	if c.route.service != p.service {
		c.route = p.reroute(upstream.NewInput(c.request))
	}
}
