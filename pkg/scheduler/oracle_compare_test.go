package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	seeds    = flag.Uint64("seeds", 500, "how many random loads TestSendsWhenTheOracleWould compares")
	firstRun = flag.Uint64("seed", 0, "the first of them")
)

// TestSendsWhenTheOracleWould draws limits of every kind, calls under several of
// them, round trips, lost and limited responses, cancels, pauses, reloads, priorities
// and flows. Each call is sent at exactly the oracle's instants. No window is
// exceeded, wherever the requests arrive between sending and response.
func TestSendsWhenTheOracleWould(t *testing.T) {
	for seed := *firstRun; seed < *firstRun+*seeds; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { compareWithOracle(t, seed) })
		})
	}
}

// drawn is a load for both schedulers.
type drawn struct {
	calls   []*planned
	limits  []Limit
	changes []change
	spread  time.Duration
}

const (
	oracleLate = 300 * ms
	grain      = 100 * time.Microsecond // the wheel's tick: no instant is rounded
)

func draw(r *rand.Rand) *drawn {
	d := &drawn{spread: 2 * sec}
	for i := range 1 + r.IntN(5) {
		header := func(name string) string { return fmt.Sprintf(`header("X-%s-%d")`, name, i) }
		l := Limit{Name: fmt.Sprintf("l%d", i), When: header("Key") + ` != ""`, PerKey: header("Key"), Cost: "int(" + header("Cost") + ")"}
		switch kind := r.IntN(8); {
		case kind == 0 && i > 0: // a response pauses the first limit, by an outcome rule
			l.Concurrency = 2 + r.IntN(6)
		case kind == 1:
			l.Calls, l.Calendar = 4+r.IntN(20), &quota.Calendar{Unit: []quota.Unit{quota.Minute, quota.Hour}[r.IntN(2)], Skew: time.Duration(r.IntN(3)) * 500 * ms}
			d.spread = 2 * time.Minute
		case kind == 2:
			l.Calls, l.Window, l.Counts = 2+r.IntN(3), time.Duration(50+r.IntN(3000))*ms, []upstream.Outcome{upstream.Failed}
		case kind == 3: // a minimum distance
			l.Calls, l.Window = 1, time.Duration(50+r.IntN(400))*ms
		default:
			l.Calls, l.Window = 2+r.IntN(6), time.Duration(50+r.IntN(1000))*ms
			if kind == 4 {
				l.Guard = time.Duration(1+r.IntN(60)) * ms
			}
		}
		d.limits = append(d.limits, l)
	}
	instant := func() time.Duration { return time.Duration(1+r.Int64N(int64(d.spread/grain))) * grain }
	for n := range 30 + r.IntN(50) {
		c := &planned{n: n, due: instant().Truncate(ms) + ms, priority: r.IntN(2), flow: string(rune('a' + r.IntN(3)))}
		if r.IntN(3) == 0 { // many at once
			c.due = ms
		}
		if r.IntN(8) == 0 {
			c.cancel = instant()
		}
		for _, l := range d.limits {
			c.keys = append(c.keys, []string{"", "x", "x", "y", "z"}[r.IntN(5)])
			c.costs = append(c.costs, min(1+r.IntN(3)*r.IntN(2), max(l.Calls, l.Concurrency)))
		}
		for len(c.tries) < 3 && r.IntN(8) == 0 {
			c.tries = append(c.tries, try{time.Duration(1+r.IntN(999)) * grain, "limited"})
		}
		c.tries = append(c.tries, try{time.Duration(1+r.IntN(999)) * grain, []string{"done", "done", "done", "done", "failed", "lost"}[r.IntN(6)]})
		d.calls = append(d.calls, c)
	}
	for range r.IntN(5) {
		ch := change{at: instant(), limit: r.IntN(len(d.limits))}
		l := d.limits[ch.limit]
		switch kind := r.IntN(5); {
		case kind == 0:
			ch.pause, ch.key = true, []string{"", "x", "y"}[r.IntN(3)]
			ch.until = ch.at + time.Duration(r.IntN(10_000))*grain
		case kind == 1: // a pause of the upstream, or the end of an earlier pause
			ch.pause, ch.limit = true, -1
			ch.until = ch.at + time.Duration(r.IntN(5_000))*grain
		case kind == 2 && len(d.changes) > 0 && d.changes[len(d.changes)-1].pause:
			before := d.changes[len(d.changes)-1]
			ch.pause, ch.limit, ch.key = true, before.limit, before.key
			ch.at = before.at + time.Duration(1+r.IntN(2_000))*grain
		case kind == 3 && l.Window > 0:
			ch.renew, ch.window = true, l.Window+time.Duration(1+r.IntN(500))*ms
		case l.Concurrency == 0:
			ch.calls = max(1, l.Calls+r.IntN(7)-3)
		default:
			continue
		}
		d.changes = append(d.changes, ch)
	}
	return d
}

var oracleWeights = map[string]float64{"a": 1, "b": 2, "c": 3}

// drawPlanned draws a load without ties in its order, and returns it with the
// oracle's result.
func drawPlanned(r *rand.Rand) (*drawn, *oracle) {
	for {
		d := draw(r)
		o := &oracle{calls: d.calls, limits: slices.Clone(d.limits), late: oracleLate, weights: oracleWeights, changes: d.changes}
		o.run()
		if !o.tied() {
			return d, o
		}
	}
}

// platform answers as planned, and records the time of each request.
type platform struct {
	start time.Time
	calls []*planned

	mu   sync.Mutex
	sent map[int][]time.Duration
}

func (p *platform) RoundTrip(req *http.Request) (*http.Response, error) {
	n, _ := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
	p.mu.Lock()
	tries := p.calls[n].tries
	i := len(p.sent[n])
	p.sent[n] = append(p.sent[n], time.Since(p.start))
	p.mu.Unlock()
	if i >= len(tries) {
		return nil, errors.New("sent once too often")
	}
	time.Sleep(tries[i].trip)
	status := map[string]int{"done": 200, "failed": 400, "limited": 429}[tries[i].result]
	if status == 0 {
		return nil, errors.New("reset")
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func compareWithOracle(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	d, o := drawPlanned(r)
	p := &platform{start: time.Now(), calls: d.calls, sent: map[int][]time.Duration{}}
	config := func(limits []Limit) Config {
		u := Upstream{Limits: limits, Late: oracleLate, ShareBy: `header("X-Flow")`, Weights: oracleWeights}
		u.URL, u.Transport = "http://api.test", p
		u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "l0", For: answerPause}}}
		return Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)}
	}
	s, err := New(config(d.limits))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := make([]string, len(d.calls))
	for i, c := range d.calls {
		h := http.Header{"X-Flow": {c.flow}}
		for i, key := range c.keys {
			h.Set(fmt.Sprintf("X-Key-%d", i), key)
			h.Set(fmt.Sprintf("X-Cost-%d", i), strconv.Itoa(c.costs[i]))
		}
		ids[i] = submit(t, s, Request{Target: fmt.Sprintf("/%d", c.n), Header: h, Priority: c.priority, NotBefore: p.start.Add(c.due)}).ID
		if c.cancel > 0 {
			time.AfterFunc(c.cancel, func() { s.Cancel(t.Context(), ids[i]) })
		}
	}
	limits := slices.Clone(d.limits)
	var mu sync.Mutex // changes come one after another, each on its own goroutine
	for _, ch := range d.changes {
		time.AfterFunc(ch.at, func() {
			mu.Lock()
			defer mu.Unlock()
			name := ""
			if ch.limit >= 0 {
				name = limits[ch.limit].Name
			}
			var err error
			switch {
			case ch.pause && ch.until == 0:
				err = s.Resume(t.Context(), "api", name, ch.key)
			case ch.pause:
				err = s.Pause(t.Context(), "api", name, ch.key, p.start.Add(ch.until))
			case ch.renew:
				limits[ch.limit].Window = ch.window
				err = s.Reload(t.Context(), config(slices.Clone(limits)))
			default:
				limits[ch.limit].Calls = ch.calls
				err = s.Reload(t.Context(), config(slices.Clone(limits)))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, id := range ids {
		wait(t, s, id)
	}
	var first *planned // the first difference causes the others
	var at time.Duration
	for _, c := range d.calls {
		if when, differs := differ(p.sent[c.n], c.sent); differs && (first == nil || when < at) {
			first, at = c, when
		}
	}
	if c := first; c != nil {
		t.Errorf("call %d (due %v, cancelled %v, priority %d, flow %s, keys %q, costs %v) was sent at %v, the oracle sends it at %v",
			c.n, c.due, c.cancel, c.priority, c.flow, c.keys, c.costs, p.sent[c.n], c.sent)
	}
	checkArrivals(t, r, o)
}

// differ returns the first instant that is in only one of two lists.
func differ(a, b []time.Duration) (time.Duration, bool) {
	for i := 0; i < max(len(a), len(b)); i++ {
		switch {
		case i >= len(a):
			return b[i], true
		case i >= len(b):
			return a[i], true
		case a[i] != b[i]:
			return min(a[i], b[i]), true
		}
	}
	return 0, false
}

// checkArrivals draws the arrival of each request, anywhere within its attempt's
// bounds, and counts as a receiver does.
func checkArrivals(t *testing.T, r *rand.Rand, o *oracle) {
	for i, l := range o.limits {
		if l.Concurrency > 0 || slices.ContainsFunc(o.changes, func(ch change) bool { return ch.limit == i && !ch.pause }) {
			continue // the limit's number of calls has changed during the run
		}
		arrived := map[string][]time.Duration{}
		for _, a := range o.attempts {
			key := a.c.keys[i]
			if key == "" || len(l.Counts) > 0 && a.result != "failed" && a.result != "lost" {
				continue
			}
			last := a.end
			switch {
			case a.result == "lost":
				last += o.late
			case l.Guard > 0: // a guard promises no more
				last = min(last, a.sent+l.Guard)
			}
			at := a.sent + time.Duration(r.Int64N(int64(last-a.sent)+1))
			switch r.IntN(4) { // the ends are the critical cases
			case 0:
				at = a.sent
			case 1:
				at = last
			}
			for range a.costs[i] {
				arrived[key] = append(arrived[key], at)
			}
		}
		for key, at := range arrived {
			if n := mostIn(at, l); n > l.Calls {
				t.Errorf("limit %s (%d per %v, %+v), key %s: %d arrived in one window", l.Name, l.Calls, l.Window, l.Calendar, key, n)
			}
		}
	}
}

func mostIn(arrived []time.Duration, l Limit) int {
	best := 0
	for _, last := range arrived {
		n := 0
		for _, a := range arrived {
			switch d := last - a; {
			case l.Calendar != nil:
				if unit := lengthOf(l.Calendar); a.Truncate(unit) == last.Truncate(unit) {
					n++
				}
			case d >= 0 && d < l.Window:
				n++
			}
		}
		best = max(best, n)
	}
	return best
}
