// Package store keeps calls, and quota usage, in one SQLite file: the
// durable store of sidecar and embedder alike.
//
//	db, err := store.Open("throttler.db", store.Options{})
//	s, err := scheduler.New(scheduler.Config{Store: db, …}) // closes it
//
// [Open] is the one call that most programs need. [Read] opens a file without
// changing it, also while a process has it.
//
// # Promises
//
// A method that returns without an error has its change on disk: written to the
// write-ahead log and synced. One goroutine writes; the changes that arrive during
// a sync go into the next transaction together. So many callers share a sync, and
// one caller waits for no timer.
//
// # When the disk fails
//
// After a failed sync the contents of the disk are unknown, and SQLite would go on.
// So the first error of the disk, except a full one, ends the store: every later
// change returns scheduler.ErrBroken. The next Open checks the file. Every row has a
// checksum; one that does not match ends the store too, before anything is sent.
//
// On a full disk new calls get scheduler.ErrFull. The store then deletes a file of
// 16 MiB beside it (-reserve), so that the outcomes of attempts in flight can be
// recorded. It makes the file again when there is room; until then it accepts no
// call, and no attempt begins.
//
// # What it does not promise
//
// A file belongs to one process; a lock (-lock) refuses a second one. Other programs
// may read it meanwhile: sqlite3 throttler.db 'SELECT * FROM readable'.
//
// A copy is a past state, and would send again. So a file knows its inode, and the lock's
// file the last commit: [Open] refuses a copy, and an older file in the same place, unless
// Options.Restored is given. It cannot see that a whole volume was put back.
//
// The disk must keep the writes that it has confirmed. Files are made with mode 0600;
// bodies are in the clear unless Options.SealKey is given. Then each row is bound to the
// key; rows that are deleted, or put back as they were, are not noticed.
package store

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Defaults of [Options] whose fields are zero.
const (
	DefaultKeepCalls = 7 * 24 * time.Hour
	DefaultKeepKeys  = 24 * time.Hour
	DefaultKeepAudit = 400 * 24 * time.Hour
)

// Options configure a store.
type Options struct {
	// KeepCalls is how long finished calls and their responses are kept.
	KeepCalls time.Duration
	// KeepKeys is how long idempotency keys are kept after the end of their calls; at
	// most KeepCalls.
	KeepKeys time.Duration
	// KeepAudit is how long records of the audit are kept.
	KeepAudit time.Duration
	// SealKey, if not nil, has the 32 bytes of the key that encrypts requests, responses
	// and values of keys (AES-256-GCM), and that each row is bound to (HMAC-SHA-256).
	SealKey []byte
	// Seal lets [Open] seal a file with SealKey that has rows already: in the clear, or
	// sealed by an older program, which did not bind rows to the key. Without it [Open]
	// refuses such a file: rows that others have written would pass for the store's own.
	Seal bool
	// Log gets the warnings for an operator; nil means slog.Default().
	Log *slog.Logger
	// Restored opens a copy of a store as the store itself. A copy is a past state, so its
	// calls that waited or were being sent become unknown, and limits are full for a window.
	// Give it for one start, and while nothing serves from the original. Without it [Open]
	// refuses a file that is a copy, or is older than the store was when it was last here.
	Restored bool

	boot    func() columns.Boot // for tests
	fileID  string              // that of every file, for tests: a copy passes for the file itself
	vfs     string              // SQLite's file layer, for tests
	raw     string              // pragmas instead of synchronous, for tests
	reserve int64               // bytes, for tests
	longLog int                 // pages, for tests
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
	if o.KeepKeys > o.KeepCalls {
		return o, fmt.Errorf("store: keys are kept for %v, longer than the calls that they name (%v)", o.KeepKeys, o.KeepCalls)
	}
	if o.reserve == 0 {
		o.reserve = reserveSize
	}
	if o.longLog == 0 {
		o.longLog = longLog
	}
	if o.boot == nil {
		o.boot = columns.MachineClock
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}

// A DB is a scheduler.Durable in a file. It is safe for concurrent use.
//
// Its reader has the methods that only read. The others hand a change to its
// writer, the one goroutine that changes the file; its sweeper does so too.
type DB struct {
	*reader
	clock     columns.Clock
	writer    *writer
	sweeper   sync.WaitGroup
	writePool *sql.DB // of one connection, the writer's
	lock      *flock.Flock
	note      note
	identity  *identity

	closing sync.Once
	closed  error // result of Close
}

var _ scheduler.Durable = (*DB)(nil)

// Open opens a file, or makes it. It fails if another process has it, if it is
// damaged, or if it was written by a newer program.
func Open(path string, o Options) (*DB, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	codec, err := columns.NewCodec(o.SealKey)
	if err != nil {
		return nil, err
	}
	file, err := locate(path)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	d := &DB{clock: columns.Clock{Start: time.Now(), Boot: o.boot}, reader: &reader{codec: codec, failure: newFailure(file), keepKeys: o.KeepKeys}, lock: flock.New(file + "-lock")}
	if err := d.open(file, o); err != nil {
		d.release()
		return nil, fmt.Errorf("store: %s: %w", path, explain(err))
	}
	return d, nil
}

// Failed implements [scheduler.Durable].
func (d *DB) Failed() <-chan struct{} { return d.failure.ended }

// Close ends the store. The changes handed over before are on disk.
func (d *DB) Close() error {
	d.closing.Do(func() {
		close(d.writer.stop)
		d.sweeper.Wait()
		<-d.writer.ended
		d.closed = errors.Join(d.writer.closed, d.release())
	})
	return d.closed
}

// release closes the connections, then the locks: SQLite loses its own when the process
// closes the file.
func (d *DB) release() error {
	var err error
	for _, pool := range []*sql.DB{d.reader.db, d.writePool} {
		if pool != nil {
			err = errors.Join(err, pool.Close())
		}
	}
	if d.identity != nil {
		err = errors.Join(err, d.identity.file.Close())
	}
	if d.note.file != nil {
		err = errors.Join(err, d.note.file.Close())
	}
	return errors.Join(err, d.lock.Close())
}
