package web

import (
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An overview says whether it is the sidecar or the platform, until when, and which calls
// need a person.
type overview struct {
	Alerts    []alert // by urgency
	Upstreams []upstreamRow
	Limits    []api.Limit
	Waiting   int         // calls, of all upstreams
	LastGoes  api.Instant // the last of them; none if that is not known
	Refused   []tally     // calls that were refused lately, by reason
}

// An upstreamRow is an upstream, and its last 15 minutes.
type upstreamRow struct {
	api.Upstream
	past
}

// An alert is one thing that is not as it should be.
type alert struct {
	Urgent bool // a person has to act
	Text   string
	Link   string // path of a page of the dashboard, with its query
	Action string // text of the link
}

func loadOverview(v *visit) (*view, error) {
	var ups api.Upstreams
	var limits api.Limits
	var calls api.Calls
	if err := v.get("/v1/upstreams", nil, &ups); err != nil {
		return nil, err
	}
	if err := v.get("/v1/limits", nil, &limits); err != nil {
		return nil, err
	}
	if err := v.get("/v1/calls", url.Values{"needs": {"person"}, "order": {"oldest"}, "page_size": {"100"}}, &calls); err != nil {
		return nil, err
	}
	o := &overview{Limits: slices.DeleteFunc(limits.Limits, func(l api.Limit) bool { return l.Builtin })}
	known := true
	for _, u := range ups.Upstreams {
		h, err := history(v, u.Name, "", lately)
		if err != nil {
			return nil, err
		}
		o.Upstreams = append(o.Upstreams, upstreamRow{u, pastOf(h, v.now, lately)})
		o.Waiting += u.Waiting
		known = known && (u.Waiting == 0 || !u.ETA.IsZero())
		if u.ETA.After(o.LastGoes.Time) {
			o.LastGoes = u.ETA
		}
	}
	if !known {
		o.LastGoes = api.Instant{}
	}
	var err error
	if o.Refused, err = refusedLately(v); err != nil {
		return nil, err
	}
	o.Alerts = slices.Concat(readyAlerts(v), decideAlerts(v, &calls), limitAlerts(v, limits.Limits), upstreamAlerts(v, ups.Upstreams), refusalAlerts(v, o.Refused))
	slices.SortStableFunc(o.Alerts, func(a, b alert) int {
		switch {
		case a.Urgent && !b.Urgent:
			return -1
		case b.Urgent && !a.Urgent:
			return 1
		}
		return 0
	})
	return &view{title: v.lang.mustText("overview"), data: o, api: "/v1/upstreams", shell: "throttler status", place: "overview"}, nil
}

// lately is how far back the overview looks.
const lately = 15 * time.Minute

// A tally is how many calls were refused for a reason.
type tally struct {
	Reason string
	Count  int
	More   bool // there may be more
}

// troubles are reasons of refusals that a person can do something about, and whether at once.
var troubles = map[string]bool{"full": false, "paused": false, "disk_full": true, "store_failed": true}

// refusedLately counts the last refusals. Of more than a page it counts those of the page, and
// looks for the troubles among all.
func refusedLately(v *visit) ([]tally, error) {
	var refused api.Refusals
	if err := v.get("/v1/refusals", url.Values{"page_size": {"1000"}}, &refused); err != nil {
		return nil, err
	}
	since := v.now.Add(-lately)
	all := tallies(since, refused.Refusals)
	if n := len(refused.Refusals); refused.Next == "" || n == 0 || refused.Refusals[n-1].At.Before(since) {
		return all, nil
	}
	for i := range all {
		all[i].More = true
	}
	for _, reason := range slices.Sorted(maps.Keys(troubles)) {
		if slices.ContainsFunc(all, func(t tally) bool { return t.Reason == reason }) {
			continue
		}
		var last api.Refusals
		if err := v.get("/v1/refusals", url.Values{"reason": {reason}, "page_size": {"1"}}, &last); err != nil {
			return nil, err
		}
		for _, t := range tallies(since, last.Refusals) {
			all = append(all, tally{t.Reason, t.Count, true})
		}
	}
	return all, nil
}

// tallies counts refusals since an instant by their reasons, the most first.
func tallies(since time.Time, refusals []api.RefusedCall) (all []tally) {
	for _, r := range refusals {
		if r.At.Before(since) {
			continue
		}
		i := slices.IndexFunc(all, func(t tally) bool { return t.Reason == r.Reason })
		if i < 0 {
			all = append(all, tally{Reason: r.Reason})
			i = len(all) - 1
		}
		all[i].Count++
	}
	slices.SortStableFunc(all, func(a, b tally) int { return b.Count - a.Count })
	return all
}

// readyAlerts tells of checks of the process that are not ok.
func readyAlerts(v *visit) (all []alert) {
	for _, c := range checks(v) {
		if !c.OK {
			all = append(all, alert{
				Urgent: true, Link: "/ui/system", Action: v.lang.mustText("look"),
				Text: v.lang.mustText("alert.not_ready", "Check", clean(c.Name), "State", clean(c.State)),
			})
		}
	}
	return all
}

// refusalAlerts tells of refusals that are a trouble.
func refusalAlerts(v *visit, refused []tally) (all []alert) {
	for _, r := range refused {
		urgent, trouble := troubles[r.Reason]
		if !trouble {
			continue
		}
		all = append(all, alert{
			Urgent: urgent, Link: mustLink("/ui/refusals", "reason", r.Reason), Action: v.lang.mustText("look"),
			Text: v.lang.mustText("alert.refused", "N", r.Count, "Plus", plus(r.More), "Reason", v.lang.word("refusal", r.Reason)),
		})
	}
	return all
}

// plus follows a count that is a least one.
func plus(more bool) string {
	if more {
		return "+"
	}
	return ""
}

// decideAlerts tells of calls that wait for a person.
func decideAlerts(v *visit, calls *api.Calls) []alert {
	n := len(calls.Calls)
	if n == 0 {
		return nil
	}
	id := "alert.decide"
	if calls.Next != "" {
		id = "alert.decide_more"
	}
	oldest := &calls.Calls[0]
	return []alert{{
		Urgent: true, Link: "/ui/decide", Action: v.lang.mustText("decide"),
		Text: v.lang.mustText(id, "N", n, "Age", v.lang.duration(v.now.Sub(unknownSince(oldest))), "Call", v.lang.subject(&oldest.CallFacts), "Upstream", clean(oldest.Upstream)),
	}}
}

// unknownSince returns when a call became unknown.
func unknownSince(c *api.CallSummary) time.Time {
	if c.Unknown != nil {
		return c.Unknown.Since.Time
	}
	return c.AcceptedAt.Time
}

// limitAlerts tells of promises that were broken.
func limitAlerts(v *visit, limits []api.Limit) (all []alert) {
	for _, l := range limits {
		if l.Audit.Margin < 0 {
			all = append(all, alert{
				Urgent: true, Link: limitPath(l.Upstream, l.Limit), Action: v.lang.mustText("look"),
				Text: v.lang.mustText("alert.exceeded", "Limit", clean(l.Limit), "Upstream", clean(l.Upstream), "Most", v.lang.number(l.Audit.Most), "Permits", v.lang.number(l.Permits)),
			})
		}
	}
	return all
}

// upstreamAlerts tells of upstreams that take no calls.
func upstreamAlerts(v *visit, all []api.Upstream) (alerts []alert) {
	for _, u := range all {
		a := alert{Link: mustLink("/ui/calls", "upstream", u.Name, "state", "waiting"), Action: v.lang.mustText("waiting_calls")}
		id := ""
		switch {
		case u.State == "up" && u.MaxWaiting > 0 && u.Waiting+u.Unknown >= u.MaxWaiting:
			id = "alert.full"
		case u.State == "down", u.State == "tripped", u.State == "paused", u.State == "removed":
			id = "alert." + u.State
		default:
			continue
		}
		a.Urgent = u.State == "down" || u.State == "tripped"
		until := ""
		if !u.PausedUntil.IsZero() {
			until = v.lang.distance(u.PausedUntil, v.now)
		}
		waits := v.lang.mustText("alert.waits_none")
		if u.Waiting > 0 {
			waits = v.lang.mustText("alert.waits", u.Waiting)
		}
		says := v.lang.mustText(id, "Upstream", clean(u.Name), "Until", until, "Cause", v.lang.word("cause", u.Cause), "Reason", clean(u.Reason), "Most", v.lang.number(u.MaxWaiting))
		a.Text = v.lang.mustText("sentences", "One", says, "Two", waits)
		alerts = append(alerts, a)
	}
	return alerts
}

// limitPath returns the path of the page of a limit.
func limitPath(upstream, limit string) string {
	return "/ui/upstreams/" + url.PathEscape(upstream) + "/limits/" + url.PathEscape(limit)
}
