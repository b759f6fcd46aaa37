package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// pollInterval is the time between two reads of a watched file.
const pollInterval = 500 * time.Millisecond

// reload loads the configuration anew, and returns it with the changes. It calls put, if that is not
// nil, with them and a function that applies them: as a whole or not at all.
func (sc *sidecar) reload(put func(next *config.Config, changes []config.Change, apply func() error) error) (*config.Config, []config.Change, error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	next, err := sc.load()
	if put == nil {
		if err != nil {
			return nil, nil, reloadError(err)
		}
		return next, sc.cfg.Diff(next), nil
	}
	warned := sc.cfg.Warnings
	var changes []config.Change
	if err == nil {
		changes = sc.cfg.Diff(next)
		err = put(next, changes, func() error { return sc.apply(next) })
	}
	if e := (*scheduler.Error)(nil); errors.As(err, &e) && e.Reason == scheduler.ChangedSince { // the file has no fault
		return nil, nil, err
	}
	sc.metrics.Loaded(time.Now(), err)
	if err != nil {
		err = reloadError(err)
		sc.log.Error("reload: " + err.Error())
		return nil, nil, err
	}
	sc.log.Info("reloaded", "changes", len(changes))
	for _, c := range changes {
		sc.log.Info("reloaded: " + c.String())
	}
	for _, w := range sc.cfg.Warnings {
		// An edit of the file moves the places of the others.
		if !slices.ContainsFunc(warned, func(old *config.Fault) bool { return old.Path == w.Path && old.Err.Error() == w.Err.Error() }) {
			sc.log.Warn(w.Error())
		}
	}
	return next, changes, nil
}

// apply puts a configuration into force.
func (sc *sidecar) apply(next *config.Config) error {
	listeners, opened, err := sc.listen(next)
	if err == nil && sc.owns.Load() {
		err = sc.scheduler.Reload(context.Background(), next.Scheduler)
	}
	if err != nil {
		for _, l := range opened {
			l.close()
		}
		return err
	}
	if sc.replica != nil {
		sc.replica.member.Configured(next.LimitsHash())
	}
	next.Reloaded(sc.cfg)
	sc.replace(next, listeners)
	sc.configured = time.Now()
	return nil
}

// listen returns the data listeners of a configuration: those that are open at their
// addresses already, of whichever upstream, and new ones, which it opens.
func (sc *sidecar) listen(next *config.Config) (listeners map[endpoint]*listener, opened []*listener, err error) {
	listeners = make(map[endpoint]*listener)
	share := shareOf(openFiles(), len(endpoints(next)), len(sc.admin.all()))
	for _, d := range endpoints(next) {
		addr, key := d.addr(next), d.key()
		owner, owned := sc.ownerOf(addr, d)
		if !owned {
			l, err := sc.open(next, key, addr, share.connections(next, d))
			if err != nil {
				return nil, opened, sc.addClash(addr, err)
			}
			listeners[d], opened = l, append(opened, l)
			continue
		}
		listeners[d] = sc.listeners[owner]
		if owner != d {
			sc.log.Info("listening", "key", key, "addr", listeners[d].addr)
		}
	}
	return listeners, opened, nil
}

// ownerOf returns the endpoint of the listener at an address, if there is one. The given
// endpoint comes before others. Listeners at port 0 have different ports.
func (sc *sidecar) ownerOf(addr string, d endpoint) (owner endpoint, ok bool) {
	if d.addr(sc.cfg) == addr {
		return d, true
	}
	for _, other := range endpoints(sc.cfg) {
		if other.addr(sc.cfg) == addr && !strings.HasSuffix(addr, ":0") {
			return other, true
		}
	}
	return endpoint{}, false
}

// addClash adds to an error of net.Listen that Throttler's own listener has the port,
// under another spelling of the address.
func (sc *sidecar) addClash(addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	for d, l := range sc.listeners {
		if _, own, _ := net.SplitHostPort(l.addr); own == port {
			return fmt.Errorf("%w (Throttler itself listens at %s, as %s: give that another port in a reload of its own, or restart)", err, l.addr, d.key())
		}
	}
	return err
}

// replace serves the listeners of a configuration, and retires the others.
func (sc *sidecar) replace(next *config.Config, listeners map[endpoint]*listener) {
	before := slices.Collect(maps.Values(sc.listeners))
	share := shareOf(openFiles(), len(listeners), len(sc.admin.all()))
	sc.admin.follow(next)
	for d, l := range listeners {
		l.socket.SetMost(share.connections(next, d))
		if slices.Contains(before, l) {
			l.handle(sc.handler(next, d, sc.owns.Load()))
		} else {
			sc.run(l, sc.handler(next, d, sc.owns.Load()))
		}
	}
	for _, n := range sc.cfg.Notifications {
		n.Forward.Close() // its idle connections; those in use end with their notifications
	}
	after := slices.Collect(maps.Values(listeners))
	for _, l := range before {
		if !slices.Contains(after, l) {
			sc.retire(l, next.Grace)
		}
	}
	sc.cfg, sc.listeners = next, listeners
	sc.index(listeners)
}

// reloadLoop reloads on SIGHUP and after each change of a watched file, until ctx ends.
func (sc *sidecar) reloadLoop(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	var poll <-chan time.Time
	if sc.watched != "" {
		poll = time.Tick(pollInterval)
	}
	file := newWatchedFile(sc.watched)
	sc.running.Go(func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				sc.reloadFor("SIGHUP")
			case <-poll:
				if file.changed() {
					sc.reloadFor("--watch")
				}
			}
		}
	})
}

// reloadFor reloads for a signal or a change of the file, and leaves a record of it. The log has
// the error, if there is one.
func (sc *sidecar) reloadFor(via string) {
	if !sc.owns.Load() { // the audit is the owner's
		sc.reloadByAPI(func(_ *api.Reload, apply func() error) error { return apply() })
		return
	}
	server.Recorded(sc.reloadByAPI, func(after string, do func() error) error {
		return sc.scheduler.Audited(context.Background(), scheduler.AuditRecord{Actor: "system", Via: via, Action: "reload", After: after}, do)
	})
}

// A watchedFile is polled. Notifications by the system look cheaper, but would need a
// watch on each link on the way to the file, do not work on every file system, and
// report each write to the store in the same directory.
type watchedFile struct {
	path           string
	reported, last []byte // text at the last report, and at the last read
}

// newWatchedFile returns a file; its present text is no change.
func newWatchedFile(path string) *watchedFile {
	text, _ := os.ReadFile(path)
	return &watchedFile{path, text, text}
}

// changed reports, once, that the file has a new text, when two reads in a row have
// found it: editors write in several steps.
func (w *watchedFile) changed() bool {
	text, err := os.ReadFile(w.path)
	if err != nil {
		return false // the file is being replaced
	}
	stable := bytes.Equal(text, w.last)
	w.last = text
	if !stable || bytes.Equal(text, w.reported) {
		return false
	}
	w.reported = text
	return true
}

// reloadError adds to the error of a reload that nothing has changed.
func reloadError(err error) error {
	var faults config.Errors
	if errors.As(err, &faults) {
		return fmt.Errorf("the configuration has faults, everything stays as it is:\n%w", faults)
	}
	return fmt.Errorf("everything stays as it is: %w", err)
}

// reloadByAPI reloads for the admin API.
func (sc *sidecar) reloadByAPI(put func(*api.Reload, func() error) error) (*api.Reload, error) {
	var own func(*config.Config, []config.Change, func() error) error
	if put != nil {
		own = func(next *config.Config, changes []config.Change, apply func() error) error {
			return put(apiReload(next, changes), apply)
		}
	}
	next, changes, err := sc.reload(own)
	var found config.Errors
	if errors.As(err, &found) {
		all := make([]api.Fault, len(found))
		for i, f := range found {
			all[i] = api.Fault{Pointer: f.Path, Detail: f.Error()}
		}
		err = server.BadConfig(err.Error(), all)
	}
	if err != nil {
		return nil, err
	}
	return apiReload(next, changes), nil
}

func apiReload(next *config.Config, changes []config.Change) *api.Reload {
	return &api.Reload{FileSHA256: next.SHA256, Changes: apiChanges(changes)}
}

func apiChanges(changes []config.Change) []api.Change {
	out := make([]api.Change, len(changes))
	for i, c := range changes {
		out[i] = api.Change{Path: c.Path, Before: c.Before, After: c.After, Kind: c.Kind, Hidden: c.Hidden, Restart: c.Restart}
	}
	return out
}

// settings returns the configuration in force, for the admin API.
func (sc *sidecar) settings() []api.Setting {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return settingsOf(sc.cfg)
}

// settingsOf returns the settings of a configuration in the form of the admin API.
func settingsOf(cfg *config.Config) []api.Setting {
	all := cfg.Settings()
	out := make([]api.Setting, len(all))
	for i, s := range all {
		out[i] = api.Setting(s)
	}
	return out
}

// info is about the process, for the admin API.
func (sc *sidecar) info() api.Info {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	kept := "file"
	switch {
	case sc.cfg.Store == "":
		kept = "memory"
	case sc.cfg.Shared():
		kept = "postgres"
	}
	return api.Info{Version: version, Go: runtime.Version(), StartedAt: api.At(sc.started), ConfiguredAt: api.At(sc.configured), Store: kept}
}
