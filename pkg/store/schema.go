package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// errForeign refuses an SQLite file that no store has made.
var errForeign = errors.New("is no store of this program; name another file")

// newSteps returns the migrations. Their texts are run as they are: the library's parser of texts
// takes buffers of 4 MiB.
func newSteps(db *sql.DB) (*goose.Provider, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var steps []*goose.Migration
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "\n-- +goose Down")
		steps = append(steps, goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, up)
			return err
		}}, nil))
	}
	return goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithGoMigrations(steps...))
}

// migrate brings the file to this program's schema.
func migrate(db *sql.DB) error {
	steps, err := newSteps(db)
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

// refuseForeign refuses an SQLite file that has another schema than a store, before anything
// is changed in it. An empty file becomes a store.
func refuseForeign(path string, o Options) error {
	db, err := sql.Open("sqlite", dsn(path, o.vfs, "mode=ro"))
	if err != nil {
		return err
	}
	defer db.Close()
	empty := false
	if err := db.QueryRow("SELECT count(*) = 0 FROM sqlite_schema").Scan(&empty); err != nil || empty {
		return err
	}
	return checkSchema(db)
}

// newer refuses a file that a newer program has written.
func newer(schema, known int64) error {
	if schema > known {
		return fmt.Errorf("has schema %d, this program knows %d; run the newer program", schema, known)
	}
	return nil
}

// An object is a row of sqlite_schema.
type object struct{ kind, name, table, sql string }

// objects returns the schema of a file, by kind and name, without the objects that SQLite makes for
// itself. Its texts have no comments, and single spaces.
func objects(db *sql.DB) (map[string]object, error) {
	rows, err := db.Query("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make(map[string]object)
	for rows.Next() {
		var o object
		if err := rows.Scan(&o.kind, &o.name, &o.table, &o.sql); err != nil {
			return nil, err
		}
		o.sql = strings.Join(strings.Fields(comment.ReplaceAllString(o.sql, " ")), " ")
		own := o.kind == "index" && o.sql == "" || o.kind == "table" && (o.name == "sqlite_sequence" || o.name == "sqlite_stat1" || o.name == "sqlite_stat4")
		if !own {
			all[fmt.Sprintf("%s %.100q", o.kind, o.name)] = o
		}
	}
	return all, rows.Err()
}

var comment = regexp.MustCompile(`--[^\n]*`)

// ourObjects returns the schema of a version, as the migrations make it.
func ourObjects(version int64) (map[string]object, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	steps, err := newSteps(db)
	if err != nil {
		return nil, err
	}
	if _, err := steps.UpTo(context.Background(), version); err != nil {
		return nil, err
	}
	return objects(db)
}

// versions is the table of the library that applies the migrations.
const versions = `table "goose_db_version"`

// checkSchema refuses a file that this program cannot read, or whose schema is not that of a
// store: a view or a trigger of another program would run with each change.
func checkSchema(db *sql.DB) error {
	have, err := objects(db)
	if err != nil {
		return err
	}
	if v := have[versions]; have[`table "calls"`].kind == "" || !strings.HasPrefix(v.sql, "CREATE TABLE ") {
		return errForeign
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	known, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return err
	}
	var schema int64
	if err := db.QueryRow("SELECT coalesce(max(version_id), 0) FROM goose_db_version").Scan(&schema); err != nil {
		return err
	}
	if err := newer(schema, known); err != nil {
		return err
	}
	want, err := ourObjects(schema)
	if err != nil {
		return err
	}
	delete(have, versions)
	delete(want, versions)
	for _, name := range slices.Sorted(maps.Keys(have)) {
		switch o, ours := have[name], want[name]; {
		case ours.kind == "":
			return fmt.Errorf("has a %s, which no store of this program has: another program has added it; drop it, or name another file", name)
		case o != ours:
			return fmt.Errorf("has a %s that is not that of this program: another program has changed it; %s", name, repairHint)
		}
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(want))) { // tables before their indexes
		if have[name].kind == "" {
			return fmt.Errorf("lacks the %s: another program has dropped it; %s", name, repairHint)
		}
	}
	return nil
}
