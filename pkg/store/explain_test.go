package store

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestExplain: the error for a file that cannot be used names the file, the fault
// and the next step, to Open as to Check.
func TestExplain(t *testing.T) {
	change := func(statements string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(statements); err != nil {
				t.Fatal(err)
			}
		}
	}
	overwrite := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		damage       func(t *testing.T, path string)
		serve, check string // part of the error; empty: no error
	}{
		"text":             {overwrite(strings.Repeat("no database ", 100)), "name another file", "name another file"},
		"an empty file":    {overwrite(""), "", "is no store of this program"},
		"a damaged schema": {change("PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'CREATE nothing' WHERE name = 'calls'"), "sqlite3 .recover", "sqlite3 .recover"},
		"a newer schema":   {change("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)"), "has schema 99, this program knows 7; run the newer program", "has schema 99, this program knows 7"},
		"a flight alone":   {change("INSERT INTO flights VALUES (99, 1, 1, 0, 0, '', '', 0)"), "", "attempts in flight without a call: 1"},
		"a changed call":   {change("UPDATE calls SET state = 'done'"), "", "sqlite3 .recover"},
		"nothing wrong":    {func(*testing.T, string) {}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			d := open(t, path, Options{})
			if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); err != nil {
				t.Fatal(err)
			}
			d.Close()
			test.damage(t, path)
			says(t, "check", check(path, Options{}), path, test.check)
			d, err := Open(path, Options{Log: quiet, boot: steadyBoot})
			if err == nil {
				d.Close()
			}
			says(t, "serve", err, path, test.serve)
		})
	}
}

func check(path string, o Options) error {
	f, err := Read(path, o)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Check(context.Background())
	return err
}

func says(t *testing.T, method string, err error, path, want string) {
	t.Helper()
	if want == "" && err == nil {
		return
	}
	if want == "" || err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want the path and %q", method, err, want)
	}
}

// TestCheckEncrypted: a wrong key is not reported as damage.
func TestCheckEncrypted(t *testing.T) {
	path := file(t)
	open(t, path, Options{SealKey: key}).Close()
	for want, k := range map[string][]byte{"": key, "give the key": nil, "sealed with another key": []byte("f123456789abcdef0123456789abcdef")} {
		says(t, "check", check(path, Options{SealKey: k}), path, want)
	}
}
