package postgres

import (
	"context"
	"fmt"
	"slices"
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
	Standbys  int           // that are synchronous, and are connected; -1: the role cannot see them
	Owner     string        // name of the replica that has the calls; empty for none
	Replicas  []Replica     // that were heard of within a lease, the owner first
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
	if err := i.standbys(ctx, db); err != nil {
		return err
	}
	if err := i.rights(ctx, db, config); err != nil {
		return err
	}
	if i.Schema > 0 {
		if err := i.fleet(ctx, db, o); err != nil {
			return err
		}
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

// standbys counts the synchronous ones. Without pg_read_all_stats the server does not say of one whether it is.
func (i *Inspection) standbys(ctx context.Context, db *pgxpool.Pool) error {
	var names, role string
	var sees bool
	err := db.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), quote_ident(current_user),
		pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`).
		Scan(&i.Server, &names, &role, &sees, &i.Standbys)
	switch {
	case err != nil:
		return err
	case names == "":
		i.Warnings = append(i.Warnings, "there is no synchronous standby: what the server has confirmed is lost with its disk (synchronous_standby_names)")
	case !sees:
		i.Standbys = -1
		i.Warnings = append(i.Warnings, "the role cannot see whether a standby is connected; GRANT pg_read_all_stats TO "+role)
	case i.Standbys == 0:
		i.Warnings = append(i.Warnings, "no synchronous standby is connected: commits wait until one is")
	}
	return nil
}

// rights reads the version of the schema. It refuses one with which this program does not work, and a role without the
// rights to make it, or to bring it up to date; where there is nothing to make, one without the rights on its tables.
func (i *Inspection) rights(ctx context.Context, db *pgxpool.Pool, config *pgx.ConnConfig) error {
	i.Latest = latest()
	var role string
	var there, mayMake, mayUse, mayChange bool
	err := db.QueryRow(ctx, `SELECT quote_ident(current_user), n.oid IS NOT NULL, has_database_privilege(current_database(), 'CREATE'),
		coalesce(has_schema_privilege(n.oid, 'USAGE'), false), coalesce(has_schema_privilege(n.oid, 'CREATE'), false)
		FROM (SELECT to_regnamespace('throttler')::oid AS oid) n`).Scan(&role, &there, &mayMake, &mayUse, &mayChange)
	switch {
	case err != nil:
		return err
	case !there && !mayMake:
		return fmt.Errorf("the role may not make the schema throttler; GRANT CREATE ON DATABASE %s TO %s, or let another role run throttler store migrate", pgx.Identifier{config.Database}.Sanitize(), role)
	case !there:
		return nil
	case !mayUse:
		return fmt.Errorf("the role may not use the schema throttler; GRANT USAGE ON SCHEMA throttler TO %s, and %s", role, grantTables(role))
	}
	sessions := stdlib.OpenDB(*config)
	defer sessions.Close()
	if err := refuseForeign(ctx, sessions); err != nil {
		return err
	}
	var found schema
	switch err := found.read(ctx, sessions); {
	case code(err) == noPrivilege:
		return fmt.Errorf("the role may not read the versions of the schema throttler; %s", grantTables(role))
	case err != nil:
		return err
	}
	i.Schema = found.version
	if found.version < i.Latest && !mayChange {
		return fmt.Errorf("the role may not change the schema throttler from version %d to %d; let the role that owns it run throttler store migrate", i.Schema, i.Latest)
	}
	if err := found.usable(); err != nil || found.version < i.Latest {
		return err
	}
	var table *string // without a right
	err = db.QueryRow(ctx, `SELECT min(relname) FROM pg_class WHERE relnamespace = 'throttler'::regnamespace AND (relkind IN ('r', 'p', 'v') AND NOT has_table_privilege(oid, 'SELECT')
		OR relkind IN ('r', 'p') AND relname <> 'goose_db_version' AND NOT (has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')))`).Scan(&table)
	if err == nil && table != nil {
		err = fmt.Errorf("the role may not read and change throttler.%s; %s", *table, grantTables(role))
	}
	return err
}

// grantTables is the statement by which a role gets the rights on the tables.
func grantTables(role string) string {
	return "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA throttler TO " + role
}

// fleet reads the replicas that live, and which of them has the calls.
func (i *Inspection) fleet(ctx context.Context, db *pgxpool.Pool, o Options) error {
	var s sight
	b := &pgx.Batch{}
	b.Queue(selectLease).QueryRow(s.row.scan)
	b.Queue(selectReplicas).Query(s.scan)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	s.Owner, i.Owner = s.row.owner, ""
	if s.Owner != "" {
		i.Owner = s.row.name
	}
	for _, r := range s.Replicas {
		switch {
		case r.Silence > max(s.row.lease, o.Lease):
		case r.ID == s.Owner:
			i.Replicas = slices.Insert(i.Replicas, 0, r)
		default:
			i.Replicas = append(i.Replicas, r)
		}
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
