package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// lastWords is how long answers may take to reach their clients after the
// scheduler has stopped.
const lastWords = 5 * time.Second

// sidecar is a scheduler with its listeners.
type sidecar struct {
	log     *slog.Logger
	load    func() (*config.Config, error) // what the file says now
	watched string                         // the file, if a change of it is a reload

	scheduler *scheduler.Scheduler
	events    *server.Events
	observe   func(scheduler.Event)
	admin     *port
	running   sync.WaitGroup // all that serves, reloads and ends
	failed    chan error     // of a port
	stopping  atomic.Bool

	mu    sync.Mutex // one reload at a time; guards the rest
	cfg   *config.Config
	ports map[string]*port // data listeners, by upstream
}

// serve runs the sidecar until ctx ends. It then releases the signals, so that
// the next one ends the process.
func (sc *sidecar) serve(ctx context.Context, release func()) error {
	if err := sc.start(); err != nil {
		return err
	}
	for _, w := range sc.cfg.Warnings {
		sc.log.Warn(w)
	}
	reloads, end := context.WithCancel(ctx)
	defer end()
	sc.reloads(reloads)
	sc.log.Info("ready", "version", version, "admin", sc.admin.addr, "upstreams", len(sc.ports))

	var err error
	select {
	case <-ctx.Done():
	case err = <-sc.failed:
	case <-sc.scheduler.Failed(): // Shutdown says why
	}
	release() // before anybody can know of the stop
	end()
	grace := sc.grace()
	if err != nil {
		sc.log.Error("stopping", "err", err)
	} else {
		sc.log.Info("stopping: no new calls, those in flight finish", "grace", grace.String())
	}
	return errors.Join(err, sc.stop(grace))
}

// start opens all listeners before anything is served, so that nothing runs
// unless everything can.
func (sc *sidecar) start() error {
	metrics, events, trace := server.NewMetrics(), server.NewEvents(), server.Trace(sc.log)
	sc.observe = func(e scheduler.Event) {
		metrics.Observe(e)
		events.Observe(e)
		trace(e)
	}
	sc.cfg.Scheduler.Log, sc.cfg.Scheduler.Observe = sc.log, sc.observe
	sc.cfg.Scheduler.Precise = true
	kept, err := sc.cfg.OpenStore(store.Options{Log: sc.log})
	if err != nil {
		return err
	}
	sc.cfg.Scheduler.Store = kept
	s, err := scheduler.New(sc.cfg.Scheduler)
	if err != nil {
		if kept != nil {
			err = errors.Join(err, kept.Close())
		}
		return err
	}
	metrics.Watch(s)
	sc.scheduler, sc.events, sc.ports, sc.failed = s, events, make(map[string]*port), make(chan error, 1)

	admin := server.NewAdmin(s, metrics, sc.log, sc.observe, sc.ready)
	admin.Serve(events)
	admin.Reload(sc.reload)
	sc.admin, err = sc.open("admin", sc.cfg.Admin, adminConnections)
	opened := []*port{sc.admin}
	for _, name := range slices.Sorted(maps.Keys(sc.cfg.Listeners)) {
		p, portErr := sc.open("upstreams."+name+".listen", sc.cfg.Listeners[name].Listen, connections(sc.cfg, name))
		err = errors.Join(err, portErr)
		sc.ports[name] = p
		opened = append(opened, p)
	}
	if err != nil {
		for _, p := range opened {
			p.close()
		}
		return errors.Join(err, s.Close())
	}
	sc.run(sc.admin, admin)
	for name, p := range sc.ports {
		sc.run(p, sc.data(sc.cfg, name))
	}
	return nil
}

func (sc *sidecar) ready() error {
	if sc.stopping.Load() {
		return errors.New("stopping")
	}
	return nil
}

func (sc *sidecar) grace() time.Duration {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.cfg.Grace
}

// stop ends the scheduler first, while the listeners still tell clients why
// their calls do not go, and then the listeners.
func (sc *sidecar) stop(grace time.Duration) error {
	sc.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := sc.scheduler.Shutdown(ctx)
	sc.events.Close() // there will be no more
	if ctx.Err() != nil {
		sc.log.Warn("the grace period is over; the outcome of attempts that were cut off is unknown", "grace", grace.String())
	}
	sc.mu.Lock() // a reload that is under way ends first; the next one is refused
	for _, p := range sc.ports {
		sc.retire(p, lastWords)
	}
	sc.retire(sc.admin, lastWords)
	sc.mu.Unlock()
	sc.running.Wait()
	sc.log.Info("stopped")
	return err
}

// fail ends the sidecar because of an error; the first one counts.
func (sc *sidecar) fail(err error) {
	select {
	case sc.failed <- err:
	default:
	}
}

// inFull says what a reload found wrong, fault by fault.
func inFull(err error) error {
	var faults config.Errors
	if errors.As(err, &faults) {
		return fmt.Errorf("the configuration has faults, everything stays as it is:\n%w", faults)
	}
	return fmt.Errorf("everything stays as it is: %w", err)
}
