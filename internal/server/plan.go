package server

import (
	"context"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of previews.
const (
	maxPlanBytes = 16 << 20 // of a request, in JSON
	MaxPlanRows  = 10 << 20 // bytes of a load
	maxPlanYAML  = 1 << 20  // bytes of a configuration
	maxVariants  = 8
	maxChanged   = 100 // limits of a variant
	maxFailIf    = 20
	maxStreams   = 20
	maxLast      = 24 * time.Hour
	maxRTT       = float64(time.Hour / time.Millisecond)
	defaultLast  = "10m"
)

// A Planner previews a load, which the request has as settings or rows, under the configuration of
// the request or that of the running upstreams. It must not delay the calls of the process. Its
// error may be one of [BadConfig] or [BadRequest].
type Planner func(ctx context.Context, in api.PlanRequest, running map[string]scheduler.Upstream) (*api.Plan, error)

// planLoad previews a load. The running configuration is that of the scheduler, as it is in force.
func planLoad(a *Admin, r request[api.PlanRequest]) (*api.Plan, error) {
	if a.Plan == nil {
		return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: "there are no previews here: they run in a process of their own, which this program does not have; use throttler plan"}
	}
	in, f := r.body()
	checkPlan(&in, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	running := a.Scheduler.Config()
	if in.Rows == "" && len(in.Settings) == 0 {
		if in.Last == "" {
			in.Last = defaultLast
		}
		if in.Rows = a.recording(in.Last, running); in.Rows == "" {
			f.add("/last", "no call has come in within the last %s; give a longer time, or settings or rows", in.Last)
			return nil, f.err()
		}
	}
	return a.Plan(r.Context(), in, running)
}

// recording returns the calls that came in within a duration, as throttler record writes them.
func (a *Admin) recording(last string, running map[string]scheduler.Upstream) string {
	limits := make(map[string][]string)
	for name, u := range running {
		limits[name] = []string{}
		for _, l := range u.Limits {
			limits[name] = append(limits[name], l.Name)
		}
	}
	d, _ := time.ParseDuration(last) // checkPlan has checked it
	var rows strings.Builder
	a.Events.arrivals.Write(&rows, time.Now().Add(-d), limits) // a builder takes everything
	return rows.String()
}

// checkPlan adds the faults of a request that do not depend on a configuration.
func checkPlan(in *api.PlanRequest, f *faults) {
	loads := 0
	for _, given := range []bool{in.Last != "", len(in.Settings) > 0, in.Rows != ""} {
		if given {
			loads++
		}
	}
	if loads > 1 {
		f.add("/last", "the load is one of last, settings and rows; give one of them")
	}
	if d, err := time.ParseDuration(in.Last); in.Last != "" && (err != nil || d <= 0 || d > maxLast) {
		f.add("/last", "last %q is not a duration such as 10m, at most %v", in.Last, maxLast)
	}
	if len(in.Rows) > MaxPlanRows {
		f.add("/rows", "rows have %d bytes, at most %d; use throttler plan for more", len(in.Rows), MaxPlanRows)
	}
	if len(in.Config) > maxPlanYAML {
		f.add("/config", "config has %d bytes, at most %d", len(in.Config), maxPlanYAML)
	}
	most := func(pointer string, n, most int) {
		if n > most {
			f.add(pointer, "there are %d of them, at most %d", n, most)
		}
	}
	most("/settings", len(in.Settings), maxStreams)
	most("/variants", len(in.Variants), maxVariants)
	most("/fail_if", len(in.FailIf), maxFailIf)
	most("/changes", len(in.Changes), maxChanged)
	for _, v := range in.Variants {
		most("/variants", len(v.Changes), maxChanged)
	}
	if rtt := in.RTTMs; rtt != nil && !(*rtt >= 0 && *rtt <= maxRTT) {
		f.add("/rtt_ms", "rtt_ms is %v, must be from 0 to %v", *rtt, maxRTT)
	}
	if spread := in.RTTSpreadMs; !(spread >= 0 && spread <= maxRTT) {
		f.add("/rtt_spread_ms", "rtt_spread_ms is %v, must be from 0 to %v", spread, maxRTT)
	}
	if in.Seed != nil && *in.Seed < 0 {
		f.add("/seed", "seed is %d, must not be negative", *in.Seed)
	}
}
