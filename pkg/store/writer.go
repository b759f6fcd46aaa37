package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	maxBatch = 1024 // changes of one transaction, at most
	// The log is moved into the file when it has so many pages of 4 KiB: in an idle
	// moment, or at the latest.
	idleLog  = 500
	longLog  = 8000
	idleTime = 20 * time.Millisecond
)

// An op is a change. Its run returns the answer for whoever handed it over, and the
// error that ends the transaction.
type op struct {
	run       func(w *writer) (answer, err error)
	essential bool // has room when the disk is full
	answer    error
	done      chan struct{}
}

// A writer is the one goroutine that changes the file.
type writer struct {
	*DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	logged     int  // pages since the log was moved
	tight      bool // leave out what is not needed: the reserve is used up
}

func newWriter(d *DB) (*writer, error) {
	conn, err := d.write.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	return &writer{DB: d, conn: conn, statements: make(map[string]*sql.Stmt)}, nil
}

// do hands a change over and waits until it is on disk.
func (d *DB) do(ctx context.Context, o *op) error {
	o.done = make(chan struct{})
	select {
	case <-d.broken:
		return d.failure
	default:
	}
	select {
	case d.ops <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ended:
		return d.gone()
	}
	select {
	case <-o.done:
		return o.answer
	case <-d.ended:
		select { // it may have been the last
		case <-o.done:
			return o.answer
		default:
			return d.gone()
		}
	}
}

func (d *DB) gone() error {
	select {
	case <-d.broken:
		return d.failure
	default:
		return fmt.Errorf("store: %s: is closed", d.path)
	}
}

// run writes batches until the store is closed or has failed.
func (w *writer) run() {
	defer close(w.ended)
	defer w.release()
	batch := make([]*op, 0, maxBatch)
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		batch = batch[:0]
		if w.logged > idleLog {
			idle.Reset(idleTime)
		}
		select {
		case o := <-w.ops:
			batch = append(batch, o)
		case <-idle.C:
			if err := w.moveLog(idleLog); err != nil {
				w.fail(err)
				return
			}
			continue
		case <-w.stop:
			if batch = w.drain(batch); len(batch) == 0 {
				w.unclean = errors.Join(w.finish(), w.moveLog(0))
				return
			}
		}
		batch = w.gather(batch)
		if err := w.handle(batch); err != nil {
			w.fail(err)
			for _, o := range append(batch, w.drain(nil)...) {
				o.answer = w.failure
				close(o.done)
			}
			return
		}
		for _, o := range batch {
			close(o.done)
		}
		if err := w.moveLog(longLog); err != nil {
			w.fail(err)
			return
		}
	}
}

// release gives the connection back. A statement left open would keep the file open.
func (w *writer) release() {
	for _, s := range w.statements {
		s.Close()
	}
	w.conn.Close()
}

// gather takes what queued while the last transaction was synced, and what those
// hand over next who have just been answered: else they would wait while the first
// few of them are synced.
func (w *writer) gather(batch []*op) []*op {
	for {
		before := len(batch)
		runtime.Gosched()
		if batch = w.drain(batch); len(batch) == before {
			return batch
		}
	}
}

// drain takes what is there.
func (w *writer) drain(batch []*op) []*op {
	for len(batch) < maxBatch {
		select {
		case o := <-w.ops:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// handle commits a batch, of which on a full disk only what is essential.
func (w *writer) handle(batch []*op) error {
	if w.reserve.spent && w.reserve.lacking() {
		return w.squeeze(batch)
	}
	err := w.commit(batch)
	if !isFull(err) {
		return err
	}
	w.options.Log.Warn("the disk is full; nothing new is accepted until there is room", "store", w.path)
	w.reserve.give()
	return w.squeeze(batch)
}

// squeeze commits what is essential, if need be without the answers' bodies.
func (w *writer) squeeze(batch []*op) error {
	var rest []*op
	for _, o := range batch {
		if o.essential {
			rest = append(rest, o)
		} else {
			o.answer = scheduler.ErrFull
		}
	}
	if len(rest) == 0 {
		return nil
	}
	err := w.commit(rest)
	if isFull(err) {
		w.tight = true
		err = w.commit(rest)
		w.tight = false
	}
	if isFull(err) {
		for _, o := range rest {
			o.answer = scheduler.ErrFull
		}
		return nil
	}
	return err
}

// commit runs a batch as one transaction. An error that is not a full disk leaves
// it open whether the batch is on disk.
func (w *writer) commit(batch []*op) error {
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, o := range batch {
		var err error
		if o.answer, err = o.run(w); err != nil {
			return w.rollback(err)
		}
	}
	if err := w.exec("INSERT INTO meta VALUES ('mark', ?1) ON CONFLICT DO UPDATE SET value = max(value, ?1)", micros(time.Now())); err != nil {
		return w.rollback(err)
	}
	if err := w.exec("COMMIT"); err != nil {
		return w.rollback(err)
	}
	return w.conn.Raw(func(c any) error {
		pages, _, err := c.(sqlite.DBStatus).Status(sqlite.DBStatusCacheWrite, true)
		w.logged += pages
		return err
	})
}

// rollback ends a transaction that met an error; one may have ended by itself.
func (w *writer) rollback(err error) error {
	w.exec("ROLLBACK")
	return err
}

// moveLog moves the log into the file if it has more pages than that. SQLite would
// do it by itself, and say nothing of a sync that failed.
func (w *writer) moveLog(pages int) error {
	if w.logged <= pages {
		return nil
	}
	w.logged = 0
	var busy, log, moved int
	err := w.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &moved)
	if isFull(err) {
		w.reserve.give()
		return nil
	}
	return err
}

func isFull(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL
}

// prepared returns a statement, compiled once.
func (w *writer) prepared(query string) (*sql.Stmt, error) {
	s := w.statements[query]
	if s == nil {
		var err error
		if s, err = w.conn.PrepareContext(context.Background(), query); err != nil {
			return nil, err
		}
		w.statements[query] = s
	}
	return s, nil
}

func (w *writer) exec(query string, args ...any) error {
	_, err := w.changed(query, args...)
	return err
}

// changed runs a statement and returns how many rows it changed.
func (w *writer) changed(query string, args ...any) (int64, error) {
	s, err := w.prepared(query)
	if err != nil {
		return 0, err
	}
	r, err := s.Exec(args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// one reads one row; sql.ErrNoRows if there is none.
func (w *writer) one(query string, args []any, to ...any) error {
	s, err := w.prepared(query)
	if err != nil {
		return err
	}
	return s.QueryRow(args...).Scan(to...)
}
