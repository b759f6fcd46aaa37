package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// One page reads at most:
const (
	pageRows  = 50_000   // index entries
	pageBytes = 16 << 20 // bytes of bodies
)

// Scan implements [scheduler.Durable].
func (r *reader) Scan(ctx context.Context, upstream string, after scheduler.Position, due time.Time, most int, want func(scheduler.Position, int64) bool) (*scheduler.Page, error) {
	return insist(ctx, r, func(ctx context.Context) (*scheduler.Page, error) {
		return within(ctx, r.db, func(tx pgx.Tx) (*scheduler.Page, error) {
			page := &scheduler.Page{Last: after}
			rows, err := tx.Query(ctx, `SELECT rank, seq, lane, due, bytes FROM calls WHERE state = 'waiting' AND upstream = $1 AND (rank, seq) > ($2, $3)
				ORDER BY rank, seq LIMIT $4`, upstream, int64(-after.Priority), after.Seq, pageRows)
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
			rows.Close()
			if err := rows.Err(); err != nil {
				return nil, err
			}
			page.Entries, err = r.entries(ctx, tx, seqs)
			return page, err
		})
	})
}

// Waking implements [scheduler.Durable].
func (r *reader) Waking(ctx context.Context, before time.Time, after scheduler.Position, most int) (*scheduler.Page, error) {
	return insist(ctx, r, func(ctx context.Context) (*scheduler.Page, error) {
		return within(ctx, r.db, func(tx pgx.Tx) (*scheduler.Page, error) {
			page := &scheduler.Page{Last: after}
			rows, err := tx.Query(ctx, "SELECT wake, seq FROM calls WHERE state = 'waiting' AND wake <> 0 AND wake > 0 AND wake < $1 AND (wake, seq) > ($2, $3) ORDER BY wake, seq LIMIT $4",
				columns.Micros(before), columns.Micros(after.At), after.Seq, most)
			if err != nil {
				return nil, err
			}
			var seqs []int64
			var wake, seq int64
			if _, err := pgx.ForEachRow(rows, []any{&wake, &seq}, func() error {
				seqs = append(seqs, seq)
				page.Last = scheduler.Position{At: columns.Instant(wake), Seq: seq}
				return nil
			}); err != nil {
				return nil, err
			}
			page.End = len(seqs) < most
			page.Entries, err = r.entries(ctx, tx, seqs)
			return page, err
		})
	})
}

// entries returns those of some calls that wait. The indexes that name them have calls in flight as
// well.
func (r *reader) entries(ctx context.Context, tx pgx.Tx, seqs []int64) ([]scheduler.Entry, error) {
	all := make([]scheduler.Entry, 0, len(seqs))
	for _, seq := range seqs {
		found := &columns.Row{}
		err := tx.QueryRow(ctx, "SELECT "+columns.OfCall+" FROM current WHERE seq = $1 AND state = 'waiting'", seq).Scan(found.Fields()...)
		if err != nil {
			if orNoRows(err) == nil {
				continue
			}
			return nil, err
		}
		e, err := entryOf(ctx, tx, r.codec, found)
		if err != nil {
			return nil, err
		}
		all = append(all, *e)
	}
	return all, nil
}

// PendingWebhooks implements [scheduler.Durable].
func (r *reader) PendingWebhooks(ctx context.Context, after string, most int) ([]*scheduler.Call, error) {
	return insist(ctx, r, func(ctx context.Context) ([]*scheduler.Call, error) {
		return within(ctx, r.db, func(tx pgx.Tx) (calls []*scheduler.Call, err error) {
			due, err := untold(ctx, tx, r.codec, most, "SELECT notice, 0::bigint, 0::bigint, "+columns.OfCall+
				" FROM untold JOIN current USING (seq) WHERE notice > $1 AND tell_at IS NULL ORDER BY notice", after+"/") // "/" follows the dot of a notice
			if err != nil {
				return nil, err
			}
			for _, u := range due {
				c, err := withResponse(ctx, tx, r.codec, u.row)
				if err != nil {
					return nil, err
				}
				calls = append(calls, c)
			}
			return calls, nil
		})
	})
}

// PendingEnds implements [scheduler.Durable].
func (r *reader) PendingEnds(ctx context.Context, most int) ([]*scheduler.Call, error) {
	return insist(ctx, r, func(ctx context.Context) ([]*scheduler.Call, error) {
		return within(ctx, r.db, func(tx pgx.Tx) (calls []*scheduler.Call, err error) {
			due, err := untold(ctx, tx, r.codec, most, "SELECT notice, tell_at, failures, "+columns.OfCall+
				" FROM untold JOIN current USING (seq) WHERE tell_at IS NOT NULL ORDER BY tell_at, notice")
			for _, u := range due {
				u.call.HandleAt, u.call.Failures = columns.Instant(u.at), u.failures
				calls = append(calls, u.call)
			}
			return calls, err
		})
	})
}

// An end is one that is to be told.
type end struct {
	row      *columns.Row
	call     *scheduler.Call
	at       int64
	failures int
}

// untold returns the first ends of a query, at most so many. Ends of calls whose state has changed since
// are left out.
func untold(ctx context.Context, tx pgx.Tx, d *columns.Codec, most int, query string, args ...any) (all []end, err error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for len(all) < most && rows.Next() {
		var notice string
		e := end{row: &columns.Row{}}
		if err := rows.Scan(append([]any{&notice, &e.at, &e.failures}, e.row.Fields()...)...); err != nil {
			return nil, err
		}
		if e.call, err = e.row.Call(d); err != nil {
			return nil, err
		}
		if e.call.Notice() == notice {
			all = append(all, e)
		}
	}
	rows.Close()
	return all, rows.Err()
}
