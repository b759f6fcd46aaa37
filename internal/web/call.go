package web

import (
	"net/url"
	"slices"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A callPage is one call: its history, why it waits, and the actions of the person.
type callPage struct {
	Call     api.Call
	Sentence string
	Why      string    // it waits; empty otherwise
	Actions  []string  // that the person may do now
	Steps    []step    // of its life, those to come too
	First    *api.Call // in line there, if it waits and the API tells
	Did      string    // says the action that the person has just done; empty for none
}

// A step is an instant in the life of a call.
type step struct {
	Name string
	At   api.Instant
	When string // past, next, which is the one that it waits for, or future
}

// stepsOf returns the steps of a call, the first first.
func stepsOf(v *visit, c *api.Call) (all []step) {
	add := func(name string, at api.Instant) {
		if at.IsZero() {
			return
		}
		when := "past"
		if at.After(v.now) {
			when = "future"
		}
		all = append(all, step{name, at, when})
	}
	add(v.lang.mustText("accepted"), c.AcceptedAt)
	for _, a := range c.Attempts {
		add(v.lang.mustText("timeline.attempt", "Attempt", a.N), a.SentAt)
	}
	if c.Unknown != nil {
		add(v.lang.mustText("timeline.query"), c.Unknown.Queries.LastAt)
		add(v.lang.mustText("timeline.next_query"), c.Unknown.Queries.NextAt)
	}
	for _, d := range c.Decisions {
		add(v.lang.mustText("timeline.decision"), d.At)
	}
	add(v.lang.mustText("finished"), c.FinishedAt)
	if c.State == api.Waiting {
		add(v.lang.mustText("not_before"), c.NotBefore)
		add(v.lang.mustText("goes"), c.ETA)
		add(v.lang.mustText("signature_until"), c.SignatureUntil)
		add(v.lang.mustText("deadline"), c.Deadline)
	}
	slices.SortStableFunc(all, func(a, b step) int { return a.At.Compare(b.At.Time) })
	if i := slices.IndexFunc(all, func(s step) bool { return s.When == "future" }); i >= 0 {
		all[i].When = "next"
	}
	return all
}

func loadCall(v *visit) (*view, error) {
	id := v.PathValue("id")
	var call api.Call
	if err := v.get("/v1/calls/"+url.PathEscape(id), nil, &call); err != nil {
		return nil, err
	}
	p := &callPage{Call: call, Actions: actionsOn(v, &call), Steps: stepsOf(v, &call)}
	if did := v.URL.Query().Get("did"); slices.Contains(actionNames, did) {
		p.Did = v.lang.mustText("did." + did)
		if last := call.Last(); call.State == api.Unknown && last != nil && last.N > 1 && (did == "resolve" || did == "retry") {
			p.Did = v.lang.mustText("did.again", "Attempt", last.N)
		}
	}
	sent := api.Instant{}
	if last := call.Last(); last != nil {
		sent = last.SentAt
	}
	p.Sentence = v.lang.sentence(&call.CallFacts, sent, v.now)
	if d := ending(&call); d != nil {
		p.Sentence = v.lang.recorded(&call, d, v.now)
	}
	title := v.lang.subject(&call.CallFacts)
	if about := new(api.Call); call.Resolves != "" && v.get("/v1/calls/"+url.PathEscape(call.Resolves), nil, about) == nil {
		title = v.lang.mustText("subject.query_about", "Call", v.lang.subject(&about.CallFacts))
		p.Sentence = v.lang.mustText("sentence.query", "Call", v.lang.subject(&about.CallFacts), "State", v.lang.mustText("state."+string(call.State)))
	}
	if call.State == api.Waiting {
		p.Why = v.lang.why(call.WaitingFor, pauseOf(v, &call), v.now)
		if first := new(api.Call); call.WaitingFor != nil && call.WaitingFor.Next != "" && v.get("/v1/calls/"+url.PathEscape(call.WaitingFor.Next), nil, first) == nil {
			p.First = first
		}
	}
	return &view{title: capital(title), data: p, api: "/v1/calls/" + url.PathEscape(id), shell: words("throttler calls get", id), place: "calls"}, nil
}

// ending returns the decision by which a call is done or failed; nil if its last attempt was answered.
func ending(c *api.Call) *api.Decision {
	last := c.Last()
	if c.State != api.Done && c.State != api.Failed {
		return nil
	}
	i := slices.IndexFunc(c.Decisions, func(d api.Decision) bool {
		return last != nil && d.Attempt == last.N && string(d.As) == string(c.State)
	})
	if i < 0 {
		return nil
	}
	return &c.Decisions[i]
}

// pauseOf returns the pause for which a call waits; nil if there is none, or the API does not tell.
func pauseOf(v *visit, c *api.Call) *api.Pause {
	var all api.Pauses
	if c.WaitingFor == nil || !c.WaitingFor.Paused || v.get("/v1/pauses", nil, &all) != nil {
		return nil
	}
	limit := c.WaitingFor.Limit
	if limit == api.ConcurrencyLimit {
		limit = ""
	}
	return longest(all.Pauses, func(p *api.Pause) bool {
		return p.Upstream == c.Upstream && p.Limit == limit && (p.Key == "" || p.Key == c.WaitingFor.Key)
	})
}

// longest returns the pause that ends last of those that fit; nil if there is none.
func longest(all []api.Pause, fits func(*api.Pause) bool) (last *api.Pause) {
	for i := range all {
		if p := &all[i]; fits(p) && (last == nil || p.Until.After(last.Until.Time)) {
			last = p
		}
	}
	return last
}

// actionsOn returns the actions that the person may do on a call as it is.
func actionsOn(v *visit, c *api.Call) []string { return actionsBy(scopesOf(v), c) }

// actionsBy returns the actions on a call as it is that need one of some scopes.
func actionsBy(scopes []string, c *api.Call) (all []string) {
	operate, submit := slices.Contains(scopes, "operate"), slices.Contains(scopes, "submit")
	switch {
	case c.State == api.Waiting && operate:
		all = append(all, "cancel")
		if c.Async {
			all = append(all, "edit")
		}
	case c.State == api.Waiting && submit:
		all = append(all, "cancel")
	case c.State == api.Unknown && operate:
		all = append(all, "resolve")
		if asks(c.CallFacts) {
			all = append(all, "ask")
		}
		all = append(all, "retry")
	}
	return all
}

// asks reports whether the configuration has a query about the outcome of an unknown call.
func asks(c api.CallFacts) bool { return c.Unknown != nil && c.Unknown.Queries.Most > 0 }

// scopesOf returns those of the person; none if the API does not tell.
func scopesOf(v *visit) []string {
	info, err := v.info()
	if err != nil {
		return nil
	}
	return info.Caller.Scopes
}
