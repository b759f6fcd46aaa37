package store

import (
	"context"
	"database/sql"
	"time"
)

// When the write-ahead log is moved into the file, by its pages of 4 KiB since it
// was moved last: in an idle moment, or else beside what is written meanwhile.
const (
	idleLog  = 500
	longLog  = 8000
	idleTime = 20 * time.Millisecond
)

// A wal is the write-ahead log, as the writer sees it. SQLite would move it by
// itself while everybody waits, and say nothing of a sync that failed.
type wal struct {
	pages int        // written since it was moved
	conn  *sql.Conn  // that moves it while the writer writes
	moved chan error // nil while nobody does
}

// move moves the log into the file, as far as nobody reads in it.
func move(conn *sql.Conn) error {
	var busy, log, moved int
	return conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &moved)
}

// moveLog moves all of the log while nothing is written.
func (w *writer) moveLog() error {
	w.wal.pages = 0
	return w.unlessFull(move(w.conn))
}

// moveLongLog begins to move the log beside what is written from now on.
func (w *writer) moveLongLog() {
	if w.wal.pages <= w.options.longLog || w.wal.moved != nil {
		return
	}
	moved := make(chan error, 1)
	w.wal.pages, w.wal.moved = 0, moved
	go func() {
		err := move(w.wal.conn)
		if err != nil && !isFull(err) {
			w.fail(err)
		}
		moved <- err
	}()
}

// hasMoved moves what was written beside: a log begins anew if it has moved to its end
// and nobody reads in it.
func (w *writer) hasMoved(err error) error {
	w.wal.moved = nil
	if err = w.unlessFull(err); err != nil {
		return err
	}
	return w.moveLog()
}

// unlessFull makes room on a full disk; the log is moved another time.
func (w *writer) unlessFull(err error) error {
	if isFull(err) {
		w.reserve.give()
		return nil
	}
	return err
}
