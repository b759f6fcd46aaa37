package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

const (
	beats = 6 // in a lease
	// drift is how much slower than another one a clock may run: a watcher waits that much longer
	// than a lease.
	drift = 20 // a twentieth
)

// A leaseRow is the row of the table lease.
type leaseRow struct {
	epoch, beat int64
	owner, name string
	lease       time.Duration
	exited      bool          // the process of the owner has ended
	next        string        // name of the replica that is to have the calls next
	offered     time.Duration // since next was set
	committed   position
}

// A position is a transaction of a term.
type position struct{ epoch, number int64 }

func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.number < q.number
}

const selectLease = `SELECT l.epoch, beat, owner, name, lease_ms, exited, next, coalesce(extract(epoch FROM clock_timestamp() - offered_at), 0)::float8,
	f.epoch, f.number FROM lease l, fence f`

// scan reads the row of selectLease.
func (s *leaseRow) scan(row pgx.Row) error {
	var ms int64
	var offered float64
	err := row.Scan(&s.epoch, &s.beat, &s.owner, &s.name, &ms, &s.exited, &s.next, &offered, &s.committed.epoch, &s.committed.number)
	s.lease, s.offered = time.Duration(ms)*time.Millisecond, time.Duration(offered*float64(time.Second))
	return err
}

// A watch tells whether the owner of a term is silent. It is pure.
type watch struct {
	seen  leaseRow
	since time.Time // at which it was seen first, without a gap in the views since
}

// sees notes a view of the row, and reports whether its owner has been silent for longer than
// its lease. Nil is a view that failed: time in which nothing was seen does not count.
func (w *watch) sees(now time.Time, s *leaseRow) (silent bool) {
	switch {
	case s == nil:
		w.since = time.Time{}
		return false
	case w.since.IsZero() || s.epoch != w.seen.epoch || s.beat != w.seen.beat || s.owner != w.seen.owner:
		w.seen, w.since = *s, now
	}
	return now.Sub(w.since) > s.lease+s.lease/drift
}

// A term is one that this replica has claimed.
type term struct {
	epoch   int64
	first   int64  // number before that of its first transaction; random, so that terms of one epoch, of which one is lost, differ
	id      string // of the replica
	server  string // its timeline, empty if its standbys are synchronous
	asked   time.Time
	boot    columns.Boot
	follows bool // the last owner did not end its term
	exited  bool // its process is known to have ended
	before  string
}

// take makes this replica the owner, if the row is still as it was seen; it returns nil if it is not.
// Row locks put it in one order with a beat: if that comes first, the row is another one. The change of fence waits for
// the last transaction of the owner before, and no other follows.
func take(ctx context.Context, db *pgxpool.Pool, s leaseRow, m *Member) (*term, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	won := &term{epoch: s.epoch + 1, first: rand.Int64N(1 << 40), id: m.ID, asked: time.Now(), boot: columns.MachineClock(), follows: s.owner != "", exited: s.exited, before: s.name}
	if won.follows {
		ending, cancel := context.WithTimeout(ctx, m.o.Lease/2)
		endWriters(ending, db, s.epoch)
		cancel()
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	err = tx.QueryRow(ctx, "UPDATE lease SET epoch = $1, owner = $2, name = $3, beat = beat + 1, lease_ms = $4, exited = false, next = '' WHERE epoch = $5 AND beat = $6 AND owner = $7 AND exited = $8 RETURNING "+timeline,
		won.epoch, won.id, m.o.Name, m.o.Lease.Milliseconds(), s.epoch, s.beat, s.owner, s.exited).Scan(&won.server)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if _, err := tx.Exec(ctx, "UPDATE fence SET epoch = $1, number = $2", won.epoch, won.first); err != nil {
		return nil, err
	}
	if err := tx.Commit(ctx); err != nil {
		// Its effect is not known. If it has one, no replica beats, and the term is claimed once more.
		return nil, err
	}
	return won, nil
}

// timeline is that of a server without synchronous standbys, else empty. A standby that takes its place, and a server that is put
// back to an earlier time, has another one; see https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES.
const timeline = "CASE WHEN current_setting('synchronous_standby_names') = '' THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) ELSE '' END"

// endWriters ends the sessions of an owner that is silent: one that was stopped may hold a lock.
func endWriters(ctx context.Context, db querier, epoch int64) {
	// An error leaves the lock: the change of fence waits for it.
	_ = db.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid() AND usename = current_user", writerName(epoch)).Scan(new(int))
}

// writerName is the application_name of the writer of a term.
func writerName(epoch int64) string { return fmt.Sprintf("throttler writer %d", epoch) }

// A tenure renews the lease of a term.
type tenure struct {
	term    *term
	lease   time.Duration
	config  *pgx.ConnConfig
	failure *failure
	compare func() // the last commit of the term with that of the server; it ends the term if they differ
	// restated is set when the holds of earlier terms were committed, with their ends.
	restated atomic.Bool
	stop     chan struct{}
	ended    chan struct{}

	conn *pgx.Conn // owned by run until it has ended

	mu    sync.RWMutex
	until time.Time     // end of the lease, by this process's clock
	boot  time.Duration // the same by the clock that counts while the machine sleeps
}

func newTenure(won *term, o Options, config *pgx.ConnConfig, f *failure) *tenure {
	t := &tenure{term: won, lease: o.Lease, config: config.Copy(), failure: f, stop: make(chan struct{}), ended: make(chan struct{})}
	t.config.ConnectTimeout = min(t.config.ConnectTimeout, o.Lease/2)
	t.renewed(won.asked, won.boot)
	return t
}

// renewed notes a lease that was asked for at an instant.
func (t *tenure) renewed(asked time.Time, boot columns.Boot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until, t.boot = asked.Add(t.lease), boot.Since+t.lease
}

// lasts reports whether the lease goes on, also by the clock that counts while the machine sleeps.
func (t *tenure) lasts() bool { return t.left() > 0 }

// left returns how much of the lease is left, by the clock that has less.
func (t *tenure) left() time.Duration {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return max(0, min(time.Until(t.until), t.boot-columns.MachineClock().Since))
}

// run beats until the term is resigned or over.
func (t *tenure) run() {
	defer close(t.ended)
	ticker := time.NewTicker(t.lease / beats)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-t.stop:
			return
		case <-t.failure.ended:
			return
		}
		asked, boot := time.Now(), columns.MachineClock()
		switch server, lost, err := t.ask(); {
		case err == nil && t.term.server != "" && server != t.term.server && !t.lasts():
			// Another replica may have had the calls since, in a term that the server has lost: that replica notes it. A synchronous
			// standby has it. The writer notes it if commits of this term are lost as well.
			t.compare()
			t.failure.set(fmt.Errorf("%w: the server is another one since the lease ran out", ErrTermOver))
		case err == nil:
			t.term.server = server
			t.renewed(asked, boot)
			if lost && t.restated.Load() { // it was noted after this owner had recovered
				t.compare()
			}
		case errors.Is(err, pgx.ErrNoRows):
			t.failure.set(ErrTermOver)
		case !isAway(err):
			t.failure.set(err)
		}
	}
}

// ask asks for the lease, and returns the timeline, and whether a loss of commits is noted. Each try has a beat of its own, so a view of it was made after
// the try began. The error is pgx.ErrNoRows if the term is over.
func (t *tenure) ask() (server string, lost bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.lease/2)
	defer cancel()
	if t.conn == nil || t.conn.IsClosed() {
		if t.conn, err = pgx.ConnectConfig(ctx, t.config); err != nil {
			t.conn = nil
			return "", false, err
		}
	}
	err = t.conn.QueryRow(ctx, "UPDATE lease SET beat = beat + 1 WHERE epoch = $1 AND owner = $2 AND NOT exited RETURNING "+timeline+", (SELECT lost FROM fence)", t.term.epoch, t.term.id).Scan(&server, &lost)
	return server, lost, err
}

// resign ends the beats; if clean, also the term: nothing of it is in flight.
func (t *tenure) resign(clean bool) {
	close(t.stop)
	<-t.ended
	// Without a lease another replica may have had the calls, in a term that the server has lost.
	clean = clean && t.failure.get() == nil && (t.lasts() || t.term.server == "")
	ctx, cancel := context.WithTimeout(context.Background(), t.lease)
	defer cancel()
	if t.conn == nil && clean {
		t.conn, _ = pgx.ConnectConfig(ctx, t.config)
	}
	if t.conn == nil {
		return
	}
	if clean { // else, or after an error, the lease runs out
		t.conn.Exec(ctx, "UPDATE lease SET owner = '' WHERE epoch = $1 AND owner = $2", t.term.epoch, t.term.id)
		t.conn.Exec(ctx, sendNotice, fleetNotice)
	}
	t.conn.Close(ctx)
}
