package store

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var quiet = slog.New(slog.DiscardHandler)

// sameFile lets a copy of a file pass for the file itself: most tests make copies as the
// image of a crash.
const sameFile = "1 1"

// open opens a file, and closes it after the test.
func open(t testing.TB, path string, o Options) *DB {
	t.Helper()
	o.Log, o.fileID = quiet, sameFile
	if o.boot == nil {
		o.boot = steadyBoot
	}
	d, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openTest opens a file that is not synced: a crash of the process alone keeps its writes.
// The test closes it.
func openTest(t testing.TB, path string) *DB {
	t.Helper()
	d, err := Open(path, Options{Log: quiet, boot: steadyBoot, fileID: sameFile, raw: "_pragma=synchronous(OFF)", reserve: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// steadyBoot is the clock of a machine that runs all the time, also in a bubble.
func steadyBoot() columns.Boot {
	return columns.Boot{ID: "test", Since: time.Since(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))}
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "throttler.db") }

// scratch returns a directory, in memory if possible: a crash of the process alone
// keeps its writes, synced or not.
func scratch(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "throttler-sim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestNothingIsLeftOpen: after Close no process has the file open.
func TestNothingIsLeftOpen(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.List(t.Context(), scheduler.Filter{Max: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if want := []string{path, path + "-lock", path + "-reserve"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left behind: %v, %v; want %v", left, err, want)
	}
	for _, name := range left {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
		}
	}
}

// TestOneProcess: a second process is refused under every name of the file, with a
// next step.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	link := func(name, to string) string {
		name = filepath.Join(dir, name)
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	byDir := filepath.Join(link("dir", "data"), "throttler.db")
	open(t, byDir, Options{}) // makes it
	path := filepath.Join(dir, "data", "throttler.db")
	for _, name := range []string{path, byDir, link("file.db", path)} {
		if _, err := Open(name, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a second Open, of %s: %v", name, err)
		}
	}
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{"clear": {}, "sealed": {SealKey: key}} {
		if o.SealKey == nil && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) scheduler.Store { return open(t, file(t), o) })
			storetest.RunDurable(t, func(t *testing.T) func() scheduler.Durable {
				path := file(t)
				return func() scheduler.Durable { return open(t, path, o) }
			})
		})
	}
}
