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
	found, err := a.Reload(nil)
	return reloaded(true, found, err)
}

func reloadConfig(a *Admin, r request[none]) (*api.Reload, error) {
	if r.query.Get("dry_run") == "true" {
		found, err := a.Reload(nil)
		if err == nil {
			err = seen(r, found)
		}
		return reloaded(true, found, err)
	}
	checked := func(put func(*api.Reload, func() error) error) (*api.Reload, error) {
		return a.Reload(func(found *api.Reload, apply func() error) error {
			if err := seen(r, found); err != nil {
				return err
			}
			return put(found, apply)
		})
	}
	found, err := Recorded(checked, func(after string, do func() error) error {
		return audited(a, r.Request, scheduler.AuditRecord{Action: "reload", After: after}, do)
	})
	return reloaded(false, found, err)
}

// seen refuses a file that is not the one that the caller names, if it names one.
func seen(r request[none], found *api.Reload) error {
	if !r.query.Has("file") || r.query.Get("file") == found.FileSHA256 {
		return nil
	}
	return &scheduler.Error{Reason: scheduler.ChangedSince, Detail: "the file has changed since it was compared, and nothing was reloaded; compare it again, and then reload"}
}

// A Reloader loads the configuration anew, and calls put, if it is not nil, with what it has found;
// apply puts it into force. Nothing else changes the configuration meanwhile.
type Reloader func(put func(found *api.Reload, apply func() error) error) (*api.Reload, error)

// Recorded reloads, and leaves a record by audit, which does what it is given: with the changes, before
// they come into force, or of a file that has a fault.
func Recorded(reload Reloader, audit func(after string, do func() error) error) (*api.Reload, error) {
	begun := false
	found, err := reload(func(found *api.Reload, apply func() error) error {
		begun = true
		return audit(changesText(found.Changes), apply)
	})
	if err != nil && !begun {
		err = audit("", func() error { return err })
	}
	return found, err
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
func reloaded(dry bool, found *api.Reload, err error) (*api.Reload, error) {
	if err != nil {
		var known *scheduler.Error
		if !errors.As(err, &known) {
			err = &scheduler.Error{Reason: badConfig, Detail: err.Error()}
		}
		return nil, err
	}
	out := &api.Reload{DryRun: dry, FileSHA256: found.FileSHA256, Changes: found.Changes}
	if out.Changes == nil {
		out.Changes = []api.Change{}
	}
	return out, nil
}

func getInfo(a *Admin, r request[none]) (*api.Info, error) {
	info := a.Info()
	info.Caller = callerInfo(r.caller())
	return &info, nil
}

func getHealth(a *Admin, w http.ResponseWriter, _ request[none]) error {
	return text(w, http.StatusOK, "ok\n")
}

// getReadiness answers whether the process should get traffic. One whose limits are not those of the owner should, and
// says so.
func getReadiness(a *Admin, w http.ResponseWriter, r request[none]) error {
	checks := []readinessCheck{{"process", a.Ready()}, {"scheduler", answers(r.Context(), a)}}
	var alike *readinessCheck
	if a.Fleet != nil {
		checks = append(checks, readinessCheck{"fleet", a.Fleet.Ready()})
		alike = &readinessCheck{"limits", a.Fleet.Alike()}
	}
	status, list, all := http.StatusOK, "", "ready\n"
	for _, c := range checks {
		if c.err != nil && status == http.StatusOK {
			status, all = http.StatusServiceUnavailable, c.state()+"\n"
		}
		list += c.line()
	}
	switch verbose := r.query.Get("verbose") == "true"; {
	case verbose && alike != nil:
		all = list + alike.line() + all
	case verbose:
		all = list + all
	case alike != nil && alike.err != nil:
		all += alike.line()
	}
	return text(w, status, all)
}

type readinessCheck struct {
	name string
	err  error
}

func (c readinessCheck) state() string {
	if c.err != nil {
		return c.err.Error()
	}
	return "ok"
}

func (c readinessCheck) line() string { return c.name + ": " + c.state() + "\n" }

// answers reports whether the scheduler answers in time.
func answers(ctx context.Context, a *Admin) error {
	if a.Scheduler == nil { // another replica has the calls
		return nil
	}
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
