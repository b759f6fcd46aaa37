package web

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A caller is the person that a page is made for.
type caller struct{ api.CallerInfo }

// May reports whether the person may do operations of a scope.
func (c caller) May(scope string) bool { return slices.Contains(c.Scopes, scope) }

// A frame is a page with the parts that all pages have: it is the data of the templates.
type frame struct {
	*visit
	Info  api.Info
	Title string
	Place string // entry of the menu that the page belongs to
	API   string // path of the API that has the data of the page
	Shell string // command that shows the same
	Theme string // dark, light, or empty: that of the system
	Still bool   // it is not followed
	UI    UI
	// Decide is how many calls need a person; with More there are more.
	Decide int
	More   bool
	Data   any
}

// maxDecide is the most calls that are counted for the bar at the top.
const maxDecide = 100

// frame returns a page with the parts that all pages have. A caller that may see nothing gets
// the page alone.
func (v *visit) frame(view *view) *frame {
	f := &frame{visit: v, Title: view.title, Place: view.place, API: view.api, Shell: view.shell, Still: view.still, Theme: v.theme(), UI: v.pages.ui(), Data: view.data}
	if view.alone {
		return f
	}
	var err error
	if f.Info, err = v.info(); err != nil {
		return f
	}
	v.Caller = caller{f.Info.Caller}
	var calls api.Calls
	if v.Caller.May("read") && v.get("/v1/calls", url.Values{"needs": {"person"}, "page_size": {strconv.Itoa(maxDecide)}}, &calls) == nil {
		f.Decide, f.More = len(calls.Calls), calls.Next != ""
	}
	return f
}

// HasLogin reports whether a person may log in with a token.
func (f *frame) HasLogin() bool { return !f.pages.noLogin }

// Stranger reports whether the person has shown nothing.
func (f *frame) Stranger() bool { return f.Caller.Via == "" || f.Caller.Via == "anyone" }

// write answers with a page.
func (p *Pages) write(w http.ResponseWriter, v *visit, status int, template string, view *view) {
	page, err := p.render(v, template, view, "page")
	if err != nil { // a fault of a template, which tests find
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", v.lang.tag)
	w.WriteHeader(status)
	io.Copy(w, page)
}

// render executes a part of a template: page is all of it, body the part that changes while
// it is followed.
func (p *Pages) render(v *visit, template string, view *view, part string) (*bytes.Buffer, error) {
	var out bytes.Buffer
	err := v.lang.templates[template].ExecuteTemplate(&out, part, v.frame(view))
	return &out, err
}

// Names of the cookies of preferences, and their values.
const (
	languageCookie = "throttler_language"
	themeCookie    = "throttler_theme"
)

var themes = []string{"light", "dark"}

// prefer keeps the language or the theme of a person, and leads back.
func (p *Pages) prefer(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		v := p.visit(r)
		p.fail(w, v, v.malformed("The form cannot be read: "+err.Error()))
		return
	}
	for name, cookie := range map[string]string{"language": languageCookie, "theme": themeCookie} {
		if r.PostForm.Has(name) {
			c := &http.Cookie{Name: cookie, Value: r.PostForm.Get(name), Path: p.prefix + "/ui/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode}
			if p.speeches()[c.Value] == nil && !slices.Contains(themes, c.Value) {
				c.Value, c.MaxAge = "", -1 // that of the browser
			}
			http.SetCookie(w, c)
		}
	}
	http.Redirect(w, r, p.prefix+cmp.Or(ownPath(r.PostForm.Get("back")), "/ui/"), http.StatusSeeOther)
}

// ownPath returns the path and query of a page of the dashboard, and empty for anything else: a
// form must not lead to another origin.
func ownPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/ui/") || !strings.HasPrefix(path.Clean(u.Path)+"/", "/ui/") {
		return ""
	}
	return u.RequestURI()
}
