package postgres

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// holdsAtOnce is how many rows of quota one statement adds.
const holdsAtOnce = 5000

// insertHolds adds rows to quota, unless they are there.
func (t *txn) insertHolds(holds []lease.Hold) {
	for some := range slices.Chunk(holds, holdsAtOnce) {
		var ids, permits, backs, sums, sinces []int64
		var upstreams, limits []string
		var every, paused []bool
		var keys, reasons, who [][]byte
		for _, h := range some {
			h = t.Hold(h)
			ids, permits = append(ids, h.ID), append(permits, int64(h.Permits))
			upstreams, limits = append(upstreams, h.Upstream), append(limits, h.Limit)
			every, paused = append(every, h.Every), append(paused, h.Paused)
			backs, sinces, sums = append(backs, columns.Micros(h.Back)), append(sinces, columns.Micros(h.Since)), append(sums, t.codec.HoldSum(h))
			keys, reasons, who = append(keys, []byte(t.codec.EncodeKey(h))), append(reasons, []byte(t.codec.EncodeWhy(h))), append(who, []byte(t.codec.EncodeWho(h)))
		}
		t.exec("INSERT INTO quota SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::boolean[], $6::bigint[], $7::bigint[], $8::boolean[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bytea[]) ON CONFLICT DO NOTHING",
			ids, upstreams, limits, keys, every, permits, backs, paused, sums, sinces, reasons, who)
	}
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
	holds = slices.Clone(holds)
	for i := range holds {
		if h := &holds[i]; !h.Paused {
			h.ID = int64(i + 1) // below those of any lease
		}
	}
	t.insertHolds(holds)
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
