package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A txn is the transaction that changes run in.
type txn struct {
	columns.Clock
	codec      *columns.Codec
	conn       *pgx.Conn
	ctx        context.Context // of the transaction
	generation int64
	marks      bool // the mark of the last life was read: those of this one may take its place

	queue    pgx.Batch    // statements that are sent together at the next flush
	bulks    []*bulk      // statements that follow them, and may get more rows
	adding   map[any]bool // keys of the rows in bulks
	applying *change      // whose statements are being queued; nil for those of the transaction itself
	expected []*expected
	owners   map[string]*columns.KeyOwner // of the keys of the batch, by hash
	arrived  map[string]bool              // ids of its arrivals that are there
}

// An expected row is one that a change leaves behind, unless the change is refused.
type expected struct {
	seq, sum int64 // of the call
	of       *change
	refused  error
	absent   bool // once its statement has run: it changed no row
}

// lookUp reads the owners of all keys of a batch, and its arrivals, in one trip.
func (t *txn) lookUp(batch []*change) error {
	t.owners, t.arrived = make(map[string]*columns.KeyOwner), make(map[string]bool)
	var keys [][]byte
	var ids []string
	for _, c := range batch {
		for _, k := range c.keys {
			keys = append(keys, k.Hash)
		}
		if c.arrival != "" {
			ids = append(ids, c.arrival)
		}
	}
	if len(keys) > 0 {
		t.queue.Queue(selectOwner, keys).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var key []byte
				o := &columns.KeyOwner{}
				if err := rows.Scan(append([]any{&key}, o.Fields()...)...); err != nil {
					return err
				}
				t.owners[string(key)] = o
			}
			return rows.Err()
		})
	}
	if len(ids) > 0 {
		t.queue.Queue("SELECT id FROM arrivals WHERE id = ANY($1)", ids).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, id := range found {
				t.arrived[id] = true
			}
			return err
		})
	}
	if len(keys) == 0 && len(ids) == 0 {
		return nil
	}
	return t.flush()
}

// take takes a call out of the arrivals.
func (t *txn) take(id string) {
	delete(t.arrived, id)
	t.addRow(id, deleteArrival, id)
}

var deleteArrival = newRowStatement("DELETE FROM arrivals WHERE id {among}", "id text")

// notArrived refuses a call that was taken out of the arrivals before.
func notArrived(id string) error { return fmt.Errorf("%w: arrival %s", scheduler.ErrNotFound, id) }

// exec runs a statement, at the next flush, after those whose rows have been added.
func (t *txn) exec(query string, args ...any) *pgx.QueuedQuery {
	t.queueRows()
	return t.queue.Queue(query, args...)
}

// addRow adds a row to those of a statement, which runs before the statements of later calls of exec. Rows with one key, such as the
// number of a call, are changed in the order in which they were added.
func (t *txn) addRow(key any, s *rowStatement, row ...any) *bulk {
	if t.adding[key] {
		t.queueRows()
	}
	i := slices.IndexFunc(t.bulks, func(b *bulk) bool { return b.of == s && !b.isLarge() })
	if i < 0 {
		i, t.bulks = len(t.bulks), append(t.bulks, &bulk{of: s, columns: make([][]any, len(row))})
	}
	if t.adding == nil {
		t.adding = make(map[any]bool)
	}
	t.adding[key] = true
	t.bulks[i].add(row)
	return t.bulks[i]
}

// expect adds a row of a call that the statement leaves behind. If it changes no such row, the change is refused.
func (t *txn) expect(refused error, r *columns.Row, s *rowStatement, row ...any) *expected {
	e := &expected{seq: r.Seq, sum: r.Sum, of: t.applying, refused: refused}
	t.expected = append(t.expected, e)
	b := t.addRow(r.Seq, s, row...)
	b.expected = append(b.expected, e)
	return e
}

// queueRows queues the statements whose rows have been added.
func (t *txn) queueRows() {
	for _, b := range t.bulks {
		b.queue(&t.queue)
	}
	t.bulks, t.adding = nil, nil
}

// flush runs the statements that are queued, in one trip.
func (t *txn) flush() error {
	t.queueRows()
	queued := t.queue
	t.queue = pgx.Batch{}
	return t.conn.SendBatch(t.ctx, &queued).Close()
}

// changed runs a statement and returns how many rows it changed.
func (t *txn) changed(query string, args ...any) (n int64, err error) {
	t.exec(query, args...).Exec(func(done pgconn.CommandTag) error {
		n = done.RowsAffected()
		return nil
	})
	err = t.flush()
	return n, err
}

// one reads one row; pgx.ErrNoRows if there is none.
func (t *txn) one(query string, args []any, to ...any) error {
	none := false
	t.exec(query, args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(to...)
		none = errors.Is(err, pgx.ErrNoRows)
		return orNoRows(err)
	})
	if err := t.flush(); err != nil || !none {
		return err
	}
	return pgx.ErrNoRows
}

// read runs a query that returns rows.
func (t *txn) read(query string, args ...any) (pgx.Rows, error) {
	if err := t.flush(); err != nil {
		return nil, err
	}
	return t.conn.Query(t.ctx, query, args...)
}
