package chart

import (
	"cmp"
	"math"
)

// Lengths, in pixels.
const (
	margin      = 16.0
	plotWidth   = 440.0 // unless the chart has another one
	plotHeight  = 96.0  // at least; more if the legend needs it
	head        = 42.0  // of a panel above its plot: title and label of the y axis
	foot        = 36.0  // below its plot: ticks and label of the x axis
	gap         = 12.0  // between parts of a panel
	space       = 20.0  // between panels
	swatch      = 18.0  // of an entry of the legend
	entryHeight = 17.0
	nameMin     = 40.0 // room for names in the legend; half a label of the x axis reaches below it
	nameMax     = 190.0
	tickSpace   = 12.0 // between labels of ticks
)

// headroom is the top of a y axis over the highest value.
const headroom = 1.05

type point struct{ x, y float64 }

// An anchor is the part of a text that is at its point.
type anchor int

const (
	start anchor = iota
	middle
	end
)

// A pen draws lines.
type pen struct {
	color  Color
	width  float64
	dashed bool
}

// A canvas takes the shapes of a chart. Points are in pixels from the top left
// corner of the panel that is being drawn.
type canvas interface {
	panel(at point, width, height float64, draw func())
	lines(p pen, lines ...[]point)
	area(c Color, points []point)
	// text writes a text, of which full is the whole.
	text(c Color, size float64, a anchor, at point, s, full string)
}

// A row is a row of panels, with the axes that they share.
type row struct {
	x, y        axis
	top, height float64 // of the row, and of its plots
}

// A layout says where the parts of a chart are.
type layout struct {
	rows                []row
	plot, gutter, names float64 // widths: of plots, left of them, and of names in legends
	width, height       float64
}

// layout measures the chart.
func layoutOf(c Chart) layout {
	l := layout{plot: cmp.Or(c.PlotWidth, plotWidth), names: nameMin, height: margin}
	for y := 0; ; y++ {
		var panels []Panel
		for _, column := range c.Columns {
			if y < len(column) {
				panels = append(panels, column[y])
			}
		}
		if len(panels) == 0 {
			break
		}
		r := newRow(panels, l.plot)
		r.top = l.height
		l.rows = append(l.rows, r)
		l.height += head + r.height + foot + space
		l.gutter = max(l.gutter, widest(r.y.labels, smallText)+gap)
		for _, p := range panels {
			l.names = max(l.names, widest(p.names(), plainText))
		}
	}
	l.gutter, l.names = math.Ceil(l.gutter), math.Ceil(min(l.names, nameMax))
	l.width = 2*margin + float64(max(1, len(c.Columns)))*(l.panelWidth()+space) - space
	l.height = max(l.height-space, margin) + margin
	return l
}

func newRow(panels []Panel, width float64) row {
	r := row{height: plotHeight}
	right, top, whole := 0.0, 0.0, true
	for _, p := range panels {
		right, top, whole = max(right, p.right()), max(top, p.top()), whole && p.whole()
		r.height = max(r.height, float64(len(p.names()))*entryHeight)
	}
	r.x, r.y = newXAxis(max(right, 1e-3), width), newAxis(max(top*headroom, 1), 4, whole)
	return r
}

func (l layout) panelWidth() float64 { return l.gutter + l.plot + gap + swatch + gap/2 + l.names }

// names returns the entries of the panel's legend.
func (p Panel) names() []string {
	var all []string
	for _, s := range p.Series {
		if s.Name != "" {
			all = append(all, clean(s.Name))
		}
	}
	for _, l := range p.Levels {
		all = append(all, clean(l.Name))
	}
	return all
}

// paint draws the chart.
func paint(c Chart, on canvas, l layout) {
	for x, column := range c.Columns {
		for y, p := range column {
			r := l.rows[y]
			at := point{margin + float64(x)*(l.panelWidth()+space), r.top}
			d := drawing{canvas: on, layout: l, row: r, panel: p}
			on.panel(at, l.panelWidth(), head+r.height+foot, d.draw)
		}
	}
}

// A drawing is a panel that is being drawn.
type drawing struct {
	canvas canvas
	layout layout
	row    row
	panel  Panel
}

func (d drawing) draw() {
	d.label(Ink, titleText, start, point{0, 13}, d.panel.Title, d.layout.panelWidth())
	d.label(soft, smallText, start, point{0, 31}, d.panel.Y, d.layout.panelWidth())
	d.axes()
	entry := 0
	name := func(s string) point {
		at := point{d.layout.gutter + d.layout.plot + gap, head + float64(entry)*entryHeight + entryHeight/2}
		d.label(Ink, plainText, start, point{at.x + swatch + gap/2, at.y + 4}, s, d.layout.names)
		entry++
		return at
	}
	for _, s := range d.panel.Series {
		var entry *point
		if s.Name != "" {
			at := name(s.Name)
			entry = &at
		}
		d.series(s, entry)
	}
	for _, l := range d.panel.Levels {
		p, y, at := pen{Red, 1.6, true}, d.y(l.Value), name(l.Name)
		d.canvas.lines(p, []point{{d.x(0), y}, {d.x(d.row.x.max), y}}, []point{at, {at.x + swatch, at.y}})
	}
}

// axes draws the grid, and the ticks with their labels.
func (d drawing) axes() {
	left, right, bottom := d.x(0), d.x(d.row.x.max), d.y(0)
	var lines [][]point
	for i, s := range d.row.y.labels {
		y := d.y(float64(i) * d.row.y.step)
		lines = append(lines, []point{{left, sharp(y)}, {right, sharp(y)}})
		d.label(soft, smallText, end, point{left - 6, y + 4}, s, d.layout.gutter)
	}
	for i, s := range d.row.x.labels {
		v := float64(i) * d.row.x.step
		if d.panel.Ago {
			v = d.row.x.max - v
		}
		x := d.x(v)
		lines = append(lines, []point{{sharp(x), head}, {sharp(x), bottom + 4}})
		d.label(soft, smallText, middle, point{x, bottom + 16}, s, d.layout.plot)
	}
	d.canvas.lines(pen{grid, 1, false}, lines...)
	d.canvas.lines(pen{soft, 1, false}, []point{{left, sharp(bottom)}, {right, sharp(bottom)}})
	d.label(soft, smallText, middle, point{(left + right) / 2, bottom + 32}, d.panel.X, d.layout.plot)
}

// series draws a series, and its entry in the legend at a point, if it has one.
func (d drawing) series(s Series, at *point) {
	var lines [][]point
	if len(s.Values) > 0 {
		line := d.steps(s.Values)
		lines = append(lines, line)
		if s.Fill {
			last := line[len(line)-1]
			d.canvas.area(s.Color, append(line, point{last.x, d.y(0)}, point{line[0].x, d.y(0)}))
		}
	}
	if at != nil {
		entry := []point{*at, {at.x + swatch, at.y}}
		lines = append(lines, entry)
		if s.Fill && len(s.Values) > 0 {
			d.canvas.area(s.Color, append(entry, point{at.x + swatch, at.y + 5}, point{at.x, at.y + 5}))
		}
	}
	d.canvas.lines(pen{s.Color, 1.4, false}, lines...)
}

// steps returns the corners of a line that holds each value for one step.
func (d drawing) steps(values []float64) []point {
	at := point{d.x(0), d.y(values[0])}
	line := []point{at}
	for i, v := range values {
		if y := d.y(v); y != at.y {
			at.x = d.x(float64(i) * d.panel.Step)
			line = append(line, at, point{at.x, y})
			at.y = y
		}
	}
	return append(line, point{d.x(float64(len(values)) * d.panel.Step), at.y})
}

// x and y return where a value is, in tenths of a pixel. The conversions keep
// processors that can from adding in one operation with multiplying: those round
// differently, and pictures would differ.
func (d drawing) x(v float64) float64 {
	return d.layout.gutter + tenth(float64(finite(v)/d.row.x.max)*d.layout.plot)
}

func (d drawing) y(v float64) float64 {
	return head + d.row.height - tenth(float64(finite(v)/d.row.y.max)*d.row.height)
}

func tenth(v float64) float64 { return math.Round(v*10) / 10 }

// sharp moves a line of one pixel to where it covers whole pixels.
func sharp(v float64) float64 { return math.Floor(v) + 0.5 }

// label writes a text that takes no more than a width.
func (d drawing) label(c Color, size float64, a anchor, at point, s string, width float64) {
	if s = clean(s); s != "" {
		d.canvas.text(c, size, a, at, fit(s, size, width), s)
	}
}
