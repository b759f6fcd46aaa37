package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// loopTimeout is the time in which the scheduler must answer a process that is ready.
const loopTimeout = time.Second

func reloadConfig(a *Admin, r request[none]) (*api.Reload, error) {
	dry := r.query.Get("dry_run") == "true"
	var changes []api.Change
	load := func() (err error) {
		changes, err = a.Reload(dry)
		return err
	}
	var err error
	if dry {
		err = load()
	} else {
		err = audited(a, r.Request, scheduler.AuditRecord{Action: "reload"}, load)
	}
	if err != nil {
		var known *scheduler.Error
		if !errors.As(err, &known) {
			err = &scheduler.Error{Reason: badConfig, Detail: err.Error()}
		}
		return nil, err
	}
	if changes == nil {
		changes = []api.Change{}
	}
	return &api.Reload{DryRun: dry, Changes: changes}, nil
}

func getInfo(a *Admin, r request[none]) (*api.Info, error) {
	info, caller := a.Info(), r.caller()
	info.Caller = api.CallerInfo{Name: caller.Name, Role: string(caller.Role), Via: caller.Via, Scopes: []string{}}
	for _, s := range access.Scopes {
		if caller.May(s) {
			info.Caller.Scopes = append(info.Caller.Scopes, string(s))
		}
	}
	return &info, nil
}

func getHealth(a *Admin, w http.ResponseWriter, _ request[none]) error {
	return text(w, http.StatusOK, "ok\n")
}

// getReadiness answers whether the process should get traffic.
func getReadiness(a *Admin, w http.ResponseWriter, r request[none]) error {
	checks := []struct {
		name string
		err  error
	}{{"process", a.Ready()}, {"scheduler", answers(r.Context(), a)}}
	status, list, all := http.StatusOK, "", "ready\n"
	for _, c := range checks {
		state := "ok"
		if c.err != nil {
			state = c.err.Error()
			if status == http.StatusOK {
				status, all = http.StatusServiceUnavailable, state+"\n"
			}
		}
		list += fmt.Sprintf("%s: %s\n", c.name, state)
	}
	if r.query.Get("verbose") == "true" {
		all = list + all
	}
	return text(w, status, all)
}

// answers reports whether the scheduler answers in time.
func answers(ctx context.Context, a *Admin) error {
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	if _, err := a.Scheduler.Status(ctx, ""); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the scheduler has not answered within %v", loopTimeout)
	}
	return nil
}

func text(w http.ResponseWriter, status int, body string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
	return nil
}
