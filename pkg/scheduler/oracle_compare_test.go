package scheduler

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/oracle"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	seeds    = flag.Uint64("seeds", 500, "how many drawn loads TestSendsWhenTheOracleWould compares")
	firstRun = flag.Uint64("seed", 0, "the first of them")
)

const grain = oracle.Grain // the wheel's tick: no instant is rounded

// TestSendsWhenTheOracleWould draws loads with limits of every kind, cancels, pauses and
// reloads. Each call is sent at exactly the instants of the oracle, whose own tests
// count the arrivals in each window.
func TestSendsWhenTheOracleWould(t *testing.T) {
	drawn := *seeds
	if testing.Short() {
		drawn /= 6
	}
	for seed := *firstRun; seed < *firstRun+drawn; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			compareWithOracle(t, rand.New(rand.NewPCG(seed, 7))) // the planner's test draws other loads
		})
	}
}

// compareWithOracle draws a load without ties and plays it through a scheduler.
func compareWithOracle(t *testing.T, r *rand.Rand) {
	load := oracle.Draw(r)
	history := oracle.Run(load)
	for history.Tied {
		load = oracle.Draw(r)
		history = oracle.Run(load)
	}
	bubble(t, upstreamOf(load, load.Limits), func(t *testing.T, s *Scheduler, f *fake) {
		steady(s) // as the oracle is
		var mu sync.Mutex
		sent := make([][]time.Duration, len(load.Calls))
		f.serve = func(_ int, r *http.Request) answer {
			mu.Lock()
			defer mu.Unlock()
			n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
			sent[n] = append(sent[n], time.Since(f.start))
			return answerTo(load.Calls[n], len(sent[n]))
		}
		ids := make([]string, len(load.Calls))
		for n, c := range load.Calls {
			h := http.Header{"X-Flow": {c.Flow}}
			for i, key := range c.Keys {
				h.Set(fmt.Sprintf("X-Key-%d", i), key)
				h.Set(fmt.Sprintf("X-Cost-%d", i), strconv.Itoa(c.Costs[i]))
			}
			ids[n] = submit(t, s, Request{Target: fmt.Sprintf("/%d", n), Header: h, Priority: c.Priority, NotBefore: f.start.Add(c.Due)}).ID
			if c.Cancel > 0 {
				time.AfterFunc(c.Cancel, func() { s.Cancel(t.Context(), ids[n]) })
			}
		}
		applyChanges(t, s, f, load, r)
		for _, id := range ids {
			wait(t, s, id)
		}
		if diff := history.Diff(load, sent); diff != "" {
			t.Error(diff)
		}
	})
}

// answerTo returns the answer to the n-th attempt of a call.
func answerTo(c *oracle.Call, n int) answer {
	if n > len(c.Tries) {
		return answer{err: errors.New("sent once too often")}
	}
	a := answer{after: c.Tries[n-1].Trip}
	switch c.Tries[n-1].Result {
	case oracle.Failed:
		a.status = 400
	case oracle.Limited:
		a.status = 429
	case oracle.Lost:
		a.err = errors.New("reset")
	}
	return a
}

// upstreamOf returns the upstream of a load with the limits of an instant. Some loads last
// more than a day, because a few calls per hour are all that a limit lets through.
func upstreamOf(load *oracle.Load, limits []oracle.Limit) Upstream {
	u := Upstream{Late: load.Late, MaxAge: 1000 * time.Hour, Breaker: retry.Trip{Unknown: -1}, ShareBy: `header("X-Flow")`, Weights: load.Weights}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "l0", For: load.Pause}}}
	for i, l := range limits {
		key := fmt.Sprintf(`header("X-Key-%d")`, i)
		limit := Limit{
			Name: fmt.Sprint("l", i), When: key + ` != ""`, PerKey: key, Cost: fmt.Sprintf(`int(header("X-Cost-%d"))`, i),
			Calls: l.Calls, Window: l.Window, Calendar: l.Calendar, Guard: l.Guard,
		}
		if l.FailedOnly {
			limit.Counts = []upstream.Outcome{upstream.Failed}
		}
		if l.Window == 0 && l.Calendar == nil {
			limit.Calls, limit.Concurrency = 0, l.Calls
		}
		u.Limits = append(u.Limits, limit)
	}
	return u
}

// applyChanges pauses, resumes and reloads, each at its instant. A reload begins before, and
// calls go between its steps: they go as if it were done at once.
func applyChanges(t *testing.T, s *Scheduler, f *fake, load *oracle.Load, r *rand.Rand) {
	limits := slices.Clone(load.Limits)
	changes := slices.SortedFunc(slices.Values(load.Changes), func(a, b oracle.Change) int { return cmp.Compare(a.At, b.At) })
	for _, ch := range changes {
		at := f.start.Add(ch.At)
		rest := func() { time.Sleep(time.Duration(r.Int64N(1 + int64(max(0, time.Until(at)/8)))).Truncate(grain)) }
		if ch.Pause {
			time.Sleep(time.Until(at))
		}
		name := ""
		if ch.Limit >= 0 {
			name = fmt.Sprint("l", ch.Limit)
		}
		var err error
		switch {
		case ch.Pause && ch.Until == 0:
			err = s.Resume(t.Context(), "api", name, ch.Key)
		case ch.Pause:
			if err = s.Pause(t.Context(), Pause{Upstream: "api", Limit: name, Key: ch.Key, Until: f.start.Add(ch.Until)}); reason(err) == WrongState {
				err = nil // a longer one is there
			}
		default:
			l := &limits[ch.Limit]
			l.Calls, l.Window = cmp.Or(ch.Calls, l.Calls), cmp.Or(ch.Window, l.Window)
			u := upstreamOf(load, limits)
			u.URL, u.Transport = "http://api.test", f
			rest()
			if r.IntN(4) == 0 { // one that is given up, with its effect nowhere
				ctx, cancel := context.WithCancel(t.Context())
				gone := reloadInSteps(t, s, Upstream{Config: upstream.Config{URL: "http://other.test"}}, 1+r.IntN(3), func() { rest(); cancel() })
				if gone.run(ctx) == nil {
					t.Error("a reload whose context has ended is done")
				}
			}
			steps := reloadInSteps(t, s, u, 1+r.IntN(3), rest)
			if err = steps.prepare(t.Context()); err == nil {
				time.Sleep(time.Until(at))
				steps.do(steps.commit)
				err = steps.end()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// reloadInSteps returns a reload of so many calls a step, between which it rests until its
// commit.
func reloadInSteps(t *testing.T, s *Scheduler, u Upstream, calls int, rest func()) *reload {
	s.generation++
	next, err := compile(Config{Upstreams: map[string]Upstream{"api": u}}, s.generation)
	if err != nil {
		t.Fatal(err)
	}
	r := newReload(s, next)
	r.step, r.between = calls, rest
	return r
}
