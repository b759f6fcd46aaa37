package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the admin API.
const (
	minMaxBody   = 8 << 20 // bytes; see maxBody
	maxForm      = 1 << 20 // bytes of a form of the dashboard; of a caller that is not known, smallBody
	bodiesAtOnce = 2       // of the largest size, being read or submitted; JSON takes up to five times its size
	maxLongPoll  = 60 * time.Second
	defaultPage  = 100
	maxPage      = 1000
	maxTop       = 100 // keys of a limit and flows of an upstream, of which there is one page
)

// An AdminConfig has the parts of an [Admin]. All are required but Metrics, Observe, Plan, Refusals, Standby, Fleet and Prefix.
type AdminConfig struct {
	// Scheduler is nil in a replica that does not have the calls: what only the owner can do goes to Standby.
	Scheduler *scheduler.Scheduler
	Metrics   *Metrics // nil: there are none
	Events    *Events
	History   *History
	// Log gets a line for each change that is made through the API.
	Log *slog.Logger
	// Observe is as in [Data].
	Observe func(scheduler.Event)
	// Ready returns the reason why the process should get no traffic; nil if it should.
	Ready func() error
	// Reload loads the configuration anew. See [BadConfig].
	Reload Reloader
	// Settings returns the configuration in force, without secrets.
	Settings func() []api.Setting
	// Plan previews loads; nil if the process cannot.
	Plan Planner
	// Guard finds the callers of requests; nil means that of a configuration without
	// access.
	Guard *access.Guard
	// Info is about the process; without the caller.
	Info func() api.Info
	// Refusals are shared with the data listeners; nil keeps none.
	Refusals *Refusals
	// Standby, if not nil, passes the requests that a stop leaves undone on to the next replica.
	Standby *Standby
	// Fleet is nil if the store is no database.
	Fleet Fleet
	// Prefix is that of all paths as clients see them, such as /ops if the API is at /ops/v1/.
	// The handler itself sees paths without it.
	Prefix string
	// MaxHeld is how many requests are held open at most: subscriptions, long polls and pages that
	// browsers follow.
	// Below the listener's connections, it leaves room for others.
	MaxHeld int
}

// Admin serves the admin API, the metrics and the health checks.
type Admin struct {
	AdminConfig
	mux *http.ServeMux

	maxBody int64 // bytes
	bodies  budget
	held    budget        // requests
	lines   chan struct{} // a place for each line of a batch that is being submitted
	polls   budget        // long polls of submitters, a part of held: they leave room for operators
}

// NewAdmin returns the handler of the admin listener.
func NewAdmin(c AdminConfig) *Admin {
	if c.Guard == nil {
		c.Guard = access.NewGuard(nil)
	}
	a := &Admin{AdminConfig: c, mux: http.NewServeMux(), maxBody: maxBody(c.Scheduler), lines: make(chan struct{}, maxBatchLines)}
	a.bodies.left.Store(bodiesAtOnce * a.maxBody)
	a.held.left.Store(int64(c.MaxHeld))
	a.polls.left.Store(int64(c.MaxHeld) / 2)
	for _, op := range Operations() {
		if op.ID == "getMetrics" && c.Metrics == nil || c.Scheduler == nil && !op.Replica {
			continue
		}
		a.mux.Handle(op.Method+" "+op.Path, admit(a, op.Scope, op.serve(a, &op)))
	}
	if c.Scheduler == nil {
		a.mux.Handle("/", c.Standby)
	}
	return a
}

// Mount serves pages for people under a path. It is called before the API serves, and a page
// finds its callers by asking the API. Bodies of forms are read within the bounds of the API; a
// caller that may ask for previews can upload a load for one. The pages follow themselves at live
// under the path: those requests have places among all that are held open.
func (a *Admin) Mount(path string, pages http.Handler) {
	a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path+"live" { // it is held open while a browser shows the page
			release, ok := a.held.take(1)
			if !ok {
				writeProblem(w, r, tooManyHeld())
				return
			}
			defer release()
		}
		limit := int64(maxForm)
		switch {
		case r.ContentLength != 0 && !a.Guard.Known(r): // a login needs little, and a stranger must not use up the room of callers
			limit = smallBody
		case r.URL.Path == path+"plan":
			if _, leave, err := a.Guard.Admit(r, access.Configure); err == nil {
				leave()
				limit += MaxPlanRows
			}
		}
		body, release, err := a.form(w, r, limit)
		if err != nil {
			writeProblem(w, r, err)
			return
		}
		defer release()
		r.Body = io.NopCloser(bytes.NewReader(body))
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeHere{}, true)))
	})
	a.mux.Handle("GET /{$}", http.RedirectHandler(a.Prefix+path, http.StatusSeeOther))
}

// form reads the body of a request for a page. Only a form has one.
func (a *Admin) form(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	if r.Method != http.MethodPost {
		return nil, func() {}, bodiless(w, r)
	}
	return readBody(w, r, limit, a.bodies.reserve)
}

// madeHere is the key of the requests that are made for another one, as a page makes them, in their context. Their answers
// are kept for it.
type madeHere struct{}

// body reads the body of a request. That of a page is in memory already, within the bounds of the
// form that it is made of.
func (a *Admin) body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	if r.Context().Value(madeHere{}) == nil {
		return readBody(w, r, limit, a.bodies.reserve)
	}
	if r.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	body, err = io.ReadAll(r.Body)
	return body, func() {}, err
}

// maxBody returns the largest body of a submission, in bytes: the largest body that
// an upstream takes, in JSON (base64 adds a third, escaped text more), and 1 MiB for
// the other members. Without a scheduler it is the least.
func maxBody(s *scheduler.Scheduler) int64 {
	largest := int64(minMaxBody)
	if s == nil {
		return largest
	}
	for _, u := range s.Config() {
		largest = max(largest, 2*u.MaxBody+1<<20)
	}
	return largest
}

// setHeaders sets the fields of each answer: it is for no cache, and for no page of another origin.
func setHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// ServeHTTP refuses requests of web pages of another origin, and marks each answer as not
// for them.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	err := a.Guard.Addressed(r)
	if err == nil && !isLink(r) {
		err = crossSite(r)
	}
	if err != nil {
		writeProblem(w, r, err)
		return
	}
	unknown, pattern := a.mux.Handler(r)
	if pattern == "" {
		notFound(w, r, unknown)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// notFound refuses an operation that the API does not have. The mux's own answer h
// has the methods of the path in its header.
func notFound(w http.ResponseWriter, r *http.Request, h http.Handler) {
	recorder := headerRecorder{}
	h.ServeHTTP(recorder, r)
	e := &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("the admin API has no %s %s", r.Method, r.URL.Path)}
	if allow := http.Header(recorder).Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		e.Reason = notAllowed
		e.Detail += "; the path takes " + allow
	}
	writeProblem(w, r, e)
}

// goOn leaves a request that a stop has left undone to the next replica, as in [Data]; false if there is none.
func (a *Admin) goOn(w http.ResponseWriter, r *http.Request, body []byte, doubt bool) (passed bool) {
	switch {
	case overLink(r):
		leave(w, stay{doubt: doubt})
		return true
	case a.Standby == nil:
		return false
	}
	now := time.Now()
	a.Standby.pass(w, r, body, stay{since: now, latest: now.Add(AdminWait), doubt: doubt || stayOf(r).doubt})
	return true
}

// headerRecorder keeps the header of a response.
type headerRecorder http.Header

func (h headerRecorder) Header() http.Header       { return http.Header(h) }
func (headerRecorder) Write(p []byte) (int, error) { return len(p), nil }
func (headerRecorder) WriteHeader(int)             {}

// known refuses the name of an upstream that is not configured and has no calls. An empty
// name is none.
func (a *Admin) known(r *http.Request, upstream string) error {
	if upstream == "" {
		return nil
	}
	_, err := a.Scheduler.Status(r.Context(), upstream)
	return err
}
