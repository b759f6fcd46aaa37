package config

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// minWindow is the shortest window of a limit: what is shorter than the network's
// jitter cannot be counted from here.
const minWindow = time.Millisecond

// config turns a decoded file into a Config. What only the scheduler can judge
// is left to its Validate.
func (r *reader) config(f *file) *Config {
	c := &Config{
		Admin:     f.Admin,
		Log:       Log(f.Log),
		Grace:     DefaultGrace,
		Scheduler: scheduler.Config{Upstreams: make(map[string]scheduler.Upstream)},
		Listeners: make(map[string]Listener),
	}
	r.store(c, f)
	r.oneOf("log.level", f.Log.Level, "debug", "info", "warn", "error")
	r.oneOf("log.format", f.Log.Format, "text", "json")
	if f.Grace != nil { // 0s is allowed: a stop that waits for nobody
		if c.Grace = time.Duration(*f.Grace); c.Grace < 0 {
			r.fault("grace", "is %v, must not be negative", c.Grace)
		}
	}
	var taken []listenAddress
	if a, ok := r.listen("admin", f.Admin, &taken); ok && !a.loopback() {
		c.Warnings = append(c.Warnings, "admin: "+f.Admin+" can be reached from other hosts, and the admin API asks nobody who they are")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Upstreams)) {
		path, from := "upstreams."+name, f.Upstreams[name]
		u := r.upstream(path, from)
		c.Scheduler.Upstreams[name] = u
		if timeout := orDefault(u.Timeout, upstream.DefaultTimeout); timeout > c.Grace {
			c.Warnings = append(c.Warnings, path+".timeout: "+timeout.String()+" is longer than grace, "+c.Grace.String()+": a stop may cut attempts, whose outcome is then unknown")
		}
		refusal := r.refusal(path+".refusal", from.Refusal)
		if from.Listen != "" {
			r.listen(path+".listen", from.Listen, &taken)
			c.Listeners[name] = Listener{from.Listen, orDefault(u.MaxBody, scheduler.DefaultMaxBody), from.Replay, refusal}
		}
	}
	return c
}

func (r *reader) upstream(path string, f fileUpstream) scheduler.Upstream {
	u := scheduler.Upstream{
		Config:  upstream.Config{URL: f.URL, Idempotent: f.Idempotent},
		Durable: f.Durable.source(),
		NoBody:  f.NoBody.source(),
		Resend:  f.Resend,
		Weights: f.Weights,
	}
	positive(r, path+".timeout", f.Timeout, &u.Timeout)
	positive(r, path+".late", f.Late, &u.Late)
	atMost(r, path+".late", u.Late, quota.MaxWindow)
	positive(r, path+".max_wait", f.MaxWait, &u.MaxWait)
	positive(r, path+".max_age", f.MaxAge, &u.MaxAge)
	positive(r, path+".max_waiting", f.MaxWaiting, &u.MaxWaiting)
	positive(r, path+".max_waiting_bytes", f.MaxWaitingBytes, &u.MaxWaitingBytes)
	positive(r, path+".max_body", f.MaxBody, &u.MaxBody)
	positive(r, path+".concurrency", f.Concurrency, &u.Concurrency)
	positive(r, path+".spacing.burst", f.Spacing.Burst, &u.Burst)

	r.retry(path+".retry", f.Retry, &u.Retry)
	u.Outcomes = r.rules(path+".outcomes", f.Outcomes)
	r.attempts(path, f, &u)
	r.named(path, &f)
	u.ShareBy = f.ShareBy
	for i, l := range f.Limits {
		u.Limits = append(u.Limits, r.limit(index(path+".limits", i), l))
	}
	return u
}

func (r *reader) limit(path string, f fileLimit) scheduler.Limit {
	l := scheduler.Limit{Name: f.Name, When: f.When, PerKey: f.PerKey, Calls: f.Calls}
	positive(r, path+".concurrency", f.Concurrency, &l.Concurrency)
	positive(r, path+".guard", f.Guard, &l.Guard)
	atMost(r, path+".concurrency", l.Concurrency, quota.MaxCalls)
	atMost(r, path+".calls", l.Calls, quota.MaxCalls)
	atMost(r, path+".guard", l.Guard, quota.MaxWindow)
	for _, o := range f.Counts {
		l.Counts = append(l.Counts, upstream.Outcome(o))
	}
	if f.Cost != nil {
		l.Cost = string(*f.Cost)
		most := max(l.Calls, l.Concurrency)
		if n, err := strconv.Atoi(l.Cost); err == nil && n < 1 {
			r.fault(path+".cost", "is %d, must be at least 1", n)
		} else if err == nil && most > 0 && n > most {
			r.fault(path+".cost", "is %d, but the limit has only %d: every call would be refused", n, most)
		}
	}
	if f.Window != nil && f.Window.unit != 0 {
		l.Calendar = r.calendar(path, f)
		return l
	}
	if f.Window != nil {
		l.Window = f.Window.length
		if l.Window > 0 && l.Window < minWindow {
			r.fault(path+".window", "is %v, must be at least %v; give the calls of a longer one", l.Window, minWindow)
		}
		atMost(r, path+".window", l.Window, quota.MaxWindow)
	}
	const aligned = "belongs to a window of minute, hour, day or month; this one is not aligned to a clock"
	if f.TimeZone != "" {
		r.fault(path+".time_zone", aligned)
	}
	if f.Skew != nil {
		r.fault(path+".skew", aligned)
	}
	return l
}

func (r *reader) calendar(path string, f fileLimit) *quota.Calendar {
	c := &quota.Calendar{Unit: f.Window.unit, Zone: time.UTC, Skew: DefaultSkew}
	if f.Skew != nil { // 0s is allowed: clocks that are known to agree
		if c.Skew = time.Duration(*f.Skew); c.Skew < 0 {
			r.fault(path+".skew", "is %v, must not be negative", c.Skew)
		}
	}
	zone, err := time.LoadLocation(f.TimeZone)
	switch {
	case err != nil:
		r.fault(path+".time_zone", "%q is not a time zone; write its IANA name, such as Asia/Shanghai or UTC", f.TimeZone)
	case strings.EqualFold(f.TimeZone, "local"):
		r.fault(path+".time_zone", "%q is another one on each machine; write the provider's, such as Asia/Shanghai", f.TimeZone)
	default:
		c.Zone = zone
	}
	return c
}

// oneOf faults a value that is none of those known.
func (r *reader) oneOf(path, value string, known ...string) {
	if !slices.Contains(known, value) {
		r.fault(path, "%q is unknown, must be one of: %s", value, strings.Join(known, ", "))
	}
}

// positive takes over a value that the file gives. One that is not above 0 is a
// fault: the scheduler would take a zero for the default.
func positive[F, T ~int | ~int64](r *reader, path string, from *F, to *T) {
	if from == nil {
		return
	}
	if *to = T(*from); *to <= 0 {
		r.fault(path, "is %v, must be above 0; leave the key out for the default", *to)
	}
}

// atMost faults a value above what the ledger of limits can count.
func atMost[T ~int | ~int64](r *reader, path string, value, most T) {
	if value > most {
		r.fault(path, "is %v, must be at most %v", value, most)
	}
}

func orDefault[T comparable](value, zero T) T {
	if value == *new(T) {
		return zero
	}
	return value
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// A listenAddress is where something listens, and the key that says so.
type listenAddress struct{ path, host, port string }

// listen checks an address, also against those taken already.
func (r *reader) listen(path, address string, taken *[]listenAddress) (listenAddress, bool) {
	host, port, err := net.SplitHostPort(address)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || strings.ContainsAny(host, " /@") {
		r.fault(path, "is not a listen address; write host and port, such as 127.0.0.1:8081, or :8081 for all hosts")
		return listenAddress{}, false
	} else if port = strconv.FormatUint(n, 10); host == "localhost" {
		host = "127.0.0.1"
	}
	a := listenAddress{path, host, port}
	i := slices.IndexFunc(*taken, a.clashes)
	if i >= 0 {
		r.fault(path, "%s is taken by %s", address, (*taken)[i].path)
	}
	*taken = append(*taken, a)
	return a, i < 0
}

// clashes reports whether two addresses cannot be listened on at once. Port 0 is
// a free one each time.
func (a listenAddress) clashes(b listenAddress) bool {
	return a.port == b.port && a.port != "0" && (a.host == b.host || a.all() || b.all())
}

// all reports whether the address is on every interface: Go listens on both
// families for either form.
func (a listenAddress) all() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.IsUnspecified()
}

func (a listenAddress) loopback() bool {
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.IsLoopback()
}
