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
	return a.status(r.Request, r.PathValue("name"))
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
	out := &api.Limits{At: api.At(time.Now()), Limits: []api.Limit{}}
	config := a.Scheduler.Config()
	for _, l := range all {
		out.Limits = append(out.Limits, apiLimit(l, config[l.Upstream]))
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
			out := apiLimit(l, config)
			return &out, nil
		}
	}
	return nil, &scheduler.Error{Reason: scheduler.NotFound, Upstream: name, Limit: limit, Detail: "upstream \"" + name + "\" has no limit \"" + limit + "\""}
}

func pauseUpstream(a *Admin, r request[api.PauseRequest]) (*api.Upstream, error) {
	p, f := r.body()
	until := time.Time{}
	if !f.empty {
		until = endOf(p, time.Now(), f)
		checkKey(p.Limit, p.Key, f)
		checkReason(p.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	reason := "from " + r.RemoteAddr
	if p.Reason != "" {
		reason = p.Reason + ", " + reason
	}
	name := r.PathValue("name")
	if err := a.Scheduler.Pause(r.Context(), name, p.Limit, p.Key, until, reason); err != nil {
		return nil, err
	}
	a.audit(r.Request, "paused", "upstream", name, "limit", p.Limit, "key", p.Key, "until", until, "reason", p.Reason)
	return a.status(r.Request, name)
}

// endOf returns the end of a pause.
func endOf(p api.PauseRequest, now time.Time, f *faults) time.Time {
	switch {
	case p.For != "" && !p.Until.IsZero():
		f.add("/until", "until and for are both there; send one of them")
	case p.For != "":
		d, err := time.ParseDuration(p.For)
		if err != nil || d <= 0 {
			f.add("/for", "for %q is not a positive duration such as 30s or 5m", p.For)
		}
		return now.Add(d)
	case p.Until.IsZero() && len(f.all) == 0:
		f.add("/until", "until and for are both missing; say how long")
	}
	return p.Until.Time
}

func checkKey(limit, key string, f *faults) {
	if key != "" && limit == "" {
		f.add("/key", "key %q is given without a limit; name the limit whose key it is", key)
	}
}

// resumeUpstream ends a pause; an empty body means that of the whole upstream.
func resumeUpstream(a *Admin, r request[api.ResumeRequest]) (*api.Upstream, error) {
	p, f := r.body()
	if !f.empty {
		checkKey(p.Limit, p.Key, f)
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	name := r.PathValue("name")
	if err := a.Scheduler.Resume(r.Context(), name, p.Limit, p.Key); err != nil {
		return nil, err
	}
	a.audit(r.Request, "resumed", "upstream", name, "limit", p.Limit, "key", p.Key)
	return a.status(r.Request, name)
}

// status returns the current state of an upstream.
func (a *Admin) status(r *http.Request, name string) (*api.Upstream, error) {
	u, err := a.Scheduler.Status(r.Context(), name)
	if err != nil {
		return nil, err
	}
	out := apiUpstream(u)
	return &out, nil
}
