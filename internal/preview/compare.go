package preview

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Variant is a configuration to be played.
type Variant struct {
	Name   string
	Config scheduler.Config
}

// A Source opens a load for a configuration. The load may have columns of the others too.
type Source func(c scheduler.Config, others ...scheduler.Config) (*workload.Load, error)

// A Comparison is the result of one load under several configurations.
type Comparison struct {
	Reports  []*Report `json:"variants"`
	Findings []Finding `json:"findings"`
	Verdicts []Verdict `json:"conditions"` // of each condition for each report
}

// A Verdict tells whether a condition holds for a report.
type Verdict struct {
	Condition string `json:"condition"`
	Config    string `json:"config"`
	Holds     bool   `json:"holds"`
	// Err is why it cannot be computed; empty if it can.
	Err string `json:"error,omitempty"`
}

// Kinds of findings. The first four are of one report, the others compare it with the first one.
const (
	NoWait  = "no_wait" // no call waits
	Waiting = "waits"
	Refuses = "refuses"
	Binds   = "binds" // the limit that holds most calls for the longest time
	Falls   = "falls" // the wait
	Rises   = "rises"
	Stays   = "stays"
)

// A Finding is one sentence about a report, with its figures. Waits are those of which 99 of 100
// calls have at most that.
type Finding struct {
	Kind   string `json:"kind"`
	Config string `json:"config"`
	Text   string `json:"text"`
	// Upstream and Limit are the limit that binds, Permits and Window its own; empty if none does.
	Upstream string  `json:"upstream,omitempty"`
	Limit    string  `json:"limit,omitempty"`
	Permits  int     `json:"permits,omitzero"`
	Window   string  `json:"window,omitempty"`
	Share    float64 `json:"share,omitzero"` // of the time in which it binds, or of calls that are refused
	Calls    int     `json:"calls,omitzero"` // that are refused
	Before   Millis  `json:"before_ms,omitzero"`
	Wait     Millis  `json:"wait_ms,omitzero"`
	Longest  Millis  `json:"longest_ms,omitzero"`
}

// Compare plays a load under each of the variants. Progress is that of all together.
func Compare(ctx context.Context, load Source, o Options, conditions []*Condition, variants ...Variant) (*Comparison, error) {
	c := &Comparison{Findings: []Finding{}, Verdicts: []Verdict{}}
	whole := o.Progress
	for i, v := range variants {
		var others []scheduler.Config // a recording may have keys of limits of another variant only
		for _, other := range variants {
			others = append(others, other.Config)
		}
		l, err := load(v.Config, others...)
		if err != nil {
			return nil, err
		}
		o.Name = v.Name
		if whole != nil {
			o.Progress = func(done float64) { whole((float64(i) + done) / float64(len(variants))) }
		}
		r, err := Run(ctx, v.Config, l, o)
		if err := cmp.Or(err, l.Close()); err != nil {
			return nil, err
		}
		if whole != nil {
			o.Progress(1)
		}
		c.Reports = append(c.Reports, r)
		c.Findings = append(c.Findings, findingsOf(r, c.Reports[0])...)
		for _, condition := range conditions {
			holds, err := condition.Holds(r)
			verdict := Verdict{Condition: condition.String(), Config: r.Config, Holds: holds}
			if err != nil {
				verdict.Err = err.Error()
			}
			c.Verdicts = append(c.Verdicts, verdict)
		}
	}
	return c, nil
}

// Shorten keeps the flows with most calls of each report.
func (c *Comparison) Shorten(flows int) {
	for _, r := range c.Reports {
		slices.SortStableFunc(r.Flows, func(a, b Flow) int { return cmp.Compare(b.Calls, a.Calls) })
		r.Flows = r.Flows[:min(flows, len(r.Flows))]
	}
}

// findingsOf returns the findings about a report: beside the first one, how it differs.
func findingsOf(r, first *Report) (all []Finding) {
	binding := r.Binding()
	add := func(f Finding, format string, args ...any) {
		f.Config, f.Text = r.Config, fmt.Sprintf(format, args...)
		all = append(all, f)
	}
	with := func(f Finding) Finding {
		if binding != nil {
			f.Upstream, f.Limit, f.Permits, f.Window = binding.Upstream, binding.Limit, binding.Permits, binding.Window
		}
		return f
	}
	waits := Finding{Kind: Waiting, Wait: r.Wait.P99, Longest: r.Wait.Max, Before: first.Wait.P99}
	then := ""
	if binding != nil {
		then = "; " + binding.text(r) + " binds"
		if !binding.Is(first.Binding()) {
			then = "; then " + binding.text(r) + " binds"
		}
	}
	switch before, now := brief(first.Wait.P99), brief(r.Wait.P99); {
	case r == first && r.Wait.Max == 0:
		add(Finding{Kind: NoWait}, "%s: no call waits", r.Config)
	case r == first:
		waits.Before = 0
		add(waits, "%s: 99%% of the calls wait %s at most, the longest wait is %s", r.Config, now, brief(r.Wait.Max))
	case near(first.Wait.P99, r.Wait.P99):
		waits.Kind = Stays
		add(with(waits), "with %s the wait would stay at %s%s", r.Config, now, then)
	case r.Wait.P99 < first.Wait.P99:
		waits.Kind = Falls
		add(with(waits), "with %s the wait would fall from %s to %s%s", r.Config, before, now, then)
	default:
		waits.Kind = Rises
		add(with(waits), "with %s the wait would rise from %s to %s%s", r.Config, before, now, then)
	}
	if binding != nil && r == first {
		add(with(Finding{Kind: Binds, Share: binding.Share}), "%s: %s binds %.1f%% of the time", r.Config, binding.text(r), 100*binding.Share)
	}
	if n := r.AllRefused(); n > 0 {
		add(Finding{Kind: Refuses, Calls: n, Share: float64(n) / float64(r.Calls)}, "%s: Throttler refuses %s of the calls", r.Config, share(n, r.Calls))
	}
	return all
}

// near reports whether two waits differ by less than a hundredth.
func near(a, b Millis) bool { return math.Abs(float64(a-b)) <= 0.01*float64(max(a, b)) }

// text names the limit with its permits.
func (l *Limit) text(r *Report) string {
	return fmt.Sprintf("%s (%s)", name(l.Upstream, l.Limit, r), l.permits())
}

// permits returns the permits and the window, as in 100/1s.
func (l *Limit) permits() string {
	if l.Window == "" {
		return fmt.Sprint(l.Permits)
	}
	return fmt.Sprintf("%d/%s", l.Permits, l.Window)
}
