package web

import (
	"encoding/csv"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// maxExport is how many calls a file has at most; a filter by time gives the others.
const maxExport = 10_000

// export answers with the calls of a list as CSV (RFC 4180), for a spreadsheet: instants in UTC, no bodies.
func export(p *Pages, w http.ResponseWriter, r *http.Request) {
	v := p.visit(r)
	query := callsAsked(v)
	query.Set("page_size", "1000")
	var calls api.Calls
	if err := v.get("/v1/calls", query, &calls); err != nil {
		p.refuse(w, v, "/ui/calls", err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="calls-`+v.now.UTC().Format("20060102-150405")+`.csv"`)
	out := csv.NewWriter(w)
	out.Write([]string{"id", "upstream", "state", "numbers", "method", "path", "flow", "priority", "accepted_at", "finished_at", "eta", "waiting_for", "attempts", "last_outcome", "last_status", "reason"})
	for n := 0; ; {
		for _, c := range calls.Calls {
			out.Write(rowOf(&c))
		}
		n += len(calls.Calls)
		if out.Flush(); calls.Next == "" || n >= maxExport || out.Error() != nil {
			return
		}
		query.Set("cursor", calls.Next)
		calls = api.Calls{}
		if err := v.get("/v1/calls", query, &calls); err != nil {
			panic(http.ErrAbortHandler) // the file is not whole, and the browser must see that
		}
	}
}

// csvOf returns the path of the file of a list: it has all of the list, not from a page of it on.
func csvOf(query url.Values) string {
	query = maps.Clone(query)
	query.Del("cursor")
	return "/ui/calls.csv?" + query.Encode()
}

func rowOf(c *api.CallSummary) []string {
	var numbers []string
	for _, name := range slices.Sorted(maps.Keys(c.Numbers)) {
		numbers = append(numbers, name+" "+c.Numbers[name])
	}
	row := []string{c.ID, c.Upstream, string(c.State), cell(strings.Join(numbers, "; ")), cell(c.Method), cell(c.Path), cell(c.Flow), strconv.Itoa(c.Priority), instantIn(c.AcceptedAt), instantIn(c.FinishedAt), instantIn(c.ETA), "", strconv.Itoa(c.AttemptCount), "", "", c.Reason}
	if w := c.WaitingFor; w != nil {
		if row[11] = cell(strings.TrimSpace(w.Limit + " " + w.Key)); w.Paused && w.Limit == api.ConcurrencyLimit {
			row[11] = "paused"
		}
	}
	if a := c.LastAttempt; a != nil {
		row[13] = string(a.Outcome)
		if a.Status != 0 {
			row[14] = strconv.Itoa(a.Status)
		}
	}
	return row
}

func instantIn(at api.Instant) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// cell returns a value from outside for a spreadsheet, which takes none for a formula: see OWASP, CSV injection.
func cell(value string) string {
	if value != "" && strings.ContainsRune("=+-@\t\r", rune(value[0])) {
		return "'" + value
	}
	return value
}
