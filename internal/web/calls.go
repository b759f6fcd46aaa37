package web

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A callList is the answer to a search.
type callList struct {
	search
	Q         string // of the box at the top
	States    []api.State
	Upstreams []string
	Calls     []api.CallSummary
	Older     string   // path of the next page; empty: this is the last one
	CSV       string   // path of the same calls as a file
	Did       string   // says what the person has just done; empty for none
	Here      string   // path of this page
	MayCancel bool     // the person may cancel those that wait, and there are some
	CancelAll string   // path of the form that cancels all calls of the list; empty: it cannot
	Filtered  bool     // a filter other than q is set
	Chosen    []string // its values, for people
}

// callFilters are the parameters of the page that go to the API as they are.
var callFilters = []string{"q", "upstream", "state", "outcome", "needs", "limit", "key", "flow", "number", "origin", "submitted_by", "path_prefix", "accepted_after", "accepted_before", "finished_after", "finished_before", "order", "cursor"}

// pageSize is the number of calls of one page.
const pageSize = "50"

func loadCalls(v *visit) (*view, error) {
	asked := callsAsked(v)
	query := maps.Clone(asked)
	query.Set("page_size", pageSize)
	var calls api.Calls
	if err := v.get("/v1/calls", query, &calls); err != nil {
		return nil, err
	}
	q := asked.Get("q")
	if q != "" && len(calls.Calls) == 1 && len(asked) == 1 && calls.Next == "" && v.Context().Value(followed{}) == nil {
		return nil, &redirect{"/ui/calls/" + calls.Calls[0].ID}
	}
	list := &callList{
		search: search{asked}, Q: q, States: api.States, Calls: calls.Calls, Older: older("/ui/calls", asked, calls.Next),
		Did: didMany(v), Here: "/ui/calls?" + asked.Encode(), CSV: csvOf(asked), CancelAll: cancelAll(asked), Filtered: len(asked) > 0 && !(len(asked) == 1 && q != ""),
	}
	for _, name := range callFilters[1:] {
		for _, value := range asked[name] {
			switch name {
			case "state":
				value = v.lang.word("state", value)
			case "cursor", "order":
				continue
			}
			list.Chosen = append(list.Chosen, clean(value))
		}
	}
	list.MayCancel = slices.Contains(scopesOf(v), "operate") && slices.ContainsFunc(calls.Calls, func(c api.CallSummary) bool { return c.State == api.Waiting })
	var ups api.Upstreams
	if v.get("/v1/upstreams", nil, &ups) == nil { // a submitter may not see them
		for _, u := range ups.Upstreams {
			list.Upstreams = append(list.Upstreams, u.Name)
		}
	}
	shell := same("throttler calls list", query, listFlags...)
	if len(asked) == 1 && q != "" {
		shell = words("throttler find", q)
	}
	return &view{title: v.lang.mustText("calls"), data: list, api: "/v1/calls?" + query.Encode(), shell: shell, place: "calls"}, nil
}

// callsAsked returns the filter of a list of calls that a person has asked for.
func callsAsked(v *visit) url.Values {
	asked := asked(v, callFilters...)
	for name, values := range asked {
		for i := range values {
			values[i] = instantOf(name, values[i])
		}
	}
	return asked
}

// instantOf returns the value of a field for a date and a time as an instant, in UTC, and all
// other values as they are.
func instantOf(name, value string) string {
	if (strings.HasSuffix(name, "_after") || strings.HasSuffix(name, "_before")) && len(value) == len(minute) {
		return value + ":00Z"
	}
	return value
}

// A search is the parameters of a page that has a list.
type search struct{ Query url.Values }

// Has reports whether the search has a value of a parameter.
func (s search) Has(name, value string) bool { return slices.Contains(s.Query[name], value) }

// Get returns the value of a parameter of the search.
func (s search) Get(name string) string { return s.Query.Get(name) }

// asked returns the parameters of some names that a page was asked with. Blank ones are left out: a
// form sends all of its fields.
func asked(v *visit, names ...string) url.Values {
	q, all := v.URL.Query(), url.Values{}
	for _, name := range names {
		for _, value := range q[name] {
			if value = strings.TrimSpace(value); value != "" {
				all.Add(name, value)
			}
		}
	}
	return all
}

// older returns the path of the page that a cursor begins; empty without one.
func older(path string, query url.Values, cursor string) string {
	if cursor == "" {
		return ""
	}
	next := maps.Clone(query)
	next.Del("page_size")
	next.Set("cursor", cursor)
	return path + "?" + next.Encode()
}
