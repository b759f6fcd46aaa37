package gateway

import (
	"slices"
	"time"
)

// A Limit is at most Calls in any window (t−Window, t]. The zero Limit limits nothing.
type Limit struct {
	Calls  int
	Window time.Duration
}

// A Tally is what arrived under one limit for one key, as the gateway itself counted it.
type Tally struct {
	Limit    Limit
	Arrivals []time.Time // every arrival, refused ones too, in order of time
	Limited  int         // turned away by this limit
	Executed int         // by their method, whatever it said; not those without usable content
}

// Most is the most arrivals in any window of the limit, refused ones included; 0 where
// there is no limit, hence no window.
func (t Tally) Most() int {
	if t.Limit.Window <= 0 {
		return 0
	}
	most, first := 0, 0
	for last, at := range t.Arrivals {
		for at.Sub(t.Arrivals[first]) >= t.Limit.Window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// Span is the time from the first arrival to the last.
func (t Tally) Span() time.Duration {
	if len(t.Arrivals) == 0 {
		return 0
	}
	return t.Arrivals[len(t.Arrivals)-1].Sub(t.Arrivals[0])
}

// App returns the tally of an app, all its methods together.
func (g *Gateway) App(appID string) Tally { return g.snapshot(party{appID, ""}) }

// Method returns the tally of one method of an app.
func (g *Gateway) Method(appID, method string) Tally { return g.snapshot(party{appID, method}) }

func (g *Gateway) snapshot(p party) Tally {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tallyLocked(p)
	arrivals := slices.SortedFunc(slices.Values(t.arrivals), time.Time.Compare)
	return Tally{t.limit, arrivals, t.limited, t.executed}
}

// A tally counts for one party. Its fields are guarded by Gateway.mu.
type tally struct {
	limit    Limit
	arrivals []time.Time // as they were noted
	through  []time.Time // let through, in order of time
	limited  int
	executed int
}

// tallyLocked returns the tally of p, an empty one at first.
func (g *Gateway) tallyLocked(p party) *tally {
	t := g.tallies[p]
	if t == nil {
		t = &tally{limit: g.config.AppLimit}
		if p.method != "" {
			t.limit = g.config.MethodLimits[p.method]
		}
		g.tallies[p] = t
	}
	return t
}

// talliesLocked returns the two tallies under which a call stands; they are the same one
// for a call without a method, which is never let through.
func (g *Gateway) talliesLocked(p params) (app, method *tally) {
	return g.tallyLocked(party{p["app_id"], ""}), g.tallyLocked(party{p["app_id"], p["method"]})
}

// arrive notes an arrival under both limits.
func (g *Gateway) arrive(at time.Time, p params) {
	g.mu.Lock()
	defer g.mu.Unlock()
	app, method := g.talliesLocked(p)
	app.arrivals = append(app.arrivals, at)
	if method != app {
		method.arrivals = append(method.arrivals, at)
	}
}

// admit lets a call through that fits under both limits, as the n-th of its app and
// method, or says what to answer.
func (g *Gateway) admit(at time.Time, p params) (n int, refusal answer, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	app, method := g.talliesLocked(p)
	switch {
	case !app.fits(at):
		app.limited++
		return 0, appLimited, false
	case !method.fits(at):
		method.limited++
		return 0, methodLimited, false
	}
	app.take(at)
	method.take(at)
	return len(method.through), answer{}, true
}

// fits reports whether no window holds more than N calls let through once the one that
// arrived at is among them. Later arrivals may have been decided before it, so all
// windows that hold it are looked at, not only the one that ends at it.
func (t *tally) fits(at time.Time) bool {
	n := t.limit.Calls
	if n == 0 {
		return true
	}
	i := t.index(at)
	with := func(k int) time.Time { // through, with the new one at i
		switch {
		case k < i:
			return t.through[k]
		case k == i:
			return at
		}
		return t.through[k-1]
	}
	for first := max(0, i-n); first <= i && first+n <= len(t.through); first++ {
		if with(first+n).Sub(with(first)) < t.limit.Window {
			return false
		}
	}
	return true
}

func (t *tally) take(at time.Time) { t.through = slices.Insert(t.through, t.index(at), at) }

func (t *tally) index(at time.Time) int {
	i, _ := slices.BinarySearchFunc(t.through, at, time.Time.Compare)
	return i
}
