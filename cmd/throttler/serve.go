package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// lastWords is how long answers may take to reach their clients after the
// scheduler has stopped.
const lastWords = 5 * time.Second

// Connections of a listener, at most; further ones wait until one ends. A data
// listener has as many more as calls may wait and be sent, each with its client.
const (
	adminConnections = 1024
	spareConnections = 1024
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run the sidecar",
		Long: `Run the sidecar: a data listener for each upstream and the admin API.

SIGTERM or SIGINT stops it gracefully: no new calls are taken, those in flight
finish, clients that wait for their slot get a refusal. A second one ends it at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer release()
			return serve(ctx, release, cfg, logger(cfg.Log, cmd.ErrOrStderr()))
		},
	}
	configFlag(cmd)
	return cmd
}

func logger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.Level)) // the configuration has been checked
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// sidecar is what serve builds, and stops in reverse.
type sidecar struct {
	log       *slog.Logger
	scheduler *scheduler.Scheduler
	events    *server.Events
	servers   []*http.Server
	listeners []net.Listener
	running   sync.WaitGroup
	failed    chan error
	stopping  atomic.Bool
}

// serve runs the sidecar until ctx ends. It then releases the signals, so that
// the next one ends the process.
func serve(ctx context.Context, release func(), cfg *config.Config, log *slog.Logger) error {
	metrics, events, trace := server.NewMetrics(), server.NewEvents(), server.Trace(log)
	cfg.Scheduler.Log = log
	cfg.Scheduler.Observe = func(e scheduler.Event) {
		metrics.Observe(e)
		events.Observe(e)
		trace(e)
	}
	s, err := scheduler.New(cfg.Scheduler)
	if err != nil {
		return err
	}
	metrics.Watch(s)
	sc := &sidecar{log: log, scheduler: s, events: events, failed: make(chan error, 1+len(cfg.Listeners))}
	if err := sc.listen(cfg, metrics); err != nil {
		for _, l := range sc.listeners {
			l.Close()
		}
		return errors.Join(err, s.Close())
	}
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	for i, srv := range sc.servers {
		sc.running.Go(func() {
			if err := srv.Serve(sc.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				sc.failed <- fmt.Errorf("listener %s: %w", sc.listeners[i].Addr(), err)
			}
		})
	}
	log.Info("ready", "version", version, "admin", sc.listeners[0].Addr().String(), "upstreams", len(cfg.Listeners))

	select {
	case <-ctx.Done():
	case err = <-sc.failed:
	}
	release() // before anybody can know of the stop
	if err != nil {
		log.Error("stopping", "err", err)
	} else {
		log.Info("stopping: no new calls, those in flight finish", "grace", cfg.Grace.String())
	}
	return errors.Join(err, sc.stop(cfg.Grace))
}

// listen opens all listeners, so that nothing starts unless everything can.
func (sc *sidecar) listen(cfg *config.Config, metrics *server.Metrics) error {
	ready := func() error {
		if sc.stopping.Load() {
			return errors.New("stopping")
		}
		return nil
	}
	admin := server.NewAdmin(sc.scheduler, metrics, sc.log, cfg.Scheduler.Observe, ready)
	admin.Serve(sc.events)
	addr, err := sc.add("admin", cfg.Admin, admin, adminConnections)
	for _, name := range slices.Sorted(maps.Keys(cfg.Listeners)) {
		l, u := cfg.Listeners[name], cfg.Scheduler.Upstreams[name]
		data := &server.Data{
			Scheduler: sc.scheduler, Upstream: name, Admin: addr, Refusal: shape(l.Refusal), Replay: l.Replay,
			Log: sc.log, Observe: cfg.Scheduler.Observe,
		}
		_, dataErr := sc.add("upstreams."+name+".listen", l.Listen, data,
			cmp.Or(u.MaxWaiting, scheduler.DefaultMaxWaiting)+cmp.Or(u.Concurrency, scheduler.DefaultConcurrency)+spareConnections)
		err = errors.Join(err, dataErr)
	}
	return err
}

// shape returns the refusals of an upstream as the server writes them.
func shape(r *config.Refusal) server.Refusal {
	if r == nil {
		return server.Refusal{}
	}
	return server.Refusal{Status: r.Status, Header: r.Header, Body: func(p server.Problem) ([]byte, error) {
		told := config.Problem{Status: p.Status, Title: p.Title, Detail: p.Detail, Outcome: upstream.Outcome(p.Outcome), Call: p.Call, RetryAfter: p.RetryAfter}
		if q := p.Request; q != nil {
			told.Request = &upstream.Request{Method: q.Method, Target: q.Target, Header: q.Header, Body: q.Body}
		}
		return r.Body(told)
	}}
}

// add opens a listener and returns its real address.
func (sc *sidecar) add(key, addr string, h http.Handler, connections int) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: cannot listen on %s: %w; free the address or choose another one", key, addr, err)
	}
	addr = l.Addr().String()
	sc.log.Info("listening", "key", key, "addr", addr)
	sc.listeners = append(sc.listeners, netutil.LimitListener(l, connections))
	sc.servers = append(sc.servers, server.New(h, sc.log))
	return addr, nil
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
	last, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	for _, srv := range sc.servers {
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	}
	sc.running.Wait()
	sc.log.Info("stopped")
	return err
}
