package web

import (
	"slices"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An eventsPage has the latest events, the newest first.
type eventsPage struct {
	search
	Kinds []string
	Rows  []eventRow
}

// An eventRow is an event, or several of one kind and upstream that follow each other in one
// second.
type eventRow struct {
	api.Event
	Count int
}

// manyEvents is how many events of a second are summed up in one row.
const manyEvents = 20

func loadEvents(v *visit) (*view, error) {
	query := asked(v, "upstream", "kind", "call", "limit", "key")
	query.Set("page_size", "200")
	var list api.EventList
	if err := v.get("/v1/events/latest", query, &list); err != nil {
		return nil, err
	}
	p := &eventsPage{search: search{query}, Kinds: api.EventKinds, Rows: eventRows(list.Events)}
	return &view{title: v.lang.mustText("events"), data: p, api: "/v1/events/latest?" + query.Encode(), shell: watching(query), place: "events"}, nil
}

// eventRows sums up seconds with many events: a row for each kind and upstream of them.
func eventRows(events []api.Event) (rows []eventRow) {
	for from := 0; from < len(events); {
		second, to := events[from].At.Unix(), from
		for to < len(events) && events[to].At.Unix() == second {
			to++
		}
		if to-from <= manyEvents {
			for _, e := range events[from:to] {
				rows = append(rows, eventRow{e, 1})
			}
		} else {
			rows = append(rows, sums(events[from:to])...)
		}
		from = to
	}
	return rows
}

// sums returns a row for each kind and upstream of events.
func sums(events []api.Event) (rows []eventRow) {
	for _, e := range events {
		i := slices.IndexFunc(rows, func(r eventRow) bool { return r.Event.Event == e.Event && r.Upstream == e.Upstream })
		if i < 0 {
			rows = append(rows, eventRow{e, 0})
			i = len(rows) - 1
		}
		rows[i].Count++
	}
	return rows
}

// A refusalsPage has calls that were refused, the newest first.
type refusalsPage struct {
	Refusals []api.RefusedCall
	Older    string // path of the next page
}

func loadRefusals(v *visit) (*view, error) {
	query := asked(v, "upstream", "reason", "cursor")
	query.Set("page_size", pageSize)
	var list api.Refusals
	if err := v.get("/v1/refusals", query, &list); err != nil {
		return nil, err
	}
	p := &refusalsPage{list.Refusals, older("/ui/refusals", query, list.Next)}
	return &view{title: v.lang.mustText("refusals"), data: p, api: "/v1/refusals?" + query.Encode(), shell: same("throttler calls refused", query, "cursor", "page_size", "reason", "upstream"), place: "events"}, nil
}
