package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	maxBatch  = 1024 // changes of one transaction
	fullBatch = 100  // so many take longer than a sync: the writer waits for no more

	// The writer checkpoints a log of more than idleLog pages of 4 KiB in an idle
	// moment, and one of more than longLog pages at once.
	idleLog  = 500
	longLog  = 8000
	idleTime = 20 * time.Millisecond

	// lockWait is how long another program may hold the write lock, before the store ends.
	lockWait = time.Minute

	// lookEvery is how often an idle writer looks whether the file is still there, and how often
	// it tries to move its first commits into the file.
	lookEvery = time.Second
)

// A change is a part of a transaction.
type change struct {
	// apply returns the error for its caller, and the error that ends the
	// transaction. It runs again if the transaction is tried again.
	apply     func(c *conn) (refused, err error)
	essential bool // it has room when the disk is full

	refused error
	done    chan struct{} // closed when it is on disk, or refused
}

// A writer is the one goroutine that changes the file.
type writer struct {
	path    string
	log     *slog.Logger
	longLog int
	failure *failure
	changes chan *change
	stop    chan struct{} // closed by Close
	ended   chan struct{} // closed when run has returned

	// Owned by run.
	conn     *conn
	doubtful bool // the last batch may be on disk, and cannot be looked up
	identity *identity
	note     note
	reserve  *reserve
	at       position  // of the last commit
	base     position  // the file itself has all commits up to this one
	named    bool      // the file itself says to which file it belongs: a copy without the log is known as one
	rebased  bool      // meta does not know the base yet
	logged   int       // pages since the last checkpoint
	tried    time.Time // at which the last checkpoint began that names the file
	closed   error     // of the last change
}

func newWriter(path string, o Options, c *conn, from origin, f *failure, id *identity, n note, reserve *reserve) *writer {
	return &writer{
		path: path, log: o.Log, longLog: o.longLog, failure: f, conn: c, identity: id, note: n, reserve: reserve,
		at: from.at, base: from.base, rebased: true, named: from.named,
		changes: make(chan *change, maxBatch), stop: make(chan struct{}), ended: make(chan struct{}),
	}
}

// do hands a change over and waits until it is on disk. Its ctx ends only the wait
// for a place in the queue.
func (w *writer) do(ctx context.Context, c *change) error {
	c.done = make(chan struct{})
	if err := w.failure.get(); err != nil {
		return err
	}
	select {
	case w.changes <- c:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
		return w.gone()
	}
	select {
	case <-c.done:
		return c.refused
	case <-w.ended:
		select { // the last batch may have had it
		case <-c.done:
			return c.refused
		default:
			return w.gone()
		}
	}
}

// gone returns why the writer has ended.
func (w *writer) gone() error {
	if err := w.failure.get(); err != nil {
		return err
	}
	return fmt.Errorf("store: %s: is closed", w.path)
}

// run commits batches until the store is closed or has failed.
func (w *writer) run() {
	defer close(w.ended)
	defer w.conn.close()
	batch := make([]*change, 0, maxBatch)
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		batch = batch[:0]
		if w.logged > idleLog {
			idle.Reset(idleTime)
		}
		var err error
		select {
		case c := <-w.changes:
			batch = w.gather(append(batch, c))
		case <-idle.C:
			err = w.checkpoint()
		case <-look.C:
			err = w.identity.check()
		case <-w.failure.ended: // a reader has met it
		case <-w.stop:
			if batch = w.drain(batch); len(batch) == 0 && w.failure.get() == nil {
				w.closed = errors.Join(w.finish(), w.checkpoint())
				return
			}
		}
		if err == nil {
			err = w.failure.get()
		}
		if err == nil && len(batch) > 0 {
			err = w.handle(batch) // a batch on disk is told so, even if a reader meets damage meanwhile
		}
		if err != nil {
			w.failure.set(err)
			err = w.failure.get()
			refuse(w.drain(nil), err)
			if w.doubtful {
				err = inDoubt{err}
			}
			refuse(batch, err)
			return
		}
		for _, c := range batch {
			close(c.done)
		}
		if w.checkpointIsDue(time.Now()) {
			if err := w.checkpoint(); err != nil {
				w.failure.set(err)
				return
			}
		}
	}
}

// refuse ends changes that are not known to be on disk.
func refuse(batch []*change, err error) {
	for _, c := range batch {
		c.refused = err
		close(c.done)
	}
}

// gather adds the changes that queued during the last sync, and the next ones of
// the callers that it has released: else those would wait while the first few of
// them are synced.
func (w *writer) gather(batch []*change) []*change {
	for before := 0; len(batch) > before && len(batch) < fullBatch; {
		before = len(batch)
		runtime.Gosched()
		batch = w.drain(batch)
	}
	return batch
}

// drain adds the changes that are queued.
func (w *writer) drain(batch []*change) []*change {
	for len(batch) < maxBatch {
		select {
		case c := <-w.changes:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// handle commits a batch; on a full disk only the essential part of it.
func (w *writer) handle(batch []*change) error {
	if w.reserve.released && !w.reserve.restored() {
		return w.commitEssential(batch)
	}
	err := w.commit(batch)
	if !isFull(err) {
		return err
	}
	w.log.Warn("the disk is full; nothing new is accepted until there is room", "store", w.path)
	w.reserve.release()
	return w.commitEssential(batch)
}

// commitEssential commits the essential changes of a batch, if need be without the
// responses.
func (w *writer) commitEssential(batch []*change) error {
	var rest []*change
	for _, c := range batch {
		if c.essential {
			rest = append(rest, c)
		} else {
			c.refused = scheduler.ErrFull
		}
	}
	if len(rest) == 0 {
		return nil
	}
	err := w.commit(rest)
	if isFull(err) {
		w.conn.lowSpace = true
		err = w.commit(rest)
		w.conn.lowSpace = false
	}
	if isFull(err) {
		for _, c := range rest {
			c.refused = scheduler.ErrFull
		}
		return nil
	}
	return err
}

// commit runs a batch as one transaction. After an error the writer is doubtful if the batch may be on disk.
func (w *writer) commit(batch []*change) error {
	if err := w.begin(); err != nil {
		return err
	}
	w.conn.added, w.conn.left, w.conn.dropped = w.conn.added[:0], nil, false
	for _, c := range batch {
		var err error
		if c.refused, err = c.apply(w.conn); err != nil {
			return w.rollback(err)
		}
	}
	index, err := extend(w.conn)
	if err != nil {
		return w.rollback(err)
	}
	at, err := w.stamp()
	if err != nil {
		return w.rollback(err)
	}
	w.doubtful = true
	if err := w.conn.exec("COMMIT"); err != nil {
		w.doubtful = !isFull(err)
		return w.rollback(err)
	}
	w.conn.index.committed(index)
	w.committed(at)
	if err := w.identity.check(); err != nil {
		return err
	}
	err = w.conn.Raw(func(c any) error {
		pages, _, err := c.(sqlite.DBStatus).Status(sqlite.DBStatusCacheWrite, true)
		w.logged += pages
		return err
	})
	w.doubtful = err != nil
	return err
}

// stamp puts the position of a commit into its transaction.
func (w *writer) stamp() (at position, err error) {
	if !w.conn.marks {
		return w.at, nil
	}
	m := w.conn.Mark()
	if err := w.conn.set("mark", m.String()); err != nil {
		return at, err
	}
	if w.rebased {
		err = w.conn.set("base", w.base.String())
	}
	return position{w.conn.epoch, m.Steady}, err
}

// committed notes a commit that is on disk. A note that cannot be written stays behind, and
// says less.
func (w *writer) committed(at position) {
	if w.conn.marks {
		w.at, w.rebased = at, false
		w.note.write(w.conn.id, at)
	}
}

// begin begins a transaction. While another program holds the write lock, such as
// sqlite3 for a VACUUM, it waits for lockWait: the file is not damaged.
func (w *writer) begin() error {
	for until := time.Now().Add(lockWait); ; {
		err := w.conn.exec("BEGIN IMMEDIATE")
		if sqliteCode(err) != sqlite3.SQLITE_BUSY || time.Now().After(until) {
			return err
		}
		w.log.Warn("another program holds the write lock of the store; nothing is accepted or sent meanwhile", "store", w.path, "stops_at", until)
	}
}

// rollback ends a transaction after an error, unless SQLite has done so.
func (w *writer) rollback(err error) error {
	w.conn.exec("ROLLBACK")
	w.conn.epoch = w.at.epoch
	return err
}

// checkpointIsDue reports whether a checkpoint is due after a commit. Until the file itself says to
// which file it belongs, it is soon: a reader of another program, or a full disk, may be in the way.
func (w *writer) checkpointIsDue(now time.Time) bool {
	return w.logged > w.longLog || w.conn.marks && !w.named && now.Sub(w.tried) >= lookEvery
}

// checkpoint moves the log into the file. SQLite would do so by itself, but would not
// report a failed sync.
func (w *writer) checkpoint() error {
	w.logged = 0
	if w.conn.marks {
		w.tried = time.Now()
	}
	var busy, log, moved int
	err := w.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &moved)
	if isFull(err) {
		w.reserve.release()
		return nil
	}
	if err == nil && busy == 0 && moved == log {
		w.base, w.rebased = w.at, true
		w.named = w.named || w.conn.marks
	}
	return err
}

// finish commits the last change of a process that closes the file.
func (w *writer) finish() error {
	return w.commit([]*change{{apply: func(c *conn) (refused, err error) {
		backlog, err := c.backlog()
		if err != nil {
			return nil, err
		}
		text, err := encodeBacklog(backlog)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(c.set("backlog", text), c.set("clean", true))
	}}})
}
