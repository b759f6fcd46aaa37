package web

import (
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An alert is one thing that is not as it should be.
type alert struct {
	Urgent bool // a person has to act
	Text   string
	Link   string // path of a page of the dashboard, with its query
	Action string // text of the link
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
func upstreamAlerts(v *visit, all []api.Upstream, pauses []api.Pause) (alerts []alert) {
	for _, u := range all {
		if len(u.Slowed) > 0 {
			alerts = append(alerts, slowedAlert(v, u.Name, u.Slowed[0]))
		}
		a := alert{Link: mustLink("/ui/calls", "upstream", u.Name, "state", "waiting", "order", "oldest"), Action: v.lang.mustText("waiting_calls")}
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
			waits = v.lang.mustText("alert.waits", "N", u.Waiting, "Expire", u.MayExpire)
		}
		pause := v.lang.word("cause", u.Cause)
		if p := longest(pauses, func(p *api.Pause) bool { return p.Upstream == u.Name && p.Limit == "" }); p != nil {
			pause = v.lang.pause(*p, v.now)
		}
		says := v.lang.mustText(id, "Upstream", clean(u.Name), "Until", until, "Pause", pause, "Reason", v.lang.reason(u.Reason), "Most", v.lang.number(u.MaxWaiting))
		a.Text = v.lang.mustText("sentences", "One", says, "Two", waits)
		alerts = append(alerts, a)
	}
	return alerts
}

// slowedAlert tells that calls are slowed down, as the upstream limits some that keep its limits.
func slowedAlert(v *visit, upstream string, s api.Slowed) alert {
	name, link := clean(upstream), mustLink("/ui/calls", "upstream", upstream, "state", "waiting", "order", "oldest")
	if s.Limit != "" {
		name, link = name+" / "+clean(s.Limit), limitPath(upstream, s.Limit)
	}
	if s.Key != "" {
		name += " / " + clean(s.Key)
	}
	return alert{Link: link, Action: v.lang.mustText("look"), Text: v.lang.slowed("alert.slowed", name, s, v.now)}
}

// pauseAlerts tells of limits that are paused, or of which keys are.
func pauseAlerts(v *visit, pauses []api.Pause) (all []alert) {
	type paused struct {
		last api.Pause           // to end
		keys map[string]struct{} // that are paused; the empty one is the limit itself
	}
	var limits []*paused
	for _, p := range pauses {
		if p.Limit == "" || p.By == "restart" {
			continue
		}
		i := slices.IndexFunc(limits, func(l *paused) bool {
			return l.last.Upstream == p.Upstream && l.last.Limit == p.Limit && (l.last.Key == "") == (p.Key == "")
		})
		if i < 0 {
			limits = append(limits, &paused{p, make(map[string]struct{})})
			i = len(limits) - 1
		}
		l := limits[i]
		l.keys[p.Key] = struct{}{}
		if p.Until.After(l.last.Until.Time) {
			l.last = p
		}
	}
	for _, l := range limits {
		name, until := clean(l.last.Upstream)+" / "+clean(l.last.Limit), v.lang.distance(l.last.Until, v.now)
		var text string
		if n := len(l.keys); n > 1 {
			text = v.lang.mustText("alert.keys_paused", "N", n, "Limit", name, "Until", until)
		} else {
			if l.last.Key != "" {
				name += " / " + clean(l.last.Key)
			}
			text = v.lang.mustText("alert.limit_paused", "Limit", name, "Pause", v.lang.pause(l.last, v.now), "Until", until)
		}
		all = append(all, alert{Link: limitPath(l.last.Upstream, l.last.Limit), Action: v.lang.mustText("look"), Text: text})
	}
	return all
}
