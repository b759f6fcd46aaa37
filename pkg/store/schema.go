package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// errForeign refuses an SQLite file that no store has made.
var errForeign = errors.New("is no store of this program; name another file")

// migrate brings the file to this program's schema.
func migrate(db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	steps, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	now, latest, err := steps.GetVersions(context.Background())
	if err != nil {
		return err
	}
	if err := newer(now, latest); err != nil {
		return err
	}
	if now == latest {
		return nil
	}
	if _, err = steps.Up(context.Background()); err != nil {
		return err
	}
	// The library tries again after an error. So the tables are written once more and
	// synced before a call is accepted.
	var busy, log, moved int
	return db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved)
}

// refuseForeign refuses an SQLite file that has tables of another program, before anything
// is changed in it.
func refuseForeign(path string, o Options) error {
	db, err := sql.Open("sqlite", dsn(path, o.vfs, "mode=ro"))
	if err != nil {
		return err
	}
	defer db.Close()
	tables, ours := 0, 0
	if err := db.QueryRow("SELECT count(*), coalesce(sum(name = 'goose_db_version'), 0) FROM sqlite_schema WHERE type = 'table'").Scan(&tables, &ours); err != nil {
		return err
	}
	if tables > 0 && ours == 0 {
		return errForeign
	}
	return nil
}

// newer refuses a file that a newer program has written.
func newer(schema, known int64) error {
	if schema > known {
		return fmt.Errorf("has schema %d, this program knows %d; run the newer program", schema, known)
	}
	return nil
}

// checkSchema refuses a file that this program cannot read.
func checkSchema(db *sql.DB) error {
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
