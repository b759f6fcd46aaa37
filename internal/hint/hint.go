// Package hint words faults of texts that people write: the name that is close to
// a misspelt one, and the errors of expressions without the types of Go.
package hint

import (
	"slices"
	"strings"
)

// Nearest returns the known name that is closest to a misspelt one, empty if none is
// close: at a distance of at most two letters, and of less than half of them.
func Nearest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(name, k); d < least && 2*d < len(name) {
			best, least = k, d
		}
	}
	return best
}

// Meant returns Nearest as the end of a message, "; did you mean NAME?", or an empty text.
func Meant(name string, known []string) string {
	if best := Nearest(name, known); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// List returns names in their order, with commas.
func List(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ", ") }

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			swap := diagonal
			if a[i] != b[j] {
				swap++
			}
			diagonal = row[j+1]
			row[j+1] = min(swap, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
