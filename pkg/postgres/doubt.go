package postgres

import (
	"context"
	"errors"
	"fmt"

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

// end ends the store after an error. It returns why the store has ended, nil while it works.
func (w *writer) end(err error) error {
	switch {
	case errors.Is(err, errAway): // while the store is being closed
		w.closed = fmt.Errorf("postgres: %s: %w; attempts whose end is not stored are unknown to the next owner", w.failure.place, err)
		return w.closed
	case err != nil:
		w.failure.set(err)
	}
	return w.failure.get()
}

// lost returns why a fence has held a transaction back.
func (w *writer) lost(ctx context.Context) error {
	epoch, number, err := w.position(ctx)
	switch {
	case err != nil:
		return err
	case epoch != w.epoch:
		return ErrTermOver
	}
	return fmt.Errorf("%w (transaction %d of term %d, after %d)", errRegressed, number, epoch, w.number)
}

// position returns the epoch and the number of the last transaction of the store.
func (w *writer) position(ctx context.Context) (epoch, number int64, err error) {
	err = w.conn.QueryRow(ctx, "SELECT epoch, number FROM fence FOR UPDATE").Scan(&epoch, &number)
	return epoch, number, err
}

// ask connects anew, and asks whether the last transaction took effect. The session that made it
// is ended before: what it did is decided then.
func (w *writer) ask() (done bool, err error) {
	w.disconnect()
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, w.config)
	if err != nil {
		return false, err
	}
	w.conn = conn
	endWriters(ctx, conn, w.epoch)
	epoch, number, err := w.position(ctx)
	switch {
	case err != nil:
		return false, err
	case epoch != w.epoch:
		return false, ErrTermOver
	case number == w.number+1:
		w.number, w.unconfirmed = number, true // its confirmation was lost
		return true, nil
	case number != w.number:
		return false, fmt.Errorf("%w (transaction %d of term %d, after %d)", errRegressed, number, epoch, w.number)
	}
	return false, nil
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
		w.leave()
		if !w.sleep(&pause) {
			return errAway
		}
	}
	w.away.Store(false)
	w.doubtful = false
	return nil
}
