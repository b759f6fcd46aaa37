package planner

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// eta returns the ETA of a call.
func (r *rig) eta(name string) time.Duration {
	return r.planner.ETA(r.time(), r.calls[name], Elsewhere{}).At.Sub(start)
}

// TestETABehindCallsThatGo: permits that are free belong to the calls ahead, also before these are taken out.
func TestETABehindCallsThatGo(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(sec)})
	for i, ahead := range []int{0, 1, 2} {
		name := fmt.Sprint("a", i)
		r.add(name, need(0, "", 1))
		f := r.planner.ETA(r.time(), r.calls[name], Elsewhere{})
		if late := f.At.After(r.time()); late != (i == 2) || late && f.Ahead != ahead {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestETAIsExact: calls of one flow with equal costs are sent when their estimates say.
// They are asked for at once, and again when some have gone and no attempt is in flight.
func TestETAIsExact(t *testing.T) {
	const trip = 20 * ms
	minute := &quota.Calendar{Unit: quota.Minute, Skew: sec}
	app := quota.Limit{Name: "app", Calls: 5, Window: quota.Sliding(sec)}
	one := func(int) []quota.Need { return []quota.Need{need(0, "", 1)} }
	for _, tt := range []struct {
		name   string
		limits []quota.Limit
		needs  func(i int) []quota.Need
		before func(r *rig)
		again  time.Duration // when they are asked for again
	}{
		{"sliding window", []quota.Limit{app}, one, nil, 500 * ms},
		{"minimum distance", []quota.Limit{{Name: "app", Calls: 1, Window: quota.Sliding(3 * sec)}}, one, nil, 10 * sec},
		{"aligned minute", []quota.Limit{{Name: "app", Calls: 7, Window: quota.Aligned(*minute)}}, one, nil, 100 * sec},
		{"concurrency", []quota.Limit{{Name: "app", Calls: 3, Window: quota.InFlight()}}, one, nil, 0},
		{"guard", []quota.Limit{{Name: "app", Calls: 5, Window: quota.Sliding(sec), Guard: trip}}, one, nil, 500 * ms},
		{"cost 2 of 4", []quota.Limit{{Name: "app", Calls: 4, Window: quota.Sliding(sec)}}, func(int) []quota.Need { return []quota.Need{need(0, "", 2)} }, nil, 500 * ms},
		{"keys", []quota.Limit{app}, func(i int) []quota.Need { return []quota.Need{need(0, fmt.Sprint(i%3), 1)} }, nil, 1500 * ms},
		{"a wider limit, too", []quota.Limit{app, {Name: "wide", Calls: 100, Window: quota.Sliding(10 * sec)}},
			func(int) []quota.Need { return []quota.Need{need(0, "", 1), need(1, "", 1)} }, nil, 500 * ms},
		{"a pause of the limit", []quota.Limit{app}, one, func(r *rig) { r.ledger.PauseLimit(0, start.Add(7*sec)) }, 3 * sec},
		{"a pause of the key", []quota.Limit{app}, one, func(r *rig) { r.ledger.PauseKey(start, 0, "", start.Add(7*sec)) }, 3 * sec},
		{"some permits are out", []quota.Limit{app}, one, func(r *rig) {
			for i := range 3 {
				r.add(fmt.Sprint("p", i), need(0, "", 1))
				r.dispatch(1)
				r.back(fmt.Sprint("p", i))
				r.now += 100 * ms
			}
		}, 900 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil, tt.limits...)
			r.planner.Observe(trip)
			if tt.before != nil {
				tt.before(r)
			}
			r.trip = trip
			var names []string
			told := map[string]time.Duration{}
			for i := range 60 {
				name := fmt.Sprint("a", i)
				r.add(name, tt.needs(i)...)
				told[name] = r.eta(name)
				r.dispatch(1 << 30)
				names = append(names, name)
			}
			r.run(tt.again)
			for _, name := range names {
				if at := r.eta(name); r.calls[name].Queued() && tt.again > 0 && at != told[name] {
					t.Errorf("%s: told was %v, and at %v %v", name, told[name], r.now, at)
				}
			}
			last := r.planner.Last(r.time(), r.time(), Elsewhere{}).Sub(start)
			r.run(time.Hour)
			for _, name := range names {
				if at, ok := r.sent[name]; !ok || at != told[name] {
					t.Errorf("%s: sent %v at %v, told was %v", name, ok, at, told[name])
				}
			}
			if at := r.sent[names[len(names)-1]]; last != at {
				t.Errorf("the last call was sent at %v, told was %v", at, last)
			}
		})
	}
}

// wait sends one call and lets others wait behind it, a part of them urgent. It returns
// the ETA of each.
func (r *rig) wait(calls, urgent int, name func(i int) string) map[string]time.Duration {
	r.trip = 0
	r.add("z", need(0, "", 1))
	r.dispatch(1)
	for i := range calls {
		r.urgent(name(i), int16(urgent*i/calls), need(0, "", 1))
	}
	r.run(0)
	told := map[string]time.Duration{}
	for i := range calls {
		told[name(i)] = r.eta(name(i))
	}
	return told
}

// TestETAOfFlows: flows take turns by weight, and each call is sent when its estimate says.
func TestETAOfFlows(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights map[string]float64
		urgent  int
		flow    func(i int) rune
	}{
		{"one call each", nil, 0, func(i int) rune { return 'a' + rune(i) }},
		{"three flows", nil, 0, func(i int) rune { return 'a' + rune(i%3) }},
		{"weights 1 and 2", map[string]float64{"b": 2}, 0, func(i int) rune { return []rune("abb")[i%3] }},
		{"one after the other", map[string]float64{"a": 3}, 0, func(i int) rune { return 'a' + rune(i/8) }},
		{"half of them urgent", nil, 2, func(i int) rune { return 'a' + rune(i/4) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.weights, quota.Limit{Name: "app", Calls: 1, Window: quota.Sliding(500 * ms)})
			told := r.wait(16, tt.urgent, func(i int) string { return fmt.Sprint(string(tt.flow(i)), i) })
			r.run(time.Hour)
			for name, told := range told {
				if at := r.sent[name]; at != told {
					t.Errorf("%s was sent at %v, told was %v", name, at, told)
				}
			}
		})
	}
}

// TestETAOfManyFlows: an estimate looks at some of the flows, spread over all.
func TestETAOfManyFlows(t *testing.T) {
	const calls = 200 // of one flow each
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 1, Window: quota.Sliding(sec)})
	told := r.wait(calls, 0, func(i int) string { return string(rune('一' + i)) })
	r.run(time.Hour)
	worst := time.Duration(0)
	for name, told := range told {
		worst = max(worst, (r.sent[name] - told).Abs())
	}
	if t.Log(worst); worst > calls/10*sec {
		t.Errorf("an estimate is off by %v of %v", worst, calls*sec)
	}
}

// TestETAIsNear keeps up a backlog of three flows, of whose calls some come under a second
// limit. 95 of 100 estimates are within 3%, or 100 ms, of when the call then goes.
func TestETAIsNear(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights map[string]float64
		flows   string
		refunds map[string]float64 // the part of a flow's calls that come under both limits
	}{
		{"alike", nil, "abc", map[string]float64{"a": .15, "b": .15, "c": .15}},
		{"by weight", map[string]float64{"b": 2}, "abbc", map[string]float64{"a": .16, "b": .16, "c": .16}},
		{"each otherwise", map[string]float64{"b": 2}, "abbc", map[string]float64{"b": .1, "c": .5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.weights, quota.Limit{Name: "app", Calls: 100, Window: quota.Sliding(sec)}, quota.Limit{Name: "refund", Calls: 20, Window: quota.Sliding(sec)})
			r.trip = 20 * ms
			r.planner.Observe(r.trip)
			random := rand.New(rand.NewPCG(7, 7))
			told, asked := map[string]time.Duration{}, map[string]time.Duration{}
			for i := range 3500 {
				if i >= 2000 { // about as many come as go
					r.run(r.now + 10200*time.Microsecond)
				}
				flow := string(tt.flows[i%len(tt.flows)])
				name, needs := fmt.Sprint(flow, i), []quota.Need{need(0, "", 1)}
				if random.Float64() < tt.refunds[flow] {
					needs = append(needs, need(1, "", 1))
				}
				r.add(name, needs...)
				r.dispatch(1 << 30)
				if i >= 2000 && r.calls[name].Queued() {
					told[name], asked[name] = r.eta(name), r.now
				}
			}
			r.run(r.now + 3*time.Minute)
			near := 0
			for name, told := range told {
				at, ok := r.sent[name]
				if !ok {
					t.Fatalf("%s was not sent", name)
				}
				if (told - at).Abs() <= max((at-asked[name])*3/100, 100*ms) {
					near++
				}
			}
			t.Logf("%d of %d estimates are near", near, len(told))
			if near*100 < len(told)*95 {
				t.Error("want 95 of 100")
			}
		})
	}
}

// TestForecast: an estimate tells what the call waits for, and counts what the planner
// cannot see.
func TestForecast(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(sec)}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(3 * sec)})
	r.trip = 0
	needs := []quota.Need{need(0, "", 1), need(1, "17", 1)}
	free := &Item[string]{Demand: demand("a", needs...)}
	check := func(what string, got, want Forecast) {
		t.Helper()
		if !got.At.Equal(want.At) || got.Limit != want.Limit || got.Key != want.Key || got.Ahead != want.Ahead || got.Pause != want.Pause {
			t.Errorf("%s: %+v (in %v), want %+v", what, got, got.At.Sub(r.time()), want)
		}
	}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	check("nothing waits", r.planner.ETA(r.time(), free, Elsewhere{}), Forecast{At: at(0), Limit: -1})
	check("one waits on disk", r.planner.ETA(r.time(), free, Elsewhere{Ahead: 1}), Forecast{At: at(3 * sec), Limit: 1, Key: "17", Ahead: 1})

	r.add("a1", needs...)
	r.run(0)
	for i := range 3 {
		r.add(fmt.Sprint("b", i), needs...)
	}
	r.run(0)
	// Flow a has had one call. Its next one comes at the virtual time of b1, which is older.
	check("two are before", r.planner.ETA(r.time(), free, Elsewhere{}), Forecast{At: at(9 * sec), Limit: 1, Key: "17", Ahead: 2})
	check("and two on disk", r.planner.ETA(r.time(), free, Elsewhere{Ahead: 2}), Forecast{At: at(15 * sec), Limit: 1, Key: "17", Ahead: 4})
	check("without the limit", r.planner.ETA(r.time(), free, Elsewhere{Without: 2, Ahead: 3}), Forecast{At: at(2 * sec), Limit: 0, Ahead: 3})
	check("without another", r.planner.ETA(r.time(), free, Elsewhere{Without: 1}), Forecast{At: at(9 * sec), Limit: 1, Key: "17", Ahead: 2})
	dear := &Item[string]{Demand: demand("x", need(0, "", 2))}
	check("with two on disk that take two permits each", r.planner.ETA(r.time(), dear, Elsewhere{Ahead: 2, Without: 2}), Forecast{At: at(3 * sec), Limit: 0, Ahead: 5})
	check("of one of them", r.planner.ETA(r.time(), r.calls["b1"], Elsewhere{}), Forecast{At: at(6 * sec), Limit: 1, Key: "17", Ahead: 1})
	urgent := &Item[string]{Demand: demand("a", needs...), Priority: 1}
	check("of an urgent call", r.planner.ETA(r.time(), urgent, Elsewhere{}), Forecast{At: at(3 * sec), Limit: 1, Key: "17"})
	r.run(time.Minute)
	r.ledger.PauseLimit(0, at(time.Hour))
	check("during a pause", r.planner.ETA(r.time(), urgent, Elsewhere{}), Forecast{At: at(time.Hour), Limit: 0, Pause: at(time.Hour)})
	check("during a pause of the limit that is left out", r.planner.ETA(r.time(), urgent, Elsewhere{Without: 1}), Forecast{At: at(time.Minute), Limit: -1})
	r.ledger.PauseLimit(1, at(time.Hour))
	check("during two pauses", r.planner.ETA(r.time(), urgent, Elsewhere{}), Forecast{At: at(time.Hour), Limit: 0, Pause: at(time.Hour)})
	r.ledger.PauseLimit(1, time.Time{})
	hang := Elsewhere{Hung: func(limit int, key string) int {
		if limit == 1 && key == "17" {
			return 1
		}
		return 0
	}}
	check("during a pause, while an attempt hangs", r.planner.ETA(r.time(), urgent, hang), Forecast{At: at(time.Hour), Limit: 0, Pause: at(time.Hour)})
	check("without an end, as an attempt hangs", r.planner.ETA(at(2*time.Hour), urgent, hang), Forecast{Limit: 1, Key: "17"})
	check("while an attempt hangs at another key", r.planner.ETA(at(2*time.Hour), &Item[string]{Demand: demand("a", need(0, "", 1), need(1, "18", 1))}, hang), Forecast{At: at(2 * time.Hour), Limit: -1})
	check("during a pause, with two on disk", r.planner.ETA(r.time(), urgent, Elsewhere{Ahead: 2}), Forecast{At: at(time.Hour + 6*sec), Limit: 0, Ahead: 2, Pause: at(time.Hour)})
}

// TestLastOfTwoLimits: calls outside of the planner are taken to wait at its limits in the
// same shares as those inside.
func TestLastOfTwoLimits(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 10, Window: quota.Sliding(sec)}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	r.trip = 0
	for i := range 70 {
		r.add(fmt.Sprint("a", i), need(0, "", 1))
	}
	for i := range 3 {
		r.add(fmt.Sprint("t", i), need(1, "alone", 1))
	}
	r.run(0) // sends 10 and one
	if last := r.planner.Last(start, start, Elsewhere{Ahead: 62}).Sub(start); last != 12*sec {
		t.Errorf("with as many outside, the last call goes at %v, want 12s", last)
	}
}

// TestLastAfterPauses: a pause of one limit holds up the calls that wait for another, but not those that
// do not need it.
func TestLastAfterPauses(t *testing.T) {
	limits := []quota.Limit{{Name: "app", Calls: 10, Window: quota.Sliding(sec)}, {Name: "refund", Calls: 1, Window: quota.Sliding(sec)}, {Name: "transfer", Calls: 10, Window: quota.Sliding(sec)}}
	minute := start.Add(time.Minute)
	all, key, transfers := Pause{0, "", minute}, Pause{0, "slow", minute}, Pause{2, "", minute}
	app, refund, slow, transfer := need(0, "a", 1), need(1, "", 1), need(0, "slow", 1), need(2, "", 1)
	for _, tt := range []struct {
		name   string
		calls  []quota.Need // of six calls
		others []quota.Need // of five more
		pauses []Pause
		stored int // calls elsewhere
		opens  time.Duration
		want   time.Duration // as they come; no call waits in a line yet
		looked time.Duration // when they wait in lines; zero: the same
	}{
		{"nothing is paused", []quota.Need{app, refund}, nil, nil, 0, 0, 5 * sec, 0},
		{"all need a limit that is paused", []quota.Need{app, refund}, nil, []Pause{all}, 0, 0, time.Minute + 5*sec, 0},
		{"half as many elsewhere", []quota.Need{app, refund}, nil, []Pause{all}, 3, 0, time.Minute + 8*sec, 0},
		{"all need a key that is paused", []quota.Need{slow, refund}, nil, []Pause{key}, 0, 0, time.Minute + 5*sec, 0},
		{"none needs the limit that is paused", []quota.Need{app, refund}, nil, []Pause{transfers}, 0, 0, 5 * sec, 0},
		{"none needs the key that is paused", []quota.Need{app, refund}, nil, []Pause{key}, 0, 0, 5 * sec, 0},
		{"none needs one, and all another", []quota.Need{app, refund}, nil, []Pause{key, all}, 0, 0, time.Minute + 5*sec, 0},
		{"some need the key that is paused", []quota.Need{app, refund}, []quota.Need{slow, refund}, []Pause{key}, 0, 0, time.Minute + 4*sec, 0},
		{"some need that key alone", []quota.Need{refund}, []quota.Need{slow}, []Pause{key}, 0, 0, time.Minute + 4*sec, time.Minute},
		{"some need that key alone, and others another of the limit", []quota.Need{app}, []quota.Need{slow}, []Pause{key}, 0, 0, time.Minute, 0},
		{"some need that key alone, and others wait for longer", []quota.Need{refund}, []quota.Need{slow}, []Pause{{0, "slow", start.Add(sec / 2)}}, 0, 0, 5 * sec, 0},
		{"some need another limit that is paused", []quota.Need{refund}, []quota.Need{transfer}, []Pause{transfers}, 0, 0, time.Minute + 4*sec, time.Minute},
		{"some need one key, and others another", []quota.Need{app, refund}, []quota.Need{slow}, []Pause{key, {0, "a", start.Add(3 * sec)}}, 0, 0, time.Minute + 4*sec, time.Minute},
		{"the upstream is paused for longer", []quota.Need{app, refund}, nil, []Pause{all}, 0, 2 * time.Minute, 2*time.Minute + 5*sec, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil, limits...)
			r.trip = 0
			for _, p := range tt.pauses {
				if p.Key == "" {
					r.ledger.PauseLimit(p.Limit, p.Until)
				} else {
					r.ledger.PauseKey(start, p.Limit, p.Key, p.Until)
				}
			}
			for i := range 6 {
				r.add(fmt.Sprint("a", i), tt.calls...)
			}
			for i := range 5 {
				if tt.others != nil {
					r.add(fmt.Sprint("b", i), tt.others...)
				}
			}
			last := func() time.Duration {
				return r.planner.Last(start, start.Add(tt.opens), Elsewhere{Ahead: tt.stored, Pauses: tt.pauses}).Sub(start)
			}
			if got := last(); got != tt.want {
				t.Errorf("as they come: %v, want %v", got, tt.want)
			}
			r.dispatch(1 << 30)
			if got, want := last(), cmp.Or(tt.looked, tt.want); got != want {
				t.Errorf("when they wait in lines: %v, want %v", got, want)
			}
		})
	}
}

// TestLast: the last of all calls waits at the key for which most permits are wanted.
func TestLast(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 10, Window: quota.Sliding(sec)}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	if last := r.planner.Last(start, start, Elsewhere{}); !last.IsZero() {
		t.Errorf("nothing waits, and the last call goes at %v", last)
	}
	r.trip = 0
	for i := range 3 {
		r.add(fmt.Sprint("t", i), need(1, "alone", 1)) // none waits for app
	}
	r.run(0)
	if last := r.planner.Last(start, start, Elsewhere{}).Sub(start); last != 2*sec {
		t.Errorf("the last of three calls goes at %v, want 2s", last)
	}
	for i := range 12 {
		r.add(fmt.Sprint("a", i), need(0, "", 1), need(1, fmt.Sprint(i%4/3), 1)) // nine of key 0, three of key 1
	}
	r.run(0)
	if last := r.planner.Last(start, start, Elsewhere{}).Sub(start); last != 8*sec {
		t.Errorf("the last call goes at %v, want 8s", last)
	}
	if last := r.planner.Last(start, start, Elsewhere{Ahead: 12}).Sub(start); last != 16*sec { // as many again outside
		t.Errorf("with as many on disk, the last call goes at %v, want 16s", last)
	}
	if last := r.planner.Last(start, start.Add(time.Minute), Elsewhere{}).Sub(start); last != time.Minute+7*sec {
		t.Errorf("after a pause, the last call goes at %v, want 1m7s", last)
	}
	if last := r.planner.Last(start, start, Elsewhere{Hung: func(limit int, key string) int { return limit }}); !last.IsZero() {
		t.Errorf("an attempt hangs, and the last call goes at %v", last)
	}
	r.run(time.Hour)
	if last := r.sent["a10"]; last != 8*sec {
		t.Errorf("the last call went at %v, want 8s", last)
	}
}

// TestObserve: attempts that take longer make later estimates, by an eighth each.
func TestObserve(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 1, Window: quota.InFlight()})
	r.planner.Observe(80 * ms)
	r.add("a", need(0, "", 1))
	r.dispatch(1)
	r.add("b", need(0, "", 1))
	for i, want := range []time.Duration{80 * ms, 90 * ms} {
		if i > 0 {
			r.planner.Observe(160 * ms)
		}
		if at := r.eta("b"); at != want {
			t.Errorf("the ETA is in %v, want %v", at, want)
		}
	}
}
