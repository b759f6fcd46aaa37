package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// OneKey is the key of a limit with only one.
const OneKey = "*"

// maxArrivals is the number of different arrivals kept, so that equal rows
// are computed once.
const maxArrivals = 100_000

// A router computes the route of a row's call, under one configuration. Package
// scheduler compiles the expressions; here their sources tell the columns that they need.
type router struct {
	upstreams map[string]*rules
	known     map[string]Arrival // by the rows' ids
}

// rules are the expressions of an upstream.
type rules struct {
	name   string
	router *scheduler.Router
	limits []limitRules
	share  expression
}

type limitRules struct {
	name            string
	index           int // in the router
	router          *scheduler.Router
	when, key, cost expression
}

// An expression is the source of an expression with the fields that it reads.
type expression struct {
	setting, source string
	fields          []field
}

func newExpression(setting, source string) expression {
	return expression{setting, source, fieldsOf(source)}
}

func newRouter(c scheduler.Config) (*router, error) {
	r := &router{upstreams: make(map[string]*rules), known: make(map[string]Arrival)}
	var faults []error
	for name, u := range c.Upstreams {
		compiled, err := scheduler.NewRouter(name, u)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		rs := &rules{name: name, router: compiled, share: newExpression("share_by", u.ShareBy)}
		for i, l := range u.Limits {
			rs.limits = append(rs.limits, limitRules{
				l.Name, i + 1, compiled, newExpression("when", l.When), newExpression("per_key", l.PerKey), newExpression("cost", l.Cost),
			})
		}
		r.upstreams[name] = rs
	}
	return r, errors.Join(faults...)
}

// arrival returns the call of a row.
func (r *router) arrival(in *row) (Arrival, error) {
	if in.known != nil {
		if !in.known.computed {
			a, err := r.compute(in)
			if err != nil {
				return a, err
			}
			*in.known = known{a, true}
		}
		return in.known.arrival, nil
	}
	if a, ok := r.known[string(in.id)]; ok {
		return a, nil
	}
	a, err := r.compute(in)
	if err != nil {
		return a, err
	}
	if len(r.known) >= maxArrivals {
		clear(r.known)
	}
	r.known[string(in.id)] = a
	return a, nil
}

func (r *router) compute(in *row) (a Arrival, err error) {
	rs, err := r.rules(in)
	if err != nil {
		return a, err
	}
	a = Arrival{Upstream: rs.name, Route: &scheduler.Route{Keys: make(map[string]string)}}
	if v := in.text("priority"); v != "" {
		if a.Priority, err = strconv.Atoi(v); err != nil || a.Priority < -scheduler.MaxPriority || a.Priority > scheduler.MaxPriority {
			return a, fmt.Errorf("priority %q is not a whole number from %d to %d", v, -scheduler.MaxPriority, scheduler.MaxPriority)
		}
	}
	if v := in.text("wait"); v != "" {
		if a.MaxWait, err = time.ParseDuration(v); err != nil || a.MaxWait <= 0 {
			return a, fmt.Errorf("wait %q is not a positive duration such as 30s", v)
		}
	}
	if v := in.text("delay"); v != "" {
		if a.Delay, err = time.ParseDuration(v); err != nil || a.Delay < 0 {
			return a, fmt.Errorf("delay %q is not a duration such as 30s", v)
		}
		if a.MaxWait > 0 && a.Delay > a.MaxWait {
			return a, fmt.Errorf("delay is %v, longer than its caller waits (wait is %v)", a.Delay, a.MaxWait)
		}
	}
	request, err := in.request()
	if err != nil {
		return a, err
	}
	for i := range rs.limits {
		if err := rs.limits[i].put(a.Route, in, request); err != nil {
			return a, err
		}
	}
	a.Route.Flow, err = rs.flow(in, request)
	return a, err
}

// rules returns the rules of the row's upstream.
func (r *router) rules(in *row) (*rules, error) {
	name := in.text("upstream")
	names := slices.Sorted(maps.Keys(r.upstreams))
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "":
		return nil, fmt.Errorf("upstream is missing, and the configuration has several: %s", strings.Join(names, ", "))
	case r.upstreams[name] == nil:
		return nil, fmt.Errorf("upstream %q is not in the configuration, which has %s", name, strings.Join(names, ", "))
	}
	return r.upstreams[name], nil
}

// put adds the call's key and cost, if the call is under the limit.
func (l *limitRules) put(to *scheduler.Route, in *row, request *upstream.Input) error {
	key, recorded := in.get("key." + l.name)
	switch {
	case recorded && key.null:
		return nil
	case recorded:
		if to.Keys[l.name] = key.text; key.text == OneKey {
			to.Keys[l.name] = ""
		}
	default:
		under, err := l.evaluate(to, in, request)
		if err != nil || !under {
			return err
		}
	}
	return l.putCost(to, in, request, recorded)
}

// evaluate adds the call's key, and returns false if the call is not under the limit.
func (l *limitRules) evaluate(to *scheduler.Route, in *row, request *upstream.Input) (bool, error) {
	for _, e := range []expression{l.when, l.key} {
		if err := l.lacking(e, in); err != nil {
			return false, err
		}
	}
	under, err := l.router.Covers(l.index, request)
	if err == nil && under {
		to.Keys[l.name], err = l.router.Key(l.index, request)
	}
	return under, l.fault(err)
}

func (l *limitRules) putCost(to *scheduler.Route, in *row, request *upstream.Input, recorded bool) error {
	cost, err := 1, error(nil)
	if v, ok := in.get("cost." + l.name); ok && !v.null {
		if cost, err = strconv.Atoi(v.text); err != nil || cost < 1 {
			return fmt.Errorf("cost.%s %q is not a whole number above 0", l.name, v.text)
		}
	} else if !recorded {
		if err := l.lacking(l.cost, in); err != nil {
			return err
		}
		if cost, err = l.router.Cost(l.index, request); err != nil {
			return l.fault(err)
		}
	}
	if cost != 1 {
		if to.Costs == nil {
			to.Costs = make(map[string]int)
		}
		to.Costs[l.name] = cost
	}
	return nil
}

func (l *limitRules) fault(err error) error {
	if err != nil {
		err = fmt.Errorf("limit %q: %w", l.name, err)
	}
	return err
}

// lacking says which field of an expression the row has not.
func (l *limitRules) lacking(e expression, in *row) error {
	if f := e.lacks(in); f != "" {
		return fmt.Errorf("%s is missing: limit %q reads it (%s: %s); or give key.%s, what the expressions come to", f, l.name, e.setting, e.source, l.name)
	}
	return nil
}

func (e expression) lacks(in *row) string {
	for _, f := range e.fields {
		if !f.in(in.columns) {
			return f.name
		}
	}
	return ""
}

// flow returns the call's flow.
func (rs *rules) flow(in *row, request *upstream.Input) (string, error) {
	if rs.share.source == "" {
		return "", nil
	}
	if v, ok := in.get("flow"); ok {
		return v.text, nil
	}
	if f := rs.share.lacks(in); f != "" {
		return "", fmt.Errorf("%s is missing: share_by of upstream %q reads it (%s); or give flow, its value", f, rs.name, rs.share.source)
	}
	flow, err := rs.router.Flow(request)
	if err != nil {
		err = fmt.Errorf("share_by: %w", err)
	}
	return flow, err
}

// request returns a request with the row's fields.
func (r *row) request() (*upstream.Input, error) {
	query, form, body := url.Values{}, url.Values{}, map[string]any{}
	req := &upstream.Request{Method: http.MethodPost, Target: "/", Header: http.Header{}}
	for i, name := range r.columns.names {
		v := r.values[i]
		if v.null {
			continue
		}
		group, rest, _ := strings.Cut(name, ".")
		switch group {
		case "method":
			req.Method = v.text
		case "path":
			req.Target = v.text
		case "query":
			query.Set(rest, v.text)
		case "form":
			form.Set(rest, v.text)
		case "param":
			query.Set(rest, v.text)
			form.Set(rest, v.text)
		case "header":
			req.Header.Set(rest, v.text)
		case "json":
			if err := nest(body, rest, json.RawMessage(v.json)); err != nil {
				return nil, err
			}
		}
	}
	if len(query) > 0 {
		req.Target += "?" + query.Encode()
	}
	if len(body) > 0 {
		req.Body, _ = json.Marshal(body) // consists of valid JSON
	} else if len(form) > 0 {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Body = []byte(form.Encode())
	}
	return upstream.NewInput(req), nil
}

// nest puts a value into an object, at a path of names separated by dots.
func nest(object map[string]any, path string, v json.RawMessage) error {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		object[name] = v
		return nil
	}
	if object[name] == nil {
		object[name] = map[string]any{}
	}
	inner, ok := object[name].(map[string]any)
	if !ok {
		return fmt.Errorf("json.%s lies in a value that is given as well", path)
	}
	return nest(inner, rest, v)
}
