package preview

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A collector gathers what happens in a simulation.
type collector struct {
	begin  time.Time
	books  map[string]*books // by upstream
	limits []*limitTally     // of all upstreams, as in Series.Limits
	flows  map[flowName]*flowTally
	series Series

	trip          time.Duration // of an attempt, on average
	arrived, sent int
	refused       map[scheduler.Reason]int
	over          int // calls that the upstream limits all the same
	without       int // calls that the upstream would have limited
	firstAt       time.Duration
	lastAt        time.Duration
	lastSent, end time.Duration
	peak          int
	peakAt        time.Duration
}

type flowName struct{ upstream, flow string }

type flowTally struct {
	calls int
	waits []time.Duration
}

type limitTally struct {
	scheduler.Limit
	*LimitSeries
	own     bool                // the upstream's concurrency, which nobody but us has
	keys    map[string]struct{} // at most maxKeys of them
	most    int                 // permits of one key within a window
	busiest quota.Need          // the key that had most of late
	without int
}

// books are the limits of one upstream, as a receiver counts them that knows
// nothing of us: once what comes in, and once what we send. Every call is answered
// well, so a limit that does not count those that are done has nothing in them.
type books struct {
	limits   []*limitTally
	straight *quota.Ledger
	ours     *quota.Ledger
	needs    map[*scheduler.Route][]quota.Need
}

// maxKeys is how many keys of a limit are told apart.
const maxKeys = 100_000

// maxRoutes is how many routes are remembered in the terms of the books.
const maxRoutes = 100_000

func newCollector(c scheduler.Config, begin time.Time, trip time.Duration) *collector {
	k := &collector{
		begin: begin, trip: trip, books: make(map[string]*books), flows: make(map[flowName]*flowTally),
		refused: make(map[scheduler.Reason]int), firstAt: -1, series: Series{step: firstStep},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		k.books[name] = k.newBooks(name, c.Upstreams[name])
	}
	return k
}

func (k *collector) newBooks(name string, u scheduler.Upstream) *books {
	b := &books{needs: make(map[*scheduler.Route][]quota.Need)}
	var as []quota.Limit
	for _, l := range u.Limits {
		as = append(as, quota.Limit{Name: l.Name, Calls: max(l.Calls, l.Concurrency), Window: l.Kind(), MaxKeys: 1 << 30})
		b.limits = append(b.limits, k.newLimit(name, l))
	}
	b.straight, b.ours = quota.New(k.begin, as...), quota.New(k.begin, as...)
	own := k.newLimit(name, scheduler.Limit{Name: scheduler.ConcurrencyLimit, Concurrency: u.Concurrency})
	own.own = true
	if own.Concurrency == 0 {
		own.Concurrency = scheduler.DefaultConcurrency
	}
	return b
}

func (k *collector) newLimit(upstream string, l scheduler.Limit) *limitTally {
	t := &limitTally{Limit: l, LimitSeries: &LimitSeries{Upstream: upstream, Limit: l.Name}, keys: make(map[string]struct{})}
	k.limits = append(k.limits, t)
	k.series.Limits = append(k.series.Limits, t.LimitSeries)
	return t
}

// needsOf returns what a route takes, as the books know it.
func (b *books) needsOf(r *scheduler.Route) []quota.Need {
	needs, ok := b.needs[r]
	if ok {
		return needs
	}
	for i, l := range b.limits {
		if key, under := r.Keys[l.Limit.Name]; under {
			if len(l.Counts) == 0 || slices.Contains(l.Counts, upstream.Done) {
				needs = append(needs, quota.Need{Limit: i, Key: key, Cost: max(1, r.Costs[l.Limit.Name])})
			}
			if len(l.keys) < maxKeys {
				l.keys[key] = struct{}{}
			}
		}
	}
	if len(b.needs) >= maxRoutes {
		clear(b.needs)
	}
	b.needs[r] = needs
	return needs
}

// arrival counts a call that comes in, and what would become of it without us.
func (k *collector) arrival(at time.Duration, a *scheduler.Arrival) {
	if k.firstAt < 0 {
		k.firstAt = at
	}
	k.arrived++
	k.lastAt = at
	step := k.series.at(at)
	k.series.Arrivals[step]++
	b := k.books[a.Upstream]
	if b == nil {
		return // the simulation refuses it
	}
	now, needs := k.begin.Add(at), b.needsOf(a.Route)
	short, ok := b.straight.Take(now, needs)
	if !ok {
		k.without++
		b.limits[needs[short.Need].Limit].without++
		return
	}
	k.count(b.straight, b, now, needs, k.trip)
}

// count gives permits back as a receiver does: a window after it counted them, or
// when the call has been answered.
func (k *collector) count(l *quota.Ledger, b *books, now time.Time, needs []quota.Need, trip time.Duration) {
	for i, n := range needs {
		end := now
		if b.limits[n.Limit].Concurrency > 0 {
			end = now.Add(trip)
		}
		l.Return(now, needs[i:i+1], quota.Attempt{Sent: now, End: end})
	}
}

// departure counts a call that was sent or turned away.
func (k *collector) departure(d scheduler.Departure) {
	f := k.flow(d.Upstream, d.Route.Flow)
	f.calls++
	k.end = max(k.end, d.At+d.RoundTrip)
	if d.Reason != "" {
		k.refused[d.Reason]++
		return
	}
	k.sent++
	k.lastSent = d.At
	f.waits = append(f.waits, d.At-d.ArrivedAt)
	step := k.series.at(d.At)
	k.series.Sends[step]++
	b := k.books[d.Upstream]
	now, needs := k.begin.Add(d.At), b.needsOf(d.Route)
	if _, within := b.ours.Take(now, needs); !within {
		b.ours.Charge(now, needs)
		k.over++ // never: see the package doc of quota
	}
	for _, n := range needs {
		l := b.limits[n.Limit]
		out := b.ours.Usage(now, n.Limit, n.Key).Out
		if out >= l.Most[step] {
			l.Most[step], l.busiest = out, quota.Need{Limit: n.Limit, Key: n.Key}
		}
		l.most = max(l.most, out)
	}
	k.count(b.ours, b, now, needs, d.RoundTrip)
}

func (k *collector) flow(upstream, flow string) *flowTally {
	name := flowName{upstream, flow}
	f := k.flows[name]
	if f == nil {
		f = &flowTally{}
		k.flows[name] = f
	}
	return f
}

// backlog takes note of how many calls wait.
func (k *collector) backlog(at time.Duration, waiting int) {
	step := k.series.at(at)
	k.series.Waiting[step] = max(k.series.Waiting[step], waiting)
	if waiting > k.peak {
		k.peak, k.peakAt = waiting, at
	}
}

// stepEnd returns the last instant of the step that follows an instant.
func (k *collector) stepEnd(now time.Duration) time.Duration {
	end := (now/k.series.step+1)*k.series.step - 1
	if end == now {
		end += k.series.step
	}
	return end
}

// sample looks at the queues at the end of a step.
func (k *collector) sample(s *scheduler.Simulation) {
	step := k.series.at(s.Now())
	now := k.begin.Add(s.Now())
	for _, l := range k.limits {
		l.Queued[step] = s.Queued(l.Upstream, l.LimitSeries.Limit)
		if l.most > 0 { // what was sent before the step is still within the window
			out := k.books[l.Upstream].ours.Usage(now, l.busiest.Limit, l.busiest.Key).Out
			l.Most[step] = max(l.Most[step], out)
		}
	}
	waiting, _ := s.Pending()
	k.backlog(s.Now(), waiting)
}
