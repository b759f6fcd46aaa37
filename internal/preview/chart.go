package preview

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // draws png
	_ "gonum.org/v1/plot/vg/vgsvg" // draws svg
)

// Pictures are drawn with gonum/plot: plain Go, into a file that any viewer shows.
// go-echarts would need a browser, and its script from a network.

// formats are the endings of pictures' names.
var formats = []string{".png", ".svg"}

// Draws tells whether a picture of that name can be drawn.
func Draws(name string) bool { return slices.Contains(formats, strings.ToLower(filepath.Ext(name))) }

// How pictures are laid out.
const (
	panelWidth  = 6.4 * vg.Inch
	panelHeight = 1.9 * vg.Inch
	legendWidth = 1.5 * vg.Inch
	padding     = 0.15 * vg.Inch
	maxPanels   = 10  // a limit each, after the first two
	points      = 320 // of a line
)

// Colours that are told apart by the colour-blind too (Okabe and Ito).
var (
	blue    = color.RGBA{0, 114, 178, 255}
	orange  = color.RGBA{230, 159, 0, 255}
	red     = color.RGBA{213, 94, 0, 255}
	black   = color.RGBA{60, 60, 60, 255}
	several = []color.Color{color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{240, 228, 66, 255}, orange}
)

// Draw draws reports side by side, as png or svg: above, the calls that come in and
// go; below it, those that wait; then each limit, with its permits as a line.
func Draw(w io.Writer, format string, reports ...*Report) error {
	columns := make([][]*panel, len(reports))
	rows := limitsOf(reports)
	for i, r := range reports {
		columns[i] = panels(r, rows, unitOf(reports))
	}
	n := len(columns[0])
	width := vg.Length(len(reports))*(panelWidth+legendWidth) + 2*padding
	canvas, err := draw.NewFormattedCanvas(width, vg.Length(n)*panelHeight+2*padding, strings.ToLower(format))
	if err != nil {
		return fmt.Errorf("the picture cannot be drawn: %w", err)
	}
	grid := make([][]*plot.Plot, n)
	for y := range n {
		align(columns, y)
		for _, column := range columns {
			grid[y] = append(grid[y], column[y].Plot)
		}
	}
	tiles := draw.Tiles{
		Cols: len(reports), Rows: n, PadX: legendWidth, PadY: 2 * padding,
		PadTop: padding, PadBottom: padding, PadLeft: padding, PadRight: legendWidth + padding,
	}
	for y, line := range plot.Align(grid, tiles, draw.New(canvas)) {
		for x, c := range line {
			grid[y][x].Draw(c)
			beside := c
			beside.Min.X, beside.Max.X = c.Max.X+padding/2, c.Max.X+legendWidth
			columns[x][y].legend.Draw(beside)
		}
	}
	_, err = canvas.WriteTo(w)
	return err
}

// A panel is a plot with its legend beside it.
type panel struct {
	*plot.Plot
	legend plot.Legend
	unit   unit
	step   time.Duration
}

// A unit is that of a time axis.
type unit struct {
	name   string
	length time.Duration
}

// unitOf returns the unit in which the longest report is read well.
func unitOf(reports []*Report) unit {
	longest := time.Duration(0)
	for _, r := range reports {
		longest = max(longest, r.Makespan.Duration())
	}
	switch {
	case longest > 6*time.Hour:
		return unit{"hours", time.Hour}
	case longest > 10*time.Minute:
		return unit{"minutes", time.Minute}
	}
	return unit{"seconds", time.Second}
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

func panels(r *Report, limits [][2]string, u unit) []*panel {
	all := []*panel{flowing(r, u), waiting(r, u)}
	for _, name := range limits {
		all = append(all, limitPanel(r, name, u))
	}
	return all
}

func newPanel(r *Report, u unit, title, y string) *panel {
	p := &panel{Plot: plot.New(), legend: plot.NewLegend(), unit: u, step: r.Series.Step.Duration()}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "time since the first call ("+u.name+")", y
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(11), vg.Points(4)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = vg.Points(9), vg.Points(8)
		axis.Min = 0
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(8), ticks(4)
	p.X.Max = float64(r.Makespan.Duration()) / float64(u.length)
	p.legend.Top, p.legend.Left, p.legend.TextStyle.Font.Size = true, true, vg.Points(9)
	p.legend.ThumbnailWidth, p.legend.Padding = vg.Points(16), vg.Points(4)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{235}, color.Gray{235}
	p.Add(grid)
	return p
}

// ticks marks an axis at about n round numbers.
func ticks(n float64) plot.TickerFunc {
	return func(low, high float64) (marks []plot.Tick) {
		step := math.Pow(10, math.Floor(math.Log10((high-low)/n)))
		for _, m := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
			if (high-low)/step > n {
				step *= m
			}
		}
		for v := math.Ceil(low/step) * step; v <= high+step/1e6; v += step {
			marks = append(marks, plot.Tick{Value: v, Label: strconv.FormatFloat(math.Round(v/step)*step, 'g', 10, 64)})
		}
		return marks
	}
}

// line adds a line of a value per step.
func (p *panel) line(name string, values []float64, c color.Color, fill bool) {
	xys := make(plotter.XYs, 0, len(values)+1)
	for i, v := range values {
		xys = append(xys, plotter.XY{X: float64(i) * float64(p.step) / float64(p.unit.length), Y: v})
		p.Y.Max = max(p.Y.Max, v)
	}
	if n := len(values); n > 0 {
		xys = append(xys, plotter.XY{X: float64(n) * float64(p.step) / float64(p.unit.length), Y: values[n-1]})
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return // without a point
	}
	l.StepStyle, l.Color, l.Width = plotter.PostStep, c, vg.Points(1)
	if r, g, b, _ := c.RGBA(); fill {
		l.FillColor = color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 60}
	}
	p.Add(l)
	p.legend.Add(name, l)
}

// level adds a dashed line at a value.
func (p *panel) level(name string, v float64) {
	l, err := plotter.NewLine(plotter.XYs{{X: 0, Y: v}, {X: p.X.Max, Y: v}})
	if err != nil {
		return
	}
	l.Color, l.Width, l.Dashes = red, vg.Points(1.2), []vg.Length{vg.Points(5), vg.Points(3)}
	p.Add(l)
	p.legend.Add(name, l)
	p.Y.Max = max(p.Y.Max, v)
}

// coarse joins steps until there are few enough of them, and returns how many make one.
func coarse(x []int, join func(a, b int) int) (y []float64, each int) {
	each = (len(x) + points - 1) / points
	for part := range slices.Chunk(x, max(1, each)) {
		v := part[0]
		for _, n := range part[1:] {
			v = join(v, n)
		}
		y = append(y, float64(v))
	}
	return y, max(1, each)
}

// flowing is the panel of the calls that come in and go, counted from the
// beginning: between its lines, down is the backlog and across is the wait.
func flowing(r *Report, u unit) *panel {
	p := newPanel(r, u, r.Config+": calls that have come in and gone", "calls")
	for _, l := range []struct {
		name  string
		calls []int
		color color.Color
	}{{"arrivals", r.Series.Arrivals, blue}, {"sends", r.Series.Sends, orange}} {
		values, each := coarse(l.calls, sum)
		p.step = r.Series.Step.Duration() * time.Duration(each)
		for i := range values[1:] {
			values[i+1] += values[i]
		}
		p.line(l.name, values, l.color, false)
	}
	return p
}

// waiting is the panel of the backlog, in all and by the limit that holds it.
func waiting(r *Report, u unit) *panel {
	p := newPanel(r, u, "backlog", "calls waiting")
	values, each := coarse(r.Series.Waiting, most)
	p.step = r.Series.Step.Duration() * time.Duration(each)
	p.line("all", values, black, true)
	n := 0
	for _, l := range r.Series.Limits {
		if values, _ := coarse(l.Queued, mean); slices.Max(append(values, 0)) > 0 && n < len(several) {
			p.line("for "+l.Limit, values, several[n], false)
			n++
		}
	}
	return p
}

// limitPanel is the panel of a limit: how much of it the busiest key uses.
func limitPanel(r *Report, name [2]string, u unit) *panel {
	p := newPanel(r, u, "limit "+name[1], "permits in a window")
	for i, l := range r.Limits {
		if l.Upstream != name[0] || l.Limit != name[1] {
			continue
		}
		s := r.series(&r.Limits[i])
		values, each := coarse(s.Most, most)
		p.step = r.Series.Step.Duration() * time.Duration(each)
		if l.Window == "" {
			p.Y.Label.Text = "permits in use"
		} else {
			p.Title.Text += fmt.Sprintf(": %d per %s", l.Permits, l.Window)
		}
		if l.Keys > 1 {
			p.Title.Text += fmt.Sprintf(", for each of %d keys", l.Keys)
		}
		p.line("busiest key", values, blue, true)
		p.level(fmt.Sprintf("limit: %d", l.Permits), float64(l.Permits))
	}
	return p
}

// series returns that of a limit.
func (r *Report) series(l *Limit) *LimitSeries {
	i := slices.IndexFunc(r.Series.Limits, func(s *LimitSeries) bool { return s.Upstream == l.Upstream && s.Limit == l.Limit })
	return r.Series.Limits[i]
}

// align gives the panels of a row the same axes.
func align(columns [][]*panel, y int) {
	var right, top float64
	for _, column := range columns {
		right, top = max(right, column[y].X.Max), max(top, column[y].Y.Max)
	}
	for _, column := range columns {
		column[y].X.Max, column[y].Y.Max = max(right, 1e-3), max(top*1.05, 1)
	}
}
