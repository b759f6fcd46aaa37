package web

import (
	"net/url"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A decidePage has the calls that wait for a person, the oldest first.
type decidePage struct {
	Calls []api.CallSummary
	More  string // path of the next page
}

func loadDecide(v *visit) (*view, error) {
	query := url.Values{"needs": {"person"}, "order": {"oldest"}, "page_size": {"20"}}
	if cursor := v.URL.Query().Get("cursor"); cursor != "" {
		query.Set("cursor", cursor)
	}
	var calls api.Calls
	if err := v.get("/v1/calls", query, &calls); err != nil {
		return nil, err
	}
	p := &decidePage{Calls: calls.Calls}
	if calls.Next != "" {
		p.More = "/ui/decide?" + url.Values{"cursor": {calls.Next}}.Encode()
	}
	return &view{title: v.lang.mustText("to_decide"), data: p, api: "/v1/calls?" + query.Encode(), shell: same("throttler calls list", query, listFlags...), place: "decide"}, nil
}
