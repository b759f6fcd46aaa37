package server

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func apiPause(p scheduler.Pause) api.Pause {
	return api.Pause{
		ID: p.ID, Upstream: p.Upstream, Limit: p.Limit, Key: p.Key, Since: api.At(p.Since), Until: api.At(p.Until),
		By: p.By, Who: p.Who, Reason: p.Reason, Status: p.Status,
	}
}

func listPauses(a *Admin, r request[none]) (*api.Pauses, error) {
	all, err := a.Scheduler.Pauses(r.Context())
	if err != nil {
		return nil, err
	}
	out := &api.Pauses{At: api.At(time.Now()), Pauses: []api.Pause{}}
	for _, p := range all {
		out.Pauses = append(out.Pauses, apiPause(p))
	}
	return out, nil
}

func addPause(a *Admin, r request[api.PauseRequest]) (*api.Pause, error) {
	in, f := r.body()
	until := time.Time{}
	if !f.empty {
		if in.Upstream == "" {
			f.add("/upstream", "upstream is missing; name the one that is to be paused")
		}
		until = endOf(in, time.Now(), f)
		checkKey(in.Limit, in.Key, f)
		checkReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	p := scheduler.Pause{Upstream: in.Upstream, Limit: in.Limit, Key: in.Key, Until: until, Who: callerName(r.Request), Reason: in.Reason}
	record := scheduler.AuditRecord{Action: "pause", Upstream: p.Upstream, Limit: p.Limit, Key: p.Key, After: "until " + until.UTC().Format(time.RFC3339), Reason: p.Reason}
	if err := audited(a, r.Request, record, func() error { return a.Scheduler.Pause(r.Context(), p) }); err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Pauses(r.Context())
	if err != nil {
		return nil, err
	}
	if p.Limit == scheduler.ConcurrencyLimit {
		p.Limit = ""
	}
	for _, made := range all {
		if made.By == "person" && made.Upstream == p.Upstream && made.Limit == p.Limit && made.Key == p.Key {
			out := apiPause(made)
			return &out, nil
		}
	}
	return nil, &scheduler.Error{Reason: scheduler.NotFound, Upstream: p.Upstream, Detail: "the pause has ended already"}
}

// endPause ends a pause before its time; that of a circuit breaker lets calls go again.
func endPause(a *Admin, r request[none]) (*api.Pause, error) {
	reason := r.query.Get("reason")
	f := &faults{}
	checkReason(reason, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	all, err := a.Scheduler.Pauses(r.Context())
	if err != nil {
		return nil, err
	}
	record := scheduler.AuditRecord{Action: "resume", Reason: reason}
	for _, p := range all {
		if p.ID == r.PathValue("id") {
			record.Upstream, record.Limit, record.Key, record.Before = p.Upstream, p.Limit, p.Key, "paused until "+p.Until.UTC().Format(time.RFC3339)
		}
	}
	if record.Upstream == "" {
		return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: "there is no pause " + r.PathValue("id") + ", or it has ended"}
	}
	var ended scheduler.Pause
	err = audited(a, r.Request, record, func() (err error) {
		ended, err = a.Scheduler.ResumePause(r.Context(), r.PathValue("id"))
		return err
	})
	if err != nil {
		return nil, err
	}
	out := apiPause(ended)
	return &out, nil
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

// examplePause is one of the documentation.
var examplePause = api.Pause{ID: "5f0c9a6d1b2e3f40", Upstream: "pay", Since: exampleAt(0), Until: exampleAt(59), By: "person", Who: "oncall", Reason: "maintenance at the bank"}

var pauseOperations = []Operation{
	handles(Operation{
		Method: "GET", Path: "/v1/pauses", ID: "listPauses", Scope: access.Read, Status: http.StatusOK,
		Summary: "List the pauses that hold now: by whom, since when, why",
	}, none{}, &api.Pauses{At: exampleAt(0), Pauses: []api.Pause{examplePause}}, listPauses),
	handles(Operation{
		Method: "POST", Path: "/v1/pauses", ID: "addPause", Scope: access.Operate, Status: http.StatusCreated,
		Summary: "Pause an upstream, a limit or a key",
	}, api.PauseRequest{Upstream: "pay", For: "30m", Reason: "maintenance at the bank"}, &examplePause, addPause),
	handles(Operation{
		Method: "DELETE", Path: "/v1/pauses/{id}", ID: "endPause", Scope: access.Operate, Status: http.StatusOK,
		Summary: "End a pause before its time",
		Doc:     "By a person, by an answer of the upstream, or by its circuit breaker, which closes then. The answer is the pause that has ended.",
		Params:  []Param{{Name: "reason", Type: "string", Doc: "Kept in the audit."}},
	}, none{}, &examplePause, endPause),
}
