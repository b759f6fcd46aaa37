package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/http1"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of a listener's connections. A data listener has the spare ones beside one for
// each call that may wait or be sent. All of them together are at most half of the files
// that the process may open; the others are for connections to upstreams and the store.
const (
	adminConnections = 1024
	spareConnections = 1024
)

// A share is how many connections listeners may have.
type share struct {
	files int // that the process may open
	admin int // of each admin listener; of all, an eighth at most, which data listeners cannot take
	data  int // of each data listener at most
}

// shareOf returns the share of so many data and admin listeners in the files.
func shareOf(files, listeners, admins int) share {
	half := files / 2
	admin := max(1, min(adminConnections, half/8))
	return share{files, max(1, admin/max(1, admins)), max(1, (half-admin)/max(1, listeners))}
}

// connections returns the bound of a listener.
func (s share) connections(cfg *config.Config, d endpoint) int {
	if d.notifications {
		return min(s.data, cfg.Notifications[d.upstream].Concurrency+spareConnections)
	}
	u := cfg.Scheduler.Upstreams[d.upstream]
	return min(s.data, cmp.Or(u.MaxWaiting, scheduler.Defaults().MaxWaiting)+cmp.Or(u.Concurrency, scheduler.Defaults().Concurrency)+spareConnections)
}

// A listener is an open socket with its server. Its handler may be replaced while it
// serves.
type listener struct {
	addr    string // with the real port, also for port 0
	socket  *server.Listener
	server  *http1.Server
	handler atomic.Pointer[http.Handler]
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*l.handler.Load()).ServeHTTP(w, r)
}

func (l *listener) handle(h http.Handler) { l.handler.Store(&h) }

func (l *listener) close() {
	if l != nil {
		l.socket.Close()
	}
}

// bind opens the socket of a configuration key.
func bind(cfg *config.Config, key, addr string) (socket net.Listener, err error) {
	if path, ok := strings.CutPrefix(addr, config.SocketPrefix); ok {
		socket, err = access.ListenSocket(path)
	} else {
		socket, err = net.Listen("tcp", addr)
	}
	if err == nil {
		return socket, nil
	}
	var at *net.OpError
	if errors.As(err, &at) {
		err = at.Err // the address is in the message
	}
	return nil, cfg.Fault(key, fmt.Errorf("cannot listen on %s: %w; free the address or choose another one", addr, err))
}

// open opens the listener of a configuration key.
func (sc *sidecar) open(cfg *config.Config, key, addr string, connections int) (*listener, error) {
	socket, err := bind(cfg, key, addr)
	if err != nil {
		return nil, err
	}
	return sc.listener(socket, key, connections), nil
}

// listener returns the listener of an open socket.
func (sc *sidecar) listener(socket net.Listener, key string, connections int) *listener {
	l := &listener{addr: socket.Addr().String(), socket: server.Bound(socket, connections)}
	if socket.Addr().Network() == "unix" {
		l.addr = config.SocketPrefix + l.addr
	}
	l.server = server.New(l, sc.log)
	sc.log.Info("listening", "key", key, "addr", l.addr, "connections", connections)
	return l
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

// run serves a listener until it is retired. One that is served already gets the handler.
func (sc *sidecar) run(l *listener, h http.Handler) {
	if l.handler.Swap(&h) != nil {
		return
	}
	sc.running.Go(func() {
		if err := l.server.Serve(l.socket); !errors.Is(err, http.ErrServerClosed) {
			sc.fail(fmt.Errorf("listener %s: %w", l.addr, err))
		}
	})
}

// retire closes a listener, now, and gives the requests in flight a time to end.
func (sc *sidecar) retire(l *listener, grace time.Duration) {
	l.server.Stop()
	sc.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if l.server.Shutdown(ctx) != nil {
			l.server.Close()
		}
	})
}

// handler returns the handler of an endpoint.
func (sc *sidecar) handler(cfg *config.Config, d endpoint, owns bool) http.Handler {
	if !owns {
		return sc.standbyData(cfg, d)
	}
	if !d.notifications {
		return sc.data(cfg, d.upstream)
	}
	n := cfg.Notifications[d.upstream]
	return server.NewNotifications(&server.Notifications{
		Scheduler: sc.scheduler, Upstream: d.upstream, Path: n.Path, Verifier: n.Verifier, Forward: n.Forward, Numbers: n.Numbers,
		Metrics: sc.metrics, Log: sc.log,
	}, n.Concurrency)
}

// data returns the handler of an upstream's clients.
func (sc *sidecar) data(cfg *config.Config, name string) *server.Data {
	l := cfg.Listeners[name]
	data := &server.Data{
		Scheduler: sc.scheduler, Upstream: name, Admin: sc.admin.url(), Refusal: refusal(l.Refusal), Hosts: l.Hosts, Replay: l.Replay,
		Refusals: &sc.refusals, Log: sc.log, Observe: sc.observe,
	}
	if sc.replica != nil {
		data.Standby = sc.standbyData(cfg, endpoint{upstream: name})
	}
	return data
}

// refusal returns the configured shape of an upstream's refusals for the server.
func refusal(r *config.Refusal) server.Refusal {
	if r == nil {
		return server.Refusal{}
	}
	return server.Refusal{Status: r.Status, Header: r.Header, Body: func(p api.Problem, about *upstream.Request) ([]byte, error) {
		return r.Body(config.Problem{
			Status: p.Status, Title: p.Title, Detail: p.Detail, Outcome: upstream.Outcome(p.Outcome), Call: p.Call, RetryAfter: p.RetryAfter,
			Request: about,
		})
	}}
}

// standby returns the handler of a listener while this replica does not have the calls.
func (sc *sidecar) standby(key string) *server.Standby {
	return &server.Standby{
		Owner: sc.replica, Link: sc.replica.link, Listener: key, Room: sc.replica.room, Passed: sc.metrics.Passed,
		Refusals: &sc.refusals, Stopping: sc.stopping,
		Local: func() http.Handler { return sc.local(key) },
	}
}

// standbyData returns that of a data listener, or of one of notifications.
func (sc *sidecar) standbyData(cfg *config.Config, d endpoint) *server.Standby {
	s := sc.standby(d.key())
	u, defaults := cfg.Scheduler.Upstreams[d.upstream], scheduler.Defaults()
	s.Upstream, s.MaxWait = d.upstream, cmp.Or(u.MaxWait, defaults.MaxWait)
	s.MaxBody = min(cmp.Or(u.MaxBody, defaults.MaxBody), cmp.Or(u.MaxWaitingBytes, defaults.MaxWaitingBytes))
	if l, ok := cfg.Listeners[d.upstream]; ok && !d.notifications {
		s.Replay, s.Refusal = l.Replay, refusal(l.Refusal)
	}
	return s
}

// standbyAdmin returns the handler of an admin listener.
func (sc *sidecar) standbyAdmin(key string) *server.Standby {
	s := sc.standby(key)
	s.MaxWait, s.MaxBody, s.Guard, s.Room = server.AdminWait, server.AdminBody, sc.admin.guard, sc.replica.adminRoom
	return s
}

// find returns the handler of a listener for a request that another replica has passed on. All admin listeners are
// alike.
func (sc *sidecar) find(key string) http.Handler {
	if strings.HasPrefix(key, "admin") && len(sc.admin.listeners) > 0 {
		return sc.admin.listeners[0]
	}
	if l := (*sc.found.Load())[key]; l != nil {
		return l
	}
	return nil
}

// index lets listeners be found by their keys, without a lock that a reload may hold for long.
func (sc *sidecar) index(listeners map[endpoint]*listener) {
	found := make(map[string]*listener, len(listeners))
	for d, l := range listeners {
		found[d.key()] = l
	}
	sc.found.Store(&found)
}

// local returns the handler of a listener if this replica has the calls, nil else.
func (sc *sidecar) local(key string) http.Handler {
	if !sc.owns.Load() {
		return nil
	}
	return sc.find(key)
}
