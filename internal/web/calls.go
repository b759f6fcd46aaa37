package web

import (
	"net/url"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A callList is the answer to a search.
type callList struct {
	Query     url.Values
	Q         string // of the box at the top
	States    []api.State
	Upstreams []string
	Calls     []api.CallSummary
	Sentence  string // of the only call that was found
	Older     string // path of the next page; empty: this is the last one
	Filtered  bool   // a filter other than q is set
}

// callFilters are the parameters of the page that go to the API as they are.
var callFilters = []string{"q", "upstream", "state", "outcome", "needs", "limit", "key", "flow", "number", "origin", "submitted_by", "path_prefix", "accepted_after", "accepted_before", "finished_after", "finished_before", "order", "cursor"}

// pageSize is the number of calls of one page.
const pageSize = "50"

func loadCalls(v *visit) (*view, error) {
	asked := url.Values{}
	for name, values := range v.URL.Query() {
		if i := slices.DeleteFunc(slices.Clone(values), func(s string) bool { return strings.TrimSpace(s) == "" }); len(i) > 0 && slices.Contains(callFilters, name) {
			for _, value := range i {
				asked.Add(name, instantOf(name, strings.TrimSpace(value)))
			}
		}
	}
	query := cloneValues(asked)
	query.Set("page_size", pageSize)
	var calls api.Calls
	if err := v.get("/v1/calls", query, &calls); err != nil {
		return nil, err
	}
	q := asked.Get("q")
	if q != "" && len(calls.Calls) == 1 && len(asked) == 1 && calls.Next == "" && v.Context().Value(followed{}) == nil {
		return nil, &redirect{"/ui/calls/" + calls.Calls[0].ID}
	}
	list := &callList{Query: asked, Q: q, States: api.States, Calls: calls.Calls, Filtered: len(asked) > 0 && !(len(asked) == 1 && q != "")}
	if calls.Next != "" {
		next := cloneValues(asked)
		next.Set("cursor", calls.Next)
		list.Older = "/ui/calls?" + next.Encode()
	}
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

// Has reports whether the search has a value of a parameter.
func (l *callList) Has(name, value string) bool { return slices.Contains(l.Query[name], value) }

// Get returns the value of a parameter of the search.
func (l *callList) Get(name string) string { return l.Query.Get(name) }

// instantOf returns the value of a field for a date and a time as an instant, in UTC, and all
// other values as they are.
func instantOf(name, value string) string {
	if (strings.HasSuffix(name, "_after") || strings.HasSuffix(name, "_before")) && len(value) == len("2006-01-02T15:04") {
		return value + ":00Z"
	}
	return value
}

func cloneValues(q url.Values) url.Values {
	out := make(url.Values)
	for name, values := range q {
		out[name] = slices.Clone(values)
	}
	return out
}
