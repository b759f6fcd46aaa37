package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/postgres"
)

// database starts a server, and returns the URL of an empty database there.
func database(t *testing.T) string {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	url, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// command runs a command of the binary with a replica's admin API, and returns its output.
func (f *fleet) command(r *instance, args ...string) (out string, err error) {
	path, _ := binary()
	cmd := exec.Command(path, append(args, "--addr", listening(r.process().log.String(), "admin"))...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// others returns the replicas that wait.
func (f *fleet) others(owner *instance) (all []*instance) {
	for _, r := range f.replicas {
		if r != owner {
			all = append(all, r)
		}
	}
	return all
}

// until waits until a condition is true.
func (f *fleet) until(state string, ok func() bool) {
	f.Helper()
	for begun := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			f.Fatalf("%s: not within a minute", state)
		}
	}
}

// TestRollingRestart: each of three replicas is stopped and started again while clients wait.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	platform := httptest.NewServer(b)
	defer platform.Close()
	f := startFleet(t, database(t), platform.URL, 3, unhurried)
	f.roll(b, "restart", func(*instance) {})
}

// TestRollingUpgrade: a program with a migration that adds a column to each table takes the place of this one, replica by
// replica, and then this one takes its place again, on the newer schema.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	this, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	newer := newerProgram(t)
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	platform := httptest.NewServer(b)
	defer platform.Close()
	url := database(t)
	f := startFleet(t, url, platform.URL, 3, unhurried)
	f.roll(b, "upgrade", func(r *instance) { r.run(newer) })
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	var columns int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'throttler' AND column_name = 'newer'").Scan(&columns); err != nil || columns < 10 {
		t.Errorf("the newer program has added %d columns, %v", columns, err)
	}
	f.versions("newer")
	f.roll(b, "downgrade", func(r *instance) { r.run(this) })
	f.versions("devel")
}

// versions waits until all replicas have a version.
func (f *fleet) versions(want string) {
	f.Helper()
	f.until("all replicas are "+want, func() bool {
		var list api.Fleet
		n := 0
		if f.get(f.waitOwner().process(), "/v1/fleet", &list) {
			for _, r := range list.Replicas {
				if r.Version == want {
					n++
				}
			}
		}
		return n == len(f.replicas) && n == len(list.Replicas)
	})
}

// newerProgram builds the binary with one more migration.
func newerProgram(t *testing.T) string {
	t.Helper()
	migrations, err := filepath.Abs("../../pkg/postgres/migrations")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadDir(migrations)
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(migrations, fmt.Sprintf("%05d_newer.sql", len(ours)+1))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"newer.sql": `-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE name text;
BEGIN
	FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'throttler' AND tablename NOT LIKE 'goose%'
		ORDER BY tablename = 'replicas' DESC LOOP -- as a look locks them
		EXECUTE format('ALTER TABLE throttler.%I ADD COLUMN newer int NOT NULL DEFAULT 7', name);
	END LOOP;
END $$;
-- +goose StatementEnd
`,
		"overlay.json": fmt.Sprintf(`{"Replace": {%q: %q}}`, next, filepath.Join(dir, "newer.sql")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "throttler")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-ldflags", "-X main.version=newer", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// accepted returns how many calls an owner has accepted.
func (f *fleet) accepted(owner *instance) (n int) {
	f.Helper()
	_, after, _ := strings.Cut(f.page(owner.process(), "/metrics"), "throttler_calls_accepted_total{upstream=\"alipay\"} ")
	fmt.Sscan(after, &n)
	return n
}

// roll stops each replica, the owner first, so that it is started again, while clients wait at all of them. Each gets the
// answer of the upstream, which executes its call once.
func (f *fleet) roll(b *bank, name string, stopping func(*instance)) {
	f.Helper()
	f.waitOwner()
	f.standBy()
	var waiting sync.WaitGroup
	left := slices.Clone(f.replicas)
	for len(left) > 0 {
		owner := f.waitOwner()
		step, next, before := len(left), max(0, slices.Index(left, owner)), f.accepted(owner)
		for _, r := range f.replicas {
			f.until(r.name+" is ready", func() bool { return f.status(r.process(), "admin", "/readyz") == http.StatusOK })
			p := r.process()
			for n := range 20 {
				waiting.Go(func() {
					path := fmt.Sprintf("/%s/%d/%s/%d", name, step, r.name, n)
					if status, answer := f.postTo(p, "upstreams.alipay.listen", path+"?key="+path, "{}", http.Header{}); status != http.StatusOK || string(answer) != path {
						f.Errorf("%s: %d %s", path, status, answer)
					}
				})
			}
		}
		// Some are sent, most wait. A connection that no replica has accepted yet would end with its listener.
		f.until("the owner has all calls", func() bool { return f.accepted(owner) >= before+20*len(f.replicas) })
		p := left[next].process()
		stopping(left[next])
		p.cmd.Process.Signal(syscall.SIGTERM)
		<-p.done
		left = slices.Delete(left, next, next+1)
	}
	waiting.Wait()
	f.waitOwner()
	b.mu.Lock()
	defer b.mu.Unlock()
	executed := 0
	for path, n := range b.executed {
		if !strings.HasPrefix(path, "/"+name+"/") {
			continue
		}
		if executed++; n != 1 {
			f.Errorf("%s was executed %d times", path, n)
		}
	}
	if executed != 180 {
		f.Errorf("%d calls were executed, want 180", executed)
	}
	if most := mostIn(b.arrivals, fleetWindow); most > 20 {
		f.Errorf("%d calls in a window, at most 20", most)
	}
}

// TestEndBeforeTheRecovery: a replica claims the calls, and recovers them for long. When its term is over before that, it waits
// again like the others; and it ends by a signal, also while the server is away.
func TestEndBeforeTheRecovery(t *testing.T) {
	t.Parallel()
	platform := httptest.NewServer(&bank{keys: make(map[string][]time.Time), executed: make(map[string]int)})
	defer platform.Close()
	url := database(t)
	if err := postgres.Migrate(t.Context(), url, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	var conns [2]*pgx.Conn
	for i := range conns {
		var err error
		if conns[i], err = pgx.Connect(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close(context.Background())
	}
	exec := func(conn *pgx.Conn, statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	locks, lease := conns[0], conns[1]
	claimed := func(epoch int) func() bool {
		return func() bool {
			now := 0
			err := lease.QueryRow(t.Context(), "SELECT epoch FROM throttler.lease WHERE owner <> ''").Scan(&now)
			return err == nil && now == epoch
		}
	}
	const lock = "BEGIN; LOCK TABLE throttler.quota IN ACCESS EXCLUSIVE MODE" // a recovery waits for it
	exec(locks, lock)
	f := startFleet(t, url, platform.URL, 1, unhurried)
	r := f.replicas[0]
	f.until("the first term", claimed(1))
	p := r.process()
	exec(lease, "UPDATE throttler.lease SET epoch = 2, owner = ''") // another replica has had the calls, and has ended its term
	time.Sleep(2 * unhurried.lease / 6)                             // two beats: the term is over
	exec(locks, "COMMIT")
	f.until("the replica has the calls", func() bool { return f.owner() == r })
	if r.process() != p || !strings.Contains(p.log.String(), "another replica has the calls now") {
		t.Errorf("the process has ended, or its first term has not:\n%s", p.log)
	}

	exec(locks, lock)
	p.cmd.Process.Kill()
	<-p.done
	f.until("the next term", claimed(4))
	p = r.process()
	r.database.Shut(true)
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatalf("a stop during the recovery takes too long:\n%s", p.log)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("a stop during the recovery: code %d\n%s", code, p.log)
	}
	r.database.Shut(false)
	exec(locks, "COMMIT")
	f.waitOwner()
}

// TestFleetCommands: an operator sees the replicas at each of them, moves the calls, and is told of files that differ.
func TestFleetCommands(t *testing.T) {
	t.Parallel()
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	platform := httptest.NewServer(b)
	defer platform.Close()
	f := startFleet(t, database(t), platform.URL, 3, unhurried)
	owner := f.waitOwner()
	f.standBy()
	for _, r := range f.replicas {
		f.until("three replicas", func() bool {
			out, err := f.command(r, "fleet")
			return err == nil && strings.Count(out, "\nr") == 3 && regexp.MustCompile(`(?m)^`+owner.name+`\s+owner \d+\s`).MatchString(out)
		})
		if out, err := f.command(r, "calls", "list"); err != nil {
			t.Errorf("calls list at %s: %v\n%s", r.name, err, out)
		}
		if out, err := f.command(r, "status"); err != nil {
			t.Errorf("status at %s: %v\n%s", r.name, err, out)
		}
	}
	f.move(owner)
	f.burials(f.waitOwner())
	f.differ()
}

// move moves the calls to a replica that is named, and back to any other one. No process ends.
func (f *fleet) move(owner *instance) {
	before := owner.process()
	to := f.others(owner)[0]
	if out, err := f.command(f.others(owner)[1], "fleet", "move", to.name, "--reason", "a test"); err != nil {
		f.Fatal(err, out)
	}
	f.until("the calls are at "+to.name, func() bool { return f.owner() == to })
	if out, err := f.command(to, "fleet", "move", to.name); err == nil || !strings.Contains(out, "has the calls already") {
		f.Errorf("a move to the owner: %v %s", err, out)
	}
	if out, err := f.command(to, "fleet", "move"); err != nil {
		f.Fatal(err, out)
	}
	f.until("the calls are elsewhere", func() bool { o := f.owner(); return o != nil && o != to })
	if owner.process() != before {
		f.Error("the replica that handed over has ended")
	}
	if out, err := f.command(to, "audit", "--action", "move"); err != nil || strings.Count(out, " move ") != 2 || !strings.Contains(out, "a test") || !strings.Contains(out, "any other replica") {
		f.Errorf("the audit of the moves: %v %s", err, out)
	}
	if events := f.page(to.process(), "/v1/events/latest?kind=took_over"); strings.Count(events, `"event":"took_over"`) != 1 || !strings.Contains(events, `"reason":"clean"`) {
		f.Errorf("the events of the take-over: %s", events)
	}
	status, answer := f.postTo(to.process(), "upstreams.alipay.listen", "/moved?key=1", "{}", http.Header{})
	if status != http.StatusOK {
		f.Errorf("after the moves: %d %s", status, answer)
	}
}

// burials are refused for a replica that lives, or without the statement. One whose process has ended is buried.
func (f *fleet) burials(owner *instance) {
	if out, err := f.command(owner, "fleet", "bury", owner.name); err == nil || !strings.Contains(out, "--it-has-ended is missing") {
		f.Errorf("without the statement: %v %s", err, out)
	}
	if out, err := f.command(owner, "fleet", "bury", owner.name, "--it-has-ended"); err == nil || !strings.Contains(out, "has not ended") {
		f.Errorf("a replica that lives: %v %s", err, out)
	}
	for range 3 { // a machine may be slower than the lease
		p := owner.process()
		p.cmd.Process.Kill()
		<-p.done
		f.until("a replica is buried whose supervisor starts it again", func() bool {
			out, err := f.command(f.others(owner)[0], "fleet", "bury", owner.name, "--it-has-ended")
			if err != nil && !strings.Contains(out, "has not ended") && !strings.Contains(out, "meanwhile") {
				f.Fatalf("a burial: %v %s", err, out)
			}
			return err == nil
		})
		owner = f.waitOwner()
		if strings.Contains(owner.process().log.String(), "its process is known to have ended") {
			return
		}
	}
	f.Error("no term was begun after a burial")
}

// differ reloads another limit at a replica that waits: all say so, and it is over when the file is the same again.
func (f *fleet) differ() {
	owner := f.waitOwner()
	r := f.others(owner)[0]
	p := r.process()
	text, err := os.ReadFile(r.file)
	if err != nil {
		f.Fatal(err)
	}
	for differs, file := range map[bool][]byte{true: bytes.Replace(text, []byte("calls: 20,"), []byte("calls: 19,"), 1), false: text} {
		if !differs {
			defer f.until("the files are alike again", func() bool { return !f.differs(r.name) })
		}
		if err := os.WriteFile(r.file, file, 0o600); err != nil {
			f.Fatal(err)
		}
		p.cmd.Process.Signal(syscall.SIGHUP)
		if differs {
			f.until("the files differ", func() bool { return f.differs(r.name) })
			f.until("the replica says so", func() bool { return strings.Contains(p.log.String(), "whose limits count") })
			f.until("the owner says so", func() bool { return strings.Contains(owner.process().log.String(), "another replica's configuration") })
			if ready := f.page(p, "/readyz"); !strings.HasPrefix(ready, "ready\nlimits: differ from those of the owner, replica "+owner.name+", ") {
				f.Errorf("readyz: %s", ready)
			}
			metrics := f.page(p, "/metrics")
			for _, want := range []string{"throttler_fleet_config_differs 1\n", "throttler_fleet_replicas 3\n", "throttler_fleet_owner 0\n", "throttler_fleet_lease_seconds 0\n", "throttler_fleet_losses_total 0\n"} {
				if !strings.Contains(metrics, want) {
					f.Errorf("the metrics have no %s", want)
				}
			}
			if err := os.WriteFile(r.file, text, 0o600); err != nil {
				f.Fatal(err)
			}
			p.cmd.Process.Signal(syscall.SIGHUP)
		}
	}
}

// page returns what a replica's admin API has at a path, as text.
func (f *fleet) page(p *process, path string) string {
	f.Helper()
	resp, err := f.client.Get(listening(p.log.String(), "admin") + path)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.Fatalf("%s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return string(text)
}

// differs reports whether all replicas say that the file of one differs.
func (f *fleet) differs(name string) bool {
	for _, r := range f.replicas {
		var view api.Fleet
		if !f.get(r.process(), "/v1/fleet", &view) {
			return false
		}
		found := false
		for _, shown := range view.Replicas {
			found = found || shown.Name == name && shown.Differs
		}
		if !found {
			return false
		}
	}
	return true
}

// TestCheckConnect: check --connect asks the database, and changes nothing; store migrate makes the schema. Each fault of
// the server is one clear sentence.
func TestCheckConnect(t *testing.T) {
	url := database(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	run := func(url string, args ...string) (string, error) {
		file := filepath.Join(t.TempDir(), "throttler.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "store: %s\nupstreams: {a: {url: 'https://api.example.com'}}\n", url), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(path, append(args, "-c", file)...).CombinedOutput()
		return string(out), err
	}
	out, err := run(url, "check", "--connect")
	if err != nil || !regexp.MustCompile(`store: PostgreSQL \S+.*, schema 0, to become [1-9]\d* at the next start, 0 synchronous standby\(s\), round trip \S+, clock`).MatchString(out) || !strings.Contains(out, "warning: store: there is no synchronous standby") {
		t.Errorf("%v\n%s", err, out)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var made bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regnamespace('throttler') IS NOT NULL").Scan(&made); err != nil || made {
		t.Errorf("check has made a schema: %v, %v", made, err)
	}
	if out, err := run(url, "store", "migrate"); err != nil || !strings.HasPrefix(out, "ok: ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(url, "check", "--connect"); err != nil || !regexp.MustCompile(`, schema [1-9]\d*, 0 synchronous`).MatchString(out) || !strings.Contains(out, "\nfleet: no replica has the calls; alive: none\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := conn.Exec(t.Context(), "CREATE ROLE clerk LOGIN"); err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`//[^@/]*@`)
	for name, tt := range map[string]struct{ url, want string }{
		"a role without rights": {at.ReplaceAllString(url, "//clerk@"), "the role may not use the schema throttler; GRANT USAGE ON SCHEMA throttler TO clerk, and GRANT SELECT"},
		"a role that is absent": {at.ReplaceAllString(url, "//absent@"), "the server refuses the role or its password"},
		"a database":            {regexp.MustCompile(`/[^/?]+\?`).ReplaceAllString(url, "/absent?"), "make the database: createdb"},
		"no server":             {"postgres://clerk@127.0.0.1:1/x", "127.0.0.1:1: connect: connection refused; is the server running"},
	} {
		out, err := run(tt.url, "check", "--connect")
		if err == nil || !strings.Contains(out, tt.want) || strings.Count(strings.TrimSpace(out), "\n") > 0 {
			t.Errorf("%s: %v\n%s\nwant one line with %q", name, err, out, tt.want)
		}
	}
	if out, err := run("throttler.db", "check", "--connect"); err == nil || !strings.Contains(out, "--connect is for a store in PostgreSQL") {
		t.Errorf("a file: %v\n%s", err, out)
	}
}

// TestCheckConnectFleet: check --connect names the replicas that serve from the database, and warns of a second fleet there.
// check --ports tries their address too.
func TestCheckConnectFleet(t *testing.T) {
	platform := httptest.NewServer(&bank{keys: make(map[string][]time.Time), executed: make(map[string]int)})
	defer platform.Close()
	f := startFleet(t, database(t), platform.URL, 2, unhurried)
	owner := f.waitOwner()
	f.standBy()
	path, _ := binary()
	text, err := os.ReadFile(owner.file)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "throttler.yaml")
	check := func(flag, old, new string) (string, error) {
		t.Helper()
		if err := os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "check", flag, "-c", file)
		cmd.Env = append(os.Environ(), "SHOP_SECRET=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const other = "with other upstreams or limits: for a fleet of its own name another database, else give both the same file"
	named := fmt.Sprintf("\nfleet: replica %q has the calls; alive: %q, %q\n", owner.name, owner.name, f.others(owner)[0].name)
	f.until("both are alive", func() bool {
		out, err := check("--connect", "", "")
		if strings.Contains(out, other) {
			t.Fatal(out)
		}
		return err == nil && strings.Contains(out, named)
	})
	if out, err := check("--connect", "calls: 20,", "calls: 19,"); err != nil || !strings.Contains(out, fmt.Sprintf("warning: store: replica %q has the calls of this database, %s\n", owner.name, other)) {
		t.Errorf("another fleet: %v\n%s", err, out)
	}
	taken := strings.TrimPrefix(platform.URL, "http://")
	if out, err := check("--ports", "listen: 127.0.0.1:0, advertise", "listen: "+taken+", advertise"); err == nil || !strings.Contains(out, "fleet.listen") || !strings.Contains(out, "in use") {
		t.Errorf("fleet.listen is taken: %v\n%s", err, out)
	}
}
