package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// lookEvery is how often a watched file is looked at.
const lookEvery = 500 * time.Millisecond

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
	ports, opened, err := sc.claim(next)
	if err == nil {
		err = sc.scheduler.Reload(context.Background(), next.Scheduler)
	}
	if err != nil {
		for _, p := range opened {
			p.close()
		}
		return nil, err
	}
	sc.replace(next, ports)
	return changes, nil
}

// claim returns the data listeners of a configuration: what listens at their
// addresses already, whichever upstream's it was, and new ones, which it opens.
func (sc *sidecar) claim(next *config.Config) (ports map[string]*port, opened []*port, err error) {
	ports = make(map[string]*port)
	for _, name := range slices.Sorted(maps.Keys(next.Listeners)) {
		addr, key := next.Listeners[name].Listen, "upstreams."+name+".listen"
		owner := sc.listensAt(addr, name)
		if owner == "" {
			p, err := sc.open(key, addr, connections(next, name))
			if err != nil {
				return nil, opened, sc.ownClash(addr, err)
			}
			ports[name], opened = p, append(opened, p)
			continue
		}
		ports[name] = sc.ports[owner]
		if owner != name {
			sc.log.Info("listening", "key", key, "addr", ports[name].addr)
		}
	}
	return ports, opened, nil
}

// listensAt returns the upstream whose listener has an address, empty if none has:
// the one of that name before others. At port 0 each listens at one of its own.
func (sc *sidecar) listensAt(addr, name string) string {
	if sc.cfg.Listeners[name].Listen == addr {
		return name
	}
	for other, l := range sc.cfg.Listeners {
		if l.Listen == addr && !strings.HasSuffix(addr, ":0") {
			return other
		}
	}
	return ""
}

// ownClash adds to an error of listening that it is Throttler itself which holds the
// port, at an address that is written in another way.
func (sc *sidecar) ownClash(addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	for name, p := range sc.ports {
		if _, held, _ := net.SplitHostPort(p.addr); held == port {
			return fmt.Errorf("%w (Throttler itself listens at %s, as upstreams.%s.listen: give that another port in a reload of its own, or restart)", err, p.addr, name)
		}
	}
	return err
}

// replace lets the listeners follow a configuration that has been taken.
func (sc *sidecar) replace(next *config.Config, ports map[string]*port) {
	was := slices.Collect(maps.Values(sc.ports))
	for name, p := range ports {
		if slices.Contains(was, p) {
			p.handle(sc.data(next, name))
		} else {
			sc.run(p, sc.data(next, name))
		}
	}
	stays := slices.Collect(maps.Values(ports))
	for _, p := range was {
		if !slices.Contains(stays, p) {
			sc.retire(p, next.Grace)
		}
	}
	sc.cfg, sc.ports = next, ports
}

// reloads reloads on SIGHUP and, if it is watched, when the file has changed,
// until ctx ends.
func (sc *sidecar) reloads(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	var looks <-chan time.Time
	if sc.watched != "" {
		looks = time.Tick(lookEvery)
	}
	file := newWatched(sc.watched)
	sc.running.Go(func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				sc.reload()
			case <-looks:
				if file.changed() {
					sc.reload()
				}
			}
		}
	})
}

// A watched file is read now and then. To be told of its changes by the system
// looks cheaper, but would have to follow each link on the way to it, does not work
// on every file system, and tells of all else that happens in the directory, where
// the store is written to.
type watched struct {
	path        string
	known, last []byte // as it was last told of, and as it was last read
}

// newWatched returns a file whose text is known.
func newWatched(path string) *watched {
	text, _ := os.ReadFile(path)
	return &watched{path, text, text}
}

// changed tells, once, that the file has another text, and has had it for two looks:
// editors write in several steps.
func (w *watched) changed() bool {
	text, err := os.ReadFile(w.path)
	if err != nil {
		return false // it is being replaced
	}
	settled := bytes.Equal(text, w.last)
	w.last = text
	if !settled || bytes.Equal(text, w.known) {
		return false
	}
	w.known = text
	return true
}
