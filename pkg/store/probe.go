package store

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// Probe returns the error with which [Open] would refuse a file or its directory, as far
// as that shows without making or changing a file. A file that another process has is no
// error: that may be the sidecar whose new configuration is checked.
func Probe(path string, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	c, err := columns.NewCodec(o.SealKey)
	if err != nil {
		return err
	}
	file, err := locate(path)
	if err == nil {
		err = probe(file, o, c)
	}
	if err != nil {
		return fmt.Errorf("store: %s: %w", path, explain(err))
	}
	return nil
}

// locate returns the path of a store without symbolic links. It fails if no file can be there.
func locate(path string) (string, error) {
	file, err := resolved(path)
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(path)
		return "", fmt.Errorf("there is no directory %s; make it with: mkdir -m 700 -p %s", dir, dir)
	} else if err != nil {
		return "", err
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return "", fmt.Errorf("is a directory; name a file in it, such as %s", filepath.Join(path, "throttler.db"))
	}
	return file, nil
}

// unwritable words the error of a new file.
func unwritable(dir string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("no file can be made in %s: %w; let the user of this process write there, or name another directory", dir, err)
}

func probe(file string, o Options, c *columns.Codec) error {
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	err = writable(dir)
	if err == nil && info.Mode().Perm()&0o222 == 0 { // such as /proc, also for root
		err = fs.ErrPermission
	}
	if err != nil {
		return unwritable(dir, err)
	}
	id, at := "", position{}
	if lock, err := os.OpenFile(file+"-lock", os.O_RDWR|noFollow, 0); err == nil {
		defer lock.Close()
		if err := checkOwn(lock); err != nil {
			return err
		}
		id, at = note{lock}.read() // before the file, which another process may change
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	own, err := os.OpenFile(file, os.O_RDWR|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return origin{}.refuse("", id, at)
	} else if err != nil {
		return err
	}
	defer own.Close()
	if err := checkOwn(own); err != nil {
		return err
	}
	if info, err = own.Stat(); err != nil {
		return err
	}
	from, err := probeContent(file, o, c)
	if err != nil {
		return err
	}
	return from.refuse(fileID(own, info), id, at)
}

// probeContent refuses a file that is no store, or has another seal, and returns its origin.
func probeContent(file string, o Options, c *columns.Codec) (from origin, err error) {
	more := "&_pragma=query_only(1)"
	if alone(file) {
		more += "&immutable=1" // else SQLite would make a log, with the owner of this process
	}
	db, err := sql.Open("sqlite", dsn(file, o.vfs, "mode=ro"+more))
	if err != nil {
		return from, err
	}
	defer db.Close()
	empty := false
	if err := db.QueryRow("SELECT count(*) = 0 FROM sqlite_schema").Scan(&empty); err != nil || empty {
		return from, err
	}
	if err := checkSchema(db); err != nil {
		return from, err
	}
	if _, _, err := needsSeal(db, c, o.Seal); err != nil {
		return from, err
	}
	if alone(file) {
		return readOrigin(file, o, more)
	}
	return originOf(file, o)
}

// alone reports whether a file has no log: no process has it open, and the last one closed it.
func alone(file string) bool {
	for _, end := range []string{"-wal", "-shm"} {
		if _, err := os.Lstat(file + end); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
