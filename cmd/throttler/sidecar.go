package main

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/internal/web"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// drainTimeout is the time that responses have to reach their clients after the
// scheduler has stopped.
const drainTimeout = 5 * time.Second

// A sidecar is a scheduler with its listeners.
type sidecar struct {
	log     *slog.Logger
	load    func() (*config.Config, error) // reads the file as it is now
	watched string                         // path of the file, if a change of it is a reload

	restored bool // the store is a copy

	metrics   *server.Metrics
	scheduler *scheduler.Scheduler
	events    *server.Events
	history   *server.History
	observe   func(scheduler.Event)
	admin     *admin
	pages     *web.Pages
	planner   *planner
	running   sync.WaitGroup // servers, the reload loop, and listeners that end
	failed    chan error     // of a listener
	stopping  atomic.Bool
	refusals  server.Refusals
	started   time.Time

	mu         sync.Mutex // held during a reload; guards the rest
	cfg        *config.Config
	configured time.Time // when cfg came into force
	listeners  map[endpoint]*listener
}

// serve runs the sidecar until ctx ends. It then releases the signals that end ctx: the
// next one ends the process.
func (sc *sidecar) serve(ctx context.Context, release func()) error {
	switch err := sc.start(ctx); {
	case err != nil && ctx.Err() != nil: // while it waited for the calls
		sc.log.Info("stopped")
		return nil
	case err != nil:
		return err
	}
	for _, w := range sc.cfg.Warnings {
		sc.log.Warn(w.Error())
	}
	if w := outdated(runtime.Version()); w != "" {
		sc.log.Warn(w)
	}
	reloading, stopReloads := context.WithCancel(ctx) // samples of the history end then, too
	defer stopReloads()
	sc.reloadLoop(reloading)
	sc.running.Go(func() { sc.history.Run(reloading, sc.scheduler.Totals) })
	tellServed(sc.log, sc.cfg, sc.scheduler.Config(), sc.listeners)
	sc.log.Info("ready", "version", version, "admin", sc.admin.addr(), "upstreams", len(sc.cfg.Listeners), "open_files", openFiles())

	var err error
	select {
	case <-ctx.Done():
	case err = <-sc.failed:
	case <-sc.scheduler.Failed(): // Shutdown returns its error
	}
	defer endAtSignal(sc.log, sc.scheduler)()
	release() // before the stop can be seen from outside
	stopReloads()
	grace := sc.grace()
	if err != nil {
		sc.log.Error("stopping", "err", err)
	} else {
		sending, waiting := pending(sc.scheduler)
		sc.log.Info("stopping: no new calls, those in flight finish; a second signal cuts them off", "grace", grace.String(), "in_flight", sending, "waiting", waiting)
	}
	return errors.Join(err, sc.stop(grace))
}

// start opens all listeners before it serves any: the sidecar runs as a whole or not
// at all. While another replica has the calls, until ctx ends, the listeners say so.
func (sc *sidecar) start(ctx context.Context) error {
	share := shareOf(openFiles(), len(endpoints(sc.cfg)), admins(sc.cfg))
	opened, err := sc.openAll(share)
	if err != nil {
		for _, l := range opened {
			l.close()
		}
		return err
	}
	if sc.cfg.Shared() {
		sc.standBy()
	}
	if err := sc.begin(ctx); err != nil {
		for _, l := range opened {
			if l.handler.Load() != nil {
				sc.retire(l, 0)
			} else {
				l.close()
			}
		}
		sc.running.Wait()
		return err
	}
	sc.runAdmin(share)
	for d, l := range sc.listeners {
		sc.run(l, sc.handler(sc.cfg, d))
	}
	return nil
}

// openAll opens all listeners. With an error it returns those that are open.
func (sc *sidecar) openAll(share share) (opened []*listener, err error) {
	sc.listeners, sc.failed = make(map[endpoint]*listener), make(chan error, 1)
	sc.admin, err = sc.openAdmin(share)
	opened = sc.admin.all()
	for _, d := range endpoints(sc.cfg) {
		l, listenErr := sc.open(sc.cfg, d.key(), d.addr(sc.cfg), share.connections(sc.cfg, d))
		err = errors.Join(err, listenErr)
		sc.listeners[d] = l
		if l != nil {
			opened = append(opened, l)
		}
	}
	return opened, err
}

// standBy serves refusals on all listeners, until this replica has the calls.
func (sc *sidecar) standBy() {
	for _, l := range sc.admin.all() {
		sc.run(l, server.StandbyAdmin())
	}
	for d, l := range sc.listeners {
		shape := server.Refusal{}
		if !d.notifications {
			shape = refusal(sc.cfg.Listeners[d.upstream].Refusal)
		}
		sc.run(l, server.Standby(d.upstream, shape))
	}
}

// begin opens the store, and starts the scheduler over it.
func (sc *sidecar) begin(ctx context.Context) error {
	metrics, events, history, trace := server.NewMetrics(version), server.NewEvents(), server.NewHistory(), server.Trace(sc.log)
	sc.started = time.Now()
	sc.configured = sc.started
	metrics.Loaded(sc.started, nil)
	sc.observe = func(e scheduler.Event) {
		metrics.Observe(e)
		events.Observe(e)
		history.Observe(e)
		trace(e)
	}
	sc.cfg.Scheduler.Log, sc.cfg.Scheduler.Observe = sc.log, sc.observe
	sc.cfg.Scheduler.Precise = true
	kept, err := sc.cfg.OpenStore(ctx, store.Options{Log: sc.log, Restored: sc.restored})
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
	sc.metrics, sc.scheduler, sc.events, sc.history = metrics, s, events, history
	return nil
}

// runAdmin serves the admin API, and probes and scrapes.
func (sc *sidecar) runAdmin(share share) {
	sc.planner = newPlanner(sc.log)
	api := server.NewAdmin(server.AdminConfig{
		Scheduler: sc.scheduler, Metrics: sc.metrics, Events: sc.events, History: sc.history, Log: sc.log, Observe: sc.observe, Ready: sc.ready, Reload: sc.reloadByAPI, Settings: sc.settings,
		Info: sc.info, Plan: sc.planner.plan, Guard: sc.admin.guard, Refusals: &sc.refusals, MaxHeld: share.admin / 2,
	})
	sc.pages = web.New(web.Config{API: api, Log: sc.log, UI: func() web.UI { return *sc.admin.ui.Load() }})
	api.Mount("/ui/", sc.pages)
	for _, l := range sc.admin.listeners {
		sc.run(l, api)
	}
	if sc.admin.monitor != nil {
		sc.run(sc.admin.monitor, api.Monitor())
	}
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

// stop ends the scheduler first, while the listeners can still refuse the calls that
// wait, and then the listeners.
func (sc *sidecar) stop(grace time.Duration) error {
	sc.stopping.Store(true)
	sc.planner.stop() // a preview has no calls to finish
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := sc.scheduler.Shutdown(ctx)
	sc.events.Close() // there will be no more
	sc.pages.Close()
	if ctx.Err() != nil {
		sc.log.Warn("the grace period is over; the outcome of attempts that were cut off is unknown", "grace", grace.String())
	}
	sc.mu.Lock() // a reload in progress ends first; the next one is refused
	for _, l := range sc.listeners {
		sc.retire(l, drainTimeout)
	}
	for _, l := range sc.admin.all() {
		sc.retire(l, drainTimeout)
	}
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
