package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// SVG draws the chart as an svg element with a style in it. A file needs Style; a
// page that has the rules in its own style sheet needs none.
func (c Chart) SVG(style string) []byte {
	l := layoutOf(c)
	s := &svg{}
	w, h := num(l.width), num(l.height)
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 %s %s" width="%s" height="%s" role="img" font-family="system-ui,sans-serif" fill="currentColor">`+"\n", w, h, w, h)
	fmt.Fprintf(s, "<title>%s</title>\n<desc>%s</desc>\n", escape(clean(c.Title)), escape(clean(c.describe())))
	if style != "" {
		fmt.Fprintf(s, "<style>\n%s\n</style>\n", escape(style))
	}
	fmt.Fprintf(s, `<rect class="%s" width="%s" height="%s" fill="none"/>`+"\n", colors[paper].class, w, h)
	paint(c, s, l)
	s.WriteString("</svg>\n")
	return s.Bytes()
}

// svg is the canvas of SVG. Shapes are attributes and colours are classes.
type svg struct{ bytes.Buffer }

func (s *svg) panel(at point, width, height float64, draw func()) {
	fmt.Fprintf(s, `<svg x="%s" y="%s" width="%s" height="%s">`+"\n", num(at.x), num(at.y), num(width), num(height))
	draw()
	s.WriteString("</svg>\n")
}

func (s *svg) lines(p pen, lines ...[]point) {
	fmt.Fprintf(s, `<path class="%s" fill="none" stroke="currentColor" stroke-width="%s"`, colors[p.color].class, num(p.width))
	if p.dashed {
		fmt.Fprintf(s, ` stroke-dasharray="%s %s"`, num(dash), num(dashGap))
	}
	s.WriteString(` d="`)
	for _, line := range lines {
		s.path(line)
	}
	s.WriteString("\"/>\n")
}

func (s *svg) area(c Color, points []point) {
	fmt.Fprintf(s, `<path class="%s" fill-opacity="%s" d="`, colors[c].class, num(areaOpacity))
	s.path(points)
	s.WriteString("z\"/>\n")
}

// path writes a line: the first point, and the way from each to the next.
func (s *svg) path(points []point) {
	tenths := func(v float64) int { return int(math.Round(v * 10)) }
	way := func(command string, n int) { s.WriteString(command + num(float64(n)/10)) }
	x, y := tenths(points[0].x), tenths(points[0].y)
	way("M", x)
	way(" ", y)
	for _, p := range points[1:] {
		toX, toY := tenths(p.x), tenths(p.y)
		switch {
		case toX == x && toY == y:
		case toY == y:
			way("h", toX-x)
		case toX == x:
			way("v", toY-y)
		default:
			way("l", toX-x)
			way(" ", toY-y)
		}
		x, y = toX, toY
	}
}

func (s *svg) text(c Color, size float64, a anchor, at point, text, full string) {
	fmt.Fprintf(s, `<text class="%s" font-size="%s" x="%s" y="%s"`, colors[c].class, num(size), num(at.x), num(at.y))
	if a != start {
		fmt.Fprintf(s, ` text-anchor="%s"`, [...]string{middle: "middle", end: "end"}[a])
	}
	s.WriteString(">")
	if text != full {
		fmt.Fprintf(s, "<title>%s</title>", escape(full))
	}
	s.WriteString(escape(text) + "</text>\n")
}

// num writes a length in pixels, with one decimal at most.
func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64) // adding 0 makes a negative zero a positive one
}

// escape returns a text as XML.
func escape(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}
