package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// blockCalls is how many calls fill a block.
const blockCalls = 4096

// An index has the blocks by which calls are found. The writer alone changes it, after a commit.
// A reader takes a view of it before it begins to read the file, which then has at least all
// that the view names: a block that was dropped since has no calls any more.
type index struct {
	mu sync.Mutex
	view
	next    int64 // number of the next block; the writer's
	indexed int64 // the highest seq that a block in the file ever had; the writer's
}

// A view of an index. Its slices are only ever added to, behind the ends of older views.
type view struct {
	blocks   []block // in the file
	calls    []located
	postings []posting // of calls, in the block in memory
}

// find returns the numbers of the calls in memory that have a term, in order.
func (m view) find(t columns.Term) (calls []uint16) {
	for _, p := range m.postings {
		if p.term == t {
			calls = append(calls, p.call)
		}
	}
	return calls
}

// An indexed is a new call of a transaction.
type indexed struct {
	located
	terms []columns.Term
}

func (x *index) look() view {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.view
}

// with returns a view with further calls in memory.
func (m view) with(calls []indexed) view {
	for _, c := range calls {
		for _, t := range c.terms {
			m.postings = append(m.postings, posting{t, uint16(len(m.calls))})
		}
		m.calls = append(m.calls, c.located)
	}
	return m
}

// extend adds the new calls of a transaction to the block in memory, and writes that if it is full.
// The returned view is to be put in force with the commit.
func extend(c *conn) (next view, err error) {
	next = c.index.view
	if c.dropped {
		next.blocks = c.left
	}
	next = next.with(c.added)
	if len(next.calls) < blockCalls {
		return next, nil
	}
	return next.flushed(c.index.next, c.codec, c.exec)
}

// flushed writes the block in memory, and returns the view with it.
func (m view) flushed(number int64, d *columns.Codec, exec func(query string, args ...any) error) (view, error) {
	calls, postings := slices.Clone(m.calls), slices.Clone(m.postings)
	sorted(calls, postings)
	b, seqs := outline(number, calls), encodeSeqs(calls)
	if err := exec("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)", b.number, b.first, b.last, b.low, b.high, seqs, blockSum(d, b, seqs)); err != nil {
		return m, err
	}
	for bucket, chunk := range chunks(postings) {
		place := b.number*buckets + int64(bucket)
		if chunk == nil {
			continue
		}
		if err := exec("INSERT INTO terms VALUES (?, ?, ?)", place, chunk, chunkSum(d, place, chunk)); err != nil {
			return m, err
		}
	}
	err := errors.Join(exec("DELETE FROM strays"),
		exec("INSERT INTO meta VALUES ('indexed', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)", b.last))
	return view{blocks: append(slices.Clip(m.blocks), b)}, err
}

// committed puts a view in force that is on disk.
func (x *index) committed(next view) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := len(next.blocks); n > 0 && next.blocks[n-1].number >= x.next {
		x.next = next.blocks[n-1].number + 1
		x.indexed = max(x.indexed, next.blocks[n-1].last)
	}
	x.view = next
}

// dropBlocks removes the blocks of which no call is left. A call between the first and the last one of a
// block counts as one of it.
func dropBlocks(c *conn) error {
	c.left, c.dropped = make([]block, 0, len(c.index.blocks)), true
	for _, b := range c.index.blocks {
		used := false
		if err := c.one("SELECT EXISTS (SELECT 1 FROM calls WHERE seq BETWEEN ? AND ?)", []any{b.first, b.last}, &used); err != nil {
			return err
		}
		if used {
			c.left = append(c.left, b)
		} else if err := errors.Join(c.exec("DELETE FROM blocks WHERE block = ?", b.number),
			c.exec("DELETE FROM terms WHERE place >= ? AND place < ?", b.number*buckets, (b.number+1)*buckets)); err != nil {
			return err
		}
	}
	return nil
}

// loadIndex reads the blocks of a file. The calls that are in none of them, such as those of earlier
// schemas, it puts into blocks, each written by a transaction of its own; the last ones stay
// in memory.
func loadIndex(db *sql.DB, d *columns.Codec) (*index, error) {
	x := &index{next: 1}
	if err := x.readBlocks(db, d); err != nil {
		return nil, err
	}
	if err := db.QueryRow("SELECT coalesce((SELECT value FROM meta WHERE name = 'indexed'), 0)").Scan(&x.indexed); err != nil {
		return nil, err
	}
	if _, err := x.load(db, d, "SELECT seq, id, upstream, facts FROM calls WHERE seq IN (SELECT seq FROM strays)"); err != nil {
		return nil, err
	}
	for after := x.indexed; ; {
		last, err := x.load(db, d, "SELECT seq, id, upstream, facts FROM calls WHERE seq > ? ORDER BY seq LIMIT 512", after)
		if err != nil || last <= after {
			return x, err
		}
		after = last
	}
}

// load adds the calls of a query to the block in memory, and writes that if it is full. It returns
// the highest seq. The sums of the rows are checked when these are used.
func (x *index) load(db *sql.DB, d *columns.Codec, query string, args ...any) (last int64, err error) {
	rows, err := db.Query(query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	next := x.view
	for rows.Next() {
		var c scheduler.Call
		var seq int64
		var facts string
		if err := rows.Scan(&seq, &c.ID, &c.Upstream, &facts); err != nil {
			return 0, err
		}
		if facts, err = d.DecryptText(facts, c.ID, columns.FactsKind); err != nil {
			return 0, fmt.Errorf("facts of call %.100q: %w", c.ID, err)
		}
		if _, err := columns.DecodeFacts(facts, &c); err != nil {
			return 0, err
		}
		next = next.with([]indexed{{located{seq, c.ID}, columns.TermsOf(d, &c)}})
		last = max(last, seq)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	if len(next.calls) >= blockCalls {
		next, err = flushAlone(db, next, x.next, d)
	}
	if err == nil {
		x.committed(next)
	}
	return last, err
}

// flushAlone writes a block by a transaction of its own.
func flushAlone(db *sql.DB, m view, number int64, d *columns.Codec) (view, error) {
	tx, err := db.Begin()
	if err != nil {
		return m, err
	}
	defer tx.Rollback()
	next, err := m.flushed(number, d, func(query string, args ...any) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		return m, err
	}
	return next, tx.Commit()
}

// readBlocks reads the blocks of a file, without their calls and terms.
func (x *index) readBlocks(db *sql.DB, d *columns.Codec) error {
	rows, err := db.Query("SELECT block, first, last, low, high, calls, sum FROM blocks ORDER BY block")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var b block
		var calls []byte
		var sum int64
		if err := rows.Scan(&b.number, &b.first, &b.last, &b.low, &b.high, &calls, &sum); err != nil {
			return err
		}
		if blockSum(d, b, calls) != sum {
			return fmt.Errorf("block %d: %w", b.number, columns.ErrChecksum)
		}
		x.blocks, x.next = append(x.blocks, b), b.number+1
	}
	return rows.Err()
}

// checkBlocks returns the faults of the rows of blocks and terms.
func checkBlocks(ctx context.Context, q querier, d *columns.Codec) (faults []error, err error) {
	rows, err := q.QueryContext(ctx, "SELECT block, first, last, low, high, calls, sum FROM blocks")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var b block
		var calls []byte
		var sum int64
		if err := rows.Scan(&b.number, &b.first, &b.last, &b.low, &b.high, &calls, &sum); err != nil {
			return nil, err
		}
		if blockSum(d, b, calls) != sum {
			faults = append(faults, fmt.Errorf("block %d: %w", b.number, columns.ErrChecksum))
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	if rows, err = q.QueryContext(ctx, "SELECT place, chunk, sum FROM terms"); err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var place, sum int64
		var postings []byte
		if err := rows.Scan(&place, &postings, &sum); err != nil {
			return nil, err
		}
		if chunkSum(d, place, postings) != sum {
			faults = append(faults, fmt.Errorf("terms of block %d: %w", place/buckets, columns.ErrChecksum))
		}
	}
	return faults, rows.Err()
}

// seqsOf returns the calls of a block in the file, none if it was dropped.
func seqsOf(ctx context.Context, q querier, b block) (seqs []int64, err error) {
	var calls []byte
	err = q.QueryRowContext(ctx, selectSeqs, b.number).Scan(&calls)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeSeqs(calls)
}

const selectSeqs = "SELECT calls FROM blocks WHERE block = ?"

// blockSum and chunkSum are the sums of rows of blocks and terms.
func blockSum(c *columns.Codec, b block, calls []byte) int64 {
	s := c.NewSum()
	s.Ints(b.number, b.first, b.last)
	s.Texts(b.low, b.high)
	s.Bytes(calls)
	return s.End()
}

func chunkSum(c *columns.Codec, place int64, chunk []byte) int64 {
	s := c.NewSum()
	s.Ints(place)
	s.Bytes(chunk)
	return s.End()
}
