package server

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func (a *Admin) upstreams(r request[none]) ([]api.Upstream, error) {
	if _, err := parseQuery(r.Request); err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Upstreams(r.Context())
	return convert(all, apiUpstream), err
}

// limits returns the limits of one upstream, or of all.
func (a *Admin) limits(r request[none]) ([]api.Limit, error) {
	q, err := parseQuery(r.Request, "upstream")
	if err == nil {
		err = a.known(r.Request, q.Get("upstream"))
	}
	if err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	if name := q.Get("upstream"); name != "" {
		all = slices.DeleteFunc(all, func(l scheduler.LimitStatus) bool { return l.Upstream != name })
	}
	return convert(all, apiLimit), nil
}

func (a *Admin) pause(r request[api.Pause]) (api.Upstream, error) {
	p, err := r.body()
	if err != nil {
		return api.Upstream{}, err
	}
	until, err := endOf(p, time.Now())
	if err != nil {
		return api.Upstream{}, err
	}
	if err := checkKey(p.Limit, p.Key); err != nil {
		return api.Upstream{}, err
	}
	name := r.PathValue("name")
	if err := a.Scheduler.Pause(r.Context(), scheduler.Pause{Upstream: name, Limit: p.Limit, Key: p.Key, Until: until, Who: r.RemoteAddr, Reason: p.Reason}); err != nil {
		return api.Upstream{}, err
	}
	a.audit(r.Request, "paused", "upstream", name, "limit", p.Limit, "key", p.Key, "until", until, "reason", p.Reason)
	return a.status(r.Request, name)
}

// endOf returns the end of a pause.
func endOf(p api.Pause, now time.Time) (time.Time, error) {
	switch {
	case p.For != "" && !p.Until.IsZero():
		return now, badRequest("until and for are both there; send one of them")
	case p.For != "":
		d, err := time.ParseDuration(p.For)
		if err != nil || d <= 0 {
			return now, badRequest("for %q is not a positive duration such as 30s or 5m", p.For)
		}
		return now.Add(d), nil
	case p.Until.IsZero():
		return now, badRequest("until and for are both missing; say how long")
	}
	return p.Until.Time, nil
}

func checkKey(limit, key string) error {
	if key != "" && limit == "" {
		return badRequest("key %q is given without a limit; name the limit whose key it is", key)
	}
	return nil
}

// resume ends a pause; an empty body means that of the whole upstream.
func (a *Admin) resume(r request[api.Resume]) (api.Upstream, error) {
	p, err := r.body()
	if err != nil && !errors.Is(err, errEmpty) {
		return api.Upstream{}, err
	}
	if err := checkKey(p.Limit, p.Key); err != nil {
		return api.Upstream{}, err
	}
	name := r.PathValue("name")
	if err := a.Scheduler.Resume(r.Context(), name, p.Limit, p.Key); err != nil {
		return api.Upstream{}, err
	}
	a.audit(r.Request, "resumed", "upstream", name, "limit", p.Limit, "key", p.Key)
	return a.status(r.Request, name)
}

// status returns the current state of an upstream.
func (a *Admin) status(r *http.Request, name string) (api.Upstream, error) {
	u, err := a.Scheduler.Status(r.Context(), name)
	return apiUpstream(u), err
}
