package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	maxBatch = 256 // changes of one transaction

	// statementTimeout bounds the silence of a server: a connection is given up after it. A recovery reads and decides
	// all that is in flight.
	statementTimeout = 5 * time.Second
	recoveryTimeout  = 5 * time.Minute
	// retryFirst and retryMost are the pauses between tries to reach a server that is away.
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// A change is a part of a transaction.
type change struct {
	// apply returns the error for its caller, and the error that ends the transaction. It runs
	// again if the transaction is tried again.
	apply     func(t *txn) (refused, err error)
	essential bool                // it waits for a server that is away
	recovery  bool                // it may take as long as recoveryTimeout
	keys      []columns.StoredKey // whose owners apply has to know
	arrival   string              // id of the call that has arrived, and that it takes out of there

	refused error
	done    chan struct{} // closed when it is committed, or refused
}

// A writer is the one goroutine that changes the calls of a term.
type writer struct {
	epoch   int64
	config  *pgx.ConnConfig
	log     *slog.Logger
	failure *failure
	changes chan *change
	stop    chan struct{}         // closed by Close
	ended   chan struct{}         // closed when run has returned
	away    atomic.Pointer[error] // why changes that are not essential are refused while the server does not answer, or is full; else nil

	// Owned by run.
	txn
	waiting     []*change // for a server that is away, ahead of the queue
	number      int64     // of the last transaction of the term
	unconfirmed bool      // a commit came back with a warning: a standby may not have it
	doubtful    bool      // the last transaction may have taken effect, or have been lost
	closed      error     // of the last change
}

func newWriter(won *term, config *pgx.ConnConfig, o Options, k columns.Clock, d *columns.Codec, f *failure) *writer {
	w := &writer{
		epoch: won.epoch, number: won.first, config: config.Copy(), log: o.Log, failure: f, txn: txn{Clock: k, codec: d},
		changes: make(chan *change, maxBatch), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	w.config.RuntimeParams["application_name"] = writerName(won.epoch)
	w.config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "01000" && n.SeverityUnlocalized == "WARNING" { // the wait for a standby was cut short
			w.unconfirmed = true
		}
	}
	return w
}

// do hands a change over and waits until it is committed. Its ctx ends only the wait for a place
// in the queue.
func (w *writer) do(ctx context.Context, c *change) error {
	c.done = make(chan struct{})
	if err := w.failure.get(); err != nil {
		return err
	}
	if why := w.away.Load(); why != nil && !c.essential {
		return *why
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

// compare runs a transaction that changes nothing: the fence holds it back, and the writer notes a loss, if the server has not
// the last commit of the term.
func (w *writer) compare() {
	w.do(context.Background(), &change{essential: true, apply: func(*txn) (refused, err error) { return nil, nil }})
}

// gone returns why the writer has ended.
func (w *writer) gone() error {
	if err := cmp.Or(w.failure.get(), w.closed); err != nil {
		return err
	}
	return errors.New("postgres: the store is closed")
}

// run commits batches until the store is closed or has failed.
func (w *writer) run() {
	defer close(w.ended)
	defer w.disconnect()
	batch := make([]*change, 0, maxBatch)
	for {
		if batch = w.drain(batch[:0]); len(batch) == 0 {
			select {
			case c := <-w.changes:
				batch = append(batch, c)
			case <-w.failure.ended:
			case <-w.stop:
				if batch = w.drain(batch); len(batch) == 0 {
					return
				}
			}
		}
		err := w.failure.get()
		if err == nil && len(batch) > 0 {
			batch = w.gather(batch)
			if batch, err = w.commit(batch); err != nil {
				err = w.end(err)
			}
		}
		if err != nil {
			w.refuse(w.drain(nil), err)
			if w.doubtful {
				err = inDoubt{err}
			}
			w.refuse(batch, err)
			return
		}
		for _, c := range batch {
			close(c.done)
		}
	}
}

// refuse ends changes that did not take effect.
func (w *writer) refuse(batch []*change, err error) {
	for _, c := range batch {
		c.refused = err
		close(c.done)
	}
}

// gather adds the changes that queued during the last transaction, and the next ones of the
// callers that it has released.
func (w *writer) gather(batch []*change) []*change {
	for before := 0; len(batch) > before && len(batch) < maxBatch/2; {
		before = len(batch)
		runtime.Gosched()
		batch = w.drain(batch)
	}
	return batch
}

// drain adds the changes that have waited for the server, and those that are queued.
func (w *writer) drain(batch []*change) []*change {
	n := min(len(w.waiting), maxBatch-len(batch))
	batch, w.waiting = append(batch, w.waiting[:n]...), w.waiting[n:]
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

// commit runs a batch as one transaction. If the server is away, or the answer is lost, it asks whether
// the transaction took effect, and tries again if it did not. On a full disk it refuses all but the essential changes, and
// tries these again, each time after a pause. It returns the changes that were not refused.
func (w *writer) commit(batch []*change) ([]*change, error) {
	pause, doubt, generation, marks := retryFirst, w.conn == nil, w.generation, w.marks
	w.doubtful = false
	for {
		var err error
		if doubt {
			var done bool
			done, err = w.ask()
			if err == nil && done {
				return batch, w.confirm()
			}
			if err != nil && !isAway(err) {
				return batch, err
			}
			doubt = err != nil
			w.doubtful = w.doubtful && doubt
		}
		if !doubt {
			w.generation, w.marks = generation, marks // of a recovery that is tried again
			err = w.try(batch)
			switch {
			case err == nil:
				w.away.Store(nil)
				return batch, w.confirm()
			case code(err) == diskFull:
				if batch = w.keepEssential(batch); len(batch) == 0 {
					return nil, nil
				}
			case !isAway(err) && !w.conn.IsClosed():
				return batch, err
			}
			doubt, w.doubtful = true, true
		}
		w.leave(err)
		if !w.sleep(&pause) {
			return batch, errAway
		}
	}
}

// leave notes that the server is away, or full, and refuses the queued changes that need not wait for it. Those of
// the batch wait: their transaction may have taken effect.
func (w *writer) leave(err error) {
	refusal, state := errAway, "does not answer"
	if code(err) == diskFull {
		refusal, state = scheduler.ErrFull, "has no room"
	}
	if w.away.Swap(&refusal) == nil {
		w.log.Warn("the server of the store "+state+"; nothing is accepted, and no durable call is sent, until it does", "server", w.failure.place, "err", err)
	}
	for range len(w.changes) {
		if c := <-w.changes; c.essential {
			w.waiting = append(w.waiting, c)
		} else {
			w.refuse([]*change{c}, refusal)
		}
	}
}

// keepEssential refuses the changes of a batch that are not made on a full disk, and returns the others.
func (w *writer) keepEssential(batch []*change) (rest []*change) {
	for _, c := range batch {
		if c.essential {
			rest = append(rest, c)
		} else {
			w.refuse([]*change{c}, scheduler.ErrFull)
		}
	}
	return rest
}

// try runs a batch as a transaction. Its statements go to the server together, with those that begin and commit it, unless
// a change has to read something first.
func (w *writer) try(batch []*change) error {
	timeout := statementTimeout
	if slices.ContainsFunc(batch, func(c *change) bool { return c.recovery }) {
		timeout = recoveryTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	w.ctx = ctx
	w.begin()
	if err := w.lookUp(batch); err != nil {
		return w.rollback(err)
	}
	for _, c := range batch {
		w.applying, c.refused = c, nil
		refused, err := c.apply(&w.txn)
		if refused != nil {
			c.refused = refused
		}
		if err != nil {
			return w.rollback(err)
		}
	}
	w.applying = nil
	w.exec("COMMIT")
	if err := w.flush(); err != nil {
		return w.rollback(err)
	}
	w.number++
	return nil
}

// begin queues the begin of a transaction of the term, with its fence.
func (w *writer) begin() {
	w.applying, w.queue, w.bulks, w.adding, w.expected = nil, pgx.Batch{}, nil, nil, nil
	w.queue.Queue("BEGIN")
	var mark *string
	if w.marks {
		text := w.Mark().String()
		mark = &text
	}
	w.queue.Queue("SELECT throttler.advance($1, $2, $3)", w.epoch, w.number, mark)
}

// rollback ends a transaction after an error. It returns the error, or, if the fence has held the transaction
// back, why.
func (w *writer) rollback(err error) error {
	if w.conn.IsClosed() {
		return err
	}
	w.conn.PgConn().Exec(w.ctx, "ROLLBACK").ReadAll()
	if code(err) == heldBack {
		return w.lost(w.ctx)
	}
	return err
}

func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.conn.Close(ctx)
	w.conn = nil
}
