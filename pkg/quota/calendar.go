package quota

import (
	"fmt"
	"time"
)

// A Unit is the length of an aligned window.
type Unit uint8

const (
	Minute Unit = iota + 1
	Hour
	Day
	Month
)

// A Calendar aligns a window to the wall clock of the provider's zone: days have
// 23 or 25 hours where the zone says so.
type Calendar struct {
	Unit Unit
	// Zone is the provider's; nil means UTC.
	Zone *time.Location
	// Skew is how far the receiver's wall clock and ours may be apart.
	Skew time.Duration
}

// ParseUnit returns the unit of a name: minute, hour, day or month.
func ParseUnit(name string) (Unit, error) {
	for u := Minute; u <= Month; u++ {
		if u.String() == name {
			return u, nil
		}
	}
	return 0, fmt.Errorf("unit %q is unknown, must be minute, hour, day or month", name)
}

func (u Unit) String() string {
	return [...]string{"", "minute", "hour", "day", "month"}[u]
}

// length returns the nominal length of the unit: days of 24 hours, months of 30 days.
func (u Unit) length() time.Duration {
	return [...]time.Duration{0, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour}[u]
}

// Equal reports whether two calendars, or nil, are the same.
func (c *Calendar) Equal(o *Calendar) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Unit == o.Unit && c.Skew == o.Skew && c.zone().String() == o.zone().String()
}

func (c *Calendar) zone() *time.Location {
	if c.Zone == nil {
		return time.UTC
	}
	return c.Zone
}

// ResetsAt returns the end of the window that contains now, by the wall clock of the zone. Skew
// does not count.
func (c Calendar) ResetsAt(now time.Time) time.Time { return time.Unix(0, c.end(now.UnixNano())) }

// end returns the end of the window that contains the wall instant, in nanoseconds since
// the Unix epoch. The window of an hour or of a date lasts until the last instant that has it:
// where clocks are put back, an hour comes twice, and a receiver may count both as one. A minute
// that comes twice is two windows, an hour apart: receivers do not keep its count for so long, and
// permits that are held until then would leave 59 of the minutes between without any.
func (c Calendar) end(wall int64) int64 {
	zone := c.zone()
	t := time.Unix(0, wall).In(zone)
	y, m, d := t.Date()
	switch c.Unit {
	case Hour:
		return last(t, time.Date(y, m, d, t.Hour()+1, 0, 0, 0, time.UTC))
	case Day:
		return last(t, time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC))
	case Month:
		return last(t, time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC))
	}
	return wall + int64(time.Minute) - int64(t.Second())*1e9 - int64(t.Nanosecond()) // all offsets are whole minutes since 1972
}

// farthestOffset is more than any zone's clock is ahead of UTC, or behind it.
const farthestOffset = 26 * time.Hour

// last returns the instant after which no clock of t's zone shows a time before next, which
// is given as if it were in UTC.
func last(t, next time.Time) int64 {
	var end int64
	for at := t; at.Before(next.Add(farthestOffset)); {
		_, offset := at.Zone()
		_, change := at.ZoneBounds()
		if reached := next.Add(-time.Duration(offset) * time.Second); reached.After(at) {
			if !change.IsZero() && change.Before(reached) {
				reached = change
			}
			end = reached.UnixNano()
		}
		if change.IsZero() {
			break
		}
		at = change
	}
	return end
}

// over returns when the receiver certainly counts an attempt no more that arrived
// by the wall instant: when the last window in which it may have arrived has ended
// on either clock.
func (c Calendar) over(wall int64) int64 { return c.end(wall+int64(c.Skew)) + int64(c.Skew) }
