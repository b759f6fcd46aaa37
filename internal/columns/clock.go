package columns

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// A Clock reads the time for a file. The instants at which permits come back, and those
// at which attempts ended, are on the clock of the process: the wall clock as it was at
// the start, and from then on the monotonic one, so that no step of the wall clock moves
// them. With every commit the file has a mark: the readings of this clock, of the wall clock
// and of the clock since the boot of the machine.
type Clock struct {
	Start time.Time
	Boot  func() Boot
}

// A Boot is a reading of the clock that counts since the machine was started.
type Boot struct {
	ID    string // of this start of the machine; empty if the clock is not known
	Since time.Duration
}

// Micros returns an instant as the file has it.
func (k Clock) Micros(t time.Time) int64 { return Micros(k.steady(t)) }

// steady returns an instant on the clock of the process, without a monotonic reading.
func (k Clock) steady(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return k.Start.Add(t.Sub(k.Start)).Round(0)
}

// Hold puts a hold on the clock of the process, in whole microseconds. The end of a pause
// is an instant that a person has named: it stays.
func (k Clock) Hold(h lease.Hold) lease.Hold {
	if !h.Paused {
		h.Back = k.steady(h.Back)
	}
	h.Back = Ceil(h.Back)
	return h
}

func (k Clock) holds(holds []lease.Hold) []lease.Hold {
	steady := make([]lease.Hold, len(holds))
	for i, h := range holds {
		steady[i] = k.Hold(h)
	}
	return steady
}

// A Mark is the time of a commit.
type Mark struct {
	Steady, Wall int64 // microseconds since the Unix epoch, by the clock of the process and by the wall clock
	Boot         Boot
}

// Mark returns the time now. It reads the boot's clock last, and a recovery reads it
// first: the time between the two readings counts as time that has not passed.
func (k Clock) Mark() Mark {
	now := time.Now()
	return Mark{k.Micros(now), Micros(now), k.Boot()}
}

// String is the value of meta 'mark'.
func (m Mark) String() string {
	return fmt.Sprintf("%d %d %d %s", m.Steady, m.Wall, m.Boot.Since.Microseconds()+1, m.Boot.ID)
}

// ParseMark reads a value of meta 'mark'.
func ParseMark(text string) (m Mark, err error) {
	var since int64
	switch n, err := fmt.Sscan(text, &m.Steady, &m.Wall, &since, &m.Boot.ID); {
	case n == 1: // written before the file had a clock of its own
		m.Wall = m.Steady
	case n < 3:
		return m, fmt.Errorf("meta mark is %q: %w", text, err)
	}
	m.Boot.Since = time.Duration(since) * time.Microsecond
	return m, nil
}

// Since returns how much time has passed since the mark, and how far the wall clock was
// put forward meanwhile, or back if step is negative. Since another start of the machine
// only the wall clock can tell: where it went forward it is trusted.
func (m Mark) Since(b Boot, now time.Time) (passed, step time.Duration) {
	wall := now.Sub(Instant(m.Wall))
	switch {
	case m.Steady == 0: // the first process of the file
		return 0, 0
	case m.Boot.ID != "" && m.Boot.ID == b.ID && b.Since >= m.Boot.Since:
		passed = b.Since - m.Boot.Since
	default:
		passed = max(0, wall)
	}
	return passed, wall - passed
}

// Recovered puts the holds of an earlier process, which ended at the mark, on the clock
// of this one.
func (m Mark) Recovered(holds []lease.Hold, now time.Time, passed time.Duration) {
	for i := range holds {
		if h := &holds[i]; !h.Paused && !h.Back.IsZero() {
			h.Back = now.Add(h.Back.Sub(Instant(m.Steady)) - passed)
		}
	}
}
