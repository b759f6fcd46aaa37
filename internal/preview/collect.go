package preview

import (
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A collector gathers the figures of a report from a simulation.
type collector struct {
	begin     time.Time
	receivers map[string]*receiver // by upstream
	limits    []*limitTally        // of all upstreams, as in Series.Limits
	flows     map[flowName]*flowTally
	series    Series

	trip          time.Duration // of an attempt, on average
	arrived, sent int
	refused       map[scheduler.Reason]int
	over          int // calls that the upstream limits with Throttler
	without       int // calls that it would limit without
	firstAt       time.Duration
	lastAt        time.Duration
	end           time.Duration // of the last attempt
	peak          int
	peakAt        time.Duration
}

type flowName struct{ upstream, flow string }

type flowTally struct {
	calls int
	waits []time.Duration
}

type limitTally struct {
	quota.Limit
	*LimitSeries
	index    int // among the limits of the upstream; 0 is its concurrency
	inFlight bool
	keys     map[string]struct{} // at most maxKeys of them
	most     int                 // permits of one key within a window
	busiest  quota.Need          // the key with the most permits of late
	without  int
}

// A receiver counts calls as an upstream does, without Throttler's concurrency, guards
// and spacing. One ledger has the calls as they come in, the other as they are sent.
type receiver struct {
	limits  []*limitTally // by index
	direct  *quota.Ledger
	planned *quota.Ledger
}

// maxKeys bounds the keys of a limit that are told apart.
const maxKeys = 100_000

func newCollector(s *simulation, trip time.Duration) *collector {
	k := &collector{
		begin: s.begin, trip: trip, receivers: make(map[string]*receiver), flows: make(map[flowName]*flowTally),
		refused: make(map[scheduler.Reason]int), firstAt: -1, series: Series{step: firstStep},
	}
	for _, u := range s.order {
		k.receivers[u.name] = k.newReceiver(u.router)
	}
	return k
}

func (k *collector) newReceiver(from *router) *receiver {
	r := &receiver{}
	var limits []quota.Limit
	for i, l := range from.limits {
		l.Guard, l.Burst, l.MaxKeys = 0, 0, quota.MaxKeys
		limits = append(limits, l)
		r.limits = append(r.limits, &limitTally{
			Limit: l, LimitSeries: &LimitSeries{Upstream: from.name, Limit: l.Name},
			index: i, inFlight: l.Window.Length() == 0, keys: make(map[string]struct{}),
		})
	}
	r.direct, r.planned = quota.New(k.begin, limits...), quota.New(k.begin, limits...)
	for _, l := range slices.Concat(r.limits[1:], r.limits[:1]) { // in the order of a report
		k.limits = append(k.limits, l)
		k.series.Limits = append(k.series.Limits, l.LimitSeries)
	}
	return r
}

// tally adds the keys of a demand to those of their limits.
func (r *receiver) tally(d *demand) {
	if d.tallied {
		return
	}
	d.tallied = true
	for _, n := range d.Needs[1:] {
		if keys := r.limits[n.Limit].keys; len(keys) < maxKeys {
			keys[n.Key] = struct{}{}
		}
	}
}

// arrival counts a call that comes in, and counts it at an upstream without Throttler.
func (k *collector) arrival(at time.Duration, upstream string, d *demand) {
	if k.firstAt < 0 {
		k.firstAt = at
	}
	k.arrived++
	k.lastAt = at
	k.series.Arrivals[k.series.at(at)]++
	r, now := k.receivers[upstream], k.begin.Add(at)
	r.tally(d)
	short, ok := r.direct.Take(now, d.counted)
	if !ok {
		k.without++
		r.limits[d.counted[short.Need].Limit].without++
		return
	}
	r.giveBack(r.direct, now, d, k.trip)
}

// giveBack returns the permits of a call as a receiver does: a window after it has
// counted them, or with the answer if they bound the calls in flight.
func (r *receiver) giveBack(l *quota.Ledger, now time.Time, d *demand, trip time.Duration) {
	for i, n := range d.counted {
		end := now
		if r.limits[n.Limit].inFlight {
			end = now.Add(trip)
		}
		l.Return(now, d.counted[i:i+1], quota.Attempt{Sent: now, End: end})
	}
}

// departure counts a call that was sent or refused.
func (k *collector) departure(d departure) {
	f := k.flow(d.Upstream, d.demand.Flow)
	f.calls++
	k.end = max(k.end, d.at+d.roundTrip)
	if d.reason != "" {
		k.refused[d.reason]++
		return
	}
	k.sent++
	f.waits = append(f.waits, d.at-d.arrivedAt)
	step := k.series.at(d.at)
	k.series.Sends[step]++
	r, now := k.receivers[d.Upstream], k.begin.Add(d.at)
	if _, within := r.planned.Take(now, d.demand.counted); !within {
		r.planned.Charge(now, d.demand.counted)
		k.over++ // never: see the package doc of quota
	}
	for _, n := range d.demand.counted {
		l := r.limits[n.Limit]
		out := r.planned.Usage(now, n.Limit, n.Key).Out
		if out >= l.Most[step] {
			l.Most[step], l.busiest = out, quota.Need{Limit: n.Limit, Key: n.Key}
		}
		l.most = max(l.most, out)
	}
	r.giveBack(r.planned, now, d.demand, d.roundTrip)
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

// backlog counts the calls that wait at an instant.
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

// sample reads the queues at the end of a step.
func (k *collector) sample(s *simulation) {
	step := k.series.at(s.now)
	now := k.begin.Add(s.now)
	for _, l := range k.limits {
		l.Queued[step] = s.queued(l.Upstream, l.index)
		if l.most > 0 { // permits of calls that were sent before the step are still out
			out := k.receivers[l.Upstream].planned.Usage(now, l.index, l.busiest.Key).Out
			l.Most[step] = max(l.Most[step], out)
		}
	}
	waiting, _ := s.pending()
	k.backlog(s.now, waiting)
}
