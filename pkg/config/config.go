// Package config reads the YAML file of a sidecar, or of a program that embeds
// the scheduler, into typed values. It reports everything that is wrong with a
// file at once, each fault with its path.
//
// [Load] reads a file, the environment and flags; [Parse] reads a text and
// nothing else; [AddFlags] defines the flags; [Config.Diff] tells what has changed.
//
//	c, err := config.Load("throttler.yaml", cmd.Flags())
//	if err != nil {
//		return err // upstreams.alipay.limits[0].window: "1 sec" is not a duration; …
//	}
//	s, err := scheduler.New(c.Scheduler)
//
// configs/throttler.yaml is the reference of all keys.
//
// # What stands above what
//
// A flag stands above an environment variable, that above the file, and the file
// above the upstream's preset. The variable of a key is its path in capitals:
// THROTTLER_LOG_LEVEL, THROTTLER_UPSTREAMS_ALIPAY_URL. Every key outside lists,
// weights and headers has one, for the upstreams that the file names; an empty
// variable is as good as none. Of lists, the file's replaces the preset's, but
// outcomes are joined: the file's rules are asked first.
//
// # Case
//
// Keys are told apart without regard to case (viper writes them small), and so
// are the names that are keys: upstreams, weights (a flow that has one is the same
// in any case) and header names. Two that differ only in case are a fault.
//
// # What it does not do
//
// Nothing is started or dialled, and a file is read once, not watched; the store is
// opened by [Config.OpenStore]. Of other files, only keys and certificates are read.
// Secrets are named by reference.
// Messages show keys, expressions, addresses and durations, but no header value
// and no URL. The database of time zones is built in.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // day: in Asia/Shanghai, also on a machine without zones

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// Defaults of a file that does not say otherwise.
const (
	DefaultAdmin = "127.0.0.1:9090"
	DefaultStore = "throttler.db"
	DefaultGrace = 35 * time.Second // more than an attempt's default time-out
	DefaultSkew  = time.Second
)

// A Config is a file, checked.
type Config struct {
	// Admin is the listen address of the admin API.
	Admin string
	Log   Log
	// Grace is how long attempts in flight may go on at a stop.
	Grace time.Duration
	// Scheduler has its Upstreams filled in; Store, Log and Observe are the caller's.
	Scheduler scheduler.Config
	// Store is the file in which calls are kept; empty means memory. Config.OpenStore opens it.
	Store   string
	Options store.Options
	// Listeners are the ways in, by upstream; one without listen has none.
	Listeners map[string]Listener
	// Warnings say what is allowed but may surprise, each with its path.
	Warnings []string

	settings map[string]string // by path, presets included; see Diff
}

// A Log says how to log.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// A Listener is where the callers of an upstream come in.
type Listener struct {
	Listen  string // host:port
	MaxBody int64  // bytes of a request's body, at most
	// Replay lets a client that sends an Idempotency-Key again have the stored answer.
	Replay  bool
	Refusal *Refusal
}

// Errors are all faults of a file, sorted by path.
type Errors []*scheduler.ConfigError

// Error gives one fault per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, fault := range e {
		errs[i] = fault
	}
	return errs
}

// flagKeys are the flags and the keys that they stand above.
var flagKeys = map[string]string{"admin": "admin", "log-level": "log.level", "log-format": "log.format"}

// AddFlags defines the flags that stand above the file.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("admin", DefaultAdmin, "listen address of the admin API")
	flags.String("log-level", "info", "debug, info, warn or error")
	flags.String("log-format", "text", "text or json")
}

// Load reads a file, with the environment and the flags above it. Flags may be
// nil. Faults of the content are [Errors]; a file that cannot be read is not.
func Load(path string, flags *pflag.FlagSet) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return load(text, true, flags)
}

// Parse reads a file's text alone: no environment, no flags. Faults are [Errors].
func Parse(text []byte) (*Config, error) { return load(text, false, nil) }

// separator joins the parts of viper's keys. It is a byte that no key can hold,
// because a dot may stand in the name of a flow.
const separator = "\x1f"

func load(text []byte, environment bool, flags *pflag.FlagSet) (*Config, error) {
	doc, err := parse(text)
	if err != nil {
		return nil, err
	}
	r := &reader{sources: make(map[string]string)}
	r.check("", doc, reflect.TypeFor[file]())

	v := viper.NewWithOptions(viper.KeyDelimiter(separator))
	if err := v.MergeConfigMap(doc); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	upstreams, _ := v.Get("upstreams").(map[string]any)
	var warnings []string
	if environment {
		warnings = r.environment(v, upstreams)
	}
	r.flags(v, flags)
	presets := make(map[string][]fileRule)
	for name := range upstreams {
		presets[name] = r.preset(v, name)
	}

	c := r.config(r.decode(v.AllSettings(), presets))
	c.settings = make(map[string]string)
	flatten(c.settings, "", v.AllSettings())
	c.Warnings = append(c.Warnings, warnings...)
	r.merge(c.Scheduler.Validate())
	if len(r.faults) > 0 {
		return nil, r.errors()
	}
	return c, nil
}

// A reader gathers what is wrong with a file.
type reader struct {
	faults  Errors
	sources map[string]string // paths whose value is not the file's: the variable or flag
}

func (r *reader) fault(path, format string, args ...any) {
	r.faults = append(r.faults, &scheduler.ConfigError{Path: path, Err: fmt.Errorf(format, args...)})
}

// merge adds the faults that the scheduler finds, but none that follow from a
// fault known already, such as a window that is missing because it was no duration.
func (r *reader) merge(err error) {
	known := r.faults
	for _, err := range split(err) {
		var fault *scheduler.ConfigError
		if !errors.As(err, &fault) {
			fault = &scheduler.ConfigError{Path: "upstreams", Err: err}
		}
		if !slices.ContainsFunc(known, func(k *scheduler.ConfigError) bool { return within(fault.Path, k.Path) }) {
			r.faults = append(r.faults, fault)
		}
	}
}

// within reports whether a path is another, or below it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// split undoes errors.Join, at every depth.
func split(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, split(err)...)
	}
	return all
}

var digits = regexp.MustCompile(`\d+`)

// errors returns the faults in the order of their paths, limits[2] before limits[10].
func (r *reader) errors() Errors {
	for _, f := range r.faults {
		if from := r.sources[f.Path]; from != "" {
			f.Err = fmt.Errorf("%w (set by %s)", f.Err, from)
		}
	}
	order := func(path string) string {
		return digits.ReplaceAllStringFunc(path, func(n string) string { return fmt.Sprintf("%020s", n) })
	}
	slices.SortStableFunc(r.faults, func(a, b *scheduler.ConfigError) int {
		return cmp.Compare(order(a.Path), order(b.Path))
	})
	return r.faults
}
