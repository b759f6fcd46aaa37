package quota

import (
	"slices"
	"testing"
	"time"
)

// TestSave: a ledger saves the permits that are out, with the instant at which they come
// back; those in flight have none.
func TestSave(t *testing.T) {
	for _, tt := range []struct {
		window Window
		back   time.Duration
	}{
		{Sliding(time.Second), 1020 * ms}, {Aligned(Calendar{Unit: Minute, Skew: time.Second}), 61 * time.Second},
	} {
		l := New(start, Limit{Calls: 5, Window: tt.window}, Limit{Calls: 1, Window: InFlight()})
		a, b, c := []Need{{0, "a", 1}}, []Need{{0, "b", 2}}, []Need{{0, "c", 3}, {1, "", 1}}
		for _, needs := range [][]Need{a, b, c} {
			if _, ok := l.Take(at(0), needs); !ok {
				t.Fatal("no permits")
			}
		}
		l.Return(at(0), a, Attempt{Sent: at(0), End: at(0), Fate: Uncounted})
		l.Return(at(20*ms), b, Attempt{Sent: at(0), End: at(20 * ms)})
		flying := []Held{{Limit: 0, Key: "c", Permits: 3}, {Limit: 1, Permits: 1}}
		for _, when := range []struct {
			now  time.Duration
			want []Held
		}{
			{20 * ms, append([]Held{{Limit: 0, Key: "b", Permits: 2, Back: at(tt.back)}}, flying...)},
			{tt.back - 1, append([]Held{{Limit: 0, Key: "b", Permits: 2, Back: at(tt.back)}}, flying...)},
			{tt.back, flying},
		} {
			got := l.Save(at(when.now))
			slices.SortFunc(got, func(x, y Held) int { return x.Limit*10 + int(x.Permits) - y.Limit*10 - int(y.Permits) })
			if !slices.Equal(got, when.want) {
				t.Errorf("%v, saved at %v: %+v, want %+v", tt.window, when.now, got, when.want)
			}
		}
	}
}

// TestSaveOfAHold: all permits are saved as held until the hold is over, not at its end.
func TestSaveOfAHold(t *testing.T) {
	l := New(start, Limit{Calls: 5, Window: Sliding(time.Minute)})
	l.HoldAll(at(0), 0, 0, at(time.Second))
	if got := l.Save(at(time.Second - 1)); len(got) != 1 || !got[0].All || !got[0].Back.Equal(at(time.Second)) {
		t.Errorf("right before the end of the hold: %+v", got)
	}
	if got := l.HeldUntil(at(time.Second-1), 0); !got.Equal(at(time.Second)) {
		t.Errorf("right before the end of the hold all permits are held until %v", got)
	}
	if got := l.Save(at(time.Second)); len(got) != 0 {
		t.Errorf("at the end of the hold: %+v, want nothing", got)
	}
	if got := l.HeldUntil(at(time.Second), 0); !got.IsZero() {
		t.Errorf("at the end of the hold all permits are held until %v", got)
	}
}

// TestCoolingOfAKey: permits that attempts have given back are counted apart if there was no
// answer, and the next one is back a window after its end, or after late.
func TestCoolingOfAKey(t *testing.T) {
	l := New(start, Limit{Calls: 5, Window: Sliding(time.Second), Late: 5 * time.Second})
	need := []Need{{Cost: 1}}
	if late, next := l.Cooling(at(0), 0, ""); late != 0 || !next.IsZero() {
		t.Errorf("before any attempt %d are late, the next one is back at %v", late, next)
	}
	for _, fate := range []Fate{Answered, Unanswered} {
		l.Take(at(0), need)
		l.Return(at(time.Second), need, Attempt{Sent: at(0), End: at(time.Second), Fate: fate})
	}
	if late, next := l.Cooling(at(time.Second), 0, ""); late != 1 || !next.Equal(at(2*time.Second)) {
		t.Errorf("%d are late, the next one is back at %v, want 1 and 2s", late, next.Sub(start))
	}
	if late, next := l.Cooling(at(3*time.Second), 0, ""); late != 1 || !next.Equal(at(7*time.Second)) {
		t.Errorf("then %d are late, the next one is back at %v, want 1 and 7s", late, next.Sub(start))
	}
	if late, next := l.Cooling(at(7*time.Second), 0, ""); late != 0 || !next.IsZero() {
		t.Errorf("at last %d are late, the next one is back at %v", late, next)
	}
}

// TestRestoreOpensNothing: a permit that is back by now leaves no account, and one that
// comes back later does.
func TestRestoreOpensNothing(t *testing.T) {
	for _, tt := range []struct {
		window Window
		step   time.Duration
	}{
		{Sliding(time.Minute), 0}, {Aligned(Calendar{Unit: Minute}), 0}, {Aligned(Calendar{Unit: Minute}), time.Hour},
	} {
		l := New(start, Limit{Calls: 1, Window: tt.window})
		l.Restore(start, tt.step, Held{Key: "back", Permits: 1, Back: start})
		l.Restore(start, tt.step, Held{Key: "out", Permits: 1, Back: at(1)})
		if l.Known(0, "back") || !l.Known(0, "out") {
			t.Errorf("%v, a step of %v: a permit that is back has an account: %v; one that is out: %v", tt.window, tt.step, l.Known(0, "back"), l.Known(0, "out"))
		}
	}
}

// TestRestoredPermitsAreAudited: the audit counts permits of an earlier process with those
// of this one, also where a guard gives them back early.
func TestRestoredPermitsAreAudited(t *testing.T) {
	for _, guard := range []time.Duration{0, 100 * ms} {
		l := New(start, Limit{Calls: 3, Window: Sliding(time.Minute), Guard: guard})
		l.Restore(start, 0, Held{Permits: 2, Back: at(time.Second)})
		l.Take(at(ms), one(0))
		if most := l.Audit(0).Most; most != 3 {
			t.Errorf("guard %v: most is %d, want 3", guard, most)
		}
		// The permits come back at the end of their own window with a guard, too.
		l.Take(at(time.Second), []Need{{Cost: 2}})
		if most := l.Audit(0).Most; most != 3 {
			t.Errorf("guard %v: most is %d after two have come back, want 3", guard, most)
		}
	}
}

// TestRestoredPermitsAreAuditedWithoutTheGuard: what comes back later without the guard is
// counted with restored permits.
func TestRestoredPermitsAreAuditedWithoutTheGuard(t *testing.T) {
	l := New(start, Limit{Calls: 3, Window: Sliding(time.Minute), Guard: 100 * ms})
	l.Take(at(0), one(0))
	l.Return(at(5*time.Second), one(0), Attempt{Sent: at(0), End: at(5 * time.Second)}) // back at 60.1s, or 65s
	l.Restore(at(5*time.Second), 0, Held{Permits: 1, Back: at(63 * time.Second)})
	l.Take(at(62*time.Second), one(0))
	if most := l.Audit(0).Most; most != 3 {
		t.Errorf("most is %d, want 3", most)
	}
}

// TestAnotherGuardIsAuditedWithoutTheOldOne: permits that come back later without a guard are
// counted on when the limit gets another guard.
func TestAnotherGuardIsAuditedWithoutTheOldOne(t *testing.T) {
	limit := Limit{Calls: 3, Window: Sliding(time.Minute), Guard: 100 * ms}
	l := New(start, limit)
	l.Take(at(0), one(0))
	l.Return(at(5*time.Second), one(0), Attempt{Sent: at(0), End: at(5 * time.Second)}) // back at 60.1s, or 65s
	limit.Guard = 200 * ms
	l.Replace(at(6*time.Second), []Limit{limit}, []int{0})
	l.Take(at(62*time.Second), one(0))
	if most := l.Audit(0).Most; most != 2 {
		t.Errorf("most is %d, want 2", most)
	}
}

// TestBack: the instant at which an attempt's permits come back, none if they are back.
func TestBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		window Window
		fate   Fate
		now    time.Duration
		want   time.Duration // 0: none
	}{
		{"answered", Sliding(time.Second), Answered, 20 * ms, 1020 * ms},
		{"answered, learnt later", Sliding(time.Second), Answered, 500 * ms, 1020 * ms},
		{"right before", Sliding(time.Second), Answered, 1020*ms - 1, 1020 * ms},
		{"at the instant", Sliding(time.Second), Answered, 1020 * ms, 0},
		{"after", Sliding(time.Second), Answered, 2 * time.Second, 0},
		{"unanswered", Sliding(time.Second), Unanswered, 20 * ms, 6020 * ms},
		{"not counted", Sliding(time.Second), Uncounted, 20 * ms, 0},
		{"by the calendar", Aligned(Calendar{Unit: Minute, Skew: time.Second}), Answered, 20 * ms, 61 * time.Second},
		{"concurrency", InFlight(), Answered, 20 * ms, 0},
		{"concurrency, unanswered", InFlight(), Unanswered, 20 * ms, 5020 * ms},
	} {
		l := New(start, Limit{Calls: 1, Window: tt.window, Late: 5 * time.Second})
		want := time.Time{}
		if tt.want > 0 {
			want = at(tt.want)
		}
		if got := l.Back(at(tt.now), 0, Attempt{Sent: at(0), End: at(20 * ms), Fate: tt.fate}); !got.Equal(want) {
			t.Errorf("%s: back at %v, want %v", tt.name, got, want)
		}
	}
}

// TestOutlived: attempts of an earlier process that go on until an instant keep their permits out until
// late and a window after it, and no longer, also in a successor.
func TestOutlived(t *testing.T) {
	const end = 10 * time.Second
	for name, outlived := range map[string]bool{"the process has ended": false, "its attempts go on": true} {
		l := New(start, Limit{Calls: 5, Window: Sliding(time.Second), Late: 100 * ms}, Limit{Calls: 5, Window: Sliding(time.Second), Late: 100 * ms})
		const now = 2 * time.Second
		want := now + 1100*ms
		if outlived {
			l.Outlived(at(end))
			want = end + 1100*ms
		}
		l.Replace(at(now), l.set, []int{0, 1})
		l.HoldAll(at(now), 0, 0, at(time.Hour))
		if got := l.HeldUntil(at(now), 0); !got.Equal(at(want)) {
			t.Errorf("%s: all permits are held until %v, want %v", name, got.Sub(start), want)
		}
		l.Restore(at(now), 0, Held{Limit: 1, Key: "", Permits: 5, Back: at(time.Hour)})
		if got := l.Next(at(now), Need{1, "", 1}); !got.Equal(at(want)) {
			t.Errorf("%s: the next permit is there at %v, want %v", name, got.Sub(start), want)
		}
	}
}
