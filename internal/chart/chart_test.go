package chart

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

var update = flag.Bool("update", false, "write testdata anew")

// wave returns values that go up and down, never in steps of the picture.
func wave(n int, height float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = math.Round(height * (1 + math.Sin(float64(i)*0.37)*math.Cos(float64(i)*0.011)) / 2)
	}
	return values
}

// sample is a chart with every kind of shape, of names and texts that a caller chooses.
func sample(name string, points int) Chart {
	panel := func(title string, height float64) Panel {
		return Panel{
			Title: title, X: "time (" + name + ")", Y: name, Step: 12.5,
			Series: []Series{
				{Name: name, Fill: true, Values: wave(points, height)},
				{Name: "for " + name, Color: Green, Values: wave(points, height/3)},
				{Name: "none", Color: Sky},
			},
			Levels: []Level{{"limit: " + name, height * 0.8}},
		}
	}
	return Chart{Title: name, Columns: [][]Panel{
		{panel("limit "+name, 2300), panel(name+": 10 per 1s", 10)},
		{panel("wanted", 1500), panel("", 5)},
	}}
}

func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", "sample.svg")
	got := sample("refund", 24).SVG(Style())
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the picture is not that of %s; if it should be: go test ./internal/chart -update, and look at it", path)
	}
}

// hostile are names that would leave their place if they could.
var hostile = []string{
	`</text><script>alert("1")</script>&amp;'`, `"/><image href="http://x.test/"/>`, "]]><!--", "</style>", "</title>",
	strings.Repeat("WM@%", 200), strings.Repeat("very long ", 100), strings.Repeat("微信支付退款限额", 40),
	"\u202eafter\u2066 bidi\u200f", "a\x00b\x07c\nd\xff", "", " ", "﷽﷽﷽",
}

func TestHostileNamesStayTextInBounds(t *testing.T) {
	for _, name := range hostile {
		drawn := sample(name, 40).SVG(Style())
		texts := elements(t, drawn)
		all := make(map[string]bool)
		for _, e := range texts {
			all[e.text], all[e.full] = true, true
		}
		for _, want := range []string{name, "limit " + name, "limit: " + name, "time (" + name + ")"} {
			if want = clean(want); want != "" && !all[strings.TrimSpace(want)] {
				t.Errorf("%.30q: %.40q is not a text of the picture", name, want)
			}
		}
		inBounds(t, name, texts)
		if strings.ContainsAny(string(drawn), "\u202e\u2066\u200f\x00\x07") {
			t.Errorf("%.30q: control characters are in the picture", name)
		}
	}
	var all Panel
	for _, name := range hostile {
		all.Series = append(all.Series, Series{Name: name})
	}
	if _, err := (Chart{Columns: [][]Panel{{all}}}).PNG(); err != nil {
		t.Error(err)
	}
}

// TestLegendHasRoom: a panel is as high as its legend, and its row with it.
func TestLegendHasRoom(t *testing.T) {
	var p Panel
	for i := range 12 {
		p.Series = append(p.Series, Series{Name: fmt.Sprintf("tenant %d", i), Values: []float64{float64(i)}})
	}
	p.Step = 1
	inBounds(t, "legend", elements(t, Chart{Columns: [][]Panel{{p, {Title: "below"}}, {{}}}}.SVG("")))
}

// TestAgo: an axis that counts back has zero at its right end, and a series without a name no entry.
func TestAgo(t *testing.T) {
	p := Panel{Title: "waiting", X: "minutes ago", Step: 1, Ago: true, Series: []Series{{Color: Blue, Fill: true, Values: make([]float64, 60)}}}
	at := make(map[string]float64)
	all := elements(t, Chart{Columns: [][]Panel{{p}}, PlotWidth: 200}.SVG(""))
	for _, e := range all {
		if e.anchor == "middle" {
			at[e.text] = e.x
		}
	}
	if at["0"]-at["60"] != 200 || at["0"] <= at["20"] {
		t.Errorf("the ticks are at %v", at)
	}
	inBounds(t, "ago", all)
	p.Series[0].Name = "out"
	if named := elements(t, Chart{Columns: [][]Panel{{p}}}.SVG("")); len(named) <= len(all) {
		t.Errorf("%d texts with a name, %d without", len(named), len(all))
	}
}

// A textElement is a text of an SVG, with the size of its panel.
type textElement struct {
	panel              int
	width, height      float64
	x, y, size         float64
	anchor, text, full string
}

// elements reads an SVG, and returns its texts. It fails the test at any element or
// attribute that charts do not have, and at XML that is not well-formed.
func elements(t *testing.T, drawn []byte) (all []textElement) {
	t.Helper()
	known := strings.Fields("svg title desc style rect path text")
	attributes := strings.Fields("xmlns class viewBox width height role font-family fill x y fill-opacity stroke stroke-width stroke-dasharray d font-size text-anchor")
	number := func(e xml.StartElement, name string) float64 {
		i := slices.IndexFunc(e.Attr, func(a xml.Attr) bool { return a.Name.Local == name })
		if i < 0 {
			return 0
		}
		v, err := strconv.ParseFloat(e.Attr[i].Value, 64)
		if err != nil {
			t.Fatalf("%s of %s: %v", name, e.Name.Local, err)
		}
		return v
	}
	var open []string
	var panel textElement
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = append(open, e.Name.Local)
			if !slices.Contains(known, e.Name.Local) {
				t.Fatalf("element %s", e.Name.Local)
			}
			for _, a := range e.Attr {
				if !slices.Contains(attributes, a.Name.Local) || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Fatalf("attribute %s=%q of %s", a.Name.Local, a.Value, e.Name.Local)
				}
			}
			if e.Name.Local == "svg" {
				panel = textElement{panel: panel.panel + 1, width: number(e, "width"), height: number(e, "height")}
			}
			if e.Name.Local == "text" {
				next := panel
				next.x, next.y, next.size = number(e, "x"), number(e, "y"), number(e, "font-size")
				for _, a := range e.Attr {
					if a.Name.Local == "text-anchor" {
						next.anchor = a.Value
					}
				}
				all = append(all, next)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if n := len(open); n > 1 && open[n-1] == "text" {
				all[len(all)-1].text = strings.TrimSpace(string(e))
			} else if n > 2 && open[n-2] == "text" {
				all[len(all)-1].full = strings.TrimSpace(string(e))
			}
		}
	}
}

// box returns the part of the panel that a text covers.
func (e textElement) box(t *testing.T) (left, top, right, bottom float64) {
	width := measured(t, e.text) * e.size
	left = e.x - width*map[string]float64{"middle": 0.5, "end": 1}[e.anchor]
	return left, e.y - 0.75*e.size, left + width, e.y + 0.22*e.size
}

// inBounds fails the test where texts overlap, or leave their panel.
func inBounds(t *testing.T, name string, texts []textElement) {
	t.Helper()
	for i, a := range texts {
		l, u, r, b := a.box(t)
		if l < -0.1 || u < 0 || r > a.width+0.1 || b > a.height {
			t.Errorf("%.30q: %.40q at %.0f,%.0f–%.0f,%.0f leaves its panel of %.0f×%.0f", name, a.text, l, u, r, b, a.width, a.height)
		}
		for _, other := range texts[:i] {
			if l2, u2, r2, b2 := other.box(t); a.panel == other.panel && l < r2 && l2 < r && u < b2 && u2 < b {
				t.Errorf("%.30q: %.40q and %.40q overlap", name, a.text, other.text)
			}
		}
	}
}

var goFont = sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(goregular.TTF) })

// measured returns how wide the Go font makes a text of size 1; the full em for
// characters that it does not have.
func measured(t *testing.T, s string) float64 {
	f, err := goFont()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, r := range s {
		i, err := f.GlyphIndex(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		advance, err := f.GlyphAdvance(nil, i, fixed.I(1000), 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			advance = fixed.I(1000)
		}
		sum += float64(advance) / 64 / 1000
	}
	return sum
}

func TestWidthsAreUpperBounds(t *testing.T) {
	for r := rune(' '); r < 0x500; r++ {
		if w := measured(t, clean(string(r))); w > width(clean(string(r)), 1)+1e-9 {
			t.Errorf("%q is %.2f em wide, said to be at most %.2f", r, w, em(r))
		}
	}
	for _, s := range hostile {
		if got := fit(clean(s), plainText, 100); width(got, plainText) > 100 || len(s) > 100 && !strings.HasSuffix(got, ellipsis) {
			t.Errorf("%.30q is cut to %q", s, got)
		}
	}
}

func TestStyleHasARuleForEachClass(t *testing.T) {
	drawn := string(sample("refund", 24).SVG(""))
	for i, c := range colors {
		if n := strings.Count(Style(), ".chart ."+c.class+"{"); n < 1 || n > 2 {
			t.Errorf("%d rules for %s", n, c.class)
		}
		drawn = strings.ReplaceAll(drawn, `class="`+c.class+`"`, "")
		if again := slices.IndexFunc(colors[:], func(o struct {
			class       string
			light, dark uint32
		}) bool {
			return o.class == c.class || o.light == c.light
		}); again != i {
			t.Errorf("%s is %s", c.class, colors[again].class)
		}
	}
	if n := strings.Count(drawn, "class="); n != 1 { // that of the chart
		t.Errorf("%d classes without a rule", n-1)
	}
	if strings.Contains(drawn, "<style>") {
		t.Error("a picture without a style has one")
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		top   float64
		n     int
		whole bool
		want  string
	}{
		{1.05, 4, true, "0 1"},
		{1.05, 4, false, "0 0.5 1"},
		{10.5, 4, true, "0 5 10"},
		{2415, 4, true, "0 1,000 2,000"},
		{216.3, 8, false, "0 50 100 150 200"},
		{1, 8, false, "0 0.2 0.4 0.6 0.8 1"},
		{0.001, 8, false, "0 0.0002 0.0004 0.0006 0.0008 0.001"},
		{3e6, 4, true, "0 1,000,000 2,000,000 3,000,000"},
		{3e15, 4, true, "0 1e+15 2e+15 3e+15"},
	} {
		if got := strings.Join(newAxis(c.top, c.n, c.whole).labels, " "); got != c.want {
			t.Errorf("to %v: %s, want %s", c.top, got, c.want)
		}
	}
	for exponent := -3; exponent < 300; exponent++ {
		for _, m := range []float64{1, 1.05, 2.1, 4.99, 5, 7.3, 9.99} {
			top := m * math.Pow10(exponent)
			if a := newXAxis(top, plotWidth); len(a.labels) < 2 || len(a.labels) > 9 || widest(a.labels, smallText) >= a.step/top*plotWidth {
				t.Errorf("to %g: %v", top, a.labels)
			}
		}
	}
}

func TestValuesThatCannotBeDrawn(t *testing.T) {
	bad := []float64{math.NaN(), math.Inf(1), -3, math.Inf(-1), 2, math.MaxFloat64}
	for _, step := range []float64{1, 0, -1, math.NaN(), math.Inf(1), math.MaxFloat64} {
		p := Panel{Title: "bad", Step: step, Series: []Series{{Name: "bad", Values: bad, Fill: true}}, Levels: []Level{{"bad", math.NaN()}}}
		inBounds(t, fmt.Sprint(step), elements(t, Chart{Columns: [][]Panel{{p, {}}, {{}}}}.SVG("")))
	}
	for _, c := range []Chart{{}, {Columns: [][]Panel{{}, {}}}} {
		elements(t, c.SVG(""))
		if _, err := c.PNG(); err != nil {
			t.Error(err)
		}
	}
}

// TestPNG looks at pixels: where the level is, where the area is, and the background.
func TestPNG(t *testing.T) {
	c := Chart{Columns: [][]Panel{{{Step: 1, Series: []Series{{Name: "a", Color: Blue, Fill: true, Values: []float64{10, 10}}}, Levels: []Level{{"l", 50}}}}}}
	drawn, err := c.PNG()
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(drawn))
	if err != nil {
		t.Fatal(err)
	}
	l := layoutOf(c)
	if want := image.Pt(int(l.width*scale), int(l.height*scale)); picture.Bounds().Size() != want {
		t.Errorf("the size is %v, want %v", picture.Bounds().Size(), want)
	}
	d := drawing{layout: l, row: l.rows[0], panel: c.Columns[0][0]}
	at := func(x, y float64) color.NRGBA {
		return color.NRGBAModel.Convert(picture.At(int((margin+d.x(x))*scale), int((margin+d.y(y))*scale))).(color.NRGBA)
	}
	first := (dash / 2) / plotWidth * d.row.x.max // the middle of the first dash
	if got := at(first, 50); got != Red.light() {
		t.Errorf("the level is %v", got)
	}
	if got := at(0.7, 10); got != Blue.light() {
		t.Errorf("the line is %v", got)
	}
	if got := at(0.7, 5); got.B < 230 || got.R > 220 || got.R < 180 {
		t.Errorf("the area is %v", got)
	}
	if got := at(0.7, 30); got != paper.light() {
		t.Errorf("the background is %v", got)
	}
}

func TestEqualChartsMakeEqualBytes(t *testing.T) {
	a, err := sample("refund", 320).PNG()
	if err != nil {
		t.Fatal(err)
	}
	b, err := sample("refund", 320).PNG()
	if err != nil || !bytes.Equal(a, b) || !bytes.Equal(sample("refund", 320).SVG(""), sample("refund", 320).SVG("")) {
		t.Errorf("the pictures differ, %v", err)
	}
}

// BenchmarkDraw draws the largest picture of a comparison: two columns of twelve
// panels, with three lines of 320 points each.
func BenchmarkDraw(b *testing.B) {
	c := sample("refund", 320)
	for x := range c.Columns {
		c.Columns[x] = slices.Repeat(c.Columns[x], 6)
	}
	for name, draw := range map[string]func() ([]byte, error){"svg": func() ([]byte, error) { return c.SVG(Style()), nil }, "png": c.PNG} {
		b.Run(name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				drawn, err := draw()
				if err != nil {
					b.Fatal(err)
				}
				size = len(drawn)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
