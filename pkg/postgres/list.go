package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	listLooked = 1_000           // calls that one page reads
	clockSlack = 5 * time.Second // at most between the id of a call and its acceptance
)

// List implements [scheduler.Store].
func (r *reader) List(ctx context.Context, f scheduler.Filter) (*scheduler.ListPage, error) {
	return once(ctx, r, func(ctx context.Context) (*scheduler.ListPage, error) {
		query, args := listQuery(r.codec, &f)
		rows, err := r.db.Query(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		return page(rows, r.codec, &f)
	})
}

// page reads rows until a page is full.
func page(rows pgx.Rows, d *columns.Codec, f *scheduler.Filter) (*scheduler.ListPage, error) {
	p, looked, last := &scheduler.ListPage{}, 0, ""
	for rows.Next() {
		if f.Max > 0 && len(p.Calls) == f.Max {
			p.Next = last
			return p, nil
		}
		found := &columns.Row{}
		if err := rows.Scan(found.Fields()...); err != nil {
			return nil, err
		}
		c, err := found.Call(d)
		if err != nil {
			return nil, err
		}
		looked++
		if last = c.ID; f.Matches(c) {
			p.Calls = append(p.Calls, c)
		}
	}
	if looked == listLooked {
		p.Next = last
	}
	return p, rows.Err()
}

// A listing collects the conditions of a list.
type listing struct {
	where []string
	args  []any
}

// and adds a condition; each %s of it stands for a value.
func (l *listing) and(condition string, values ...any) {
	names := make([]any, len(values))
	for i, v := range values {
		l.args = append(l.args, v)
		names[i] = fmt.Sprintf("$%d", len(l.args))
	}
	l.where = append(l.where, fmt.Sprintf(condition, names...))
}

// listQuery returns the query of a page, and its arguments. The rows that it returns are at least
// those that the filter chooses.
func listQuery(d *columns.Codec, f *scheduler.Filter) (query string, args []any) {
	l := &listing{}
	var terms []int64
	for _, text := range []string{f.Number, f.IdempotencyKey, f.Key, f.SubmittedBy, f.Flow, f.Limit, f.Upstream} {
		if text != "" {
			terms = append(terms, int64(d.Term(text)))
		}
	}
	if len(terms) > 0 {
		l.and("c.terms @> %s::bigint[]", terms)
	}
	if f.Q != "" {
		l.and("(c.id = %s OR c.terms @> %s::bigint[])", text(f.Q), []int64{int64(d.Term(f.Q))})
	}
	l.states(f)
	l.periods(f)
	order := "DESC"
	if f.Oldest {
		order = "ASC"
	}
	if f.After != "" {
		l.and(map[bool]string{true: "c.id > %s", false: "c.id < %s"}[f.Oldest], text(f.After))
	}
	query = "SELECT " + ofListed + " FROM calls c LEFT JOIN flights f ON f.seq = c.seq"
	if len(l.where) > 0 {
		query += " WHERE " + strings.Join(l.where, " AND ")
	}
	return fmt.Sprintf("%s ORDER BY c.id %s LIMIT %d", query, order, listLooked), l.args
}

// states adds the states of a filter. A call in flight has the state waiting in its row.
func (l *listing) states(f *scheduler.Filter) {
	states := f.States
	if f.NeedsPerson && len(states) == 0 {
		states = []scheduler.State{scheduler.Unknown}
	}
	var any []string
	for _, s := range states {
		switch s {
		case scheduler.Waiting:
			any = append(any, "c.state = 'waiting' AND f.seq IS NULL")
		case scheduler.Sending:
			any = append(any, "f.seq IS NOT NULL")
		default:
			l.args = append(l.args, string(s))
			any = append(any, fmt.Sprintf("c.state = $%d", len(l.args)))
		}
	}
	if len(any) > 0 {
		l.where = append(l.where, "("+strings.Join(any, " OR ")+")")
	}
}

// periods adds the periods of a filter. Ids begin with the millisecond in which they were made.
func (l *listing) periods(f *scheduler.Filter) {
	at := func(t time.Time) string {
		ms := max(0, t.UnixMilli())
		return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff)
	}
	if !f.AcceptedAfter.IsZero() {
		l.and("c.id >= %s", at(f.AcceptedAfter.Add(-clockSlack)))
	}
	for _, before := range []time.Time{f.AcceptedBefore, f.FinishedBefore} {
		if !before.IsZero() {
			l.and("c.id <= %s", at(before.Add(clockSlack)))
		}
	}
	if !f.FinishedAfter.IsZero() {
		l.and("c.ended_at > 0 AND c.ended_at >= %s", columns.Micros(f.FinishedAfter.Add(-time.Microsecond)))
	}
}

// ofListed are the columns of a call, with its attempt in flight.
const ofListed = `c.seq, c.id, c.upstream, c.lane, CASE WHEN f.seq IS NULL THEN c.state ELSE 'sending' END, c.rank, coalesce(f.async, c.async), c.callback, c.resolves,
	coalesce(f.epoch, c.epoch), c.bytes, c.accepted_at, c.not_before, coalesce(f.due, c.due), coalesce(f.deadline, c.deadline), c.wake, c.ended_at,
	coalesce(f.attempts, c.attempts), coalesce(f.spent, c.spent), coalesce(f.sum, c.sum), c.facts`
