package main

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/internal/web"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/postgres"
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

	metrics  *server.Metrics
	admin    *admin
	share    share
	replica  *replica        // nil if the store is no database
	running  sync.WaitGroup  // servers, the reload loop, and listeners that end
	failed   chan error      // of a listener
	stopping context.Context // ends when the sidecar stops
	quit     context.CancelFunc
	owns     atomic.Bool // the scheduler runs; with a database, while this replica has the calls
	refusals server.Refusals
	started  time.Time

	mu         sync.Mutex // held during a reload, and while the owner changes; guards the rest
	cfg        *config.Config
	configured time.Time // when cfg came into force
	listeners  map[endpoint]*listener
	found      atomic.Pointer[map[string]*listener] // the listeners by their keys

	*tenure // nil before the first one; owns tells whether it goes on
}

// A tenure is the time in which the sidecar has the calls.
type tenure struct {
	scheduler *scheduler.Scheduler
	events    *server.Events
	history   *server.History
	observe   func(scheduler.Event)
	pages     *web.Pages
	planner   *planner
	sampling  context.CancelFunc
	ending    sync.Once
}

// serve runs the sidecar until ctx ends. It then releases the signals that end ctx: the
// next one ends the process.
func (sc *sidecar) serve(ctx context.Context, release func()) error {
	if err := sc.enter(ctx); err != nil {
		return err
	}
	for _, w := range sc.cfg.Warnings {
		sc.log.Warn(w.Error())
	}
	if w := outdated(runtime.Version()); w != "" {
		sc.log.Warn(w)
	}
	reloading, stopReloads := context.WithCancel(ctx)
	defer stopReloads()
	sc.reloadLoop(reloading)
	for {
		stop := context.AfterFunc(ctx, release) // a recovery may take long: a second signal ends it
		err := sc.begin(ctx)
		stop()
		switch {
		case errors.Is(err, postgres.ErrTermOver) && ctx.Err() == nil: // before it had recovered
			sc.log.Error("another replica has the calls now, or will have them soon", "err", err)
			continue
		case err != nil:
			asked := ctx.Err() != nil // to stop, while it waited for the calls
			release()
			stopReloads()
			sc.quit()
			if sc.close(); asked {
				sc.log.Info("stopped")
				return nil
			}
			return err
		}
		tellServed(sc.log, sc.cfg, sc.scheduler.Config(), sc.listeners)
		sc.log.Info("ready", "version", version, "admin", sc.admin.addr(), "upstreams", len(sc.cfg.Listeners), "open_files", openFiles())
		select {
		case <-ctx.Done():
		case err = <-sc.failed:
		case <-sc.moved():
			err = sc.handOver()
		case <-sc.scheduler.Failed(): // the end of the term returns its error
			if sc.replica != nil {
				err = sc.handOver()
			}
		}
		if errors.Is(err, postgres.ErrTermOver) {
			sc.log.Error("another replica has the calls now, or will have them soon", "err", err)
		} else if err != nil || sc.owns.Load() { // else it has handed over
			return sc.end(err, release, stopReloads)
		}
	}
}

// end stops the sidecar, because of an error if there is one.
func (sc *sidecar) end(err error, release, stopReloads func()) error {
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
	stopped := sc.stop(grace)
	if err != nil && errors.Is(err, stopped) { // the store's, which the end of the term has returned before
		return err
	}
	return errors.Join(err, stopped)
}

// enter opens all listeners before it serves any: the sidecar runs as a whole or not at all. With a database it joins the
// fleet, and passes requests on until it has the calls.
func (sc *sidecar) enter(ctx context.Context) error {
	sc.started, sc.configured = time.Now(), time.Now()
	sc.stopping, sc.quit = context.WithCancel(context.WithoutCancel(ctx))
	sc.metrics = server.NewMetrics(version)
	sc.metrics.Loaded(sc.started, nil)
	sc.share = shareOf(openFiles(), len(endpoints(sc.cfg)), admins(sc.cfg))
	err := sc.openAll(sc.share)
	if err == nil && sc.cfg.Shared() {
		if sc.restored {
			err = sc.cfg.Fault("store", errors.New("is a database, and --restored is for a file"))
		} else if sc.replica, err = join(ctx, sc.cfg, sc.find, sc.log); err == nil {
			sc.metrics.WatchFleet(sc.replica)
			sc.standBy()
		}
	}
	if err != nil {
		sc.close()
	}
	return err
}

// close closes a sidecar that does not have the calls.
func (sc *sidecar) close() {
	sc.mu.Lock()
	all := sc.admin.all()
	for _, l := range sc.listeners {
		all = append(all, l)
	}
	sc.mu.Unlock()
	for _, l := range all {
		if l != nil && l.handler.Load() != nil {
			sc.retire(l, sc.cfg.Grace) // of requests that were passed on
		} else {
			l.close()
		}
	}
	sc.running.Wait()
	if sc.replica != nil {
		sc.replica.leave()
	}
}

// openAll opens all listeners.
func (sc *sidecar) openAll(share share) (err error) {
	sc.listeners, sc.failed = make(map[endpoint]*listener), make(chan error, 1)
	sc.admin, err = sc.openAdmin(share)
	for _, d := range endpoints(sc.cfg) {
		l, listenErr := sc.open(sc.cfg, d.key(), d.addr(sc.cfg), share.connections(sc.cfg, d))
		err = errors.Join(err, listenErr)
		if l != nil {
			sc.listeners[d] = l
		}
	}
	sc.index(sc.listeners)
	return err
}

// standBy lets the listeners pass requests on.
func (sc *sidecar) standBy() {
	sc.owns.Store(false)
	for i, l := range sc.admin.listeners {
		sc.run(l, sc.api(nil, sc.standbyAdmin(sc.cfg.AdminKey(i))))
	}
	if sc.admin.monitor != nil {
		sc.run(sc.admin.monitor, sc.api(nil, sc.standbyAdmin("monitor")).Monitor())
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for d, l := range sc.listeners {
		sc.run(l, sc.handler(sc.cfg, d, false))
	}
}

// begin opens the store, and starts the scheduler over it. With a database it waits until this replica has the calls,
// or ctx ends.
func (sc *sidecar) begin(ctx context.Context) error {
	kept, err := sc.store(ctx)
	if err != nil {
		return err
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	t := &tenure{events: server.NewEvents(), history: server.NewHistory(), planner: newPlanner(sc.log)}
	trace := server.Trace(sc.log)
	t.observe = func(e scheduler.Event) {
		sc.metrics.Observe(e)
		t.events.Observe(e)
		t.history.Observe(e)
		trace(e)
	}
	cfg := sc.cfg.Scheduler
	cfg.Log, cfg.Observe, cfg.Precise, cfg.Store = sc.log, t.observe, true, kept
	if t.scheduler, err = recovered(ctx, cfg); err != nil {
		if sc.replica != nil {
			sc.replica.term.Store(nil)
		}
		return err
	}
	sc.metrics.Watch(t.scheduler)
	if sc.replica != nil {
		sc.tellTerm(t.events, sc.replica.term.Load())
	}
	var sampling context.Context
	sampling, t.sampling = context.WithCancel(context.WithoutCancel(ctx))
	sc.running.Go(func() { t.history.Run(sampling, t.scheduler.Totals) })
	sc.tenure = t
	sc.runAdmin()
	for d, l := range sc.listeners {
		sc.run(l, sc.handler(sc.cfg, d, true))
	}
	sc.owns.Store(true) // requests that wait go to these handlers
	return nil
}

// tellTerm counts a term that begins, and adds its events.
func (sc *sidecar) tellTerm(events *server.Events, db *postgres.DB) {
	sc.metrics.Took(db.Before())
	events.Tell(api.Event{Event: api.EventTookOver, Reason: db.Before()})
	if unknown, lost := db.Lost(); lost {
		sc.metrics.Lost(unknown)
		events.Tell(api.Event{Event: api.EventCommitsLost})
	}
}

// store opens the store of the calls.
func (sc *sidecar) store(ctx context.Context) (scheduler.Store, error) {
	if sc.replica == nil {
		return sc.cfg.OpenStore(ctx, store.Options{Log: sc.log, Restored: sc.restored})
	}
	select {
	case <-sc.replica.moved: // it was about an earlier term
	default:
	}
	db, err := sc.replica.member.Claim(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = sc.cfg.Fault("store", errors.New(strings.TrimPrefix(err.Error(), "postgres: ")))
		}
		return nil, err
	}
	sc.replica.term.Store(db)
	return db, nil
}

// moved gets a value when the calls are to be handed over.
func (sc *sidecar) moved() <-chan struct{} {
	if sc.replica == nil {
		return nil
	}
	return sc.replica.moved
}

// handOver ends the term: requests are passed on to the next owner, also those that wait here.
func (sc *sidecar) handOver() error {
	sc.standBy()
	ctx, cancel := context.WithTimeout(context.Background(), sc.grace())
	defer cancel()
	return sc.endTerm(ctx)
}

// endTerm ends the scheduler. Its error is that of the store.
func (sc *sidecar) endTerm(ctx context.Context) error {
	sc.ending.Do(func() {
		sc.planner.stop() // a preview has no calls to finish
		sc.sampling()
		sc.scheduler.Shutdown(ctx)
		sc.events.Close() // there will be no more
		sc.pages.Close()
		if ctx.Err() != nil {
			sc.log.Warn("the grace period is over; the outcome of attempts that were cut off is unknown")
		}
	})
	err := sc.scheduler.Shutdown(ctx)
	if sc.replica != nil {
		sc.replica.term.Store(nil)
	}
	return err
}

// api returns the handler of an admin listener, in a term or, with nil, in the time between.
func (sc *sidecar) api(t *tenure, standby *server.Standby) *server.Admin {
	cfg := server.AdminConfig{
		Metrics: sc.metrics, Log: sc.log, Ready: sc.ready, Reload: sc.reloadByAPI, Settings: sc.settings, Info: sc.info,
		Guard: sc.admin.guard, Refusals: &sc.refusals, MaxHeld: sc.share.admin / 2, Standby: standby,
	}
	if sc.replica != nil {
		cfg.Fleet = sc.replica
	}
	if t != nil {
		cfg.Scheduler, cfg.Events, cfg.History, cfg.Observe, cfg.Plan = t.scheduler, t.events, t.history, t.observe, t.planner.plan
	}
	return server.NewAdmin(cfg)
}

// runAdmin serves the admin API, and probes and scrapes.
func (sc *sidecar) runAdmin() {
	var standby *server.Standby
	if sc.replica != nil {
		standby = sc.standbyAdmin("admin")
	}
	api := sc.api(sc.tenure, standby)
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
	if sc.stopping.Err() != nil {
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
// wait, or pass them on to another replica, and then the listeners.
func (sc *sidecar) stop(grace time.Duration) error {
	sc.quit()
	drain := drainTimeout
	if sc.replica != nil {
		sc.standBy()
		drain = max(drain, grace) // for the answers of the next owner
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := sc.endTerm(ctx)
	sc.mu.Lock() // a reload in progress ends first; the next one is refused
	for _, l := range sc.listeners {
		sc.retire(l, drain)
	}
	for _, l := range sc.admin.all() {
		sc.retire(l, drain)
	}
	sc.mu.Unlock()
	sc.running.Wait()
	if sc.replica != nil {
		sc.replica.leave()
	}
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
