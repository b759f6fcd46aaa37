package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Metrics counts a scheduler's events. Label values are names of the configuration
// and constants: never keys or paths.
type Metrics struct {
	*prometheus.Registry
	accepted, refused, ended, attempts, limited, pauses *prometheus.CounterVec
	notified, asked                                     *prometheus.CounterVec
	passed, terms                                       *prometheus.CounterVec
	losses, doubted                                     prometheus.Counter // nil without a fleet
	wait, attempt                                       *prometheus.HistogramVec
	reloaded, loadedAt                                  prometheus.Gauge

	watched atomic.Pointer[scheduler.Scheduler] // nil before the first one

	mu    sync.RWMutex
	calls map[string]*callMetrics // by upstream
}

// callMetrics are the metrics of an upstream that each call counts in: to find them by their
// labels takes longer than to count.
type callMetrics struct {
	accepted, limited prometheus.Counter
	attempts          map[upstream.Outcome]prometheus.Counter
	ended             map[scheduler.State]prometheus.Counter
	wait, attempt     prometheus.Observer
}

// NewMetrics returns metrics of a sidecar of a version; their Observe is for
// scheduler.Config, Data and Admin.
func NewMetrics(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "throttler_" + name, Help: help}, append([]string{"upstream"}, labels...))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "throttler_" + name, Help: help,
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 3600},
		}, []string{"upstream"})
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		calls:    make(map[string]*callMetrics),
		accepted: counter("calls_accepted_total", "Calls accepted from callers."),
		refused:  counter("calls_refused_total", "Calls refused by Throttler itself.", "reason"),
		ended:    counter("calls_ended_total", "Calls that finished, or became unknown.", "state"),
		attempts: counter("attempts_total", "Attempts, by outcome.", "outcome"),
		limited:  counter("attempts_limited_total", "Attempts that the upstream limited, although its limits had room here: there should be none."),
		pauses:   counter("pauses_total", "Pauses, by limit (empty: the whole upstream) and cause: an answer, an operator, or the circuit breaker (down, failing, silent).", "limit", "cause"),
		notified: counter("notifications_total", "Notifications of the platform: passed on to the merchant, undelivered, unverified, or refused.", "result"),
		asked:    counter("notification_queries_total", "Calls of unknown outcome that a notification let be queried at once."),
		passed:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "throttler_fleet_passed_on_total", Help: "Requests that came while another replica had the calls, by how they ended: answered by it, unknown (it gave no answer), or refused."}, []string{"result"}),
		terms:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "throttler_fleet_terms_total", Help: "Times that this replica has taken the calls over, by the end of the owner before: clean, crash or buried."}, []string{"before"}),
		wait:     histogram("wait_seconds", "Time from the acceptance of a call to the start of each of its attempts."),
		attempt:  histogram("attempt_seconds", "Duration of attempts."),

		reloaded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "throttler_config_last_reload_successful", Help: "1 if the last reload of the configuration succeeded, or there was none."}),
		loadedAt: prometheus.NewGauge(prometheus.GaugeOpts{Name: "throttler_config_last_reload_success_timestamp_seconds", Help: "When the running configuration was read."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "throttler_build_info", Help: "1, with the version of Throttler.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.MustRegister(build, m.reloaded, m.loadedAt, m.accepted, m.refused, m.ended, m.attempts, m.limited, m.pauses, m.notified, m.asked, m.passed, m.terms, m.wait, m.attempt,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return m
}

// Loaded notes that the configuration was read at an instant, or could not be.
func (m *Metrics) Loaded(at time.Time, err error) {
	if err != nil {
		m.reloaded.Set(0)
		return
	}
	m.reloaded.Set(1)
	m.loadedAt.Set(float64(at.UnixMilli()) / 1000)
}

// Passed counts a request that came while another replica had the calls.
func (m *Metrics) Passed(result string) { m.passed.WithLabelValues(result).Inc() }

// Took counts a term that this replica begins, by the end of the one before.
func (m *Metrics) Took(before string) { m.terms.WithLabelValues(before).Inc() }

// Lost counts a loss of commits that a term of this replica has begun with, and the calls that it has made unknown.
func (m *Metrics) Lost(unknown int) {
	m.losses.Inc()
	m.doubted.Add(float64(unknown))
}

// WatchFleet adds the state of a fleet at each scrape.
func (m *Metrics) WatchFleet(f Fleet) {
	for _, result := range []string{"answered", "unknown", "refused"} {
		m.passed.WithLabelValues(result)
	}
	for _, before := range []string{"clean", "crash", "buried"} {
		m.terms.WithLabelValues(before)
	}
	m.losses = prometheus.NewCounter(prometheus.CounterOpts{Name: "throttler_fleet_losses_total", Help: "Losses of commits that the server had confirmed. The next owner counts a loss, once, when it begins: the sum over replicas is right."})
	m.doubted = prometheus.NewCounter(prometheus.CounterOpts{Name: "throttler_fleet_losses_unknown_calls_total", Help: "Calls that waited, and became unknown because the server has lost commits."})
	m.MustRegister(m.losses, m.doubted)
	number := func(name, help string, value func() float64) {
		m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "throttler_fleet_" + name, Help: help}, value))
	}
	gauge := func(name, help string, value func(v api.Fleet) float64) {
		number(name, help, func() float64 { return value(f.View()) })
	}
	self := func(is func(api.Replica) bool) func(api.Fleet) float64 {
		return func(v api.Fleet) float64 {
			if slices.ContainsFunc(v.Replicas, func(r api.Replica) bool { return r.Self && is(r) }) {
				return 1
			}
			return 0
		}
	}
	gauge("replicas", "Replicas in the registry that were heard of within a lease.", func(v api.Fleet) (n float64) {
		for _, r := range v.Replicas {
			if r.SilentMS <= v.LeaseMS {
				n++
			}
		}
		return n
	})
	gauge("epoch", "Owners so far. At each replica it is the same, unless one is cut off from the database.", func(v api.Fleet) float64 { return float64(v.Epoch) })
	gauge("owner", "1 if this replica has the calls.", self(func(r api.Replica) bool { return r.Owner }))
	gauge("config_differs", "1 if the upstreams and limits of this replica's configuration are not those of the owner, which are in force.", self(func(r api.Replica) bool { return r.Differs }))
	number("lease_seconds", "What is left of the owner's lease. It sends nothing at 0, which other replicas have.", func() float64 { return f.Lease().Seconds() })
	number("hold_seconds", "Time until the limit that is held back the longest goes on, because attempts of the last owner may count. 0: none is held back.", m.held)
}

// held returns for how many seconds limits are held back for attempts of the last process.
func (m *Metrics) held() (seconds float64) {
	s := m.watched.Load()
	if s == nil {
		return 0
	}
	pauses, _ := s.Pauses(context.Background()) // none of a scheduler that has stopped
	for _, p := range pauses {
		if p.By == "restart" {
			seconds = max(seconds, time.Until(p.Until).Seconds())
		}
	}
	return seconds
}

// Observe counts an event.
func (m *Metrics) Observe(e scheduler.Event) {
	up := e.Call.Upstream
	switch e.Kind {
	case scheduler.EventAccepted:
		m.of(up).accepted.Inc()
	case scheduler.EventRefused:
		m.refused.WithLabelValues(up, string(e.Reason)).Inc()
	case scheduler.EventAttempt:
		c := m.of(up)
		c.attempts[e.Attempt.Outcome].Inc()
		if isLimited(e) {
			c.limited.Inc()
		}
		c.wait.Observe(e.Attempt.SentAt.Sub(e.Call.AcceptedAt).Seconds())
		c.attempt.Observe(e.Attempt.EndedAt.Sub(e.Attempt.SentAt).Seconds())
	case scheduler.EventPaused:
		m.pauses.WithLabelValues(up, e.Limit, string(e.Reason)).Inc()
	case scheduler.EventEnded:
		m.of(up).ended[e.Call.State].Inc()
	}
}

// isLimited reports whether the upstream has limited the attempt of an event, and not its call alone.
func isLimited(e scheduler.Event) bool {
	return e.Attempt.Outcome == upstream.NotExecuted && e.Attempt.Status != 0 && !e.Alone
}

// of returns the metrics of an upstream, which begin at 0.
func (m *Metrics) of(name string) *callMetrics {
	m.mu.RLock()
	c := m.calls[name]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c = m.newCallMetrics(name)
	m.calls[name] = c
	return c
}

func (m *Metrics) newCallMetrics(name string) *callMetrics {
	c := &callMetrics{
		accepted: m.accepted.WithLabelValues(name), limited: m.limited.WithLabelValues(name),
		attempts: make(map[upstream.Outcome]prometheus.Counter), ended: make(map[scheduler.State]prometheus.Counter),
		wait: m.wait.WithLabelValues(name), attempt: m.attempt.WithLabelValues(name),
	}
	for _, outcome := range outcomes {
		c.attempts[outcome] = m.attempts.WithLabelValues(name, string(outcome))
	}
	for _, s := range scheduler.States {
		if s.Finished() || s == scheduler.Unknown {
			c.ended[s] = m.ended.WithLabelValues(name, string(s))
		}
	}
	return c
}

// Outcomes of attempts, causes of pauses, and reasons of refusals, as labels.
var (
	pauseCauses = []string{"answer", "operator", "down", "failing", "silent"} // those of the breaker are of whole upstreams
	outcomes    = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown}
	refusals    = []scheduler.Reason{
		scheduler.BadRequest, scheduler.BadKey, bodyTimedOut, scheduler.TooLarge, scheduler.CostTooHigh, scheduler.KeyReused,
		scheduler.PastDeadline, scheduler.Full, scheduler.Stopping, scheduler.Paused, scheduler.StoreFailed,
	}
)

// Watch adds the state of the scheduler at each scrape, and starts all counters of its
// upstreams at 0: a counter that does not exist has no rate.
func (m *Metrics) Watch(s *scheduler.Scheduler) {
	m.Unregister(stateCollector{}) // of the scheduler before
	m.MustRegister(stateCollector{s})
	m.watched.Store(s)
	upstreams, _ := s.Upstreams(context.Background())
	for _, u := range upstreams {
		m.start(u.Name)
	}
	limits, _ := s.Limits(context.Background())
	for _, l := range limits {
		if l.Limit != scheduler.ConcurrencyLimit { // a pause of it is one of the upstream
			for _, cause := range pauseCauses[:2] {
				m.pauses.WithLabelValues(l.Upstream, l.Limit, cause)
			}
		}
	}
}

// start creates the counters of an upstream, at 0.
func (m *Metrics) start(name string) {
	m.of(name)
	for _, cause := range pauseCauses {
		m.pauses.WithLabelValues(name, "", cause)
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(name, string(reason))
	}
}

// startNotifications creates the counters of notifications of an upstream, at 0.
func (m *Metrics) startNotifications(upstream string) {
	m.asked.WithLabelValues(upstream)
	for _, result := range notificationResults {
		m.notified.WithLabelValues(upstream, result)
	}
}

// stateCollector collects the current state of upstreams and limits.
type stateCollector struct{ s *scheduler.Scheduler }

var (
	ofUpstream = []string{"upstream"}
	ofLimit    = []string{"upstream", "limit"}

	waitingDesc = prometheus.NewDesc("throttler_calls_waiting", "Calls that wait.", ofUpstream, nil)
	bytesDesc   = prometheus.NewDesc("throttler_calls_bytes", "Bytes of bodies and headers of calls that wait, are sent or are unknown.", ofUpstream, nil)
	unknownDesc = prometheus.NewDesc("throttler_calls_unknown", "Submitted calls that wait for a decision.", ofUpstream, nil)
	sendingDesc = prometheus.NewDesc("throttler_calls_sending", "Attempts in flight.", ofUpstream, nil)
	upDesc      = prometheus.NewDesc("throttler_upstream_up", "1 if the upstream is neither paused, down, tripped nor removed from the configuration.", ofUpstream, nil)
	openDesc    = prometheus.NewDesc("throttler_breaker_open", "1 if the circuit breaker of the upstream is open: it is down or tripped.", ofUpstream, nil)
	rulesDesc   = prometheus.NewDesc("throttler_uncomputable_total", "Times that a rule had no value, as for a text that is compared with a number: its call is unknown, or a query settled nothing.", []string{"upstream", "rule"}, nil)

	callsDesc    = prometheus.NewDesc("throttler_limit_permits", "Permits of each key.", ofLimit, nil)
	outDesc      = prometheus.NewDesc("throttler_limit_permits_out", "Permits that are out, of all keys.", ofLimit, nil)
	inFlightDesc = prometheus.NewDesc("throttler_limit_permits_in_flight", "Permits of attempts that have not ended, of all keys.", ofLimit, nil)
	neededDesc   = prometheus.NewDesc("throttler_limit_permits_waited_for", "Permits that waiting calls will take, of all keys.", ofLimit, nil)
	mostDesc     = prometheus.NewDesc("throttler_limit_most_in_window", "Most permits of one key with calls that may have arrived within one window.", ofLimit, nil)
	lostDesc     = prometheus.NewDesc("throttler_limit_permits_unanswered_total", "Permits that attempts without an answer have used: an upstream that counts them later than late limits other attempts.", ofLimit, nil)
	holdDesc     = prometheus.NewDesc("throttler_limit_hold_cost_ratio", "Share of a saturated quota that holding permits until the response costs.", ofLimit, nil)
	guardDesc    = prometheus.NewDesc("throttler_limit_guard_win_ratio", "Share of a saturated quota that a guard would win back.", append(ofLimit, "guard"), nil)
	keysDesc     = prometheus.NewDesc("throttler_limit_live_keys", "Keys with permits out, a pause or calls waiting.", ofLimit, nil)
)

// Describe implements prometheus.Collector.
func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, bytesDesc, unknownDesc, sendingDesc, upDesc, openDesc, rulesDesc, callsDesc, outDesc, inFlightDesc, neededDesc, keysDesc, mostDesc, lostDesc, holdDesc, guardDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ctx := context.Background() // client_golang has no context for a scrape
	upstreams, err := c.s.Upstreams(ctx)
	if err != nil {
		return // the scheduler has stopped
	}
	for _, u := range upstreams {
		gauge(waitingDesc, float64(u.Waiting), u.Name)
		gauge(bytesDesc, float64(u.Bytes), u.Name)
		gauge(unknownDesc, float64(u.Unknown), u.Name)
		gauge(sendingDesc, float64(u.Sending), u.Name)
		up := 0.0
		if u.State == "up" {
			up = 1
		}
		gauge(upDesc, up, u.Name)
		open := 0.0
		if u.State == "down" || u.State == "tripped" {
			open = 1
		}
		gauge(openDesc, open, u.Name)
		for rule, times := range u.Uncomputable {
			ch <- prometheus.MustNewConstMetric(rulesDesc, prometheus.CounterValue, float64(times), u.Name, rule)
		}
	}
	limits, err := c.s.Limits(ctx)
	if err != nil {
		return
	}
	for _, l := range limits {
		gauge(callsDesc, float64(l.Calls), l.Upstream, l.Limit)
		gauge(outDesc, float64(l.Out), l.Upstream, l.Limit)
		gauge(inFlightDesc, float64(l.InFlight), l.Upstream, l.Limit)
		gauge(neededDesc, float64(l.Waiting), l.Upstream, l.Limit)
		gauge(keysDesc, float64(l.LiveKeys), l.Upstream, l.Limit)
		gauge(mostDesc, float64(l.Most), l.Upstream, l.Limit)
		ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(l.Unanswered), l.Upstream, l.Limit)
		if l.GuardWins != nil {
			gauge(holdDesc, l.HoldCost, l.Upstream, l.Limit)
			for guard, win := range l.GuardWins {
				gauge(guardDesc, win, l.Upstream, l.Limit, guard)
			}
		}
	}
}
