package preview

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const sec = time.Second

func configOf(u scheduler.Upstream) scheduler.Config {
	u.URL = "http://api.test"
	return scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}}
}

func play(t *testing.T, c scheduler.Config, o Options, streams ...string) *Report {
	t.Helper()
	load, err := workload.Generate(streams, 1, c)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "test"
	r, err := Run(t.Context(), c, load, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLimitsOfEveryKind: none is over at the upstream, and all calls are accounted for.
func TestLimitsOfEveryKind(t *testing.T) {
	r := play(t, configOf(scheduler.Upstream{ShareBy: `header("T")`, MaxWaiting: 400, Burst: 10, Limits: []scheduler.Limit{
		{Name: "app", Calls: 20, Window: sec, Guard: 110 * time.Millisecond},
		{Name: "done", Calls: 30, Window: sec, Counts: []upstream.Outcome{upstream.Done}},
		{Name: "failed", PerKey: `header("K")`, Calls: 2, Window: time.Minute, Counts: []upstream.Outcome{upstream.Failed}},
		{Name: "minute", Calls: 950, Calendar: &quota.Calendar{Unit: quota.Minute, Skew: sec}},
		{Name: "key", PerKey: `header("K")`, Calls: 5, Window: sec},
		{Name: "conc", Concurrency: 15},
		{Name: "trade", PerKey: `header("N")`, Cost: `2`, Calls: 3, Window: 3 * sec},
	}}), Options{RoundTrip: 100 * time.Millisecond, Spread: 50 * time.Millisecond, Seed: 3},
		"rate=15/s for=25s bursts=200/12s tenants=4 keys=40 zipf=1.2 header.T={tenant} header.K={key} header.N={n} json.x=1",
		"rate=5/s for=25s wait=2s header.T=hasty header.K=h header.N=h{n} json.x=1")
	refused := 0
	for _, n := range r.Refused {
		refused += n
	}
	calls, sent := 0, 0
	for _, f := range r.Flows {
		calls, sent = calls+f.Calls, sent+f.Sent
	}
	arrivals, sends := 0, 0
	for i := range r.Series.Arrivals {
		arrivals, sends = arrivals+r.Series.Arrivals[i], sends+r.Series.Sends[i]
	}
	if r.Over != 0 || r.Sent+refused != r.Calls || calls != r.Calls || sent != r.Sent || arrivals != r.Calls || sends != r.Sent {
		t.Errorf("over %d; calls %d, sent %d, refused %v; by flow %d, %d; over time %d, %d", r.Over, r.Calls, r.Sent, r.Refused, calls, sent, arrivals, sends)
	}
	if r.Refused[scheduler.Full] == 0 || r.Refused[scheduler.PastDeadline] == 0 || r.LimitedWithout == 0 || len(r.Flows) != 5 {
		t.Errorf("refused %v, %d limited without us, flows %+v: the load is too light for this test", r.Refused, r.LimitedWithout, r.Flows)
	}
	without, share := 0, 0.0
	for _, l := range r.Limits {
		if uncounted := l.Limit == "failed"; l.Most > l.Permits || l.Keys > 0 && (l.Most == 0) != uncounted {
			t.Errorf("limit %+v: most is not within its permits", l)
		}
		without += l.LimitedWithout
		share += l.Share
	}
	if without != r.LimitedWithout || share > 1 {
		t.Errorf("%d limited by the limits, %d in all; limits bind %.2f of the time", without, r.LimitedWithout, share)
	}
	if r.Backlog.Peak > 400 || r.Backlog.Peak != slices.Max(r.Series.Waiting) || r.Wait.P50 > r.Wait.P95 || r.Wait.P99 > r.Wait.Max {
		t.Errorf("backlog %+v, waits %+v", r.Backlog, r.Wait)
	}
}

// TestWhichLimitBindsWhen: first one key's, then the app's.
func TestWhichLimitBindsWhen(t *testing.T) {
	c := configOf(scheduler.Upstream{Limits: []scheduler.Limit{
		{Name: "app", Calls: 20, Window: sec}, {Name: "key", PerKey: `header("K")`, Calls: 10, Window: sec},
	}})
	r := play(t, c, Options{}, "bursts=50/1m for=1s header.K=one", "bursts=200/1m for=1s keys=100 header.K={key}")
	app, key := r.Limits[0], r.Limits[1]
	if app.Limit != "app" || len(app.Binds) == 0 || app.Binds[0].From != 0 || app.Share < 0.9 || len(key.Binds) != 0 {
		t.Errorf("both: %+v, %+v", app, key)
	}
	r = play(t, c, Options{}, "bursts=50/1m for=1s header.K=one")
	app, key = r.Limits[0], r.Limits[1]
	if len(app.Binds) != 0 || len(key.Binds) != 1 || key.Binds[0].From != 0 || key.Binds[0].To != 4000 || key.Queued != 40 {
		t.Errorf("one key: %+v, %+v; want the key from 0s to 4s", app, key)
	}
}

func TestConcurrencyOfTheUpstreamIsToldWhereItBinds(t *testing.T) {
	r := play(t, configOf(scheduler.Upstream{Concurrency: 2}), Options{RoundTrip: sec}, "bursts=10/1m for=1s")
	if len(r.Limits) != 1 || r.Limits[0].Limit != scheduler.ConcurrencyLimit || r.Limits[0].Queued != 8 || r.Makespan != 5000 || r.LimitedWithout != 0 {
		t.Errorf("limits %+v, makespan %v", r.Limits, r.Makespan)
	}
}

// TestTheUpstreamHasNoGuardOrSpacing: without Throttler, it executes as many calls as the
// limit has permits, however close they are, and a window after they came in the next.
func TestTheUpstreamHasNoGuardOrSpacing(t *testing.T) {
	c := configOf(scheduler.Upstream{Burst: 1, Limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: sec, Guard: 10 * time.Millisecond}}})
	r := play(t, c, Options{RoundTrip: 100 * time.Millisecond}, "bursts=10/1s for=2s")
	if r.Sent != 20 || r.LimitedWithout != 0 || r.Over != 0 || r.Wait.Max < 900 {
		t.Errorf("%d sent after %v at most, %d over, %d limited without us; want 20 spaced over 0.9s, 0 and 0", r.Sent, r.Wait.Max.Duration(), r.Over, r.LimitedWithout)
	}
}

// TestTheUpstreamCountsCallsInFlight: without Throttler, it executes the calls that come
// while fewer are in flight than its limit of concurrency.
func TestTheUpstreamCountsCallsInFlight(t *testing.T) {
	c := configOf(scheduler.Upstream{Limits: []scheduler.Limit{{Name: "conc", Concurrency: 2}}})
	r := play(t, c, Options{RoundTrip: 900 * time.Millisecond}, "bursts=3/500ms for=1100ms")
	if l := r.Limits[0]; r.LimitedWithout != 5 || l.LimitedWithout != 5 || l.Most != 2 || r.Over != 0 {
		t.Errorf("%d limited without us, %+v; want 1 at 0s, 3 at 0.5s and 1 at 1s, at most 2 in flight", r.LimitedWithout, l)
	}
}

// TestFlowsWithAWeightAreOneInAnyCase holds a report to the flows of the planner.
func TestFlowsWithAWeightAreOneInAnyCase(t *testing.T) {
	c := configOf(scheduler.Upstream{ShareBy: `header("T")`, Weights: map[string]float64{"gold": 2}})
	r := play(t, c, Options{}, "bursts=1/1m for=1s header.T=Gold", "bursts=2/1m for=1s flow=GOLD", "bursts=3/1m for=1s header.T=Tin", "bursts=4/1m for=1s header.T=tin")
	var got []string
	for _, f := range r.Flows {
		got = append(got, fmt.Sprint(f.Flow, f.Calls))
	}
	if want := []string{"Tin3", "gold3", "tin4"}; !slices.Equal(got, want) {
		t.Errorf("flows %q, want %q", got, want)
	}
}

func TestTextNamesTheReasonsOfRefusals(t *testing.T) {
	c := configOf(scheduler.Upstream{MaxWaiting: 2, MaxAge: sec / 2, Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: sec}}})
	r := play(t, c, Options{}, "bursts=4/1m for=1s")
	var text strings.Builder
	if err := Text(&text, r); err != nil || !strings.Contains(text.String(), "refused by Throttler     1 (25.0%) past_deadline, 2 (50.0%) full\n") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// TestSeries compares a series that has grown with the sums and the peak of its values.
func TestSeries(t *testing.T) {
	s := Series{step: time.Millisecond, Limits: []*LimitSeries{{}}}
	random := rand.New(rand.NewPCG(1, 1))
	total, top, last := 0, 0, time.Duration(0)
	for range 10_000 {
		last += time.Duration(random.IntN(3000)) * time.Millisecond
		step, n := s.at(last), random.IntN(10)
		s.Arrivals[step] += n
		s.Waiting[step] = max(s.Waiting[step], n)
		total, top = total+n, max(top, n)
		if s.length > maxSteps || s.length != step+1 || len(s.Limits[0].Most) != s.length {
			t.Fatalf("%d steps of %v at %v, %d of the limit", s.length, s.step, last, len(s.Limits[0].Most))
		}
	}
	sum := 0
	for _, n := range s.Arrivals {
		sum += n
	}
	if sum != total || slices.Max(s.Waiting) != top || s.length < maxSteps/2 {
		t.Errorf("sum %d of %d, most %d of %d, %d steps", sum, total, slices.Max(s.Waiting), top, s.length)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	c := configOf(scheduler.Upstream{})
	load, err := workload.Generate([]string{"rate=1000/s for=100h"}, 1, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	_, err = Run(ctx, c, load, Options{Progress: func(done float64) {
		if told++; told == 3 && done > 0 && done < 1 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || told != 3 {
		t.Errorf("%v after being told of progress %d times", err, told)
	}
}

func TestConditions(t *testing.T) {
	r := play(t, configOf(scheduler.Upstream{ShareBy: `header("T")`, Limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: sec}}}),
		Options{RoundTrip: 50 * time.Millisecond}, "bursts=30/1h for=1s header.T=gold")
	for source, want := range map[string]bool{
		"wait.p99 > 2s":                                     true,
		"wait.p99 > 2.1s":                                   false,
		"wait.max > 1m30s or backlog.peak == 20":            true,
		`flows["gold"].wait.p95 >= 2100ms`:                  true,
		`flows["gold"].sent < flows["gold"].calls`:          false,
		`limits["app"].most > 10 || refused > 0`:            false,
		`limits["app"].share > 0.9 and limited_without > 0`: true,
		"makespan < 2s or over > 0":                         false,
		"calls == 30 && sent == 30 && length == 0s":         true,
	} {
		c, err := Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := c.Holds(r); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", source, got, err, want)
		}
	}
	for source, want := range map[string]string{
		"wait.p90 > 1s":  "wait has no p90; it has max, mean, p50, p95, p99",
		"wait.p99":       "gives a duration, must be true or false; compare it, such as wait.p99 > 5s",
		"wait.p99 > 5":   "does not work with a duration and a whole number; write a duration with its unit, such as 5s",
		"waits.p99 > 1s": "unknown name waits; did you mean wait?",
		" ":              "is empty",
	} {
		if _, err := Compile(source); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), source) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	for source, want := range map[string]string{
		`flows["sliver"].wait.p99 > 1s`: `flows["sliver"] is not there; there are ["gold"]`,
		`limits.api.most > 3`:           `limits["api"] is not there; there are ["app" "concurrency"]`,
	} {
		c, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Holds(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// TestConditionsOfSeveralUpstreams: two that have a limit and a flow of one name
// are told apart, and neither stands for the other.
func TestConditionsOfSeveralUpstreams(t *testing.T) {
	limits := func(calls int, more ...scheduler.Limit) scheduler.Upstream {
		u := scheduler.Upstream{ShareBy: `header("T")`, Limits: append(more, scheduler.Limit{Name: "app", Calls: calls, Window: sec})}
		return configOf(u).Upstreams["api"]
	}
	r := play(t, scheduler.Config{Upstreams: map[string]scheduler.Upstream{
		"a": limits(10), "b": limits(30, scheduler.Limit{Name: "only", Calls: 30, Window: sec}),
	}}, Options{}, "upstream=a bursts=20/1h for=1s header.T=gold", "upstream=b bursts=20/1h for=1s header.T=gold")
	for source, want := range map[string]any{
		`limits["a/app"].queued == 10 and limits["b/app"].queued == 0`: true,
		`flows["a/gold"].wait.max == 1s && limits.only.most == 20`:     true,
		`flows["b/gold"].wait.max > 0s or limits["b/only"].most > 20`:  false,
		`limits["b/concurrency"].queued > 0`:                           false,
		`limits["app"].queued > 0`:                                     `limits["app"] is not there; there are ["a/app" "a/concurrency" "b/app"`,
		`flows["gold"].sent > 0`:                                       `flows["gold"] is not there; there are ["a/gold" "b/gold"]`,
	} {
		c, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		holds, err := c.Holds(r)
		if text, wrong := want.(string); wrong {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %s", source, err, text)
			}
		} else if err != nil || holds != want {
			t.Errorf("%s is %v, %v, want %v", source, holds, err, want)
		}
	}
}

// TestChart checks the panels, that those of two reports side by side are of the same
// limits, and that lines end where the series of the report do.
func TestChart(t *testing.T) {
	limits := []scheduler.Limit{{Name: "app", Calls: 10, Window: sec}, {Name: "key", PerKey: `header("K")`, Calls: 5, Window: sec}}
	one := play(t, configOf(scheduler.Upstream{Limits: limits}), Options{}, "rate=11/s for=30s keys=4 zipf=1.3")
	limits[0].Calls = 20
	two := play(t, configOf(scheduler.Upstream{Limits: limits[:1]}), Options{}, "bursts=1/1m for=1s")
	c := Chart(one, two)
	titles := [][]string{
		{"test: calls that have come in and gone", "backlog", "limit app: 10 per 1s", "limit key: 5 per 1s, for each of 4 keys"},
		{"test: calls that have come in and gone", "backlog", "limit app: 20 per 1s", "limit key"},
	}
	for x, column := range c.Columns {
		var got []string
		for _, p := range column {
			got = append(got, p.Title)
		}
		if !slices.Equal(got, titles[x]) {
			t.Errorf("column %d has %q, want %q", x, got, titles[x])
		}
	}
	for _, p := range c.Columns[0] {
		for _, s := range p.Series {
			n, end := len(s.Values), float64(len(one.Series.Arrivals))*one.Series.Step.Duration().Seconds()
			if n > points || n < points/2 || float64(n)*p.Step < end || float64(n-1)*p.Step > end {
				t.Errorf("%s of %s: %d points of %vs, and the report has %vs", s.Name, p.Title, n, p.Step, end)
			}
		}
	}
	flow, backlog := c.Columns[0][0], c.Columns[0][1]
	for i, calls := range []int{one.Calls, one.Sent} {
		if last := flow.Series[i].Values; last[len(last)-1] != float64(calls) {
			t.Errorf("%s end at %v, want %d", flow.Series[i].Name, last[len(last)-1], calls)
		}
	}
	if peak := slices.Max(backlog.Series[0].Values); peak != float64(one.Backlog.Peak) || backlog.Series[1].Name != "for app" {
		t.Errorf("the backlog is %v at most, want %d; series %v", peak, one.Backlog.Peak, backlog.Series[1].Name)
	}
	svg := string(c.SVG(""))
	for _, want := range []string{"time since the first call (seconds)", "calls waiting", "permits in a window", "limit app: 10 per 1s", "limit: 10", "limit: 5", "arrivals", "sends", "busiest key"} {
		if !strings.Contains(svg, ">"+want+"<") {
			t.Errorf("%q is not in the picture", want)
		}
	}
}

// TestChartOfNothing: a report without steps, limits or calls is drawn too.
func TestChartOfNothing(t *testing.T) {
	if svg := string(Chart(&Report{Config: "empty"}).SVG("")); !strings.Contains(svg, ">empty: calls that have come in and gone<") {
		t.Errorf("the picture is %s", svg)
	}
}
