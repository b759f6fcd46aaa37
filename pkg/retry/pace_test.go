package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/internal/heap"
)

// The receivers are the rate limiters of APIs, as their own sources count. Each allows hits per
// window of a second; at is the instant of arrival, in seconds, and never falls.
type receiver interface{ accept(at float64) bool }

// slidingLog counts the accepted hits of the last second.
type slidingLog struct {
	n    int
	hits []float64
}

func (r *slidingLog) accept(at float64) bool {
	for len(r.hits) > 0 && r.hits[0] <= at-1 {
		r.hits = r.hits[1:]
	}
	if len(r.hits) >= r.n {
		return false
	}
	r.hits = append(r.hits, at)
	return true
}

// fixedWindow counts from the first hit or, with an edge, by the clock. Elastic has each hit begin
// the window again, as limits' elastic expiry does.
type fixedWindow struct {
	n       int
	clock   bool
	edge    float64
	elastic bool
	ends    float64
	count   int
}

func (r *fixedWindow) accept(at float64) bool {
	if at >= r.ends {
		r.count, r.ends = 0, at+1
		if r.clock {
			r.ends = math.Floor(at-r.edge) + r.edge + 1
		}
	}
	if r.elastic {
		r.ends = at + 1
	}
	r.count++
	return r.count <= r.n
}

// bucket is a token or leaky bucket, also GCRA and nginx.
type bucket struct {
	rate, capacity float64
	full           float64 // instant at which it would be full
}

func (r *bucket) accept(at float64) bool {
	full := max(r.full, at) + 1/r.rate
	if full-at > r.capacity/r.rate+1e-9 {
		return false
	}
	r.full = full
	return true
}

// counter weighs the previous window by the part of it that a window that ends now covers. Some
// count refused hits too, and some weigh by whole windows only.
type counter struct {
	n         int
	all       bool // refused hits count
	whole     bool // the previous window weighs as a whole
	edge      float64
	index     float64
	prev, cur float64
}

func (r *counter) accept(at float64) bool {
	i := math.Floor(at - r.edge)
	switch {
	case i == r.index+1:
		r.prev, r.cur = r.cur, 0
	case i > r.index:
		r.prev, r.cur = 0, 0
	}
	r.index = i
	weight := 1 - (at - r.edge - i)
	if r.whole {
		weight = 1
	}
	ok := r.prev*weight+r.cur+1 <= float64(r.n)
	if ok || r.all {
		r.cur++
	}
	return ok
}

// A pacing is a load that goes to a receiver through the hold of a limit and a Pacer.
type pacing struct {
	calls    int           // per second that the limit is configured for
	trip     time.Duration // of an answer
	bulk     int           // calls that wait at the begin
	steady   float64       // calls per second that come after, until there are as many as all
	all      int
	others   func(now time.Time) bool // other programs use the quota: a call is refused for them
	random   *rand.Rand
	refuser  receiver
	pacer    Pacer[string]
	jitter   time.Duration
	requests int
	done     int
	began    time.Time
	first    int // requests before the first refusal was known
	refused  bool
}

type happening struct {
	at    time.Time
	do    func(now time.Time)
	place int
}

// run plays the load, and returns how long it took.
func (p *pacing) run() time.Duration {
	now := at(0)
	p.began = now
	events := heap.New(func(e *happening) *int { return &e.place }, func(a, b *happening) bool { return a.at.Before(b.at) })
	later := func(at time.Time, do func(now time.Time)) { events.Add(&happening{at: at, do: do}) }
	waiting, out := p.bulk, 0 // permits out
	var next, awake time.Time // no call before next; an event wakes dispatch
	var dispatch func(now time.Time)
	wake := func(at time.Time) {
		if !awake.After(now) || at.Before(awake) {
			awake = at
			later(at, dispatch)
		}
	}
	answer := func(sentAt time.Time, ok bool) func(time.Time) {
		return func(now time.Time) {
			later(now.Add(time.Second), func(now time.Time) { out--; dispatch(now) })
			if ok {
				p.done++
				p.pacer.Passed(now, "", sentAt)
				return
			}
			if !p.refused {
				p.refused, p.first = true, p.requests
			}
			waiting++
			until, _ := p.pacer.Limited(now, "", Refusal{SentAt: sentAt, Full: float64(p.calls), Random: p.random.Float64()})
			if until.After(next) {
				next = until
			}
		}
	}
	dispatch = func(now time.Time) {
		for waiting > 0 && out < p.calls {
			if now.Before(next) {
				wake(next)
				return
			}
			waiting--
			out++
			p.requests++
			arrives := p.trip/2 + time.Duration(p.random.Float64()*float64(p.jitter))
			later(now.Add(arrives), func(arrived time.Time) {
				ok := (p.others == nil || !p.others(arrived)) && p.refuser.accept(arrived.Sub(p.began).Seconds())
				later(arrived.Add(p.trip/2), answer(now, ok))
			})
			if slot := p.pacer.Sent(now, ""); slot.After(next) {
				next = slot
			}
		}
	}
	come := p.bulk
	var arrive func(now time.Time)
	arrive = func(now time.Time) {
		if come >= p.all {
			return
		}
		come++
		waiting++
		dispatch(now)
		later(now.Add(time.Duration(p.random.ExpFloat64()/p.steady*1e9)), arrive)
	}
	if p.steady > 0 {
		later(now, arrive)
	}
	later(now, dispatch)
	for p.done < p.all {
		if events.Size() == 0 {
			break
		}
		e := events.Pop()
		if e.at.Sub(p.began) > time.Hour {
			break
		}
		now = e.at
		e.do(now)
		if now.Equal(e.at) && waiting > 0 {
			dispatch(now)
		}
	}
	return now.Sub(p.began)
}

// receivers returns all kinds of receivers that allow n hits a second.
func receivers(n int) map[string]func(phase float64) receiver {
	f := float64(n)
	return map[string]func(float64) receiver{
		"log":                       func(float64) receiver { return &slidingLog{n: n} },
		"fixed, from the first":     func(float64) receiver { return &fixedWindow{n: n} },
		"fixed, by the clock":       func(edge float64) receiver { return &fixedWindow{n: n, clock: true, edge: edge, ends: edge} },
		"bucket of n":               func(float64) receiver { return &bucket{rate: f, capacity: f} },
		"bucket of 21":              func(float64) receiver { return &bucket{rate: f, capacity: 21} },
		"bucket of 1":               func(float64) receiver { return &bucket{rate: f, capacity: 1} },
		"weighted counter":          func(edge float64) receiver { return &counter{n: n, edge: edge} },
		"weighted, refused count":   func(edge float64) receiver { return &counter{n: n, edge: edge, all: true} },
		"whole seconds":             func(edge float64) receiver { return &counter{n: n, edge: edge, whole: true} },
		"whole seconds, all counts": func(edge float64) receiver { return &counter{n: n, edge: edge, whole: true, all: true} },
		"elastic":                   func(float64) receiver { return &fixedWindow{n: n, elastic: true} },
	}
}

// optimum returns how long a receiver needs at least for so many calls, in seconds: whole seconds allow n calls in
// two of them, and of an elastic window there is no client that does well.
func optimum(name string, calls int) float64 {
	at := float64(calls) / 100
	switch name {
	case "whole seconds", "whole seconds, all counts":
		return 2 * at
	case "elastic":
		return 2.5 * at
	}
	return at
}

// TestPacerIsBounded plays loads to all kinds of receivers, with a limit that is right, twice, ten and 5,000 times too high, as
// one for a day is.
// All calls are done, with at most two requests for each, and in a time near the best.
func TestPacerIsBounded(t *testing.T) {
	for _, factor := range []int{1, 2, 10, 5000} {
		for _, trip := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond} {
			for name, receiver := range receivers(100) {
				for _, load := range []pacing{
					{bulk: 600, all: 600},
					{bulk: 2000, all: 2000},
					{steady: 70, all: 2000},
				} {
					p := load
					p.calls, p.trip, p.jitter = 100*factor, trip, 2*time.Millisecond
					p.random = rand.New(rand.NewPCG(uint64(factor), uint64(trip)))
					p.refuser = receiver(p.random.Float64())
					took := p.run().Seconds()
					what := fmt.Sprintf("%s, limit %d times too high, %v, bulk %d", name, factor, trip, load.bulk)
					if p.done < p.all {
						t.Errorf("%s: %d of %d done after %.0f s", what, p.done, p.all, took)
						continue
					}
					requests := 2 * p.all
					if p.bulk > 0 && p.bulk < p.calls { // no answer was there before all had been sent
						requests = p.bulk + 3*p.all/2
					}
					if p.requests > requests {
						t.Errorf("%s: %d requests for %d calls, want at most %d", what, p.requests, p.all, requests)
					}
					best := optimum(name, p.all)
					if p.steady > 0 {
						best = max(best, float64(p.all)/p.steady)
					}
					most := 2.5*best + 2
					if factor > 10 { // each rise goes as far beyond the right rate as one round trip leads
						most += best
					}
					if took > most {
						t.Errorf("%s: done after %.1f s, at best %.1f s", what, took, best)
					}
				}
			}
		}
	}
}

// TestPacerBesideAnotherProgram: where another program takes the quota now and then, so that
// single calls are limited, little time is lost.
func TestPacerBesideAnotherProgram(t *testing.T) {
	for _, load := range []pacing{{bulk: 6000, all: 6000}, {steady: 70, all: 6000}} {
		for _, trip := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond} {
			alone, beside := load, load
			for _, p := range []*pacing{&alone, &beside} {
				p.calls, p.trip, p.random, p.refuser = 100, trip, rand.New(rand.NewPCG(1, 2)), &slidingLog{n: 100}
			}
			last := 0
			beside.others = func(now time.Time) bool { // one call in 20 s
				if turn := int(now.Sub(at(0)) / (20 * time.Second)); turn > last {
					last = turn
					return true
				}
				return false
			}
			best, took := alone.run(), beside.run()
			if last < 2 || beside.requests != beside.all+last || took > best+best/8 {
				t.Errorf("bulk %d, %v: %d requests for %d calls in %v, %d of them limited; none limited: %v", load.bulk, trip, beside.requests, beside.all, took, last, best)
			}
		}
	}
}

func TestPacer(t *testing.T) {
	var p Pacer[string]
	if next := p.Sent(at(0), "a"); !p.Empty() || !next.IsZero() {
		t.Errorf("before any refusal: %v", next)
	}
	refused := func(now, sent time.Duration, wait time.Duration) (time.Duration, Change) {
		until, change := p.Limited(at(now), "a", Refusal{SentAt: at(sent), Wait: wait, Full: 100, Curve: Curve{Min: time.Second, Max: time.Minute}, Random: 1})
		return until.Sub(at(now)), change
	}
	if wait, change := refused(0, -1, 0); wait != time.Second || change != Begun {
		t.Errorf("first: %v, %v", wait, change)
	}
	for range 99 { // of the same burst
		if wait, change := refused(0, -1, 0); wait != time.Second || change != Unchanged {
			t.Fatalf("of the same burst: %v, %v", wait, change)
		}
	}
	p.Passed(at(time.Millisecond), "a", at(-1)) // as is this one
	if wait, _ := refused(time.Second, time.Second, 0); wait != 2*time.Second {
		t.Errorf("the call after the pause is limited: %v, want twice as long", wait)
	}
	if wait, _ := refused(3*time.Second, 3*time.Second, 500*time.Millisecond); wait != 4*time.Second {
		t.Errorf("asked for half a second, and limited three times: %v", wait)
	}
	if wait, _ := refused(4*time.Second, 2*time.Second, 10*time.Second); wait != 10*time.Second {
		t.Errorf("a later answer asks for 10 s: %v", wait)
	}
	now := 14 * time.Second
	var gaps []time.Duration
	for range 40 {
		next := p.Sent(at(now), "a")
		p.Passed(at(now+time.Millisecond), "a", at(now))
		gaps = append(gaps, next.Sub(at(now)))
		now = next.Sub(at(0))
	}
	if gaps[0] < 200*time.Millisecond || gaps[0] > 220*time.Millisecond || gaps[30] != 10*time.Millisecond {
		t.Errorf("after the pause: calls %v apart", gaps)
	}
	if wait, _ := refused(now, now, 0); wait != 2*time.Second {
		t.Errorf("one of 41 is limited: %v, want half as long as before", wait)
	}
	slowed, ok := p.Slowed(at(now), "a")
	if !ok || slowed.Rate < 75 || slowed.Rate > 80 || slowed.Limited != 104 || slowed.Passed != 41 || slowed.Since != at(0) {
		t.Errorf("%+v, want four fifths of the rate", slowed)
	}
	if wait, change := p.Limited(at(now), "b", Refusal{SentAt: at(now), Full: 100}); change != Begun || wait.Sub(at(now)) > DefaultMin {
		t.Errorf("another key: %v, %v", wait, change)
	}
	for range 100 {
		now += 10 * time.Millisecond
		p.Sent(at(now), "a")
		if _, over := p.Passed(at(now), "a", at(now)); over {
			t.Fatal("the slow-down is over at once")
		}
	}
	now += calm + 2*time.Second // the last pause
	if next := p.Sent(at(now), "b"); !next.IsZero() {
		t.Errorf("a key that has sent no call for a minute is slowed down until %v", next)
	}
	if was, over := p.Passed(at(now), "a", at(now)); !over || was.Limited != 104 {
		t.Errorf("after a minute: %v, %+v", over, was)
	}
	if _, ok := p.Slowed(at(now), "b"); ok {
		t.Error("a key that sends no calls is slowed down for ever")
	}
	p.Rename(func(key string) (string, bool) { return "c", key == "b" })
	if keys := slices.Collect(p.Keys()); !slices.Equal(keys, []string{"c"}) {
		t.Errorf("renamed: %v", keys)
	}
	forgotten := 0
	p = Pacer[string]{Forgotten: func(string) { forgotten++ }}
	for k := range 3 * maxPaces {
		if k == maxPaces {
			now += calm
		}
		p.Limited(at(now), fmt.Sprint(k), Refusal{SentAt: at(now), Full: 1})
		if len(p.byKey) > maxPaces || len(p.byKey)+forgotten != k+1 {
			t.Fatalf("%d keys are remembered, want %d at most, and %d of %d have been forgotten", len(p.byKey), maxPaces, forgotten, k+1)
		}
	}
}

// TestPacerAhead: so many calls take as long as it says, if all pass.
func TestPacerAhead(t *testing.T) {
	for _, calls := range []int{0, 1, 5, 50, 500} {
		var p Pacer[string]
		now, _ := p.Limited(at(0), "", Refusal{SentAt: at(0), Full: 100})
		begin, said := now, p.Ahead("", calls)
		for range calls {
			p.Passed(now, "", now)
			now = p.Sent(now, "")
		}
		if took := now.Sub(begin); took > said+said/4 || took < said*3/4 {
			t.Errorf("%d calls took %v, said were %v", calls, took, said)
		}
	}
}

// TestPacerAfterLongWait: no call can be sent in a pause, so its end finds the slow-down as it was.
func TestPacerAfterLongWait(t *testing.T) {
	var p Pacer[string]
	until, _ := p.Limited(at(0), "a", Refusal{SentAt: at(0), Wait: time.Hour, Full: 100})
	until = until.Add(time.Millisecond)
	if next := p.Sent(until, "a"); next.Sub(until) < 100*time.Millisecond {
		t.Errorf("after an hour the next call goes at %v", next.Sub(until))
	}
}

func TestSpread(t *testing.T) {
	var s Spread[string]
	limited := func(now time.Duration, keys ...string) (all bool) {
		for _, k := range keys {
			all = s.Limited(at(now), k)
		}
		return all
	}
	switch {
	case limited(0, "a", "a", "a", "a", "b", "c"):
		t.Error("three keys are all")
	case !limited(0, "d"):
		t.Error("four keys within a moment are not all")
	case limited(spreadTime+1, "a"), limited(3*spreadTime, "b"), limited(5*spreadTime, "c", "d"):
		t.Error("keys that are limited now and then are all")
	}
	s = Spread[string]{}
	for range 10 {
		s.Passed(at(0))
	}
	limited(0, "a")
	if limited(0, "b", "c", "d", "e") {
		t.Error("calls pass, so the keys that are limited are not all")
	}
}
