package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// loopTimeout is the time in which the scheduler must answer a process that is ready.
const loopTimeout = time.Second

func getConfig(a *Admin, _ request[none]) (*api.Config, error) {
	return &api.Config{Settings: a.Settings()}, nil
}

// diffConfig compares the file with the configuration in force.
func diffConfig(a *Admin, _ request[none]) (*api.Reload, error) {
	changes, err := a.Reload(nil)
	return reloaded(true, changes, err)
}

func reloadConfig(a *Admin, r request[none]) (*api.Reload, error) {
	if r.query.Get("dry_run") == "true" {
		return diffConfig(a, r)
	}
	changes, err := Recorded(a.Reload, func(after string, do func() error) error {
		return audited(a, r.Request, scheduler.AuditRecord{Action: "reload", After: after}, do)
	})
	return reloaded(false, changes, err)
}

// A Reloader loads the configuration anew, and calls put, if it is not nil, with the changes;
// apply puts them into force. Nothing else changes the configuration meanwhile.
type Reloader func(put func(changes []api.Change, apply func() error) error) ([]api.Change, error)

// Recorded reloads, and leaves a record by audit, which does what it is given: with the changes, before
// they come into force, or of a file that has a fault.
func Recorded(reload Reloader, audit func(after string, do func() error) error) ([]api.Change, error) {
	begun := false
	changes, err := reload(func(changes []api.Change, apply func() error) error {
		begun = true
		return audit(changesText(changes), apply)
	})
	if err != nil && !begun {
		err = audit("", func() error { return err })
	}
	return changes, err
}

// maxChanges bounds the text of the changes of a reload, in bytes.
const maxChanges = 500

// changesText writes the changes of a reload for the audit.
func changesText(changes []api.Change) string {
	var texts []string
	for _, c := range changes {
		text := c.Path + " " + c.Kind
		if !c.Hidden {
			text = fmt.Sprintf("%s: %s → %s", c.Path, c.Before, c.After)
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, "; ")
	if len(text) > maxChanges {
		text = strings.ToValidUTF8(text[:maxChanges], "") + fmt.Sprintf("… (%d changes)", len(changes))
	}
	return cmp.Or(text, "no change")
}

// reloaded returns the answer to a reload.
func reloaded(dry bool, changes []api.Change, err error) (*api.Reload, error) {
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
	info := a.Info()
	info.Caller = callerInfo(r.caller())
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
