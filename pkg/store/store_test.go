package store

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var quiet = slog.New(slog.DiscardHandler)

// open opens a file, as tests want it.
func open(t testing.TB, path string, o Options) *DB {
	t.Helper()
	o.Log = quiet
	d, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "throttler.db") }

var key = []byte("0123456789abcdef0123456789abcdef")

// TestNothingIsLeftOpen: a file that is closed is no more in use.
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

// TestOneProcess: a second one is refused, by whatever name it opens the file, with
// what to do.
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
	open(t, byDir, Options{}) // it is made
	path := filepath.Join(dir, "data", "throttler.db")
	for _, name := range []string{path, byDir, link("file.db", path)} {
		if _, err := Open(name, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a second Open, of %s: %v", name, err)
		}
	}
}

// TestBrokenIsNotClean: the next Open checks a file of which a reader saw that it is
// damaged.
func TestBrokenIsNotClean(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	d.check(t.Context(), errSum)
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
	if err := f.d.read.QueryRow("SELECT value FROM meta WHERE name = 'clean'").Scan(&clean); err != nil || clean {
		t.Errorf("clean: %v, %v", clean, err)
	}
}

// TestSeal: what is sealed is not in the file, and opens with its key alone.
func TestSeal(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{SealKey: key})
	e := storetest.NewEntry(1)
	e.Request.Body, e.Request.Target = []byte("visa 4111-1111"), "/4111-1111"
	e.Key, e.Fingerprint = "key 4111-1111", "f"
	if _, err := d.Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	d.Close()
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "4111-1111") {
		t.Errorf("the number is in the file: %v", err)
	}
	for name, wrong := range map[string][]byte{"no key": nil, "another key": []byte("f123456789abcdef0123456789abcdef"), "a short key": key[:16]} {
		if _, err := Open(path, Options{Log: quiet, SealKey: wrong}); err == nil {
			t.Errorf("%s opens it", name)
		}
	}
	again := open(t, path, Options{SealKey: key})
	if got, err := again.Fetch(t.Context(), e.Call.ID); err != nil || string(got.Request.Body) != "visa 4111-1111" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSweep: finished calls, keys and permits go when their time is over, and
// unknown calls never.
func TestSweep(t *testing.T) {
	d := open(t, file(t), Options{KeepCalls: time.Hour})
	s := storetest.NewEntry(1)
	s.Key, s.Fingerprint = "k", "f"
	s.Call.AcceptedAt = time.Now().Add(-5 * time.Hour) // the time of its key begins at its end
	unknown := storetest.NewEntry(2)
	for _, e := range []*scheduler.Entry{s, unknown} {
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent := storetest.Sent(e.Call)
		if err := d.Intend(t.Context(), sent, []scheduler.Hold{{ID: 1 << 40, Upstream: "api", Limit: "app", Permits: 1, Back: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		end := scheduler.Done
		if e == unknown {
			end = scheduler.Unknown
		}
		if err := d.Record(t.Context(), storetest.Ended(sent, end)); err != nil {
			t.Fatal(err)
		}
	}
	count := func(table string) (n int) {
		if err := d.read.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		after                                time.Duration
		calls, results, bodies, keys, quotas int
	}{{59 * time.Minute, 2, 2, 1, 1, 0}, {2 * time.Hour, 1, 1, 1, 0, 0}, {1000 * time.Hour, 1, 1, 1, 0, 0}} {
		if _, err := d.sweepOnce(time.Now().Add(step.after)); err != nil {
			t.Fatal(err)
		}
		got := []int{count("calls"), count("calls WHERE answer IS NOT NULL"), count("calls WHERE body IS NOT NULL"), count("keys"), count("quota")}
		if want := []int{step.calls, step.results, step.bodies, step.keys, step.quotas}; !slices.Equal(got, want) {
			t.Errorf("after %v: calls, results, bodies, keys, quota %v; want %v", step.after, got, want)
		}
	}
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{"clear": {}, "sealed": {SealKey: key}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) scheduler.Store { return open(t, file(t), o) })
			storetest.RunDurable(t, func(t *testing.T) func() scheduler.Durable {
				path := file(t)
				return func() scheduler.Durable { return open(t, path, o) }
			})
		})
	}
}

// first returns the status of the first upstream.
func first(t *testing.T, s *scheduler.Scheduler) scheduler.UpstreamStatus {
	t.Helper()
	all, err := s.Upstreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}
