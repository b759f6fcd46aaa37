package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// An admin is the listeners of the admin API, and that of probes and scrapes. They stay
// until the process ends; the callers and the certificates follow a reload.
type admin struct {
	guard     *access.Guard
	tls       atomic.Pointer[tls.Config] // of new connections; nil for none
	listeners []*listener
	monitor   *listener // nil if there is none
}

// admins returns how many listeners a configuration has beside those of data.
func admins(cfg *config.Config) int {
	n := len(cfg.Admin)
	if cfg.Monitor != "" {
		n++
	}
	return n
}

// openAdmin opens the listeners of the admin API. With an error it returns those that are
// open.
func (sc *sidecar) openAdmin(share share) (a *admin, err error) {
	a = &admin{guard: access.NewGuard(sc.cfg.Access)}
	a.follow(sc.cfg)
	for i, addr := range sc.cfg.Admin {
		key := sc.cfg.AdminKey(i)
		socket, bindErr := bind(sc.cfg, key, addr)
		if bindErr != nil {
			err = errors.Join(err, bindErr)
			continue
		}
		if !strings.HasPrefix(addr, config.SocketPrefix) {
			socket = access.Secured(socket, a.tls.Load)
		}
		l := sc.listener(socket, key, share.admin)
		inner := l.server.Context
		l.server.Context = func(ctx context.Context, c net.Conn) context.Context { return access.WithConn(inner(ctx, c), c) }
		a.listeners = append(a.listeners, l)
	}
	if sc.cfg.Monitor != "" {
		var monitorErr error
		a.monitor, monitorErr = sc.open(sc.cfg, "monitor", sc.cfg.Monitor, share.admin)
		err = errors.Join(err, monitorErr)
	}
	return a, err
}

// follow takes the callers and the certificates of a configuration.
func (a *admin) follow(cfg *config.Config) {
	a.guard.Set(cfg.Access)
	if cfg.Access != nil {
		a.tls.Store(cfg.Access.TLS)
	} else {
		a.tls.Store(nil)
	}
}

// all returns the listeners that are open.
func (a *admin) all() []*listener {
	if a.monitor == nil {
		return a.listeners
	}
	return append(a.listeners[:len(a.listeners):len(a.listeners)], a.monitor)
}

// addr returns the addresses of the admin API for the log.
func (a *admin) addr() string {
	var addrs []string
	for _, l := range a.listeners {
		addrs = append(addrs, l.addr)
	}
	return strings.Join(addrs, ",")
}

// url returns the URL of the first address that is no socket, empty if all are.
func (a *admin) url() string {
	scheme := "http://"
	if a.tls.Load() != nil {
		scheme = "https://"
	}
	for _, l := range a.listeners {
		if !strings.HasPrefix(l.addr, config.SocketPrefix) {
			return scheme + l.addr
		}
	}
	return ""
}

// runAdmin serves the admin API, and probes and scrapes.
func (sc *sidecar) runAdmin(share share) {
	api := server.NewAdmin(server.AdminConfig{
		Scheduler: sc.scheduler, Metrics: sc.metrics, Events: sc.events, Log: sc.log, Observe: sc.observe, Ready: sc.ready, Reload: sc.reload,
		Guard: sc.admin.guard, MaxHeld: share.admin / 2,
	})
	for _, l := range sc.admin.listeners {
		sc.run(l, api)
	}
	if sc.admin.monitor != nil {
		sc.run(sc.admin.monitor, server.NewMonitor(sc.metrics, sc.ready))
	}
}
