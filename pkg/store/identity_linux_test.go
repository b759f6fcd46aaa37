package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestWritable: a directory is asked for as the user of the thread, which is not the superuser here.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // its parents may be closed to that user
	for mode, want := range map[os.FileMode]bool{0o777: true, 0o555: false, 0o666: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine, and no other has its user
			if os.Geteuid() == 0 {
				const nobody = 65534
				syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
			}
			got <- writable(".")
		}()
		if err := <-got; (err == nil) != want {
			t.Errorf("%v: %v, want writable: %v", mode, err, want)
		}
	}
}

// TestRefusedFileIsClosed: a file that is refused stays open in this process only where it
// was open before.
func TestRefusedFileIsClosed(t *testing.T) {
	path, err := resolved(file(t))
	if err != nil {
		t.Fatal(err)
	}
	open(t, path, Options{})
	if err := os.Remove(path + "-lock"); err != nil { // the file itself is locked still
		t.Fatal(err)
	}
	before := opened(t, path)
	refused := func(why string) {
		t.Helper()
		if d, err := Open(path, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), why) {
			d.Close()
			t.Fatalf("%v, want an error with %q", err, why)
		}
		if now := opened(t, path); now != before {
			t.Errorf("%s: the file is open %d times, it was open %d times before", why, now, before)
		}
	}
	refused("is in use")
	if err := os.Link(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	refused("has 2 hard links")
}

// TestSyncedDirectoryIsClosed: a directory is open only as long as it is synced, and one that
// there is not is an error.
func TestSyncedDirectoryIsClosed(t *testing.T) {
	path, err := resolved(file(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syncDir(path); err != nil {
		t.Error(err)
	}
	if n := opened(t, filepath.Dir(path)); n != 0 {
		t.Errorf("the directory is open %d times", n)
	}
	if err := syncDir(filepath.Join(path, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that there is not: %v", err)
	}
}

// opened returns how often a file is open in this process.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if name, err := os.Readlink(fd); err == nil && name == path {
			n++
		}
	}
	return n
}

// TestFileID: a file has the same id under each of its names, and another than any copy. Its
// time of birth is that of its first change, where the file system knows it.
func TestFileID(t *testing.T) {
	births := 0
	for _, dir := range []string{t.TempDir(), scratch(t)} {
		path := filepath.Join(dir, "a")
		create := func(name string) (*os.File, os.FileInfo) {
			t.Helper()
			f, err := os.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			return f, info
		}
		f, info := create(path)
		if err := os.Link(path, path+".link"); err != nil {
			t.Fatal(err)
		}
		if again, same := create(path + ".link"); fileID(again, same) != fileID(f, info) || links(same) != 2 {
			t.Errorf("%s has the id %q, and under another name %q, with %d links", path, fileID(f, info), fileID(again, same), links(same))
		}
		if _, other := create(path + ".copy"); inode(other) == inode(info) || links(other) != 1 {
			t.Errorf("two files have the inode %d, the second has %d links", inode(info), links(other))
		}
		if at := born(f); at != 0 {
			births++
			if at != info.ModTime().UnixNano() {
				t.Errorf("%s was made at %d, and changed first at %d", path, at, info.ModTime().UnixNano())
			}
		}
	}
	if births == 0 {
		t.Error("no file system here knows when a file was made")
	}
}
