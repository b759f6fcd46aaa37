package web_test

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/web"
)

// TestOverviewIsNotQuiet: refusals that a person can do something about, and checks that are not ok,
// are alerts. A count that is cut says so, and hides none of them.
func TestOverviewIsNotQuiet(t *testing.T) {
	many := func(n int, reason string, ago time.Duration) (all []api.RefusedCall) {
		for range n {
			all = append(all, api.RefusedCall{ID: "x", Reason: reason, At: api.At(time.Now().Add(-ago))})
		}
		return all
	}
	const quiet, ready = "All quiet", "process: ok\nscheduler: ok\nready\n"
	for name, test := range map[string]struct {
		refused []api.RefusedCall // the newest first
		ready   string
		want    []string // !text: not
	}{
		"nothing":              {nil, ready, []string{quiet}},
		"past their deadline":  {many(2, "past_deadline", time.Minute), ready, []string{quiet, ">2 past their deadline<"}},
		"full":                 {many(2, "full", time.Minute), ready, []string{"!" + quiet, "2 calls were refused in the last 15 minutes: too many wait.", "/ui/refusals?reason=full"}},
		"paused":               {many(1, "paused", time.Minute), ready, []string{"!" + quiet, "1 call was refused in the last 15 minutes: paused."}},
		"no room":              {many(1, "disk_full", time.Minute), ready, []string{"!" + quiet, "alert urgent", "1 call was refused in the last 15 minutes: no room to store them."}},
		"not stored":           {many(1, "store_failed", time.Minute), ready, []string{"!" + quiet, "alert urgent", "not stored."}},
		"long ago":             {many(2, "full", time.Hour), ready, []string{quiet, "!were refused"}},
		"more than a page":     {many(1500, "full", time.Minute), ready, []string{"1,000+ calls were refused", ">1,000+ too many wait<"}},
		"behind the page":      {append(many(1000, "past_deadline", time.Second), many(3, "disk_full", time.Minute)...), ready, []string{"!" + quiet, ">1,000+ past their deadline<", "1+ call was refused in the last 15 minutes: no room to store them."}},
		"a page, and older":    {append(many(10, "past_deadline", time.Second), many(2000, "past_deadline", time.Hour)...), ready, []string{quiet, ">10 past their deadline<"}},
		"the scheduler hangs":  {nil, "process: ok\nscheduler: the scheduler has not answered within 1s\nthe scheduler has not answered within 1s\n", []string{"!" + quiet, "alert urgent", "The sidecar is not ready: scheduler: the scheduler has not answered within 1s."}},
		"the process is ended": {nil, "process: stopping\nscheduler: ok\nstopping\n", []string{"!" + quiet, "The sidecar is not ready: process: stopping."}},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/info", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"caller":{"name":"ops","role":"viewer","scopes":["read"]}}`)
		})
		mux.HandleFunc("GET /v1/refusals", func(w http.ResponseWriter, r *http.Request) {
			size, out := 1000, api.Refusals{Refusals: []api.RefusedCall{}}
			if r.URL.Query().Get("page_size") == "1" {
				size = 1
			}
			for _, c := range test.refused {
				if reason := r.URL.Query().Get("reason"); reason != "" && c.Reason != reason {
					continue
				}
				if len(out.Refusals) == size {
					out.Next = "more"
					break
				}
				out.Refusals = append(out.Refusals, c)
			}
			json.NewEncoder(w).Encode(out)
		})
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
			if test.ready != ready {
				w.WriteHeader(503)
			}
			io.WriteString(w, test.ready)
		})
		mux.HandleFunc("GET /v1/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
		pages := web.New(web.Config{API: mux})
		status, page := ask(t, pages, "GET", "/ui/", "", "en", "")
		pages.Close()
		page = html.UnescapeString(page)
		if status != 200 {
			t.Errorf("%s: %d", name, status)
		}
		for _, want := range test.want {
			if text, not := strings.CutPrefix(want, "!"); strings.Contains(page, text) == not {
				_, main, _ := strings.Cut(page, "<h1>")
				t.Errorf("%s: %q is not so in %.900s", name, want, main)
			}
		}
	}
}
