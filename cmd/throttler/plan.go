package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/seed-30fe103d/throttler/internal/chart"
	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func newPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [-c FILE] --load WORKLOAD",
		Short: "Preview a load under a configuration",
		Long: `Preview a load under a configuration: the planner of the sidecar plays it in
virtual time, and nothing is sent.

A load is a file that throttler record wrote, or any .csv or .jsonl with the
column at and the fields that the limits read (param.app_id, header.X-Tenant, …).
Or it is settings, to be drawn at random; several --load make several streams:

` + indent(workload.Settings),
		Example: `  throttler plan -c throttler.yaml --load load.csv --rtt 80ms --chart plan.svg
  throttler plan -c throttler.yaml --load 'rate=120/s for=10m bursts=500/1m tenants=5 keys=1000'
  throttler plan -c throttler.yaml --load load.jsonl --compare wanted.yaml
  throttler plan -c throttler.yaml --load load.jsonl --fail-if 'wait.p99 > 5s' --fail-if 'refused > 0'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := parsePlan(cmd)
			if err != nil {
				return err
			}
			return p.run(cmd)
		},
	}
	configFlag(cmd)
	outputFlag(cmd)
	flags := cmd.Flags()
	flags.StringArray("load", nil, "`workload`: a file, or settings such as rate=100/s")
	flags.String("compare", "", "another configuration `file`, side by side")
	flags.Duration("rtt", 50*time.Millisecond, "least round trip of a call")
	flags.Duration("rtt-spread", 0, "mean of the random time on top of --rtt")
	flags.Uint64("seed", 1, "seed of all that is drawn at random")
	flags.String("chart", "", "draw into this `file`: .svg, or .png (Latin, Greek and Cyrillic letters only)")
	flags.StringArray("fail-if", nil, "fail if this `expression` holds, such as wait.p99 > 5s")
	return cmd
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// A plan has the flags of throttler plan.
type plan struct {
	files      []string // configurations
	configs    []*config.Config
	load       []string
	options    preview.Options
	json       bool
	chart      string
	conditions []*preview.Condition
}

// parsePlan reads the flags, and finds their faults before a long load is played.
func parsePlan(cmd *cobra.Command) (*plan, error) {
	flags, p := cmd.Flags(), &plan{}
	p.files = []string{configPath(cmd)}
	if other, _ := flags.GetString("compare"); other != "" {
		p.files = append(p.files, other)
	}
	p.load = values(flags, "load")
	p.options.RoundTrip, _ = flags.GetDuration("rtt")
	p.options.Spread, _ = flags.GetDuration("rtt-spread")
	p.options.Seed, _ = flags.GetUint64("seed")
	p.chart, _ = flags.GetString("chart")
	if p.options.RoundTrip < 0 || p.options.Spread < 0 {
		return nil, errors.New("--rtt and --rtt-spread must not be negative")
	}
	if p.chart != "" && formats[extension(p.chart)] == nil {
		return nil, fmt.Errorf("--chart %s: the name must end in .png or .svg", p.chart)
	}
	if len(p.load) == 0 {
		return nil, errors.New("--load is missing; give a file, or settings such as rate=100/s")
	}
	for _, load := range p.load {
		if strings.TrimSpace(load) == "" {
			return nil, errors.New("--load is empty; give a file, or settings such as rate=100/s")
		}
		if len(p.load) > 1 && !workload.IsGenerated(load) {
			return nil, fmt.Errorf("--load %s: a file is a load by itself; only settings are put together", load)
		}
	}
	var err error
	if p.json, err = wantsJSON(cmd); err != nil {
		return nil, err
	}
	for _, source := range values(flags, "fail-if") {
		c, err := preview.Compile(source)
		if err != nil {
			return nil, fmt.Errorf("--fail-if: %w", err)
		}
		p.conditions = append(p.conditions, c)
	}
	for _, file := range p.files {
		c, err := config.Load(file, flags)
		if err != nil {
			return nil, err // it names the file
		}
		p.configs = append(p.configs, c)
	}
	return p, nil
}

// values returns the values of a flag that may be given more than once. GetStringArray
// returns none for a single empty one.
func values(flags *pflag.FlagSet, name string) []string {
	return flags.Lookup(name).Value.(pflag.SliceValue).GetSlice()
}

func (p *plan) run(cmd *cobra.Command) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	var reports []*preview.Report
	for i := range p.files {
		r, err := p.play(ctx, i, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if p.chart != "" {
		if err := draw(p.chart, reports); err != nil {
			return err
		}
	}
	if err := p.print(cmd.OutOrStdout(), reports); err != nil {
		return err
	}
	return p.checkConditions(reports[0])
}

// play plays the load under one of the configurations.
func (p *plan) play(ctx context.Context, i int, progress io.Writer) (*preview.Report, error) {
	load, err := p.open(i)
	if err != nil {
		return nil, err
	}
	defer load.Close()
	o := p.options
	o.Name = filepath.Base(p.files[i])
	bar := newBar(progress, o.Name)
	o.Progress = bar.set
	report, err := preview.Run(ctx, p.configs[i].Scheduler, load, o)
	bar.end()
	return report, err
}

func (p *plan) open(i int) (*workload.Load, error) {
	c := p.configs[i].Scheduler
	if workload.IsGenerated(p.load[0]) {
		return workload.Generate(p.load, p.options.Seed, c)
	}
	var others []scheduler.Config // a recording may have keys of limits of the other configuration only
	for _, other := range p.configs {
		others = append(others, other.Scheduler)
	}
	return workload.Open(p.load[0], c, others...)
}

// formats draw a chart, by the ending of its file's name.
var formats = map[string]func(chart.Chart) ([]byte, error){
	".png": chart.Chart.PNG,
	".svg": func(c chart.Chart) ([]byte, error) { return c.SVG(chart.Style()), nil },
}

func extension(path string) string { return strings.ToLower(filepath.Ext(path)) }

func draw(path string, reports []*preview.Report) error {
	picture, err := formats[extension(path)](preview.Chart(reports...))
	if err == nil {
		err = os.WriteFile(path, picture, 0o666)
	}
	if err != nil {
		return fmt.Errorf("--chart: %w", err)
	}
	return nil
}

func (p *plan) print(w io.Writer, reports []*preview.Report) error {
	if !p.json {
		return preview.Text(w, reports...)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"load": strings.Join(p.load, "; "), "reports": reports})
}

// checkConditions fails if a condition holds for the first configuration.
func (p *plan) checkConditions(r *preview.Report) error {
	var errs []error
	for _, c := range p.conditions {
		holds, err := c.Holds(r)
		if err == nil && holds {
			err = fmt.Errorf("--fail-if: %s holds for %s", c, r.Config)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// A bar shows progress on a terminal, and nothing elsewhere.
type bar struct{ *progressbar.ProgressBar }

// barUnits is the end of a bar's count.
const barUnits = 1000

func newBar(w io.Writer, name string) bar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return bar{}
	}
	return bar{progressbar.NewOptions(barUnits, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(name),
		progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

func (b bar) set(done float64) {
	if b.ProgressBar != nil {
		b.Set(int(done * barUnits)) // it fails only if the terminal does
	}
}

func (b bar) end() {
	if b.ProgressBar != nil {
		b.Finish()
	}
}
