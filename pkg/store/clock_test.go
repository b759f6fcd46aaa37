package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// TestRestartAfterAStep: the wall clock is put forward, or back, while no process runs, and
// permits that are out come back when they would have without. After another start of the
// machine a clock that went forward is trusted, as the time that has passed is not known.
func TestRestartAfterAStep(t *testing.T) {
	const left = 10 * time.Minute // until the permits come back, when the process ends
	for _, tt := range []struct {
		name         string
		boot         string // of the machine; it was started as "1"
		down         time.Duration
		step         time.Duration // of the wall clock meanwhile
		want, stepIs time.Duration
	}{
		{"at once", "1", 0, 0, left, 0},
		{"after a while", "1", time.Minute, 0, left - time.Minute, 0},
		{"put forward", "1", time.Minute, time.Hour, left - time.Minute, time.Hour},
		{"put back", "1", time.Minute, -time.Hour, left - time.Minute, -time.Hour},
		{"put back by days", "1", time.Minute, -50 * time.Hour, left - time.Minute, -50 * time.Hour},
		{"another boot", "2", time.Minute, 0, left - time.Minute, 0},
		{"another boot, put forward", "2", time.Minute, 2 * time.Minute, left - 3*time.Minute, 0},
		{"another boot, put back", "2", time.Minute, -time.Hour, left, -59 * time.Minute},
		{"no boot is known, put back", "", time.Minute, -time.Hour, left, -59 * time.Minute},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, ", crash: ", crash), func(t *testing.T) {
				since := time.Hour
				machine := boot{"1", since}
				path := file(t)
				d := open(t, path, Options{boot: func() boot { return machine }})
				if _, err := d.Recover(t.Context(), 0, nil); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				own := lease.Hold{ID: 1 << 40, Upstream: "api", Limit: "app", Permits: 1, Back: time.Now().Add(left)}
				paused := lease.Hold{ID: 1<<40 + 1, Upstream: "api", Limit: "app", Paused: true, Back: time.Now().Add(left)}
				if err := d.Intend(t.Context(), nil, []lease.Hold{own, paused}); err != nil {
					t.Fatal(err)
				}
				if crash {
					path = copyOf(t, d, filepath.Join(t.TempDir(), "crash.db"))
				}
				d.Close()
				// The clock of this test cannot be put anywhere: that of the mark is.
				putMark(t, path, -tt.down-tt.step)
				machine = boot{tt.boot, since + tt.down}
				d = open(t, path, Options{boot: func() boot { return machine }})
				past, err := d.Recover(t.Context(), 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				// The wall clock went on meanwhile, and the machine's of this test did not.
				took := func() time.Duration { return time.Since(began) + time.Millisecond }
				if off := past.Step - tt.stepIs; off.Abs() > took() {
					t.Errorf("the step is %v, want %v", past.Step, tt.stepIs)
				}
				if len(past.Holds) != 2 {
					t.Fatalf("holds %+v, want two", past.Holds)
				}
				for _, h := range past.Holds {
					want := time.Now().Add(tt.want)
					if h.Paused {
						want = paused.Back
					}
					if off := h.Back.Sub(want); off.Abs() > took() {
						t.Errorf("paused %v: back %v off", h.Paused, off)
					}
				}
			})
		}
	}
}

// putMark puts the wall clock of the last commit of a file forward, or back.
func putMark(t *testing.T, path string, by time.Duration) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var text, id string
	var steady, wall, since int64
	if err := db.QueryRow("SELECT value FROM meta WHERE name = 'mark'").Scan(&text); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(text, &steady, &wall, &since, &id); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE meta SET value = ? WHERE name = 'mark'", fmt.Sprint(steady, wall+by.Microseconds(), since, " ", id)); err != nil {
		t.Fatal(err)
	}
}

// TestHoldAfterAStep: the wall clock was put forward, or back, since the start. A permit
// comes back by the clock of the process, a pause ends at the instant that it has, and the
// file has neither earlier than it is.
func TestHoldAfterAStep(t *testing.T) {
	k := clock{start: time.Now()}
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		back := k.start.Add(time.Minute)
		shown := stepped(t, back, step)
		for paused, least := range map[bool]time.Time{false: back.Round(0), true: shown.Round(0)} {
			got := k.hold(lease.Hold{Paused: paused, Back: shown}).Back
			if late := got.Sub(least); late < 0 || late >= time.Microsecond || got.Nanosecond()%1000 != 0 {
				t.Errorf("a step of %v, paused %v: back at %v, want the whole microsecond from %v on", step, paused, got, least)
			}
		}
	}
}

// stepped returns what the wall clock shows at an instant that time.Now has given after a
// step of that clock. In the layout of a time the monotonic reading is the second word.
func stepped(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	after := at.Add(by)
	*(*int64)(unsafe.Add(unsafe.Pointer(&after), 8)) -= int64(by)
	if after.Sub(at) != 0 || after.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("%v is no reading after a step of %v", after, by)
	}
	return after
}

// TestSinceTheMark: the clock of the machine tells what has passed since a commit, if it has
// gone on since, else the wall clock.
func TestSinceTheMark(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := mark{steady: micros(at), wall: micros(at), boot: boot{"1", time.Hour}}
	for _, tt := range []struct {
		name         string
		m            mark
		b            boot
		wall         time.Duration // of the wall clock since
		passed, step time.Duration
	}{
		{"no time", m, boot{"1", time.Hour}, time.Minute, 0, time.Minute},
		{"a minute", m, boot{"1", time.Hour + time.Minute}, time.Minute, time.Minute, 0},
		{"a clock that went back", m, boot{"1", time.Hour - 1}, time.Minute, time.Minute, 0},
		{"another start", m, boot{"2", 2 * time.Hour}, time.Minute, time.Minute, 0},
		{"another start, put back", m, boot{"2", 2 * time.Hour}, -time.Minute, 0, -time.Minute},
		{"no clock", mark{steady: m.steady, wall: m.wall}, boot{}, time.Minute, time.Minute, 0},
		{"the first process", mark{}, boot{"1", time.Hour}, time.Minute, 0, 0},
	} {
		if passed, step := tt.m.since(tt.b, at.Add(tt.wall)); passed != tt.passed || step != tt.step {
			t.Errorf("%s: %v passed and a step of %v, want %v and %v", tt.name, passed, step, tt.passed, tt.step)
		}
	}
}

// TestMarks reads marks as this program and older ones have written them, and damaged ones.
func TestMarks(t *testing.T) {
	// The reading of the machine's clock is cut to microseconds, and one is added.
	m := mark{steady: 1_700_000_000_000_001, wall: 1_700_000_000_000_002, boot: boot{"b-1", time.Hour + 500}}
	unknown := mark{steady: m.steady, wall: m.wall}
	for text, want := range map[string]mark{
		m.String():         {m.steady, m.wall, boot{"b-1", time.Hour + time.Microsecond}},
		unknown.String():   {m.steady, m.wall, boot{"", time.Microsecond}},
		"1700000000000001": {steady: m.steady, wall: m.steady}, // the file had no clock of its own
	} {
		if got, err := readMark(t, text); err != nil || got != want {
			t.Errorf("mark %q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "1700000000000001 1700000000000002", "1 2 x"} {
		if got, err := readMark(t, text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("mark is %q", text)) {
			t.Errorf("mark %q is %+v, %v; want an error with it", text, got, err)
		}
	}
}

// readMark reads a mark from a file that has it.
func readMark(t *testing.T, text string) (m mark, err error) {
	t.Helper()
	d := open(t, file(t), Options{})
	defer d.Close()
	if err := d.writer.do(t.Context(), &change{apply: func(c *conn) (refused, failed error) {
		failed = c.set("mark", text)
		m, err = lastMark(c)
		return nil, failed
	}}); err != nil {
		t.Fatal(err)
	}
	return m, err
}

// TestCrashWhileRecovering: permits that a recovery has put on the clock of its process
// are not put on another one again after a crash right behind it.
func TestCrashWhileRecovering(t *testing.T) {
	machine := boot{"1", time.Hour}
	options := Options{boot: func() boot { return machine }}
	path := file(t)
	d := open(t, path, options)
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	back := time.Now().Add(time.Hour)
	if err := d.Intend(t.Context(), nil, []lease.Hold{{ID: 1 << 40, Upstream: "api", Limit: "app", Permits: 1, Back: back}}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each life is ten minutes after the one before, by the clock of the machine alone
		path = copyOf(t, d, filepath.Join(t.TempDir(), "crash.db"))
		machine.since += 10 * time.Minute
		d = open(t, path, options)
		past, err := d.Recover(t.Context(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		back = back.Add(-10 * time.Minute)
		if off := past.Holds[0].Back.Sub(back); off < 0 || off > time.Minute {
			t.Errorf("the permit is back %v off", off)
		}
	}
}
