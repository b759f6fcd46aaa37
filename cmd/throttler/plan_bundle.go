package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of a preview of the admin API.
const (
	planTime    = 30 * time.Second
	planMemory  = 256 << 20 // bytes, of the heap's goal; half as much more ends the process
	maxBundle   = 64 << 20  // bytes
	maxPlanText = 16 << 20  // bytes of the answer
	planFlows   = 100
)

// A bundle is a preview for a process of its own. It has no secret: of the running configuration
// it has the parts that a preview reads.
type bundle struct {
	Request api.PlanRequest    `json:"request"`
	Running map[string]planned `json:"running"`
}

// A planned has the parts of an upstream that a preview reads, defaults filled in. They are those
// in force, whichever file, variable or flag has given them.
type planned struct {
	Limits      []scheduler.Limit  `json:"limits"`
	Zones       []string           `json:"zones"` // of the calendars of the limits
	Concurrency int                `json:"concurrency"`
	Late        time.Duration      `json:"late"`
	Burst       int                `json:"burst"`
	ShareBy     string             `json:"share_by"`
	Weights     map[string]float64 `json:"weights"`
	MaxAge      time.Duration      `json:"max_age"`
	MaxWaiting  int                `json:"max_waiting"`
}

// plannedOf returns the parts of upstreams that a preview reads.
func plannedOf(upstreams map[string]scheduler.Upstream) map[string]planned {
	all := make(map[string]planned)
	for name, u := range upstreams {
		p := planned{slices.Clone(u.Limits), nil, u.Concurrency, u.Late, u.Burst, u.ShareBy, u.Weights, u.MaxAge, u.MaxWaiting}
		for i := range p.Limits {
			zone := ""
			if c := p.Limits[i].Calendar; c != nil {
				zone = cmp.Or(c.Zone, time.UTC).String()
				p.Limits[i].Calendar = &quota.Calendar{Unit: c.Unit, Skew: c.Skew}
			}
			p.Zones = append(p.Zones, zone)
		}
		all[name] = p
	}
	return all
}

// upstream returns the upstream as a preview needs it: it is never dialled.
func (p planned) upstream() (u scheduler.Upstream, err error) {
	u.URL = "https://preview.invalid"
	u.Limits, u.Concurrency, u.Late, u.Burst = p.Limits, p.Concurrency, p.Late, p.Burst
	u.ShareBy, u.Weights, u.MaxAge, u.MaxWaiting = p.ShareBy, p.Weights, p.MaxAge, p.MaxWaiting
	for i, zone := range p.Zones {
		if u.Limits[i].Calendar != nil {
			var wrong error
			u.Limits[i].Calendar.Zone, wrong = time.LoadLocation(zone)
			err = errors.Join(err, wrong)
		}
	}
	return u, err
}

// variants returns the configurations of a bundle, and all faults of them.
func (b *bundle) variants() (all []preview.Variant, faults []api.Fault, badConfig bool) {
	running := scheduler.Config{Upstreams: make(map[string]scheduler.Upstream)}
	for name, p := range b.Running {
		u, err := p.upstream()
		if err != nil {
			return nil, []api.Fault{{Detail: err.Error()}}, false
		}
		running.Upstreams[name] = u
	}
	base, name := running, "running"
	if text := b.Request.Config; text != "" {
		name = "pasted"
		c, err := config.Inspect([]byte(text))
		var found config.Errors
		if errors.As(err, &found) {
			for _, f := range found {
				faults = append(faults, api.Fault{Pointer: cmp.Or(f.Path, "config"), Detail: strings.TrimPrefix(f.Place+": "+f.Err.Error(), ": ")})
			}
			return nil, faults, true
		} else if err != nil {
			return nil, []api.Fault{{Pointer: "/config", Detail: err.Error()}}, true
		}
		base = c.Scheduler
	}
	if !b.Request.Alone {
		all = append(all, preview.Variant{Name: "running", Config: running})
	}
	add := func(name, pointer string, changes []api.PlanChange) {
		changed, found := change(base, pointer, changes)
		faults = append(faults, found...)
		all = append(all, preview.Variant{Name: name, Config: changed})
	}
	if own := b.Request.Changes; b.Request.Config != "" || len(own) > 0 || b.Request.Alone {
		if b.Request.Config == "" && len(own) > 0 {
			name = changesName(own)
		}
		add(name, "/changes", own)
	}
	for i, v := range b.Request.Variants {
		add(cmp.Or(v.Name, changesName(v.Changes), name), fmt.Sprintf("/variants/%d/changes", i), v.Changes)
	}
	return all, faults, false
}

// changesName names a variant by its changes, as in refund 40/1s.
func changesName(changes []api.PlanChange) string {
	var texts []string
	for _, c := range changes {
		text := c.Limit
		if c.Permits != nil {
			text += fmt.Sprint(" ", *c.Permits)
		}
		if c.Window != "" {
			text += "/" + c.Window
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// change returns a configuration with changes, and their faults.
func change(c scheduler.Config, pointer string, changes []api.PlanChange) (scheduler.Config, []api.Fault) {
	c.Upstreams = maps.Clone(c.Upstreams)
	var faults []api.Fault
	for i, to := range changes {
		at := fmt.Sprintf("%s/%d", pointer, i)
		u, ok := c.Upstreams[to.Upstream]
		if !ok {
			faults = append(faults, api.Fault{Pointer: at + "/upstream", Detail: fmt.Sprintf("upstream %q is not configured", to.Upstream)})
			continue
		}
		err := changeLimit(&u, to)
		if err == nil {
			_, err = scheduler.NewRouter(to.Upstream, u)
		}
		if err != nil {
			faults = append(faults, api.Fault{Pointer: at, Detail: err.Error()})
		}
		c.Upstreams[to.Upstream] = u
	}
	return c, faults
}

// changeLimit changes one limit.
func changeLimit(u *scheduler.Upstream, to api.PlanChange) error {
	if to.Permits != nil && *to.Permits < 1 {
		return fmt.Errorf("permits are %d, must be at least 1", *to.Permits)
	}
	if to.Limit == scheduler.ConcurrencyLimit {
		if to.Window != "" {
			return errors.New("concurrency has no window")
		}
		if to.Permits != nil {
			u.Concurrency = *to.Permits
		}
		return nil
	}
	u.Limits = slices.Clone(u.Limits)
	i := slices.IndexFunc(u.Limits, func(l scheduler.Limit) bool { return l.Name == to.Limit })
	if i < 0 {
		return fmt.Errorf("upstream %q has no limit %q", to.Upstream, to.Limit)
	}
	l := &u.Limits[i]
	if to.Permits != nil && l.Concurrency > 0 {
		l.Concurrency = *to.Permits
	} else if to.Permits != nil {
		l.Calls = *to.Permits
	}
	if to.Window == "" {
		return nil
	}
	if unit, err := quota.ParseUnit(to.Window); err == nil {
		calendar := quota.Calendar{Skew: config.DefaultSkew}
		if l.Calendar != nil {
			calendar = *l.Calendar
		}
		calendar.Unit = unit
		l.Window, l.Calendar = 0, &calendar
		return nil
	}
	window, err := time.ParseDuration(to.Window)
	if err != nil || window <= 0 {
		return fmt.Errorf("window %q is neither a duration such as 1s nor minute, hour, day or month", to.Window)
	}
	l.Window, l.Calendar = window, nil
	return nil
}

// A bundleResult is the end of a preview: a plan, or faults.
type bundleResult struct {
	Plan      *preview.Comparison `json:"plan,omitempty"`
	Faults    []api.Fault         `json:"faults,omitempty"`
	BadConfig bool                `json:"bad_config,omitempty"` // the faults are of the configuration
}

// play previews a bundle. It says which member of the request is at work.
func (b *bundle) play(ctx context.Context, at func(pointer string)) bundleResult {
	at(configPart)
	variants, faults, badConfig := b.variants()
	load := "/rows"
	if b.Request.Rows == "" {
		load = "/settings"
	}
	at(load)
	var conditions []*preview.Condition
	for i, source := range b.Request.FailIf {
		c, err := preview.Compile(source)
		if err != nil {
			faults = append(faults, api.Fault{Pointer: fmt.Sprintf("/fail_if/%d", i), Detail: err.Error()})
		}
		conditions = append(conditions, c)
	}
	if len(faults) > 0 {
		return bundleResult{Faults: faults, BadConfig: badConfig}
	}
	o := b.options()
	c, err := preview.Compare(ctx, b.source(o.Seed), o, conditions, variants...)
	if err != nil {
		return bundleResult{Faults: []api.Fault{{Pointer: load, Detail: err.Error()}}}
	}
	c.Shorten(planFlows)
	return bundleResult{Plan: c}
}

// options returns those of the request.
func (b *bundle) options() preview.Options {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	o := preview.Options{RoundTrip: 50 * time.Millisecond, Spread: ms(b.Request.RTTSpreadMs), Seed: preview.DefaultSeed}
	if rtt := b.Request.RTTMs; rtt != nil {
		o.RoundTrip = ms(*rtt)
	}
	if seed := b.Request.Seed; seed != nil {
		o.Seed = uint64(*seed)
	}
	return o
}

// source returns the load of the request.
func (b *bundle) source(seed uint64) preview.Source {
	return func(c scheduler.Config, others ...scheduler.Config) (*workload.Load, error) {
		if len(b.Request.Settings) > 0 {
			return workload.Generate(b.Request.Settings, seed, c)
		}
		return workload.Read("rows", b.Request.Rows, c, others...)
	}
}

// newPlayBundle is the command of the process of a preview. It reads a bundle, and writes its
// result; it opens nothing. It ends by itself when its bounds are exceeded, or its input ends.
func newPlayBundle() *cobra.Command {
	cmd := &cobra.Command{
		Use: bundleCommand, Hidden: true, Args: exactly(),
		Short: "Play a bundle of the admin API from standard input, which stays open",
	}
	most := cmd.Flags().Duration("time", planTime, "the most that it takes")
	memory := cmd.Flags().Uint64("memory", planMemory*3/2, "bytes, the most that it has")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		lowerPriority()
		w := &planWatch{out: cmd.OutOrStdout()}
		w.begin(*most, *memory)
		var b bundle
		if err := json.NewDecoder(io.LimitReader(cmd.InOrStdin(), maxBundle)).Decode(&b); err != nil {
			return err
		}
		w.follow(cmd.InOrStdin())
		w.end(b.play(cmd.Context(), func(pointer string) { w.part.Store(pointer) }))
		return nil
	}
	return cmd
}

const bundleCommand = "play-bundle"
