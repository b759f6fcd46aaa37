package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// connect opens a connection of a program that has no store.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// ends waits for the end of a call that arrives.
func ends(t *testing.T, s *scheduler.Scheduler, id string) *scheduler.Call {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c, err := s.Get(t.Context(), id)
		if err == nil && c.State.Finished() {
			return c
		}
		if err != nil && !errors.Is(err, scheduler.ErrNotFound) || time.Since(begun) > 20*time.Second {
			t.Fatalf("call %s: %+v, %v", id, c, err)
		}
	}
}

// TestSubmitTx: a call exists if its transaction commits, with all that the request has, and only then.
func TestSubmitTx(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	s := start(t, open(t, url, Options{}), p)
	conn := connect(t, url)
	submit := func(commit bool, r scheduler.Request) string {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		id, err := SubmitTx(t.Context(), tx, r)
		if err != nil {
			t.Fatal(err)
		}
		if commit {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	gone := submit(false, scheduler.Request{Upstream: "api", Target: "/rolled-back"})
	id := submit(true, scheduler.Request{Upstream: "api", Method: "POST", Target: "/order?n=7", Header: http.Header{"X-A": {"1", "2"}}, Body: []byte("a body"), Priority: 9, IdempotencyKey: "order 7"})
	c := ends(t, s, id)
	if c.State != scheduler.Done || c.Method != "POST" || c.Path != "/order" || c.Priority != 9 || c.IdempotencyKey != "order 7" || c.SubmittedBy == "" || !c.Async {
		t.Errorf("%+v", c)
	}
	if again := ends(t, s, submit(true, scheduler.Request{Upstream: "api", Method: "POST", Target: "/order?n=7", Header: http.Header{"X-A": {"1", "2"}}, Body: []byte("a body"), IdempotencyKey: "order 7"})); again.State != scheduler.Failed || !strings.Contains(again.Last().Reason, "is that of call "+id) {
		t.Errorf("a second call with the key: %+v", again)
	}
	if n := p.arrivals("/order"); n != 1 {
		t.Errorf("the call was executed %d times", n)
	}
	if _, err := s.Get(t.Context(), gone); !errors.Is(err, scheduler.ErrNotFound) || p.arrivals("/rolled-back") > 0 {
		t.Errorf("a call whose transaction was rolled back: %v", err)
	}
	left := 0
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM throttler.arrivals").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d arrivals are left, %v", left, err)
	}
}

// TestSubmitSQL: a role with no right but that of the function hands calls over by SQL; those that the scheduler refuses end as
// failed, with the reason.
func TestSubmitSQL(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	s := start(t, open(t, url, Options{}), p)
	admin := connect(t, url)
	role := fmt.Sprint("clerk", rand.N(1<<30))
	if _, err := admin.Exec(t.Context(), "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA throttler TO "+role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	clerk := connect(t, url)
	if _, err := clerk.Exec(t.Context(), "SET ROLE "+role); err != nil {
		t.Fatal(err)
	}
	submit := func(args string) (id string, err error) {
		err = clerk.QueryRow(t.Context(), "SELECT throttler.submit("+args+")").Scan(&id)
		return id, err
	}
	if _, err := submit("'api', 'GET', '/'"); code(err) != noPrivilege {
		t.Errorf("without the right: %v", err)
	}
	if _, err := admin.Exec(t.Context(), "GRANT EXECUTE ON FUNCTION throttler.submit TO "+role); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"arrivals", "calls", "lease"} {
		if _, err := clerk.Exec(t.Context(), "SELECT * FROM throttler."+table); code(err) != noPrivilege {
			t.Errorf("the role reads %s: %v", table, err)
		}
	}
	for args, want := range map[string]string{
		`'api', 'POST', '/pay', headers => '{"X-A": ["1", "2"], "Content-Type": "text/plain"}', body => convert_to('x', 'UTF8'), not_before => now() + interval '10 ms'`: "",
		`'elsewhere', 'GET', '/'`:                     `upstream "elsewhere" is not configured`,
		`'api', 'GET', '/', headers => '{"X-A": 1}'`:  `the value of "X-A" is no text`,
		`'api', 'GET', '/', callback => 'shop'`:       `callback "shop" is not one of upstream`,
		`'api', 'GET', '/', deadline => '2001-01-01'`: "deadline",
		`'api', 'BAD METHOD', '/'`:                    "method",
		`'api', 'GET', '/', priority => 100000`:       "priority",
	} {
		id, err := submit(args)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		c := ends(t, s, id)
		if want == "" && c.State != scheduler.Done || want != "" && (c.State != scheduler.Failed || !strings.Contains(c.Last().Reason, want)) {
			t.Errorf("%s: %+v %+v, want %q", args, c, c.Last(), want)
		}
	}
	for _, args := range []string{"'', 'GET', '/'", "'api', NULL, '/'", "'api', 'GET', '/', headers => '[]'", "'api', 'GET', '/', body => convert_to(repeat('x', 67108865), 'UTF8')",
		"'api', 'GET', '/', not_before => 'infinity'", "'api', 'GET', '/', deadline => '-infinity'", "'api', 'GET', repeat('x', 262144)"} {
		if _, err := submit(args); err == nil || !strings.Contains(err.Error(), "throttler.submit: ") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// handOver hands calls over in one transaction.
func handOver(t *testing.T, conn *pgx.Conn, requests ...scheduler.Request) (ids []string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for _, r := range requests {
		id, err := SubmitTx(t.Context(), tx, r)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ids
}

// serve starts a scheduler of some upstreams, which it closes.
func serve(t *testing.T, d *DB, p *platform, upstreams map[string]scheduler.Upstream) *scheduler.Scheduler {
	t.Helper()
	for name, u := range upstreams {
		u.URL = p.URL
		upstreams[name] = u
	}
	s, err := scheduler.New(scheduler.Config{Upstreams: upstreams, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestArrivalsAreNoBeats: the owner takes in calls as they come, and writes to the registry no more often for them.
func TestArrivalsAreNoBeats(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	s := serve(t, open(t, url, Options{Lease: MaxLease}), p, map[string]scheduler.Upstream{"api": {}})
	conn := connect(t, url)
	const n = 30
	begun, seen := time.Now(), make(map[time.Time]bool)
	for range n {
		ends(t, s, handOver(t, conn, scheduler.Request{Upstream: "api", Target: "/"})[0])
		var at time.Time
		if err := conn.QueryRow(t.Context(), "SELECT max(seen_at) FROM throttler.replicas").Scan(&at); err != nil {
			t.Fatal(err)
		}
		seen[at] = true
	}
	took := time.Since(begun)
	if looks := int(took/(MaxLease/beats)) + 2; len(seen) > looks {
		t.Errorf("in %v the registry was written %d times for %d calls, want %d at most", took, len(seen), n, looks)
	}
	if took > n*(MaxLease/beats)/2 {
		t.Errorf("%d calls took %v: they have waited for the next look", n, took)
	}
}

// TestArrivalForALongName: the name of an upstream that is not configured, however long, ends its call, and not the store.
func TestArrivalForALongName(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	s := start(t, open(t, url, Options{}), p)
	name := make([]rune, 20_000)
	for i := range name {
		name[i] = rune(0x4e00 + rand.N(20_000)) // it does not compress
	}
	c := ends(t, s, handOver(t, connect(t, url), scheduler.Request{Upstream: string(name), Target: "/"})[0])
	if c.State != scheduler.Failed || !strings.HasPrefix(string(name), c.Upstream) || !strings.Contains(c.Last().Reason, "is not configured") {
		t.Errorf("%+v", c)
	}
}

// TestArrivalsUnderKill: while the server is killed and started again, and owners follow each other, each call whose
// transaction has committed is executed once, and each other one never. Each transaction writes a row of the program, too.
func TestArrivalsUnderKill(t *testing.T) {
	own, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	url, err := own.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	p := newPlatform(t)
	program := connect(t, url)
	first, err := Open(t.Context(), url, Options{Lease: short, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program.Exec(t.Context(), "CREATE TABLE orders (path text PRIMARY KEY, call text)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { ownersInTurn(t, ctx, first, url, p) })
	var submitting sync.WaitGroup
	over := make(chan struct{})
	for n := range 4 {
		submitting.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				orderTx(ctx, url, fmt.Sprintf("/order/%d/%d", n, i))
			}
		})
	}
	for range 3 {
		time.Sleep(700 * time.Millisecond)
		own.Kill()
		time.Sleep(100 * time.Millisecond)
		if err := own.Run(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(700 * time.Millisecond)
	close(over)
	submitting.Wait()
	judgeOrders(t, url, p)
	cancel()
	working.Wait()
}

// orderTx writes an order and hands its call over, in one transaction, or gives it up.
func orderTx(ctx context.Context, url, path string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return
	}
	id, err := SubmitTx(ctx, tx, scheduler.Request{Upstream: "api", Method: "POST", Target: path})
	if err != nil {
		return
	}
	if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", path, id); err != nil {
		return
	}
	if rand.N(3) == 0 {
		tx.Rollback(ctx)
	} else {
		tx.Commit(ctx)
	}
}

// ownersInTurn serves the calls, by owners that follow each other, some after a crash, until ctx ends.
func ownersInTurn(t *testing.T, ctx context.Context, d *DB, url string, p *platform) {
	for {
		u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 1000, Window: window}}, Late: late}
		u.URL, u.Timeout = p.URL, timeout
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
		if err == nil {
			select {
			case <-s.Failed():
			case <-ctx.Done():
			case <-time.After(300*time.Millisecond + rand.N(500*time.Millisecond)):
				if rand.N(2) == 0 {
					crash(d)
				}
			}
			s.Close()
		}
		for d = nil; d == nil; {
			if ctx.Err() != nil {
				return
			}
			if d, err = Open(ctx, url, Options{Lease: short, Wait: true, Log: quiet}); err != nil {
				time.Sleep(20 * time.Millisecond) // the server is away
			}
		}
	}
}

// judgeOrders waits until no arrival is left and compares the orders with the calls that the platform has executed.
func judgeOrders(t *testing.T, url string, p *platform) {
	conn := connect(t, url)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		pending := 0
		if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM throttler.arrivals) + (SELECT count(*) FROM throttler.current WHERE state IN ('waiting', 'sending'))").Scan(&pending); err == nil && pending == 0 {
			break
		} else if time.Since(begun) > time.Minute {
			t.Fatalf("%d calls are pending, %v", pending, err)
		}
	}
	rows, err := conn.Query(t.Context(), "SELECT o.path, coalesce(c.state, 'lost') FROM orders o LEFT JOIN throttler.calls c ON c.id = o.call")
	if err != nil {
		t.Fatal(err)
	}
	orders := make(map[string]string)
	for rows.Next() {
		var path, state string
		if err := rows.Scan(&path, &state); err != nil {
			t.Fatal(err)
		}
		orders[path] = state
		if n := p.arrivals(path); state == "done" && n != 1 || state != "done" && state != "unknown" || n > 1 {
			t.Errorf("order %s is %s, and was executed %d times", path, state, n)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for path := range p.paths {
		if orders[path] == "" {
			t.Errorf("%s was executed, and its transaction has not committed", path)
		}
	}
	t.Logf("%d orders, %d executed", len(orders), len(p.paths))
	if len(p.paths) == 0 {
		t.Error("nothing was executed")
	}
}
