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
	if b.Record(at(0), 1, at(0), Reached, 0.5) || b.Record(at(time.Millisecond), 1, at(0), Reached, 0.5) {
		t.Error("an attempt that was sent closes a closed breaker")
	}
	b.Begin(1)
	b.Begin(2)
	if !b.Record(at(second), 1, at(0), Failing, 0.5) || !b.Open() || b.Failures() != 1 || b.Allow(at(second)) != 0 {
		t.Fatalf("after a failure: %+v", b)
	}
	if b.Record(at(second), 2, at(0), Failing, 0.5) {
		t.Error("an attempt that began before the failure was noticed counts again")
	}
	if b.Record(at(second), 2, at(0), Unproven, 0.5) {
		t.Error("a cancelled attempt tells something")
	}
	probe := b.Until(at(second))
	if wait := probe.Sub(at(second)); wait < 250*time.Millisecond || wait > 500*time.Millisecond {
		t.Errorf("the first probe begins after %v", wait)
	}
	if b.Allow(probe.Add(-1)) != 0 || b.Allow(probe) != 1 || !b.Until(probe.Add(second)).Equal(probe.Add(second)) {
		t.Error("one probe, and not before its time")
	}
	b.Begin(3)
	if b.Allow(probe) != 0 {
		t.Error("a second probe beside the first")
	}
	if !b.Record(probe, 3, probe, Failing, 0.5) || b.Failures() != 2 || b.Until(probe).Sub(probe) <= 250*time.Millisecond {
		t.Errorf("after the probe failed: %+v", b)
	}
	next := b.Until(probe)
	b.Begin(4)
	if b.Record(next, 4, next, Unproven, 0); b.Allow(next) != 1 {
		t.Error("a cancelled probe keeps the place of the next")
	}
	b.Begin(5)
	if !b.Record(next, 5, next, Reached, 0) || b.Open() || b.Allow(next) != math.MaxInt {
		t.Errorf("after a probe that was sent: %+v", b)
	}
	if b.Record(next.Add(second), 6, next.Add(-second), Failing, 0) {
		t.Error("an attempt that began before it was closed opens it again")
	}
	if !b.Record(next.Add(second), 7, next.Add(second), Failing, 0) {
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
			b.Begin(n + 1)
			b.Record(now, n+1, now, Failing, random)
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
	b.Record(at(0), 1, at(0), Failing, 0.5)
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
	b.Begin(2)
	if d := b.Defer(probe, 1, 0.5); d < 250*time.Millisecond {
		t.Errorf("another call probes: %v", d)
	}
}

func TestStreaks(t *testing.T) {
	var s Streaks[string]
	c := Curve{Min: time.Second, Max: time.Minute}
	first := s.Limited(at(0), "a", at(-time.Second), c, 0.5)
	if first < c.Min/2 || first > c.Min {
		t.Errorf("first: %v", first)
	}
	if again := s.Limited(at(time.Millisecond), "a", at(-time.Second), c, 0.9); again != first {
		t.Errorf("an attempt that was in flight with the first: %v, want %v", again, first)
	}
	second := s.Limited(at(2*time.Second), "a", at(time.Second), c, 0.5)
	if second <= first {
		t.Errorf("second in a row: %v after %v", second, first)
	}
	if other := s.Limited(at(2*time.Second), "b", at(time.Second), c, 0.5); other != first {
		t.Errorf("another key: %v", other)
	}
	s.End("a")
	if fresh := s.Limited(at(3*time.Second), "a", at(3*time.Second), c, 0.5); fresh != first {
		t.Errorf("after a call passed: %v", fresh)
	}
	s.End("a")
	s.End("b")
	if !s.Empty() {
		t.Error("a streak is left")
	}
	for k := range maxStreaks + 10 {
		s.Limited(at(0), string(rune(k)), at(0), c, 0)
		if len(s.byKey) > maxStreaks {
			t.Fatalf("%d keys are remembered, want %d at most", len(s.byKey), maxStreaks)
		}
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
		{"limited alone", LimitedAlone, 2, time.Minute, 0, time.Minute, time.Minute},
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
