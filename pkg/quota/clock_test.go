package quota

import (
	"math/rand/v2"
	"testing"
	"time"
)

// step puts the wall clock of a ledger forward, or back.
func (l *Ledger) step(by time.Duration) { l.ahead += int64(by) }

// TestClockSteps: a permit that is out when the wall clock is stepped comes back when its
// window is over by the old clock and by the new one.
func TestClockSteps(t *testing.T) {
	const skew, late = time.Second, 5 * time.Second
	begin := time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		at   time.Duration // of the step, after begin
		step time.Duration
		back time.Duration // after begin, by the monotonic clock
		told bool
	}{
		{"no step", time.Minute, 0, time.Hour + skew, false},
		{"forward within the skew", time.Minute, skew, time.Hour, false},
		{"back within the skew", time.Minute, -skew, time.Hour + 2*skew, false},
		{"forward over midnight", 30 * time.Minute, 2 * time.Hour, 23*time.Hour - 30*time.Minute + skew + 30*time.Minute, true},
		{"forward to right before midnight", 30 * time.Minute, 30*time.Minute - 2*skew, 24*time.Hour + 30*time.Minute + 3*skew, true},
		{"forward, not over midnight", 10 * time.Minute, 10 * time.Minute, time.Hour + skew, true},
		{"back", 30 * time.Minute, -2 * time.Hour, 3*time.Hour + skew, true},
		{"back by a day", 30 * time.Minute, -24 * time.Hour, time.Hour + skew, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(begin, Limit{Calls: 1, Late: late, Window: Aligned(Calendar{Unit: Day, Skew: skew})})
			told := false
			l.OnStep = func(step time.Duration) { told = step == tt.step }
			l.Take(begin, one(0))
			l.Return(begin, one(0), Attempt{Sent: begin, End: begin})
			now := begin.Add(tt.at)
			l.Next(now, one(0)[0])
			l.step(tt.step)
			if got := l.Next(now, one(0)[0]).Sub(begin); got != tt.back || told != tt.told {
				t.Errorf("the permit is back after %v, told of a step: %v; want %v and %v", got, told, tt.back, tt.told)
			}
		})
	}
}

// TestSmallStepsAddUp: steps within the skew count together.
func TestSmallStepsAddUp(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute, Skew: time.Second})})
	told := 0
	l.OnStep = func(time.Duration) { told++ }
	for i := range 10 {
		l.step(300 * ms)
		l.Next(at(time.Duration(i)*ms), one(0)[0])
	}
	if told != 2 { // 1.2s and 2.4s
		t.Errorf("told of %d steps, want 2", told)
	}
}

// TestWrongClock lets the wall clock be wrong for less than a window, while calls go as
// fast as they may. The receiver's own clock is right: no window of it has more calls than
// it may. A window, an attempt and four times the skew after the clock is right again, all
// permits are back.
func TestWrongClock(t *testing.T) {
	const calls, skew, late = 5, 300 * ms, time.Second
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		l := New(start, Limit{Calls: calls, Late: late, Window: Aligned(Calendar{Unit: Minute, Skew: skew})})
		wrong := at(time.Duration(r.Int64N(int64(3 * time.Minute))))
		right := wrong.Add(time.Duration(r.Int64N(int64(59 * time.Second))))
		by := time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour
		if seed%2 == 0 {
			by = time.Duration(r.Int64N(int64(4*time.Minute))) - 2*time.Minute
		}
		counts := make(map[time.Time]int)
		var flying []*sent
		last := func(s *sent) time.Time { // when the receiver may count it
			if s.fate == Unanswered {
				return s.end.Add(late)
			}
			return s.end
		}
		stepped := 0
		for now := start; now.Before(right.Add(3 * time.Minute)); now = now.Add(time.Duration(r.Int64N(int64(2 * time.Second)))) {
			if stepped == 0 && !now.Before(wrong) {
				stepped = 1
				l.step(by)
			}
			if stepped == 1 && !now.Before(right) {
				stepped = 2
				l.step(-by)
			}
			if _, ok := l.Take(now, one(0)); ok {
				flying = append(flying, &sent{at: now})
			}
			for len(flying) > 0 && r.IntN(3) == 0 {
				s := flying[0]
				flying = flying[1:]
				if s.end, s.fate = now, Answered; r.IntN(5) == 0 {
					s.fate = Unanswered
				}
				l.Return(now, one(0), Attempt{Sent: s.at, End: now, Fate: s.fate})
				arrived := s.at.Add(time.Duration(r.Int64N(int64(last(s).Sub(s.at)) + 1)))
				counts[arrived.Truncate(time.Minute)]++
			}
		}
		for minute, n := range counts {
			if n > calls {
				t.Fatalf("seed %d: wrong by %v from %v to %v: %d calls arrived in the minute of %v, at most %d may", seed, by, wrong, right, n, minute, calls)
			}
		}
		now := right.Add(3 * time.Minute)
		for _, s := range flying {
			l.Return(now, one(0), Attempt{Sent: s.at, End: now, Fate: Answered})
		}
		if until := l.Next(now, Need{Cost: calls}); until.Sub(now) > time.Minute+4*skew+late {
			t.Fatalf("seed %d: wrong by %v from %v to %v: the permits are back %v after", seed, by, wrong, right, until.Sub(now))
		}
	}
}

// TestGlitchOfTwoSeconds: a clock that is an hour ahead for two seconds shuts a limit of a
// minute for a window at most, not until the clock is where it was.
func TestGlitchOfTwoSeconds(t *testing.T) {
	const skew = time.Second
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute, Skew: skew})})
	take := func(now time.Time) time.Time {
		if _, ok := l.Take(now, one(0)); ok {
			l.Return(now, one(0), Attempt{Sent: now, End: now})
		}
		return l.Next(now, one(0)[0])
	}
	take(start)
	l.step(time.Hour)
	take(at(10 * time.Second))
	l.step(-time.Hour)
	if back := take(at(12 * time.Second)); back.Sub(start) > time.Minute+skew {
		t.Errorf("the permit is back after %v, want %v at most", back.Sub(start), time.Minute+skew)
	}
}

// TestRestoreAfterAStep: permits that an earlier process left come back when their window
// is over by the clock of then and by that of now.
func TestRestoreAfterAStep(t *testing.T) {
	const skew = time.Second
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		window Window
		step   time.Duration
		back   time.Duration // as saved
		want   time.Duration
	}{
		{Sliding(time.Hour), 0, 10 * time.Minute, 10 * time.Minute},
		{Sliding(time.Hour), time.Hour, 10 * time.Minute, 10 * time.Minute},
		{Sliding(time.Hour), -24 * time.Hour, 10 * time.Minute, 10 * time.Minute},
		{Aligned(Calendar{Unit: Day, Skew: skew}), skew, 10 * time.Minute, 10 * time.Minute},
		{Aligned(Calendar{Unit: Day, Skew: skew}), time.Hour, 10 * time.Minute, 12*time.Hour + skew},
		{Aligned(Calendar{Unit: Day, Skew: skew}), -time.Hour, 20 * time.Hour, 20 * time.Hour},
	} {
		l := New(noon, Limit{Calls: 1, Window: tt.window})
		l.Restore(noon, tt.step, Held{Permits: 1, Back: noon.Add(tt.back)})
		if got := l.Next(noon, one(0)[0]).Sub(noon); got != tt.want {
			t.Errorf("%v, a step of %v, back in %v as saved: back in %v, want %v", tt.window, tt.step, tt.back, got, tt.want)
		}
	}
}

// TestStepBringsNothingBackOut: permits that were back before a step, though no call has
// looked at them, are free after it; also those that a restart finds.
func TestStepBringsNothingBackOut(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	day := Limit{Calls: 1, Window: Aligned(Calendar{Unit: Day, Skew: time.Second})}
	l := New(noon, day)
	l.Take(noon, one(0))
	l.Return(noon, one(0), Attempt{Sent: noon, End: noon})
	now := noon.Add(13 * time.Hour)
	l.step(2 * time.Second)
	if at := l.Next(now, one(0)[0]); at.After(now) {
		t.Errorf("yesterday's permit is back in %v", at.Sub(now))
	}
	l = New(noon, day)
	l.Restore(noon, 2*time.Second, Held{Permits: 1, Back: noon.Add(-12 * time.Hour)})
	if at := l.Next(noon, one(0)[0]); at.After(noon) {
		t.Errorf("yesterday's permit is restored, and back in %v", at.Sub(noon))
	}
}

// TestNoSkew: the clocks of a computer are read one after the other. With a skew of 0 that
// is no step.
func TestNoSkew(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute})})
	l.OnStep = func(step time.Duration) { t.Errorf("a step by %v", step) }
	for i := range 10 {
		l.step(time.Duration(1-2*(i%2)) * 100 * time.Microsecond)
		l.Next(at(time.Duration(i)*time.Second), one(0)[0])
	}
}

// TestTwoStepsInAWindow: while a step is in doubt there is another, and the clock before
// both is the right one.
func TestTwoStepsInAWindow(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute, Skew: time.Second})})
	now := start
	for _, by := range []time.Duration{30 * time.Second, 15 * time.Second} {
		l.step(by)
		l.Next(now, one(0)[0])
	}
	l.Take(now, one(0))
	l.Return(now, one(0), Attempt{Sent: now, End: now})
	if back := l.Next(now, one(0)[0]).Sub(start); back < time.Minute {
		t.Errorf("the permit is back after %v, and the minute may last longer", back)
	}
}

// TestStepWhileAllIsHeld: where the number of permits that are out is not known, all of
// them stay out until the window is over by both clocks.
func TestStepWhileAllIsHeld(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute})})
	l.HoldAll(start, 0, 0, at(20*time.Second))
	l.step(-40 * time.Second) // to 20s of the minute before
	now := at(10 * time.Second)
	if back := l.Next(now, one(0)[0]).Sub(now); back != 30*time.Second {
		t.Errorf("the permits are back after %v, want 30s", back)
	}
}
