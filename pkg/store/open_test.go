package store

import (
	"bytes"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestCleanClose: a start is told whether the last process closed the file.
func TestCleanClose(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	crash := copyOf(t, d, filepath.Join(t.TempDir(), "crash.db"))
	d.Close()
	for path, want := range map[string]bool{path: true, crash: false, file(t): false} {
		db, err := sql.Open("sqlite", dsn(path, "", "_pragma=journal_mode(WAL)"))
		if err != nil {
			t.Fatal(err)
		}
		if clean, err := prepare(db); clean != want || err != nil {
			t.Errorf("clean is %v, want %v, %v", clean, want, err)
		}
		db.Close()
	}
}

// TestVerify: a file of at most 8 MiB is checked at each start, a greater one after a crash.
func TestVerify(t *testing.T) {
	path := file(t)
	connect := func() *sql.DB {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	db := connect()
	if _, err := db.Exec("CREATE TABLE a (b); INSERT INTO a VALUES (zeroblob(20000))"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff, 0xff}, 2*4096); err != nil { // the blob goes on in a page that there is not
		t.Fatal(err)
	}
	db = connect()
	for _, tt := range []struct {
		size         int64
		clean, found bool
	}{
		{6 * 4096, true, true}, {6 * 4096, false, true},
		{smallFile, true, true}, {smallFile, false, true},
		{smallFile + 1, true, false}, {smallFile + 1, false, true},
	} {
		if err := f.Truncate(tt.size); err != nil {
			t.Fatal(err)
		}
		if err := verify(db, path, tt.clean); (err != nil) != tt.found || tt.found && !strings.Contains(err.Error(), "is damaged: ") {
			t.Errorf("%d bytes, clean %v: %v; found is to be %v", tt.size, tt.clean, err, tt.found)
		}
	}
	if err := verify(db, path+".2", true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that there is not: %v", err)
	}
}

// TestConnections: one connection writes, and syncs; at most four read.
func TestConnections(t *testing.T) {
	for raw, want := range map[string]int{"": 2, "_pragma=synchronous(OFF)": 0} {
		d := open(t, file(t), Options{raw: raw})
		var sync int
		if err := d.writer.conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&sync); err != nil || sync != want {
			t.Errorf("with %q synchronous is %d, want %d, %v", raw, sync, want, err)
		}
		if w, r := d.writePool.Stats().MaxOpenConnections, d.reader.db.Stats().MaxOpenConnections; w != 1 || r != 4 {
			t.Errorf("%d connections write and %d read, want 1 and 4", w, r)
		}
	}
}

// TestNoReserve: a store whose reserve cannot be made says so, and why.
func TestNoReserve(t *testing.T) {
	for _, blocked := range []bool{false, true} {
		path := file(t)
		if blocked {
			if err := os.Mkdir(path+"-reserve", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		d, err := Open(path, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), boot: steadyBoot, reserve: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(log.String(), "is a directory"); told != blocked || log.Len() > 0 != blocked {
			t.Errorf("the reserve is blocked: %v; the log has %q", blocked, &log)
		}
		d.Close()
	}
}

// TestSweptByItself: a store that is open deletes the calls whose time is over.
func TestSweptByItself(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		d, _, err := life(filepath.Join(dir, "swept.db"), Options{KeepCalls: time.Hour, KeepKeys: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		e := storetest.NewEntry(1)
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent := storetest.Sent(e.Call)
		if err := errors.Join(d.Intend(t.Context(), sent, nil), d.Record(t.Context(), storetest.Ended(sent, scheduler.Done))); err != nil {
			t.Fatal(err)
		}
		calls := func(after time.Duration) int {
			t.Helper()
			time.Sleep(after)
			all, err := d.List(t.Context(), scheduler.Filter{Max: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(all.Calls)
		}
		if before, after := calls(59*time.Minute), calls(5*time.Minute); before != 1 || after != 0 {
			t.Errorf("%d calls after 59 minutes, %d after an hour and four", before, after)
		}
	})
}
