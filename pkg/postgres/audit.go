package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Audit implements [scheduler.Store].
func (d *DB) Audit(ctx context.Context, r scheduler.AuditRecord) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		if err := t.one(nextRecord, nil, &r.Seq); err != nil {
			return nil, err
		}
		t.exec("INSERT INTO audit VALUES ("+placeholders(1, 14)+")", auditRow(t.codec, r)...)
		return nil, nil
	}})
}

// nextRecord is the number of the next record, for a transaction that holds the fence.
const nextRecord = "SELECT coalesce(max(seq), 0) + 1 FROM audit"

// auditRow returns the columns of a record.
func auditRow(d *columns.Codec, r scheduler.AuditRecord) []any {
	e := columns.EncodeAudit(d, r)
	return []any{e.Seq, columns.Micros(e.At), []byte(e.Actor), e.Role, e.Via, e.Action, []byte(e.Upstream), []byte(e.Call), []byte(e.Limit), []byte(e.Key),
		[]byte(e.Before), []byte(e.After), []byte(e.Reason), columns.AuditSum(d, r)}
}

// placeholders returns those of the arguments from a number to another one.
func placeholders(from, to int) string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprint("$", n))
	}
	return strings.Join(all, ", ")
}

// auditQuery returns the query of a page, and its arguments.
func auditQuery(f scheduler.AuditFilter) (query string, args []any) {
	var where []string
	and := func(condition string, v any) {
		args = append(args, v)
		where = append(where, fmt.Sprintf("%s $%d", condition, len(args)))
	}
	if f.Call != "" {
		where = append(where, "call <> ''") // of its index
		and("call =", []byte(f.Call))
	}
	if f.Actor != "" {
		and("actor =", []byte(f.Actor))
	}
	if f.Action != "" {
		and("action =", text(f.Action))
	}
	if !f.From.IsZero() {
		and("at >=", columns.Micros(f.From))
	}
	if !f.To.IsZero() {
		and("at <", columns.Micros(f.To))
	}
	if f.Before != 0 {
		and("seq <", f.Before)
	}
	query = "SELECT seq, at, actor, role, via, action, upstream, call, name, key, before, after, reason, sum FROM audit"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	args = append(args, f.Page())
	return query + fmt.Sprintf(" ORDER BY seq DESC LIMIT $%d", len(args)), args
}

// scanAudit reads all records of a query.
func scanAudit(rows pgx.Rows, d *columns.Codec) ([]scheduler.AuditRecord, error) {
	defer rows.Close()
	var all []scheduler.AuditRecord
	for rows.Next() {
		var r scheduler.AuditRecord
		var at, sum int64
		var actor, upstream, call, limit, key, before, after, reason []byte
		if err := rows.Scan(&r.Seq, &at, &actor, &r.Role, &r.Via, &r.Action, &upstream, &call, &limit, &key, &before, &after, &reason, &sum); err != nil {
			return nil, err
		}
		r.At, r.Actor, r.Upstream, r.Call, r.Limit = columns.Instant(at), string(actor), string(upstream), string(call), string(limit)
		r.Key, r.Before, r.After, r.Reason = string(key), string(before), string(after), string(reason)
		if err := columns.DecodeAudit(d, &r); err != nil {
			return nil, fmt.Errorf("record %d of the audit: %w", r.Seq, err)
		}
		if columns.AuditSum(d, r) != sum {
			return nil, fmt.Errorf("record %d of the audit: %w", r.Seq, columns.ErrChecksum)
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
