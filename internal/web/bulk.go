package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A bulkPage is the form of an action on many calls: those that the person has chosen, or those of a filter.
type bulkPage struct {
	Action string
	Back   string          // path of the page that the form came from
	Named  []api.CallFacts // the first calls that it can be done on
	api.BulkResult
}

// bulkFilters are the parameters that choose calls, as those of [api.BulkFilter]. The parameter call is an id of
// one that the person has chosen.
var bulkFilters = []string{"upstream", "limit", "key", "flow", "number"}

// Possible is how many calls the action can be done on.
func (p *bulkPage) Possible() int { return p.Matched - p.Refused }

// Others is how many more there are than those that the page names.
func (p *bulkPage) Others() int { return p.Possible() - len(p.Named) }

func loadBulk(v *visit) (*view, error) {
	if !slices.Contains(scopesOf(v), "operate") {
		return nil, notAllowed(v, "")
	}
	query := asked(v, append(bulkFilters, "call", "action", "back")...)
	if v.Method == http.MethodPost { // refused: as it was sent
		query = v.PostForm
	}
	p := &bulkPage{Action: query.Get("action"), Back: ownPath(query.Get("back"))}
	if !slices.Contains(api.Actions, p.Action) {
		return nil, v.missing("There is no action " + clean(p.Action) + " on many calls.")
	}
	in := bulkOf(query)
	in.DryRun = true
	dry := v.again()
	dry.Request = v.Clone(v.Context())
	dry.Header.Set("Sec-Fetch-Site", "same-origin") // a link of a runbook leads here, as to other pages; this changes nothing
	if err := dry.do(http.MethodPost, "/v1/calls/bulk", nil, in, &p.BulkResult); err != nil {
		return nil, err
	}
	for _, item := range p.Results {
		var call api.Call
		if item.Reason == "" && len(p.Named) < maxTold && v.get("/v1/calls/"+url.PathEscape(item.Call), nil, &call) == nil {
			p.Named = append(p.Named, call.CallFacts)
		}
	}
	return &view{title: v.lang.mustText("bulk."+p.Action, p.Possible()), data: p, shell: actingOnMany(p.Action, query), place: "calls", form: true, still: true}, nil
}

// bulkOf returns the action on many calls of a form or of the path of its page.
func bulkOf(query url.Values) *api.Bulk {
	in := &api.Bulk{Action: query.Get("action"), Reason: strings.TrimSpace(query.Get("reason")), Filter: api.BulkFilter{Calls: query["call"]}}
	f := &in.Filter
	for i, to := range []**string{&f.Upstream, &f.Limit, &f.Key, &f.Flow, &f.Number} {
		if value := query.Get(bulkFilters[i]); value != "" {
			*to = &value
		}
	}
	return in
}

// actOnMany does an action on the calls of a form, which names each: those that came in after the person has seen
// them stay. Calls that refused it are told one by one.
func actOnMany(v *visit) (next string, err error) {
	var result api.BulkResult
	if err := v.do(http.MethodPost, "/v1/calls/bulk", nil, bulkOf(v.PostForm), &result); err != nil {
		return "", err
	}
	if result.Refused > 0 {
		p := &problem{Status: http.StatusConflict, Title: v.lang.mustText("bulk.refused", "N", result.Refused, "Done", v.lang.number(result.Succeeded)), Detail: v.lang.mustText("bulk.refused_says")}
		for _, item := range result.Results {
			if item.Reason != "" && len(p.Errors) < maxTold {
				p.Errors = append(p.Errors, api.Fault{Parameter: item.Call, Detail: item.Detail})
			}
		}
		return "", p
	}
	u, err := url.Parse(ownPath(v.PostForm.Get("back")))
	if err != nil || u.Path == "" {
		u = &url.URL{Path: "/ui/calls"}
	}
	q := u.Query()
	q.Set("did", v.PostForm.Get("action"))
	q.Set("n", strconv.Itoa(result.Succeeded))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// didMany says what an action on many calls has done, on the page that the person came from; empty for none.
func didMany(v *visit) string {
	q := v.URL.Query()
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil || n < 0 || n > maxBulk || !slices.Contains(api.Actions, q.Get("did")) {
		return ""
	}
	return v.lang.mustText("bulk.did_"+q.Get("did"), n)
}

// maxBulk is how many calls an action takes at most, by the API.
const maxBulk = 1000

// maxTold is how many calls a page names of an action on many.
const maxTold = 20

// cancelAll returns the path of the form that cancels all calls that a list shows, and empty if it cannot: the
// list has other calls than those that wait, or is by something that the action does not know.
func cancelAll(query url.Values) string {
	all := url.Values{"action": {"cancel"}, "back": {"/ui/calls?" + query.Encode()}}
	filtered := false
	for name, values := range query {
		switch {
		case name == "cursor" || name == "order":
		case name == "state" && len(values) == 1 && values[0] == string(api.Waiting):
		case slices.Contains(bulkFilters, name) && len(values) == 1:
			all[name], filtered = values, true
		default:
			return ""
		}
	}
	if query.Get("state") == "" || !filtered {
		return ""
	}
	return "/ui/bulk?" + all.Encode()
}
