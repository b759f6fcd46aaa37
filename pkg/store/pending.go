package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// What one page reads, at most.
const (
	pageRows  = 50_000   // index entries
	pageBytes = 16 << 20 // of bodies
)

// A querier is a connection or a transaction.
type querier interface {
	QueryRow(query string, args ...any) *sql.Row
	Query(query string, args ...any) (*sql.Rows, error)
}

const selectRequest = `SELECT method, target, headers, coalesce(c.body, b.body), coalesce(c.sealed, b.sealed), request_sum
	FROM calls c LEFT JOIN bodies b USING (seq) WHERE seq = ? AND request_sum IS NOT NULL`

// entry returns the call of a row with its request, nil if that was not kept.
func (d *DB) entry(q querier, r *row) (*scheduler.Entry, error) {
	c, err := r.call()
	if err != nil {
		return nil, err
	}
	e := &scheduler.Entry{Call: c, Bytes: r.bytes}
	b := &content{}
	err = q.QueryRow(selectRequest, r.seq).
		Scan(&b.head, &b.target, &b.headers, &b.body, &b.sealed, &b.sum)
	if errors.Is(err, sql.ErrNoRows) {
		e.NoBody = true
		return e, nil
	}
	if err == nil {
		e.Request, err = d.openRequest(r.id, b)
	}
	return e, err
}

// Fetch implements [scheduler.Durable].
func (d *DB) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	e, err := within(ctx, d, func(tx *sql.Tx) (*scheduler.Entry, error) {
		r := &row{}
		err := tx.QueryRow("SELECT "+columns+" FROM current WHERE id = ? AND state IN ('waiting', 'unknown')", id).Scan(r.fields()...)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
		}
		if err != nil {
			return nil, err
		}
		return d.entry(tx, r)
	})
	return e, err
}

// Untold implements [scheduler.Durable].
func (d *DB) Untold(ctx context.Context, after string, most int) ([]*scheduler.Call, error) {
	return within(ctx, d, func(tx *sql.Tx) (calls []*scheduler.Call, err error) {
		rows, err := tx.Query("SELECT notice, "+columns+" FROM untold JOIN current USING (seq) WHERE notice > ? ORDER BY notice", after+"/") // the next after a dot
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var due []*row
		for len(due) < most && rows.Next() {
			var notice string
			r := &row{}
			if err := rows.Scan(append([]any{&notice}, r.fields()...)...); err != nil {
				return nil, err
			}
			if c, err := r.call(); err != nil {
				return nil, err
			} else if c.Notice() == notice { // else it has come to something else since
				due = append(due, r)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		for _, r := range due {
			c, err := d.whole(ctx, r)
			if err != nil {
				return nil, err
			}
			calls = append(calls, c)
		}
		return calls, nil
	})
}

// within reads at one point in time.
func within[T any](ctx context.Context, d *DB, f func(tx *sql.Tx) (T, error)) (T, error) {
	tx, err := d.read.BeginTx(ctx, nil)
	if err != nil {
		return *new(T), d.check(ctx, err)
	}
	defer tx.Rollback()
	v, err := f(tx)
	return v, d.check(ctx, err)
}

// Scan implements [scheduler.Durable].
func (d *DB) Scan(ctx context.Context, upstream string, after scheduler.Position, due time.Time, most int, want func(scheduler.Position, int64) bool) (*scheduler.Page, error) {
	return within(ctx, d, func(tx *sql.Tx) (*scheduler.Page, error) {
		page := &scheduler.Page{Last: after}
		rows, err := tx.Query("SELECT rank, seq, lane, due, bytes FROM calls INDEXED BY waiting WHERE state = 'waiting' AND upstream = ? AND (rank, seq) > (?, ?) ORDER BY rank, seq LIMIT ?",
			upstream, -after.Priority, after.Seq, pageRows)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var seqs []int64
		looked, room := 0, int64(pageBytes)
		for len(seqs) < most && room > 0 {
			if !rows.Next() {
				page.End = looked < pageRows
				break
			}
			var rank, seq, lane, at, bytes int64
			if err := rows.Scan(&rank, &seq, &lane, &at, &bytes); err != nil {
				return nil, err
			}
			looked++
			page.Last = scheduler.Position{Priority: -int(rank), Seq: seq}
			if at <= micros(due) && want(page.Last, lane) {
				seqs = append(seqs, seq)
				room -= bytes
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		page.Entries, err = d.entries(tx, seqs)
		return page, err
	})
}

// entries returns the calls of some seqs that wait: an index has those as well that
// are being sent.
func (d *DB) entries(q querier, seqs []int64) ([]scheduler.Entry, error) {
	all := make([]scheduler.Entry, 0, len(seqs))
	for _, seq := range seqs {
		r := &row{}
		err := q.QueryRow("SELECT "+columns+" FROM current WHERE seq = ? AND state = 'waiting'", seq).Scan(r.fields()...)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e, err := d.entry(q, r)
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// Waking implements [scheduler.Durable].
func (d *DB) Waking(ctx context.Context, before time.Time, after scheduler.Position, most int) (*scheduler.Page, error) {
	return within(ctx, d, func(tx *sql.Tx) (*scheduler.Page, error) {
		page := &scheduler.Page{Last: after}
		rows, err := tx.Query("SELECT wake, seq FROM calls INDEXED BY waking WHERE state = 'waiting' AND wake <> 0 AND wake > 0 AND wake < ?1 AND (wake, seq) > (?2, ?3) ORDER BY wake, seq LIMIT ?4",
			micros(before), micros(after.At), after.Seq, most)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var seqs []int64
		for rows.Next() {
			var wake, seq int64
			if err := rows.Scan(&wake, &seq); err != nil {
				return nil, err
			}
			seqs = append(seqs, seq)
			page.Last = scheduler.Position{At: instant(wake), Seq: seq}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		page.End = len(seqs) < most
		page.Entries, err = d.entries(tx, seqs)
		return page, err
	})
}
