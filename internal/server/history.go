package server

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Values of an upstream's series. All but the last are counted from events.
const (
	accepted = iota
	refusedCalls
	sent
	endedDone
	endedFailed
	endedNotExecuted
	endedUnknown
	limitedAttempts
	waitingCalls
	ofCalls // how many there are
)

var endedAs = map[upstream.Outcome]int{upstream.Done: endedDone, upstream.Failed: endedFailed, upstream.NotExecuted: endedNotExecuted, upstream.Unknown: endedUnknown}

// Values of a limit's series.
const (
	permitsOut = iota
	permitsInFlight
	permitsAwaited
	permitsMost
	ofPermits
)

// A History keeps the past of upstreams and limits since the process began, in memory: 84 kB for
// each upstream and 42 kB for each limit, for as long as the scheduler has it.
type History struct {
	started time.Time

	mu        sync.Mutex
	upstreams map[string]*past
}

// past is that of an upstream.
type past struct {
	counts [ofCalls]uint32 // since the last sample
	calls  *series
	limits map[string]*series
	flows  lately
}

// NewHistory returns an empty history. Its Observe is for scheduler.Config, Data and Admin.
func NewHistory() *History {
	return &History{started: time.Now(), upstreams: make(map[string]*past)}
}

// of returns the past of an upstream.
func (h *History) of(name string) *past {
	p := h.upstreams[name]
	if p == nil {
		counts := make([]bool, ofCalls)
		for i := range counts {
			counts[i] = i != waitingCalls
		}
		p = &past{calls: newSeries(counts), limits: make(map[string]*series)}
		h.upstreams[name] = p
	}
	return p
}

// Observe counts an event.
func (h *History) Observe(e scheduler.Event) {
	value := -1
	switch e.Kind {
	case scheduler.EventAccepted:
		value = accepted
	case scheduler.EventRefused:
		value = refusedCalls
	case scheduler.EventSending:
		value = sent
	case scheduler.EventAttempt:
		value = endedAs[e.Attempt.Outcome]
	}
	query := e.Kind == scheduler.EventAttempt && e.Call.Origin == scheduler.OriginQuery
	if value < 0 || e.Call.Upstream == "" { // a request to no upstream is refused, too
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(e.Call.Upstream)
	if !query {
		p.counts[value]++
	}
	switch {
	case value == sent:
		p.flows.add(e.Call.Last().SentAt, e.Call.Flow)
	case e.Kind == scheduler.EventAttempt && isLimited(e):
		p.counts[limitedAttempts]++
	}
}

// Run samples each second until ctx ends, or totals fails: the scheduler has stopped.
func (h *History) Run(ctx context.Context, totals func(context.Context) ([]scheduler.Totals, error)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		second := time.Now().Truncate(time.Second)
		timer.Reset(time.Until(second.Add(time.Second)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		all, err := totals(ctx)
		if err != nil {
			return
		}
		h.sample(second, all)
	}
}

// sample adds a sample of the second that began at an instant. Upstreams and limits of which there are
// no totals are forgotten.
func (h *History) sample(at time.Time, all []scheduler.Totals) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[string]map[string]bool)
	for _, t := range all {
		if known[t.Upstream] == nil {
			known[t.Upstream] = make(map[string]bool)
		}
		known[t.Upstream][t.Limit] = true
		p := h.of(t.Upstream)
		if t.Limit == "" {
			p.counts[waitingCalls] = clamp(t.Waiting)
			p.calls.add(at, p.counts[:])
			p.counts = [ofCalls]uint32{}
			continue
		}
		if p.limits[t.Limit] == nil {
			p.limits[t.Limit] = newSeries(make([]bool, ofPermits))
		}
		p.limits[t.Limit].add(at, []uint32{permitsOut: clamp(t.Out), permitsInFlight: clamp(t.InFlight), permitsAwaited: clamp(t.Waiting), permitsMost: clamp(t.Most)})
	}
	maps.DeleteFunc(h.upstreams, func(name string, _ *past) bool { return known[name] == nil })
	for name, p := range h.upstreams {
		maps.DeleteFunc(p.limits, func(limit string, _ *series) bool { return !known[name][limit] })
	}
}

func clamp(n int) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }

// read returns the past of an upstream or, with a limit, of one of its limits.
func (h *History) read(upstream, limit string, resolution int, from, to time.Time) []moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.upstreams[upstream]
	switch {
	case p != nil && limit == "":
		return p.calls.read(resolution, from, to)
	case p != nil && p.limits[limit] != nil:
		return p.limits[limit].read(resolution, from, to)
	}
	return []moment{} // it has had no sample yet
}

// lately returns the attempts of an upstream's flows in the last minutes.
func (h *History) lately(upstream string, now time.Time) (since time.Time, total int, flows map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since = latelySince(now); h.started.After(since) {
		since = h.started
	}
	if p := h.upstreams[upstream]; p != nil {
		total, flows = p.flows.sums(now)
	}
	return since, total, flows
}

// getHistory returns the past of an upstream or a limit. Without a step it takes the shortest that is
// kept since from.
func getHistory(a *Admin, r request[none]) (*api.History, error) {
	q, now := r.query, time.Now()
	out := &api.History{At: api.At(now), Upstream: q.Get("upstream"), Limit: q.Get("limit")}
	if err := a.known(r.Request, out.Upstream); err != nil {
		return nil, err
	}
	if out.Limit != "" {
		if _, err := a.Scheduler.Key(r.Context(), out.Upstream, out.Limit, ""); err != nil {
			return nil, err
		}
	}
	from, to := instantOf(q, "from"), instantOf(q, "to")
	if to.IsZero() || to.After(now) {
		to = now
	}
	i := slices.IndexFunc(resolutions, func(res resolution) bool {
		if step := q.Get("step"); step != "" {
			return res.name == step
		}
		return from.IsZero() || !from.Before(now.Add(-time.Duration(res.steps)*res.step))
	})
	if i < 0 {
		i = len(resolutions) - 1
	}
	out.StepMs = resolutions[i].step.Milliseconds()
	all := a.History.read(out.Upstream, out.Limit, i, from, to)
	if out.Limit == "" {
		out.Calls = convert(all, apiCalls)
	} else {
		out.Permits = convert(all, apiPermits)
	}
	return out, nil
}

func apiCalls(m moment) api.HistoryCalls {
	v := func(i int) int { return int(m.values[i]) }
	return api.HistoryCalls{
		At: api.At(m.at), Accepted: v(accepted), Refused: v(refusedCalls), Sent: v(sent), Done: v(endedDone), Failed: v(endedFailed),
		NotExecuted: v(endedNotExecuted), Unknown: v(endedUnknown), Limited: v(limitedAttempts), Waiting: v(waitingCalls),
	}
}

func apiPermits(m moment) api.HistoryPermits {
	v := func(i int) int { return int(m.values[i]) }
	return api.HistoryPermits{At: api.At(m.at), Out: v(permitsOut), InFlight: v(permitsInFlight), WaitingPermits: v(permitsAwaited), Most: v(permitsMost)}
}

// listFlows returns the flows that have calls waiting, and then those that had most sent lately.
func listFlows(a *Admin, r request[none]) (*api.Flows, error) {
	name, now := r.PathValue("name"), time.Now()
	waiting, err := a.Scheduler.Flows(r.Context(), name)
	if err != nil {
		return nil, err
	}
	since, total, sent := a.History.lately(name, now)
	out := &api.Flows{At: api.At(now), Upstream: name, Since: api.At(since), Sent: total, Flows: []api.Flow{}}
	share := func(n int) float64 { return float64(n) / float64(max(1, total)) }
	for _, f := range waiting {
		n := sent[f.Flow]
		out.Flows = append(out.Flows, api.Flow{Flow: f.Flow, Weight: f.Weight, Waiting: f.Waiting, OldestAcceptedAt: api.At(f.OldestAt), Sent: n, Share: share(n)})
		delete(sent, f.Flow)
	}
	config, _ := a.Scheduler.Upstream(name)
	for _, flow := range slices.SortedFunc(maps.Keys(sent), func(a, b string) int { return cmp.Or(sent[b]-sent[a], strings.Compare(a, b)) }) {
		out.Flows = append(out.Flows, api.Flow{Flow: flow, Weight: cmp.Or(config.Weights[flow], 1), Sent: sent[flow], Share: share(sent[flow])})
	}
	out.Flows = out.Flows[:min(len(out.Flows), r.op.number(r.query, "page_size"))]
	return out, nil
}
