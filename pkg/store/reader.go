package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A reader reads the file on connections of its own.
type reader struct {
	db       *sql.DB
	queries  *compiled // of db
	codec    *columns.Codec
	failure  *failure
	index    *index
	keepKeys time.Duration
}

// check ends the store if the error of a read says that the file cannot be trusted.
// A read that its ctx cut short says nothing of the file.
func (r *reader) check(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, scheduler.ErrNotFound), errors.Is(err, sql.ErrConnDone):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	r.failure.set(err)
	return r.failure.get()
}

// within reads at one point in time.
func within[T any](ctx context.Context, r *reader, read func(q querier) (T, error)) (T, error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return *new(T), r.check(ctx, err)
	}
	defer tx.Rollback()
	v, err := read(r.queries.in(tx))
	return v, r.check(ctx, err)
}

// The queries of one call.
const (
	selectCall = "SELECT " + columns.OfCall + `, coalesce(status, 0), coalesce(answer_headers, ''), answer, coalesce(truncated, 0), answer_sealed, coalesce(answer_sum, 0),
		answer_sum IS NOT NULL AND state NOT IN ('waiting', 'sending') FROM current JOIN (SELECT seq, ` + columns.OfResponse + " FROM calls) USING (seq) WHERE id = ?"
	selectPendingCall = "SELECT " + columns.OfCall + " FROM current WHERE id = ? AND state IN ('waiting', 'unknown')"
	selectWaitingCall = "SELECT " + columns.OfCall + " FROM current WHERE seq = ? AND state = 'waiting'"
	selectListedCall  = "SELECT " + columns.OfCall + " FROM current WHERE seq = ?"
)

// Get implements [scheduler.Store].
func (r *reader) Get(ctx context.Context, id string) (*scheduler.Call, error) {
	found, response, answered := &columns.Row{}, &columns.Content{}, false
	err := r.queries.QueryRowContext(ctx, selectCall, id).Scan(append(append(found.Fields(), response.ResponseFields()...), &answered)...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
	}
	if err != nil {
		return nil, r.check(ctx, err)
	}
	c, err := found.Call(r.codec)
	if answered && err == nil {
		c.Response, err = r.codec.DecodeResponse(c.ID, response)
	}
	return c, r.check(ctx, err)
}

// Find implements [scheduler.Store].
func (r *reader) Find(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	for _, k := range columns.KeysOf(r.codec, e) {
		owner := &columns.KeyOwner{}
		err := r.queries.QueryRowContext(ctx, selectOwner, k.Hash).Scan(owner.Fields()...)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, r.check(ctx, err)
		}
		id, reused := owner.Claim(e.Fingerprint, columns.Micros(time.Now().Add(-r.keepKeys)))
		if reused != nil {
			return nil, reused
		}
		if id != "" {
			return r.Get(ctx, id)
		}
	}
	return nil, nil
}

const selectOwner = "SELECT k.fingerprint, k.ended_by IS NOT NULL, c.id, c.state, c.ended_at FROM keys k JOIN calls c USING (seq) WHERE k.key = ?"

const selectEndedBy = "SELECT ended_by FROM keys WHERE key = ? AND ended_by <> ''"

// EndedBy implements [scheduler.Store].
func (r *reader) EndedBy(ctx context.Context, identity string) (by string, err error) {
	err = r.queries.QueryRowContext(ctx, selectEndedBy, columns.IdentityKey(r.codec, identity).Hash).Scan(&by)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return by, r.check(ctx, err)
}

// Fetch implements [scheduler.Durable].
func (r *reader) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	return within(ctx, r, func(q querier) (*scheduler.Entry, error) {
		found := &columns.Row{}
		err := q.QueryRowContext(ctx, selectPendingCall, id).Scan(found.Fields()...)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
		}
		if err != nil {
			return nil, err
		}
		return entryOf(ctx, q, r.codec, found)
	})
}

// AuditLog implements [scheduler.Store].
func (r *reader) AuditLog(ctx context.Context, f scheduler.AuditFilter) ([]scheduler.AuditRecord, error) {
	query, args := auditQuery(f)
	rows, err := r.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, r.check(ctx, err)
	}
	records, err := scanAudit(rows, r.codec)
	return records, r.check(ctx, err)
}
