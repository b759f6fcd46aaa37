// Package chart draws series of numbers over time as panels in a grid: as SVG for
// pages and files, and as PNG.
//
//	backlog := chart.Panel{Title: "backlog", X: "seconds", Y: "calls waiting", Step: 0.5,
//		Series: []chart.Series{{Name: "all", Values: []float64{40, 31, 12, 0}, Fill: true}},
//		Levels: []chart.Level{{Name: "limit: 30", Value: 30}}}
//	c := chart.Chart{Title: "backlog", Columns: [][]chart.Panel{{backlog}}}
//	os.WriteFile("backlog.svg", c.SVG(chart.Style()), 0o644)
//
// draws
//
//	backlog
//	calls waiting
//	40 ┌────┐                 ▬▬ all
//	   │    └────┐            -- limit: 30
//	   │- - - - -│- - - - - -
//	20 │         │
//	   │         └─────┐
//	 0 └───────────────┴─────
//	   0   0.5   1    1.5   2
//	           seconds
//
// # Guarantees
//
//   - Drawing is pure: equal charts make equal bytes.
//   - Names stay text. They are escaped, and cut with an ellipsis where a wide font
//     would leave no room for them; a browser shows the full name as a tooltip. In SVG
//     a panel is clipped, so it never covers its neighbour.
//   - The panels of a row share their axes. Axes begin at zero, and their ticks are
//     whole numbers where all values are.
//   - SVG has no script, no id and no external reference.
//   - The first colours are those of Okabe and Ito, which the colour-blind can tell apart.
//
// # Pages
//
// An SVG without a style is drawn in the colour of the text around it. Style has
// rules for light and dark, all of them under .chart. Rules of a page that come
// later override them: each colour is the CSS property color of a class
// (.chart .blue, .chart .grid), and the background is the fill of .chart .paper.
//
// PNG is always light. Its font has Latin, Greek and Cyrillic letters only; other
// letters are boxes.
package chart

import (
	"fmt"
	"math"
	"strings"
)

// A Chart is a grid of panels.
type Chart struct {
	Title   string    // of the picture as a whole: read aloud, not drawn
	Columns [][]Panel // each from top to bottom
	// PlotWidth is the width of each plot, in pixels; 0 means 440. A narrow one stays readable on a phone.
	PlotWidth float64
}

// A Panel is a plot with its legend beside it.
type Panel struct {
	Title  string
	X, Y   string   // labels of the axes
	Step   float64  // of each value, in units of the x axis
	Ago    bool     // the x axis counts back from its right end, as in minutes ago
	Series []Series // the first is drawn first
	Levels []Level
}

// A Series is a line of values, each of which holds for one step.
type Series struct {
	Name   string // none: the title says what it is, and the legend leaves it out
	Color  Color
	Fill   bool      // the area below the line too
	Values []float64 // those below zero are drawn at zero
}

// A Level is a dashed line across the panel.
type Level struct {
	Name  string
	Value float64
}

// describe returns the chart in words, for readers that do not see it.
func (c Chart) describe() string {
	var panels []string
	for _, column := range c.Columns {
		for _, p := range column {
			var parts []string
			for _, s := range p.Series {
				parts = append(parts, fmt.Sprintf("%s up to %s", s.Name, number(s.top(), 0.01)))
			}
			for _, l := range p.Levels {
				parts = append(parts, l.Name)
			}
			panels = append(panels, fmt.Sprintf("%s (%s): %s.", p.Title, p.Y, strings.Join(parts, ", ")))
		}
	}
	return strings.Join(panels, " ")
}

// top returns the highest finite value, at least zero.
func (s Series) top() float64 {
	top := 0.0
	for _, v := range s.Values {
		top = max(top, finite(v))
	}
	return top
}

// finite returns a value that can be drawn: zero for one that is negative, infinite or no number.
func finite(v float64) float64 {
	if math.IsInf(v, 0) || !(v > 0) {
		return 0
	}
	return v
}

// right returns where the x axis of the panel ends at least.
func (p Panel) right() float64 {
	right := 0.0
	for _, s := range p.Series {
		right = max(right, finite(float64(len(s.Values))*p.Step))
	}
	return right
}

// top returns the highest value of the panel.
func (p Panel) top() float64 {
	top := 0.0
	for _, s := range p.Series {
		top = max(top, s.top())
	}
	for _, l := range p.Levels {
		top = max(top, finite(l.Value))
	}
	return top
}

// whole reports whether all values are whole numbers.
func (p Panel) whole() bool {
	for _, s := range p.Series {
		for _, v := range s.Values {
			if v != math.Trunc(v) {
				return false
			}
		}
	}
	return true
}
