package store

import (
	"context"
	"time"
)

// How the past is swept: in small steps, so that no caller waits long for one.
const (
	sweepStep  = 200 // calls
	sweepPause = 20 * time.Millisecond
	sweepEvery = time.Minute
)

// sweep deletes finished calls, keys and permits whose time is over, until the
// store is closed.
func (d *DB) sweep() {
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-d.stop:
			return
		case <-d.broken:
			return
		}
		n, err := d.sweepOnce(time.Now())
		if err != nil {
			return // the store has ended
		}
		if n == sweepStep {
			timer.Reset(sweepPause)
		} else {
			timer.Reset(sweepEvery)
		}
	}
}

// sweepOnce makes one step and returns how many calls it deleted. An unknown call
// is never swept: somebody has to decide about it.
func (d *DB) sweepOnce(now time.Time) (calls int64, err error) {
	before := micros(now.Add(-d.options.KeepCalls))
	err = d.do(context.Background(), &op{essential: true, run: func(w *writer) (answer, err error) {
		const old = `IN (SELECT seq FROM calls INDEXED BY ended WHERE ended_at > 0 AND ended_at < ?
			AND state IN ('done', 'failed', 'expired', 'exhausted', 'cancelled') ORDER BY ended_at LIMIT ?)`
		if err := w.exec("DELETE FROM untold WHERE seq "+old, before, sweepStep); err != nil {
			return nil, err
		}
		if calls, err = w.changed("DELETE FROM calls WHERE seq "+old, before, sweepStep); err != nil {
			return nil, err
		}
		// The time of a key begins when its call is finished.
		if err := w.exec(`DELETE FROM keys WHERE key IN (SELECT k.key FROM keys k LEFT JOIN calls c USING (seq)
			WHERE k.until < ? AND coalesce(c.state NOT IN ('waiting', 'unknown') AND c.ended_at < ?, true) ORDER BY k.until LIMIT ?)`,
			micros(now), micros(now.Add(-d.options.KeepKeys)), sweepStep); err != nil {
			return nil, err
		}
		return nil, w.exec("DELETE FROM quota WHERE id IN (SELECT id FROM quota WHERE back > 0 AND back < ? LIMIT ?)", micros(now), sweepStep)
	}})
	return calls, err
}
