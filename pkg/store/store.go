// Package store keeps calls, and the use of the quota, in one SQLite file: the
// durable store of sidecar and embedder alike.
//
//	db, err := store.Open("throttler.db", store.Options{})
//	s, err := scheduler.New(scheduler.Config{Store: db, …}) // closes it
//
// [Open] is the one call that most programs need. [Read] looks into a file without
// changing it, also while a process has it.
//
// # What is promised
//
// A method that returns without an error has its change on disk: written to the
// write-ahead log and synced. One goroutine writes; what is handed over while it
// syncs goes into the next transaction together, so many callers share a sync and
// one caller waits for no timer.
//
// # When the disk fails
//
// After a failed sync nobody knows what is on disk, and SQLite would go on. So the
// first error of the disk, but for a full one, ends the store: every change after
// it returns scheduler.ErrBroken. The next Open checks the file. Every row has a
// checksum; one that does not match ends the store too, before anything is sent.
//
// On a full disk new calls get scheduler.ErrFull. A file of 16 MiB beside the
// store (-reserve) is then given up, so that what is in flight can be recorded,
// and taken again when there is room: until then nothing new is accepted or sent.
//
// # What it does not do
//
// A file belongs to one process; a second one is refused by a lock (-lock). Anybody
// may read it meanwhile: sqlite3 throttler.db 'SELECT * FROM readable'. The disk
// must keep what it has confirmed. Files are made with mode 0600; bodies are in the
// clear unless Options.SealKey is given.
package store

import (
	"context"
	"crypto/cipher"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver: no C compiler, no server
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Defaults of [Options] whose fields are zero.
const (
	DefaultKeepCalls = 7 * 24 * time.Hour
	DefaultKeepKeys  = 24 * time.Hour
)

// oldest is the first SQLite without the bug that loses a reset of the log.
const oldest = 3_051_003

// Options say how a file is kept.
type Options struct {
	// KeepCalls is how long finished calls and their answers are kept.
	KeepCalls time.Duration
	// KeepKeys is how long idempotency keys are kept after their calls have ended; at most KeepCalls.
	KeepKeys time.Duration
	// SealKey, if not nil, are 32 bytes that seal requests and answers with AES-256-GCM.
	SealKey []byte
	// Log gets what an operator should know; nil means slog.Default().
	Log *slog.Logger

	vfs     string // of SQLite, for tests
	raw     string // pragmas instead of synchronous, for tests
	reserve int64  // bytes, for tests
	longLog int    // pages, for tests
}

// A DB is a scheduler.Durable in a file. It is safe for concurrent use.
type DB struct {
	path    string
	options Options
	seal    cipher.AEAD // nil: in the clear
	lock    *flock.Flock
	reserve *reserve
	write   *sql.DB
	read    *sql.DB

	ops     chan *op
	stop    chan struct{} // closed by Close
	ended   chan struct{} // closed when the writer has ended
	close   sync.Once
	closed  error
	broken  chan struct{} // closed when the store has failed
	failing sync.Once
	failure error
	unclean error // of the last change, owned by the writer until it has ended

	epoch   int64 // owned by the writer
	sweeper sync.WaitGroup
}

var _ scheduler.Durable = (*DB)(nil)

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens a file, or makes it. It fails if another process has it, if it is
// damaged, or if it was written by a newer program.
func Open(path string, o Options) (*DB, error) {
	if o.KeepCalls == 0 {
		o.KeepCalls = DefaultKeepCalls
	}
	if o.KeepKeys == 0 {
		o.KeepKeys = min(DefaultKeepKeys, o.KeepCalls)
	}
	if o.KeepKeys > o.KeepCalls {
		return nil, fmt.Errorf("store: keys are kept for %v, longer than the calls that they name (%v)", o.KeepKeys, o.KeepCalls)
	}
	if o.reserve == 0 {
		o.reserve = reserveSize
	}
	if o.longLog == 0 {
		o.longLog = longLog
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	file, err := resolved(path)
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", path, err)
	}
	d := &DB{
		path: file, options: o, lock: flock.New(file + "-lock"), reserve: &reserve{path: file + "-reserve", size: o.reserve},
		ops: make(chan *op, maxBatch), stop: make(chan struct{}), ended: make(chan struct{}), broken: make(chan struct{}),
	}
	if d.seal, err = newSeal(o.SealKey); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		d.release()
		return nil, fmt.Errorf("store: %s: %w", path, explain(err))
	}
	return d, nil
}

// resolved returns the path without symbolic links: one file has one lock, by
// whatever name it is opened.
func resolved(path string) (string, error) {
	file, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // the file is to be made
	return filepath.Join(dir, filepath.Base(path)), err
}

// open does what Open does after its arguments are checked; release undoes it.
func (d *DB) open() error {
	if err := create(d.path + "-lock"); err != nil {
		return err
	}
	if ours, err := d.lock.TryLock(); err != nil {
		return err
	} else if !ours {
		return errors.New("is in use by another process; stop that one, or give this one a file of its own")
	}
	if err := create(d.path); err != nil {
		return err
	}
	sync := "_pragma=synchronous(FULL)"
	if d.options.raw != "" {
		sync = d.options.raw
	}
	var err error
	// A log that grew while somebody read in it for long is cut to 64 MiB afterwards.
	if d.write, err = sql.Open("sqlite", d.dsn("_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)&_pragma=journal_size_limit(67108864)&"+sync)); err != nil {
		return err
	}
	d.write.SetMaxOpenConns(1)
	if d.read, err = sql.Open("sqlite", d.dsn("_pragma=query_only(1)")); err != nil {
		return err
	}
	d.read.SetMaxOpenConns(4)
	d.read.SetMaxIdleConns(4)
	clean, err := d.prepare()
	if err != nil {
		return err
	}
	if err := d.verify(clean); err != nil {
		return err
	}
	if err := d.reserve.take(); err != nil {
		d.options.Log.Warn("the disk is full; nothing new is accepted", "store", d.path)
	}
	w, err := newWriter(d)
	if err != nil {
		return err
	}
	go w.run()
	d.sweeper.Go(d.sweep)
	return nil
}

// create makes an empty file that only its owner can read, if there is none.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return os.Chmod(path, 0o600)
	} else if err != nil {
		return err
	}
	f.Close()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // the name must survive as well
}

func (d *DB) dsn(more string) string {
	dsn := "file:" + (&url.URL{Path: d.path}).EscapedPath() + "?_pragma=busy_timeout(10000)&" + more
	if d.options.vfs != "" {
		dsn += "&vfs=" + d.options.vfs
	}
	return dsn
}

// prepare brings the file to this program's schema and tells how it was left.
func (d *DB) prepare() (clean bool, err error) {
	if sqlite3.SQLITE_VERSION_NUMBER < oldest {
		return false, fmt.Errorf("this program was built with SQLite %s, whose log can lose changes; it needs 3.51.3", sqlite3.SQLITE_VERSION)
	}
	var mode string
	if err := d.write.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil {
		return false, err
	}
	if mode != "wal" { // SQLite keeps to itself that it could not
		return false, fmt.Errorf("cannot be given a write-ahead log (its journal is %q): the disk fails, or another program has the file open", mode)
	}
	if d.write.QueryRow("SELECT value FROM meta WHERE name = 'clean'").Scan(&clean) != nil {
		clean = false // a new file, or a damaged one
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return false, err
	}
	steps, err := goose.NewProvider(goose.DialectSQLite3, d.write, files)
	if err != nil {
		return false, err
	}
	now, latest, err := steps.GetVersions(context.Background())
	if err != nil {
		return false, err
	}
	if err := newer(now, latest); err != nil {
		return false, err
	}
	if now < latest {
		if _, err = steps.Up(context.Background()); err != nil {
			return false, err
		}
		// The library tries again after an error. Whatever it met, the tables are
		// written once more and synced before a call is accepted.
		var busy, log, moved int
		if err := d.write.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved); err != nil {
			return false, err
		}
	}
	if sealed, err := d.knowKey(d.write); sealed || err != nil || d.seal == nil {
		return clean, err
	}
	proof := &content{}
	if err := d.shut(proof, "store", "proof"); err != nil {
		return false, err
	}
	_, err = d.write.Exec("INSERT INTO meta VALUES ('seal', ?)", proof.sealed)
	return clean, err
}

// knowKey tells whether the file is sealed, and makes sure that it is with our key.
func (d *DB) knowKey(db *sql.DB) (sealed bool, err error) {
	var proof []byte
	err = db.QueryRow("SELECT value FROM meta WHERE name = 'seal'").Scan(&proof)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case d.seal == nil:
		return true, errors.New("holds sealed calls; give the key with which they were sealed")
	}
	if _, err := d.seal.Open(nil, proof[:d.seal.NonceSize()], proof[d.seal.NonceSize():], []byte("proof store")); err != nil {
		return true, errors.New("was sealed with another key; give that one")
	}
	return true, nil
}

// smallFile is what can be checked at every start.
const smallFile = 8 << 20

// verify looks for damage: always after a life that did not end cleanly, and in a
// small file. What it does not see the rows' checksums do.
func (d *DB) verify(clean bool) error {
	if info, err := os.Stat(d.path); err != nil || clean && info.Size() > smallFile {
		return err
	}
	var found string
	if err := d.write.QueryRow("PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("is damaged: %s; nothing was sent: %s", found, mend)
	}
	return nil
}

// Close ends the store. What was handed over before is on disk.
func (d *DB) Close() error {
	d.close.Do(func() {
		close(d.stop)
		d.sweeper.Wait()
		<-d.ended
		d.closed = errors.Join(d.unclean, d.release())
	})
	return d.closed
}

func (d *DB) release() error {
	var err error
	for _, db := range []*sql.DB{d.read, d.write} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return errors.Join(err, d.lock.Close())
}

// fail ends the store: nothing is promised any more.
func (d *DB) fail(err error) {
	d.failing.Do(func() {
		d.failure = fmt.Errorf("%w: %s: %w", scheduler.ErrBroken, d.path, err)
		close(d.broken)
	})
}
