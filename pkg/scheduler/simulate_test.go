package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

func newSimulation(t testing.TB, u Upstream) *Simulation {
	t.Helper()
	u.URL = "http://api.test"
	s, err := NewSimulation(Config{Upstreams: map[string]Upstream{"api": u}}, time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func arrive(t testing.TB, s *Simulation, at time.Duration, a Arrival) {
	t.Helper()
	a.Upstream = "api"
	if err := s.Arrive(at, a); err != nil {
		t.Fatal(err)
	}
}

// TestSimulationSendsWhenTheOracleWould compares the simulation with the oracle, as
// TestSendsWhenTheOracleWould does with the scheduler.
func TestSimulationSendsWhenTheOracleWould(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulateWithOracle(t, seed) })
	}
}

func simulateWithOracle(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 6))
	d := draw(r)
	slices.SortStableFunc(d.calls, func(a, b *planned) int { return cmp.Compare(a.due, b.due) })
	for n, c := range d.calls { // age is by arrival, and every call succeeds at once
		c.n, c.cancel, c.tries = n, 0, []try{{c.tries[0].trip, "done"}}
	}
	o := &oracle{calls: d.calls, limits: d.limits, weights: oracleWeights}
	o.run()

	s := newSimulation(t, Upstream{Limits: d.limits, ShareBy: `header("X-Flow")`, Weights: oracleWeights})
	s.begin = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) // at the start of a minute, as the oracle
	of, sent := make(map[*Route]*planned), make(map[*planned]time.Duration)
	s.RoundTrip = func(a *Arrival) time.Duration { return of[a.Route].tries[0].trip }
	s.Observe = func(d Departure) {
		if c := of[d.Route]; d.Reason != "" || d.ArrivedAt != c.due || d.RoundTrip != c.tries[0].trip {
			t.Errorf("call %d: %+v", c.n, d)
		}
		sent[of[d.Route]] = d.At
	}
	for _, c := range d.calls {
		route := &Route{Flow: c.flow, Keys: map[string]string{}, Costs: map[string]int{}}
		for i, key := range c.keys {
			if key != "" {
				route.Keys[d.limits[i].Name], route.Costs[d.limits[i].Name] = key, c.costs[i]
			}
		}
		of[route] = c
		arrive(t, s, c.due, Arrival{Route: route, Priority: c.priority})
	}
	s.Advance(24 * time.Hour)
	for _, c := range d.calls {
		if sent[c] != c.sent[0] {
			t.Fatalf("call %d (due %v, priority %d, flow %s, keys %q, costs %v) was sent at %v, the oracle sends it at %v",
				c.n, c.due, c.priority, c.flow, c.keys, c.costs, sent[c], c.sent[0])
		}
	}
	if waiting, sending := s.Pending(); waiting+sending > 0 || s.wheel.Len() > 0 {
		t.Errorf("%d waiting, %d sending, %d timeouts at the end", waiting, sending, s.wheel.Len())
	}
}

func TestSimulationTurnsAwayWhatASchedulerWould(t *testing.T) {
	s := newSimulation(t, Upstream{Limits: perSecond(1), MaxWaiting: 3, MaxAge: 5 * sec})
	s.RoundTrip = func(*Arrival) time.Duration { return 100 * ms }
	got := map[string]int{}
	s.Observe = func(d Departure) { got[fmt.Sprintf("%s at %v", cmp.Or(d.Reason, "sent"), d.At)]++ }
	one := &Route{Keys: map[string]string{"app": ""}}
	for range 2 {
		arrive(t, s, 0, Arrival{Route: one})
		s.Advance(0)
	}
	// Its slot would be at 2s or later.
	arrive(t, s, 0, Arrival{Route: one, MaxWait: 1900 * ms})
	// It could be sent at 2.2s, but two more urgent calls come.
	arrive(t, s, ms, Arrival{Route: one, MaxWait: 2500 * ms})
	for range 2 {
		arrive(t, s, 2*ms, Arrival{Route: one, Priority: 1})
	}
	s.Advance(time.Hour)
	// The first, the urgent calls and the second are sent. The third urgent call is refused.
	want := map[string]int{"sent at 0s": 1, "past_deadline at 0s": 1, "sent at 1.1s": 1, "full at 2ms": 1, "sent at 2.2s": 1, "past_deadline at 2.501s": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if waiting, sending := s.Pending(); waiting+sending > 0 {
		t.Errorf("%d waiting, %d sending at the end", waiting, sending)
	}
}

// TestSimulationDelays: a call with a delay waits for its time, and other calls are
// sent before it.
func TestSimulationDelays(t *testing.T) {
	s := newSimulation(t, Upstream{Limits: perSecond(1), MaxAge: 5 * sec})
	var got []string
	s.Observe = func(d Departure) {
		got = append(got, fmt.Sprintf("%d %s at %v", d.Priority, cmp.Or(d.Reason, "sent"), d.At))
	}
	one := &Route{Keys: map[string]string{"app": ""}}
	arrive(t, s, 0, Arrival{Route: one, Priority: 1, Delay: 10 * sec})
	arrive(t, s, 0, Arrival{Route: one, Priority: 2, Delay: 1500 * ms, MaxWait: 1800 * ms}) // by then it is a second too late
	arrive(t, s, 0, Arrival{Route: one, Priority: 3, Delay: 2 * sec, MaxWait: sec})
	if waiting, _ := s.Pending(); waiting != 2 {
		t.Errorf("%d are waiting, want 2", waiting)
	}
	arrive(t, s, 900*ms, Arrival{Route: one, Priority: 4})
	arrive(t, s, sec, Arrival{Route: one, Priority: 5, Delay: 2 * sec})
	s.Advance(time.Hour)
	want := []string{"3 past_deadline at 0s", "4 sent at 900ms", "2 past_deadline at 1.8s", "5 sent at 3s", "1 sent at 10s"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if waiting, sending := s.Pending(); waiting+sending > 0 || s.wheel.Len() > 0 {
		t.Errorf("%d waiting, %d sending, %d timeouts at the end", waiting, sending, s.wheel.Len())
	}
}

func TestSimulationRefusesWhatCannotBePlayed(t *testing.T) {
	s := newSimulation(t, Upstream{Limits: perSecond(2)})
	if err := s.Arrive(0, Arrival{Upstream: "nobody", Route: &Route{}}); reason(err) != NotFound {
		t.Errorf("an unknown upstream: %v", err)
	}
	dear := &Route{Keys: map[string]string{"app": ""}, Costs: map[string]int{"app": 3}}
	if err := s.Arrive(0, Arrival{Upstream: "api", Route: dear}); reason(err) != CostTooHigh {
		t.Errorf("a cost above the limit: %v", err)
	}
}

// TestSimulationHasTheCalendar: a day's permits return at midnight of its zone.
func TestSimulationHasTheCalendar(t *testing.T) {
	day := &quota.Calendar{Unit: quota.Day, Zone: time.FixedZone("CST", 8*3600)}
	s := newSimulation(t, Upstream{Limits: []Limit{{Name: "day", Calls: 1, Calendar: day}}})
	var sent []time.Duration
	s.Observe = func(d Departure) { sent = append(sent, d.At) }
	for range 2 { // 17:00 in that zone
		arrive(t, s, 0, Arrival{Route: &Route{Keys: map[string]string{"day": ""}}})
	}
	s.Advance(24 * time.Hour)
	sameTimes(t, sent, 0, 7*time.Hour)
}

// BenchmarkSimulation measures a call under three limits, with a third of the calls
// late.
func BenchmarkSimulation(b *testing.B) {
	const keys = 1000
	s := newSimulation(b, Upstream{MaxWaiting: 1 << 30, Limits: []Limit{
		{Name: "app", Calls: 1000, Window: sec}, {Name: "method", Calls: 800, Window: sec}, {Name: "merchant", Calls: 10, Window: sec},
	}})
	s.RoundTrip = func(*Arrival) time.Duration { return 50 * ms }
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 10, keys-1)
	var routes []*Route
	for i := range keys {
		routes = append(routes, &Route{Keys: map[string]string{"app": "", "method": "", "merchant": fmt.Sprint(i)}})
	}
	at := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		at += time.Duration(r.ExpFloat64() * float64(sec/700))
		arrive(b, s, at, Arrival{Route: routes[zipf.Uint64()]})
	}
}
