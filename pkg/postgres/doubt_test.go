package postgres

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var cutStep = flag.Int64("cut.step", 41, "cut connections after every such byte")

// through returns a proxy to the test's server, and the URL of a database behind it.
func through(t testing.TB, database string) (*pgtest.Proxy, string) {
	t.Helper()
	p, err := pgtest.NewProxy(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Address()
	return p, u.String()
}

// A kind of transaction whose connection is cut. Prepare makes the store ready for it, and check
// tells whether it was made just once.
type kind struct {
	prepare func(t *testing.T, d *DB) any
	change  func(d *DB, on any) error
	check   func(t *testing.T, d *DB, on any)
}

func counted(t *testing.T, d *DB, query string, want int, args ...any) {
	t.Helper()
	n := -1
	d.db.Reset() // its connections may have been cut
	if err := d.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil || n != want {
		t.Errorf("%s: %d, %v; want %d", query, n, err, want)
	}
}

func accepted(t *testing.T, d *DB, change ...func(*scheduler.Entry)) *scheduler.Entry {
	t.Helper()
	seq := int64(0)
	d.db.Reset()
	if err := d.db.QueryRow(t.Context(), "SELECT coalesce(max(seq), 0) + 1 FROM calls").Scan(&seq); err != nil {
		t.Fatal(err)
	}
	e := storetest.NewEntry(seq)
	for _, c := range change {
		c(e)
	}
	if err := again(func() error { _, err := d.Accept(t.Context(), e); return err }); err != nil {
		t.Fatal(err)
	}
	return e
}

// again makes a change, once more while the server is away. Another transaction, such as one of the sweeper, may
// have met the cut, and those that are queued behind it are refused until the server is found to be there.
func again(change func() error) (err error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
		if err = change(); !errors.Is(err, errAway) {
			return err
		}
	}
	return err
}

func newEntry(t *testing.T, d *DB) *scheduler.Entry {
	seq := int64(0)
	d.db.Reset()
	if err := d.db.QueryRow(t.Context(), "SELECT coalesce(max(seq), 0) + 1 FROM calls").Scan(&seq); err != nil {
		t.Fatal(err)
	}
	return storetest.NewEntry(seq)
}

var kinds = map[string]kind{
	"a call": {
		prepare: func(t *testing.T, d *DB) any {
			e := newEntry(t, d)
			e.Key, e.Fingerprint = "key of "+e.Call.ID, "f"
			return e
		},
		change: func(d *DB, on any) error {
			existing, err := d.Accept(context.Background(), on.(*scheduler.Entry))
			if existing != nil {
				err = errors.New("the call is taken for a repeat of itself")
			}
			return err
		},
		check: func(t *testing.T, d *DB, on any) {
			counted(t, d, "SELECT count(*) FROM calls WHERE id = $1", 1, on.(*scheduler.Entry).Call.ID)
		},
	},
	"an intent": {
		prepare: func(t *testing.T, d *DB) any { return accepted(t, d) },
		change: func(d *DB, on any) error {
			c := on.(*scheduler.Entry).Call
			return d.Intend(context.Background(), storetest.Sent(c), []lease.Hold{{ID: 1<<40 + c.Seq, Upstream: "api", Limit: "day", Permits: 1}})
		},
		check: func(t *testing.T, d *DB, on any) {
			seq := on.(*scheduler.Entry).Call.Seq
			counted(t, d, "SELECT count(*) FROM flights WHERE seq = $1", 1, seq)
			counted(t, d, "SELECT count(*) FROM quota WHERE id = $1", 1, 1<<40+seq)
		},
	},
	"an intent that is refused": {
		prepare: func(t *testing.T, d *DB) any {
			c := accepted(t, d).Call
			if err := again(func() error { return d.Record(t.Context(), storetest.Ended(storetest.Sent(c), scheduler.Cancelled)) }); err != nil {
				t.Fatal(err)
			}
			return c
		},
		change: func(d *DB, on any) error {
			err := d.Intend(context.Background(), storetest.Sent(on.(*scheduler.Call)), nil)
			if err == nil {
				return errors.New("a call that was cancelled may be sent")
			}
			if errors.Is(err, scheduler.ErrNotWaiting) {
				return nil
			}
			return err
		},
		check: func(t *testing.T, d *DB, on any) { counted(t, d, "SELECT count(*) FROM flights", 0) },
	},
	"an end": {
		prepare: func(t *testing.T, d *DB) any {
			c := storetest.Sent(accepted(t, d, func(e *scheduler.Entry) { e.Call.Callback = "shop" }).Call)
			if err := again(func() error { return d.Intend(t.Context(), c, nil) }); err != nil {
				t.Fatal(err)
			}
			return storetest.Ended(c, scheduler.Done)
		},
		change: func(d *DB, on any) error { return d.Record(context.Background(), on.(*scheduler.Call)) },
		check: func(t *testing.T, d *DB, on any) {
			counted(t, d, "SELECT count(*) FROM calls WHERE id = $1 AND state = 'done' AND answer_sum IS NOT NULL", 1, on.(*scheduler.Call).ID)
			counted(t, d, "SELECT count(*) FROM flights WHERE seq = $1", 0, on.(*scheduler.Call).Seq)
		},
	},
	"all holds": {
		prepare: func(t *testing.T, d *DB) any { return nil },
		change: func(d *DB, on any) error {
			return d.Restate(context.Background(), []lease.Hold{{Upstream: "api", Limit: "day", Permits: 3, Back: time.Now().Add(time.Hour)}})
		},
		check: func(t *testing.T, d *DB, on any) { counted(t, d, "SELECT sum(permits)::int FROM quota", 3) },
	},
	"an end of holds": {
		prepare: func(t *testing.T, d *DB) any {
			if err := again(func() error {
				return d.Intend(t.Context(), nil, []lease.Hold{{ID: 1 << 50, Upstream: "api", Limit: "day", Permits: 1}})
			}); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		change: func(d *DB, on any) error {
			return d.Settle(context.Background(), []lease.Hold{{ID: 1 << 50, Upstream: "api", Limit: "day", Permits: 1, Back: time.Now().Add(time.Hour)}})
		},
		check: func(t *testing.T, d *DB, on any) {
			counted(t, d, "SELECT count(*) FROM quota WHERE id = 1::bigint << 50 AND back > 0", 1)
		},
	},
	"a record": {
		prepare: func(t *testing.T, d *DB) any {
			n := 0
			d.db.Reset()
			if err := d.db.QueryRow(t.Context(), "SELECT count(*) FROM audit").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		change: func(d *DB, on any) error {
			return d.Audit(context.Background(), scheduler.AuditRecord{At: time.Now(), Actor: "mei", Action: "pause"})
		},
		check: func(t *testing.T, d *DB, on any) { counted(t, d, "SELECT count(*) FROM audit", on.(int)+1) },
	},
	"the end of an identity": {
		prepare: func(t *testing.T, d *DB) any { return nil },
		change:  func(d *DB, on any) error { return d.End(context.Background(), "order 7", "id") },
		check: func(t *testing.T, d *DB, on any) {
			counted(t, d, "SELECT count(*) FROM keys WHERE ended_by = 'id'", 1)
		},
	},
	"a recovery": {
		prepare: func(t *testing.T, d *DB) any {
			c := storetest.Sent(accepted(t, d).Call)
			if err := again(func() error { return d.Intend(t.Context(), c, nil) }); err != nil {
				t.Fatal(err)
			}
			return c
		},
		change: func(d *DB, on any) error {
			_, err := d.Recover(context.Background(), time.Minute, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false })
			return err
		},
		check: func(t *testing.T, d *DB, on any) {
			c, err := d.Get(t.Context(), on.(*scheduler.Call).ID)
			if err != nil || c.State != scheduler.Unknown || len(c.Attempts) != 1 || c.Last().Outcome != upstream.Unknown {
				t.Errorf("the call that was in flight: %+v, %v", c, err)
			}
		},
	},
}

// TestCut cuts all connections after each so manieth byte of a transaction of each kind, to the server or
// from it. The change succeeds all the same, and is made just once. Every byte: -cut.step 1.
func TestCut(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url := through(t, newDatabase(t))
			d := open(t, url, Options{Lease: MaxLease})
			recover0(t, d)
			for at, cuts := int64(0), true; cuts; at += *cutStep {
				on := k.prepare(t, d)
				drainCut(p)
				p.CutAfter(at)
				if err := again(func() error { return k.change(d, on) }); err != nil {
					t.Fatalf("cut after %d bytes: %v", at, err)
				}
				p.CutAfter(-1)
				cuts = drainCut(p)
				k.check(t, d, on)
				if t.Failed() {
					t.Fatalf("cut after %d bytes", at)
				}
			}
		})
	}
}

func drainCut(p *pgtest.Proxy) bool {
	select {
	case <-p.Cut():
		return true
	default:
		return false
	}
}

// TestAway: while the server is away new calls are refused at once, outcomes wait, and nothing is sent after the
// end of the lease. All goes on when it is back.
func TestAway(t *testing.T) {
	p, url := through(t, newDatabase(t))
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	sent := storetest.Sent(accepted(t, d).Call)
	if err := d.Intend(t.Context(), sent, nil); err != nil {
		t.Fatal(err)
	}
	p.Shut(true)
	recorded := make(chan error, 1)
	go func() { recorded <- d.Record(context.Background(), storetest.Ended(sent, scheduler.Done)) }()
	for begun := time.Now(); d.Allowed(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("it may send without a lease")
		}
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := d.Accept(t.Context(), storetest.NewEntry(99)); errors.Is(err, errAway) && !errors.Is(err, scheduler.ErrBroken) {
			break
		} else if time.Since(begun) > time.Minute {
			t.Fatalf("a new call: %v, want %v", err, errAway)
		}
	}
	if _, err := d.Get(t.Context(), sent.ID); !errors.Is(err, errAway) {
		t.Errorf("a read: %v", err)
	}
	// Of the changes that are queued those that need not wait are refused, and the others keep their place.
	queued := &change{essential: true, apply: func(*txn) (error, error) { return nil, nil }, done: make(chan struct{})}
	refused := &change{apply: func(*txn) (error, error) { return nil, nil }, done: make(chan struct{})}
	d.writer.changes <- queued
	d.writer.changes <- refused
	if <-refused.done; !errors.Is(refused.refused, errAway) {
		t.Errorf("a queued change that need not wait: %v", refused.refused)
	}
	select {
	case <-queued.done:
		t.Errorf("a queued change that must wait: %v", queued.refused)
	default:
	}
	p.Shut(false)
	if err := <-recorded; err != nil {
		t.Fatalf("the outcome: %v", err)
	}
	if <-queued.done; queued.refused != nil {
		t.Errorf("the change that waited: %v", queued.refused)
	}
	for begun := time.Now(); !d.Allowed(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("it may not send again")
		}
	}
	if c, err := d.Get(t.Context(), sent.ID); err != nil || c.State != scheduler.Done {
		t.Errorf("%+v, %v; want done", c, err)
	}
}

// TestLateCommit: a transaction that was asked about, and had not taken effect, takes none later, though its session lives.
func TestLateCommit(t *testing.T) {
	url := newDatabase(t)
	d := claim(t, join(t, url, "one"))
	crash(d)
	w := d.writer
	<-w.ended
	defer w.disconnect()
	late := w.number
	w.doubtful = true
	if done, err := w.ask(); done || err != nil {
		t.Fatalf("done %v, %v", done, err)
	}
	if _, err := connect(t, url).Exec(t.Context(), "SELECT throttler.advance($1, $2, NULL)", w.epoch, late); code(err) != heldBack {
		t.Errorf("the late transaction: %v, want %s", err, heldBack)
	}
	if err := w.try(nil); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
	next := w.number
	w.number -= 2 // the answer of outdate was lost
	if done, err := w.ask(); done || err != nil || w.number != next {
		t.Errorf("the next question: done %v, %v, transaction %d, want %d", done, err, w.number, next)
	}
}

// TestCloseWhileAway: a store whose server is away can be closed, and says what it could not store.
func TestCloseWhileAway(t *testing.T) {
	p, url := through(t, newDatabase(t))
	d := open(t, url, Options{Lease: short})
	recover0(t, d)
	e := accepted(t, d)
	p.Shut(true)
	failed := make(chan error, 1)
	go func() {
		failed <- d.Record(context.Background(), storetest.Ended(storetest.Sent(e.Call), scheduler.Done))
	}()
	for d.writer.away.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := d.Close(); !errors.Is(err, errAway) {
		t.Errorf("Close: %v", err)
	}
	if err := <-failed; !errors.Is(err, errAway) {
		t.Errorf("the outcome: %v", err)
	}
}

// TestManyWaitWhileAway: more changes than the queue has room for wait for a server that is away, and all
// are made when it is back.
func TestManyWaitWhileAway(t *testing.T) {
	p, url := through(t, newDatabase(t))
	d := open(t, url, Options{Lease: MaxLease})
	recover0(t, d)
	p.Shut(true)
	const many = 4 * maxBatch
	errs := make(chan error, many)
	for range many {
		go func() { errs <- d.Settle(context.Background(), nil) }()
	}
	for d.writer.away.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // some tries more
	p.Shut(false)
	for n := range many {
		select {
		case err := <-errs:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d changes are made within a minute", n, many)
		}
	}
}

// TestRefusedWhileAway: an owner whose role is refused after its connection broke ends.
func TestRefusedWhileAway(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	d.writer.unconfirmed = true // the writer is idle: a transaction follows
	d.writer.config.Database = "no_such_database"
	d.db.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'throttler writer%' AND datname = current_database()")
	if err := d.Settle(t.Context(), nil); !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("%v, want the end of the store", err)
	}
}
