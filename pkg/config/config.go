// Package config reads the YAML file of a sidecar, or of a program that embeds
// the scheduler, into typed values. It reports all faults of a file at once,
// each with its line and path.
//
// [Load] reads a file, the environment and flags; [Parse] reads a text alone, and [Inspect] one
// that is not trusted; [AddFlags] defines the flags; [Config.Diff] lists the changes between two files.
//
//	c, err := config.Load("throttler.yaml", cmd.Flags())
//	if err != nil {
//		return err // throttler.yaml:7: upstreams.alipay.limits[0].window: "1 sec" is not a duration; …
//	}
//	s, err := scheduler.New(c.Scheduler)
//
// configs/throttler.yaml is the reference of all keys.
//
// # Precedence
//
// A flag overrides an environment variable, a variable overrides the file, and
// the file overrides the upstream's preset. The variable of a key is its path in
// capitals: THROTTLER_LOG_LEVEL, THROTTLER_UPSTREAMS_ALIPAY_URL. Every key
// outside lists, weights and headers has one, for the upstreams that the file
// names; an empty variable counts as unset. A list of the file replaces the
// preset's list. Exception: outcomes are joined, the file's rules first.
//
// # Case
//
// Keys are compared without regard to case (viper makes them lower-case), and so
// are names that are keys: upstreams, weights (a flow with a weight is the same in
// any case) and header names. Two keys that differ only in case are a fault.
//
// # Not done here
//
// Nothing is started or dialled. A file is read once, not watched;
// [Config.OpenStore] opens the store, and [Config.CheckStore] only looks at it. Of other
// files, only keys and certificates are read. Secrets are named by reference. Messages
// show values, but none that may be secret: no header value, no argument of a command,
// and of a URL no more than host and path. The database of time zones is built in.
package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"reflect"
	"time"
	_ "time/tzdata" // for calendar windows on a machine without time zones

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// Defaults of absent keys.
const (
	DefaultAdmin = "127.0.0.1:9090"
	DefaultStore = "throttler.db"
	DefaultGrace = 35 * time.Second // more than an attempt's default time-out
)

// A Config is a checked file.
type Config struct {
	// Admin are the listen addresses of the admin API: host:port, or unix:PATH.
	Admin []string
	// Access says who may use the admin API. Without it, all callers by loopback addresses
	// and sockets may.
	Access *Access
	// Monitor is the listen address of probes and metrics; empty for none.
	Monitor string
	UI      UI
	Log     Log
	// Grace is the time that attempts in flight have to end when the process stops.
	Grace time.Duration
	// Scheduler has its Upstreams filled in; Store, Log and Observe are the caller's.
	Scheduler scheduler.Config
	// Store is the file that keeps calls, or the URL of a database; empty means memory. Config.OpenStore opens it.
	Store   string
	Options store.Options
	Fleet   Fleet
	// Listeners are the data listeners by upstream; an upstream without listen has none.
	Listeners map[string]Listener
	// Notifications are the listeners for notifications by upstream, where there is one.
	Notifications map[string]*Notifications
	// Warnings are about settings that are allowed but may surprise, each with its place and
	// path, in the order of the file.
	Warnings Errors

	// SHA256 is the hash of the bytes of the file, in hex.
	SHA256 string

	settings map[string]string // by path, presets included; see Diff
	places   *places
	origins  *origins
}

// A Fleet is the replicas that serve from one database.
type Fleet struct {
	Listen    string        // host:port for other replicas; empty: requests are not passed on
	Advertise string        // host:port by which they reach it; empty: this host's address on the way to the database, and the port of Listen
	Name      string        // of this replica, for people; empty: that of the host
	Lease     time.Duration // zero: that of package postgres
	password  string
}

// A UI configures the dashboard.
type UI struct {
	Name    string // of the environment, such as PROD pay-7f9c; empty for none
	Actions bool   // false: the pages change nothing
}

// A Log configures the log.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// A Listener is the data listener of an upstream.
type Listener struct {
	Listen string // host:port
	// Hosts are the names by which clients may reach it beside the upstream's own, in
	// lower case. Without any, it checks names at loopback addresses only.
	Hosts   []string
	MaxBody int64 // greatest size of a request's body, in bytes
	// Replay gives the stored answer to a client that sends an Idempotency-Key again.
	Replay  bool
	Refusal *Refusal
}

// Load reads a file; the environment and the flags override it. Flags may be
// nil. Faults of the content are [Errors]; a file that cannot be read is
// another error.
func Load(path string, flags *pflag.FlagSet) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return load(path, text, whole, flags)
}

// Parse reads a file's text, without environment and flags. Faults are [Errors].
func Parse(text []byte) (*Config, error) { return load("", text, alone, nil) }

// Inspect reads a text of which nothing is trusted, as Parse does, but opens nothing that it names:
// no key, certificate, program, user or variable; of these only the form is checked. (The
// database of time zones is the host's.) So its faults say nothing about the host. A text with more
// than 10,000 items in a section or list, or more than 50,000 values, is a fault. The limits of the
// Config can be previewed; the Config cannot serve.
func Inspect(text []byte) (*Config, error) { return load("", text, closed, nil) }

// A mode says which parts of the host a configuration is read with.
type mode int

const (
	whole  mode = iota // the environment, and the files that it names
	alone              // these files, without the environment
	closed             // neither
)

// separator joins the parts of viper's keys. It is a byte that no key can
// contain: a dot is allowed in the name of a flow.
const separator = "\x1f"

func load(name string, text []byte, reading mode, flags *pflag.FlagSet) (*Config, error) {
	doc, at, err := parse(name, text, reading)
	if err != nil {
		return nil, hideTokens(err)
	}
	faults := newFaultList(at)
	faults.closed = reading == closed
	checkKeys(faults, "", doc, reflect.TypeFor[file]())
	from := newOrigins(doc)

	v := viper.NewWithOptions(viper.KeyDelimiter(separator))
	if err := v.MergeConfigMap(doc); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	upstreams, _ := v.Get("upstreams").(map[string]any)
	if reading == whole {
		bindEnvironment(faults, v, upstreams)
	}
	bindFlags(faults, v, flags)
	presets := make(map[string][]fileRule)
	for name := range upstreams {
		presets[name], from.presets[name] = addPreset(faults, v, name)
	}

	settings := v.AllSettings()
	if settings["access"] == nil && v.IsSet("access") { // an empty section keeps callers out
		settings["access"] = map[string]any{}
	}
	f := decode(faults, maps.Clone(settings), presets)
	for name, preset := range from.presets {
		preset.limited = len(f.Upstreams[name].Limited.all)
		from.presets[name] = preset
	}
	c := f.convert(faults)
	markPresets(c, from.presets)
	c.keep(settings)
	from.index(settings)
	faults.merge(c.Scheduler.Validate())
	if len(faults.faults) > 0 {
		return nil, hideTokens(faults.sorted(faults.faults))
	}
	c.Warnings = faults.sorted(faults.warnings)
	hideTokens(c.Warnings)
	c.places, c.origins, c.SHA256 = at, from, fmt.Sprintf("%x", sha256.Sum256(text))
	return c, nil
}

// AdminKey returns the path of the i-th address of the admin API.
func (c *Config) AdminKey(i int) string {
	if len(c.Admin) == 1 {
		return "admin"
	}
	return index("admin", i)
}

// Fault returns an error as the fault of a key, with the key's place in the file. It is
// for faults that only the use of a value shows, such as an address that is taken.
func (c *Config) Fault(path string, err error) *Fault {
	if c.places == nil {
		return &Fault{"", path, err}
	}
	place, _ := c.places.of(path)
	return &Fault{place, path, err}
}

// Settings returns each value that is in force, by its path: those of the file, the environment
// and the flags, those of presets, and the defaults of other keys that have one.
func (c *Config) Settings() []Setting { return settingsOf(c) }

// Hints are remarks on a configuration that is right, each with its place, in the order of the file.
func (c *Config) Hints() Errors { return hintsOf(c) }

// Source returns where the value of a key comes from: a line of the file, a variable, a flag, a
// line of a preset, or default. Rules of an upstream's preset follow those of the file.
func (c *Config) Source(path string) string { return sourceOf(c, path) }

// RuleSource returns where a rule or a proof of an upstream comes from, by its name in a
// [upstream.Result], such as limited[0] or outcomes[2] of preset stripe.
func (c *Config) RuleSource(upstream, rule string) string { return ruleSource(c, upstream, rule) }
