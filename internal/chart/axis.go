package chart

import (
	"math"
	"strconv"
	"strings"
)

// An axis goes from zero to max, with ticks at multiples of step.
type axis struct {
	max, step float64
	labels    []string // of the ticks, from zero
}

// newAxis returns an axis with at most n ticks above zero, at round numbers.
func newAxis(top float64, n int, whole bool) axis {
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, m := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if top/step > float64(n) {
			step *= m
		}
	}
	if whole {
		step = max(step, 1)
	}
	a := axis{max: top, step: step}
	for i := 0; float64(i)*step <= top*(1+1e-9); i++ {
		a.labels = append(a.labels, number(float64(i)*step, step))
	}
	return a
}

// newXAxis returns an axis with as many ticks, up to eight, as have room for their labels in a width.
func newXAxis(top, width float64) axis {
	for n := 8; ; n-- {
		a := newAxis(top, n, false)
		if n == 1 || widest(a.labels, smallText)+tickSpace <= a.step/top*width {
			return a
		}
	}
}

// number writes a number to the precision of a step, with commas between thousands.
func number(v, step float64) string {
	if v >= 1e15 || v > 0 && v < 1e-6 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	integer, fraction, _ := strings.Cut(s, ".")
	for i := len(integer) - 3; i > 0; i -= 3 {
		integer = integer[:i] + "," + integer[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction == "" {
		return integer
	}
	return integer + "." + fraction
}
