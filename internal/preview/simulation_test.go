package preview

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/oracle"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const ms = time.Millisecond

// begin is the start of an hour, as that of an oracle's load.
var begin = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// Three calls under "2 per second": the third waits for the first permit that comes
// back, a window after the response.
func Example_simulation() {
	api := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 2, Window: time.Second}}}
	api.URL = "https://api.example.com"
	s, err := newSimulation(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": api}}, begin)
	if err != nil {
		panic(err)
	}
	s.roundTrip = func(*workload.Arrival) time.Duration { return 20 * time.Millisecond }
	s.observe = func(d departure) { fmt.Println("arrived at", d.arrivedAt, "sent at", d.at) }
	call := workload.Arrival{Upstream: "api", Route: &scheduler.Route{Keys: map[string]string{"app": ""}}}
	for n := range time.Duration(3) {
		if _, err := s.arrive(n*5*time.Millisecond, call); err != nil {
			panic(err)
		}
	}
	s.advance(time.Hour)
	// Output:
	// arrived at 0s sent at 0s
	// arrived at 5ms sent at 5ms
	// arrived at 10ms sent at 1.02s
}

// simulationOf returns a simulation of one upstream, api.
func simulationOf(t testing.TB, u scheduler.Upstream) *simulation {
	t.Helper()
	s, err := newSimulation(configOf(u), begin)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func arrive(t testing.TB, s *simulation, at time.Duration, a workload.Arrival) {
	t.Helper()
	a.Upstream = "api"
	if _, err := s.arrive(at, a); err != nil {
		t.Fatal(err)
	}
}

// playOut plays until the last call has ended, and checks that nothing is left.
func playOut(t testing.TB, s *simulation) {
	t.Helper()
	s.advance(s.now + 48*time.Hour)
	if waiting, sending := s.pending(); waiting+sending > 0 || s.wheel.Len() > 0 {
		t.Errorf("%d waiting, %d in flight, %d timeouts at the end", waiting, sending, s.wheel.Len())
	}
}

func perSecond(calls int) []scheduler.Limit {
	return []scheduler.Limit{{Name: "app", Calls: calls, Window: sec}}
}

// oneKey is the route of a call under perSecond.
var oneKey = &scheduler.Route{Keys: map[string]string{"app": ""}}

// TestSimulationAgreesWithTheOracle compares the instants at which calls are sent.
func TestSimulationAgreesWithTheOracle(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds /= 6
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { agreeWithOracle(t, seed) })
	}
}

func agreeWithOracle(t *testing.T, seed uint64) {
	load := oracle.Draw(rand.New(rand.NewPCG(seed, 6)))
	load.Changes = nil
	slices.SortStableFunc(load.Calls, func(a, b *oracle.Call) int { return cmp.Compare(a.Due, b.Due) })
	for _, c := range load.Calls { // the age is that of the arrival, and each call is done at once
		c.Cancel, c.Tries = 0, []oracle.Try{{Trip: c.Tries[0].Trip, Result: oracle.Done}}
	}
	history := oracle.Run(load)

	s := simulationOf(t, upstreamOf(load))
	called, sent := make(map[*scheduler.Route]int), make([]time.Duration, len(load.Calls))
	s.roundTrip = func(a *workload.Arrival) time.Duration { return load.Calls[called[a.Route]].Tries[0].Trip }
	s.observe = func(d departure) {
		i := called[d.Route]
		if c := load.Calls[i]; d.reason != "" || d.arrivedAt != c.Due || d.roundTrip != c.Tries[0].Trip {
			t.Errorf("call %d: %+v", i, d)
		}
		sent[i] = d.at
	}
	for i, c := range load.Calls {
		route := &scheduler.Route{Flow: c.Flow, Keys: map[string]string{}, Costs: map[string]int{}}
		for limit, key := range c.Keys {
			if key != "" {
				route.Keys[fmt.Sprint("l", limit)], route.Costs[fmt.Sprint("l", limit)] = key, c.Costs[limit]
			}
		}
		called[route] = i
		arrive(t, s, c.Due, workload.Arrival{Route: route, Priority: c.Priority})
	}
	playOut(t, s)
	for i, c := range load.Calls {
		if want := history.Sent(i)[0]; sent[i] != want {
			t.Fatalf("call %d (%+v) is sent at %v, the oracle sends it at %v", i, *c, sent[i], want)
		}
	}
}

// upstreamOf returns the upstream of a load, with limits l0, l1 ...
func upstreamOf(load *oracle.Load) scheduler.Upstream {
	u := scheduler.Upstream{ShareBy: `header("X-Flow")`, Weights: load.Weights, MaxAge: 30 * 24 * time.Hour}
	for i, l := range load.Limits {
		limit := scheduler.Limit{Name: fmt.Sprint("l", i), PerKey: `header("X-Key")`, Calls: l.Calls, Window: l.Window, Calendar: l.Calendar, Guard: l.Guard}
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

func TestSimulationRefusesAsAScheduler(t *testing.T) {
	s := simulationOf(t, scheduler.Upstream{Limits: perSecond(1), MaxWaiting: 3, MaxAge: 5 * sec})
	s.roundTrip = func(*workload.Arrival) time.Duration { return 100 * ms }
	got := map[string]int{}
	s.observe = func(d departure) { got[fmt.Sprintf("%s at %v", cmp.Or(string(d.reason), "sent"), d.at)]++ }
	for range 2 {
		arrive(t, s, 0, workload.Arrival{Route: oneKey})
		s.advance(0)
	}
	// Its slot is at 2.2s.
	arrive(t, s, 0, workload.Arrival{Route: oneKey, MaxWait: 1900 * ms})
	// Its slot is at 2.2s until two more urgent calls come.
	arrive(t, s, ms, workload.Arrival{Route: oneKey, MaxWait: 2500 * ms})
	for range 2 {
		arrive(t, s, 2*ms, workload.Arrival{Route: oneKey, Priority: 1})
	}
	playOut(t, s)
	want := map[string]int{"sent at 0s": 1, "past_deadline at 0s": 1, "sent at 1.1s": 1, "full at 2ms": 1, "sent at 2.2s": 1, "past_deadline at 2.501s": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestSimulationForeseesRoundTrips: a slot is a round trip and a window after the call
// before it, once a round trip is known, also behind a call of the same instant.
func TestSimulationForeseesRoundTrips(t *testing.T) {
	s := simulationOf(t, scheduler.Upstream{Limits: perSecond(1)})
	s.roundTrip = func(*workload.Arrival) time.Duration { return 100 * ms }
	var got []string
	s.observe = func(d departure) { got = append(got, fmt.Sprintf("%s at %v", cmp.Or(string(d.reason), "sent"), d.at)) }
	arrive(t, s, 0, workload.Arrival{Route: oneKey})
	arrive(t, s, 0, workload.Arrival{Route: oneKey, MaxWait: 999 * ms}) // its slot is at 1s at least
	arrive(t, s, 0, workload.Arrival{Route: oneKey})
	arrive(t, s, 150*ms, workload.Arrival{Route: oneKey, MaxWait: 2049 * ms}) // its slot is at 2.2s
	arrive(t, s, 150*ms, workload.Arrival{Route: oneKey, MaxWait: 2051 * ms})
	playOut(t, s)
	if want := []string{"sent at 0s", "past_deadline at 0s", "past_deadline at 150ms", "sent at 1.1s", "sent at 2.2s"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestSimulationDelays: a call with a delay waits for its time, and other calls are
// sent before it.
func TestSimulationDelays(t *testing.T) {
	s := simulationOf(t, scheduler.Upstream{Limits: perSecond(1), MaxAge: 5 * sec})
	var got []string
	s.observe = func(d departure) {
		got = append(got, fmt.Sprintf("%d %s at %v", d.Priority, cmp.Or(string(d.reason), "sent"), d.at))
	}
	arrive(t, s, 0, workload.Arrival{Route: oneKey, Priority: 1, Delay: 10 * sec})
	arrive(t, s, 0, workload.Arrival{Route: oneKey, Priority: 2, Delay: 1500 * ms, MaxWait: 1800 * ms}) // its slot is at 1.9s, after the next call
	arrive(t, s, 0, workload.Arrival{Route: oneKey, Priority: 3, Delay: 2 * sec, MaxWait: sec})
	if waiting, _ := s.pending(); waiting != 2 {
		t.Errorf("%d are waiting, want 2", waiting)
	}
	arrive(t, s, 900*ms, workload.Arrival{Route: oneKey, Priority: 4})
	arrive(t, s, sec, workload.Arrival{Route: oneKey, Priority: 5, Delay: 2 * sec})
	playOut(t, s)
	want := []string{"3 past_deadline at 0s", "4 sent at 900ms", "2 past_deadline at 1.8s", "5 sent at 3s", "1 sent at 10s"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSimulationEndsAtTheDeadline(t *testing.T) {
	s := simulationOf(t, scheduler.Upstream{Limits: perSecond(1), MaxAge: 1500 * ms})
	var got []string
	s.observe = func(d departure) { got = append(got, fmt.Sprintf("%s at %v", cmp.Or(string(d.reason), "sent"), d.at)) }
	for range 3 {
		arrive(t, s, 0, workload.Arrival{Route: oneKey})
	}
	playOut(t, s)
	if want := []string{"sent at 0s", "sent at 1s", "past_deadline at 1.5s"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSimulationFindsFaults(t *testing.T) {
	s := simulationOf(t, scheduler.Upstream{Limits: perSecond(2)})
	if _, err := s.arrive(0, workload.Arrival{Upstream: "other", Route: &scheduler.Route{}}); !errors.Is(err, scheduler.NotFound) {
		t.Errorf("an unknown upstream: %v", err)
	}
	dear := &scheduler.Route{Keys: map[string]string{"app": ""}, Costs: map[string]int{"app": 3}}
	if _, err := s.arrive(0, workload.Arrival{Upstream: "api", Route: dear}); !errors.Is(err, scheduler.CostTooHigh) {
		t.Errorf("a cost above the limit: %v", err)
	}
	c := configOf(scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app"}}})
	c.Upstreams["other"] = scheduler.Upstream{}
	var faults interface{ Unwrap() []error }
	if _, err := newSimulation(c, begin); !errors.As(err, &faults) || len(faults.Unwrap()) != 2 {
		t.Errorf("two upstreams with faults: %v", err)
	}
}

// TestSimulationHasTheCalendar: a day's permits return at midnight of its zone.
func TestSimulationHasTheCalendar(t *testing.T) {
	day := &quota.Calendar{Unit: quota.Day, Zone: time.FixedZone("CST", 8*3600)}
	s := simulationOf(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "day", Calls: 1, Calendar: day}}})
	var sent []time.Duration
	s.observe = func(d departure) { sent = append(sent, d.at) }
	for range 2 { // 17:00 in that zone
		arrive(t, s, 0, workload.Arrival{Route: &scheduler.Route{Keys: map[string]string{"day": ""}}})
	}
	playOut(t, s)
	if want := []time.Duration{0, 7 * time.Hour}; !slices.Equal(sent, want) {
		t.Errorf("sent at %v, want %v", sent, want)
	}
}
