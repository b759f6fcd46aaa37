package retry

import (
	"math"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

func TestBreaker(t *testing.T) {
	const second = time.Second
	var b Breaker
	if b.Open() || b.Allow(at(0)) != math.MaxInt || !b.Until(at(0)).IsZero() {
		t.Fatalf("a new breaker: %+v", b)
	}
	if b.Record(at(0), 1, 1, at(0), Reached, 0.5) || b.Record(at(time.Millisecond), 1, 1, at(0), Reached, 0.5) {
		t.Error("an attempt that was sent closes a closed breaker")
	}
	b.Begin(at(0), 1)
	b.Begin(at(0), 2)
	if !b.Record(at(second), 1, 1, at(0), Unreached, 0.5) || !b.Open() || b.Failures() != 1 || b.Allow(at(second)) != 0 {
		t.Fatalf("after a failure: %+v", b)
	}
	if b.Record(at(second), 2, 2, at(0), Unreached, 0.5) {
		t.Error("an attempt that began before the failure was noticed counts again")
	}
	if b.Record(at(second), 2, 2, at(0), Unproven, 0.5) {
		t.Error("a cancelled attempt tells something")
	}
	probe := b.Until(at(second))
	if wait := probe.Sub(at(second)); wait < 250*time.Millisecond || wait > 500*time.Millisecond {
		t.Errorf("the first probe begins after %v", wait)
	}
	if b.Allow(probe.Add(-1)) != 0 || b.Allow(probe) != 1 || !b.Until(probe.Add(second)).Equal(probe.Add(second)) {
		t.Error("one probe, and not before its time")
	}
	b.Begin(at(0), 3)
	if b.Allow(probe) != 0 {
		t.Error("a second probe beside the first")
	}
	if !b.Record(probe, 3, 3, probe, Unreached, 0.5) || b.Failures() != 2 || b.Until(probe).Sub(probe) <= 250*time.Millisecond {
		t.Errorf("after the probe failed: %+v", b)
	}
	next := b.Until(probe)
	b.Begin(at(0), 4)
	if b.Record(next, 4, 4, next, Unproven, 0); b.Allow(next) != 1 {
		t.Error("a cancelled probe keeps the place of the next")
	}
	b.Begin(at(0), 5)
	if !b.Record(next, 5, 5, next, Reached, 0) || b.Open() || b.Allow(next) != math.MaxInt {
		t.Errorf("after a probe that was sent: %+v", b)
	}
	if b.Record(next.Add(second), 6, 6, next.Add(-second), Unreached, 0) {
		t.Error("an attempt that began before it was closed opens it again")
	}
	if !b.Record(next.Add(second), 7, 7, next.Add(second), Unreached, 0) {
		t.Error("an attempt that began after it was closed does not open it")
	}
	if b.Reset(next); b.Open() {
		t.Error("open after a reset")
	}
}

// TestProbesGetRarer: an upstream that stays down is probed every 15 to 30 seconds.
func TestProbesGetRarer(t *testing.T) {
	for _, random := range []float64{0, 0.999} {
		var b Breaker
		now := at(0)
		for n := range uint64(30) {
			b.Begin(at(0), n+1)
			b.Record(now, n+1, n+1, now, Unreached, random)
			wait := b.Until(now).Sub(now)
			if least := min(15*time.Second, 250*time.Millisecond<<n); wait < least || wait > 2*least {
				t.Errorf("random %v, after %d failures: the next probe begins after %v, want %v to %v", random, n+1, wait, least, 2*least)
			}
			now = b.Until(now)
		}
	}
}

func TestBreakerDefersACallWhoseSignatureFails(t *testing.T) {
	var b Breaker
	if d := b.Defer(at(0), 1, 0.5); d != 0 {
		t.Errorf("closed: %v", d)
	}
	b.Record(at(0), 1, 1, at(0), Unreached, 0.5)
	for n, want := range []time.Duration{500 * time.Millisecond / 3, 500 * time.Millisecond * 3 / 5} {
		if got := b.Defer(at(0), n, 0.5) - b.Until(at(0)).Sub(at(0)); got < want-1 || got > want+1 {
			t.Errorf("after %d failures: %v after the probe, want %v", n, got, want)
		}
	}
	once, often := b.Defer(at(0), 1, 0.5), b.Defer(at(0), 9, 0.5)
	if until := b.Until(at(0)).Sub(at(0)); once <= until || often <= once {
		t.Errorf("open: %v after one failure, %v after nine, the probe in %v", once, often, until)
	}
	probe := b.Until(at(0))
	if d := b.Defer(probe, 9, 0.5); d != 0 {
		t.Errorf("no call has taken the probe: %v", d)
	}
	b.Begin(at(0), 2)
	if d := b.Defer(probe, 1, 0.5); d < 250*time.Millisecond {
		t.Errorf("another call probes: %v", d)
	}
}

// TestNotExecuted has each cause of an attempt that executed nothing: it goes again, at
// once where a pause or the breaker holds it back anyway.
func TestNotExecuted(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cause      Cause
		before     int
		retryAfter time.Duration
		failures   int
		least      time.Duration
		most       time.Duration
	}{
		{"never sent", NeverSent, 3, time.Second, 3, time.Second, time.Second},
		{"unreachable", Unreachable, 1, 0, 2, 0, 0},
		{"limited", Limited, 2, time.Minute, 0, 0, 0}, // the pause has it
		{"limited alone", LimitedAlone, 0, time.Second, 1, time.Second, time.Second},
		{"limited alone again", LimitedAlone, 2, time.Second, 3, time.Second, 2 * time.Second},
		{"limited alone many times", LimitedAlone, 20, time.Second, 21, 30 * time.Second, time.Minute},
		{"limited alone, and asked to wait", LimitedAlone, 2, time.Minute, 3, time.Minute, time.Minute},
		{"taken back once", Unprocessed, 0, 0, 1, 0, 0},
		{"taken back again", Unprocessed, 1, 0, 2, time.Second, 4 * time.Second},
		{"unsigned", Unsigned, 0, 0, 1, 500 * time.Millisecond, 2 * time.Second},
	} {
		for _, random := range []float64{0, 0.999} {
			d := Policy{}.Next(at(0), Attempt{Outcome: NotExecuted, Cause: tt.cause, Failures: tt.before, RetryAfter: tt.retryAfter}, random)
			wait := d.At.Sub(at(0))
			if !d.Again || d.Counted || d.Failures != tt.failures || wait < tt.least || wait > tt.most {
				t.Errorf("%s: %+v after %v", tt.name, d, wait)
			}
		}
	}
}

// play has a breaker with a Trip, whose attempts each begin at an instant and end at once
// or later.
type play struct {
	*testing.T
	Breaker
	id uint64
}

func newPlay(t *testing.T, trip Trip) *play {
	p := &play{T: t}
	p.Set(trip)
	return p
}

// attempt plays one that takes a time, and reports whether it changed the breaker.
func (p *play) attempt(from, took time.Duration, reach Reach) bool {
	p.id++
	p.Begin(at(from), p.id)
	return p.Record(at(from+took), p.id, p.id, at(from), reach, 0.5)
}

func (p *play) is(now time.Duration, want Health) {
	p.Helper()
	if p.Health() != want {
		p.Fatalf("at %v it is %v, want %v", now, p.Health(), want)
	}
}

// TestUnknownOutcomesOpen: so many of the last outcomes open the breaker, wherever they
// stand among them.
func TestUnknownOutcomesOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		trip  Trip
		reach string // u unknown, r reached, - unproven, from the first; it opens with the last or not at all
		open  bool
	}{
		"in a row":                {Trip{Unknown: 3, Of: 5}, "rrrruuu", true},
		"among others":            {Trip{Unknown: 3, Of: 5}, "uru-ru", true},
		"one is too old":          {Trip{Unknown: 3, Of: 5}, "urrrruu", false},
		"a cancelled one is none": {Trip{Unknown: 3, Of: 5}, "u-----u-u", true},
		"one in one":              {Trip{Unknown: 1, Of: 1}, "ru", true},
		"never":                   {Trip{}, "uuuuuuuuuuuuuuuuuuuuuuu", false},
		"two in each five":        {Trip{Unknown: 3, Of: 5}, "uurrruurrruurrr", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, tt.trip)
			for i, r := range tt.reach {
				now := time.Duration(i) * time.Second
				p.is(now, Healthy)
				p.attempt(now, time.Millisecond, map[rune]Reach{'u': Unsure, 'r': Reached, '-': Unproven}[r])
			}
			if p.Open() != tt.open || tt.open && p.Health() != Failing {
				t.Errorf("it is %v", p.Health())
			}
		})
	}
}

// TestOpenAndSlowStart: a failed probe makes the next one later, for a call that cannot
// be repeated much later; after one with an answer, attempts begin one more at a time.
func TestOpenAndSlowStart(t *testing.T) {
	p := newPlay(t, Trip{Unknown: 2, Of: 4})
	p.attempt(0, 0, Unsure)
	p.Begin(at(0), 50) // in flight with it
	p.attempt(0, 0, Unsure)
	p.is(0, Failing)
	if p.Record(at(time.Millisecond), 50, 50, at(0), Reached, 0.5) || !p.Open() {
		t.Error("an answer to an attempt from before closes it")
	}
	now := time.Duration(0)
	for range 12 {
		probe, risk := p.ProbeAt().Sub(start), p.RiskAt().Sub(start)
		if risk < probe || probe-now > probes.Max || risk-now > riskyProbes.Max || p.Allow(at(probe-1)) != 0 || p.Allow(at(probe)) != 1 || p.Risk(at(risk-1)) || !p.Risk(at(risk)) {
			t.Fatalf("after %d failures at %v: probe at %v, %v", p.Failures(), now, probe, risk)
		}
		now = risk
		p.attempt(now, 0, Unsure)
	}
	if p.RiskAt().Sub(at(now)) < riskyProbes.Max/2 || p.ProbeAt().Sub(at(now)) > probes.Max {
		t.Errorf("at last the probes are %v and %v apart", p.ProbeAt().Sub(at(now)), p.RiskAt().Sub(at(now)))
	}
	now = p.ProbeAt().Sub(start)
	if !p.attempt(now, 0, Reached) || p.Open() {
		t.Fatal("a probe with an answer does not close it")
	}
	for most := 1; most < 5; most++ {
		if got := p.Allow(at(now)); got != most {
			t.Fatalf("%d attempts may begin, want %d", got, most)
		}
		p.Begin(at(now), 100)
		if got := p.Allow(at(now)); got != most-1 {
			t.Fatalf("%d attempts may begin beside one, want %d", got, most-1)
		}
		p.Record(at(now), 100, 100, at(now), Reached, 0.5)
	}
	for range fullSpeed {
		p.attempt(now, 0, Reached)
	}
	if p.Allow(at(now)) != math.MaxInt {
		t.Error("the slow start has no end")
	}
}

// TestTripsInARow: a breaker that opens again soon stays open for longer; after a calm
// time it begins anew.
func TestTripsInARow(t *testing.T) {
	p := newPlay(t, Trip{Unknown: 1, Of: 1})
	now, last := time.Duration(0), time.Duration(0)
	for range 4 {
		p.attempt(now, 0, Unsure)
		wait := p.ProbeAt().Sub(at(now))
		if wait < last*3/2 {
			t.Errorf("the next probe after %v, before it was after %v", wait, last)
		}
		last = wait
		now += wait
		p.attempt(now, 0, Reached)
	}
	now += calm
	if p.attempt(now, 0, Unsure); p.ProbeAt().Sub(at(now)) < last {
		t.Error("a row of trips ends too early")
	}
	now = p.ProbeAt().Sub(start)
	p.attempt(now, 0, Reached)
	now += calm + 1
	if p.attempt(now, 0, Unsure); p.ProbeAt().Sub(at(now)) > probes.Min {
		t.Errorf("after a calm time the first probe is %v away", p.ProbeAt().Sub(at(now)))
	}
	if p.Reset(at(now)); p.Open() || p.Allow(at(now)) != math.MaxInt {
		t.Error("open, or slow, after a reset")
	}
	if p.attempt(now, 0, Unsure); p.ProbeAt().Sub(at(now)) > probes.Min {
		t.Error("a reset leaves trips behind")
	}
}

// TestSilence: no answer for four times the usual time, while enough attempts are in
// flight, opens the breaker.
func TestSilence(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		trip   Trip
		usual  time.Duration // of the answers before, 0 none
		flying int
		want   time.Duration // of silence, 0 never
	}{
		"quick answers":             {Trip{Unknown: 3, Of: 5}, 10 * time.Millisecond, 3, 5 * second},
		"slow answers":              {Trip{Unknown: 3, Of: 5}, 4 * second, 3, 16 * second},
		"few in flight":             {Trip{Unknown: 3, Of: 5}, 10 * time.Millisecond, 2, 0},
		"the usual is not known":    {Trip{Unknown: 3, Of: 5}, 0, 3, 0},
		"a bound":                   {Trip{Unknown: 3, Of: 5, Silent: 2 * second}, 4 * second, 3, 2 * second},
		"a bound, nothing is known": {Trip{Unknown: 3, Of: 5, Silent: 2 * second}, 0, 3, 2 * second},
		"never":                     {Trip{Silent: 2 * second}, 10 * time.Millisecond, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, tt.trip)
			for range remembered {
				if tt.usual > 0 {
					p.attempt(0, tt.usual, Reached)
				}
			}
			const busy = time.Hour
			for i := range tt.flying {
				p.Begin(at(busy), uint64(1000+i))
			}
			opened, next := p.Listen(at(busy), 0.5)
			if tt.want == 0 {
				if opened || !next.IsZero() {
					t.Errorf("it listens again at %v", next)
				}
				return
			}
			if opened || !next.Equal(at(busy+tt.want)) {
				t.Fatalf("it would be silent %v after %v", next.Sub(at(busy)), tt.want)
			}
			if opened, _ = p.Listen(next.Add(-1), 0.5); opened {
				t.Error("opened too early")
			}
			if opened, _ = p.Listen(next, 0.5); !opened || p.Health() != Silent {
				t.Fatalf("it is %v after the silence", p.Health())
			}
			first := p.ProbeAt()
			if !p.Record(next.Add(time.Millisecond), 1000, 1000, at(busy), Reached, 0.5) && p.ProbeAt().After(first) || !p.Open() {
				t.Error("an answer from before closes it, or makes the probe later")
			}
			now := p.ProbeAt()
			p.Begin(now, 2000)
			if p.Record(now, 2000, 2000, now, Unsure, 0.5); p.Health() != Failing {
				t.Errorf("after a probe of unknown outcome it is %v", p.Health())
			}
		})
	}
}

// TestWhenSilenceBegins: it begins when enough attempts are in flight, or with the last
// answer, whichever is later; more attempts do not move it.
func TestWhenSilenceBegins(t *testing.T) {
	const second = time.Second
	p := newPlay(t, Trip{Unknown: 2, Of: 2, Silent: 5 * second})
	listens := func(now, want time.Duration) {
		t.Helper()
		if opened, next := p.Listen(at(now), 0.5); opened || !next.Equal(at(want)) {
			t.Errorf("at %v it listens again at %v, want %v", now, next.Sub(start), want)
		}
	}
	p.Begin(at(0), 1)
	if _, next := p.Listen(at(0), 0.5); !next.IsZero() {
		t.Errorf("it listens with one attempt in flight")
	}
	p.Begin(at(1*second), 2)
	listens(1*second, 6*second)
	p.Begin(at(2*second), 3)
	p.Begin(at(2*second), 4)
	listens(2*second, 6*second)
	p.Record(at(3*second), 4, 4, at(2*second), Reached, 0.5)
	listens(3*second, 8*second)
	p.Record(at(4*second), 3, 3, at(2*second), Unproven, 0.5) // says nothing
	listens(4*second, 8*second)
}

// TestUsualTime: the 99th percentile of the last answers, of which there must be enough.
func TestUsualTime(t *testing.T) {
	const slow = 10 * time.Second
	p := newPlay(t, Trip{Unknown: 1, Of: 20})
	for n := range remembered {
		if p.Begin(at(time.Hour), 1000); n < 20 {
			if _, next := p.Listen(at(time.Hour), 0.5); !next.IsZero() {
				t.Errorf("it listens after %d answers", n)
			}
		}
		p.Record(at(time.Hour), 1000, 1000, at(time.Hour), Unproven, 0.5)
		took := time.Second
		if n%50 == 0 { // three of 128
			took = slow
		}
		p.attempt(0, took, Reached)
	}
	p.Begin(at(time.Hour), 1000)
	if _, next := p.Listen(at(time.Hour), 0.5); !next.Equal(at(time.Hour + 4*slow)) {
		t.Errorf("silent after %v, want %v", next.Sub(at(time.Hour)), 4*slow)
	}
	q := newPlay(t, Trip{Unknown: 1, Of: 20})
	for range 20 {
		q.attempt(0, 2*time.Second, Reached)
	}
	q.Begin(at(time.Hour), 1000)
	if _, next := q.Listen(at(time.Hour), 0.5); !next.Equal(at(time.Hour + 8*time.Second)) {
		t.Errorf("after 20 answers it is silent after %v", next.Sub(at(time.Hour)))
	}
}

// TestHeardAgain: an answer to an attempt from before a silence brings the next probe
// forward; one from before too many unknown outcomes does not.
func TestHeardAgain(t *testing.T) {
	for _, health := range []Health{Silent, Failing} {
		p := newPlay(t, Trip{Unknown: 1, Of: 1, Silent: time.Second})
		now := time.Duration(0)
		for range 3 { // trips in a row
			p.attempt(now, 0, Unsure)
			now = p.ProbeAt().Sub(start)
			p.attempt(now, 0, Reached)
		}
		p.Begin(at(now), 1000)
		if health == Silent {
			now += time.Second
			p.Listen(at(now), 0.5)
		} else {
			p.attempt(now, 0, Unsure)
		}
		p.is(now, health)
		late := p.ProbeAt()
		changed := p.Record(at(now+time.Millisecond), 1000, 1000, at(now-time.Second), Reached, 0.5)
		switch want := at(now + probes.Min); {
		case health == Silent && (!changed || !p.ProbeAt().Equal(want) || !p.RiskAt().Equal(want) || !late.After(want)):
			t.Errorf("the probe is at %v, %v before; want %v", p.ProbeAt(), late, want)
		case health == Failing && (changed || !p.ProbeAt().Equal(late)):
			t.Errorf("the probe moved from %v to %v", late, p.ProbeAt())
		}
		if p.Record(at(now+2*time.Millisecond), 1001, 1001, at(now-time.Second), Reached, 0.5) {
			t.Error("a second answer changes something")
		}
	}
}

// TestDownAfterATrip: an upstream that cannot be reached is probed by any call, and a slow
// start goes on when it can be reached again.
func TestDownAfterATrip(t *testing.T) {
	p := newPlay(t, Trip{Unknown: 1, Of: 1})
	now := time.Duration(0)
	for range 10 { // the next risk is far away
		now = max(now, p.RiskAt().Sub(start))
		p.attempt(now, 0, Unsure)
	}
	now = p.ProbeAt().Sub(start)
	p.attempt(now, 0, Reached)
	p.attempt(now, 0, Unreached)
	p.is(now, Down)
	if now = p.ProbeAt().Sub(start); !p.Risk(at(now)) {
		t.Error("only a call that may be repeated may dial")
	}
	if p.attempt(now, 0, Reached); p.Allow(at(now)) != 1 {
		t.Errorf("%d attempts may begin, want the slow start to go on", p.Allow(at(now)))
	}
}

// TestRestore: a breaker is open as an earlier process left it.
func TestRestore(t *testing.T) {
	for health, open := range map[Health]bool{Healthy: false, Failing: true, Silent: true} {
		p := newPlay(t, Trip{Unknown: 1, Of: 1})
		if p.Restore(at(0), health, 0.5); p.Open() != open || p.Health() != health {
			t.Errorf("%v: it is %v", health, p.Health())
		}
	}
}
