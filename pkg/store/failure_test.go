package store

import (
	"errors"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestFailureIsNotClean: after a reader has met damage, the file does not count as
// closed, so the next Open checks it.
func TestFailureIsNotClean(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	d.check(t.Context(), columns.ErrChecksum)
	if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("a new call: %v, want ErrBroken", err)
	}
	d.Close()
	wantUnclean(t, path)
}

// TestFailureDuringACommit: a change that is committed while a reader meets damage is told as
// committed: a call in the file goes at the next start. The changes behind it are refused.
func TestFailureDuringACommit(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	meets := &change{apply: func(c *conn) (refused, err error) {
		d.check(t.Context(), columns.ErrChecksum)
		return nil, c.set("met", "1")
	}}
	if err := d.writer.do(t.Context(), meets); err != nil {
		t.Errorf("a change that is committed: %v", err)
	}
	if _, err := d.Accept(t.Context(), storetest.NewEntry(1)); !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("the next change: %v, want ErrBroken", err)
	}
	d.Close()
	f := wantUnclean(t, path)
	var met string
	if err := f.db.QueryRow("SELECT value FROM meta WHERE name = 'met'").Scan(&met); err != nil || met != "1" {
		t.Errorf("the file has %q, %v", met, err)
	}
}

// wantUnclean opens a file to read that must not count as closed.
func wantUnclean(t *testing.T, path string) *File {
	t.Helper()
	f, err := Read(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	clean := true
	if err := f.db.QueryRow("SELECT value FROM meta WHERE name = 'clean'").Scan(&clean); err != nil || clean {
		t.Errorf("clean: %v, %v", clean, err)
	}
	return f
}
