package web

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/chart"
)

// historyStep is the time of one value of a chart, and historyLength that of all.
const (
	historyStep   = 10 * time.Second
	historyLength = time.Hour
)

// history reads the past of an upstream, or of one of its limits.
func history(v *visit, upstream, limit string, length time.Duration) (*api.History, error) {
	query := url.Values{"upstream": {upstream}, "step": {historyStep.String()}, "from": {v.now.Add(-length).UTC().Format(time.RFC3339)}}
	if limit != "" {
		query.Set("limit", limit)
	}
	var h api.History
	return &h, v.get("/v1/history", query, &h)
}

// A past is an upstream in the last 15 minutes.
type past struct {
	Done, Failed, Limited int   // attempts
	Line                  []int // waiting calls at each step, the oldest first
	Peak                  int   // the most of Line
}

// pastOf returns the sums and the waiting calls of a history that ends now.
func pastOf(h *api.History, now time.Time, length time.Duration) past {
	p := past{Line: make([]int, length/historyStep)}
	for _, c := range h.Calls {
		p.Done += c.Done
		p.Failed += c.Failed
		p.Limited += c.Limited
		if i := place(c.At, now, length); i >= 0 {
			p.Line[i] = c.Waiting
			p.Peak = max(p.Peak, c.Waiting)
		}
	}
	return p
}

// place returns the place of a step among those that end now; below zero it is not one of them.
func place(at api.Instant, now time.Time, length time.Duration) int {
	i := int(at.Sub(now.Add(-length)) / historyStep)
	if i >= int(length/historyStep) {
		return -1
	}
	return i
}

// limitCharts draws the permits of a limit in the last hour: those that are out, and those that
// calls wait for.
func limitCharts(v *visit, h *api.History, l *api.Limit) []template.HTML {
	n := int(historyLength / historyStep)
	out, waiting := make([]float64, n), make([]float64, n)
	for _, p := range h.Permits {
		if i := place(p.At, v.now, historyLength); i >= 0 {
			out[i], waiting[i] = float64(p.Out), float64(p.WaitingPermits)
		}
	}
	panel := func(title string, c chart.Color, values []float64) chart.Panel {
		return chart.Panel{
			Title: title, X: v.lang.mustText("chart.last_hour"), Ago: true, Step: historyStep.Minutes(),
			Series: []chart.Series{{Color: c, Fill: true, Values: values}},
		}
	}
	used := panel(v.lang.mustText("chart.out"), chart.Blue, out)
	if l.LiveKeys <= 1 {
		used.Levels = []chart.Level{{Name: fmt.Sprintf("%s: %d", v.lang.mustText("limit"), l.Permits), Value: float64(l.Permits)}}
	}
	draw := func(p chart.Panel) template.HTML {
		return template.HTML(chart.Chart{Title: p.Title, Columns: [][]chart.Panel{{p}}, PlotWidth: 280}.SVG(""))
	}
	return []template.HTML{draw(used), draw(panel(v.lang.mustText("waiting_permits"), chart.Orange, waiting))}
}

// spark draws a row of numbers as a line without axes, for the eye alone: the figures stand
// beside it.
func spark(values []int) template.HTML {
	top := 0
	for _, v := range values {
		top = max(top, v)
	}
	if top == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d 20" preserveAspectRatio="none" aria-hidden="true"><path d="M0 20`, len(values))
	for i, v := range values {
		fmt.Fprintf(&b, "V%.1fH%d", 20-19*float64(v)/float64(top), i+1)
	}
	b.WriteString(`V20z"/></svg>`)
	return template.HTML(b.String())
}
