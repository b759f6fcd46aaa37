package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

//go:embed migrations/*.sql
var migrations embed.FS

// oldest is the first server that the store is tested with, as server_version_num.
const oldest = 140000

// check refuses a server that is too old, or that does not keep its commits.
// It returns a warning of one that keeps them with some disks only.
func check(ctx context.Context, db *pgxpool.Pool) (warning string, err error) {
	var version int
	var fsync, pages string
	var standby bool
	bounded, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = db.QueryRow(bounded, "SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery()").Scan(&version, &fsync, &pages, &standby)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return "", errors.New(silent(statementTimeout))
	case err != nil:
		return "", err
	case version < oldest:
		return "", fmt.Errorf("the server is PostgreSQL %d.%d, must be 14 or newer", version/10000, version%10000)
	case standby:
		return "", errors.New("the server is a standby, which takes no changes; name the primary, or several hosts with target_session_attrs=read-write")
	case fsync != "on":
		return "", errors.New("the server runs with fsync = off: a crash of its machine can lose confirmed calls and damage the database; set fsync = on")
	case pages != "on":
		warning = "full_page_writes is off: a crash of the server's machine can damage the database, unless its disk writes whole pages"
	}
	return warning, nil
}

// latest is the version of the schema that this program makes: files are numbered from 1.
func latest() int64 {
	files, _ := fs.Glob(migrations, "migrations/*.sql") // the pattern is valid
	return int64(len(files))
}

// A schema is what the database says of the schema throttler. A program works with that of a newer one, if its migrations
// have left that in meta 'oldest': the version whose programs are the oldest ones that do.
type schema struct {
	version int64 // 0: there is none
	oldest  int64
}

// read reads the versions.
func (s *schema) read(ctx context.Context, db *sql.DB) error {
	err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM throttler.goose_db_version WHERE is_applied").Scan(&s.version)
	if err == nil && s.version > 0 {
		err = db.QueryRowContext(ctx, "SELECT coalesce(max(convert_from(value, 'UTF8')::bigint), 1) FROM throttler.meta WHERE name = 'oldest'").Scan(&s.oldest)
	}
	if c := code(err); c == noSchema || c == noTable {
		*s, err = schema{}, nil
	}
	return err
}

// usable refuses a schema that no program of this version works with.
func (s *schema) usable() error {
	if s.oldest > latest() {
		return fmt.Errorf("the schema has version %d, which programs of version %d and newer can use, and this one has version %d; run the newer program", s.version, s.oldest, latest())
	}
	return nil
}

// migrate brings the schema to the one of this program, or leaves one of a newer program with which this one works. One
// replica does so at a time.
func migrate(ctx context.Context, config *pgx.ConnConfig) error {
	db := stdlib.OpenDB(*config)
	defer db.Close()
	var found schema
	if err := found.read(ctx, db); err != nil {
		return err
	}
	if err := found.usable(); err != nil || found.version >= latest() { // without the lock, for which others may wait
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS throttler"); err != nil {
		var there bool
		if db.QueryRowContext(ctx, "SELECT to_regnamespace('throttler') IS NOT NULL").Scan(&there) != nil || !there {
			return err
		}
	}
	if err := refuseForeign(ctx, db); err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // try each second, for a minute
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	steps, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker), goose.WithTableName("throttler.goose_db_version"))
	if err != nil {
		return err
	}
	if now, known, err := steps.GetVersions(ctx); err != nil {
		return err
	} else if now < known {
		_, err = steps.Up(ctx)
		return err
	}
	if err := found.read(ctx, db); err != nil { // another program has been faster
		return err
	}
	return found.usable()
}

// refuseForeign refuses a schema throttler that another program has made.
func refuseForeign(ctx context.Context, db *sql.DB) error {
	var tables int
	var ours bool
	err := db.QueryRowContext(ctx, `SELECT count(*), coalesce(bool_or(relname = 'goose_db_version'), false) FROM pg_class
		WHERE relnamespace = 'throttler'::regnamespace AND relkind IN ('r', 'p', 'v')`).Scan(&tables, &ours)
	if err == nil && tables > 0 && !ours {
		err = errors.New("has a schema throttler that this program has not made; name another database")
	}
	return err
}

// bind lets the codec work with the store: it fails if that was sealed with another key, and
// seals a new one.
func bind(ctx context.Context, db *pgxpool.Pool, c *columns.Codec) error {
	var proof []byte
	err := db.QueryRow(ctx, "SELECT value FROM meta WHERE name = 'seal'").Scan(&proof)
	switch {
	case err == nil && !c.HasKey():
		return errors.New("holds sealed calls; give the key with which they were sealed (seal_key, Options.SealKey)")
	case err == nil && !c.Proves(proof, columns.BoundKind):
		return errors.New("was sealed with another key; give that one (seal_key, Options.SealKey)")
	case err == nil:
		c.Bind()
		return nil
	case !errors.Is(err, pgx.ErrNoRows), !c.HasKey():
		return orNoRows(err)
	}
	c.Bind()
	if proof, err = c.Proof(); err != nil {
		return err
	}
	// The insert takes effect only in a store without a term: no row was written in the clear.
	done, err := db.Exec(ctx, "INSERT INTO meta SELECT 'seal', $1 FROM fence WHERE epoch = 0 ON CONFLICT DO NOTHING", proof)
	if err == nil && done.RowsAffected() == 0 {
		err = errors.New("was begun without a seal_key, or is being sealed by another replica; seal an empty database, or leave seal_key out")
	}
	return err
}

// orNoRows returns nil for the error that there is no row.
func orNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
