package store

import (
	"database/sql"
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// insertHold adds a row to quota; insert is INSERT or INSERT OR IGNORE.
func (c *conn) insertHold(insert string, h lease.Hold) error {
	h = c.Hold(h)
	return c.exec(insert+" INTO quota VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", h.ID, h.Upstream, h.Limit, c.codec.EncodeKey(h), h.Every, h.Permits, columns.Micros(h.Back), h.Paused, c.codec.HoldSum(h), columns.Micros(h.Since), c.codec.EncodeWhy(h), c.codec.EncodeWho(h))
}

// settleHolds stores when permits come back.
func (c *conn) settleHolds(holds []lease.Hold) error {
	for _, h := range holds {
		h = c.Hold(h)
		if err := c.exec("UPDATE quota SET back = ?, sum = ? WHERE id = ?", columns.Micros(h.Back), c.codec.HoldSum(h), h.ID); err != nil {
			return err
		}
	}
	return nil
}

// replaceHolds replaces all of quota. Later attempts are in a new epoch: quota does
// not include them.
func (c *conn) replaceHolds(holds []lease.Hold) error {
	if err := c.exec("DELETE FROM quota"); err != nil {
		return err
	}
	for i, h := range holds {
		if !h.Paused {
			h.ID = int64(i + 1) // below those of any lease
		}
		if err := c.insertHold("INSERT", h); err != nil {
			return err
		}
	}
	folded := c.epoch
	c.epoch++
	if err := c.set("folded", folded); err != nil {
		return err
	}
	return c.set("epoch", c.epoch)
}

const selectHolds = "SELECT id, upstream, name, key, every, permits, back, paused, sum, since, reason, who FROM quota"

// holds returns all of quota.
func (c *conn) holds() ([]lease.Hold, error) {
	rows, err := c.query(selectHolds)
	if err != nil {
		return nil, err
	}
	return scanHolds(rows, c.codec)
}

func scanHolds(rows *sql.Rows, d *columns.Codec) ([]lease.Hold, error) {
	defer rows.Close()
	var all []lease.Hold
	for rows.Next() {
		var h lease.Hold
		var back, sum, since int64
		if err := rows.Scan(&h.ID, &h.Upstream, &h.Limit, &h.Key, &h.Every, &h.Permits, &back, &h.Paused, &sum, &since, &h.Reason, &h.Who); err != nil {
			return nil, err
		}
		h.Back, h.Since = columns.Instant(back), columns.Instant(since)
		if err := d.DecryptHold(&h); err != nil || d.HoldSum(h) != sum {
			return nil, fmt.Errorf("quota %d: %w", h.ID, columns.ErrChecksum)
		}
		if err := columns.PossibleHold(h); err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, rows.Err()
}
