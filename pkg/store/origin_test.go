package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// life opens a file as it lies there, and begins a life of the store.
func life(path string, o Options) (*DB, *scheduler.Recovered, error) {
	o.Log, o.boot, o.reserve = quiet, steadyBoot, 4096
	d, err := Open(path, o)
	if err != nil {
		return nil, nil, err
	}
	past, err := d.Recover(context.Background(), 0, func(e *scheduler.Entry) (time.Time, bool) {
		return time.Now(), e.Restored && strings.HasSuffix(e.Call.Upstream, "/hook")
	})
	if err != nil {
		d.Close()
	}
	return d, past, err
}

// TestRestored: by Options.Restored the calls that waited in a copy are unknown, with a
// reason, except those that the scheduler repeats. The copy is the store from then on.
func TestRestored(t *testing.T) {
	path, copied := file(t), filepath.Join(t.TempDir(), "copied.db")
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	accept := func(n int64, edit func(*scheduler.Entry)) *scheduler.Entry {
		e := storetest.NewEntry(n)
		edit(e)
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	keep := func(*scheduler.Entry) {}
	hold := lease.Hold{Upstream: "api", Limit: "app", Permits: 1}
	waits, sending, again, done := accept(1, keep), accept(2, keep), accept(3, keep), accept(4, keep)
	bound := accept(5, func(e *scheduler.Entry) { e.NoBody = true })
	hook := accept(6, func(e *scheduler.Entry) { e.Call.Upstream = "api/hook" })
	limited := storetest.With(storetest.Ended(storetest.Sent(again.Call, hold), scheduler.Waiting), func(c *scheduler.Call) { c.Last().Outcome, c.Response = upstream.NotExecuted, nil })
	ended := storetest.Sent(done.Call, hold)
	if err := errors.Join(d.Intend(t.Context(), storetest.Sent(sending.Call, hold), nil),
		d.Intend(t.Context(), storetest.Sent(again.Call, hold), nil), d.Record(t.Context(), limited),
		d.Intend(t.Context(), ended, nil), d.Record(t.Context(), storetest.Ended(ended, scheduler.Done))); err != nil {
		t.Fatal(err)
	}
	copyOf(t, d, copied)
	d.Close()
	if _, _, err := life(copied, Options{}); err == nil || !strings.Contains(err.Error(), "is a copy") {
		t.Fatalf("a copy: %v", err)
	}
	r, past, err := life(copied, Options{Restored: true})
	if err != nil {
		t.Fatal(err)
	}
	if !past.Restored || past.Interrupted != 5 || past.Backlog["api"].Unknown != 4 || past.Backlog["api/hook"].Waiting != 1 {
		t.Errorf("past %+v", past)
	}
	for e, attempts := range map[*scheduler.Entry]int{waits: 1, sending: 1, again: 2, bound: 1} {
		c, err := r.Get(t.Context(), e.Call.ID)
		if err != nil || c.State != scheduler.Unknown || len(c.Attempts) != attempts || c.Last().N != attempts || c.Last().Reason != wasCopied || c.Last().SentAt.IsZero() {
			t.Errorf("call %d is %+v, %v; want unknown with its reason in attempt %d", e.Call.Seq, c, err, attempts)
		}
	}
	for e, state := range map[*scheduler.Entry]scheduler.State{done: scheduler.Done, hook: scheduler.Waiting} {
		if c, err := r.Get(t.Context(), e.Call.ID); err != nil || c.State != state {
			t.Errorf("call %d is %+v, %v; want %s", e.Call.Seq, c, err, state)
		}
	}
	if err := errors.Join(r.Restate(t.Context(), past.Holds), r.Close()); err != nil {
		t.Fatal(err)
	}
	for how, path := range map[string]string{"the restored copy": copied, "the store that it was made of": path} {
		d, past, err := life(path, Options{})
		if err != nil || past.Restored {
			t.Fatalf("%s: %+v, %v", how, past, err)
		}
		d.Close()
	}
}

// TestRestoredLater: a copy that was opened, but whose calls were not made unknown yet, or whose limits were not stored as full,
// is still refused without Options.Restored, also in the place of the store itself.
func TestRestoredLater(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := copyOf(t, d, filepath.Join(t.TempDir(), "old.db"))
	d.Close()
	place(t, old, path, "", "-wal") // the same inode
	if d, err = Open(path, Options{Log: quiet, reserve: 4096, Restored: true}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	for range 2 {
		if _, _, err := life(path, Options{}); err == nil || !strings.Contains(err.Error(), "--restored") {
			t.Errorf("a copy that was not restored to the end: %v", err)
		}
		if d, _, err = life(path, Options{Restored: true}); err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	if d, err = Open(path, Options{Log: quiet, boot: steadyBoot, reserve: 4096, Restored: true}); err != nil {
		t.Fatal(err)
	}
	noted, err := os.ReadFile(path + "-lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Restate(t.Context(), nil), d.Close(), os.WriteFile(path+"-lock", noted, 0o600)); err != nil { // a power cut costs the note of this life
		t.Fatal(err)
	}
	if d, _, err = life(path, Options{}); err != nil {
		t.Fatalf("the store after that: %v", err)
	}
	d.Close()
}

// intend commits a hold.
func intend(t *testing.T, d *DB, id int64) {
	t.Helper()
	if err := d.Intend(t.Context(), nil, []lease.Hold{{ID: id, Upstream: "api", Limit: "app", Permits: 1}}); err != nil {
		t.Fatal(err)
	}
}

// TestEachCommitCounts: an older copy in the same inode is refused, however little it lacks,
// also one of the same life.
func TestEachCommitCounts(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	intend(t, d, 1)
	older := copyOf(t, d, filepath.Join(t.TempDir(), "older.db"))
	intend(t, d, 2)
	same := copyOf(t, d, filepath.Join(t.TempDir(), "same.db"))
	noted, err := os.ReadFile(path + "-lock")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	put := func(from string, note []byte) error {
		place(t, from, path, "", "-wal")
		if err := os.WriteFile(path+"-lock", note, 0o600); err != nil {
			t.Fatal(err)
		}
		d, _, err := life(path, Options{})
		if err == nil {
			d.Close()
		}
		return err
	}
	if err := put(older, noted); err == nil || !strings.Contains(err.Error(), "is an older copy") {
		t.Errorf("a copy that lacks one commit: %v", err)
	}
	if err := put(same, noted); err != nil {
		t.Errorf("the file as it was at the end: %v", err)
	}
	for _, note := range [][]byte{nil, make([]byte, len(noted)), noted[:20]} { // a power cut while it was first written
		if err := put(same, note); err != nil {
			t.Errorf("the note %q: %v", note, err)
		}
	}
}

// TestOlderProgram: a file of a program that knew no copies is taken over at its first
// opening. From then on its copies are known.
func TestOlderProgram(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := ourObjects(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM meta WHERE name IN ('file', 'base'); DROP INDEX settled; DROP TABLE audit; DROP VIEW audit_log; DROP VIEW readable; DROP VIEW out_now; DROP VIEW current; ALTER TABLE quota DROP COLUMN who; ALTER TABLE calls DROP COLUMN facts; DROP TABLE blocks; DROP TABLE terms; DROP TABLE strays; DROP INDEX unsettled; DROP INDEX queued; ALTER TABLE keys DROP COLUMN ended_by; ALTER TABLE quota DROP COLUMN since; ALTER TABLE quota DROP COLUMN reason; DROP INDEX untold_at; ALTER TABLE untold DROP COLUMN tell_at; ALTER TABLE untold DROP COLUMN failures; " +
		first[`view "readable"`].sql + "; " + first[`view "out_now"`].sql + "; " + first[`view "current"`].sql + "; " + first[`index "unsettled"`].sql + "; DELETE FROM goose_db_version WHERE version_id > 1"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if err := os.Truncate(path+"-lock", 0); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup.db")
	f, err := Read(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Copied(), f.Backup(t.Context(), backup)); err != nil {
		t.Fatal(err)
	}
	if d, _, err = life(path, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Audit(t.Context(), scheduler.AuditRecord{At: time.Now(), Action: "pause"}); err != nil {
		t.Error(err)
	}
	copied, alone := copyOf(t, d, filepath.Join(t.TempDir(), "copied.db")), filepath.Join(t.TempDir(), "alone.db")
	if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); err != nil {
		t.Fatal(err)
	}
	place(t, path, alone, "")
	d.Close()
	for path, want := range map[string]string{copied: "is a copy", alone: "is a copy", backup: "is a backup"} {
		if _, _, err := life(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestYoungFileAlone: a copy of the file without its log is known as one from the first call
// on, also if the process was killed in its first life before the file itself knew.
func TestYoungFileAlone(t *testing.T) {
	named := func(path string, want bool) {
		t.Helper()
		if from, err := originOf(path, Options{}); err != nil || from.named != want {
			t.Errorf("the file itself says to which file it belongs: %v, %v, want %v", from.named, err, want)
		}
	}
	for _, killed := range []bool{false, true} {
		path, alone, before := file(t), filepath.Join(t.TempDir(), "alone.db"), filepath.Join(t.TempDir(), "before.db")
		if killed {
			d, err := Open(path, Options{Log: quiet, boot: steadyBoot, reserve: 4096})
			if err != nil {
				t.Fatal(err)
			}
			place(t, path, before, "")
			if _, err := d.Recover(t.Context(), 0, nil); err != nil {
				t.Fatal(err)
			}
			place(t, path, before, "-wal", "-lock")
			d.Close()
			place(t, before, path, "", "-wal", "-lock")
			named(path, false)
		}
		d, _, err := life(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); err != nil {
			t.Fatal(err)
		}
		place(t, path, alone, "")
		named(path, true)
		d.Close()
		if _, _, err := life(alone, Options{}); err == nil || !strings.Contains(err.Error(), "is a copy") {
			t.Errorf("the file alone, killed before: %v: %v", killed, err)
		}
	}
}

// TestYoungFileOfASlowStart: the file knows to which one it belongs also if the writer had nothing
// to do, and moved the log, before the store was recovered.
func TestYoungFileOfASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := file(t)
		d, err := Open(path, Options{Log: quiet, boot: steadyBoot, reserve: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		time.Sleep(2 * idleTime)
		synctest.Wait()
		if _, err := d.Recover(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); err != nil {
			t.Fatal(err)
		}
		if from, err := originOf(path, Options{}); err != nil || !from.named {
			t.Errorf("the file itself says to which file it belongs: %v, %v", from.named, err)
		}
	})
}

// TestSameFileID: a time of birth that one of two readings lacks tells nothing.
func TestSameFileID(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"12 34", "12 34", true}, {"12 34", "13 34", false}, {"12 34", "12 35", false},
		{"12 34", "12 0", true}, {"12 0", "12 34", true}, {"12 34", "13 0", false}, {"backup", "12 34", false}, {"", "", false},
	} {
		if got := sameFileID(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}

// place writes the files of a copy to those of a store, as cp does.
func place(t *testing.T, from, path string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		text, err := os.ReadFile(from + part)
		if err = errors.Join(err, os.WriteFile(path+part, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreIsGone: a new store does not silently take the place of one that was deleted.
func TestStoreIsGone(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first refusal leaves an empty file
		if _, _, err := life(path, Options{}); err == nil || !strings.Contains(err.Error(), "and that one is gone") {
			t.Errorf("an empty file in its place: %v", err)
		}
	}
	if d, _, err = life(path, Options{Restored: true}); err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestLogOfAnother: SQLite would mix the pages of an older file with those of a log that
// began later, also where the copy is restored.
func TestLogOfAnother(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	older := copyOf(t, d, filepath.Join(t.TempDir(), "older.db"))
	d.Close() // the log is moved
	if d, _, err = life(path, Options{}); err != nil {
		t.Fatal(err)
	}
	intend(t, d, 1)
	last := copyOf(t, d, filepath.Join(t.TempDir(), "last.db"))
	note, err := os.ReadFile(path + "-lock")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	place(t, last, path, "-wal")
	place(t, older, path, "")
	for _, o := range []Options{{}, {Restored: true}} {
		if _, _, err := life(path, o); err == nil || !strings.Contains(err.Error(), "remove the log") {
			t.Errorf("restored %v, an older file with the log of a newer one: %v", o.Restored, err)
		}
	}
	place(t, last, path, "") // the log has all that this one lacks
	if err := os.WriteFile(path+"-lock", note, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, _, err = life(path, Options{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestFailedCommitIsNotNoted: the epoch of a transaction that a full disk refused is not in
// the note, or the next start would take the file for an older copy.
func TestFailedCommitIsNotNoted(t *testing.T) {
	path := file(t)
	d, _, err := life(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = d.writer.do(t.Context(), &change{essential: true, apply: func(c *conn) (refused, err error) {
		if err := c.replaceHolds(nil); err != nil {
			return nil, err
		}
		_, err = c.ExecContext(t.Context(), "PRAGMA max_page_count = 1")
		return nil, errors.Join(err, c.exec("INSERT INTO untold (notice, seq) SELECT hex(randomblob(2000)) || value, value FROM json_each('['||substr(replace(hex(zeroblob(500)),'00',',0'),2)||']')"))
	}})
	if !errors.Is(err, scheduler.ErrFull) {
		t.Fatalf("%v, want a full disk", err)
	}
	if err := d.writer.do(t.Context(), &change{apply: func(c *conn) (refused, err error) {
		_, err = c.ExecContext(t.Context(), "PRAGMA max_page_count = 1000000")
		return nil, err
	}, essential: true}); err != nil {
		t.Fatal(err)
	}
	image := copyOf(t, d, filepath.Join(t.TempDir(), "crash.db"))
	note, err := os.ReadFile(path + "-lock")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	place(t, image, path, "", "-wal")
	if err := os.WriteFile(path+"-lock", note, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, _, err = life(path, Options{}); err != nil {
		t.Fatal(err)
	}
	d.Close()
}
