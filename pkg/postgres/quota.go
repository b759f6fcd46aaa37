package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// insertHold adds a row to quota, unless it is there.
func (t *txn) insertHold(h lease.Hold) {
	h = t.Hold(h)
	t.exec("INSERT INTO quota VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING",
		h.ID, h.Upstream, h.Limit, []byte(t.codec.EncodeKey(h)), h.Every, h.Permits, columns.Micros(h.Back), h.Paused, t.codec.HoldSum(h), columns.Micros(h.Since),
		[]byte(t.codec.EncodeWhy(h)), []byte(t.codec.EncodeWho(h)))
}

// settleHolds stores when permits come back.
func (t *txn) settleHolds(holds []lease.Hold) {
	for _, h := range holds {
		h = t.Hold(h)
		t.exec("UPDATE quota SET back = $1, sum = $2 WHERE id = $3", columns.Micros(h.Back), t.codec.HoldSum(h), h.ID)
	}
}

// replaceHolds replaces all of quota. Later attempts are in a new generation: quota does not include
// them.
func (t *txn) replaceHolds(holds []lease.Hold) error {
	t.exec("DELETE FROM quota")
	for i, h := range holds {
		if !h.Paused {
			h.ID = int64(i + 1) // below those of any lease
		}
		t.insertHold(h)
	}
	// A transaction that is tried again begins with the same generation: see begin.
	return t.one("UPDATE fence SET folded = generation, generation = generation + 1 RETURNING generation", nil, &t.generation)
}

// holds returns all of quota.
func (t *txn) holds() ([]lease.Hold, error) {
	rows, err := t.read("SELECT id, upstream, name, key, every, permits, back, paused, sum, since, reason, who FROM quota ORDER BY id")
	if err != nil {
		return nil, err
	}
	return scanHolds(rows, t.codec)
}

func scanHolds(rows pgx.Rows, d *columns.Codec) ([]lease.Hold, error) {
	defer rows.Close()
	var all []lease.Hold
	for rows.Next() {
		var h lease.Hold
		var back, sum, since int64
		var key, reason, who []byte
		if err := rows.Scan(&h.ID, &h.Upstream, &h.Limit, &key, &h.Every, &h.Permits, &back, &h.Paused, &sum, &since, &reason, &who); err != nil {
			return nil, err
		}
		h.Key, h.Reason, h.Who = string(key), string(reason), string(who)
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
