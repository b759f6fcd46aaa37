package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func (a *Admin) upstreams(r *http.Request) (*reply, error) {
	if _, err := a.query(r); err != nil {
		return nil, err
	}
	all, err := a.s.Upstreams(r.Context())
	return &reply{body: all}, err
}

// limits answers with the limits of one upstream, or of all.
func (a *Admin) limits(r *http.Request) (*reply, error) {
	q, err := a.query(r, "upstream")
	if err != nil {
		return nil, err
	}
	all, err := a.s.Limits(r.Context())
	if err != nil {
		return nil, err
	}
	if name := q.Get("upstream"); name != "" {
		all = slices.DeleteFunc(all, func(l scheduler.LimitStatus) bool { return l.Upstream != name })
	}
	return &reply{body: all}, nil
}

// A place is what can be shut: an upstream, one of its limits, or one key of a limit.
type place struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
}

func (p place) check() error {
	if p.Key != "" && p.Limit == "" {
		return bad("key %q stands without a limit; name the limit whose key it is", p.Key)
	}
	return nil
}

// closing is the body of pause.
type closing struct {
	place
	Until instant `json:"until"`
	For   string  `json:"for"`
}

// end returns the instant at which a pause ends.
func (c closing) end(now time.Time) (time.Time, error) {
	switch {
	case c.For != "" && !c.Until.IsZero():
		return now, bad("until and for are both there; send one of them")
	case c.For != "":
		d, err := time.ParseDuration(c.For)
		if err != nil || d <= 0 {
			return now, bad("for %q is not a positive duration such as 30s or 5m", c.For)
		}
		return now.Add(d), nil
	case c.Until.IsZero():
		return now, bad("until and for are both missing; say how long")
	case !c.Until.After(now):
		return now, bad("until %s has passed; to open again there is resume", c.Until.Format(time.RFC3339))
	}
	return c.Until.Time, nil
}

func (a *Admin) pause(r *http.Request) (*reply, error) {
	var c closing
	if err := readJSON(r, &c); err != nil {
		return nil, err
	}
	until, err := c.end(time.Now())
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if err := a.s.Pause(r.Context(), name, c.Limit, c.Key, until); err != nil {
		return nil, err
	}
	a.audit(r, "paused", "upstream", name, "limit", c.Limit, "key", c.Key, "until", until)
	return a.status(r, name)
}

func (a *Admin) resume(r *http.Request) (*reply, error) {
	var p place
	if err := readJSON(r, &p); err != nil && err != errEmpty {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if err := a.s.Resume(r.Context(), name, p.Limit, p.Key); err != nil {
		return nil, err
	}
	a.audit(r, "resumed", "upstream", name, "limit", p.Limit, "key", p.Key)
	return a.status(r, name)
}

// status answers with the upstream that a request was about.
func (a *Admin) status(r *http.Request, name string) (*reply, error) {
	u, err := a.s.Status(r.Context(), name)
	return &reply{body: u}, err
}
