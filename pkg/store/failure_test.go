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
	f, err := Read(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	clean := true
	if err := f.db.QueryRow("SELECT value FROM meta WHERE name = 'clean'").Scan(&clean); err != nil || clean {
		t.Errorf("clean: %v, %v", clean, err)
	}
}
