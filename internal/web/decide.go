package web

import (
	"net/url"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A decidePage has the calls that wait for a person, the oldest first.
type decidePage struct {
	Calls []api.CallSummary
	Did   string // says what the person has just done; empty for none
	More  string // path of the next page
	Asks  string // path of the form that asks about all of them; empty: about none, or one
}

func loadDecide(v *visit) (*view, error) {
	query := asked(v, "cursor")
	query.Set("needs", "person")
	query.Set("order", "oldest")
	query.Set("page_size", "20")
	var calls api.Calls
	if err := v.get("/v1/calls", query, &calls); err != nil {
		return nil, err
	}
	p := &decidePage{Calls: calls.Calls, Did: didMany(v), More: older("/ui/decide", url.Values{}, calls.Next)}
	ask := url.Values{"action": {"ask"}, "back": {"/ui/decide"}}
	for _, c := range calls.Calls {
		if asks(c.CallFacts) {
			ask.Add("call", c.ID)
		}
	}
	if len(ask["call"]) > 1 {
		p.Asks = "/ui/bulk?" + ask.Encode()
	}
	return &view{title: v.lang.mustText("to_decide"), data: p, api: "/v1/calls?" + query.Encode(), shell: same("throttler calls list", query, listFlags...), place: "decide"}, nil
}
