package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
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
				machine := columns.Boot{ID: "1", Since: since}
				path := file(t)
				d := open(t, path, Options{boot: func() columns.Boot { return machine }})
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
				machine = columns.Boot{ID: tt.boot, Since: since + tt.down}
				d = open(t, path, Options{boot: func() columns.Boot { return machine }})
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

// TestCrashWhileRecovering: permits that a recovery has put on the clock of its process
// are not put on another one again after a crash right behind it.
func TestCrashWhileRecovering(t *testing.T) {
	machine := columns.Boot{ID: "1", Since: time.Hour}
	options := Options{boot: func() columns.Boot { return machine }}
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
		machine.Since += 10 * time.Minute
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
