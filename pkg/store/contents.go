package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A querier is a pool, a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// withResponse returns the call of a row with its response.
func withResponse(ctx context.Context, q querier, d *columns.Codec, r *columns.Row) (*scheduler.Call, error) {
	c, err := r.Call(d)
	if err != nil || c.State == scheduler.Waiting || c.State == scheduler.Sending {
		return c, err
	}
	a, err := responseOf(ctx, q, r)
	if a != nil && err == nil {
		c.Response, err = d.DecodeResponse(r.ID, a)
	}
	return c, err
}

// responseOf returns the columns of a row's response, nil if there is none.
func responseOf(ctx context.Context, q querier, r *columns.Row) (*columns.Content, error) {
	a := &columns.Content{}
	err := q.QueryRowContext(ctx, selectResponse, r.Seq).Scan(a.ResponseFields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return a, err
}

const selectResponse = "SELECT " + columns.OfResponse + " FROM calls WHERE seq = ? AND answer_sum IS NOT NULL"

const selectRequest = `SELECT method, target, headers, coalesce(c.body, b.body), coalesce(c.sealed, b.sealed), request_sum
	FROM calls c LEFT JOIN bodies b USING (seq) WHERE seq = ? AND request_sum IS NOT NULL`

// entryOf returns the call of a row with its request, nil if that was not kept.
func entryOf(ctx context.Context, q querier, d *columns.Codec, r *columns.Row) (*scheduler.Entry, error) {
	c, err := r.Call(d)
	if err != nil {
		return nil, err
	}
	e := &scheduler.Entry{Call: c, Bytes: r.Bytes}
	b, err := requestOf(ctx, q, r)
	if err != nil {
		return nil, err
	}
	if e.NoBody = b == nil; !e.NoBody {
		e.Request, err = d.DecodeRequest(r.ID, b)
	}
	return e, err
}

// requestOf returns the columns of a row's request, nil if that was not kept.
func requestOf(ctx context.Context, q querier, r *columns.Row) (*columns.Content, error) {
	b := &columns.Content{}
	err := q.QueryRowContext(ctx, selectRequest, r.Seq).Scan(&b.Method, &b.Target, &b.Headers, &b.Body, &b.Encrypted, &b.Sum)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return b, err
}

// scan reads all rows of a query.
func scan(rows *sql.Rows) ([]*columns.Row, error) {
	defer rows.Close()
	var all []*columns.Row
	for rows.Next() {
		r := &columns.Row{}
		if err := rows.Scan(r.Fields()...); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
