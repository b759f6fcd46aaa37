package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Limit is "at most Calls per Window", or Concurrency attempts in flight.
type Limit struct {
	Name string
	// When is a request expression: the calls under the limit. Empty means all.
	When string
	// PerKey is a request expression: each value is counted apart. Empty means one key.
	PerKey string
	// Cost is a request expression: the permits that a call takes, from 1 to 2^31. A fraction is
	// rounded up. Empty means 1.
	Cost string
	// ActualCost is an expression over the answer, one of upstream.Config.Charges: the permits
	// that the call has used, from 0 to its cost. The others are free with the answer. All are
	// used if it is empty, or if the answer does not tell a number in these bounds; a fraction is
	// rounded up.
	ActualCost string

	Calls    int
	Window   time.Duration
	Calendar *quota.Calendar // instead of Window
	// Concurrency, instead of Calls and Window, bounds the attempts in flight.
	Concurrency int
	// Guard caps the hold of a slow answer; see quota.Limit.
	Guard time.Duration
	// MaxKeys is how many keys may have permits out at a time; see quota.Limit. 0 means
	// quota.DefaultMaxKeys.
	MaxKeys int
	// Counts are the outcomes that use a permit up; others give it back with the
	// response. Empty means all. An unknown outcome is always counted.
	Counts []upstream.Outcome
}

// A limit is a Limit, compiled.
type limit struct {
	Limit
	when, perKey, cost *upstream.Expr // nil: all calls, one key, 1
}

// compileLimit compiles a limit after those that sv already has.
func (sv *service) compileLimit(c Limit, fault func(field string, err error)) limit {
	l := limit{Limit: c}
	switch {
	case c.Name == "":
		fault("name", errors.New("is missing; give a name such as app, by which answers and metrics call the limit"))
	case !nameRule.MatchString(c.Name):
		fault("name", fmt.Errorf("%q must be lower-case letters, digits, - and _, at most 63", c.Name))
	case c.Name == ConcurrencyLimit:
		fault("name", fmt.Errorf("%q is the name of the upstream's own limit; take another one, or write concurrency beside limits", c.Name))
	case sv.limitNamed(c.Name) >= 0:
		fault("name", fmt.Errorf("%q is taken by another limit of this upstream; give this one another name", c.Name))
	}
	compileExpr(c.When, upstream.Condition, &l.when, "when", fault)
	compileExpr(c.PerKey, upstream.Key, &l.perKey, "per_key", fault)
	compileExpr(c.Cost, upstream.Cost, &l.cost, "cost", fault)
	l.check(l.quota(sv), fault)
	return l
}

// check reports the faults of the fields that the ledger needs; quota.Limit.Check has
// the rules.
func (l *limit) check(q quota.Limit, fault func(field string, err error)) {
	for i, o := range l.Counts {
		if !slices.Contains(outcomes, o) {
			fault(fmt.Sprintf("counts[%d]", i), fmt.Errorf("outcome %q is unknown, must be done, failed, not_executed or unknown", o))
		}
	}
	of := func(field string) string { return field }
	switch {
	case l.Concurrency != 0 && (l.Calls != 0 || l.Window != 0 || l.Calendar != nil || l.Guard != 0 || len(l.Counts) > 0):
		fault("concurrency", errors.New("is given beside calls, window, guard or counts; use either concurrency, or calls with window, and two limits for both"))
		return
	case l.Concurrency != 0 && l.ActualCost != "":
		fault("actual_cost", errors.New("means nothing beside concurrency: its permits come back with the answer"))
		return
	case l.Concurrency != 0:
		of = func(field string) string { return strings.Replace(field, "calls", "concurrency", 1) }
	case l.Window == 0 && l.Calendar == nil:
		fault("window", errors.New("is missing; give a duration such as 1s, or minute, hour, day or month"))
	case l.Window != 0 && l.Calendar != nil:
		fault("window", errors.New("is both a duration and aligned to the calendar; give one"))
	}
	faultLimit(q.Check(), func(field string, err error) {
		if field != "late" { // the upstream's, which reports it once
			fault(of(field), err)
		}
	})
}

// faultLimit passes on the faults that package quota joined.
func faultLimit(err error, fault func(field string, err error)) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		var f *quota.FieldError
		if errors.As(err, &f) {
			fault(f.Field, f.Err)
		}
	}
}

var outcomes = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown}

// quotas returns the limits as the ledger knows them.
func (sv *service) quotas() []quota.Limit {
	var qs []quota.Limit
	for i := range sv.limits {
		qs = append(qs, sv.limits[i].quota(sv))
	}
	return qs
}

// quota returns the limit as the ledger knows it.
func (l *limit) quota(sv *service) quota.Limit {
	q := quota.Limit{Name: l.Name, Calls: l.capacity(), Window: l.Kind(), Late: sv.Late, Guard: l.Guard, MaxKeys: l.MaxKeys, Partly: !l.counted(upstream.Done) || l.ActualCost != ""}
	if l.spaced() {
		q.Burst = max(0, min(sv.Burst, l.Calls))
	}
	return q
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

// leaseLimits returns the limits as the lease book knows them: those above a window are
// leased.
func (sv *service) leaseLimits(longWindow time.Duration) []lease.Limit {
	var ls []lease.Limit
	for i := range sv.limits {
		l := &sv.limits[i]
		ls = append(ls, lease.Limit{Name: l.Name, Calls: l.capacity(), Long: l.long(longWindow)})
	}
	return ls
}

// long reports whether a limit's window is above another one.
func (l *limit) long(window time.Duration) bool { return l.Kind().Length() > window }

// spaced reports whether spacing works inside the limit.
func (l Limit) spaced() bool { return l.Window > 0 && len(l.Counts) == 0 }

// capacity is the number of permits per key.
func (l *limit) capacity() int { return cmp.Or(l.Concurrency, l.Calls) }

// counted reports whether an attempt of the outcome uses its permit up.
func (l *limit) counted(o upstream.Outcome) bool {
	return len(l.Counts) == 0 || o == upstream.Unknown || slices.Contains(l.Counts, o)
}

// sameAs reports whether two limits count the same calls by the same key in the same window.
func (l *limit) sameAs(o limit) bool {
	return l.Name == o.Name && l.When == o.When && l.PerKey == o.PerKey && l.Kind().Equal(o.Kind())
}

// keeps returns for each limit the index of the old one whose permits it keeps, or -1.
func (sv *service) keeps(old *service) []int {
	kept := make([]int, len(sv.limits))
	for i := range sv.limits {
		kept[i] = slices.IndexFunc(old.limits, sv.limits[i].sameAs)
	}
	return kept
}
