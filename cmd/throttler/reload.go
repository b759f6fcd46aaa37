package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// settled is how long a watched file must have been left alone: editors write in
// several steps.
const settled = 300 * time.Millisecond

// reload loads the configuration anew and returns what has changed. It is checked
// first, and taken as a whole or not at all.
func (sc *sidecar) reload() ([]string, error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	changes, err := sc.take()
	if err != nil {
		err = inFull(err)
		sc.log.Error("reload: " + err.Error())
		return nil, err
	}
	sc.log.Info("reloaded", "changes", len(changes))
	for _, c := range changes {
		sc.log.Info("reloaded: " + c)
	}
	return changes, nil
}

func (sc *sidecar) take() ([]string, error) {
	next, err := sc.load()
	if err != nil {
		return nil, err
	}
	changes := sc.cfg.Diff(next)
	for _, fixed := range []struct{ key, old, now string }{
		{"admin", sc.cfg.Admin, next.Admin}, {"log", fmt.Sprint(sc.cfg.Log), fmt.Sprint(next.Log)},
		{"store", sc.cfg.Store, next.Store},
	} {
		if fixed.old != fixed.now {
			changes = append(changes, fixed.key+": stays as it is until a restart")
		}
	}
	opened := make(map[string]*port)
	for _, name := range slices.Sorted(maps.Keys(next.Listeners)) {
		l := next.Listeners[name]
		if l.Listen == sc.cfg.Listeners[name].Listen {
			continue
		}
		if opened[name], err = sc.open("upstreams."+name+".listen", l.Listen, connections(next, name)); err != nil {
			break
		}
	}
	if err == nil {
		err = sc.scheduler.Reload(next.Scheduler)
	}
	if err != nil {
		for _, p := range opened {
			p.close()
		}
		return nil, err
	}
	sc.replace(next, opened)
	return changes, nil
}

// replace lets the listeners follow a configuration that has been taken.
func (sc *sidecar) replace(next *config.Config, opened map[string]*port) {
	for name, p := range sc.ports {
		_, stays := next.Listeners[name]
		switch {
		case opened[name] != nil || !stays:
			sc.retire(p, next.Grace)
			delete(sc.ports, name)
		default:
			p.handle(sc.data(next, name))
		}
	}
	for name, p := range opened {
		sc.ports[name] = p
		sc.run(p, sc.data(next, name))
	}
	sc.cfg = next
}

// reloads reloads on SIGHUP and, if it is watched, when the file has changed,
// until ctx ends.
func (sc *sidecar) reloads(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	var changed <-chan fsnotify.Event
	var watcher *fsnotify.Watcher
	if sc.watched != "" {
		var err error
		if watcher, err = fsnotify.NewWatcher(); err == nil {
			err = watcher.Add(filepath.Dir(sc.watched)) // the file may be replaced, or be a link to one that is
		}
		if err != nil {
			return fmt.Errorf("--watch: %w", err)
		}
		changed = watcher.Events
	}
	sc.running.Go(func() {
		defer signal.Stop(hup)
		if watcher != nil {
			defer watcher.Close()
		}
		known, _ := os.ReadFile(sc.watched)
		quiet := time.NewTimer(settled)
		defer quiet.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				sc.reload()
			case <-changed:
				quiet.Reset(settled)
			case <-quiet.C:
				if text, err := os.ReadFile(sc.watched); err == nil && !bytes.Equal(text, known) {
					known = text
					sc.reload()
				}
			}
		}
	})
	return nil
}
