package chart

import (
	"fmt"
	"image/color"
	"strings"
)

// A Color is that of a series. The zero value is that of the text.
type Color int

// The colours of series. Red is vermilion, and that of levels too.
const (
	Ink Color = iota
	Blue
	Orange
	Green
	Purple
	Sky
	Yellow
	Red
	soft  // text of axes
	grid  // lines of the grid
	paper // background
)

// colors are the classes of the colours, and their values as 0xRRGGBB on a light and
// on a dark page. Blue is lighter there, for contrast.
var colors = [...]struct {
	class       string
	light, dark uint32
}{
	Ink:    {"ink", 0x2b2f36, 0xe3e6ea},
	Blue:   {"blue", 0x0072b2, 0x1f86c9},
	Orange: {"orange", 0xe69f00, 0xe69f00},
	Green:  {"green", 0x009e73, 0x009e73},
	Purple: {"purple", 0xcc79a7, 0xcc79a7},
	Sky:    {"sky", 0x56b4e9, 0x56b4e9},
	Yellow: {"yellow", 0xf0e442, 0xf0e442},
	Red:    {"red", 0xd55e00, 0xd55e00},
	soft:   {"soft", 0x5b626d, 0xa3abb6},
	grid:   {"grid", 0xe4e6e9, 0x353b44},
	paper:  {"paper", 0xffffff, 0x16191e},
}

// Style returns the CSS of charts, for light and dark pages.
func Style() string {
	var light, dark strings.Builder
	for _, c := range colors {
		property := "color"
		if c.class == colors[paper].class {
			property = "fill"
		}
		fmt.Fprintf(&light, ".chart .%s{%s:#%06x}", c.class, property, c.light)
		if c.dark != c.light {
			fmt.Fprintf(&dark, ".chart .%s{%s:#%06x}", c.class, property, c.dark)
		}
	}
	return light.String() + "@media (prefers-color-scheme:dark){" + dark.String() + "}"
}

// light returns the colour on a light page.
func (c Color) light() color.NRGBA {
	v := colors[c].light
	return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 255}
}
