package quota

import (
	"testing"
	"time"
)

// TestUnusedPermits: those that an answer gives back are free with it, the used ones stay
// out for their window, and no more come back than were taken.
func TestUnusedPermits(t *testing.T) {
	day := Limit{Name: "day", Calls: 10, Window: Aligned(Calendar{Unit: Day})}
	second := Limit{Name: "second", Calls: 10, Window: Sliding(time.Second)}
	guarded := second
	guarded.Guard = 10 * ms
	midnight := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC).Sub(start)
	for _, tt := range []struct {
		name   string
		limit  Limit
		unused int
		fate   Fate
		out    int
		back   time.Duration // of those that are out
	}{
		{"some", second, 5, Answered, 3, 1100 * ms},
		{"none", second, 0, Answered, 8, 1100 * ms},
		{"all", second, 8, Answered, 0, 0},
		{"more than were taken", second, 9, Answered, 0, 0},
		{"fewer than none", second, -9, Answered, 8, 1100 * ms},
		{"no answer", second, 5, Unanswered, 8, 1100 * ms},
		{"not counted", second, 5, Uncounted, 0, 0},
		{"of a day", day, 5, Answered, 3, midnight},
		{"under a guard", guarded, 5, Answered, 3, 1010 * ms},
		{"in flight", Limit{Name: "flight", Calls: 10, Window: InFlight()}, 5, Answered, 0, 0},
	} {
		l := New(start, tt.limit)
		need := []Need{{Cost: 8}}
		if _, ok := l.Take(start, need); !ok || l.Usage(start, 0, "").Out != 8 {
			t.Fatalf("%s: in flight %+v", tt.name, l.Usage(start, 0, ""))
		}
		end := at(100 * ms)
		l.Return(end, need, Attempt{Sent: start, End: end, Fate: tt.fate, Unused: tt.unused})
		if u := l.Usage(end, 0, ""); u.Out != tt.out || u.Free != 10-tt.out || u.InFlight != 0 {
			t.Errorf("%s: %+v, want %d out", tt.name, u, tt.out)
		}
		if got := l.Next(end, Need{Cost: 10}); tt.out > 0 && !got.Equal(at(tt.back)) {
			t.Errorf("%s: the rest is back at %v, want %v", tt.name, got.Sub(start), tt.back)
		}
		if tt.out > 0 && l.Usage(at(tt.back-1), 0, "").Out != tt.out {
			t.Errorf("%s: some are back before %v", tt.name, tt.back)
		}
		if used := int64(tt.out); tt.fate == Answered && tt.limit.Window != InFlight() && l.Audit(0).Permits != used {
			t.Errorf("%s: the audit has %d permits, want %d", tt.name, l.Audit(0).Permits, used)
		}
	}
}

// TestUnusedTokens: spacing gets the tokens of unused permits back, up to its burst.
func TestUnusedTokens(t *testing.T) {
	l := New(start, Limit{Name: "spaced", Calls: 100, Window: Sliding(time.Second), Burst: 10})
	call := func(at time.Time, cost, unused int) {
		t.Helper()
		need := []Need{{Cost: cost}}
		if short, ok := l.Take(at, need); !ok {
			t.Fatalf("%v: until %v", at.Sub(start), short.Until.Sub(start))
		}
		l.Return(at, need, Attempt{Sent: at, End: at, Unused: unused})
	}
	call(start, 10, 8) // 8 tokens are left
	call(start, 8, 0)
	if next := l.Next(start, Need{Cost: 5}); next.Sub(start) < 50*ms || next.Sub(start) > 51*ms {
		t.Errorf("5 tokens are there at %v, want 50ms", next.Sub(start))
	}
	call(at(100*ms), 20, 20) // it took the burst
	if next := l.Next(at(100*ms), Need{Cost: 10}); next.After(at(100 * ms)) {
		t.Errorf("the burst is there at %v, want at once", next.Sub(start))
	}
	call(at(100*ms), 10, 0)
	if next := l.Next(at(100*ms), Need{Cost: 1}); !next.After(at(109 * ms)) {
		t.Errorf("a token is there at %v: more than the burst came back", next.Sub(start))
	}
}

// TestUnusedKeyIsForgotten: a key whose calls cost nothing has no permit out, and leaves no
// account.
func TestUnusedKeyIsForgotten(t *testing.T) {
	l := New(start, Limit{Name: "k", Calls: 10, Window: Sliding(time.Second), MaxKeys: 1})
	for n, key := range []string{"a", "b", "c"} {
		now := at(time.Duration(n) * 2 * time.Second)
		need := []Need{{Key: key, Cost: 10}}
		if short, ok := l.Take(now, need); !ok {
			t.Fatalf("%s: until %v", key, short.Until.Sub(start))
		}
		l.Return(now, need, Attempt{Sent: now, End: now, Unused: 10})
		if l.Full(now, 0, key) {
			t.Errorf("%s has no place", key)
		}
	}
}
