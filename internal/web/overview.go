package web

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An overview says whether it is the sidecar or the platform, until when, and which calls
// need a person.
type overview struct {
	Verdict   []string // sentences: do the platforms answer, and which limits hold calls back
	Alerts    []alert  // by urgency
	Upstreams []upstreamRow
	Limits    []api.Limit
	Waiting   int         // calls, of all upstreams
	LastGoes  api.Instant // the last of them; none if that is not known
	MayExpire bool        // the deadline of one may come before it can go
	Refused   []tally     // calls that were refused lately, by reason
}

// An upstreamRow is an upstream, and its last 15 minutes.
type upstreamRow struct {
	api.Upstream
	past
}

func loadOverview(v *visit) (*view, error) {
	var ups api.Upstreams
	var limits api.Limits
	var pauses api.Pauses
	var calls api.Calls
	if err := v.get("/v1/upstreams", nil, &ups); err != nil {
		return nil, err
	}
	if err := v.get("/v1/limits", nil, &limits); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(ups.Upstreams, func(u api.Upstream) bool { return u.State == "paused" || len(u.Pauses) > 0 }) {
		if err := v.get("/v1/pauses", nil, &pauses); err != nil {
			return nil, err
		}
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
		o.MayExpire = o.MayExpire || u.MayExpire
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
	o.Alerts = slices.Concat(readyAlerts(v), decideAlerts(v, &calls), limitAlerts(v, limits.Limits), upstreamAlerts(v, ups.Upstreams, pauses.Pauses), pauseAlerts(v, pauses.Pauses), refusalAlerts(v, o.Refused))
	slices.SortStableFunc(o.Alerts, func(a, b alert) int {
		switch {
		case a.Urgent && !b.Urgent:
			return -1
		case b.Urgent && !a.Urgent:
			return 1
		}
		return 0
	})
	o.Verdict = verdict(v, o)
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

// verdict says whether the platforms answer, and which limits of ours hold calls back.
func verdict(v *visit, o *overview) (all []string) {
	var silent, failing, limited []string
	answered := false
	for _, u := range o.Upstreams {
		answered = answered || u.Done+u.Failed+u.Limited > 0
		switch {
		case u.State == "tripped" && u.Cause == "failing":
			failing = append(failing, clean(u.Name))
		case u.State == "down" || u.State == "tripped":
			silent = append(silent, clean(u.Name))
		case u.Limited > 0:
			limited = append(limited, clean(u.Name))
		}
	}
	if answered && len(silent) == 0 && len(failing) == 0 {
		all = append(all, v.lang.mustText("verdict.answer"))
	}
	for _, of := range []struct {
		id    string
		names []string
	}{{"verdict.silent", silent}, {"verdict.failing", failing}, {"verdict.limited", limited}} {
		if len(of.names) > 0 {
			all = append(all, v.lang.mustText(of.id, "N", len(of.names), "Upstreams", strings.Join(of.names, v.lang.mustText("comma"))))
		}
	}
	held := 0
	for _, l := range o.Limits {
		if !holds(l) || !l.PausedUntil.IsZero() {
			continue
		}
		if held++; held <= maxHeld {
			all = append(all, v.lang.mustText("verdict.holds", "N", l.WaitingPermits, "Limit", clean(l.Upstream)+" / "+clean(l.Limit)))
		}
	}
	if held > maxHeld {
		all = append(all, v.lang.mustText("verdict.more", held-maxHeld))
	}
	return all
}

// maxHeld is how many limits the verdict names.
const maxHeld = 3

// limitPath returns the path of the page of a limit.
func limitPath(upstream, limit string) string {
	return "/ui/upstreams/" + url.PathEscape(upstream) + "/limits/" + url.PathEscape(limit)
}
