package main

import (
	"crypto/tls"
	"strings"
	"sync/atomic"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/web"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// An admin is the listeners of the admin API, and that of probes and scrapes. They stay
// until the process ends; the callers, the certificates and the look of the pages follow a reload.
type admin struct {
	guard     *access.Guard
	tls       atomic.Pointer[tls.Config] // of new connections; nil for none
	ui        atomic.Pointer[web.UI]
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

// follow takes the callers, the certificates and the look of the pages of a configuration.
func (a *admin) follow(cfg *config.Config) {
	a.guard.Set(cfg.Access)
	a.ui.Store(&web.UI{Name: cfg.UI.Name, ReadOnly: !cfg.UI.Actions})
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
