package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// An Inspection is what a server says of itself, as far as a fleet depends on it.
type Inspection struct {
	Server    string        // its version, such as 15.4
	Schema    int64         // version of the schema; 0: Open will make it
	Latest    int64         // version that this program makes
	RoundTrip time.Duration // of a query, the least of some
	Offset    time.Duration // of the server's wall clock from this one; nothing depends on it
	Standbys  int           // that are synchronous, and are connected
	Warnings  []string      // faults with which it can be used
}

// Inspect connects to a server, and changes nothing. It fails if [Join] would, as far as that shows.
func Inspect(ctx context.Context, url string, o Options) (*Inspection, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config, err := parse(url, o)
	if err != nil {
		return nil, err
	}
	where := place(config.ConnConfig)
	db, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %s: %w", where, err)
	}
	defer db.Close()
	i := &Inspection{}
	if err := i.run(ctx, db, config.ConnConfig, o); err != nil {
		return nil, fmt.Errorf("postgres: %s: %w", where, explain(err))
	}
	return i, nil
}

func (i *Inspection) run(ctx context.Context, db *pgxpool.Pool, config *pgx.ConnConfig, o Options) error {
	warning, err := check(ctx, db)
	if err != nil {
		return err
	}
	if warning != "" {
		i.Warnings = append(i.Warnings, warning)
	}
	var names, schema string
	var may bool
	err = db.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')), coalesce(to_regnamespace('throttler')::text, ''),
		CASE WHEN to_regnamespace('throttler') IS NULL THEN has_database_privilege(current_database(), 'CREATE') ELSE has_schema_privilege('throttler', 'CREATE, USAGE') END`).
		Scan(&i.Server, &names, &i.Standbys, &schema, &may)
	switch {
	case err != nil:
		return err
	case !may && schema == "":
		return errors.New("the role may not make the schema throttler; GRANT CREATE ON DATABASE … TO …")
	case !may:
		return errors.New("the role may not change the schema throttler; let the role that owns it connect")
	}
	switch {
	case names == "":
		i.Warnings = append(i.Warnings, "there is no synchronous standby: what the server has confirmed is lost with its disk (synchronous_standby_names)")
	case i.Standbys == 0:
		i.Warnings = append(i.Warnings, "no synchronous standby is connected: commits wait until one is")
	}
	if err := i.versions(ctx, config); err != nil {
		return err
	}
	for range 5 {
		var at time.Time
		began := time.Now()
		if err := db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
			return err
		}
		if took := time.Since(began); i.RoundTrip == 0 || took < i.RoundTrip {
			i.RoundTrip, i.Offset = took, at.Sub(began.Add(took/2))
		}
	}
	if i.RoundTrip > o.Lease/beats/2 {
		i.Warnings = append(i.Warnings, fmt.Sprintf("a query takes %v, and the lease is %v: give a longer one (fleet.lease)", i.RoundTrip.Round(time.Millisecond), o.Lease))
	}
	return nil
}

// versions reads the version of the schema, and refuses one of a newer program or of another one.
func (i *Inspection) versions(ctx context.Context, config *pgx.ConnConfig) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	i.Latest = int64(len(files))
	db := stdlib.OpenDB(*config)
	defer db.Close()
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regnamespace('throttler') IS NOT NULL").Scan(&there); err != nil || !there {
		return err
	}
	if err := refuseForeign(ctx, db); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM throttler.goose_db_version WHERE is_applied").Scan(&i.Schema); err != nil && !strings.Contains(err.Error(), "does not exist") {
		return err
	}
	if i.Schema > i.Latest {
		return fmt.Errorf("the schema has version %d, this program knows %d; run the newer program", i.Schema, i.Latest)
	}
	return nil
}

// Migrate brings the schema to the one of this program, as [Join] does.
func Migrate(ctx context.Context, url string, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	config, err := parse(url, o)
	if err != nil {
		return err
	}
	if err := migrate(ctx, config.ConnConfig); err != nil {
		return fmt.Errorf("postgres: %s: %w", place(config.ConnConfig), explain(err))
	}
	return nil
}
