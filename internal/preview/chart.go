package preview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/chart"
)

const (
	maxPanels = 10  // of limits
	points    = 320 // of a line
)

// queueColors are those of the limits that hold the backlog.
var queueColors = []chart.Color{chart.Green, chart.Purple, chart.Sky, chart.Yellow, chart.Orange}

// Chart returns the picture of reports side by side. Above are the calls that come in
// and go, below them the backlog, then each limit with its permits as a line.
func Chart(reports ...*Report) chart.Chart {
	limits, unit := limitsOf(reports), unitOf(reports)
	var names []string
	c := chart.Chart{}
	for _, r := range reports {
		names = append(names, r.Config)
		column := []chart.Panel{flowPanel(r, unit), backlogPanel(r, unit)}
		for _, name := range limits {
			column = append(column, limitPanel(r, name, unit))
		}
		c.Columns = append(c.Columns, column)
	}
	c.Title = "Calls, backlog and limits of " + strings.Join(names, " and ")
	return c
}

// A timeUnit is that of a time axis.
type timeUnit struct {
	name   string
	length time.Duration
}

// unitOf returns the unit in which the longest report is read well.
func unitOf(reports []*Report) timeUnit {
	longest := time.Duration(0)
	for _, r := range reports {
		longest = max(longest, r.Makespan.Duration())
	}
	switch {
	case longest > 6*time.Hour:
		return timeUnit{"hours", time.Hour}
	case longest > 10*time.Minute:
		return timeUnit{"minutes", time.Minute}
	}
	return timeUnit{"seconds", time.Second}
}

// limitsOf returns the limits that get a panel: those that held calls first, in
// the order in which the configurations have them.
func limitsOf(reports []*Report) (names [][2]string) {
	for _, held := range []bool{true, false} {
		for _, r := range reports {
			for _, l := range r.Limits {
				name := [2]string{l.Upstream, l.Limit}
				if (l.Queued > 0) == held && l.Keys > 0 && !slices.Contains(names, name) && len(names) < maxPanels {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// newPanel returns a panel without lines. All series of a report have as many steps,
// so all lines have as many points.
func newPanel(r *Report, u timeUnit, title, y string) chart.Panel {
	step := r.Series.Step.Duration() * time.Duration(joined(len(r.Series.Arrivals)))
	return chart.Panel{Title: title, X: "time since the first call (" + u.name + ")", Y: y, Step: float64(step) / float64(u.length)}
}

// joined returns how many of a series' steps make one point of a line.
func joined(steps int) int { return max(1, (steps+points-1)/points) }

// line returns the points of a line.
func line(x []int, join func(a, b int) int) (y []float64) {
	for part := range slices.Chunk(x, joined(len(x))) {
		v := part[0]
		for _, n := range part[1:] {
			v = join(v, n)
		}
		y = append(y, float64(v))
	}
	return y
}

// flowPanel is the panel of the calls that come in and go, counted from the
// beginning: the distance of its lines is the backlog from top to bottom, and the
// wait from left to right.
func flowPanel(r *Report, u timeUnit) chart.Panel {
	p := newPanel(r, u, r.Config+": calls that have come in and gone", "calls")
	total := func(calls []int) []float64 {
		values := line(calls, sum)
		for i := range values[min(1, len(values)):] {
			values[i+1] += values[i]
		}
		return values
	}
	p.Series = []chart.Series{
		{Name: "arrivals", Color: chart.Blue, Values: total(r.Series.Arrivals)},
		{Name: "sends", Color: chart.Orange, Values: total(r.Series.Sends)},
	}
	return p
}

// backlogPanel is the panel of the backlog, in all and by the limit that holds it.
func backlogPanel(r *Report, u timeUnit) chart.Panel {
	p := newPanel(r, u, "backlog", "calls waiting")
	p.Series = []chart.Series{{Name: "all", Color: chart.Ink, Fill: true, Values: line(r.Series.Waiting, most)}}
	colors := queueColors
	for _, l := range r.Series.Limits {
		values := line(l.Queued, mean)
		if len(colors) == 0 || slices.Max(append(values, 0)) == 0 {
			continue
		}
		p.Series = append(p.Series, chart.Series{Name: "for " + l.Limit, Color: colors[0], Values: values})
		colors = colors[1:]
	}
	return p
}

// limitPanel is the panel of a limit: how much of it the busiest key uses.
func limitPanel(r *Report, name [2]string, u timeUnit) chart.Panel {
	p := newPanel(r, u, "limit "+name[1], "permits in a window")
	i := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Upstream == name[0] && l.Limit == name[1] })
	if i < 0 {
		return p
	}
	l := &r.Limits[i]
	if l.Window == "" {
		p.Y = "permits in use"
	} else {
		p.Title += fmt.Sprintf(": %d per %s", l.Permits, l.Window)
	}
	if l.Keys > 1 {
		p.Title += fmt.Sprintf(", for each of %d keys", l.Keys)
	}
	p.Series = []chart.Series{{Name: "busiest key", Color: chart.Blue, Fill: true, Values: line(r.series(l).Most, most)}}
	p.Levels = []chart.Level{{Name: fmt.Sprintf("limit: %d", l.Permits), Value: float64(l.Permits)}}
	return p
}

// series returns that of a limit.
func (r *Report) series(l *Limit) *LimitSeries {
	i := slices.IndexFunc(r.Series.Limits, func(s *LimitSeries) bool { return s.Upstream == l.Upstream && s.Limit == l.Limit })
	return r.Series.Limits[i]
}
