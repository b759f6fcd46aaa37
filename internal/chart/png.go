package chart

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// Shapes that both formats draw alike, in pixels.
const (
	dash, dashGap = 6.0, 4.0
	areaOpacity   = 0.2
)

// scale is how many pixels of a PNG one pixel of the layout has on each side.
const scale = 2

// PNG draws the chart as PNG, twice as large as the SVG.
func (c Chart) PNG() ([]byte, error) {
	l := layoutOf(c)
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("chart: the font cannot be read: %w", err)
	}
	r := &raster{image: image.NewRGBA(image.Rect(0, 0, int(l.width*scale), int(l.height*scale))), faces: map[float64]font.Face{}}
	for _, size := range []float64{titleText, plainText, smallText} {
		if r.faces[size], err = opentype.NewFace(parsed, &opentype.FaceOptions{Size: size * scale, DPI: 72}); err != nil {
			return nil, fmt.Errorf("chart: the font cannot be used: %w", err)
		}
	}
	draw.Draw(r.image, r.image.Rect, image.NewUniform(paper.light()), image.Point{}, draw.Src)
	paint(c, r, l)
	var b bytes.Buffer
	if err := png.Encode(&b, r.image); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return b.Bytes(), nil
}

// raster is the canvas of PNG.
type raster struct {
	image  *image.RGBA
	faces  map[float64]font.Face // by the size of the text
	origin point                 // of the panel
}

func (r *raster) panel(at point, _, _ float64, draw func()) {
	r.origin = at
	draw()
}

func (r *raster) lines(p pen, lines ...[]point) {
	var shapes [][]point
	for _, line := range lines {
		for i, to := range line[1:] {
			shapes = append(shapes, p.segment(line[i], to)...)
		}
	}
	r.fill(p.color.light(), shapes...)
}

// segment returns the rectangles that a line from one point to another covers. Those
// of whole lines are longer by half a width at both ends, so that corners are filled.
func (p pen) segment(from, to point) [][]point {
	length := math.Hypot(to.x-from.x, to.y-from.y)
	if length == 0 {
		return nil
	}
	u := point{(to.x - from.x) / length, (to.y - from.y) / length}
	n := point{-u.y * p.width / 2, u.x * p.width / 2}
	part := func(a, b float64) []point {
		a0, b0 := point{from.x + a*u.x, from.y + a*u.y}, point{from.x + b*u.x, from.y + b*u.y}
		return []point{{a0.x + n.x, a0.y + n.y}, {b0.x + n.x, b0.y + n.y}, {b0.x - n.x, b0.y - n.y}, {a0.x - n.x, a0.y - n.y}}
	}
	if !p.dashed {
		return [][]point{part(-p.width/2, length+p.width/2)}
	}
	var parts [][]point
	for at := 0.0; at < length; at += dash + dashGap {
		parts = append(parts, part(at, min(at+dash, length)))
	}
	return parts
}

func (r *raster) area(c Color, points []point) {
	light := c.light()
	light.A = uint8(math.Round(areaOpacity * 255))
	r.fill(light, points)
}

// fill fills shapes as one, with a rasterizer no larger than they are.
func (r *raster) fill(c color.NRGBA, shapes ...[]point) {
	var box image.Rectangle
	at := func(p point) (x, y float64) { return (r.origin.x + p.x) * scale, (r.origin.y + p.y) * scale }
	for _, shape := range shapes {
		for _, p := range shape {
			x, y := at(p)
			box = box.Union(image.Rect(int(x), int(y), int(x)+1, int(y)+1).Inset(-1))
		}
	}
	z := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, shape := range shapes {
		for i, p := range shape {
			x, y := at(p)
			if i == 0 {
				z.MoveTo(float32(x-float64(box.Min.X)), float32(y-float64(box.Min.Y)))
			} else {
				z.LineTo(float32(x-float64(box.Min.X)), float32(y-float64(box.Min.Y)))
			}
		}
		z.ClosePath()
	}
	z.Draw(r.image, box, image.NewUniform(c), image.Point{})
}

func (r *raster) text(c Color, size float64, a anchor, at point, s, _ string) {
	d := font.Drawer{Dst: r.image, Src: image.NewUniform(c.light()), Face: r.faces[size]}
	back := float64(d.MeasureString(s)) * [...]float64{start: 0, middle: 0.5, end: 1}[a]
	d.Dot = fixed.Point26_6{X: fixed.Int26_6((r.origin.x+at.x)*scale*64 - back), Y: fixed.Int26_6((r.origin.y + at.y) * scale * 64)}
	d.DrawString(s)
}
