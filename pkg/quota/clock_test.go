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
		{"forward within the skew and what readings of clocks may differ", time.Minute, skew + jitter, time.Hour - jitter, false},
		{"forward by a nanosecond more", time.Minute, skew + jitter + 1, time.Hour + skew, true},
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
	for _, back := range []time.Duration{-12 * time.Hour, 0} {
		l.Restore(noon, 2*time.Second, Held{Permits: 1, Back: noon.Add(back)})
		if at := l.Next(noon, one(0)[0]); at.After(noon) {
			t.Errorf("a permit that was back %v ago is restored, and back in %v", -back, at.Sub(noon))
		}
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

// TestKeysAfterAStep: after a step a table of keys has room for another one as soon as the
// permits of the one that it has are back, by both clocks.
func TestKeysAfterAStep(t *testing.T) {
	const skew = time.Second
	begin := time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
	a, b := []Need{{Key: "a", Cost: 1}}, []Need{{Key: "b", Cost: 1}}
	for _, tt := range []struct {
		name     string
		at, step time.Duration
		back     time.Duration // of the permit of a, by the monotonic clock
	}{
		{"forward", 10 * time.Minute, 10 * time.Minute, time.Hour + skew},
		{"back", 10 * time.Minute, -10 * time.Minute, time.Hour + 10*time.Minute + skew},
		{"forward when it is back", time.Hour + skew, time.Minute, time.Hour + skew},
		{"back when it is back", 61 * time.Minute, -3 * time.Hour, time.Hour + skew},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(begin, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Day, Skew: skew}), MaxKeys: 1})
			l.Take(begin, a)
			l.Return(begin, a, Attempt{Sent: begin, End: begin})
			now := begin.Add(tt.at)
			l.step(tt.step)
			l.Next(now, a[0])
			back := begin.Add(tt.back)
			for now.Before(back) {
				short, ok := l.Take(now, b)
				if ok || short.Until.After(back) {
					t.Fatalf("b: %v after %v, until %v, but the permit of a is back after %v", ok, now.Sub(begin), short.Until.Sub(begin), tt.back)
				}
				now = short.Until
			}
			if _, ok := l.Take(now, b); !ok {
				t.Errorf("b was refused after %v, when the permit of a is back", now.Sub(begin))
			}
		})
	}
}

// TestKeysAreForgottenAfterAStepBack: an account is looked at when its window ends by the
// new clock, not an hour later.
func TestKeysAreForgottenAfterAStepBack(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute})})
	a, b := []Need{{Key: "a", Cost: 1}}, []Need{{Key: "b", Cost: 1}}
	l.Take(start, a)
	l.Return(start, a, Attempt{Sent: start, End: start})
	l.step(-time.Hour)
	l.Next(at(10*time.Second), a[0])
	for i := range 3 {
		l.Take(at(time.Duration(3+i)*time.Minute), b)
	}
	if l.Known(0, "a") {
		t.Error("a is known five minutes after its only call, under a limit of a minute")
	}
}

// TestDoubtsEnd: a window after a step, permits come back by the new clock alone.
func TestDoubtsEnd(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute})})
	l.step(30 * time.Second)
	for _, tt := range []struct{ at, back time.Duration }{
		{10 * time.Second, time.Minute},                   // the clock before: a minute ends 60 s after start
		{5 * time.Minute, 5*time.Minute + 30*time.Second}, // the new one alone
	} {
		now := at(tt.at)
		l.Take(now, one(0))
		l.Return(now, one(0), Attempt{Sent: now, End: now})
		if back := l.Next(now, one(0)[0]).Sub(start); back != tt.back {
			t.Errorf("sent after %v: back after %v, want %v", tt.at, back, tt.back)
		}
	}
}

// TestManySteps: however many steps there are in a window, the memory of them is bounded,
// and the last ones count.
func TestManySteps(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Aligned(Calendar{Unit: Day})})
	for i := range 3 * maxDoubts {
		l.step(time.Duration(i+1) * time.Minute)
		l.Next(start, one(0)[0])
	}
	if n := len(l.limits[0].doubts); n != maxDoubts {
		t.Errorf("%d clocks are remembered, want %d", n, maxDoubts)
	}
	l.step(24 * time.Hour)
	l.Take(start, one(0))
	l.Return(start, one(0), Attempt{Sent: start, End: start})
	// By the eighth clock before the last step 9 hours and 1 + 2 + … + 17 minutes of the day have gone.
	if back, want := l.Next(start, one(0)[0]).Sub(start), 15*time.Hour-153*time.Minute; back != want {
		t.Errorf("the permit is back after %v, want %v", back, want)
	}
}

// TestAuditAfterAStep: what the audit counts without the guard follows a step as permits
// do, and does not hold more than there is.
func TestAuditAfterAStep(t *testing.T) {
	l := New(start, Limit{Calls: 2, Guard: time.Second, Window: Aligned(Calendar{Unit: Minute})})
	l.Take(at(50*time.Second), one(0))
	l.Return(at(65*time.Second), one(0), Attempt{Sent: at(50 * time.Second), End: at(65 * time.Second)})
	if free := l.Usage(at(65*time.Second), 0, "").Free; free != 2 {
		t.Errorf("%d permits are free, want 2: by the guard the call arrived in the minute before", free)
	}
	l.step(40 * time.Second)
	l.Next(at(70*time.Second), one(0)[0]) // 1:50; by the clock before, the minute ends 50 s later
	l.Take(at(119*time.Second), one(0))
	if most := l.Audit(0).Most; most != 2 {
		t.Errorf("most is %d, want 2: by the clock before, both may have arrived in one minute", most)
	}
}
