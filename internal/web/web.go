// Package web serves the dashboard: pages for people, under /ui/ of the admin listener.
//
//	admin := server.NewAdmin(…)
//	pages := web.New(web.Config{API: admin})
//	admin.Mount("/ui/", pages)
//	defer pages.Close()
//
// The pages are a client of the admin API, in the same process. A page asks the API as the
// caller of its own request, and shows the answers:
//
//	browser ── GET /ui/calls/7 ──▶ page ── GET /v1/calls/7 ──▶ API
//	        ◀── HTML ─────────────      ◀── internal/api.Call ──
//
// So the API alone grants access, leaves out secrets and keeps the audit, and each page is in
// the API too.
//
// # Live pages
//
// Each page works without scripts, by links and forms. With scripts, a page follows itself:
// the server renders it once a second for all tabs that show it by the same session or token in
// the same language, sends it when it has changed (Server-Sent Events), and the browser
// morphs the old page into the new one, so that focus, selection and scroll stay.
//
// # Safety
//
// A person that the API does not know is led to the login, which passes a token to the API and
// its cookie to the browser: the pages keep no session, and see none.
//
// Values from outside are text: html/template escapes them, and [clean] marks characters that
// would hide or turn text. The Content-Security-Policy allows own scripts and styles only.
package web

import (
	"cmp"
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed templates static text
var files embed.FS

// A Config has the parts of [Pages].
type Config struct {
	// API is the handler of the admin API. It knows the caller by the request.
	API http.Handler
	// Prefix is that of all paths that a browser sees, such as /ops if the pages are at /ops/ui/
	// and the API is at /ops/v1/. The handlers themselves see paths without it. It may be empty.
	Prefix string
	// UI is asked for each page, so that it may change meanwhile. Nil is the zero UI.
	UI func() UI
	// NoLogin is set if the API takes no tokens: another program knows the callers.
	NoLogin bool
	// Log gets faults of the pages; nil means slog.Default().
	Log *slog.Logger
}

// A UI is the look of the pages.
type UI struct {
	Name     string // of the environment; empty for none
	ReadOnly bool   // the pages change nothing
}

// Pages serves the dashboard. Its methods may be called at the same time.
type Pages struct {
	api      http.Handler
	prefix   string // of all paths that a browser sees; empty or as in /ops
	ui       func() UI
	noLogin  bool
	mux      *http.ServeMux
	speeches func() map[string]*speech // by tag, made for the first page
	live     *hub
	config   configuration
	log      *slog.Logger
}

// New returns the pages. Close ends those that are followed.
func New(c Config) *Pages {
	p := &Pages{api: c.API, prefix: strings.TrimSuffix(c.Prefix, "/"), ui: c.UI, noLogin: c.NoLogin, mux: http.NewServeMux(), live: newHub(), log: cmp.Or(c.Log, slog.Default())}
	if p.ui == nil {
		p.ui = func() UI { return UI{} }
	}
	p.speeches = sync.OnceValue(func() map[string]*speech { return speeches(p.prefix) })
	for _, page := range pages {
		if page.path == loginPath && p.noLogin {
			continue
		}
		p.mux.HandleFunc("GET "+page.path, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, page) })
	}
	for _, action := range actions {
		p.mux.HandleFunc("POST "+action.path, func(w http.ResponseWriter, r *http.Request) {
			if p.ui().ReadOnly {
				v := p.visit(r)
				p.fail(w, v, readOnly(v))
				return
			}
			p.act(w, r, action)
		})
	}
	for _, action := range entries {
		if p.noLogin {
			break
		}
		p.mux.HandleFunc("POST "+action.path, func(w http.ResponseWriter, r *http.Request) { p.act(w, r, action) })
	}
	p.mux.HandleFunc("GET /ui/live", p.follow)
	p.mux.HandleFunc("POST /ui/preferences", p.prefer)
	p.mux.HandleFunc("GET /ui/calls.csv", func(w http.ResponseWriter, r *http.Request) { export(p, w, r) })
	p.mux.HandleFunc("POST /ui/plan", func(w http.ResponseWriter, r *http.Request) { plan(p, w, r) })
	p.mux.HandleFunc("GET "+staticPath, serveAsset)
	return p
}

// Close ends the pages that browsers follow, and waits for them.
func (p *Pages) Close() { p.live.close() }

// A page is one kind of page.
type page struct {
	path     string // a pattern of http.ServeMux
	template string // of templates/, without .html
	load     func(*visit) (*view, error)
}

// pages are all pages.
var pages = []page{
	{"/ui/{$}", "overview", loadOverview},
	{"/ui/decide", "decide", loadDecide},
	{"/ui/calls", "calls", loadCalls},
	{"/ui/calls/{id}", "call", loadCall},
	{"/ui/calls/{id}/{action}", "act", loadAction},
	{"/ui/bulk", "bulk", loadBulk},
	{"/ui/limits", "limits", loadLimits},
	{"/ui/upstreams/{name}/limits/{limit}", "limit", loadLimit},
	{"/ui/pause", "pause", loadPause},
	{"/ui/events", "events", loadEvents},
	{"/ui/refusals", "refusals", loadRefusals},
	{"/ui/config", "config", loadConfig},
	{"/ui/plan", "plan", loadPlan},
	{"/ui/audit", "audit", loadAudit},
	{"/ui/system", "system", loadSystem},
	{loginPath, "login", loadLogin},
}

// An action is a form that changes something by the API.
type action struct {
	path string
	// do returns the page that shows the result, a path with its query.
	do func(*visit) (next string, err error)
}

var actions = []action{
	{"/ui/calls/{id}/{action}", actOnCall},
	{"/ui/bulk", actOnMany},
	{"/ui/pause", addPause},
	{"/ui/resume", endPause},
	{"/ui/config", reload},
}

// A view is a page with its data.
type view struct {
	title string // of the page, in the language of the visit
	data  any    // of the template
	api   string // path and query of the API that has the data
	shell string // command of the CLI that does the same
	place string // entry of the menu that the page belongs to
	form  bool   // of an action, and nothing else
	alone bool   // without the parts of the frame that ask the API
	still bool   // it is not followed: a form is about the state that the person has seen, and must not change meanwhile
}

// ServeHTTP serves the pages. Bodies of forms are expected within the bounds of the listener.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	if _, pattern := p.mux.Handler(r); pattern == "" {
		v := p.visit(r)
		p.fail(w, v, v.missing("The dashboard has no page "+r.URL.Path+"."))
		return
	}
	p.mux.ServeHTTP(w, r)
}

// policy is the Content-Security-Policy of all pages: nothing from other origins, no inline
// script or style, and no markup that a script makes of a text, but for the page that the
// server has sent anew.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"require-trusted-types-for 'script'; trusted-types throttler"

// show answers with a page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, page page) {
	v := p.visit(r)
	if r.Context().Value(followed{}) != nil {
		p.join(w, v, page)
		return
	}
	view, err := page.load(v)
	if err == nil && view.form && p.ui().ReadOnly {
		err = readOnly(v)
	}
	var elsewhere *redirect
	if errors.As(err, &elsewhere) {
		http.Redirect(w, r, p.prefix+elsewhere.path, http.StatusSeeOther)
		return
	}
	if err != nil {
		p.refuse(w, v, page.path, err)
		return
	}
	p.write(w, v, http.StatusOK, page.template, view)
}

// act carries out a form, and leads to the page that shows the result. A refusal is
// shown above the page of the form, with the text that the person has written.
func (p *Pages) act(w http.ResponseWriter, r *http.Request, action action) {
	v := p.visit(r)
	if err := r.ParseForm(); err != nil {
		p.fail(w, v, v.malformed("The form cannot be read: "+err.Error()))
		return
	}
	next, err := action.do(v)
	for _, cookie := range v.cookies {
		w.Header().Add("Set-Cookie", cookie)
	}
	if err == nil {
		http.Redirect(w, r, p.prefix+next, http.StatusSeeOther)
		return
	}
	refused := asProblem(err)
	if refused.Status == http.StatusUnauthorized && action.path != loginPath {
		p.refuse(w, v, action.path, err)
		return
	}
	for _, page := range pages {
		if page.path == action.path {
			if view, err := page.load(v); err == nil {
				v.Refused = refused
				p.write(w, v, refused.Status, page.template, view)
				return
			}
		}
	}
	p.fail(w, v, refused)
}

// refuse answers a request for a page, or a form of it, with an error. A person that is not known logs in
// first.
func (p *Pages) refuse(w http.ResponseWriter, v *visit, path string, err error) {
	if asProblem(err).Status != http.StatusUnauthorized || !toLogin(w, v, afterLogin(v, path)) {
		p.fail(w, v, err)
	}
}

// fail answers with a page about an error.
func (p *Pages) fail(w http.ResponseWriter, v *visit, err error) {
	e := asProblem(err)
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	p.write(w, v, e.Status, "problem", viewOf(e))
}

// viewOf returns a page about a problem. It is not followed: its path may have no page.
func viewOf(p *problem) *view { return &view{title: p.Title, data: p, still: true} }

// A redirect is the answer of a page that is elsewhere.
type redirect struct{ path string }

func (r *redirect) Error() string { return "see " + r.path }

func (p *Pages) visit(r *http.Request) *visit {
	return &visit{Request: r, pages: p, lang: speechOf(p.speeches(), r), now: time.Now()}
}
