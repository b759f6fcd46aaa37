package store

import (
	"context"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// The sweeper works in small steps, so that no caller waits long for one.
const (
	sweepStep  = 200 // rows of a table
	sweepPause = 20 * time.Millisecond
	sweepEvery = time.Minute
)

// A sweeper deletes finished calls, keys, permits and records of the audit whose time is over.
type sweeper struct {
	writer                         *writer
	keepCalls, keepKeys, keepAudit time.Duration
}

// run sweeps until the store is closed or has failed.
func (s *sweeper) run() {
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.writer.stop:
			return
		case <-s.writer.failure.ended:
			return
		}
		n, err := s.step(time.Now())
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

// step returns how many rows of a table it deleted at most. Never swept are an unknown call, which waits for
// a decision, and a call whose end the handler has not handled.
func (s *sweeper) step(now time.Time) (most int64, err error) {
	err = s.writer.do(context.Background(), &change{essential: true, apply: func(c *conn) (refused, err error) {
		const old = `IN (SELECT seq FROM calls INDEXED BY ended WHERE ended_at > 0 AND ended_at < ?
			AND state IN ('done', 'failed', 'expired', 'exhausted', 'cancelled')
			AND NOT EXISTS (SELECT 1 FROM untold WHERE tell_at IS NOT NULL AND notice > id || '.' AND notice < id || '/') ORDER BY ended_at LIMIT ?)`
		before := c.Micros(now.Add(-s.keepCalls))
		if err := c.exec("DELETE FROM untold WHERE seq "+old, before, sweepStep); err != nil {
			return nil, err
		}
		calls, err := c.changed("DELETE FROM calls WHERE seq "+old, before, sweepStep)
		if err != nil {
			return nil, err
		}
		if calls > 0 && calls < sweepStep {
			if err := dropBlocks(c); err != nil {
				return nil, err
			}
		}
		// The time of a key begins when its call is finished.
		keys, err := c.changed(`DELETE FROM keys WHERE key IN (SELECT k.key FROM keys k LEFT JOIN calls c USING (seq)
			WHERE k.until < ? AND coalesce(c.state NOT IN ('waiting', 'unknown') AND c.ended_at < ?, true) ORDER BY k.until LIMIT ?)`,
			columns.Micros(now), c.Micros(now.Add(-s.keepKeys)), sweepStep)
		if err != nil {
			return nil, err
		}
		records, err := sweepAudit(c, now.Add(-s.keepAudit))
		if err != nil {
			return nil, err
		}
		permits, err := c.changed("DELETE FROM quota WHERE id IN (SELECT id FROM quota WHERE back > 0 AND back < iif(paused, ?, ?) LIMIT ?)", columns.Micros(now), c.Micros(now), sweepStep)
		most = max(calls, keys, records, permits)
		return nil, err
	}})
	return most, err
}
