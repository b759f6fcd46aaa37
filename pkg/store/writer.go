package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	maxBatch  = 1024 // changes of one transaction, at most
	fullBatch = 100  // so many take longer than a sync: what is not there yet is not waited for

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
	conn    *sql.Conn
	queries map[string]*sql.Stmt   // compiled
	changes map[string]driver.Stmt // likewise
	args    []driver.NamedValue    // of the change that is made
	logged  int                    // pages since the log was moved
	tight   bool                   // leave out what is not needed: the reserve is used up
}

func newWriter(d *DB) (*writer, error) {
	conn, err := d.write.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	return &writer{DB: d, conn: conn, queries: make(map[string]*sql.Stmt), changes: make(map[string]driver.Stmt)}, nil
}

// do hands a change over and waits until it is on disk.
func (d *DB) do(ctx context.Context, o *op) error {
	o.done = make(chan struct{})
	if d.isBroken() {
		return d.failure
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
	if d.isBroken() {
		return d.failure
	}
	return fmt.Errorf("store: %s: is closed", d.path)
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
		var err error
		select {
		case o := <-w.ops:
			batch = w.gather(append(batch, o))
			err = w.handle(batch)
		case <-idle.C:
			err = w.moveLog()
		case <-w.broken: // by a reader
		case <-w.stop:
			switch batch = w.drain(batch); {
			case len(batch) > 0:
				err = w.handle(batch)
			case !w.isBroken():
				w.unclean = errors.Join(w.finish(), w.moveLog())
				return
			}
		}
		if w.isBroken() {
			err = errors.Join(err, w.failure)
		}
		if err != nil {
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
		if w.logged > w.options.longLog {
			if err := w.moveLog(); err != nil {
				w.fail(err)
				return
			}
		}
	}
}

func (d *DB) isBroken() bool {
	select {
	case <-d.broken:
		return true
	default:
		return false
	}
}

// release gives the connection back. A statement left open would keep the file open.
func (w *writer) release() {
	for _, s := range w.queries {
		s.Close()
	}
	for _, s := range w.changes {
		s.Close()
	}
	w.conn.Close()
}

// gather takes what queued while the last transaction was synced, and what those
// hand over next who have just been answered: else they would wait while the first
// few of them are synced.
func (w *writer) gather(batch []*op) []*op {
	for before := 0; len(batch) > before && len(batch) < fullBatch; {
		before = len(batch)
		runtime.Gosched()
		batch = w.drain(batch)
	}
	return batch
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

// moveLog moves the log into the file. SQLite would do it by itself, and say nothing of
// a sync that failed.
func (w *writer) moveLog() error {
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

// prepared returns a query, compiled once.
func (w *writer) prepared(query string) (*sql.Stmt, error) {
	s := w.queries[query]
	if s == nil {
		var err error
		if s, err = w.conn.PrepareContext(context.Background(), query); err != nil {
			return nil, err
		}
		w.queries[query] = s
	}
	return s, nil
}

func (w *writer) exec(query string, args ...any) error {
	_, err := w.changed(query, args...)
	return err
}

// changed runs a statement and returns how many rows it changed. It does so on the
// driver's own connection: a change has many values, and most of what database/sql
// does for each is not needed.
func (w *writer) changed(query string, args ...any) (n int64, err error) {
	w.args = w.args[:0]
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return 0, err
		}
		w.args = append(w.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	err = w.conn.Raw(func(c any) (err error) {
		s := w.changes[query]
		if s == nil {
			if s, err = c.(driver.ConnPrepareContext).PrepareContext(context.Background(), query); err != nil {
				return err
			}
			w.changes[query] = s
		}
		r, err := s.(driver.StmtExecContext).ExecContext(context.Background(), w.args)
		if err == nil {
			n, err = r.RowsAffected()
		}
		return err
	})
	return n, err
}

// one reads one row; sql.ErrNoRows if there is none.
func (w *writer) one(query string, args []any, to ...any) error {
	s, err := w.prepared(query)
	if err != nil {
		return err
	}
	return s.QueryRow(args...).Scan(to...)
}
