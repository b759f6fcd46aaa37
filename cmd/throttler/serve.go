package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// lastWords is how long answers may take to reach their clients after the
// scheduler has stopped.
const lastWords = 5 * time.Second

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
			return serve(cmd.Context(), cfg, logger(cfg.Log, cmd.ErrOrStderr()))
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

func serve(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	metrics, events := server.NewMetrics(), server.NewEvents()
	cfg.Scheduler.Log = log
	cfg.Scheduler.Observe = func(e scheduler.Event) {
		metrics.Observe(e)
		events.Observe(e)
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
	log.Info("ready", "version", version, "admin", cfg.Admin, "upstreams", len(cfg.Listeners))

	select {
	case <-ctx.Done():
		log.Info("stopping: no new calls, those in flight finish", "grace", cfg.Grace.String())
	case err = <-sc.failed:
		log.Error("stopping", "err", err)
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
	admin := server.NewAdmin(sc.scheduler, metrics, ready)
	admin.Serve(sc.events)
	err := sc.add("admin", cfg.Admin, admin)
	for _, name := range slices.Sorted(maps.Keys(cfg.Listeners)) {
		l := cfg.Listeners[name]
		data, dataErr := server.NewData(sc.scheduler, name, cfg.Admin, shape(l.Refusal))
		err = errors.Join(err, dataErr, sc.add("upstreams."+name+".listen", l.Listen, data))
	}
	return err
}

// shape returns the refusals of an upstream as the server writes them.
func shape(r *config.Refusal) server.Refusal {
	if r == nil {
		return server.Refusal{}
	}
	return server.Refusal{Status: r.Status, Header: r.Header, Body: func(p server.Problem) ([]byte, error) {
		return r.Body(config.Problem{Status: p.Status, Title: p.Title, Detail: p.Detail, Outcome: upstream.Outcome(p.Outcome), Call: p.Call, RetryAfter: p.RetryAfter})
	}}
}

func (sc *sidecar) add(key, addr string, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: cannot listen on %s: %w; free the address or choose another one", key, addr, err)
	}
	sc.log.Info("listening", "key", key, "addr", l.Addr().String())
	sc.listeners = append(sc.listeners, l)
	sc.servers = append(sc.servers, &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(sc.log.Handler(), slog.LevelWarn),
	})
	return nil
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
