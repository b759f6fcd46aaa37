package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The lines of the log about upstreams and listeners, restored calls, and attempts that a
// stop cuts off.

// tellServed logs the store, and each upstream with its limits and its listener, without
// secrets: of a URL the scheme and the host.
func tellServed(log *slog.Logger, cfg *config.Config, upstreams map[string]scheduler.Upstream, listeners map[endpoint]*listener) {
	switch path, err := filepath.Abs(cfg.Store); {
	case cfg.Store == "":
		log.Info("store", "file", "memory")
	case cfg.Shared():
		log.Info("store", "database", upstream.ShownURL(cfg.Store))
	case err == nil:
		log.Info("store", "file", path)
	default: // the directory in which the process runs is gone
		log.Info("store", "file", cfg.Store)
	}
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		u := upstreams[name]
		listen := "none"
		if l := listeners[endpoint{upstream: name}]; l != nil {
			listen = l.addr
		}
		var limits []string
		for _, l := range u.Limits {
			limits = append(limits, limitText(l))
		}
		log.Info("upstream", "upstream", name, "url", upstream.ShownURL(u.URL), "listen", listen, "concurrency", u.Concurrency, "limits", strings.Join(limits, ", "))
	}
}

// limitText writes a limit in short.
func limitText(l scheduler.Limit) string {
	s := fmt.Sprintf("%s: %d at once", l.Name, l.Concurrency)
	if l.Concurrency == 0 {
		s = fmt.Sprintf("%s: %d per %v", l.Name, l.Calls, l.Kind())
	}
	if l.PerKey != "" {
		s += " for each " + l.PerKey
	}
	if l.When != "" {
		s += " when " + l.When
	}
	return s
}

// pending counts the calls in flight and those that wait, of all upstreams.
func pending(s *scheduler.Scheduler) (sending, waiting int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all, err := s.Upstreams(ctx)
	if err != nil { // it has ended
		return 0, 0
	}
	for _, u := range all {
		sending += u.Sending
		waiting += u.Waiting
	}
	return sending, waiting
}

// endAtSignal ends the process at the next signal to stop, and logs the attempts that it
// cuts off. Stop ends the watch for it.
func endAtSignal(log *slog.Logger, s *scheduler.Scheduler) (stop func()) {
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case sig := <-signals:
			sending, waiting := pending(s)
			log.Error("a second signal ends the process at once: the outcome of calls in flight is unknown", "signal", sig.String(), "in_flight", sending, "waiting", waiting)
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(sig) != nil {
				os.Exit(1) // a system without signals
			}
		case <-over:
		}
	})
	return func() {
		signal.Stop(signals)
		close(over)
		watch.Wait()
	}
}
