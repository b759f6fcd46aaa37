package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Reasons of attempts that a process left behind.
const (
	endedBefore = "the process ended before the answer was recorded"
	wentWithIt  = "the process that accepted it ended, and with it its caller or its request"
	wasCopied   = "the store was restored from a copy of that time; the call may have been sent since"
)

// A recovery is the first transaction of a process. It decides about the calls of
// earlier processes, and collects the state that it recovers.
type recovery struct {
	*conn
	// The time at the begin, the boot's clock read first.
	bootedAt columns.Boot
	now      time.Time
	repeat   func(*scheduler.Entry) (time.Time, bool)
	state    *scheduler.Recovered

	// Read from meta.
	folded  int64
	mark    columns.Mark // of the last commit
	clean   bool
	counted []byte // the backlog at the last clean close
}

func (r *recovery) run(recent time.Duration) (*scheduler.Recovered, error) {
	r.state = &scheduler.Recovered{Backlog: make(map[string]scheduler.Backlog)}
	if err := r.readMeta(); err != nil {
		return nil, err
	}
	if err := r.doubtCopied(); err != nil {
		return nil, err
	}
	cancelled, err := r.endBound()
	if err != nil {
		return nil, err
	}
	if err := r.interruptAttempts(); err != nil {
		return nil, err
	}
	if err := r.recentHolds(r.mark.Steady - recent.Microseconds()); err != nil {
		return nil, err
	}
	holds, err := r.holds()
	if err != nil {
		return nil, err
	}
	r.state.Holds = append(r.state.Holds, holds...)
	passed, step := r.mark.Since(r.bootedAt, r.now)
	r.state.Step = step
	r.mark.Recovered(r.state.Holds, r.now, passed)
	if err := r.readBacklog(cancelled); err != nil {
		return nil, err
	}
	if err := r.replaceHolds(r.state.Holds); err != nil {
		return nil, err
	}
	if err := r.one("SELECT count(*) FROM (SELECT 1 FROM keys LIMIT 100000)", nil, &r.state.Keys); err != nil {
		return nil, err
	}
	r.marks, r.state.Epoch = true, r.epoch
	return r.state, r.set("clean", false)
}

// readMeta reads the table meta and begins the epoch of this process.
func (r *recovery) readMeta() error {
	var last int64
	var id []byte
	for _, m := range []struct {
		name string
		to   any
	}{{"epoch", &last}, {"folded", &r.folded}, {"clean", &r.clean}, {"id", &id}, {"backlog", &r.counted}} {
		if err := r.one("SELECT value FROM meta WHERE name = ?", []any{m.name}, m.to); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	switch r.id = string(id); {
	case r.restored != "":
		r.id = r.restored
	case id == nil:
		r.id = rand.Text()
	}
	if r.restored == "" { // else when its limits are full: see adopt
		if err := r.adopt(); err != nil {
			return err
		}
	}
	r.epoch = last + 1
	var err error
	if r.mark, err = lastMark(r.conn); err != nil {
		return err
	}
	// A seq is given once: the blocks have those of swept calls.
	return r.one("SELECT max(coalesce((SELECT max(seq) FROM calls), 0), ?)", []any{r.index.indexed}, &r.state.Seq)
}

// rows reads rows of calls.
func (r *recovery) rows(where string, args ...any) ([]*columns.Row, error) {
	rows, err := r.query("SELECT "+columns.OfCall+" FROM current WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	return scan(rows)
}

// put stores the decision about a call.
func (r *recovery) put(c *scheduler.Call) error {
	row, err := r.Clock.Row(c, r.codec)
	if err != nil {
		return err
	}
	_, err = r.update(c, row, nil, false)
	return err
}

// endBound ends the calls that were bound to their process: they are unknown if an
// attempt may have been executed, else cancelled.
func (r *recovery) endBound() (ended int, err error) {
	rows, err := r.rows("seq IN (SELECT seq FROM calls INDEXED BY waking WHERE state = 'waiting' AND wake <> 0 AND wake = ?) AND state = 'waiting'", columns.BoundToProcess)
	for _, row := range rows {
		c, err := row.Call(r.codec)
		if err != nil {
			return 0, err
		}
		c.State, c.FinishedAt, c.Reason = scheduler.Cancelled, r.now, scheduler.Stopping
		if slices.ContainsFunc(c.Attempts, func(a scheduler.Attempt) bool { return a.Outcome == upstream.Unknown }) {
			c.State, c.FinishedAt, c.Reason = scheduler.Unknown, time.Time{}, ""
		}
		if last := c.Last(); last != nil {
			last.Reason += "; " + wentWithIt
		}
		if err := r.put(c); err != nil {
			return 0, err
		}
	}
	return len(rows), err
}

// interruptAttempts decides about the calls that were in flight: they are unknown, or
// wait again. Their permits are out.
func (r *recovery) interruptAttempts() error {
	if err := strayFlights(context.Background(), r); err != nil {
		return err
	}
	rows, err := r.rows("seq IN (SELECT seq FROM flights)")
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
	return err
}

// doubtCopied decides about the calls that waited, or were in flight, when the copy was
// made that is restored: each may have been sent since, also by a caller that is gone.
func (r *recovery) doubtCopied() error {
	if r.restored == "" {
		return nil
	}
	r.state.Restored = true
	for seq := int64(0); ; {
		rows, err := r.rows("seq IN (SELECT seq FROM calls WHERE state = 'waiting' AND seq > ? ORDER BY seq LIMIT 500) ORDER BY seq", seq)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			c, err := row.Call(r.codec)
			if err != nil {
				return err
			}
			row.AddLostAttempt(c, r.mark)
			if err := r.doubt(row, c, wasCopied); err != nil {
				return err
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
	e, err := entryOf(context.Background(), r, r.codec, row)
	if err != nil {
		return err
	}
	e.Restored = r.restored != ""
	*e.Call = *c // repeat may change its copy
	if at, ok := r.repeat(e); ok {
		c.State, c.Due = scheduler.Waiting, at
	}
	r.state.Interrupted++
	return r.put(c)
}

// strayFlights fails if there are attempts in flight without a call.
func strayFlights(ctx context.Context, q querier) error {
	n := 0
	err := q.QueryRowContext(ctx, "SELECT count(*) FROM flights WHERE seq NOT IN (SELECT seq FROM calls)").Scan(&n)
	if n > 0 {
		err = fmt.Errorf("attempts in flight without a call: %d: %w", n, columns.ErrChecksum)
	}
	return err
}

// recentHolds adds the permits of attempts that ended since an instant, in epochs
// that the table quota does not include.
func (r *recovery) recentHolds(since int64) error {
	rows, err := r.rows("seq IN (SELECT seq FROM calls INDEXED BY ended WHERE ended_at > ? AND ended_at > 0 AND epoch > ? AND spent <> '')", since, r.folded)
	for _, row := range rows {
		c, err := row.Call(r.codec)
		if err != nil {
			return err
		}
		r.state.Holds = append(r.state.Holds, c.Outstanding...)
	}
	return err
}

// readBacklog takes the count of the last clean close, if this recovery has decided
// about no call; else it counts.
func (r *recovery) readBacklog(cancelled int) (err error) {
	if r.clean && cancelled == 0 && r.state.Interrupted == 0 {
		if r.state.Backlog, err = decodeBacklog(r.counted); err == nil {
			return nil
		}
	}
	r.state.Backlog, err = r.backlog()
	return err
}

// lastMark returns the mark of the last commit; all zero if there was none.
func lastMark(c *conn) (m columns.Mark, err error) {
	var text string
	switch err := c.one("SELECT value FROM meta WHERE name = 'mark'", nil, &text); {
	case errors.Is(err, sql.ErrNoRows):
		return m, nil
	case err != nil:
		return m, err
	}
	return columns.ParseMark(text)
}
