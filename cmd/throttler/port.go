package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Connections of a listener, at most; further ones wait until one ends. A data
// listener has as many more as calls may wait and be sent, each with its client.
const (
	adminConnections = 1024
	spareConnections = 1024
)

func connections(cfg *config.Config, name string) int {
	u := cfg.Scheduler.Upstreams[name]
	return cmp.Or(u.MaxWaiting, scheduler.DefaultMaxWaiting) + cmp.Or(u.Concurrency, scheduler.DefaultConcurrency) + spareConnections
}

// A port is an open listener. Its handler may be replaced while it serves.
type port struct {
	addr     string // the real one
	listener net.Listener
	server   *http.Server
	handler  atomic.Pointer[http.Handler]
}

func (p *port) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*p.handler.Load()).ServeHTTP(w, r) }

func (p *port) handle(h http.Handler) { p.handler.Store(&h) }

func (p *port) close() {
	if p != nil {
		p.listener.Close()
	}
}

// open opens a listener.
func (sc *sidecar) open(key, addr string, connections int) (*port, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; free the address or choose another one", key, addr, err)
	}
	p := &port{addr: l.Addr().String(), listener: netutil.LimitListener(l, connections)}
	p.server = server.New(p, sc.log)
	sc.log.Info("listening", "key", key, "addr", p.addr)
	return p, nil
}

// run serves a port until it is retired.
func (sc *sidecar) run(p *port, h http.Handler) {
	p.handle(h)
	sc.running.Go(func() {
		if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			sc.fail(fmt.Errorf("listener %s: %w", p.addr, err))
		}
	})
}

// retire closes a port; requests that are under way have a time to end.
func (sc *sidecar) retire(p *port, within time.Duration) {
	sc.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if p.server.Shutdown(ctx) != nil {
			p.server.Close()
		}
	})
}

// data returns the handler of an upstream's clients.
func (sc *sidecar) data(cfg *config.Config, name string) *server.Data {
	l := cfg.Listeners[name]
	return &server.Data{
		Scheduler: sc.scheduler, Upstream: name, Admin: sc.admin.addr, Refusal: shape(l.Refusal), Replay: l.Replay,
		Log: sc.log, Observe: sc.observe,
	}
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
