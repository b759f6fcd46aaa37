package columns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestSinceTheMark: the clock of the machine tells the time since a commit, if it has
// gone on since, else the wall clock.
func TestSinceTheMark(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := Mark{Steady: Micros(at), Wall: Micros(at), Boot: Boot{ID: "1", Since: time.Hour}}
	for _, tt := range []struct {
		name         string
		m            Mark
		b            Boot
		wall         time.Duration // of the wall clock since
		passed, step time.Duration
	}{
		{"no time", m, Boot{ID: "1", Since: time.Hour}, time.Minute, 0, time.Minute},
		{"a minute", m, Boot{ID: "1", Since: time.Hour + time.Minute}, time.Minute, time.Minute, 0},
		{"a clock that went back", m, Boot{ID: "1", Since: time.Hour - 1}, time.Minute, time.Minute, 0},
		{"another start", m, Boot{ID: "2", Since: 2 * time.Hour}, time.Minute, time.Minute, 0},
		{"another start, put back", m, Boot{ID: "2", Since: 2 * time.Hour}, -time.Minute, 0, -time.Minute},
		{"no clock", Mark{Steady: m.Steady, Wall: m.Wall}, Boot{}, time.Minute, time.Minute, 0},
		{"the first process", Mark{}, Boot{ID: "1", Since: time.Hour}, time.Minute, 0, 0},
	} {
		if passed, step := tt.m.Since(tt.b, at.Add(tt.wall)); passed != tt.passed || step != tt.step {
			t.Errorf("%s: %v passed and a step of %v, want %v and %v", tt.name, passed, step, tt.passed, tt.step)
		}
	}
}

// TestMarks reads marks as this program and older ones have written them, and damaged ones.
func TestMarks(t *testing.T) {
	// The reading of the machine's clock is cut to microseconds, and one is added.
	m := Mark{Steady: 1_700_000_000_000_001, Wall: 1_700_000_000_000_002, Boot: Boot{ID: "b-1", Since: time.Hour + 500}}
	unknown := Mark{Steady: m.Steady, Wall: m.Wall}
	for text, want := range map[string]Mark{
		m.String():         {Steady: m.Steady, Wall: m.Wall, Boot: Boot{ID: "b-1", Since: time.Hour + time.Microsecond}},
		unknown.String():   {Steady: m.Steady, Wall: m.Wall, Boot: Boot{ID: "", Since: time.Microsecond}},
		"1700000000000001": {Steady: m.Steady, Wall: m.Steady}, // the file had no clock of its own
	} {
		if got, err := ParseMark(text); err != nil || got != want {
			t.Errorf("mark %q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "1700000000000001 1700000000000002", "1 2 x"} {
		if got, err := ParseMark(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("mark is %q", text)) {
			t.Errorf("mark %q is %+v, %v; want an error with it", text, got, err)
		}
	}
}

// TestHoldAfterAStep: the wall clock was put forward, or back, since the start. A permit
// comes back by the clock of the process, a pause ends at the instant that it has, and the
// file has neither earlier than it is.
func TestHoldAfterAStep(t *testing.T) {
	k := Clock{Start: time.Now()}
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		back := k.Start.Add(time.Minute)
		shown := storetest.Stepped(t, back, step)
		for paused, least := range map[bool]time.Time{false: back.Round(0), true: shown.Round(0)} {
			got := k.holds([]lease.Hold{{Paused: paused, Back: shown}})[0].Back
			if late := got.Sub(least); late < 0 || late >= time.Microsecond || got.Nanosecond()%1000 != 0 {
				t.Errorf("a step of %v, paused %v: back at %v, want the whole microsecond from %v on", step, paused, got, least)
			}
		}
	}
}

// TestRecovered: permits of an earlier process come back as long after its mark as they would have.
func TestRecovered(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := at.Add(24 * time.Hour)
	m := Mark{Steady: Micros(at)}
	holds := []lease.Hold{{Back: at.Add(time.Hour)}, {Back: at.Add(time.Hour), Paused: true}, {}}
	m.Recovered(holds, now, 10*time.Minute)
	for i, want := range []time.Time{now.Add(50 * time.Minute), at.Add(time.Hour), {}} {
		if !holds[i].Back.Equal(want) {
			t.Errorf("hold %d comes back at %v, want %v", i, holds[i].Back, want)
		}
	}
}
