package store

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errInUse refuses a file that another process has.
var errInUse = errors.New("is in use by another process; stop that one, or give this one a file of its own")

// openOwn opens a file of the store, a new one if there is none, that only its owner can
// read. It follows no link: a user who may write in the directory could have made one to
// another file.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|noFollow, 0o600)
	if _, missing := os.Lstat(path); err != nil && errors.Is(missing, fs.ErrNotExist) {
		return nil, unwritable(filepath.Dir(path), err)
	} else if err != nil {
		return nil, err
	}
	if err := checkOwn(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkOwn refuses what is no file, or has another name.
func checkOwn(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file; remove it, or name another store", filepath.Base(f.Name()))
	case links(info) > 1:
		return fmt.Errorf("%s has %d hard links: under another name its log and lock would be others; remove the other names", filepath.Base(f.Name()), links(info))
	}
	return nil
}

// An identity is the file behind a name. It stays locked while it is held, so that no
// other name of it lets a second process in, and tells when the name leads elsewhere.
type identity struct {
	file *os.File
	info os.FileInfo
	id   string      // by which a store knows its file: inode and time of birth
	log  os.FileInfo // of the write-ahead log, nil until it was seen
}

// identify opens and locks the file of a store. An id that is not empty is that of a test.
func identify(path, id string) (*identity, error) {
	if isMountPoint("/proc/self/mountinfo", path) {
		return nil, errors.New("is mounted by itself: its log and its lock lie elsewhere, and are lost with the container; mount its directory")
	}
	f, err := openOwn(path)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	info, err := f.Stat()
	return &identity{file: f, info: info, id: cmp.Or(id, fileID(f, info))}, err
}

func fileID(f *os.File, info os.FileInfo) string {
	return fmt.Sprint(inode(info), " ", born(f))
}

// isMountPoint reports whether a path is in the file that lists the mounts, if there is one:
// proc(5).
func isMountPoint(list, path string) bool {
	mounts, err := os.Open(list)
	if err != nil {
		return false
	}
	defer mounts.Close()
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == escaped {
			return true
		}
	}
	return false
}

// check fails if the name of the file, or of its log, leads to another file, or to none:
// a change would be stored where the next process does not find it.
func (i *identity) check() error {
	info, err := os.Lstat(i.file.Name())
	if err != nil || !os.SameFile(info, i.info) {
		return errors.New("was deleted, or replaced by another file, while it was open; nothing is stored any more: put it back before the next start")
	}
	log, err := os.Lstat(i.file.Name() + "-wal")
	switch {
	case i.log == nil && err == nil:
		i.log = log
	case i.log != nil && (err != nil || !os.SameFile(log, i.log)):
		return errors.New("has lost its log (-wal), which was deleted, or replaced by another file, while it was open; nothing is stored any more: restore it from a copy")
	}
	return nil
}
