package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// endless is a view that has no end.
const endless = "CREATE VIEW current AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS seq, '' AS id, '' AS upstream, 0 AS lane, " +
	"'waiting' AS state, 0 AS rank, 0 AS async, '' AS callback, '' AS resolves, 0 AS epoch, 0 AS bytes, 0 AS accepted_at, 0 AS not_before, 0 AS due, " +
	"0 AS deadline, 0 AS wake, 0 AS ended_at, '[]' AS attempts, '' AS spent, 0 AS sum FROM n"

// TestForeignSchema: a file whose schema another program has changed is refused at once, by
// all that read it, and stays as it is.
func TestForeignSchema(t *testing.T) {
	for name, tt := range map[string]struct{ change, want string }{
		"a view without an end": {"DROP VIEW current; " + endless, `view "current"`},
		"another view":          {"CREATE VIEW mine AS SELECT 1", `view "mine"`},
		"a trigger":             {"CREATE TRIGGER steal AFTER INSERT ON calls BEGIN DELETE FROM keys; END", `trigger "steal"`},
		"a trigger of versions": {"CREATE TRIGGER steal AFTER INSERT ON goose_db_version BEGIN DELETE FROM keys; END", `trigger "steal"`},
		"another table":         {"CREATE TABLE mine (a)", `table "mine"`},
		"another column":        {"ALTER TABLE keys ADD COLUMN mine TEXT DEFAULT 'x'", `table "keys"`},
		"another index":         {"CREATE INDEX mine ON calls (callback)", `index "mine"`},
		"an index is gone":      {"DROP INDEX ended", `lacks the index "ended"`},
		"a table is gone":       {"DROP TABLE untold", `lacks the table "untold"`},
		"versions are a view":   {"ALTER TABLE goose_db_version RENAME TO v; CREATE VIEW goose_db_version AS SELECT * FROM v", "is no store of this program"},
		"calls are a view":      {"DROP VIEW current; DROP VIEW readable; ALTER TABLE calls RENAME TO c; CREATE VIEW calls AS SELECT * FROM c", "is no store of this program"},
		"a virtual table":       {"DROP TABLE goose_db_version; CREATE VIRTUAL TABLE goose_db_version USING fts5(version_id)", "is no store of this program"},
		"a trigger of its name": {"CREATE TRIGGER calls AFTER INSERT ON calls BEGIN DELETE FROM keys; END", `trigger "calls"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			d := open(t, path, Options{})
			furnish(t, d)
			d.Close()
			alter(t, path, tt.change)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := everyReader(ctx, path, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("a reader: %v, want %q", err, tt.want)
			}
			if _, err := Open(path, Options{Log: quiet, fileID: sameFile, reserve: 4096}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v, want %q", err, tt.want)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

func alter(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(statements)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// everyReader checks, counts and exports a file.
func everyReader(ctx context.Context, path string, o Options) error {
	f, err := Read(path, o)
	if err != nil {
		return err
	}
	defer f.Close()
	_, checked := f.Check(ctx)
	_, counted := f.Stats(ctx)
	return errors.Join(checked, counted, f.Copied(), f.Calls(ctx, func(*scheduler.Call) error { return nil }))
}

// TestOwnSchema: SQLite's own tables, and comments, make no file another one.
func TestOwnSchema(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	furnish(t, d)
	d.Close()
	alter(t, path, "ANALYZE; VACUUM")
	alter(t, path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, '-- age', '-- its  age') WHERE name = 'calls'")
	if err := everyReader(t.Context(), path, Options{}); err != nil {
		t.Error(err)
	}
	open(t, path, Options{})
}

// TestReadersEnd: a context ends all that reads a file.
func TestReadersEnd(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	furnish(t, d)
	f, err := Read(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ended, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, read := range map[string]func() error{
		"Check":  func() error { _, err := f.Check(ended); return err },
		"Stats":  func() error { _, err := f.Stats(ended); return err },
		"Calls":  func() error { return f.Calls(ended, func(*scheduler.Call) error { return nil }) },
		"Backup": func() error { return f.Backup(ended, path+".copy") },
	} {
		if err := read(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the error of its context", name, err)
		}
	}
}

// TestCarefulConnections: no connection runs code of the file's schema, or skips checks.
func TestCarefulConnections(t *testing.T) {
	d := open(t, file(t), Options{})
	f, err := Read(d.identity.file.Name(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, db := range map[string]*sql.DB{"writer": d.writePool, "reader": d.reader.db, "file": f.db} {
		for pragma, want := range map[string]int{"trusted_schema": 0, "cell_size_check": 1} {
			var got int
			if name == "writer" { // its one connection is in use
				err = d.writer.conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got)
			} else {
				err = db.QueryRow("PRAGMA " + pragma).Scan(&got)
			}
			if err != nil || got != want {
				t.Errorf("%s: %s is %d, %v", name, pragma, got, err)
			}
		}
	}
}

// TestImpossibleRows: a row that no scheduler has stored is refused, though its sum is right.
func TestImpossibleRows(t *testing.T) {
	for name, tt := range map[string]struct{ change, want string }{
		"a flight without an attempt":   {"UPDATE flights SET attempts = '[]'", "no attempt of it is known"},
		"an unknown call without one":   {"UPDATE calls SET state = 'unknown', attempts = '[]' WHERE seq = 1", "no attempt of it is known"},
		"a state that there is not":     {"UPDATE calls SET state = 'paused' WHERE seq = 1", `state "paused"`},
		"permits below zero":            {`UPDATE calls SET spent = '[{"limit":"app","permits":-1}]' WHERE seq = 1`, "-1 permits"},
		"more permits than limits have": {`UPDATE flights SET spent = '[{"limit":"app","permits":9000000000000000000}]'`, "9000000000000000000 permits"},
		"a hold below zero":             {"UPDATE quota SET permits = -1", "-1 permits"},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			d := open(t, path, Options{})
			furnish(t, d)
			d.Close()
			alter(t, path, tt.change)
			changeRows(path, Options{}, nil) // the sums
			d = open(t, path, Options{})
			_, err := d.Recover(t.Context(), time.Hour, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false })
			_, listed := d.List(t.Context(), scheduler.Filter{})
			if err = errors.Join(err, listed); !errors.Is(err, scheduler.ErrBroken) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error of a broken store with %q", err, tt.want)
			}
		})
	}
}
