package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestWindows(t *testing.T) {
	day := Aligned(Calendar{Unit: Day, Zone: time.UTC, Skew: time.Second})
	kinds := []Window{
		Sliding(time.Second), Sliding(1500 * ms), InFlight(), day,
		Aligned(Calendar{Unit: Day}), Aligned(Calendar{Unit: Month, Skew: time.Second}),
		Aligned(Calendar{Unit: Day, Zone: time.FixedZone("CST", 8*3600), Skew: time.Second}),
	}
	for i, want := range []struct {
		text   string
		length time.Duration
		slides bool
		round  time.Duration // of an attempt that takes a minute
	}{
		{"1s", time.Second, true, 61 * time.Second}, {"1.5s", 1500 * ms, true, 61500 * ms}, {"", 0, false, time.Minute}, {"day", 24 * time.Hour, false, 0},
		{"day", 24 * time.Hour, false, 0}, {"month", 720 * time.Hour, false, 0}, {"day", 24 * time.Hour, false, 0},
	} {
		w := kinds[i]
		if w.String() != want.text || w.Length() != want.length || w.Slides() != want.slides || w.Round(time.Minute) != want.round {
			t.Errorf("%#v is %q of %v, slides: %v, has a round of %v; want %+v", w, w, w.Length(), w.Slides(), w.Round(time.Minute), want)
		}
		for j, o := range kinds {
			if w.Equal(o) != (i == j) {
				t.Errorf("%#v and %#v: Equal is %v", w, o, w.Equal(o))
			}
		}
	}
	if !day.Equal(Aligned(Calendar{Unit: Day, Skew: time.Second})) {
		t.Error("no zone is not UTC")
	}
}

func TestCheckReportsEachField(t *testing.T) {
	second := Sliding(time.Second)
	for _, tt := range []struct {
		limit Limit
		want  []string
	}{
		{Limit{Calls: MaxCalls, Window: Sliding(MaxWindow), Late: MaxWindow, Guard: MaxWindow}, nil},
		{Limit{Calls: 1, Window: Aligned(Calendar{Unit: Month})}, nil},
		{Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute, Skew: time.Minute})}, nil},
		{Limit{Calls: 5, Window: second, Burst: 5}, nil},
		{Limit{Calls: 2_000_000_000, Window: InFlight()}, []string{"calls: is 2000000000, must be from 1 to 1000000000"}},
		{Limit{Calls: -5, Window: second}, []string{"calls: is -5, must be from 1 to 1000000000"}},
		{Limit{Calls: 1}, []string{"window: is missing"}},
		{Limit{Calls: 1, Window: Sliding(0)}, []string{"window: is 0s, must be from 1ns to 8784h0m0s"}},
		{Limit{Calls: 1, Window: Sliding(MaxWindow + 1)}, []string{"window: is 8784h0m0.000000001s, must be from 1ns to 8784h0m0s"}},
		{Limit{Calls: 1, Window: Aligned(Calendar{})}, []string{"window: unit is 0, must be minute, hour, day or month"}},
		{Limit{Calls: 1, Window: Aligned(Calendar{Unit: 9})}, []string{"window: unit is 9, must be minute, hour, day or month"}},
		{Limit{Calls: 1, Window: Aligned(Calendar{Unit: Day, Skew: -1})}, []string{"skew: is -1ns, must be from 0 to the window's length (24h0m0s)"}},
		{Limit{Calls: 1, Window: Aligned(Calendar{Unit: Minute, Skew: time.Minute + 1})}, []string{"skew: is 1m0.000000001s, must be from 0 to the window's length (1m0s)"}},
		{Limit{Calls: 5, Window: second, Burst: 6}, []string{"burst: is 6, must be from 0 to calls (5)"}},
		{Limit{Calls: 5, Window: InFlight(), Burst: 5}, []string{"burst: is 5, but spacing needs a sliding window"}},
		{Limit{Window: second, Late: -1, Guard: -1, Burst: -1, MaxKeys: -1}, []string{
			"calls: is 0, must be from 1 to 1000000000",
			"late: is -1ns, must be from 0s to 8784h0m0s",
			"guard: is -1ns, must be from 0s to 8784h0m0s",
			"burst: is -1, must be from 0 to calls (0)",
			"max_keys: is -1, must be from 0 to 10000000",
		}},
	} {
		var got []string
		if joined, ok := tt.limit.Check().(interface{ Unwrap() []error }); ok {
			for _, err := range joined.Unwrap() {
				var field *FieldError
				if !errors.As(err, &field) || err.Error() != field.Field+": "+field.Err.Error() {
					t.Errorf("%v is no fault of a field", err)
				}
				got = append(got, err.Error())
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: faults %q, want %q", tt.limit, got, tt.want)
		}
	}
}

// phase is a kind that the package does not have: at most N attempts in flight in each
// of the windows that follow one another from the ledger's origin. It shows that a
// kind needs no more than the methods of Window.
type phase time.Duration

func (w phase) String() string                         { return "phase of " + w.Length().String() }
func (w phase) Equal(other Window) bool                { return other == Window(w) }
func (w phase) Length() time.Duration                  { return time.Duration(w) }
func (w phase) Slides() bool                           { return false }
func (w phase) Round(trip time.Duration) time.Duration { return max(w.Length(), trip) }
func (w phase) check(f *faults)                        { within(f, "window", w.Length(), 1, MaxWindow) }
func (w phase) onWall() bool                           { return false }
func (w phase) back(arrived instant) int64             { return (arrived.mono/int64(w) + 1) * int64(w) }
func (w phase) tolerates(int64) bool                   { return true }

func (w phase) later(at, rounds, trip int64) int64 {
	for range rounds {
		at = w.back(instant{mono: at + trip})
	}
	return at
}

func TestAnotherKindNeedsOnlyItsMethods(t *testing.T) {
	const calls, late, second = 3, 500 * ms, time.Second
	limit := Limit{Name: "phase", Calls: calls, Window: phase(second), Late: late}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		l := New(start, limit)
		counts := make(map[time.Duration]int) // attempts in flight, by window
		var flying []*sent
		for now := start; now.Before(at(time.Minute)); now = now.Add(time.Duration(r.Int64N(int64(300 * ms)))) {
			if _, ok := l.Take(now, one(0)); ok {
				flying = append(flying, &sent{at: now})
			}
			for len(flying) > 0 && r.IntN(3) == 0 {
				s, last := flying[0], now
				flying = flying[1:]
				if s.fate = Fate(r.IntN(2)); s.fate == Unanswered {
					last = now.Add(late)
				}
				l.Return(now, one(0), Attempt{Sent: s.at, End: now, Fate: s.fate})
				for w := s.at.Sub(start) / second; w <= last.Sub(start)/second; w++ {
					counts[w]++
				}
			}
			if r.IntN(20) == 0 && len(flying) == 0 { // another process goes on
				all := l.Save(now)
				l = New(start, limit)
				for _, h := range all {
					l.Restore(now, 0, h)
				}
			}
		}
		for w, n := range counts {
			if n > calls {
				t.Fatalf("seed %d: %d attempts in flight in window %d, at most %d may be", seed, n, w, calls)
			}
		}
		if len(counts) < 55 {
			t.Fatalf("seed %d: only %d of 60 windows were used", seed, len(counts))
		}
	}

	l := New(start, limit)
	for i, want := range []time.Duration{200 * ms, 200 * ms, 200 * ms, second, second, second, 2 * second} {
		if got := l.ETA(at(200*ms), one(0)[0], i, 10*ms).Sub(start); got != want {
			t.Errorf("%d ahead: ETA %v, want %v", i, got, want)
		}
	}
	l.HoldAll(at(200*ms), 0, 0, at(time.Hour))
	if next := l.Next(at(200*ms), one(0)[0]).Sub(start); next != second {
		t.Errorf("all permits are held until %v, want 1s: no attempt that ended by now counts longer", next)
	}
}

func TestETAOfAlignedWindows(t *testing.T) {
	l := New(start, Limit{Calls: 2, Window: Aligned(Calendar{Unit: Hour, Skew: time.Second})})
	need, half := one(0)[0], 30*time.Minute
	for i, want := range []time.Duration{half, half, time.Hour + time.Second, time.Hour + time.Second, 2*time.Hour + time.Second} {
		if got := l.ETA(at(half), need, i, time.Second).Sub(start); got != want {
			t.Errorf("%d ahead: ETA %v, want %v", i, got, want)
		}
	}
	const many = 24 * 365 * 2
	if got, want := l.ETA(at(half), need, 2*many, time.Second).Sub(start), many*time.Hour+time.Second; got != want {
		t.Errorf("two years ahead: ETA %v, want %v", got, want)
	}
	// An attempt that ends within the skew of the edge counts in the next window too.
	edge := time.Hour - 1500*ms
	for trip, want := range map[time.Duration]time.Duration{
		100 * ms: time.Hour + time.Second, time.Second: 2*time.Hour + time.Second,
	} {
		if got := l.ETA(at(edge), need, 2, trip).Sub(start); got != want {
			t.Errorf("a trip of %v before the edge: ETA %v, want %v", trip, got, want)
		}
	}
}

func TestRestoreNeverHoldsLongerThanAnAttemptNow(t *testing.T) {
	for _, tt := range []struct {
		window Window
		back   time.Duration
	}{
		{Sliding(time.Minute), time.Minute + 5*time.Second},
		{InFlight(), 5 * time.Second},
		{Aligned(Calendar{Unit: Hour}), time.Hour},
	} {
		t.Run(fmt.Sprintf("%T", tt.window), func(t *testing.T) {
			for _, back := range []time.Duration{tt.back - 1, tt.back, tt.back + time.Second, 48 * time.Hour} {
				l := New(start, Limit{Calls: 1, Window: tt.window, Late: 5 * time.Second})
				l.Restore(start, 0, Held{Permits: 1, Back: at(back)})
				if got, want := l.Next(start, one(0)[0]).Sub(start), min(back, tt.back); got != want {
					t.Errorf("saved to come back at %v: back at %v, want %v", back, got, want)
				}
				l = New(start, Limit{Calls: 1, Window: tt.window, Late: 5 * time.Second})
				l.HoldAll(start, 0, 0, at(back))
				l.PauseLimit(0, time.Time{})
				held := l.Save(start)
				if got, want := l.Next(start, one(0)[0]).Sub(start), min(back, tt.back); got != want || len(held) != 1 || !held[0].All || !held[0].Back.Equal(at(want)) {
					t.Errorf("all held until %v: free at %v, saved as %+v, want %v", back, got, held, want)
				}
			}
		})
	}
}

func TestETAOfAnEndlessBacklog(t *testing.T) {
	for _, limit := range []Limit{
		{Calls: 1, Window: Sliding(24 * time.Hour)},
		{Calls: 1, Window: Sliding(24 * time.Hour), Burst: 1},
		{Calls: 1, Window: Aligned(Calendar{Unit: Month})},
	} {
		l, last := New(start, limit), start
		for ahead := 1000; ahead <= MaxCalls; ahead *= 10 {
			eta := l.ETA(start, one(0)[0], ahead, time.Second)
			if eta.Before(last) || eta.Sub(start) > 80*365*24*time.Hour {
				t.Errorf("%+v, %d ahead: ETA %v, after %v", limit, ahead, eta, last)
			}
			last = eta
		}
		if last.Before(start.AddDate(70, 0, 0)) {
			t.Errorf("%+v: the last ETA is %v, want one decades away", limit, last)
		}
	}
}

// TestGrains: permits of a window of an hour or longer come back at the next multiple of
// 1/1440 of it, those of shorter ones at once.
func TestGrains(t *testing.T) {
	for _, tt := range []struct {
		window        time.Duration
		arrived, back time.Duration
	}{
		{time.Hour - 1, 1, time.Hour},
		{time.Hour, 0, time.Hour},
		{time.Hour, 1, time.Hour + 2500*ms},
		{time.Hour, 2500*ms - 1, time.Hour + 2500*ms},
		{time.Hour, 2500 * ms, time.Hour + 2500*ms},
		{24 * time.Hour, 1, 24*time.Hour + time.Minute},
	} {
		if got := sliding(tt.window).back(instant{mono: int64(tt.arrived)}); got != int64(tt.back) {
			t.Errorf("arrived %v into a window of %v: back at %v, want %v", tt.arrived, tt.window, time.Duration(got), tt.back)
		}
	}
}
