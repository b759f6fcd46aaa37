package store

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// mend is what can be done about a damaged file.
const mend = "restore it from a copy, or see what can be saved with sqlite3 .recover"

// errForeign is said of an SQLite file that no store has made.
var errForeign = errors.New("is no store of this program; name another file")

// explain says of an error of SQLite what it means for the file, and what to do.
func explain(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("is no SQLite file, or its head is damaged: %w; name another file, or, if it was a store, restore it from a copy", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("is damaged: %w; %s", err, mend)
	}
	return err
}

// newer refuses a file that a newer program has written.
func newer(schema, known int64) error {
	if schema > known {
		return fmt.Errorf("has schema %d, this program knows %d; run the newer program", schema, known)
	}
	return nil
}

// knowSchema makes sure that this program can read the file.
func knowSchema(db *sql.DB) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	known, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return err
	}
	tables, schema := 0, int64(0)
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name IN ('calls', 'goose_db_version')").Scan(&tables); err != nil {
		return err
	}
	if tables != 2 {
		return errForeign
	}
	if err := db.QueryRow("SELECT max(version_id) FROM goose_db_version").Scan(&schema); err != nil {
		return err
	}
	return newer(schema, known)
}
