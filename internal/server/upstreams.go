package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func listUpstreams(a *Admin, r request[none]) (*api.Upstreams, error) {
	all, err := a.Scheduler.Upstreams(r.Context())
	if err != nil {
		return nil, err
	}
	return &api.Upstreams{At: api.At(time.Now()), Upstreams: convert(all, apiUpstream)}, nil
}

func getUpstream(a *Admin, r request[none]) (*api.Upstream, error) {
	return statusOf(a, r.Request, r.PathValue("name"))
}

// listLimits returns the limits of one upstream, or of all.
func listLimits(a *Admin, r request[none]) (*api.Limits, error) {
	name := r.query.Get("upstream")
	if err := a.known(r.Request, name); err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	if name != "" {
		all = slices.DeleteFunc(all, func(l scheduler.LimitStatus) bool { return l.Upstream != name })
	}
	now := time.Now()
	out := &api.Limits{At: api.At(now), Limits: []api.Limit{}}
	config := a.Scheduler.Config()
	for _, l := range all {
		out.Limits = append(out.Limits, apiLimit(now, l, config[l.Upstream]))
	}
	return out, nil
}

func getLimit(a *Admin, r request[none]) (*api.Limit, error) {
	name, limit := r.PathValue("name"), r.PathValue("limit")
	if _, err := a.Scheduler.Status(r.Context(), name); err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.Upstream == name && l.Limit == limit {
			config, _ := a.Scheduler.Upstream(name)
			out := apiLimit(time.Now(), l, config)
			return &out, nil
		}
	}
	return nil, &scheduler.Error{Reason: scheduler.NotFound, Upstream: name, Limit: limit, Detail: "upstream \"" + name + "\" has no limit \"" + limit + "\""}
}

// listKeys returns one key of a limit, or those for which most waits.
func listKeys(a *Admin, r request[none]) (*api.Keys, error) {
	out := &api.Keys{Upstream: r.PathValue("name"), Limit: r.PathValue("limit")}
	one, err := a.Scheduler.Key(r.Context(), out.Upstream, out.Limit, r.query.Get("key"))
	if err != nil {
		return nil, err
	}
	out.At, out.Keys = api.At(time.Now()), []api.Key{}
	if r.query.Has("key") {
		out.Keys = append(out.Keys, apiKey(one))
		return out, nil
	}
	all, err := a.Scheduler.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.Upstream == out.Upstream && l.Limit == out.Limit {
			out.Keys = append(out.Keys, convert(l.Keys[:min(len(l.Keys), r.op.number(r.query, "page_size"))], apiKey)...)
		}
	}
	return out, nil
}

// statusOf returns the current state of an upstream.
func statusOf(a *Admin, r *http.Request, name string) (*api.Upstream, error) {
	u, err := a.Scheduler.Status(r.Context(), name)
	if err != nil {
		return nil, err
	}
	out := apiUpstream(u)
	return &out, nil
}
