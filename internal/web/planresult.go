package web

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/preview"
)

// A planResult is a preview as the page shows it.
type planResult struct {
	preview.Comparison
	Sentence string // about the N that was asked about; empty for a preview of all limits
	Others   []string
	Columns  []*preview.Report // in the order of the table
	Shown    []*preview.Report // with charts and all figures
	Chart    template.HTML
	File     template.URL // the report, to be downloaded
	Command  string
	YAML     string // of the changes
	changes  []api.PlanChange
}

// fill makes the parts of the page of the comparison, and the report, with its title.
func (r *planResult) fill(lang *speech, in *api.PlanRequest, choices []choice, title string, at time.Time) {
	r.Shown, r.changes = r.Reports, in.Changes
	if choices == nil {
		r.Columns = r.Reports
	}
	next, asked := 1, ""
	for _, c := range choices {
		if c.now {
			r.Columns = append(r.Columns, r.Reports[0])
			continue
		}
		if c.asked {
			asked, r.Shown, r.changes = c.name, []*preview.Report{r.Reports[0], r.Reports[next]}, []api.PlanChange{c.change}
		}
		r.Columns = append(r.Columns, r.Reports[next])
		next++
	}
	r.rename("running", lang.mustText("plan.now"))
	several := len(upstreamsOf(r.Reports[0])) > 1
	for i := range r.Findings {
		f := &r.Findings[i]
		text := findingOf(lang, f, r.Reports[0].Binding(), several)
		if asked != "" && f.Config == asked && r.Sentence == "" {
			r.Sentence = text
		} else {
			r.Others = append(r.Others, text)
		}
	}
	r.Chart = template.HTML(wordsOf(lang).Chart(r.Shown...).SVG(""))
	r.Command = commandOf(in, len(r.Reports))
	var file bytes.Buffer
	if preview.HTML(&file, &r.Comparison, preview.Page{Title: title, At: at, Command: r.Command, Drawn: r.Shown}) == nil { // a buffer takes everything
		r.File = template.URL("data:text/html;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(file.Bytes()))
	}
}

// rename gives a variant another name.
func (r *planResult) rename(from, to string) {
	for _, report := range r.Reports {
		if report.Config == from {
			report.Config = to
		}
	}
	for i := range r.Findings {
		if r.Findings[i].Config == from {
			r.Findings[i].Config = to
		}
	}
	for i := range r.Verdicts {
		if r.Verdicts[i].Config == from {
			r.Verdicts[i].Config = to
		}
	}
}

// upstreamsOf returns the upstreams of the limits of a report.
func upstreamsOf(r *preview.Report) (names []string) {
	for _, l := range r.Limits {
		names = append(names, l.Upstream)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findingOf says a finding in the language; binding is the limit that binds now.
func findingOf(s *speech, f *preview.Finding, binding *preview.Limit, several bool) string {
	limit := ""
	if f.Limit != "" {
		limit = clean(f.Limit) + " (" + clean(permitsOf(f.Permits, f.Window)) + ")"
		if several {
			limit = clean(f.Upstream) + " / " + limit
		}
	}
	if f.Kind == preview.Refuses {
		return s.mustText("plan.refuses", "N", f.Calls, "Config", clean(f.Config), "Share", percent(f.Share))
	}
	then := ""
	if same := (&preview.Limit{Upstream: f.Upstream, Limit: f.Limit}).Is(binding); limit != "" && same {
		then = s.mustText("plan.also", "Limit", limit)
	} else if limit != "" {
		then = s.mustText("plan.then", "Limit", limit)
	}
	return s.mustText("plan."+f.Kind, "Config", clean(f.Config), "Limit", limit, "Then", then, "Share", percent(f.Share),
		"Before", s.duration(f.Before.Duration()), "Wait", s.duration(f.Wait.Duration()), "Longest", s.duration(f.Longest.Duration()))
}

// permitsOf writes permits and a window, as in 100/1s.
func permitsOf(permits int, window string) string {
	if window == "" {
		return fmt.Sprint(permits)
	}
	return fmt.Sprintf("%d/%s", permits, window)
}

// commandOf returns the command line that does the same, for a load and a configuration in files.
func commandOf(in *api.PlanRequest, variants int) string {
	c := preview.Command{Files: []string{"throttler.yaml", "wanted.yaml"}[:min(variants, 2)], Load: in.Settings, FailIf: in.FailIf}
	if len(c.Load) == 0 {
		c.Load = []string{"load.jsonl"}
		if in.Rows != "" && !strings.HasPrefix(strings.TrimSpace(in.Rows), "{") {
			c.Load[0] = "load.csv"
		}
	}
	c.RoundTrip, c.Spread, c.Seed = milliseconds(*in.RTTMs), milliseconds(in.RTTSpreadMs), preview.DefaultSeed
	return c.String()
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// chartWords are the words of charts, as package preview has them, by the ids of their texts.
var chartWords = map[string]string{
	"chart.title":    "Calls, backlog and limits of %s",
	"chart.and":      " and ",
	"chart.time":     "time since the first call (%s)",
	"chart.seconds":  "seconds",
	"chart.minutes":  "minutes",
	"chart.hours":    "hours",
	"chart.gone":     "%s: calls that have come in and gone",
	"chart.calls":    "calls",
	"chart.arrivals": "arrivals",
	"chart.sends":    "sends",
	"chart.backlog":  "backlog",
	"chart.waiting":  "calls waiting",
	"chart.all":      "all",
	"chart.for":      "for %s",
	"chart.limit":    "limit %s",
	"chart.window":   "permits in a window",
	"chart.in_use":   "permits in use",
	"chart.per":      ": %d per %s",
	"chart.keys":     ", for each of %d keys",
	"chart.busiest":  "busiest key",
	"chart.level":    "limit: %d",
}

// wordsOf returns the words of charts in a language.
func wordsOf(s *speech) preview.Words {
	words := make(preview.Words)
	for id, english := range chartWords {
		words[english] = s.mustText(id)
	}
	return words
}
