package main

import (
	"bytes"
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
  throttler plan -c throttler.yaml --load load.jsonl --compare wanted.yaml --report plan.html
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
	flags.Uint64("seed", preview.DefaultSeed, "seed of all that is drawn at random")
	flags.String("chart", "", "draw into this `file`: .svg, or .png (Latin, Greek and Cyrillic letters only)")
	flags.String("report", "", "write a page with findings, charts and tables into this `file`")
	flags.StringArray("fail-if", nil, "fail if this `expression` holds, such as wait.p99 > 5s")
	return cmd
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// A plan has the flags of throttler plan.
type plan struct {
	files      []string // configurations
	variants   []preview.Variant
	load       []string
	options    preview.Options
	json       bool
	chart      string // a file, or empty
	report     string // a file, or empty
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
	p.report, _ = flags.GetString("report")
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
		p.variants = append(p.variants, preview.Variant{Name: filepath.Base(file), Config: c.Scheduler})
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
	bar := newBar(cmd.ErrOrStderr())
	p.options.Progress = bar.set
	c, err := preview.Compare(ctx, p.source(), p.options, p.conditions, p.variants...)
	bar.end()
	if err != nil {
		return err
	}
	if p.chart != "" {
		if err := draw(p.chart, c.Reports); err != nil {
			return err
		}
	}
	if p.report != "" {
		if err := p.writeReport(c); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if err := p.print(cmd.OutOrStdout(), c); err != nil {
		return err
	}
	return failed(c.Verdicts[:len(p.conditions)])
}

// source returns the load: a file, or settings.
func (p *plan) source() preview.Source {
	return func(c scheduler.Config, others ...scheduler.Config) (*workload.Load, error) {
		if workload.IsGenerated(p.load[0]) {
			return workload.Generate(p.load, p.options.Seed, c)
		}
		return workload.Open(p.load[0], c, others...)
	}
}

// writeReport writes the comparison as a page.
func (p *plan) writeReport(c *preview.Comparison) error {
	command := preview.Command{Files: p.files, Load: p.load, Options: p.options}
	for _, c := range p.conditions {
		command.FailIf = append(command.FailIf, c.String())
	}
	var page bytes.Buffer
	if err := preview.HTML(&page, c, preview.Page{At: time.Now(), Command: command.String()}); err != nil {
		return err
	}
	return os.WriteFile(p.report, page.Bytes(), 0o666)
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

func (p *plan) print(w io.Writer, c *preview.Comparison) error {
	if !p.json {
		return preview.Text(w, c.Reports...)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"load": strings.Join(p.load, "; "), "reports": c.Reports, "findings": c.Findings, "conditions": c.Verdicts})
}

// failed returns an error if one of the conditions holds. They are those of the first
// configuration.
func failed(verdicts []preview.Verdict) error {
	var errs []error
	for _, v := range verdicts {
		switch {
		case v.Err != "":
			errs = append(errs, errors.New(v.Err))
		case v.Holds:
			errs = append(errs, fmt.Errorf("--fail-if: %s holds for %s", v.Condition, v.Config))
		}
	}
	return errors.Join(errs...)
}

// A bar shows progress on a terminal, and nothing elsewhere.
type bar struct{ *progressbar.ProgressBar }

// barUnits is the end of a bar's count.
const barUnits = 1000

func newBar(w io.Writer) bar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return bar{}
	}
	return bar{progressbar.NewOptions(barUnits, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("preview"),
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
