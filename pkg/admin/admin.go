// Package admin serves the dashboard and the admin API of a scheduler that is embedded in another
// program: the same pages and operations as the sidecar has, as one http.Handler.
//
//	observer := admin.Observe(&cfg) // before the scheduler begins
//	s, err := scheduler.New(cfg)
//	h, err := admin.New(s, admin.Options{Observer: observer, Prefix: "/ops/throttler", Caller: caller})
//	mux.Handle("/ops/throttler/", h)
//
// The program keeps its server, its TLS and its logins. For each request it tells the name and
// the role of the caller, viewer, submitter, operator or admin:
//
//	browser ── /ops/throttler/ui/… ──┐                ┌─▶ pages ─┐
//	                                 ├─▶ [Handler] ───┤          ▼
//	client ─── /ops/throttler/v1/… ──┘      │         └───────▶ API ──▶ scheduler
//	                                        ▼                    ▲          │
//	                                 Options.Caller: name, role ─┘      [Observer]: events
//
// So the API refuses operations that the role lacks, and keeps the audit with the name. Requests that web
// pages of another origin have caused are refused, also with the program's cookies.
//
// A handler takes requests with the prefix: http.StripPrefix is not to be used. It ends with
// [Handler.Close], before the server and the scheduler: streams would hold them up.
//
// # Not here
//
// The program has no configuration file that the API could show or load anew: the list of
// settings is empty, and a reload is refused.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/internal/web"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// maxHeld is how many requests wait at most: streams of events and long polls.
const maxHeld = 256

// An Observer keeps the latest events of a scheduler for a [Handler].
type Observer struct {
	cfg     *scheduler.Config
	events  *server.Events
	history *server.History
	metrics atomic.Pointer[server.Metrics] // nil until a handler wants them
}

// Observe adds an observer to the configuration of a scheduler that has not begun. An Observe that is
// there already is called as before.
func Observe(cfg *scheduler.Config) *Observer {
	o, before := &Observer{cfg: cfg, events: server.NewEvents(), history: server.NewHistory()}, cfg.Observe
	cfg.Observe = func(e scheduler.Event) {
		if before != nil {
			before(e)
		}
		o.observe(e)
	}
	return o
}

func (o *Observer) observe(e scheduler.Event) {
	if m := o.metrics.Load(); m != nil {
		m.Observe(e)
	}
	o.events.Observe(e)
	o.history.Observe(e)
}

// Options are those of a [Handler]. Observer is required, and Caller or Trusted.
type Options struct {
	// Observer is that of the scheduler's configuration. It is for one handler.
	Observer *Observer
	// Prefix is the path of the handler, such as /ops/throttler; empty for that of the host.
	Prefix string
	// Caller returns the caller of a request by the header, the connection or the context: the path
	// and the body may be others than those that the client has sent. The role is viewer,
	// submitter, operator or admin. Not ok: the caller is not known.
	Caller func(*http.Request) (name, role string, ok bool)
	// Trusted stands for Caller in a program that lets only its administrators reach the path: all
	// of them may do everything, under the name program. Requests must name the host by the
	// address at which they come, by localhost, or by one of Hosts: another name may be one that a web
	// page has made to lead here.
	Trusted bool
	Hosts   []string
	// Name is that of the environment, such as PROD pay-7f9c. Each page shows it.
	Name string
	// ReadOnly pages change nothing. The API stays as it is.
	ReadOnly bool
	// Metrics serves Prometheus metrics of the scheduler at PREFIX/metrics, from a registry of their own.
	Metrics bool
	// Log gets a line for each change by the API, and faults of the pages; nil means slog.Default().
	Log *slog.Logger
}

// A Handler serves the pages at PREFIX/ui/ and the API at PREFIX/v1/.
type Handler struct {
	prefix string
	api    *server.Admin
	pages  *web.Pages
	events *server.Events

	stopSampling context.CancelFunc
	sampling     sync.WaitGroup
}

// New returns the handler of a scheduler.
func New(s *scheduler.Scheduler, o Options) (*Handler, error) {
	if err := o.check(s); err != nil {
		return nil, err
	}
	started := api.At(time.Now())
	kept := "memory"
	if _, durable := o.Observer.cfg.Store.(scheduler.Durable); durable {
		kept = "file"
	}
	var metrics *server.Metrics
	if o.Metrics {
		metrics = server.NewMetrics(version())
		metrics.Watch(s)
		o.Observer.metrics.Store(metrics)
	}
	admin := server.NewAdmin(server.AdminConfig{
		Scheduler: s, Metrics: metrics, Events: o.Observer.events, History: o.Observer.history, Log: cmp.Or(o.Log, slog.Default()), Observe: o.Observer.observe,
		Ready: func() error { return nil }, Reload: noReload, Settings: func() []api.Setting { return []api.Setting{} },
		Guard: o.guard(), Refusals: new(server.Refusals), Prefix: o.Prefix, MaxHeld: maxHeld,
		Info: func() api.Info {
			return api.Info{Version: version(), Go: runtime.Version(), StartedAt: started, ConfiguredAt: started, Store: kept}
		},
	})
	ui := web.UI{Name: o.Name, ReadOnly: o.ReadOnly}
	pages := web.New(web.Config{API: admin, Prefix: o.Prefix, UI: func() web.UI { return ui }, NoLogin: true, Log: o.Log})
	admin.Mount("/ui/", pages)
	ctx, stop := context.WithCancel(context.Background())
	h := &Handler{prefix: o.Prefix, api: admin, pages: pages, events: o.Observer.events, stopSampling: stop}
	h.sampling.Go(func() { o.Observer.history.Run(ctx, s.Totals) })
	return h, nil
}

func (o *Options) check(s *scheduler.Scheduler) error {
	switch {
	case s == nil:
		return errors.New("admin: there is no scheduler")
	case o.Observer == nil:
		return errors.New("admin: Options.Observer is missing; take that of admin.Observe, before the scheduler begins")
	case o.Caller == nil && !o.Trusted:
		return errors.New("admin: Options.Caller is missing; tell the callers and their roles, or set Trusted if only administrators reach the path")
	case o.Caller != nil && (o.Trusted || o.Hosts != nil):
		return errors.New("admin: Options has Caller, and Trusted or Hosts; give one of them")
	case o.Prefix != "" && (o.Prefix != path.Clean(o.Prefix) || o.Prefix[0] != '/' || o.Prefix == "/" || o.Prefix != (&url.URL{Path: o.Prefix}).EscapedPath()):
		return fmt.Errorf("admin: Options.Prefix is %q; write a path such as /ops/throttler, without a slash at its end", o.Prefix)
	}
	return nil
}

// guard returns the guard that asks the program for callers.
func (o *Options) guard() *access.Guard {
	if o.Trusted {
		g := access.NewOwnGuard(func(*http.Request) (access.Caller, error) {
			return access.Caller{Name: "program", Role: access.Admin, Via: "program"}, nil
		})
		g.Set(&config.Access{Hosts: o.Hosts})
		return g
	}
	return access.NewOwnGuard(func(r *http.Request) (access.Caller, error) {
		name, role, ok := o.Caller(r)
		if !ok {
			return access.Caller{}, errors.New("the program that serves this page does not know the caller; log in there")
		}
		return access.Caller{Name: name, Role: access.Role(role), Via: "program"}, nil
	})
}

func noReload(func(*api.Reload, func() error) error) (*api.Reload, error) {
	return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: "the scheduler is embedded in a program, which has its configuration and no file here; change it in the program"}
}

// version returns that of Throttler in the program.
func version() string {
	const module = "github.com/seed-30fe103d/throttler"
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "devel"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return cmp.Or(info.Main.Version, "devel")
}

// ServeHTTP serves pages and API. The server needs no time-out for requests to end: streams go on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, ok := strings.CutPrefix(r.URL.Path, h.prefix)
	if !ok || at != "" && at[0] != '/' {
		http.NotFound(w, r)
		return
	}
	clean := path.Clean("/" + at)
	if at == "" || clean == "/ui" || clean != "/" && strings.HasSuffix(at, "/") {
		clean = strings.TrimSuffix(clean, "/") + "/"
	}
	if clean != at { // relative links of a page count from its own path
		to := url.URL{Path: h.prefix + clean, RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
		return
	}
	inner, u := *r, *r.URL
	u.Path, u.RawPath = at, strings.TrimPrefix(u.RawPath, h.prefix)
	inner.URL, inner.RequestURI = &u, u.RequestURI()
	h.api.ServeHTTP(w, &inner)
}

// Close ends the streams of pages and events, and waits for those of pages.
func (h *Handler) Close() {
	h.stopSampling()
	h.sampling.Wait()
	h.events.Close()
	h.pages.Close()
}
