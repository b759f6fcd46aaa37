package chart

import (
	"strings"
	"unicode"
)

// Sizes of text, in pixels.
const (
	titleText = 14.0
	plainText = 12.0
	smallText = 11.0
)

const ellipsis = "…"

// clean returns a text with a replacement character for each that has no picture:
// control characters, and those that turn the direction of a text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// fit returns a text, cut to a width in pixels.
func fit(s string, size, room float64) string {
	if width(s, size) <= room {
		return s
	}
	used := width(ellipsis, size)
	for i, r := range s {
		if used += em(r) * size; used > room {
			return strings.TrimRight(s[:i], " ") + ellipsis
		}
	}
	return s
}

// width returns the width in pixels that a text takes at most.
func width(s string, size float64) float64 {
	sum := 0.0
	for _, r := range s {
		sum += em(r)
	}
	return sum * size
}

// widest returns the width of the widest text.
func widest(all []string, size float64) float64 {
	most := 0.0
	for _, s := range all {
		most = max(most, width(s, size))
	}
	return most
}

// em returns the width of a character in units of the size of its font. It is that
// of the widest common sans-serif fonts, DejaVu Sans and Verdana: which one a viewer
// has is not known.
func em(r rune) float64 {
	switch {
	case strings.ContainsRune(" .,:;!|/'()[]ijlftrI", r):
		return 0.46
	case strings.ContainsRune("mwMW@%", r), r > unicode.MaxASCII:
		return 1.1
	case unicode.IsLower(r), unicode.IsDigit(r), r == '-':
		return 0.65
	}
	return 0.84
}
