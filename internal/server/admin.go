package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the admin API.
const (
	minAdminBody = 16 << 20 // bytes that a body may have in any case; see maxBody
	bodiesAtOnce = 4        // of the largest size, being read or handed over
	maxLongPoll  = 60 * time.Second
	defaultPage  = 100
	maxPage      = 1000
)

// Admin serves the admin API, the metrics and the health checks.
type Admin struct {
	s       *scheduler.Scheduler
	observe func(scheduler.Event)
	log     *slog.Logger
	ready   func() error
	mux     *http.ServeMux

	maxBody int64 // bytes
	room    budget
}

// NewAdmin returns the handler of the admin listener. The log gets a line for
// each thing that somebody has changed; observe is as in [Data]. Ready tells why
// the process should get no traffic; nil if it should.
func NewAdmin(s *scheduler.Scheduler, metrics *Metrics, log *slog.Logger, observe func(scheduler.Event), ready func() error) *Admin {
	a := &Admin{s: s, observe: observe, log: log, ready: ready, mux: http.NewServeMux(), maxBody: maxBody(s)}
	a.room.left.Store(bodiesAtOnce * a.maxBody)
	for pattern, h := range map[string]func(*http.Request) (*reply, error){
		"POST /v1/calls":                   a.submit,
		"GET /v1/calls":                    a.list,
		"GET /v1/calls/{id}":               a.get,
		"DELETE /v1/calls/{id}":            a.cancel,
		"POST /v1/calls/{id}/retry":        a.retry,
		"POST /v1/calls/{id}/resolve":      a.resolve,
		"GET /v1/upstreams":                a.upstreams,
		"POST /v1/upstreams/{name}/pause":  a.pause,
		"POST /v1/upstreams/{name}/resume": a.resume,
		"GET /v1/limits":                   a.limits,
	} {
		a.mux.HandleFunc(pattern, a.answer(h))
	}
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	a.mux.HandleFunc("GET /readyz", a.readyz)
	return a
}

// Reload adds POST /v1/reload to the API: reload takes the configuration anew and
// returns what has changed.
func (a *Admin) Reload(reload func() ([]string, error)) {
	a.mux.HandleFunc("POST /v1/reload", a.answer(func(*http.Request) (*reply, error) {
		changes, err := reload()
		var known *scheduler.Error
		if err != nil && !errors.As(err, &known) {
			err = &scheduler.Error{Reason: badConfig, Detail: err.Error()}
		}
		if err != nil {
			return nil, err
		}
		if changes == nil {
			changes = []string{}
		}
		return &reply{body: map[string][]string{"changes": changes}}, nil
	}))
}

// maxBody returns what a submission may have: the largest body that an upstream
// takes, as JSON writes it (base64 adds a third, escaped text more), and the rest.
func maxBody(s *scheduler.Scheduler) int64 {
	most := int64(minAdminBody)
	for _, u := range s.Config() {
		most = max(most, 2*u.MaxBody+1<<20)
	}
	return most
}

// ServeHTTP refuses what a web page of another origin sends, also one whose name
// was made to point to the loopback address.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		Refusal{}.write(w, &scheduler.Error{Reason: forbidden, Detail: err.Error()}, nil)
		return
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && loopback(local.String()) && !loopback(r.Host) {
		Refusal{}.write(w, &scheduler.Error{Reason: forbidden, Detail: "the admin API on the loopback address answers only to localhost"}, nil)
		return
	}
	h, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.unknown(w, r, h)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// unknown refuses what the API does not have; h is the mux's own answer, whose
// header knows of other methods.
func (a *Admin) unknown(w http.ResponseWriter, r *http.Request, h http.Handler) {
	muxed := headerOnly{}
	h.ServeHTTP(muxed, r)
	e := &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("the admin API has no %s %s", r.Method, r.URL.Path)}
	if allow := http.Header(muxed).Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		e.Reason = notAllowed
		e.Detail += "; the path takes " + allow
	}
	Refusal{}.write(w, e, nil)
}

// headerOnly keeps the header of an answer.
type headerOnly http.Header

func (h headerOnly) Header() http.Header       { return http.Header(h) }
func (headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (headerOnly) WriteHeader(int)             {}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// A reply is what a handler has to say.
type reply struct {
	status  int // 0: 200
	body    any
	applied string // preference
	call    *scheduler.Call
}

// answer gives a handler the whole body, and writes its reply, or its error as a
// problem.
func (a *Admin) answer(h func(*http.Request) (*reply, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, release, err := readBody(w, r, a.maxBody, a.room.take)
		if err != nil {
			Refusal{}.write(w, asError(err), nil)
			return
		}
		defer release()
		r.Body = io.NopCloser(bytes.NewReader(body))
		re, err := h(r)
		if err != nil {
			Refusal{}.write(w, asError(err), nil)
			return
		}
		if re.applied != "" {
			w.Header().Set("Preference-Applied", re.applied)
		}
		if re.status == http.StatusAccepted {
			accepted(w, re.call, "")
			return
		}
		writeJSON(w, http.StatusOK, re.body)
	}
}

// query reads the parameters of a request. It refuses those that the path does not
// take, one that is there twice, and an upstream that there is not.
func (a *Admin) query(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("the query cannot be parsed")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, bad("parameter %q is unknown; there are: %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
		if len(values) > 1 {
			return nil, bad("parameter %q is there %d times; give it once", name, len(values))
		}
	}
	if name := q.Get("upstream"); name != "" {
		if _, known := a.s.Upstream(name); !known {
			return nil, &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("upstream %q is not configured", name)}
		}
	}
	return q, nil
}

// A budget bounds the bytes that are in memory at the same time.
type budget struct{ left atomic.Int64 }

func (b *budget) take(bytes int64) (release func(), err error) {
	if b.left.Add(-bytes) < 0 {
		b.left.Add(bytes)
		return nil, &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Second, Detail: "too many large requests come in at once; send them one after another"}
	}
	return func() { b.left.Add(bytes) }, nil
}

// audit tells the log that somebody has changed something.
func (a *Admin) audit(r *http.Request, what string, args ...any) {
	a.log.Info("admin: "+what, append(args, "from", r.RemoteAddr)...)
}

func (a *Admin) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ready\n")
}
