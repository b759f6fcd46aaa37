package postgres

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Reasons of attempts that an owner left behind.
const (
	endedBefore = "the term of the replica that sent it ended before the answer was recorded"
	wentWithIt  = "the replica that accepted it lost its term, and with it the caller or the request"
	wasLost     = "the server has lost commits that it had confirmed; the call may have been sent since"
)

// A recovery is the first transaction of a term. It decides about the calls of earlier terms, and
// collects the state that it recovers.
type recovery struct {
	*txn
	// The time at the begin, the boot's clock read first.
	bootedAt columns.Boot
	now      time.Time
	repeat   func(*scheduler.Entry) (time.Time, bool)
	state    *scheduler.Recovered
	log      *slog.Logger

	folded int64
	mark   columns.Mark // of the last commit
	lost   bool         // commits are gone that were confirmed
	doubts int          // calls that waited, and became unknown by it
}

func (r *recovery) run(recent time.Duration) (*scheduler.Recovered, error) {
	r.state = &scheduler.Recovered{Backlog: make(map[string]scheduler.Backlog)}
	for _, step := range []func() error{
		r.begin, r.endBound, r.interruptAttempts, r.doubtWaiting,
		func() error { return r.recentHolds(r.mark.Steady - recent.Microseconds()) },
		r.takeHolds, r.count,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.marks = true
	return r.state, nil
}

// begin begins a generation. The fence has left the mark of the last commit. A loss stays noted until [DB.Restate] has stored
// the limits that are full because of it.
func (r *recovery) begin() error {
	var mark string
	err := r.one("UPDATE fence SET generation = generation + 1 RETURNING generation, folded, mark, lost", nil, &r.generation, &r.folded, &mark, &r.lost)
	if err != nil {
		return err
	}
	if mark != "" {
		if r.mark, err = columns.ParseMark(mark); err != nil {
			return err
		}
	}
	var timeouts []byte
	if err := r.one("SELECT coalesce((SELECT value FROM meta WHERE name = 'timeouts'), '{}')", nil, &timeouts); err != nil {
		return err
	}
	if err := json.Unmarshal(timeouts, &r.state.Timeouts); err != nil {
		return fmt.Errorf("meta timeouts: %w", err)
	}
	return r.one("SELECT coalesce(max(seq), 0) FROM calls", nil, &r.state.Seq)
}

// rows reads rows of calls.
func (r *recovery) rows(where string, args ...any) ([]*columns.Row, error) {
	rows, err := r.read("SELECT "+columns.OfCall+" FROM current WHERE "+where+" ORDER BY seq", args...)
	if err != nil {
		return nil, err
	}
	return scanRows(rows)
}

// put stores the decision about a call.
func (r *recovery) put(c *scheduler.Call) error {
	row, err := r.Clock.Row(c, r.codec)
	if err != nil {
		return err
	}
	_, err = r.update(c, row, nil, false, nil)
	return err
}

// endBound ends the calls that were bound to their process: they are unknown if an attempt may have
// been executed, else cancelled.
func (r *recovery) endBound() error {
	rows, err := r.rows("seq IN (SELECT seq FROM calls WHERE state = 'waiting' AND wake <> 0 AND wake = $1) AND state = 'waiting'", int64(columns.BoundToProcess))
	if err != nil {
		return err
	}
	for _, row := range rows {
		c, err := row.Call(r.codec)
		if err != nil {
			return err
		}
		c.State, c.FinishedAt, c.Reason = scheduler.Cancelled, r.now, scheduler.Stopping
		if slices.ContainsFunc(c.Attempts, func(a scheduler.Attempt) bool { return a.Outcome == upstream.Unknown }) {
			c.State, c.FinishedAt, c.Reason = scheduler.Unknown, time.Time{}, ""
		}
		if last := c.Last(); last != nil {
			last.Reason += "; " + wentWithIt
		}
		if err := r.put(c); err != nil {
			return err
		}
	}
	return nil
}

// interruptAttempts decides about the calls that were in flight: they are unknown, or wait again.
// Their permits are out.
func (r *recovery) interruptAttempts() error {
	strays := 0
	if err := r.one("SELECT count(*) FROM flights f WHERE NOT EXISTS (SELECT 1 FROM calls c WHERE c.seq = f.seq)", nil, &strays); err != nil {
		return err
	}
	if strays > 0 {
		return fmt.Errorf("attempts in flight without a call: %d: %w", strays, columns.ErrChecksum)
	}
	rows, err := r.rows("seq IN (SELECT seq FROM flights)")
	if err != nil {
		return err
	}
	for _, row := range rows {
		c, err := row.Call(r.codec)
		if err != nil {
			return err
		}
		r.state.Holds = append(r.state.Holds, c.Outstanding...)
		c.Outstanding = nil
		if err := r.doubt(row, c, endedBefore); err != nil {
			return err
		}
	}
	return nil
}

// doubtWaiting decides about the calls that wait though commits were lost: each may have been sent since. Those that have
// arrived, and may have been taken in, are left to a person.
func (r *recovery) doubtWaiting() error {
	if !r.lost {
		return nil
	}
	r.state.Restored = true
	if arrived, err := r.changed("UPDATE arrivals SET doubtful = true WHERE NOT doubtful"); err != nil {
		return err
	} else if arrived > 0 {
		r.log.Error("calls that have arrived in the store may have been sent; delete them, or send them by UPDATE throttler.arrivals SET doubtful = false", "calls", arrived)
	}
	for seq := int64(0); ; {
		rows, err := r.rows("seq IN (SELECT seq FROM calls WHERE state = 'waiting' AND seq > $1 ORDER BY seq LIMIT 500)", seq)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			c, err := row.Call(r.codec)
			if err != nil {
				return err
			}
			row.AddLostAttempt(c, r.mark)
			if err := r.doubt(row, c, wasLost); err != nil {
				return err
			}
			if c.State == scheduler.Unknown {
				r.doubts++
			}
			seq = row.Seq
		}
	}
}

// doubt makes a call unknown that may have been executed, unless it may be repeated.
func (r *recovery) doubt(row *columns.Row, c *scheduler.Call, reason string) error {
	c.State = scheduler.Unknown
	if last := c.Last(); last != nil {
		last.EndedAt, last.Outcome, last.Reason = r.now, upstream.Unknown, reason
	}
	e, err := entryOf(r.ctx, r.conn, r.codec, row)
	if err != nil {
		return err
	}
	e.Restored = r.lost
	*e.Call = *c // repeat may change its copy
	if at, ok := r.repeat(e); ok {
		c.State, c.Due = scheduler.Waiting, at
	}
	r.state.Interrupted++
	return r.put(c)
}

// recentHolds adds the permits of attempts that ended since an instant, in generations that the table
// quota does not include.
func (r *recovery) recentHolds(since int64) error {
	rows, err := r.rows("seq IN (SELECT seq FROM calls WHERE ended_at > $1 AND ended_at > 0 AND epoch > $2 AND spent <> '')", since, r.folded)
	if err != nil {
		return err
	}
	for _, row := range rows {
		c, err := row.Call(r.codec)
		if err != nil {
			return err
		}
		r.state.Holds = append(r.state.Holds, c.Outstanding...)
	}
	return nil
}

// takeHolds puts all holds on the clock of this process, and replaces quota by them.
func (r *recovery) takeHolds() error {
	holds, err := r.holds()
	if err != nil {
		return err
	}
	r.state.Holds = append(r.state.Holds, holds...)
	passed, step := r.since()
	r.state.Step = step
	r.mark.Recovered(r.state.Holds, r.now, passed)
	return r.replaceHolds(r.state.Holds)
}

// since returns how much time has passed since the mark, and how far the wall clock was put
// forward meanwhile. Wall clocks of two machines may differ, so on another one no time counts as passed: permits
// come back later, never earlier.
func (r *recovery) since() (passed, step time.Duration) {
	if r.mark.Boot.ID == "" || r.mark.Boot.ID != r.bootedAt.ID {
		return 0, 0
	}
	return r.mark.Since(r.bootedAt, r.now)
}

// count counts calls and keys, and gives the life its number.
func (r *recovery) count() error {
	r.state.Epoch = r.generation
	if err := r.one("SELECT count(*) FROM (SELECT 1 FROM keys LIMIT 100000) k", nil, &r.state.Keys); err != nil {
		return err
	}
	rows, err := r.read(`SELECT true, upstream, count(*)::bigint, sum(bytes)::bigint FROM calls WHERE state = 'waiting' GROUP BY upstream
		UNION ALL SELECT false, upstream, count(*), sum(bytes)::bigint FROM calls WHERE state = 'unknown' AND async GROUP BY upstream`)
	if err != nil {
		return err
	}
	var waits bool
	var name string
	var n int
	var bytes int64
	_, err = pgx.ForEachRow(rows, []any{&waits, &name, &n, &bytes}, func() error {
		b := r.state.Backlog[name]
		b.Bytes += bytes
		if waits {
			b.Waiting = n
		} else {
			b.Unknown = n
		}
		r.state.Backlog[name] = b
		return nil
	})
	return err
}
