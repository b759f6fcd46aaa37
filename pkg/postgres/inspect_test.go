package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var roleOf = regexp.MustCompile(`//[^@/]*@`)

// TestRights: a role needs the rights that Join needs, and no others: those to make the schema where it is not there, and
// those on its tables after that. An inspection finds the same as Join.
func TestRights(t *testing.T) {
	url := newDatabase(t)
	admin := connect(t, url)
	const role = `"Clerk of rights"`
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if _, err := admin.Exec(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
	}
	exec("CREATE ROLE " + role + " LOGIN")
	database := admin.Config().Database
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	asClerk := roleOf.ReplaceAllString(url, "//Clerk%20of%20rights@")
	step := func(state, want string) {
		t.Helper()
		_, err := Inspect(t.Context(), asClerk, Options{Log: quiet})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", state, err, want)
		}
		if want == "" && state == "it may make the schema" {
			return // Join would
		}
		m, joined := Join(t.Context(), asClerk, Options{Name: "clerk", Lease: short, Log: quiet})
		if joined == nil {
			if d, claimed := m.Claim(t.Context()); claimed == nil {
				recover0(t, d)
				_, joined = d.Accept(t.Context(), storetest.NewEntry(time.Now().UnixNano()%1e9))
				d.Close()
			} else {
				joined = claimed
			}
			m.Leave()
		}
		if (err == nil) != (joined == nil) {
			t.Errorf("%s: Inspect says %v, Join %v", state, err, joined)
		}
	}
	step("it has no right", "the role may not make the schema throttler; GRANT CREATE ON DATABASE \""+database+"\" TO "+role)
	exec("GRANT CREATE ON DATABASE " + database + " TO " + role)
	step("it may make the schema", "")
	exec("REVOKE CREATE ON DATABASE " + database + " FROM " + role)
	if err := Migrate(t.Context(), url, Options{}); err != nil {
		t.Fatal(err)
	}
	step("it may not use the schema", "the role may not use the schema throttler; GRANT USAGE ON SCHEMA throttler TO "+role+", and GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA throttler TO "+role)
	exec("GRANT CREATE ON SCHEMA throttler TO " + role)
	step("it may make tables, and not use the schema", "the role may not use the schema throttler")
	exec("REVOKE CREATE ON SCHEMA throttler FROM "+role, "GRANT USAGE ON SCHEMA throttler TO "+role)
	step("it may not read the versions", "the role may not read the versions of the schema throttler; GRANT SELECT, INSERT")
	exec("GRANT SELECT ON ALL TABLES IN SCHEMA throttler TO " + role)
	step("it may not change the tables", "the role may not read and change throttler.")
	exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA throttler TO "+role, "REVOKE DELETE ON throttler.untold FROM "+role)
	if _, err := Inspect(t.Context(), asClerk, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), "the role may not read and change throttler.untold; GRANT") {
		t.Errorf("a right is missing: %v", err)
	}
	exec("GRANT DELETE ON throttler.untold TO " + role)
	step("it may change the tables", "")
	exec("DELETE FROM throttler.goose_db_version WHERE version_id > 0")
	step("there is a migration to make", fmt.Sprintf("the role may not change the schema throttler from version 0 to %d; let the role that owns it run throttler store migrate", latest()))
}

// TestNewerSchema: a program goes on, and is started again, with the schema of a newer one that keeps it usable. It refuses
// one that does not.
func TestNewerSchema(t *testing.T) {
	url := newDatabase(t)
	m := join(t, url, "one")
	d := claim(t, m)
	accept := func(d *DB, n int64) {
		t.Helper()
		if _, err := d.Accept(t.Context(), storetest.NewEntry(n)); err != nil {
			t.Error(err)
		}
	}
	accept(d, 1)
	admin := connect(t, url)
	for _, s := range []string{
		fmt.Sprintf("INSERT INTO throttler.goose_db_version (version_id, is_applied) VALUES (%d, true)", latest()+1),
		"ALTER TABLE throttler.calls ADD COLUMN colour text NOT NULL DEFAULT 'red'",
		"ALTER TABLE throttler.replicas ADD COLUMN colour text NOT NULL DEFAULT 'red'",
		"ALTER TABLE throttler.arrivals ADD COLUMN colour text NOT NULL DEFAULT 'red'",
	} {
		if _, err := admin.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	accept(d, 2)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	next := open(t, url, Options{Name: "two"})
	recover0(t, next)
	accept(next, 3)
	if i, err := Inspect(t.Context(), url, Options{}); err != nil || i.Schema != latest()+1 || i.Latest != latest() {
		t.Errorf("%+v, %v", i, err)
	}
	if err := Migrate(t.Context(), url, Options{}); err != nil {
		t.Error(err)
	}
	if _, err := admin.Exec(t.Context(), fmt.Sprintf("UPDATE throttler.meta SET value = '%d' WHERE name = 'oldest'", latest()+1)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the schema has version %[1]d, which programs of version %[1]d and newer can use, and this one has version %[2]d; run the newer program", latest()+1, latest())
	_, joined := Join(t.Context(), url, Options{Log: quiet})
	_, inspected := Inspect(t.Context(), url, Options{})
	for _, err := range []error{joined, inspected, Migrate(t.Context(), url, Options{})} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	accept(next, 4)
}

// TestInspectFleet: an inspection names the owner, and the replicas that live.
func TestInspectFleet(t *testing.T) {
	url := newDatabase(t)
	one, two := join(t, url, "b"), join(t, url, "a")
	two.Configured("abc")
	d := claim(t, one)
	until(t, two, "the owner, and the limits", func(v View) bool { return v.Owner == one.ID && v.Replicas[0].Config == "abc" })
	if _, err := one.pool.Exec(t.Context(), "INSERT INTO replicas (id, name, address, pin, version, config, seen_at) VALUES ('dead', 'c', '', '', '', '', now() - interval '1 minute')"); err != nil {
		t.Fatal(err)
	}
	names := func() (i *Inspection, names string) {
		t.Helper()
		i, err := Inspect(t.Context(), url, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range i.Replicas {
			names += r.Name
		}
		return i, names
	}
	if i, names := names(); i.Owner != "b" || names != "ba" || i.Replicas[1].Config != "abc" {
		t.Errorf("%+v", i)
	}
	d.Close()
	if i, names := names(); i.Owner != "" || names != "ab" {
		t.Errorf("after the term: %+v", i)
	}
}

// TestInspectStandbys: the count of standbys, which an ordinary role cannot see, is not taken for none. A warning is told
// once.
func TestInspectStandbys(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	url, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, url)
	for _, s := range []string{"CREATE ROLE clerk LOGIN", "CREATE ROLE auditor LOGIN", "GRANT pg_read_all_stats TO auditor", fmt.Sprintf("GRANT CREATE ON DATABASE %s TO clerk, auditor", admin.Config().Database)} {
		if _, err := admin.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	if err := server.Run("synchronous_standby_names=absent", "full_page_writes=off"); err != nil {
		t.Fatal(err)
	}
	for role, tt := range map[string]struct {
		standbys int
		warning  string
	}{
		"clerk":     {-1, "the role cannot see whether a standby is connected; GRANT pg_read_all_stats TO clerk"},
		"auditor":   {0, "no synchronous standby is connected: commits wait until one is"},
		"throttler": {0, "no synchronous standby is connected: commits wait until one is"},
	} {
		var log bytes.Buffer
		i, err := Inspect(t.Context(), roleOf.ReplaceAllString(url, "//"+role+"@"), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		const pages = "full_page_writes is off: a crash of the server's machine can damage the database, unless its disk writes whole pages"
		if i.Standbys != tt.standbys || !slices.Equal(i.Warnings, []string{pages, tt.warning}) || log.Len() > 0 {
			t.Errorf("%s: %d standbys, %q\n%s", role, i.Standbys, i.Warnings, log.String())
		}
	}
}
