package store

import (
	"errors"
	"fmt"
	"io/fs"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// repairHint is the advice for a damaged file.
const repairHint = "restore it from a copy, or save the rest with sqlite3 .recover"

// explain adds to an error of SQLite, or of the system, its meaning for the file, and the
// next step.
func explain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && errors.Is(at, fs.ErrPermission) {
		return fmt.Errorf("%w; run this as the user of the sidecar, or give that user the file", err)
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("is no SQLite file, or its head is damaged: %w; name another file, or, if it was a store, restore it from a copy", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("is damaged: %w; %s", err, repairHint)
	}
	return err
}

func isFull(err error) bool { return sqliteCode(err) == sqlite3.SQLITE_FULL }

// sqliteCode returns the primary result code of an error of SQLite, 0 of another.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}
