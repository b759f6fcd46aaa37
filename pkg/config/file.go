package config

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Each type named file… is a section of the file: a field is a key. Sections lie beside
// their checks and their conversion. configs/throttler.yaml documents each key too, and
// a test compares the two lists of keys. A pointer is nil for an absent key, which has
// its default: a zero is never a default in disguise.

type file struct {
	// Admin is the listen address of the admin API, host:port or unix:PATH, or a list of
	// them. Default 127.0.0.1:9090.
	Admin addresses `key:"admin"`
	// Monitor is a listen address, host:port, for probes and metrics alone, without access.
	// Default: there is none.
	Monitor address `key:"monitor"`
	// Access says who may use the admin API. Default: callers by loopback addresses and
	// sockets may do everything, and there may be no other address.
	Access *fileAccess `key:"access"`
	UI     fileUI      `key:"ui"`
	// Store is the file that keeps submitted calls and quota usage, or a database in
	// PostgreSQL, as in postgres://throttler@db.internal/throttler?sslmode=verify-full, from which
	// several replicas serve, one at a time, or memory, which covers one process life. Default throttler.db.
	Store string `key:"store"`
	// StoreSecret refers to the password for the database: env:NAME or file:PATH. Default: PGPASSWORD, .pgpass or none.
	StoreSecret string    `key:"store_secret"`
	Fleet       fileFleet `key:"fleet"`
	// KeepCalls is the time for which finished calls and their answers are kept. Default 168h.
	KeepCalls *duration `key:"keep_calls"`
	// KeepKeys is the time for which idempotency keys are kept after the end of their
	// calls, at most keep_calls. Default 24h.
	KeepKeys *duration `key:"keep_keys"`
	// KeepAudit is the time for which records of the audit are kept: what people, and programs
	// in their name, have asked for. Default 9600h.
	KeepAudit *duration `key:"keep_audit"`
	// LongWindow is the window above which quota usage is stored in
	// blocks, ahead of the sends. Default 1m.
	LongWindow *duration `key:"long_window"`
	// SealKey refers to the key that encrypts requests and answers in the store:
	// env:NAME or file:PATH, 32 bytes in base64. Default: they are not encrypted.
	SealKey string  `key:"seal_key"`
	Log     fileLog `key:"log"`
	// Grace is the time that attempts in flight have to end when the process stops.
	// Default 35s.
	Grace *duration `key:"grace"`
	// Upstreams by name: lower-case letters, digits, - and _.
	Upstreams map[string]fileUpstream `key:"upstreams"`
}

type fileFleet struct {
	// Listen is the address at which other replicas pass requests on to this one, such as 0.0.0.0:9191, by TLS. Default:
	// none, and a replica that does not have the calls refuses requests.
	Listen address `key:"listen"`
	// Advertise is the address by which they reach it. Default: that of this host on the way to the database, with the port
	// of listen.
	Advertise string `key:"advertise"`
	// Name is that of this replica, for people. Default: that of the host.
	Name string `key:"name"`
	// Lease is how long a replica that has fallen silent keeps the calls, before another one takes them over:
	// 500ms to 30s. Default 2s.
	Lease *duration `key:"lease"`
}

type fileUI struct {
	// Name is that of the environment, such as PROD pay-7f9c. Each page of the dashboard shows it.
	Name string `key:"name"`
	// Actions is false if the dashboard changes nothing. Default true.
	Actions *bool `key:"actions"`
}

type fileLog struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level"`
	// Format is text or json. Default text.
	Format string `key:"format"`
}

// convert checks the values that the scheduler's Validate does not see.
func (f *file) convert(faults *faultList) *Config {
	c := &Config{
		Admin:     f.Admin.all,
		UI:        f.UI.convert(faults),
		Log:       Log(f.Log),
		Grace:     DefaultGrace,
		Scheduler: scheduler.Config{Upstreams: make(map[string]scheduler.Upstream)},
		Listeners: make(map[string]Listener), Notifications: make(map[string]*Notifications),
	}
	f.store(faults, c)
	oneOf(faults, "log.level", f.Log.Level, "debug", "info", "warn", "error")
	oneOf(faults, "log.format", f.Log.Format, "text", "json")
	if f.Grace != nil { // 0s is allowed: a stop that does not wait
		if c.Grace = time.Duration(*f.Grace); c.Grace < 0 {
			faults.add("grace", "is %v, must not be negative", c.Grace)
		}
	}
	var taken []listenAddress
	f.admin(faults, c, &taken)
	f.fleet(faults, c, &taken)
	for _, name := range slices.Sorted(maps.Keys(f.Upstreams)) {
		path, from := "upstreams."+name, f.Upstreams[name]
		u := from.convert(faults, path)
		c.Scheduler.Upstreams[name] = u
		if len(u.Limits) == 0 && u.Concurrency == 0 {
			faults.warn(path+".limits", "there are none, so calls are sent as they come, up to %d at once; give the limits of the API", scheduler.Defaults().Concurrency)
		}
		if timeout := orDefault(u.Timeout, upstream.DefaultTimeout); timeout > c.Grace {
			faults.warn(path+".timeout", "%v is longer than grace, %v: a stop may cut attempts, and their outcome is then unknown; write grace: %v", timeout, c.Grace, timeout)
		}
		if n := from.Notifications.convert(faults, path+".notifications", &u, &taken); n != nil {
			c.Notifications[name] = n
		}
		refusal := from.Refusal.convert(faults, path+".refusal")
		hosts := convertHosts(faults, path+".hosts", from.Hosts)
		if from.Listen != "" {
			if a, ok := listen(faults, path+".listen", string(from.Listen), &taken); ok && !a.loopback() && u.Signer != nil {
				faults.warn(path+".listen", "%s can be reached from other hosts, and the signer signs what they send; write %s, or keep other hosts out", from.Listen, net.JoinHostPort("127.0.0.1", a.port))
			}
			c.Listeners[name] = Listener{string(from.Listen), hosts, orDefault(u.MaxBody, scheduler.Defaults().MaxBody), from.Replay, refusal}
		}
	}
	return c
}

// maxUIName is the longest name of an environment, in characters: it is on each page, also of
// a phone.
const maxUIName = 40

func (f fileUI) convert(faults *faultList) UI {
	switch {
	case utf8.RuneCountInString(f.Name) > maxUIName:
		faults.add("ui.name", "has %d characters, at most %d are shown; write a short one, such as PROD pay", utf8.RuneCountInString(f.Name), maxUIName)
	case strings.TrimSpace(f.Name) != f.Name || strings.ContainsFunc(f.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		faults.add("ui.name", "is %q; write it without control characters, and without space around it", f.Name)
	}
	return UI{f.Name, f.Actions == nil || *f.Actions}
}

func orDefault[T comparable](value, zero T) T {
	if value == *new(T) {
		return zero
	}
	return value
}
