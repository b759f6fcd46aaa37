package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// One page reads at most:
const (
	pageRows  = 50_000   // index entries
	pageBytes = 16 << 20 // bytes of bodies
)

const (
	selectWaiting = "SELECT rank, seq, lane, due, bytes FROM calls INDEXED BY waiting WHERE state = 'waiting' AND upstream = ? AND (rank, seq) > (?, ?) ORDER BY rank, seq LIMIT ?"
	selectWaking  = "SELECT wake, seq FROM calls INDEXED BY waking WHERE state = 'waiting' AND wake <> 0 AND wake > 0 AND wake < ?1 AND (wake, seq) > (?2, ?3) ORDER BY wake, seq LIMIT ?4"
)

// Scan implements [scheduler.Durable].
func (r *reader) Scan(ctx context.Context, upstream string, after scheduler.Position, due time.Time, most int, want func(scheduler.Position, int64) bool) (*scheduler.Page, error) {
	return within(ctx, r, func(q querier) (*scheduler.Page, error) {
		page := &scheduler.Page{Last: after}
		rows, err := q.QueryContext(ctx, selectWaiting, upstream, -after.Priority, after.Seq, pageRows)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var seqs []int64
		read, room := 0, int64(pageBytes)
		for len(seqs) < most && room > 0 {
			if !rows.Next() {
				page.End = read < pageRows
				break
			}
			var rank, seq, lane, at, bytes int64
			if err := rows.Scan(&rank, &seq, &lane, &at, &bytes); err != nil {
				return nil, err
			}
			read++
			page.Last = scheduler.Position{Priority: -int(rank), Seq: seq}
			if at <= columns.Micros(due) && want(page.Last, lane) {
				seqs = append(seqs, seq)
				room -= bytes
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		page.Entries, err = r.entries(ctx, q, seqs)
		return page, err
	})
}

// Waking implements [scheduler.Durable].
func (r *reader) Waking(ctx context.Context, before time.Time, after scheduler.Position, most int) (*scheduler.Page, error) {
	return within(ctx, r, func(q querier) (*scheduler.Page, error) {
		page := &scheduler.Page{Last: after}
		rows, err := q.QueryContext(ctx, selectWaking, columns.Micros(before), columns.Micros(after.At), after.Seq, most)
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
			page.Last = scheduler.Position{At: columns.Instant(wake), Seq: seq}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		page.End = len(seqs) < most
		page.Entries, err = r.entries(ctx, q, seqs)
		return page, err
	})
}

// entries returns those of some calls that wait. The indexes that name them have
// calls in flight as well.
func (r *reader) entries(ctx context.Context, q querier, seqs []int64) ([]scheduler.Entry, error) {
	all := make([]scheduler.Entry, 0, len(seqs))
	for _, seq := range seqs {
		found := &columns.Row{}
		err := q.QueryRowContext(ctx, selectWaitingCall, seq).Scan(found.Fields()...)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e, err := entryOf(ctx, q, r.codec, found)
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// PendingWebhooks implements [scheduler.Durable].
func (r *reader) PendingWebhooks(ctx context.Context, after string, most int) ([]*scheduler.Call, error) {
	return within(ctx, r, func(q querier) (calls []*scheduler.Call, err error) {
		rows, err := q.QueryContext(ctx, "SELECT notice, "+columns.OfCall+" FROM untold JOIN current USING (seq) WHERE notice > ? AND tell_at IS NULL ORDER BY notice", after+"/") // "/" follows the dot of a notice
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var due []*columns.Row
		for len(due) < most && rows.Next() {
			var notice string
			found := &columns.Row{}
			if err := rows.Scan(append([]any{&notice}, found.Fields()...)...); err != nil {
				return nil, err
			}
			if c, err := found.Call(r.codec); err != nil {
				return nil, err
			} else if c.Notice() == notice { // else its state has changed since
				due = append(due, found)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		for _, found := range due {
			c, err := withResponse(ctx, q, r.codec, found)
			if err != nil {
				return nil, err
			}
			calls = append(calls, c)
		}
		return calls, nil
	})
}

// PendingEnds implements [scheduler.Durable].
func (r *reader) PendingEnds(ctx context.Context, most int) ([]*scheduler.Call, error) {
	return within(ctx, r, func(q querier) (calls []*scheduler.Call, err error) {
		rows, err := q.QueryContext(ctx, "SELECT notice, tell_at, failures, "+columns.OfCall+
			" FROM untold INDEXED BY untold_at JOIN current USING (seq) WHERE tell_at IS NOT NULL ORDER BY tell_at, notice")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for len(calls) < most && rows.Next() {
			var notice string
			var at int64
			var failures int
			found := &columns.Row{}
			if err := rows.Scan(append([]any{&notice, &at, &failures}, found.Fields()...)...); err != nil {
				return nil, err
			}
			c, err := found.Call(r.codec)
			if err != nil {
				return nil, err
			}
			if c.Notice() == notice {
				c.HandleAt, c.Failures = columns.Instant(at), failures
				calls = append(calls, c)
			}
		}
		return calls, rows.Err()
	})
}
