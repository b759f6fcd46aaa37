package chart_test

import (
	"fmt"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/chart"
)

// A panel in a page. The title and the description are for readers that do not see it.
func Example() {
	backlog := chart.Panel{
		Title: "backlog of <refunds>", X: "seconds", Y: "calls waiting", Step: 0.5,
		Series: []chart.Series{{Name: "all", Values: []float64{40, 31, 12, 0}, Fill: true}},
		Levels: []chart.Level{{Name: "limit: 30", Value: 30}},
	}
	c := chart.Chart{Title: "Backlog", Columns: [][]chart.Panel{{backlog}}}
	for line := range strings.Lines(string(c.SVG(""))) {
		if strings.Contains(line, "<title>") || strings.Contains(line, "<desc>") || strings.Contains(line, `class="red"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// <title>Backlog</title>
	// <desc>backlog of &lt;refunds&gt; (calls waiting): all up to 40, limit: 30.</desc>
	// <path class="red" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="6 4" d="M27 69.4h440M479 67.5h18"/>
}
