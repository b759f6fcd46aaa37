package store

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// A clock reads the time for a file. The instants at which permits come back, and those
// at which attempts ended, are on the clock of the process: the wall clock as it was at
// the start, and from then on the monotonic one, so that no step of the wall clock moves
// them. With every commit the file has a mark, which says what this clock, the wall clock
// and the clock since the boot of the machine showed.
type clock struct {
	start time.Time
	boot  func() boot
}

// A boot is a reading of the clock that counts since the machine was started.
type boot struct {
	id    string // of this start of the machine; empty if the clock is not known
	since time.Duration
}

// micros returns an instant as the file has it.
func (k clock) micros(t time.Time) int64 { return micros(k.steady(t)) }

// steady returns an instant on the clock of the process, without a monotonic reading.
func (k clock) steady(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return k.start.Add(t.Sub(k.start)).Round(0)
}

// hold puts a hold on the clock of the process, in whole microseconds. The end of a pause
// is an instant that a person has named: it stays.
func (k clock) hold(h lease.Hold) lease.Hold {
	if !h.Paused {
		h.Back = k.steady(h.Back)
	}
	h.Back = ceil(h.Back)
	return h
}

func (k clock) holds(holds []lease.Hold) []lease.Hold {
	steady := make([]lease.Hold, len(holds))
	for i, h := range holds {
		steady[i] = k.hold(h)
	}
	return steady
}

// A mark is the time of a commit.
type mark struct {
	steady, wall int64 // microseconds since the Unix epoch, by the clock of the process and by the wall clock
	boot         boot
}

// mark returns the time now. It reads the boot's clock last, and a recovery reads it
// first: what is read between them counts as time that has not passed.
func (k clock) mark() mark {
	now := time.Now()
	return mark{k.micros(now), micros(now), k.boot()}
}

// String is the value of meta 'mark'.
func (m mark) String() string {
	return fmt.Sprintf("%d %d %d %s", m.steady, m.wall, m.boot.since.Microseconds()+1, m.boot.id)
}

// lastMark returns the mark of the last commit; all zero if there was none.
func lastMark(c *conn) (m mark, err error) {
	var text string
	switch err := c.one("SELECT value FROM meta WHERE name = 'mark'", nil, &text); {
	case errors.Is(err, sql.ErrNoRows):
		return m, nil
	case err != nil:
		return m, err
	}
	var since int64
	switch n, err := fmt.Sscan(text, &m.steady, &m.wall, &since, &m.boot.id); {
	case n == 1: // written before the file had a clock of its own
		m.wall = m.steady
	case n < 3:
		return m, fmt.Errorf("meta mark is %q: %w", text, err)
	}
	m.boot.since = time.Duration(since) * time.Microsecond
	return m, nil
}

// since returns how much time has passed since the mark, and how far the wall clock was
// put forward meanwhile, or back if step is negative. Since another start of the machine
// only the wall clock can tell: where it went forward it is trusted.
func (m mark) since(b boot, now time.Time) (passed, step time.Duration) {
	wall := now.Sub(instant(m.wall))
	switch {
	case m.steady == 0: // the first process of the file
		return 0, 0
	case m.boot.id != "" && m.boot.id == b.id && b.since >= m.boot.since:
		passed = b.since - m.boot.since
	default:
		passed = max(0, wall)
	}
	return passed, wall - passed
}

// recovered puts the holds of an earlier process, which ended at the mark, on the clock
// of this one.
func (m mark) recovered(holds []lease.Hold, now time.Time, passed time.Duration) {
	for i := range holds {
		if h := &holds[i]; !h.Paused && !h.Back.IsZero() {
			h.Back = now.Add(h.Back.Sub(instant(m.steady)) - passed)
		}
	}
}
