package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Defaults of a [Config], an [Upstream], its [Resolve] and its [Callback] whose
// fields are zero, the names of what calls wait for besides its limits, and what
// is fixed of calls and of what is told of them.
const (
	DefaultConcurrency     = 1024
	DefaultLate            = 5 * time.Second
	DefaultMaxWait         = 30 * time.Second
	DefaultMaxAge          = 24 * time.Hour
	DefaultMaxWaiting      = 10_000
	DefaultMaxWaitingBytes = 256 << 20
	DefaultMaxBody         = 1 << 20
	DefaultLongWindow      = time.Minute

	// ConcurrencyLimit is the name of the limit that every upstream has: its
	// concurrency. A pause of the upstream is a pause of this limit.
	ConcurrencyLimit = "concurrency"
	// RepeatLimit is what a call waits for whose repeat the retry budget does not
	// cover yet.
	RepeatLimit = "retry_budget"

	DefaultResolveAfter   = 10 * time.Second
	DefaultResolveEvery   = 30 * time.Second
	DefaultResolveQueries = 10

	DefaultCallbacksPerSecond = 50
	DefaultCallbackAttempts   = 12
	DefaultCallbackMin        = 10 * time.Second // the waits grow, over half a day
	DefaultCallbackMax        = 5 * time.Hour

	MaxPriority  = 100 // a priority is from -MaxPriority to MaxPriority
	DataPriority = 10  // of calls whose caller waits, unless it says otherwise
	MaxAttempts  = 20  // a Call tells of so many
	MaxKeys      = 100 // a LimitStatus tells of those for which most waits
)

// A Config describes a scheduler.
type Config struct {
	// Upstreams by name.
	Upstreams map[string]Upstream
	// Store keeps the calls; nil keeps them in memory. If it is a [Durable],
	// submitted calls and the use of the quota outlive the process. The scheduler
	// closes it.
	Store Store
	// LongWindow is the window above which the use of the quota is stored in
	// blocks, ahead of the sends; zero means DefaultLongWindow.
	LongWindow time.Duration
	// Precise fires slots by a timer of the operating system too where it has one (a
	// timerfd on Linux): in an idle process some 0.05 ms late and not up to a
	// millisecond, for twice the processor time of a wake-up. Such a timer knows no
	// time but the real one: leave it out in a testing/synctest bubble.
	Precise bool
	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger
	// Observe, if not nil, is told of every event, from the scheduler's loop: it
	// must return at once and call nothing of the scheduler.
	Observe func(Event)
}

// An Upstream is an API host, its limits and how its calls come back.
type Upstream struct {
	upstream.Config // Name is taken from Config.Upstreams

	Limits []Limit
	Retry  retry.Policy
	// Resend allows a call whose caller waits for the answer to be sent again as
	// it is. Without it, and without a Signer, the upstream's first answer is the
	// caller's answer.
	Resend bool
	// Resolve settles calls of unknown outcome; the first whose When holds does.
	Resolve []Resolve
	// Callbacks are the targets, by name, that submitted calls may name.
	Callbacks map[string]Callback
	// Signature is what the requests of callers are good for. It counts for
	// nothing with a Signer, which makes a new one for each attempt.
	Signature Signature

	// Concurrency is how many attempts are in flight at most.
	Concurrency int
	// Late is how long after its end an unanswered attempt may still be counted.
	Late time.Duration
	// Burst, if positive, spaces calls inside the sliding windows of all limits but
	// those with Counts: calls that these do not count have no part in their rate.
	Burst int

	// MaxWait is how long a caller waits in Do, at most, until its call is sent.
	MaxWait time.Duration
	// MaxAge is how long after its acceptance a call may be sent at all.
	MaxAge time.Duration
	// MaxWaiting and MaxWaitingBytes bound what waits, in calls and in bytes of
	// bodies and headers.
	MaxWaiting      int
	MaxWaitingBytes int64
	// MaxBody bounds a request's body, in bytes.
	MaxBody int64

	// Durable is a request expression: calls whose caller waits, and that are kept
	// in a [Durable] all the same. With a Request.IdempotencyKey a later caller
	// finds them. Empty means none.
	Durable string
	// NoBody is a request expression: calls whose request is kept out of the
	// store. They are not lost in silence, but end with the process. Empty means none.
	NoBody string

	// ShareBy is a request expression: calls of one value are one flow. Empty
	// makes all calls one flow.
	ShareBy string
	// Weights are the flows' shares, 1 for those not named. Values of ShareBy that
	// differ from a name here only in case are that flow: configuration files give
	// names in lower case.
	Weights map[string]float64
}

// A Signature is what the signatures that callers bring are good for. The zero
// value is one that does not age.
type Signature struct {
	// Life is how long after its acceptance a call is sent at most: a later
	// attempt would be stale. Zero: no bound.
	Life time.Duration
	// Once tells that the same bytes are good for one sending: they hold a nonce.
	Once bool
}

// A Limit is "at most Calls per Window", or Concurrency attempts in flight.
type Limit struct {
	Name string
	// When is a request expression: the calls under the limit. Empty means all.
	When string
	// PerKey is a request expression: each value is counted apart. Empty means one key.
	PerKey string
	// Cost is a request expression: the permits that a call takes. Empty means 1.
	Cost string

	Calls    int
	Window   time.Duration
	Calendar *quota.Calendar // instead of Window
	// Concurrency, instead of Calls and Window, bounds the attempts in flight.
	Concurrency int
	// Guard caps the hold of a slow answer; see quota.Limit.
	Guard time.Duration
	// Counts are the outcomes that use a permit up; others give it back with the
	// response. Empty means all. What came to unknown is always counted.
	Counts []upstream.Outcome
}

// A ConfigError is one fault of a Config.
type ConfigError struct {
	Path string // as in YAML, for instance upstreams.alipay.limits[0].window
	Err  error
}

func (e *ConfigError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Validate reports all faults at once, each a [*ConfigError], joined.
func (c Config) Validate() error {
	_, err := compile(c)
	return err
}

// A service is an upstream, compiled.
type service struct {
	Upstream
	up      *upstream.Upstream
	shareBy *upstream.Expr
	durable condition
	noBody  condition
	limits  []limit // the first is the concurrency of all calls

	resolvers []*resolver
	target    string // of a callback's webhooks
}

type limit struct {
	Limit
	when, key, price *upstream.Expr // nil: all, one, 1
}

// A condition is a request expression that may be absent.
type condition struct{ *upstream.Expr }

// holds tells whether it does; one that fails on a request holds if unclear.
func (c condition) holds(in *upstream.Input, unclear bool) bool {
	if c.Expr == nil {
		return false
	}
	ok, err := c.Bool(in)
	return ok || err != nil && unclear
}

var outcomes = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown}

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func compile(c Config) (map[string]*service, error) {
	var errs []error
	if len(c.Upstreams) == 0 {
		errs = append(errs, &ConfigError{"upstreams", errors.New("is empty; name at least one API host")})
	}
	services := make(map[string]*service)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		path := "upstreams." + name
		if !nameRule.MatchString(name) {
			errs = append(errs, &ConfigError{path, fmt.Errorf("name %q must be lower-case letters, digits, - and _, at most 63", name)})
		}
		fault := func(field string, err error) { errs = append(errs, &ConfigError{path + "." + field, err}) }
		services[name] = compileUpstream(name, c.Upstreams[name], fault)
		compileCallbacks(services, name, c.Upstreams[name].Callbacks, fault)
	}
	return services, errors.Join(errs...)
}

func compileUpstream(name string, u Upstream, fault func(field string, err error)) *service {
	u.Name = name
	for _, f := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"late", &u.Late, DefaultLate},
		{"max_wait", &u.MaxWait, DefaultMaxWait},
		{"max_age", &u.MaxAge, DefaultMaxAge},
	} {
		positive(f.name, f.value, f.zero, fault)
	}
	positive("concurrency", &u.Concurrency, DefaultConcurrency, fault)
	positive("max_waiting", &u.MaxWaiting, DefaultMaxWaiting, fault)
	positive("max_waiting_bytes", &u.MaxWaitingBytes, DefaultMaxWaitingBytes, fault)
	positive("max_body", &u.MaxBody, DefaultMaxBody, fault)
	if u.MaxIdle == 0 {
		u.MaxIdle = u.Concurrency
	}

	sv := &service{Upstream: u}
	var err error
	sv.up, err = upstream.New(u.Config)
	for _, err := range split(err) {
		var f *upstream.FieldError
		if errors.As(err, &f) {
			fault(f.Field, f.Err)
		}
	}
	if u.ShareBy != "" {
		if sv.shareBy, err = upstream.Compile(u.ShareBy, upstream.Key); err != nil {
			fault("share_by", err)
		}
	}
	for _, e := range []struct {
		field, source string
		to            *condition
	}{{"durable", u.Durable, &sv.durable}, {"no_body", u.NoBody, &sv.noBody}} {
		if e.source == "" {
			continue
		}
		if e.to.Expr, err = upstream.Compile(e.source, upstream.Condition); err != nil {
			fault(e.field, err)
		}
	}
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
	sv.Weights = weights
	if len(u.Weights) > 0 && u.ShareBy == "" {
		fault("weights", errors.New("need share_by, which tells the flows apart"))
	}
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
	for i, l := range u.Limits {
		sv.limits = append(sv.limits, sv.compileLimit(l, func(field string, err error) {
			fault(fmt.Sprintf("limits[%d].%s", i, field), err)
		}))
	}
	for i, r := range u.Resolve {
		sv.resolvers = append(sv.resolvers, compileResolve(r, func(field string, err error) {
			fault(fmt.Sprintf("resolve[%d].%s", i, field), err)
		}))
	}
	for i, r := range u.Outcomes {
		if r.Pause != nil && r.Pause.Limit != "" && sv.limitNamed(r.Pause.Limit) < 0 {
			fault(fmt.Sprintf("outcomes[%d].pause.limit", i), fmt.Errorf("limit %q is not one of this upstream's: %s", r.Pause.Limit, sv.limitNames()))
		}
	}
	return sv
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

// compileLimit compiles a limit after those that sv already has.
func (sv *service) compileLimit(c Limit, fault func(field string, err error)) limit {
	l := limit{Limit: c}
	switch {
	case c.Name == "":
		fault("name", errors.New("is missing; answers and metrics name limits by it"))
	case !nameRule.MatchString(c.Name):
		fault("name", fmt.Errorf("%q must be lower-case letters, digits, - and _, at most 63", c.Name))
	case c.Name == ConcurrencyLimit:
		fault("name", fmt.Errorf("%q is the upstream's own; its key is concurrency beside limits", c.Name))
	case sv.limitNamed(c.Name) >= 0:
		fault("name", fmt.Errorf("%q is taken by another limit of this upstream", c.Name))
	}
	for _, e := range []struct {
		field, source string
		kind          upstream.Kind
		to            **upstream.Expr
	}{
		{"when", c.When, upstream.Condition, &l.when},
		{"per_key", c.PerKey, upstream.Key, &l.key},
		{"cost", c.Cost, upstream.Cost, &l.price},
	} {
		if e.source == "" {
			continue
		}
		var err error
		if *e.to, err = upstream.Compile(e.source, e.kind); err != nil {
			fault(e.field, err)
		}
	}
	if c.Concurrency != 0 {
		if c.Concurrency < 0 {
			fault("concurrency", fmt.Errorf("is %d, must be at least 1", c.Concurrency))
		}
		if c.Calls != 0 || c.Window != 0 || c.Calendar != nil || c.Guard != 0 || len(c.Counts) > 0 {
			fault("concurrency", errors.New("stands instead of calls, window, guard and counts"))
		}
		return l
	}
	for i, o := range c.Counts {
		if !slices.Contains(outcomes, o) {
			fault(fmt.Sprintf("counts[%d]", i), fmt.Errorf("outcome %q is none of %v", o, outcomes))
		}
	}
	if c.Calls < 1 {
		fault("calls", fmt.Errorf("is %d, must be at least 1", c.Calls))
	}
	switch {
	case c.Window == 0 && c.Calendar == nil:
		fault("window", errors.New("is missing; give a duration such as 1s, or minute, hour, day or month"))
	case c.Window != 0 && c.Calendar != nil:
		fault("window", errors.New("is both a duration and aligned to the calendar; give one"))
	case c.Window < 0:
		fault("window", fmt.Errorf("is %v, must be positive", c.Window))
	}
	if c.Guard < 0 {
		fault("guard", fmt.Errorf("is %v, must be positive", c.Guard))
	}
	return l
}

// positive sets a zero to its default and faults what is negative.
func positive[T int | int64 | time.Duration](field string, value *T, zero T, fault func(string, error)) {
	if *value == 0 {
		*value = zero
	}
	if *value < 0 {
		fault(field, fmt.Errorf("is %v, must be positive", *value))
	}
}

// split undoes errors.Join.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// quotas returns the limits as the ledger knows them.
func (sv *service) quotas() []quota.Limit {
	var qs []quota.Limit
	for _, l := range sv.limits {
		q := quota.Limit{Name: l.Name, Calls: l.Calls, Window: l.Kind(), Late: sv.Late, Guard: l.Guard, Partly: !l.counted(upstream.Done)}
		if l.Concurrency > 0 {
			q.Calls = l.Concurrency
		} else if l.spaced() {
			q.Burst = min(sv.Burst, l.Calls)
		}
		qs = append(qs, q)
	}
	return qs
}

// Kind returns the window of the limit as the ledger knows it.
func (l Limit) Kind() quota.Window {
	switch {
	case l.Calendar != nil:
		return quota.Aligned(*l.Calendar)
	case l.Window != 0:
		return quota.Sliding(l.Window)
	}
	return quota.InFlight()
}

// spaced tells whether spacing works inside the limit.
func (l Limit) spaced() bool { return l.Window > 0 && len(l.Counts) == 0 }

// capacity is the number of permits per key.
func (l *limit) capacity() int { return max(l.Calls, l.Concurrency) }

// limitNamed returns the index of a limit, -1 if there is none.
func (sv *service) limitNamed(name string) int {
	return slices.IndexFunc(sv.limits, func(l limit) bool { return l.Name == name })
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

// weighs tells whether the configuration names the flow, to give it a weight.
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
