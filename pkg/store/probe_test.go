package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestProbe: Probe and Open give the same error, and Probe makes and changes nothing.
func TestProbe(t *testing.T) {
	key := []byte(strings.Repeat("k", 32))
	dir := t.TempDir()
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	closed := func(path string, o Options) {
		t.Helper()
		d, err := Open(path, o)
		must(err)
		must(d.Close())
	}
	for _, name := range []string{"copied", "plain", "sealed"} {
		must(os.Mkdir(in(name), 0o700))
	}
	must(os.WriteFile(in("text.db"), []byte(strings.Repeat("no database ", 100)), 0o600))
	must(os.WriteFile(in("empty.db"), nil, 0o600))
	closed(in("plain", "s.db"), Options{})
	closed(in("sealed", "s.db"), Options{SealKey: key})
	f, err := Read(in("plain", "s.db"), Options{})
	must(err)
	must(f.Backup(t.Context(), in("copied", "s.db")))
	must(f.Close())
	must(os.Remove(in("plain", "s.db-wal"))) // of the reader
	must(os.Remove(in("plain", "s.db-shm")))
	must(os.WriteFile(in("gone.db-lock"), []byte("throttler store SOME at 00000000000000000001 00000000000000000001\n"), 0o600))
	must(os.Symlink(in("plain"), in("link")))

	for _, tt := range []struct {
		name, path string
		options    Options
		want       string // "" if Open takes it
	}{
		{"new", in("new.db"), Options{}, ""},
		{"empty", in("empty.db"), Options{}, ""},
		{"a store", in("plain", "s.db"), Options{}, ""},
		{"a store behind a link", in("link", "s.db"), Options{}, ""},
		{"a sealed store", in("sealed", "s.db"), Options{SealKey: key}, ""},
		{"no directory", in("none", "s.db"), Options{}, "there is no directory " + in("none") + "; make it with: mkdir -m 700 -p " + in("none")},
		{"a directory", in("plain"), Options{}, "is a directory; name a file in it, such as " + in("plain", "throttler.db")},
		{"no directory in a file", in("text.db", "s.db"), Options{}, "not a directory"},
		{"a directory without files of ours", "/proc/s.db", Options{}, "no file can be made in /proc: "},
		{"a text", in("text.db"), Options{}, "is no SQLite file, or its head is damaged"},
		{"sealed with another key", in("sealed", "s.db"), Options{SealKey: []byte(strings.Repeat("o", 32))}, "was sealed with another key; give that one"},
		{"sealed, without a key", in("sealed", "s.db"), Options{}, "holds sealed calls; give the key"},
		{"a copy", in("copied", "s.db"), Options{}, "is a backup"},
		{"gone", in("gone.db"), Options{}, "is not the store that was here before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tree(t, dir)
			err := Probe(tt.path, tt.options)
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Errorf("Probe changed files:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
			d, opened := Open(tt.path, tt.options)
			if opened == nil {
				d.Close()
			}
			for name, err := range map[string]error{"Probe": err, "Open": opened} {
				if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), "store: "+tt.path+": ") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %q", name, err, tt.want)
				}
			}
		})
	}

	// The file of a process is no fault: check comes before a reload.
	used := filepath.Join(t.TempDir(), "s.db")
	open, err := Open(used, Options{})
	must(err)
	defer open.Close()
	if err := Probe(used, Options{}); err != nil {
		t.Errorf("in use: %v", err)
	}
}

// TestFileOfAnotherUser: the error of a file that may not be opened has the next step. It is
// made here, since a test may run as root, which may open all files.
func TestFileOfAnotherUser(t *testing.T) {
	err := explain(&fs.PathError{Op: "open", Path: "s.db-lock", Err: syscall.EACCES})
	if want := "open s.db-lock: permission denied; run this as the user of the sidecar, or give that user the file"; err.Error() != want || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := explain(unwritable("/d", &fs.PathError{Op: "open", Path: "/d/s.db-lock", Err: syscall.EACCES})); strings.Count(err.Error(), ";") != 1 {
		t.Errorf("two next steps: %v", err)
	}
}

// tree lists the files below a directory, with their modes and instants of change.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			files = append(files, path+" "+info.Mode().String()+" "+info.ModTime().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
