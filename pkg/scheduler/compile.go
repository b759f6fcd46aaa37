package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A service is an upstream, compiled. It does not change.
type service struct {
	Upstream
	generation uint32 // of the configuration; demands of another one are computed anew
	up         *upstream.Upstream
	shareBy    *upstream.Expr
	durable    condition
	noBody     condition
	numbers    []number
	identity   *upstream.Expr // nil for none
	ends, asks *upstream.Expr // likewise
	limits     []limit        // the first is the concurrency of all calls

	resolvers []*resolver
	webhook   *webhookService // nil for an API

	usage *usage // of max_waiting and max_waiting_bytes; passed on by a reload
}

// A condition is a request expression that may be absent.
type condition struct{ *upstream.Expr }

// holds evaluates the condition; one that fails on a request holds if unclear.
func (c condition) holds(in *upstream.Input, unclear bool) bool {
	if c.Expr == nil {
		return false
	}
	ok, err := c.Bool(in)
	return ok || err != nil && unclear
}

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func compile(c Config, generation uint32) (map[string]*service, error) {
	var errs []error
	if len(c.Upstreams) == 0 {
		errs = append(errs, &ConfigError{"upstreams", errors.New("is empty; give at least one, as in upstreams: {NAME: {url: https://api.example.com}}")})
	}
	if c.Ended != nil && newJournal(c.Store, c.Log).outbox() == nil {
		errs = append(errs, &ConfigError{"ended", errors.New("needs a store that keeps the ends of calls: one of NewMemory, or a Durable")})
	}
	services := make(map[string]*service)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		path := "upstreams." + name
		if !nameRule.MatchString(name) {
			errs = append(errs, &ConfigError{path, fmt.Errorf("name %q must be lower-case letters, digits, - and _, at most 63", name)})
		}
		fault := func(field string, err error) { errs = append(errs, &ConfigError{path + "." + field, err}) }
		services[name] = compileUpstream(name, c.Upstreams[name], generation, fault)
		compileCallbacks(services, name, c.Upstreams[name].Callbacks, c.Upstreams[name].MaxPause, generation, fault)
	}
	return services, errors.Join(errs...)
}

func compileUpstream(name string, u Upstream, generation uint32, fault func(field string, err error)) *service {
	u.Name = name
	setDefaults(&u, fault)
	u.Charges = charges(u.Limits)
	sv := &service{Upstream: u, generation: generation, usage: new(usage)}
	var err error
	sv.up, err = upstream.New(u.Config)
	faultFields(err, "", fault)
	compileExpr(u.ShareBy, upstream.Key, &sv.shareBy, "share_by", fault)
	compileExpr(u.Durable, upstream.Condition, &sv.durable.Expr, "durable", fault)
	compileExpr(u.NoBody, upstream.Condition, &sv.noBody.Expr, "no_body", fault)
	compileIdentities(sv, fault)
	sv.Weights = compileWeights(u, fault)
	checkRetry(u.Retry, fault)
	if u.Signature.Life < 0 {
		fault("signature.life", fmt.Errorf("is %v, must be positive", u.Signature.Life))
	}
	switch {
	case u.Burst < 0:
		fault("spacing.burst", fmt.Errorf("is %d, must be at least 1", u.Burst))
	case u.Burst > 0 && !slices.ContainsFunc(u.Limits, Limit.spaced):
		fault("spacing", errors.New("works inside sliding windows that count every outcome, and no limit has one"))
	}
	sv.limits = []limit{{Limit: Limit{Name: ConcurrencyLimit, Concurrency: u.Concurrency}}}
	faultLimit(sv.limits[0].quota(sv).Check(), func(field string, err error) {
		if field == "calls" {
			field = ConcurrencyLimit
		}
		fault(field, err)
	})
	for i, l := range u.Limits {
		sv.limits = append(sv.limits, sv.compileLimit(l, func(field string, err error) {
			fault(fmt.Sprintf("limits[%d].%s", i, field), err)
		}))
	}
	for i, r := range u.Resolve {
		name := fmt.Sprintf("resolve[%d]", i)
		sv.resolvers = append(sv.resolvers, compileResolve(name, r, func(field string, err error) { fault(name+"."+field, err) }))
	}
	for i, r := range u.Outcomes {
		if r.Pause != nil && r.Pause.Limit != "" && sv.limitNamed(r.Pause.Limit) < 0 {
			fault(fmt.Sprintf("outcomes[%d].pause.limit", i), fmt.Errorf("limit %q is not one of this upstream's: %s", r.Pause.Limit, sv.limitNames()))
		}
	}
	return sv
}

// setDefaults fills in zero fields and faults negative ones.
func setDefaults(u *Upstream, fault func(field string, err error)) {
	d := Defaults()
	zeroTo(&u.Late, d.Late)
	positive("max_wait", &u.MaxWait, d.MaxWait, fault)
	positive("client_timeout", &u.ClientTimeout, d.ClientTimeout, fault)
	positive("max_age", &u.MaxAge, d.MaxAge, fault)
	zeroTo(&u.Concurrency, d.Concurrency)
	positive("max_waiting", &u.MaxWaiting, d.MaxWaiting, fault)
	atMost("max_waiting", int64(u.MaxWaiting), quota.MaxCalls, fault)
	positive("max_waiting_bytes", &u.MaxWaitingBytes, d.MaxWaitingBytes, fault)
	atMost("max_waiting_bytes", u.MaxWaitingBytes, mostBytes, fault)
	positive("max_body", &u.MaxBody, d.MaxBody, fault)
	atMost("max_body", u.MaxBody, mostBytes, fault)
	setBreaker(&u.Breaker, d.Breaker, fault)
	if u.MaxIdle == 0 {
		u.MaxIdle = u.Concurrency
	}
}

// mostBytes bounds max_body and max_waiting_bytes: more is no memory of one machine.
const mostBytes = 1 << 40

// atMost faults a value above its bound.
func atMost(field string, value, most int64, fault func(field string, err error)) {
	if value > most {
		fault(field, fmt.Errorf("is %d, must be at most %d", value, most))
	}
}

// maxOf bounds the outcomes that a breaker counts.
const maxOf = 1000

// setBreaker fills in zero fields and faults impossible ones.
func setBreaker(t *retry.Trip, d retry.Trip, fault func(field string, err error)) {
	if t.Unknown < 0 {
		*t = retry.Trip{}
		return
	}
	zeroTo(&t.Unknown, d.Unknown)
	zeroTo(&t.Of, max(d.Of, t.Unknown))
	switch {
	case t.Of < t.Unknown || t.Of > maxOf:
		fault("breaker.of", fmt.Errorf("is %d, must be from unknown (%d) to %d", t.Of, t.Unknown, maxOf))
	case t.Silent < 0:
		fault("breaker.silent", fmt.Errorf("is %v, must not be negative", t.Silent))
	}
}

// positive sets a zero to its default and faults a negative value.
func positive[T int | int64 | time.Duration](field string, value *T, zero T, fault func(string, error)) {
	zeroTo(value, zero)
	if *value < 0 {
		fault(field, fmt.Errorf("is %v, must be positive", *value))
	}
}

// zeroTo sets a zero to its default.
func zeroTo[T int | int64 | time.Duration](value *T, zero T) {
	if *value == 0 {
		*value = zero
	}
}

// compileExpr compiles an expression that may be absent.
func compileExpr(source string, kind upstream.Kind, to **upstream.Expr, field string, fault func(string, error)) {
	if source == "" {
		return
	}
	var err error
	if *to, err = upstream.Compile(source, kind); err != nil {
		fault(field, err)
	}
}

// compileWeights returns the weights by flow in lower case.
func compileWeights(u Upstream, fault func(string, error)) map[string]float64 {
	weights := make(map[string]float64, len(u.Weights))
	for _, flow := range slices.Sorted(maps.Keys(u.Weights)) {
		small := strings.ToLower(flow)
		if _, twice := weights[small]; twice {
			fault("weights."+flow, errors.New("is given twice: flows with a weight are the same in any case"))
		}
		weights[small] = u.Weights[flow]
		if w := u.Weights[flow]; !(w > 0) || w > 1e6 {
			fault("weights."+flow, fmt.Errorf("is %v, must be above 0 and at most 1000000", w))
		}
	}
	if len(u.Weights) > 0 && u.ShareBy == "" {
		fault("weights", errors.New("need share_by, which tells the flows apart, such as header(\"X-Tenant\")"))
	}
	return weights
}

func checkRetry(p retry.Policy, fault func(string, error)) {
	if p.Attempts < 0 {
		fault("retry.attempts", fmt.Errorf("is %d, must be at least 1", p.Attempts))
	}
	checkCurve("retry", p.Curve, fault)
	if p.Limited != nil {
		checkCurve("retry.limited", *p.Limited, fault)
	}
	if !(p.Share >= 0) || p.Share > 1 {
		fault("retry.budget", fmt.Errorf("is %v, must be above 0 and at most 1: repeats per first sending", p.Share))
	}
}

func checkCurve(path string, c retry.Curve, fault func(string, error)) {
	if c.Min < 0 {
		fault(path+".min", fmt.Errorf("is %v, must be positive", c.Min))
	}
	if c.Max < 0 || c.Max > 0 && c.Max < c.Min {
		fault(path+".max", fmt.Errorf("is %v, must be positive and at least min (%v)", c.Max, c.Min))
	}
}

// faultFields passes on the faults that package upstream joined.
func faultFields(err error, prefix string, fault func(string, error)) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		var f *upstream.FieldError
		if errors.As(err, &f) {
			fault(prefix+f.Field, f.Err)
		}
	}
}
