package store

import (
	"database/sql"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestBoundCallAfterAnAttempt: a call without its body waits again after an attempt, and the
// process ends. The call is unknown if an attempt may have been executed, else cancelled; its
// last attempt keeps its reason.
func TestBoundCallAfterAnAttempt(t *testing.T) {
	for outcome, want := range map[upstream.Outcome]scheduler.State{upstream.Unknown: scheduler.Unknown, upstream.NotExecuted: scheduler.Cancelled} {
		t.Run(string(outcome), func(t *testing.T) {
			path := file(t)
			d, _, err := life(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := storetest.NewEntry(1)
			e.NoBody = true
			if _, err := d.Accept(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			call := e.Call
			for _, as := range []upstream.Outcome{outcome, upstream.NotExecuted} { // the second does not hide the first
				sent := storetest.Sent(call)
				call = storetest.With(storetest.Ended(sent, scheduler.Waiting), func(c *scheduler.Call) {
					c.Last().Outcome, c.Last().Reason, c.Response = as, "a reason", nil
				})
				if err := errors.Join(d.Intend(t.Context(), sent, nil), d.Record(t.Context(), call)); err != nil {
					t.Fatal(err)
				}
			}
			d.Close()
			if d, _, err = life(path, Options{}); err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			c, err := d.Get(t.Context(), call.ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.State != want || c.FinishedAt.IsZero() != (want == scheduler.Unknown) || len(c.Attempts) != 2 || c.Last().Reason != "a reason; "+wentWithIt {
				t.Errorf("the call is %+v, want %s with both reasons", c, want)
			}
		})
	}
}

// meta runs a statement on the table meta of a file that no process has.
func meta(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

// TestBacklogOfARecovery: the count of a clean close is taken only where no call was decided
// about since; else, and where it cannot be read, the calls are counted.
func TestBacklogOfARecovery(t *testing.T) {
	const changed = `{"other": {"waiting": 7}}`
	entry := func(n int64, bound bool) *scheduler.Entry {
		e := storetest.NewEntry(n)
		e.NoBody = bound
		return e
	}
	counted := map[string]scheduler.Backlog{"api": {Waiting: 1, Bytes: 100}}
	for _, tt := range []struct {
		name    string
		bound   bool   // a call of the process waits as well
		backlog string // of the last close, if it is not to stay
		o       Options
		want    map[string]scheduler.Backlog
	}{
		{"taken", false, changed, Options{}, map[string]scheduler.Backlog{"other": {Waiting: 7}}},
		{"of a call that ended", true, changed, Options{}, counted},
		{"of a copy", false, changed, Options{Restored: true}, map[string]scheduler.Backlog{"api": {Unknown: 1, Bytes: 100}}},
		{"damaged", false, "[", Options{}, counted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t)
			d, _, err := life(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Accept(t.Context(), entry(1, false)); err != nil {
				t.Fatal(err)
			}
			if tt.bound {
				if _, err := d.Accept(t.Context(), entry(2, true)); err != nil {
					t.Fatal(err)
				}
			}
			d.Close()
			meta(t, path, "UPDATE meta SET value = ? WHERE name = 'backlog'", tt.backlog)
			d, past, err := life(path, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if !reflect.DeepEqual(past.Backlog, tt.want) {
				t.Errorf("the backlog is %+v, want %+v", past.Backlog, tt.want)
			}
		})
	}
}

// TestIDOfAStore: a store has an id of its own from its first life on, and keeps it.
func TestIDOfAStore(t *testing.T) {
	ids := map[string]int{}
	for range 2 {
		path := file(t)
		for range 3 {
			d, _, err := life(path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ids[d.writer.conn.id]++
			d.Close()
		}
	}
	if len(ids) != 2 || ids[""] > 0 {
		t.Errorf("two stores have the ids %v in three lives each", ids)
	}
}

// TestHoldsAfterAStep: the wall clock was put back since the start. The file has the ends of
// permits by the clock of the process, those that an attempt begins with and those that it
// ends with.
func TestHoldsAfterAStep(t *testing.T) {
	d, _, err := life(file(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// stored has the holds stored whose permits come back some time after the start, and
	// compares the file with them.
	stored := func(after time.Duration, store func(holds []lease.Hold) error) {
		t.Helper()
		var holds []lease.Hold
		var want []time.Time
		for n := range 3 {
			back := d.clock.Start.Add(after + time.Duration(n)*time.Minute)
			want = append(want, columns.Ceil(back.Round(0)))
			holds = append(holds, lease.Hold{ID: 1<<40 + int64(n), Upstream: "api", Limit: "app", Permits: 1, Back: storetest.Stepped(t, back, -time.Hour)})
		}
		if err := store(holds); err != nil {
			t.Fatal(err)
		}
		rows, err := d.reader.db.Query(selectHolds + " ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		got, err := scanHolds(rows, d.codec)
		if err != nil || len(got) != len(want) {
			t.Fatalf("the file has %+v, %v", got, err)
		}
		for n, h := range got {
			if !h.Back.Equal(want[n]) {
				t.Errorf("permit %d is back at %v, want %v", n, h.Back, want[n])
			}
		}
	}
	stored(time.Minute, func(holds []lease.Hold) error { return d.Intend(t.Context(), nil, holds) })
	stored(time.Hour+1, func(holds []lease.Hold) error { return d.Settle(t.Context(), holds) })
}
