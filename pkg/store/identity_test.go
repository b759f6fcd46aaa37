package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestSecondWay: a store that is open, or that has another name, is refused by every path
// that leads to it.
func TestSecondWay(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(path string) (string, error)
		want  string
	}{
		{"the same path", func(path string) (string, error) { return path, nil }, "in use by another process"},
		{"a symbolic link", func(path string) (string, error) { return path + ".2", os.Symlink(path, path+".2") }, "in use by another process"},
		{"without the lock beside it", func(path string) (string, error) { return path, os.Remove(path + "-lock") }, "in use by another process"},
		{"a hard link", func(path string) (string, error) { return path + ".2", os.Link(path, path+".2") }, "has 2 hard links"},
		{"a hard link in another directory", func(path string) (string, error) {
			other := filepath.Join(filepath.Dir(path), "b")
			return filepath.Join(other, "throttler.db"), errors.Join(os.Mkdir(other, 0o700), os.Link(path, filepath.Join(other, "throttler.db")))
		}, "has 2 hard links"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t)
			d := open(t, path, Options{})
			other, err := tt.other(path)
			if err != nil {
				t.Fatal(err)
			}
			if second, err := Open(other, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), tt.want) {
				second.Close()
				t.Errorf("a second process: %v, want %q", err, tt.want)
			}
			if _, err := d.Recover(t.Context(), 0, nil); err != nil { // the first one is not harmed
				t.Error(err)
			}
		})
	}
}

// TestMountPoint reads a list of mounts as Linux has it, and a line that is cut short.
func TestMountPoint(t *testing.T) {
	const mounts = `21 1 8:1 /
22 1 8:1 / / rw,relatime - ext4 /dev/root rw
97 22 8:1 /srv/throttler.db /app/throttler.db rw,relatime - ext4 /dev/root rw
98 22 8:1 /srv/a\040b.db /app/a\040b.db rw,relatime - ext4 /dev/root rw
99 22 8:1 /srv/data /data rw,relatime - ext4 /dev/root rw
`
	list := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(list, []byte(mounts), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/app/throttler.db": true, "/app/a b.db": true, "/data/throttler.db": false, "/app/throttler.db-lock": false} {
		if got := isMountPoint(list, path); got != want {
			t.Errorf("%s is a mount point: %v", path, got)
		}
		if isMountPoint(list+".2", path) {
			t.Errorf("%s is a mount point of a system that has no such list", path)
		}
	}
}

// harms are what may happen to the files of a store while it is open, with the error that
// tells each.
var harms = []struct {
	name string
	harm func(path string) error
	want string
}{
	{"deleted", os.Remove, "was deleted, or replaced"},
	{"replaced by a copy", replace, "was deleted, or replaced"},
	{"the log is deleted", func(path string) error { return os.Remove(path + "-wal") }, "lost its log"},
	{"the log is replaced", func(path string) error { return replace(path + "-wal") }, "lost its log"},
	{"a directory above it is moved", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"2") }, "was deleted, or replaced"},
}

// replace puts a copy of a file in its place.
func replace(name string) error {
	text, err := os.ReadFile(name)
	return errors.Join(err, os.WriteFile(name+".new", text, 0o600), os.Rename(name+".new", name))
}

// TestFileIsGone: a store whose file, or log, was deleted or replaced acknowledges nothing
// more.
func TestFileIsGone(t *testing.T) {
	for _, tt := range harms {
		t.Run(tt.name, func(t *testing.T) {
			intendWithout(t, harmed(t, tt.harm), tt.want)
		})
	}
}

// TestFileIsGoneWhileIdle: a store that is idle tells by itself that its file, or log, was
// deleted or replaced.
func TestFileIsGoneWhileIdle(t *testing.T) {
	for _, tt := range harms {
		t.Run(tt.name, func(t *testing.T) {
			d := harmed(t, tt.harm)
			select {
			case <-d.failure.ended:
			case <-time.After(time.Minute):
			}
			intendWithout(t, d, tt.want)
		})
	}
}

// harmed opens a store in a directory of its own, and harms its files.
func harmed(t *testing.T, harm func(path string) error) *DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d", "throttler.db")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := harm(path); err != nil {
		t.Fatal(err)
	}
	return d
}

// intendWithout expects that a store without its file stores nothing, and says why.
func intendWithout(t *testing.T, d *DB, why string) {
	t.Helper()
	err := d.Intend(t.Context(), nil, []lease.Hold{{ID: 1, Upstream: "api", Limit: "app", Permits: 1}})
	if !errors.Is(err, scheduler.ErrBroken) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want an error of a broken store with %q", err, why)
	}
}

// TestFilesBeside: links where the files beside a store belong lead nowhere.
func TestFilesBeside(t *testing.T) {
	for _, beside := range []string{"", "-lock", "-reserve"} {
		for name, link := range map[string]func(old, new string) error{"symbolic": os.Symlink, "hard": os.Link} {
			t.Run(name+beside, func(t *testing.T) {
				path := file(t)
				victim := filepath.Join(t.TempDir(), "victim")
				if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o644), link(victim, path+beside)); err != nil {
					t.Fatal(err)
				}
				d, err := Open(path, Options{Log: quiet, reserve: 4096})
				switch {
				case err == nil:
					d.Close()
				case beside == "-reserve":
					t.Errorf("a reserve that cannot be made: %v", err)
				case strings.Contains(err.Error(), "no file can be made"):
					t.Errorf("the link is not what is refused: %v", err)
				}
				text, err := os.ReadFile(victim)
				info, err2 := os.Stat(victim)
				if err = errors.Join(err, err2); err != nil || string(text) != "precious" || info.Mode().Perm() != 0o644 {
					t.Errorf("the file that the link leads to: %q, %v, %v", text, info, err)
				}
			})
		}
	}
}

// TestForeignFile: a file of another program is refused, and is not changed.
func TestForeignFile(t *testing.T) {
	path := file(t)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE invoices (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	before, _ := os.ReadFile(path)
	if _, err := Open(path, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), "is no store of this program") {
		t.Errorf("a file of another program: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file of another program was changed")
	}
}

// TestIdleSidecarNoticesItsFile: a scheduler that nothing is asked of ends when its file is
// gone.
func TestIdleSidecarNoticesItsFile(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{reserve: 4096})
	u := scheduler.Upstream{}
	u.URL = "http://127.0.0.1:1"
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the calls of the start would meet the failure
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Failed():
	case <-time.After(20 * time.Second):
		t.Error("the scheduler goes on without its file")
	}
	if err := s.Close(); !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("Close: %v, want an error of a broken store", err)
	}
}
