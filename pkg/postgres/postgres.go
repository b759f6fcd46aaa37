// Package postgres keeps calls, and quota usage, in PostgreSQL: the durable store of programs that
// take over from each other.
//
//	db, err := postgres.Open(ctx, "postgres://throttler@db.internal/throttler", postgres.Options{})
//	s, err := scheduler.New(scheduler.Config{Store: db, …}) // closes it
//
// A process that waits for its turn, and meets the others meanwhile, calls [Join] and [Member.Claim] instead of [Open].
// [SubmitTx] hands a call over in a transaction of any program.
//
// # Terms
//
// One process at a time, the owner, has the calls. Its term begins when [Open] returns, and ends
// with Close, or when another process follows it. The owner renews its lease by beats. A process
// that has seen the same beat for longer than the lease, by its own clock, may follow: no clock
// is shared. The owner sends nothing after the end of its lease ([DB.Allowed]), which it counts from the
// instant before it asked for the last one.
//
// Each transaction of an owner begins with its fence: a change of a row that has the epoch of the
// term, and takes no effect under another one. It also counts the transactions. If the answer to a COMMIT is
// lost, the count tells whether it took effect, and the transaction is neither lost nor made twice.
//
// After a crash short limits hold back until the attempts of the last owner, which may still run,
// cannot count any more: the end of its lease, its time-out, late and a window. After Close nothing is
// held back that is not out.
//
// # Promises
//
// A method that returns without an error has its change committed, with synchronous_commit on.
// One goroutine writes; the changes that arrive during a transaction go into the next one together.
// PostgreSQL must keep the commits that it has confirmed: fsync is on, and a standby that takes its
// place is a synchronous one.
//
// While the server is away new calls are refused at once. Attempts in flight end, and their outcomes are stored
// when it is back. If the term has ended meanwhile, they are unknown to the next owner.
//
// The schema is throttler, made and brought up to date by [Open]. Each row has a checksum, and with
// Options.SealKey requests, responses and values of keys are encrypted, as in a file of package store.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Defaults of [Options] whose fields are zero, and the bounds of Lease.
const (
	DefaultKeepCalls = 7 * 24 * time.Hour
	DefaultKeepKeys  = 24 * time.Hour
	DefaultKeepAudit = 400 * 24 * time.Hour
	DefaultLease     = 2 * time.Second

	MinLease = 500 * time.Millisecond
	MaxLease = 30 * time.Second
)

// Options configure a store.
type Options struct {
	// KeepCalls, KeepKeys and KeepAudit are as in package store.
	KeepCalls, KeepKeys, KeepAudit time.Duration
	// SealKey, if not nil, has the 32 bytes of the key that encrypts requests, responses and values
	// of keys (AES-256-GCM), and that each row is bound to (HMAC-SHA-256). All replicas have the same.
	SealKey []byte
	// Password is that of the role; empty: the URL's, PGPASSWORD or .pgpass.
	Password string
	// Lease is how long an owner that has fallen silent keeps its term: 500 ms to 30 s.
	Lease time.Duration
	// Name is that of the replica, for people; empty: the host's.
	Name string
	// Address, Pin and Version are as in [Replica]. An Address without a host, such as :9191, has that of this host on
	// the way to the server.
	Address, Pin, Version string
	// Config is the hash of the replica's limits at its start; see [Member.Configured].
	Config string
	// Wait lets [Open] wait while another replica has the term, until ctx ends. Without it
	// Open waits for a lease and a half, and fails if the owner lives.
	Wait bool
	// Log gets the warnings for an operator; nil means slog.Default().
	Log *slog.Logger
}

// withDefaults fills in the fields that are zero.
func (o Options) withDefaults() (Options, error) {
	if o.KeepCalls == 0 {
		o.KeepCalls = DefaultKeepCalls
	}
	if o.KeepKeys == 0 {
		o.KeepKeys = min(DefaultKeepKeys, o.KeepCalls)
	}
	if o.KeepAudit == 0 {
		o.KeepAudit = DefaultKeepAudit
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	switch {
	case o.KeepKeys > o.KeepCalls:
		return o, fmt.Errorf("keys are kept for %v, longer than the calls that they name (%v)", o.KeepKeys, o.KeepCalls)
	case o.Lease < MinLease || o.Lease > MaxLease:
		return o, fmt.Errorf("the lease is %v, must be from %v to %v", o.Lease, MinLease, MaxLease)
	}
	return o, nil
}

// A DB is a scheduler.Durable in PostgreSQL. It is safe for concurrent use.
//
// Its reader has the methods that only read. The others hand a change to its writer, the one
// goroutine that changes calls. The tenure renews the lease.
type DB struct {
	*reader
	*inbox
	own    bool // the member leaves with Close
	clock  columns.Clock
	writer *writer
	tenure *tenure
	after  time.Time // the last owner may have begun attempts until then; zero: its term has ended
	lost   bool      // the server has lost commits before this term
	doubts int       // calls that became unknown by it
	beside sync.WaitGroup

	closing atomic.Bool
	ended   chan struct{} // closed when Close has ended it
	closed  error         // result of Close
}

var _ scheduler.Durable = (*DB)(nil)

// Open joins a fleet and claims its calls: see [Join] and [Member.Claim].
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	m, err := Join(ctx, url, o)
	if err != nil {
		return nil, err
	}
	d, err := m.Claim(ctx)
	if err != nil {
		m.Leave()
		return nil, err
	}
	d.own = true
	return d, nil
}

var _ scheduler.Leased = (*DB)(nil)

// Before tells how the term before this one has ended: clean, crash or buried.
func (d *DB) Before() string {
	switch t := d.tenure.term; {
	case t.exited:
		return "buried"
	case t.follows:
		return "crash"
	}
	return "clean"
}

// Lost reports whether the server had lost commits that it had confirmed when this term began, and how many calls that waited
// are unknown because of it. It is known after [DB.Recover]. Terms after a loss report it, until one of them has stored the
// limits that are full because of it.
func (d *DB) Lost() (unknown int, lost bool) { return d.doubts, d.lost }

// Lease returns how much is left of the lease; 0 if the term is over.
func (d *DB) Lease() time.Duration {
	if d.failure.get() != nil {
		return 0
	}
	return d.tenure.left()
}

// Trips returns how many times the store of this term and its registry have asked the server something and waited for the
// answer.
func (d *DB) Trips() int64 { return d.member.trips.Load() }

// Failed implements [scheduler.Durable].
func (d *DB) Failed() <-chan struct{} { return d.failure.ended }

// Allowed reports whether the term goes on: an attempt may begin now.
func (d *DB) Allowed() bool { return d.tenure.lasts() && d.failure.get() == nil }

// giveUpTime is how long a server may be away at the end of a bound.
const giveUpTime = 5 * time.Second

// GiveUpAfter implements [scheduler.Leased]. It ends the term 5 s after ctx, or later, if the server is away then.
func (d *DB) GiveUpAfter(ctx context.Context) (stop func()) {
	stopped := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-ctx.Done():
		case <-stopped:
			return
		}
		for {
			select {
			case <-time.After(giveUpTime):
				if d.writer.away.Load() != nil {
					d.failure.set(fmt.Errorf("%w: %w, and the time of the stop is over", ErrTermOver, errAway))
				}
			case <-stopped:
				return
			}
		}
	})
	return func() {
		close(stopped)
		waiting.Wait()
	}
}

// Close ends the term. The changes handed over before are committed, unless the server is away.
func (d *DB) Close() error {
	if d.closing.Swap(true) {
		<-d.ended
		return d.closed
	}
	defer close(d.ended)
	close(d.writer.stop)
	<-d.writer.ended
	d.tenure.resign(d.writer.closed == nil && (d.tenure.restated.Load() || !d.tenure.term.follows))
	d.beside.Wait()
	if d.own {
		d.member.Leave()
	}
	d.closed = d.writer.closed
	return d.closed
}

// parse returns the settings of a pool for readers.
func parse(address string, o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("postgres: the address of the server cannot be read%s; it is as in postgres://throttler@db.internal:5432/throttler?sslmode=verify-full", cause(address, err))
	}
	c := config.ConnConfig
	if mode := c.DefaultQueryExecMode; mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol {
		return nil, fmt.Errorf("postgres: the address of the server has default_query_exec_mode=%s, by which parameters are sent without their types; leave it out", strings.ReplaceAll(mode.String(), " ", "_"))
	}
	if o.Password != "" {
		c.Password = o.Password
	}
	if c.ConnectTimeout == 0 || c.ConnectTimeout > dialTimeout {
		c.ConnectTimeout = dialTimeout
	}
	c.RuntimeParams["search_path"] = "throttler"
	c.RuntimeParams["application_name"] = "throttler " + o.Name
	c.RuntimeParams["synchronous_commit"] = "on"
	c.RuntimeParams["default_transaction_isolation"] = "read committed"
	c.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(o.Lease.Milliseconds())
	for _, timeout := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		c.RuntimeParams[timeout] = "0" // of the role; the store has its own
	}
	config.MaxConns, config.MinIdleConns = 4, 1
	return config, nil
}

// cause returns why the URL of a server cannot be read. It is empty where the text may have a part of a password: if it is
// not certain which part of the URL is one.
func cause(address string, err error) string {
	u, broken := url.Parse(address)
	certain := broken == nil && u.Host != "" && strings.Count(address, "@") <= 1 && (u.User != nil || !strings.Contains(address, "@")) &&
		!u.Query().Has("password") && !u.Query().Has("sslpassword")
	var parsing *pgconn.ParseConfigError
	if !certain || !errors.As(err, &parsing) {
		return ""
	}
	text := parsing.Error()
	at := strings.LastIndex(text, "`: ") // behind the URL
	if at < 0 {
		return ""
	}
	text = text[at+len("`: "):]
	if password, _ := u.User.Password(); password != "" && strings.Contains(text, password) {
		return ""
	}
	return ": " + text
}

// A tripCounter counts the round trips of connections.
type tripCounter struct{ atomic.Int64 }

func (c *tripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

func (*tripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.Add(1)
	return ctx
}

func (*tripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*tripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// dialTimeout bounds the time in which a connection is made.
const dialTimeout = 5 * time.Second

// place names a server for people, without user and password.
func place(c *pgx.ConnConfig) string { return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database) }
