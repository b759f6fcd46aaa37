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

// bounds returns the window that contains the wall instant, in nanoseconds since
// the Unix epoch: start inclusive, end exclusive.
func (c Calendar) bounds(wall int64) (start, end int64) {
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	t := time.Unix(0, wall).In(zone)
	switch c.Unit {
	case Day:
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, zone).UnixNano(), time.Date(y, m, d+1, 0, 0, 0, 0, zone).UnixNano()
	case Month:
		y, m, _ := t.Date()
		return time.Date(y, m, 1, 0, 0, 0, 0, zone).UnixNano(), time.Date(y, m+1, 1, 0, 0, 0, 0, zone).UnixNano()
	}
	// Minutes and hours pass evenly on the wall, also across a change of the zone's offset.
	length, into := int64(time.Minute), int64(t.Second())*1e9+int64(t.Nanosecond())
	if c.Unit == Hour {
		length, into = int64(time.Hour), into+int64(t.Minute())*60e9
	}
	return wall - into, wall - into + length
}

// aligned is a window of a calendar: an attempt counts in every window that it
// may have arrived in, by either clock.
type aligned struct {
	calendar Calendar
	charged  []charged // by start; few: the windows that may still be open
}

// charged are the permits spent in one window.
type charged struct {
	start, end int64 // wall
	n          int
}

func (w *aligned) used(now instant) int {
	skew := int64(w.calendar.Skew)
	keep := w.charged[:0]
	most := 0
	for _, c := range w.charged {
		if c.end <= now.wall-skew {
			continue
		}
		keep = append(keep, c)
		if c.start <= now.wall+skew {
			most = max(most, c.n)
		}
	}
	w.charged = keep
	return most
}

func (w *aligned) charge(now, sent, end instant, cost int) {
	w.used(now)
	skew := int64(w.calendar.Skew)
	for t := sent.wall - skew; t <= end.wall+skew; {
		start, next := w.calendar.bounds(t)
		if next > now.wall-skew {
			w.add(start, next, cost)
		}
		t = next
	}
}

func (w *aligned) add(start, end int64, cost int) {
	for i := range w.charged {
		if w.charged[i].start == start {
			w.charged[i].n += cost
			return
		}
	}
	w.charged = append(w.charged, charged{start, end, cost})
}

func (w *aligned) fits(now instant, n int) int64 {
	if w.used(now) <= n {
		return now.mono
	}
	skew := int64(w.calendar.Skew)
	at := now.wall
	for moved := true; moved; {
		moved = false
		for _, c := range w.charged {
			if c.n > n && c.start <= at+skew && c.end > at-skew {
				at, moved = c.end+skew, true
			}
		}
	}
	return now.mono + at - now.wall
}

func (w *aligned) expect(now, from instant, calls, inFlight, last int, _ int64) int64 {
	skew := int64(w.calendar.Skew)
	most := 0
	for _, c := range w.charged {
		if c.start <= from.wall+skew && c.end > from.wall-skew {
			most = max(most, c.n)
		}
	}
	left := last - max(0, calls-inFlight-most)
	if left < 0 {
		return from.mono
	}
	_, edge := w.calendar.bounds(from.wall)
	for range min(left/calls, 1000) {
		_, edge = w.calendar.bounds(edge)
	}
	if far := left/calls - 1000; far > 0 { // estimate by the last window's length
		start, end := w.calendar.bounds(edge)
		edge += int64(far) * (end - start)
	}
	return from.mono + edge + skew - from.wall
}
