package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const selectAudit = "SELECT seq, at, actor, role, via, action, upstream, call, name, key, before, after, reason, sum FROM audit"

// auditQuery returns the query of a page, and its arguments. Each filter reads one index: the
// subject's, whose rows are in the order of seq.
func auditQuery(f scheduler.AuditFilter) (query string, args []any) {
	var where []string
	and := func(condition string, v any) {
		where, args = append(where, condition), append(args, v)
	}
	if f.Call != "" {
		where = append(where, "call <> ''") // of its index
		and("call = ?", f.Call)
	}
	if f.Actor != "" {
		and("actor = ?", f.Actor)
	}
	if f.Action != "" {
		and("action = ?", f.Action)
	}
	if !f.From.IsZero() {
		and("at >= ?", columns.Micros(f.From))
	}
	if !f.To.IsZero() {
		and("at < ?", columns.Micros(f.To))
	}
	if f.Before != 0 {
		and("seq < ?", f.Before)
	}
	query = selectAudit
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return query + " ORDER BY seq DESC LIMIT ?", append(args, f.Page())
}

// scanAudit reads all records of a query.
func scanAudit(rows *sql.Rows, d *columns.Codec) ([]scheduler.AuditRecord, error) {
	defer rows.Close()
	var all []scheduler.AuditRecord
	for rows.Next() {
		var r scheduler.AuditRecord
		var at, sum int64
		if err := rows.Scan(&r.Seq, &at, &r.Actor, &r.Role, &r.Via, &r.Action, &r.Upstream, &r.Call, &r.Limit, &r.Key, &r.Before, &r.After, &r.Reason, &sum); err != nil {
			return nil, err
		}
		r.At = columns.Instant(at)
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

// sweepAudit deletes some records that are older than an instant. The last one stays, as the next
// record is numbered by it.
func sweepAudit(c *conn, before time.Time) (n int64, err error) {
	return c.changed("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ? AND seq < (SELECT max(seq) FROM audit) ORDER BY at LIMIT ?)", columns.Micros(before), sweepStep)
}

// checkAudit reads all records in pages.
func checkAudit(ctx context.Context, q querier, d *columns.Codec) error {
	for before := int64(0); ; {
		query, args := auditQuery(scheduler.AuditFilter{Before: before})
		rows, err := q.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		page, err := scanAudit(rows, d)
		if err != nil || len(page) == 0 {
			return err
		}
		before = page[len(page)-1].Seq
	}
}

// audit writes all records anew.
func (s *resealing) audit() error {
	for before := int64(0); ; {
		query, args := auditQuery(scheduler.AuditFilter{Before: before})
		rows, err := s.QueryContext(s, query, args...)
		if err != nil {
			return err
		}
		page, err := scanAudit(rows, s.old)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			e := columns.EncodeAudit(s.codec, r)
			if _, err := s.Exec("UPDATE audit SET key = ?, before = ?, after = ?, reason = ?, sum = ? WHERE seq = ?", e.Key, e.Before, e.After, e.Reason, columns.AuditSum(s.codec, r), r.Seq); err != nil {
				return err
			}
			before = r.Seq
		}
	}
}
