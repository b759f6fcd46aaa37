package scheduler

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
)

const (
	// maxKeys is how many keys a LimitStatus tells of, and how many flows Flows.
	maxKeys = 100

	// The keys of limits are visited in the loop, so many at a time and so many a second. A
	// sample of few keys is made anew for each reader.
	keysAtOnce    = 1000
	keysPerSecond = 20_000
	fewKeys       = 250
)

// A sampler makes the statuses of limits and flows. Its readers share a sample: however many there
// are, they let the loop visit keysPerSecond keys, as long as there are not few.
type sampler struct {
	turn chan struct{} // holds a value while no sample is being made; the rest is its holder's

	last    sample
	made    time.Time
	visited int // keys for it
}

// A sample is not changed any more.
type sample struct {
	limits []LimitStatus
	flows  map[string][]FlowStatus // by upstream
}

func newSampler() *sampler {
	s := &sampler{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// read returns the last sample, or a new one if that is too old.
func (s *sampler) read(ctx context.Context, l *loop) (sample, error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return sample{}, ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()
	if s.visited <= fewKeys || time.Since(s.made) >= time.Duration(s.visited)*time.Second/keysPerSecond {
		if err := s.sample(ctx, l); err != nil {
			return sample{}, err
		}
	}
	return s.last, nil
}

// sample makes a new sample.
func (s *sampler) sample(ctx context.Context, l *loop) error {
	var names []string
	if err := l.ask(ctx, func(time.Time) { names = slices.Sorted(maps.Keys(l.upstreams)) }); err != nil {
		return err
	}
	all := sample{flows: make(map[string][]FlowStatus)}
	visited := 0
	for _, name := range names {
		w := &walk{name: name}
		for more := true; more; {
			if err := l.ask(ctx, func(now time.Time) { more = w.step(now, l) }); err != nil {
				w.close()
				return err
			}
		}
		all.limits = append(all.limits, w.limits...)
		all.flows[name] = w.waitingFlows()
		visited += w.visited
	}
	s.last, s.made, s.visited = all, time.Now(), visited
	return nil
}

// A walk visits the keys of an upstream's limits, and the flows of its waiting calls, in steps, each
// in the loop.
type walk struct {
	name    string
	up      *upstreamState
	sv      *service // as the walk has begun with it
	limits  []LimitStatus
	flows   map[string]FlowStatus
	next    func() (keyVisit, bool)
	end     func()
	visited int
}

// A keyVisit is a key of a limit. One that the ledger knows comes as such, and may come again as
// one that calls wait for.
type keyVisit struct {
	limit  int
	key    string
	wanted int
	waits  bool // it comes as one that calls wait for

	flow planner.FlowDemand[*call] // instead of a key, if it has a call
}

// step visits the next keys, and reports whether there are more. A reload lets the walk begin
// again.
func (w *walk) step(now time.Time, l *loop) (more bool) {
	u := l.upstreams[w.name]
	if u == nil {
		w.close()
		w.limits, w.flows = nil, nil
		return false
	}
	if w.up != u || w.sv != u.service {
		w.close()
		w.begin(now, u)
	}
	for range keysAtOnce {
		v, ok := w.next()
		if !ok {
			w.close()
			for i := range w.limits {
				w.limits[i].Keys = mostWanted(w.limits[i].Keys)
			}
			return false
		}
		w.visited++
		w.visit(now, v)
	}
	return true
}

func (w *walk) close() {
	if w.end != nil {
		w.end()
		w.end = nil
	}
}

func (w *walk) begin(now time.Time, u *upstreamState) {
	w.up, w.sv, w.limits, w.flows = u, u.service, nil, make(map[string]FlowStatus)
	for i := range u.limits {
		w.limits = append(w.limits, limitStatusOf(now, u, i))
	}
	w.next, w.end = iter.Pull(keysOf(u))
}

// keysOf yields the keys of all limits of an upstream, and then its flows.
func keysOf(u *upstreamState) iter.Seq[keyVisit] {
	return func(yield func(keyVisit) bool) {
		for i := range u.limits {
			for key := range u.ledger.Keys(i) {
				if !yield(keyVisit{limit: i, key: key}) {
					return
				}
			}
		}
		for d := range u.planner.Keys() {
			if !yield(keyVisit{limit: d.Limit, key: d.Key, wanted: d.Permits, waits: true}) {
				return
			}
		}
		for f := range u.planner.Flows() {
			if !yield(keyVisit{flow: f}) {
				return
			}
		}
	}
}

// visit adds a key to the status of its limit, once, or calls of a flow to that of the flow.
func (w *walk) visit(now time.Time, v keyVisit) {
	u := w.up
	if v.flow.First != nil {
		w.addFlow(v.flow)
		return
	}
	known := u.ledger.Known(v.limit, v.key)
	if known == v.waits {
		return
	}
	if known {
		v.wanted = u.planner.Wanted(v.limit, v.key)
	}
	w.limits[v.limit].addKey(usageOf(now, u, v.limit, v.key, v.wanted))
}

// addKey adds a key to the sums of a limit, and keeps it if much waits for it.
func (st *LimitStatus) addKey(key KeyStatus) {
	if key.Waiting == 0 && key.Out == 0 && key.PausedUntil.IsZero() {
		return
	}
	if !key.NextBack.IsZero() && (st.NextBack.IsZero() || key.NextBack.Before(st.NextBack)) {
		st.NextBack = key.NextBack
	}
	st.LiveKeys++
	st.Out += key.Out
	st.InFlight += key.InFlight
	st.Late += key.Late
	st.Waiting += key.Waiting
	st.Keys = append(st.Keys, key)
	if len(st.Keys) == 10*maxKeys { // so that a hundred thousand keys take little memory
		st.Keys = mostWanted(st.Keys)
	}
}

// mostWanted returns the keys for which most waits.
func mostWanted(keys []KeyStatus) []KeyStatus {
	slices.SortFunc(keys, func(a, b KeyStatus) int {
		return cmp.Or(b.Waiting-a.Waiting, b.Out-a.Out, strings.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), maxKeys)]
}

// addFlow adds calls of a flow to its status. With many flows, those with few calls are left out.
func (w *walk) addFlow(f planner.FlowDemand[*call]) {
	st, known := w.flows[f.Flow]
	if st.Flow, st.Weight, st.Waiting = f.Flow, f.Weight, f.Waiting; !known || f.First.AcceptedAt.Before(st.OldestAt) {
		st.OldestAt = f.First.AcceptedAt
	}
	w.flows[f.Flow] = st
	if len(w.flows) == 10*maxKeys {
		kept := w.waitingFlows()
		clear(w.flows)
		for _, st := range kept {
			w.flows[st.Flow] = st
		}
	}
}

// waitingFlows returns the flows of which most calls wait.
func (w *walk) waitingFlows() []FlowStatus {
	all := slices.SortedFunc(maps.Values(w.flows), func(a, b FlowStatus) int {
		return cmp.Or(b.Waiting-a.Waiting, strings.Compare(a.Flow, b.Flow))
	})
	return all[:min(len(all), maxKeys)]
}
