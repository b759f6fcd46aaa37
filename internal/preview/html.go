package preview

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"time"

	"github.com/seed-30fe103d/throttler/internal/chart"
)

//go:embed report.html
var page string

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"brief": brief, "largest": largest,
	"binds":   func(l Limit, makespan Millis) string { return binds(&l, makespan) },
	"limit":   func(l Limit, r *Report) string { return name(l.Upstream, l.Limit, r) },
	"permits": func(l Limit) string { return l.permits() },
	"flow":    func(f Flow, r *Report) string { return name(f.Upstream, cmp.Or(f.Flow, "all"), r) },
	"more":    func(r *Report) int { return r.FlowCount - len(largest(r)) },
}).Parse(page))

// A Page is the frame of a comparison as one file.
type Page struct {
	Title   string    // empty: Preview
	At      time.Time // when it was made
	Command string    // that makes the same
	// Drawn are the reports that have charts; nil means all.
	Drawn []*Report
}

// HTML writes a comparison as one file: no script, and nothing from elsewhere.
func HTML(w io.Writer, c *Comparison, p Page) error {
	if p.Drawn == nil {
		p.Drawn = c.Reports
	}

	var rows [][]string // of figures
	for _, f := range figures {
		row := []string{f.name}
		for _, r := range c.Reports {
			row = append(row, f.of(r))
		}
		rows = append(rows, row)
	}
	return report.Execute(w, map[string]any{
		"Comparison": c, "Figures": rows, "Page": p, "Style": template.CSS(chart.Style()),
		"Chart": template.HTML(Chart(p.Drawn...).SVG("")),
	})
}
