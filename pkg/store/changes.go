package store

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Accept implements [scheduler.Store].
func (d *DB) Accept(ctx context.Context, e *scheduler.Entry) (existing *scheduler.Call, err error) {
	r, request, err := d.clock.NewRow(e, d.codec)
	if err != nil {
		return nil, err
	}
	keys, owner := columns.KeysOf(d.codec, e), ""
	err = d.writer.do(ctx, &change{apply: func(c *conn) (refused, err error) {
		owner = ""
		if e.Notice != "" {
			if err := c.exec("DELETE FROM untold WHERE notice = ?", e.Notice); err != nil {
				return nil, err
			}
		}
		if len(keys) > 0 {
			owner, refused, err = c.claim(keys, e, r, d.keepKeys.Microseconds())
			if owner != "" || refused != nil || err != nil {
				return refused, err
			}
		}
		return nil, c.insert(r, request)
	}})
	if err != nil || owner == "" {
		return nil, err
	}
	return d.Get(ctx, owner)
}

// End implements [scheduler.Store].
func (d *DB) End(ctx context.Context, identity, by string) error {
	k := columns.IdentityKey(d.codec, identity)
	return d.writer.do(ctx, &change{apply: func(c *conn) (refused, err error) {
		return nil, c.exec("INSERT INTO keys VALUES (?, '', 0, ?, ?) ON CONFLICT (key) DO UPDATE SET until = max(until, excluded.until), ended_by = excluded.ended_by",
			k.Hash, columns.Micros(time.Now().Add(d.keepKeys)), by)
	}})
}

// Intend implements [scheduler.Store].
func (d *DB) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	var r *columns.Row
	if c != nil {
		var err error
		if r, err = d.clock.Row(c, d.codec); err != nil {
			return err
		}
	}
	return d.writer.do(ctx, &change{apply: func(c *conn) (refused, err error) {
		if r != nil {
			if waiting, err := c.begin(r); err != nil {
				return nil, err
			} else if !waiting {
				return fmt.Errorf("%w: %s", scheduler.ErrNotWaiting, r.ID), nil
			}
		}
		for _, h := range take {
			if err := c.insertHold("INSERT OR IGNORE", h); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}})
}

// Record implements [scheduler.Store].
func (d *DB) Record(ctx context.Context, call *scheduler.Call) error {
	r, response, err := d.clock.Changed(call, d.codec)
	if err != nil {
		return err
	}
	return d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		known, err := c.update(call, r, response, true)
		if !known && err == nil {
			refused = fmt.Errorf("%w, or it is finished: %s", scheduler.ErrNotFound, r.ID)
		}
		return refused, err
	}})
}

// Audit implements [scheduler.Store]. There is room for a record also when the disk is full, as a
// pause may be all the more urgent then.
func (d *DB) Audit(ctx context.Context, r scheduler.AuditRecord) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		if err := c.one("SELECT coalesce(max(seq), 0) + 1 FROM audit", nil, &r.Seq); err != nil {
			return nil, err
		}
		e := columns.EncodeAudit(c.codec, r)
		return nil, c.exec("INSERT INTO audit VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			e.Seq, columns.Micros(e.At), e.Actor, e.Role, e.Via, e.Action, e.Upstream, e.Call, e.Limit, e.Key, e.Before, e.After, e.Reason, columns.AuditSum(c.codec, r))
	}})
}

// Recover implements [scheduler.Durable].
func (d *DB) Recover(ctx context.Context, recent time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (*scheduler.Recovered, error) {
	var state *scheduler.Recovered
	err := d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		r := &recovery{conn: c, bootedAt: c.Boot(), now: time.Now(), repeat: repeat}
		state, err = r.run(recent)
		return nil, err
	}})
	if err != nil {
		return nil, err
	}
	return state, nil
}

// Restate implements [scheduler.Durable].
func (d *DB) Restate(ctx context.Context, holds []lease.Hold) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		if err := c.replaceHolds(holds); err != nil || c.restored == "" {
			return nil, err
		}
		return nil, c.adopt()
	}})
}

// Settle implements [scheduler.Durable].
func (d *DB) Settle(ctx context.Context, holds []lease.Hold) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		return nil, c.settleHolds(holds)
	}})
}

// EndHandled implements [scheduler.Durable].
func (d *DB) EndHandled(ctx context.Context, notice string, again time.Time) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(c *conn) (refused, err error) {
		if again.IsZero() {
			return nil, c.exec("DELETE FROM untold WHERE notice = ?", notice)
		}
		return nil, c.exec("UPDATE untold SET tell_at = ?, failures = failures + 1 WHERE notice = ?", columns.Micros(again), notice)
	}})
}
