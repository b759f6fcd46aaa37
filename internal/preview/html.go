package preview

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"

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

// HTML writes a comparison as one file: no script, and nothing from elsewhere. The command is the
// one that makes the same.
func HTML(w io.Writer, c *Comparison, command string) error {
	var rows [][]string // of figures
	for _, f := range figures {
		row := []string{f.name}
		for _, r := range c.Reports {
			row = append(row, f.of(r))
		}
		rows = append(rows, row)
	}
	return report.Execute(w, map[string]any{
		"Comparison": c, "Figures": rows, "Command": command, "Style": template.CSS(chart.Style()),
		"Chart": template.HTML(Chart(c.Reports...).SVG("")),
	})
}
