package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestAddressIsWrong: the cause is told, and no part of a password.
func TestAddressIsWrong(t *testing.T) {
	const general = "cannot be read; it is as in postgres://"
	for url, want := range map[string]string{
		"postgres://u:hush@db.invalid/x?sslrootcert=/missing.pem":                "cannot be read: failed to configure TLS (unable to read CA file: open /missing.pem: no such file or directory); it is as in postgres://",
		"postgres://u:hush@db.invalid/x?sslmode=bogus":                           "cannot be read: failed to configure TLS (sslmode is invalid); it",
		"postgres://u@db.invalid:99999/x":                                        "cannot be read: invalid port; it",
		"postgres://u:hush@db.invalid:99999/x":                                   "cannot be read: invalid port; it",
		"postgres://u:hush@db.invalid/x?connect_timeout=never":                   `cannot be read: invalid connect_timeout (strconv.ParseInt: parsing "never": invalid syntax); it`,
		"postgres://u:hush@db.invalid/x?target_session_attrs=all":                "cannot be read: unknown target_session_attrs value: all; it",
		"postgres://u:hush@db.invalid/x?pool_max_conns=many":                     `cannot be read: cannot parse pool_max_conns (strconv.ParseInt: parsing "many": invalid syntax); it`,
		"postgres://u:hu%zzsh@db.invalid/x":                                      general,
		"postgres://u:%00hush@db.invalid/x":                                      "cannot be read: ",
		"postgres://u:hush/more@db.invalid/x":                                    general,
		"postgres://u:12/x?target_session_attrs=hush@db.invalid":                 general,
		"postgres://u:12/x?hush@db.invalid":                                      general,
		"postgres://u:12#hush@db.invalid/x?sslmode=bogus":                        general,
		"postgres://a@u:hush@db.invalid/x":                                       general,
		"postgres://db.invalid/x?password=a&hush":                                general,
		"postgres://db.invalid/x?pass%77ord=a&hush":                              general,
		"postgres://db.invalid/x?sslpassword=hush&sslmode=bogus":                 general,
		"postgres://u:never-hush@db.invalid/x?connect_timeout=never-hush":        general,
		"host=db.invalid password=a hush sslmode=bogus":                          general,
		"host=db.invalid password='hush sslmode=bogus":                           general,
		"postgres://u:hush@db.invalid/x?sslmode=verify-full&sslrootcert=/etc":    "cannot be read: failed to configure TLS (unable to read CA file: read /etc: is a directory); it",
		"postgres://u:hush@[::1/x":                                               general,
		"postgres://u:hush@db.invalid/x?default_query_exec_mode=simple_protocol": "has default_query_exec_mode=simple_protocol, by which parameters are sent without their types; leave it out",
		"postgres://u:hush@db.invalid/x?default_query_exec_mode=exec":            "has default_query_exec_mode=exec, by which",
		"postgres://u:hush@db.invalid/x?default_query_exec_mode=by%20telepathy":  `cannot be read: invalid default_query_exec_mode (unknown value "by telepathy"); it`,
	} {
		_, err := Inspect(t.Context(), url, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v\nwant %q", url, err, want)
		}
	}
}

// TestServerIsNotThere: one sentence has the cause once, and the next step.
func TestServerIsNotThere(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and is silent
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for url, want := range map[string]string{
		fmt.Sprintf("postgres://u@%s/db", mute.Addr()):                   "the server did not answer within 5s; is the address right, and does a firewall drop packets?",
		fmt.Sprintf("postgres://u@%s/db?connect_timeout=1", mute.Addr()): "the server did not answer within 1s; is the address right, and does a firewall drop packets?",
		"postgres://u@absent.invalid/db":                                 "is the server running, and is its address right?",
	} {
		began := time.Now()
		_, err := Inspect(t.Context(), url, Options{})
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), "no such host") > 1 || time.Since(began) > time.Minute {
			t.Errorf("%s: %v\nwant %q", url, err, want)
		}
	}
}

// TestTimeoutsOfTheRole: those of the role, or the database, do not end statements of the store, and one that an operator
// cancels is made again.
func TestTimeoutsOfTheRole(t *testing.T) {
	url := newDatabase(t)
	admin := connect(t, url)
	for _, setting := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		if _, err := admin.Exec(t.Context(), fmt.Sprintf("ALTER ROLE throttler IN DATABASE %s SET %s = '1s'", pgx.Identifier{admin.Config().Database}.Sanitize(), setting)); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, url, Options{Lease: MaxLease})
	recover0(t, d)
	var statement, lock, idle string
	if err := d.db.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_session_timeout')").Scan(&statement, &lock, &idle); err != nil || statement+lock+idle != "000" {
		t.Errorf("the time-outs are %s, %s and %s; %v", statement, lock, idle, err)
	}
	if d.tenure.config.RuntimeParams["statement_timeout"] != "0" {
		t.Error("the tenure has the time-out of the role")
	}
}

// TestStatementIsCancelled: the cancellation of a statement (pg_cancel_backend) does not end the store.
func TestStatementIsCancelled(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: 6 * time.Second})
	recover0(t, d)
	admin, other := connect(t, url), connect(t, url)
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM throttler.lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for cancelled := false; !cancelled; time.Sleep(5 * time.Millisecond) {
		if err := other.QueryRow(t.Context(), "SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UPDATE lease SET beat%' AND wait_event_type = 'Lock'").Scan(&cancelled); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before, beat int64
	for before == 0 || beat == before {
		if d.failure.get() != nil {
			t.Fatalf("the store has ended: %v", d.failure.get())
		}
		if err := other.QueryRow(t.Context(), "SELECT beat FROM throttler.lease").Scan(&beat); err != nil {
			t.Fatal(err)
		}
		before = cmp.Or(before, beat)
		time.Sleep(5 * time.Millisecond)
	}
}

// TestFullDisk: while the server has no room new calls are refused, an outcome waits, and the owner does not end. With room again
// the outcome is stored.
func TestFullDisk(t *testing.T) {
	url := newDatabase(t)
	d := open(t, url, Options{Lease: 3 * time.Second})
	recover0(t, d)
	sent := storetest.Sent(accepted(t, d).Call)
	if err := d.Intend(t.Context(), sent, nil); err != nil {
		t.Fatal(err)
	}
	admin := connect(t, url)
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	tables := []string{"lease", "fence", "calls", "flights", "replicas"}
	exec("CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$")
	for _, table := range tables {
		exec("CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON throttler." + table + " FOR EACH ROW EXECUTE FUNCTION full_disk()")
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Record(t.Context(), storetest.Ended(sent, scheduler.Done)) }()
	for n := 0; n < 5; n++ {
		if _, err := d.Accept(t.Context(), storetest.NewEntry(99)); !errors.Is(err, scheduler.ErrFull) {
			t.Errorf("a call while the disk is full: %v", err)
		}
		time.Sleep(d.tenure.lease / beats) // some beats fail
	}
	select {
	case err := <-ended:
		t.Errorf("the outcome: %v", err)
	case <-d.Failed():
		t.Errorf("the store has ended: %v", d.failure.get())
	default:
	}
	for _, table := range tables {
		exec("DROP TRIGGER full_disk ON throttler." + table)
	}
	if err := <-ended; err != nil {
		t.Errorf("the outcome: %v", err)
	}
	if c, err := d.Get(t.Context(), sent.ID); err != nil || c.State != scheduler.Done {
		t.Errorf("the call: %+v, %v", c, err)
	}
}
