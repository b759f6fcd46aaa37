package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	errAway      = errors.New("the server is away; try again later")
	errRegressed = errors.New("the server has lost commits that it had confirmed: it was put back to an earlier state, or a standby that did not have them took its place")
)

// An inDoubt error is that of a change whose transaction may have taken effect: the next owner will know.
type inDoubt struct{ error }

// InDoubt tells the scheduler so.
func (inDoubt) InDoubt() bool { return true }

func (e inDoubt) Unwrap() error { return e.error }

// end ends the store after an error, and returns why it has ended.
func (w *writer) end(err error) error {
	if errors.Is(err, errAway) { // while the store is being closed
		w.closed = fmt.Errorf("postgres: %s: %w; attempts whose end is not stored are unknown to the next owner", w.failure.place, err)
		return w.closed
	}
	w.failure.set(err)
	return w.failure.get()
}

// lost returns why a fence has held a transaction back.
func (w *writer) lost(ctx context.Context) error {
	at, err := w.position(ctx)
	switch {
	case err != nil:
		return err
	case at.epoch > w.epoch:
		return ErrTermOver
	}
	return w.regressed(ctx, at)
}

// position returns the last transaction of the store.
func (w *writer) position(ctx context.Context) (at position, err error) {
	err = w.conn.QueryRow(ctx, "SELECT epoch, number FROM fence FOR UPDATE").Scan(&at.epoch, &at.number)
	return at, err
}

// regressed returns the end of a term whose commits are gone. The next owner finds the loss noted.
func (w *writer) regressed(ctx context.Context, at position) error {
	if err := noteLoss(ctx, w.conn, w.epoch); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w (it has transaction %d of term %d, and had %d of term %d)", ErrTermOver, errRegressed, at.number, at.epoch, w.number, w.epoch)
}

// noteLoss notes that the server has lost commits of a term, for the next owner. No later term has an epoch that was used. The
// owner of the term in force has recovered without knowing of the loss: its fence moves, and it writes no more; by how much is
// random, as a smaller number may be that of one of its lost commits. Lease and fence are locked in the order in which take does.
func noteLoss(ctx context.Context, conn *pgx.Conn, epoch int64) error {
	b := &pgx.Batch{}
	b.Queue("SELECT set_config('synchronous_commit', 'on', true)") // of this transaction
	b.Queue("UPDATE lease SET epoch = $1 WHERE epoch < $1", epoch)
	b.Queue("UPDATE fence SET lost = true, epoch = greatest(epoch, $1), number = number + $2", epoch, 1<<30+rand.Int64N(1<<40))
	return conn.SendBatch(ctx, b).Close()
}

// outdate returns the last transaction of the store. If that of this writer is not among them, it moves the fence by two, which
// holds that one back if it is still on its way, as behind a pooler.
func (w *writer) outdate(ctx context.Context) (at position, err error) {
	err = w.conn.QueryRow(ctx, "UPDATE fence SET number = CASE WHEN epoch = $1 AND number = $2 THEN number + 2 ELSE number END RETURNING epoch, number", w.epoch, w.number).Scan(&at.epoch, &at.number)
	return at, err
}

// ask connects anew, and asks whether the last transaction took effect. The session that made it is ended before, if it has its
// own name: a pooler changes that.
func (w *writer) ask() (done bool, err error) {
	w.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return false, err
	}
	w.conn = conn
	if _, err := conn.Exec(ctx, indexesOnly); err != nil {
		return false, err
	}
	endWriters(ctx, conn, w.epoch)
	last := w.position
	if w.doubtful {
		last = w.outdate
	}
	at, err := last(ctx)
	switch {
	case err != nil:
		return false, err
	case at.epoch > w.epoch:
		return false, ErrTermOver
	case w.doubtful && at == position{w.epoch, w.number + 2}:
		w.number = at.number
		return false, nil
	case w.doubtful && at == position{w.epoch, w.number + 1}:
		if err := w.refuseAbsent(ctx); err != nil {
			return false, err
		}
		w.number, w.unconfirmed = at.number, true // its confirmation was lost
		return true, nil
	case at != position{w.epoch, w.number}:
		return false, w.regressed(ctx, at)
	}
	return false, nil
}

// refuseAbsent refuses the changes of the last transaction whose rows are not there: with its answer it was lost how many rows
// each has changed. A call has one change of these in it: the scheduler makes the next one when it knows the end of the last.
func (w *writer) refuseAbsent(ctx context.Context) error {
	last := make(map[int64]*expected) // by call
	for _, e := range w.expected {
		last[e.seq] = e
	}
	if len(last) == 0 {
		return nil
	}
	rows, err := w.conn.Query(ctx, "SELECT seq, sum FROM current WHERE seq = ANY($1)", slices.Collect(maps.Keys(last)))
	if err != nil {
		return err
	}
	var seq, sum int64
	if _, err := pgx.ForEachRow(rows, []any{&seq, &sum}, func() error {
		if last[seq].sum == sum {
			delete(last, seq)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, e := range last {
		e.of.refused = e.refused
	}
	return nil
}

// confirm makes sure that a standby has the commits whose confirmation was lost or cut short: it
// has those before a later one that is confirmed.
func (w *writer) confirm() error {
	pause := retryFirst
	w.doubtful = true
	for w.unconfirmed {
		var err error
		if w.conn == nil || w.conn.IsClosed() {
			_, err = w.ask()
		}
		if err == nil {
			w.unconfirmed = false
			if err = w.try(nil); err == nil {
				continue
			}
			w.unconfirmed = true
		}
		if !isAway(err) && (w.conn == nil || !w.conn.IsClosed()) {
			return err
		}
		w.leave(err)
		if !w.sleep(&pause) {
			return errAway
		}
	}
	w.away.Store(nil)
	w.doubtful = false
	return nil
}

// sleep waits before the next try; false if the store ends.
func (w *writer) sleep(pause *time.Duration) bool {
	timer := time.NewTimer(*pause)
	defer timer.Stop()
	*pause = min(2**pause, retryMost)
	select {
	case <-timer.C:
	case <-w.failure.ended:
		return false
	}
	select {
	case <-w.stop:
		if *pause == retryMost { // some tries have failed
			return false
		}
	default:
	}
	return true
}
