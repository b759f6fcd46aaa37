package preview

import (
	"cmp"
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

// Words are the texts of a picture in another language, by those in English. They have the
// same verbs.
type Words map[string]string

func (w Words) text(format string, args ...any) string {
	return fmt.Sprintf(cmp.Or(w[format], format), args...)
}

// Chart returns the picture of reports side by side. Above are the calls that come in
// and go, below them the backlog, then each limit with its permits as a line.
func Chart(reports ...*Report) chart.Chart { return Words(nil).Chart(reports...) }

// Chart returns the picture with these words.
func (w Words) Chart(reports ...*Report) chart.Chart {
	limits, unit := limitsOf(reports), unitOf(reports)
	var names []string
	c := chart.Chart{}
	for _, r := range reports {
		names = append(names, r.Config)
		column := []chart.Panel{w.flowPanel(r, unit), w.backlogPanel(r, unit)}
		for _, name := range limits {
			column = append(column, w.limitPanel(r, name, unit))
		}
		c.Columns = append(c.Columns, column)
	}
	c.Title = w.text("Calls, backlog and limits of %s", strings.Join(names, w.text(" and ")))
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
func (w Words) newPanel(r *Report, u timeUnit, title, y string) chart.Panel {
	step := r.Series.Step.Duration() * time.Duration(joined(len(r.Series.Arrivals)))
	return chart.Panel{Title: title, X: w.text("time since the first call (%s)", w.text(u.name)), Y: y, Step: float64(step) / float64(u.length)}
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
func (w Words) flowPanel(r *Report, u timeUnit) chart.Panel {
	p := w.newPanel(r, u, w.text("%s: calls that have come in and gone", r.Config), w.text("calls"))
	total := func(calls []int) []float64 {
		values := line(calls, sum)
		for i := range values[min(1, len(values)):] {
			values[i+1] += values[i]
		}
		return values
	}
	p.Series = []chart.Series{
		{Name: w.text("arrivals"), Color: chart.Blue, Values: total(r.Series.Arrivals)},
		{Name: w.text("sends"), Color: chart.Orange, Values: total(r.Series.Sends)},
	}
	return p
}

// backlogPanel is the panel of the backlog, in all and by the limit that holds it.
func (w Words) backlogPanel(r *Report, u timeUnit) chart.Panel {
	p := w.newPanel(r, u, w.text("backlog"), w.text("calls waiting"))
	p.Series = []chart.Series{{Name: w.text("all"), Color: chart.Ink, Fill: true, Values: line(r.Series.Waiting, most)}}
	colors := queueColors
	for _, l := range r.Series.Limits {
		values := line(l.Queued, mean)
		if len(colors) == 0 || slices.Max(append(values, 0)) == 0 {
			continue
		}
		p.Series = append(p.Series, chart.Series{Name: w.text("for %s", l.Limit), Color: colors[0], Values: values})
		colors = colors[1:]
	}
	return p
}

// limitPanel is the panel of a limit: how much of it the busiest key uses.
func (w Words) limitPanel(r *Report, name [2]string, u timeUnit) chart.Panel {
	p := w.newPanel(r, u, w.text("limit %s", name[1]), w.text("permits in a window"))
	i := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Upstream == name[0] && l.Limit == name[1] })
	if i < 0 {
		return p
	}
	l := &r.Limits[i]
	if l.Window == "" {
		p.Y = w.text("permits in use")
	} else {
		p.Title += w.text(": %d per %s", l.Permits, l.Window)
	}
	if l.Keys > 1 {
		p.Title += w.text(", for each of %d keys", l.Keys)
	}
	p.Series = []chart.Series{{Name: w.text("busiest key"), Color: chart.Blue, Fill: true, Values: line(r.series(l).Most, most)}}
	p.Levels = []chart.Level{{Name: w.text("limit: %d", l.Permits), Value: float64(l.Permits)}}
	return p
}

// series returns that of a limit.
func (r *Report) series(l *Limit) *LimitSeries {
	i := slices.IndexFunc(r.Series.Limits, func(s *LimitSeries) bool { return s.Upstream == l.Upstream && s.Limit == l.Limit })
	return r.Series.Limits[i]
}
