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

// bounds returns the window that contains the wall instant, in nanoseconds since
// the Unix epoch: start inclusive, end exclusive.
func (c Calendar) bounds(wall int64) (start, end int64) {
	zone := c.zone()
	t := time.Unix(0, wall).In(zone)
	switch y, m, d := t.Date(); c.Unit {
	case Day:
		return days(t, time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d+1, 0, 0, 0, 0, zone))
	case Month:
		return days(t, time.Date(y, m, 1, 0, 0, 0, 0, zone), time.Date(y, m+1, 1, 0, 0, 0, 0, zone))
	}
	// Minutes and hours pass evenly on the wall, also across a change of the zone's offset.
	length, into := int64(time.Minute), int64(t.Second())*1e9+int64(t.Nanosecond())
	if c.Unit == Hour {
		length, into = int64(time.Hour), into+int64(t.Minute())*60e9
	}
	return wall - into, wall - into + length
}

// days returns the first instants of two dates around t. Where clocks are put
// forward at midnight there is no midnight, and where they are put back to before
// it there are two.
func days(t, from, to time.Time) (start, end int64) {
	start, end = first(from).UnixNano(), first(to).UnixNano()
	if at := t.UnixNano(); end <= at { // t is in the hour before that is repeated
		end = max(to.UnixNano(), at+1)
	}
	return start, end
}

// first returns the first instant of the date of which midnight is meant.
func first(midnight time.Time) time.Time {
	if midnight.Hour() >= 12 { // skipped: it is still the date before
		_, forward := midnight.ZoneBounds()
		return forward
	}
	if midnight.Hour() > 0 || midnight.Minute() > 0 { // skipped: it is already after
		forward, _ := midnight.ZoneBounds()
		return forward
	}
	if back, _ := midnight.ZoneBounds(); !back.IsZero() {
		_, before := back.Add(-1).Zone()
		_, after := midnight.Zone()
		if earlier := midnight.Add(-time.Duration(before-after) * time.Second); before > after && earlier.Before(back) {
			return earlier // the same time on the clock, before it was put back
		}
	}
	return midnight
}

// over returns when the receiver certainly counts an attempt no more that arrived
// by the wall instant: when the last window in which it may have arrived has ended
// on either clock.
func (c Calendar) over(wall int64) int64 {
	_, end := c.bounds(wall + int64(c.Skew))
	return end + int64(c.Skew)
}
