package postgres

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
		if n, err := s.step(time.Now()); n == sweepStep && err == nil {
			timer.Reset(sweepPause)
		} else { // after an error, too: the server may be away
			timer.Reset(sweepEvery)
		}
	}
}

// step returns how many rows of a table it deleted at most. Never swept are an unknown call, which waits for a
// decision, and a call whose end the handler has not handled.
func (s *sweeper) step(now time.Time) (most int64, err error) {
	err = s.writer.do(context.Background(), &change{apply: func(t *txn) (refused, err error) {
		var seqs []int64
		if err := t.one(`SELECT coalesce(array_agg(seq), '{}') FROM (SELECT seq FROM calls WHERE ended_at > 0 AND ended_at < $1
			AND state IN ('done', 'failed', 'expired', 'exhausted', 'cancelled')
			AND NOT EXISTS (SELECT 1 FROM untold u WHERE u.seq = calls.seq AND tell_at IS NOT NULL) ORDER BY ended_at LIMIT $2) old`,
			[]any{t.Micros(now.Add(-s.keepCalls)), sweepStep}, &seqs); err != nil {
			return nil, err
		}
		t.exec("DELETE FROM untold WHERE seq = ANY($1)", seqs)
		most = 0
		del := func(statement string, args ...any) {
			if err == nil {
				var n int64
				n, err = t.changed(statement, args...)
				most = max(most, n)
			}
		}
		del("DELETE FROM calls WHERE seq = ANY($1)", seqs)
		// The time of a key begins when its call is finished.
		del(`DELETE FROM keys WHERE key IN (SELECT k.key FROM keys k LEFT JOIN calls c USING (seq)
			WHERE k.until < $1 AND coalesce(c.state NOT IN ('waiting', 'unknown') AND c.ended_at < $2, true) ORDER BY k.until LIMIT $3)`,
			columns.Micros(now), t.Micros(now.Add(-s.keepKeys)), sweepStep)
		// The last record stays, as the next one is numbered by it.
		del("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < $1 AND seq < (SELECT max(seq) FROM audit) ORDER BY at LIMIT $2)",
			columns.Micros(now.Add(-s.keepAudit)), sweepStep)
		del("DELETE FROM quota WHERE id IN (SELECT id FROM quota WHERE back > 0 AND back < CASE WHEN paused THEN $1::bigint ELSE $2::bigint END LIMIT $3)",
			columns.Micros(now), t.Micros(now), sweepStep)
		return nil, err
	}})
	return most, err
}
