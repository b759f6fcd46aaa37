package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A querier is a pool, a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// A reader reads on connections of its own.
type reader struct {
	db       *pgxpool.Pool
	codec    *columns.Codec
	failure  *failure
	keepKeys time.Duration
}

// once reads, within statementTimeout for each of two tries: a connection may have broken while it was idle.
// A row that does not match its checksum ends the store.
func once[T any](ctx context.Context, r *reader, read func(ctx context.Context) (T, error)) (v T, err error) {
	if err := r.failure.get(); err != nil {
		return v, err
	}
	if v, err = try(ctx, read); isAway(err) && ctx.Err() == nil {
		r.db.Reset()
		v, err = try(ctx, read)
	}
	switch {
	case err == nil, errors.Is(err, scheduler.ErrNotFound), errors.Is(err, scheduler.ErrKeyReused):
		return v, err
	case ctx.Err() != nil:
		return v, ctx.Err()
	case isAway(err):
		return v, fmt.Errorf("%w: %v", errAway, err) // no time-out of the caller's
	case errors.Is(err, columns.ErrChecksum):
		r.failure.set(err)
		return v, r.failure.get()
	}
	return v, fmt.Errorf("postgres: %s: %w", r.failure.place, err)
}

func try[T any](ctx context.Context, read func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return read(ctx)
}

// insist reads until the server answers, or the store or ctx ends.
func insist[T any](ctx context.Context, r *reader, read func(ctx context.Context) (T, error)) (T, error) {
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		v, err := once(ctx, r, read)
		if err == nil || !errors.Is(err, errAway) {
			return v, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return v, ctx.Err()
		case <-r.failure.ended:
			return v, r.failure.get()
		}
	}
}

// The queries of one call.
const (
	selectCall = "SELECT " + columns.OfCall + `, coalesce(status, 0), coalesce(answer_headers, ''), answer, coalesce(truncated, false), answer_sealed, coalesce(answer_sum, 0),
		answer_sum IS NOT NULL AND state NOT IN ('waiting', 'sending') FROM current JOIN (SELECT seq, ` + columns.OfResponse + " FROM calls) c USING (seq) WHERE id = $1"
	selectOwner = "SELECT k.fingerprint, k.ended_by IS NOT NULL, c.id, c.state, c.ended_at FROM keys k JOIN calls c USING (seq) WHERE k.key = $1"
)

// Get implements [scheduler.Store].
func (r *reader) Get(ctx context.Context, id string) (*scheduler.Call, error) {
	return once(ctx, r, func(ctx context.Context) (*scheduler.Call, error) {
		found, response, answered := &columns.Row{}, &columns.Content{}, false
		err := r.db.QueryRow(ctx, selectCall, text(id)).Scan(append(append(found.Fields(), response.ResponseFields()...), &answered)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
		}
		if err != nil {
			return nil, err
		}
		c, err := found.Call(r.codec)
		if answered && err == nil {
			c.Response, err = r.codec.DecodeResponse(c.ID, response)
		}
		return c, err
	})
}

// Find implements [scheduler.Store].
func (r *reader) Find(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	for _, k := range columns.KeysOf(r.codec, e) {
		id, err := once(ctx, r, func(ctx context.Context) (id string, err error) {
			owner := &columns.KeyOwner{}
			if err := r.db.QueryRow(ctx, selectOwner, k.Hash).Scan(owner.Fields()...); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return "", err
			}
			return owner.Claim(e.Fingerprint, columns.Micros(time.Now().Add(-r.keepKeys)))
		})
		if err != nil {
			return nil, err
		}
		if id != "" {
			return r.Get(ctx, id)
		}
	}
	return nil, nil
}

// EndedBy implements [scheduler.Store].
func (r *reader) EndedBy(ctx context.Context, identity string) (by string, err error) {
	return once(ctx, r, func(ctx context.Context) (by string, err error) {
		err = r.db.QueryRow(ctx, "SELECT ended_by FROM keys WHERE key = $1 AND ended_by <> ''", columns.IdentityKey(r.codec, identity).Hash).Scan(&by)
		return by, orNoRows(err)
	})
}

// Fetch implements [scheduler.Durable].
func (r *reader) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	return insist(ctx, r, func(ctx context.Context) (*scheduler.Entry, error) {
		return within(ctx, r.db, func(tx pgx.Tx) (*scheduler.Entry, error) {
			found := &columns.Row{}
			err := tx.QueryRow(ctx, "SELECT "+columns.OfCall+" FROM current WHERE id = $1 AND state IN ('waiting', 'unknown')", text(id)).Scan(found.Fields()...)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
			}
			if err != nil {
				return nil, err
			}
			return entryOf(ctx, tx, r.codec, found)
		})
	})
}

// AuditLog implements [scheduler.Store].
func (r *reader) AuditLog(ctx context.Context, f scheduler.AuditFilter) ([]scheduler.AuditRecord, error) {
	return once(ctx, r, func(ctx context.Context) ([]scheduler.AuditRecord, error) {
		query, args := auditQuery(f)
		rows, err := r.db.Query(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		return scanAudit(rows, r.codec)
	})
}

// text returns a text that a caller asks for as the server takes one. No stored text has the
// replacement of bytes that are none.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// within reads at one point in time.
func within[T any](ctx context.Context, db *pgxpool.Pool, read func(tx pgx.Tx) (T, error)) (v T, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		v, err = read(tx)
		return err
	})
	return v, err
}

// scanRows reads all rows of a query.
func scanRows(rows pgx.Rows) ([]*columns.Row, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*columns.Row, error) {
		r := &columns.Row{}
		return r, row.Scan(r.Fields()...)
	})
}

// entryOf returns the call of a row with its request, nil if that was not kept.
func entryOf(ctx context.Context, q querier, d *columns.Codec, r *columns.Row) (*scheduler.Entry, error) {
	c, err := r.Call(d)
	if err != nil {
		return nil, err
	}
	e, b, target := &scheduler.Entry{Call: c, Bytes: r.Bytes}, &columns.Content{}, []byte(nil)
	err = q.QueryRow(ctx, "SELECT "+columns.OfRequest+" FROM calls WHERE seq = $1 AND request_sum IS NOT NULL", r.Seq).Scan(&b.Method, &target, &b.Headers, &b.Body, &b.Encrypted, &b.Sum)
	b.Target = string(target)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		e.NoBody = true
		return e, nil
	case err != nil:
		return nil, err
	}
	e.Request, err = d.DecodeRequest(r.ID, b)
	return e, err
}

// withResponse returns the call of a row with its response.
func withResponse(ctx context.Context, q querier, d *columns.Codec, r *columns.Row) (*scheduler.Call, error) {
	c, err := r.Call(d)
	if err != nil || c.State == scheduler.Waiting || c.State == scheduler.Sending {
		return c, err
	}
	a := &columns.Content{}
	err = q.QueryRow(ctx, "SELECT "+columns.OfResponse+" FROM calls WHERE seq = $1 AND answer_sum IS NOT NULL", r.Seq).Scan(a.ResponseFields()...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return c, nil
	case err != nil:
		return nil, err
	}
	c.Response, err = d.DecodeResponse(r.ID, a)
	return c, err
}
