package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What is said of calls that a life of the store left behind.
const (
	endedBefore = "the process ended before the answer was recorded"
	wentWithIt  = "the process that accepted it ended, and with it its caller or its request"
)

// Recover implements [scheduler.Durable].
func (d *DB) Recover(ctx context.Context, recent time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (*scheduler.Past, error) {
	var past *scheduler.Past
	err := d.do(ctx, &op{essential: true, run: func(w *writer) (answer, err error) {
		past = &scheduler.Past{Backlog: make(map[string]scheduler.UpstreamStatus)}
		return nil, w.recover(past, recent, repeat)
	}})
	if err != nil {
		return nil, err
	}
	return past, nil
}

// recover runs in the writer's transaction.
func (w *writer) recover(past *scheduler.Past, recent time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) error {
	var last, folded, mark int64
	var clean bool
	var id, backlog []byte
	for _, m := range []struct {
		name string
		to   any
	}{{"epoch", &last}, {"folded", &folded}, {"mark", &mark}, {"clean", &clean}, {"id", &id}, {"backlog", &backlog}} {
		if err := w.one("SELECT value FROM meta WHERE name = ?", []any{m.name}, m.to); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if id == nil {
		if err := w.set("id", rand.Text()); err != nil {
			return err
		}
	}
	w.epoch = last + 1
	past.Epoch, past.Mark = w.epoch, instant(mark)
	if err := w.one("SELECT coalesce(max(seq), 0) FROM calls", nil, &past.Seq); err != nil {
		return err
	}
	now, ended := time.Now(), 0
	for _, step := range []func() error{
		func() (err error) { ended, err = w.endFragile(now); return err },
		func() error { return w.breakSending(past, now, repeat) },
		func() error { return w.recentHolds(past, folded, max(mark, micros(now))-recent.Microseconds()) },
		func() error { return w.quotaHolds(past) },
		func() error { return w.backlog(past, clean && ended == 0 && past.Broken == 0, backlog) },
		func() error { return w.set("epoch", w.epoch) },
		func() error { return w.set("clean", false) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) set(name string, value any) error {
	return w.exec("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)
}

// rows reads rows of calls.
func (w *writer) rows(where string, args ...any) ([]*row, error) {
	s, err := w.prepared("SELECT " + columns + " FROM current WHERE " + where)
	if err != nil {
		return nil, err
	}
	rows, err := s.Query(args...)
	if err != nil {
		return nil, err
	}
	return scan(rows)
}

// put stores what recovery decided about a call.
func (w *writer) put(c *scheduler.Call) error {
	r, err := rowOf(c)
	if err != nil {
		return err
	}
	_, err = w.update(c, r, nil, false)
	return err
}

// endFragile ends calls that cannot go on: nobody has an answer that they were
// accepted, or their request was not kept. One that was sent may have been executed.
func (w *writer) endFragile(now time.Time) (ended int, err error) {
	rows, err := w.rows("seq IN (SELECT seq FROM calls INDEXED BY waking WHERE state = 'waiting' AND wake <> 0 AND wake = ?) AND state = 'waiting'", fragile)
	for _, r := range rows {
		c, err := r.call()
		if err != nil {
			return 0, err
		}
		c.State, c.FinishedAt = scheduler.Cancelled, now
		if slices.ContainsFunc(c.Attempts, func(a scheduler.Attempt) bool { return a.Outcome == upstream.Unknown }) {
			c.State, c.FinishedAt = scheduler.Unknown, time.Time{}
		}
		if last := c.Last(); last != nil {
			last.Reason += "; " + wentWithIt
		}
		if err := w.put(c); err != nil {
			return 0, err
		}
	}
	return len(rows), err
}

// breakSending decides about what was being sent. Its permits go over to the quota table.
func (w *writer) breakSending(past *scheduler.Past, now time.Time, repeat func(*scheduler.Entry) (time.Time, bool)) error {
	held := int64(1) << 31 // ids that no block of this life has
	if err := strayFlights(conn{w}); err != nil {
		return err
	}
	rows, err := w.rows("seq IN (SELECT seq FROM flights)")
	for _, r := range rows {
		c, err := r.call()
		if err != nil {
			return err
		}
		for _, h := range c.Spent { // quotaHolds finds them there
			held++
			if h.ID = w.epoch<<32 + held; !h.Back.IsZero() {
				h.Back = ceil(h.Back)
			}
			if err := w.hold("INSERT", h); err != nil {
				return err
			}
		}
		c.State, c.Spent = scheduler.Unknown, nil
		if last := c.Last(); last != nil {
			last.EndedAt, last.Outcome, last.Reason = now, upstream.Unknown, endedBefore
		}
		e, err := w.entry(conn{w}, r)
		if err != nil {
			return err
		}
		*e.Call = *c // repeat may change its copy
		if at, ok := repeat(e); ok {
			c.State, c.Due = scheduler.Waiting, at
		}
		if err := w.put(c); err != nil {
			return err
		}
		past.Broken++
	}
	return err
}

// strayFlights looks for what was being sent and is of no call.
func strayFlights(q querier) error {
	n := 0
	err := q.QueryRow("SELECT count(*) FROM flights WHERE seq NOT IN (SELECT seq FROM calls)").Scan(&n)
	if n > 0 {
		err = fmt.Errorf("%d of what was being sent are of no call: %w", n, errSum)
	}
	return err
}

// conn is the writer's connection, inside its transaction.
type conn struct{ w *writer }

func (c conn) QueryRow(query string, args ...any) *sql.Row {
	return c.w.conn.QueryRowContext(context.Background(), query, args...)
}

func (c conn) Query(query string, args ...any) (*sql.Rows, error) {
	return c.w.conn.QueryContext(context.Background(), query, args...)
}

// recentHolds adds the permits of attempts that ended since an instant, of lives
// whose use of the quota was not folded into the quota table.
func (w *writer) recentHolds(past *scheduler.Past, folded, since int64) error {
	rows, err := w.rows("seq IN (SELECT seq FROM calls INDEXED BY ended WHERE ended_at > 0 AND ended_at > ? AND epoch > ? AND spent <> '')", since, folded)
	for _, r := range rows {
		c, err := r.call()
		if err != nil {
			return err
		}
		past.Holds = append(past.Holds, c.Spent...)
	}
	return err
}

func (w *writer) quotaHolds(past *scheduler.Past) error {
	s, err := w.prepared("SELECT id, upstream, name, key, every, permits, back, paused, sum FROM quota")
	if err != nil {
		return err
	}
	rows, err := s.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var h scheduler.Hold
		var back, found int64
		if err := rows.Scan(&h.ID, &h.Upstream, &h.Limit, &h.Key, &h.Every, &h.Permits, &back, &h.Paused, &found); err != nil {
			return err
		}
		h.Back = instant(back)
		if sumOf(h) != found {
			return fmt.Errorf("quota %d: %w", h.ID, errSum)
		}
		past.Holds = append(past.Holds, h)
	}
	return rows.Err()
}

// backlog counts what waits and what is unknown; after a clean end it was counted, and
// is so still if nothing was decided since.
func (w *writer) backlog(past *scheduler.Past, known bool, counted []byte) error {
	if known && json.Unmarshal(counted, &past.Backlog) == nil {
		return nil
	}
	return w.count(past.Backlog)
}

func (w *writer) count(backlog map[string]scheduler.UpstreamStatus) error {
	s, err := w.prepared(`SELECT 1, upstream, count(*), sum(bytes) FROM calls INDEXED BY waiting WHERE state = 'waiting' GROUP BY upstream
		UNION ALL SELECT 0, upstream, count(*), sum(bytes) FROM calls INDEXED BY unsettled WHERE state = 'unknown' AND async GROUP BY upstream`)
	if err != nil {
		return err
	}
	rows, err := s.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var waits bool
		var name string
		var n int
		var bytes int64
		if err := rows.Scan(&waits, &name, &n, &bytes); err != nil {
			return err
		}
		b := backlog[name]
		b.Bytes += bytes
		if waits {
			b.Waiting = n
		} else {
			b.Unknown = n
		}
		backlog[name] = b
	}
	return rows.Err()
}

// finish is the last change of a life that ends cleanly.
func (w *writer) finish() error {
	backlog := make(map[string]scheduler.UpstreamStatus)
	return w.commit([]*op{{run: func(w *writer) (answer, err error) {
		if err := w.count(backlog); err != nil {
			return nil, err
		}
		text, err := json.Marshal(backlog)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(w.set("backlog", text), w.set("clean", true))
	}}})
}

// Restate implements [scheduler.Durable].
func (d *DB) Restate(ctx context.Context, holds []scheduler.Hold) error {
	return d.do(ctx, &op{essential: true, run: func(w *writer) (answer, err error) {
		if err := w.exec("DELETE FROM quota"); err != nil {
			return nil, err
		}
		for i, h := range holds {
			if !h.Paused {
				h.ID = int64(i + 1) // below those of any block
			}
			if err := w.hold("INSERT", h); err != nil {
				return nil, err
			}
		}
		// What is sent from now on is not among them: it has a new epoch.
		folded := w.epoch
		w.epoch++
		return nil, errors.Join(w.set("folded", folded), w.set("epoch", w.epoch))
	}})
}

func sumOf(h scheduler.Hold) int64 {
	return sum(h.ID, h.Upstream, h.Limit, h.Key, h.Every, h.Permits, micros(h.Back), h.Paused)
}

func (w *writer) hold(insert string, h scheduler.Hold) error {
	if !h.Back.IsZero() {
		h.Back = ceil(h.Back)
	}
	return w.exec(insert+" INTO quota VALUES (?,?,?,?,?,?,?,?,?)", h.ID, h.Upstream, h.Limit, h.Key, h.Every, h.Permits, micros(h.Back), h.Paused, sumOf(h))
}

// Settle implements [scheduler.Durable].
func (d *DB) Settle(ctx context.Context, holds []scheduler.Hold) error {
	return d.do(ctx, &op{essential: true, run: func(w *writer) (answer, err error) {
		for _, h := range holds {
			h.Back = ceil(h.Back)
			if err := w.exec("UPDATE quota SET back = ?, sum = ? WHERE id = ?", micros(h.Back), sumOf(h), h.ID); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}})
}
