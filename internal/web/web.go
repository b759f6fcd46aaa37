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
// the server renders it once a second for all browsers that show it to the same caller in
// the same language, sends it when it has changed (Server-Sent Events), and the browser
// morphs the old page into the new one, so that focus, selection and scroll stay.
//
// # Safety
//
// Values from outside are text: html/template escapes them, and [clean] marks characters that
// would hide or turn text. The Content-Security-Policy allows own scripts and styles only.
package web

import (
	"embed"
	"errors"
	"net/http"
	"strings"
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
}

// Pages serves the dashboard. Its methods may be called at the same time.
type Pages struct {
	api      http.Handler
	prefix   string // of all paths that a browser sees; empty or as in /ops
	mux      *http.ServeMux
	speeches map[string]*speech
	live     *hub
}

// New returns the pages. Close ends those that are followed.
func New(c Config) *Pages {
	p := &Pages{api: c.API, prefix: strings.TrimSuffix(c.Prefix, "/"), mux: http.NewServeMux(), live: newHub()}
	p.speeches = speeches(p.prefix)
	for _, page := range pages {
		p.mux.HandleFunc("GET "+page.path, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, page) })
	}
	for _, action := range actions {
		p.mux.HandleFunc("POST "+action.path, func(w http.ResponseWriter, r *http.Request) { p.act(w, r, action) })
	}
	p.mux.HandleFunc("GET /ui/live", p.follow)
	p.mux.HandleFunc("POST /ui/preferences", p.prefer)
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
	{"/ui/limits", "limits", loadLimits},
	{"/ui/upstreams/{name}/limits/{limit}", "limit", loadLimit},
	{"/ui/pause", "pause", loadPause},
	{"/ui/events", "events", loadEvents},
	{"/ui/config", "config", loadConfig},
	{"/ui/plan", "plan", loadPlan},
	{"/ui/audit", "audit", loadAudit},
	{"/ui/system", "system", loadSystem},
}

// An action is a form that changes something by the API.
type action struct {
	path string
	// do returns the page that shows the result, a path with its query.
	do func(*visit) (next string, err error)
}

var actions = []action{
	{"/ui/calls/{id}/{action}", actOnCall},
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
	still bool   // it is not followed: a form is about the state that the person has seen, and must not change meanwhile
}

// ServeHTTP serves the pages. Bodies of forms are expected within the bounds of the listener.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	if _, pattern := p.mux.Handler(r); pattern == "" {
		p.fail(w, p.visit(r), &problem{Status: http.StatusNotFound, Title: "Not found", Detail: "The dashboard has no page " + r.URL.Path + "."})
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
	var elsewhere *redirect
	if errors.As(err, &elsewhere) {
		http.Redirect(w, r, p.prefix+elsewhere.path, http.StatusSeeOther)
		return
	}
	if err != nil {
		p.fail(w, v, err)
		return
	}
	p.write(w, v, http.StatusOK, page.template, view)
}

// act carries out a form, and leads to the page that shows the result. A refusal is
// shown above the page of the form, with the text that the person has written.
func (p *Pages) act(w http.ResponseWriter, r *http.Request, action action) {
	v := p.visit(r)
	if err := r.ParseForm(); err != nil {
		p.fail(w, v, &problem{Status: http.StatusBadRequest, Title: "Bad request", Detail: "The form cannot be read: " + err.Error()})
		return
	}
	next, err := action.do(v)
	if err == nil {
		http.Redirect(w, r, p.prefix+next, http.StatusSeeOther)
		return
	}
	refused := asProblem(err)
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

// fail answers with a page about an error.
func (p *Pages) fail(w http.ResponseWriter, v *visit, err error) {
	e := asProblem(err)
	p.write(w, v, e.Status, "problem", viewOf(e))
}

// viewOf returns a page about a problem.
func viewOf(p *problem) *view { return &view{title: p.Title, data: p} }

// A redirect is the answer of a page that is elsewhere.
type redirect struct{ path string }

func (r *redirect) Error() string { return "see " + r.path }

func (p *Pages) visit(r *http.Request) *visit {
	return &visit{Request: r, pages: p, lang: speechOf(p.speeches, r), now: time.Now()}
}
