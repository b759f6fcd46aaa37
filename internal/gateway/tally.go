package gateway

import (
	"slices"
	"sync"
	"time"
)

// A Limit is at most Calls in any window (t−Window, t]. The zero Limit is none.
type Limit struct {
	Calls  int
	Window time.Duration
}

// A Tally has the gateway's own counts for one key of one limit.
type Tally struct {
	Limit    Limit
	Arrivals []time.Time // every arrival, refused ones too, in order of time
	Limited  int         // refused by this limit
	Executed int         // calls that their method answered, also with an error; not those without usable content
}

// Most is the greatest number of arrivals in any window of the limit, refused ones
// included; 0 without a limit.
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

// A party is the key of a limit: an app, or a method of it. Without a method it is the
// whole app.
type party struct{ app, method string }

// tallies counts for all parties. It is safe for concurrent use.
type tallies struct {
	config Config // limits

	mu      sync.Mutex
	byParty map[party]*tally
}

func (all *tallies) snapshot(p party) Tally {
	all.mu.Lock()
	defer all.mu.Unlock()
	t := all.tallyLocked(p)
	arrivals := slices.SortedFunc(slices.Values(t.arrivals), time.Time.Compare)
	return Tally{t.limit, arrivals, t.limited, t.executed}
}

// A tally counts for one party. It is not safe for concurrent use.
type tally struct {
	limit    Limit
	arrivals []time.Time // in the order of their handling
	admitted []time.Time // in order of time
	limited  int
	executed int
}

// tallyLocked returns the tally of p; it makes an empty one for a new party.
func (all *tallies) tallyLocked(p party) *tally {
	t := all.byParty[p]
	if t == nil {
		t = &tally{limit: all.config.AppLimit}
		if p.method != "" {
			t.limit = all.config.MethodLimits[p.method]
		}
		all.byParty[p] = t
	}
	return t
}

// ofLocked returns the two tallies of a call. For a call without a method, which is
// never admitted, both are the app's.
func (all *tallies) ofLocked(p params) (app, method *tally) {
	return all.tallyLocked(party{p["app_id"], ""}), all.tallyLocked(party{p["app_id"], p["method"]})
}

// arrive notes an arrival under both limits.
func (all *tallies) arrive(at time.Time, p params) {
	all.mu.Lock()
	defer all.mu.Unlock()
	app, method := all.ofLocked(p)
	app.arrivals = append(app.arrivals, at)
	if method != app {
		method.arrivals = append(method.arrivals, at)
	}
}

// admit admits a call that fits under both limits, as the n-th of its app and
// method. Otherwise it returns the refusal.
func (all *tallies) admit(at time.Time, p params) (n int, refusal answer, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	app, method := all.ofLocked(p)
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
	return len(method.admitted), answer{}, true
}

// execute notes an executed call under both limits.
func (all *tallies) execute(p params) {
	all.mu.Lock()
	defer all.mu.Unlock()
	app, method := all.ofLocked(p)
	app.executed++
	method.executed++
}

// fits reports whether no window holds more than N admitted calls if one that arrived
// at is added. Later arrivals may have been admitted before it, so all windows that
// contain it are checked, not only the one that ends at it.
func (t *tally) fits(at time.Time) bool {
	n := t.limit.Calls
	if n == 0 {
		return true
	}
	i := t.index(at)
	with := func(k int) time.Time { // admitted, with the new one at i
		switch {
		case k < i:
			return t.admitted[k]
		case k == i:
			return at
		}
		return t.admitted[k-1]
	}
	for first := max(0, i-n); first <= i && first+n <= len(t.admitted); first++ {
		if with(first+n).Sub(with(first)) < t.limit.Window {
			return false
		}
	}
	return true
}

func (t *tally) take(at time.Time) { t.admitted = slices.Insert(t.admitted, t.index(at), at) }

func (t *tally) index(at time.Time) int {
	i, _ := slices.BinarySearchFunc(t.admitted, at, time.Time.Compare)
	return i
}
