package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"slices"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// The login of a person: the API begins the session, and a page only passes the token on, and the
// cookie back.

const loginPath = "/ui/login"

// A loginPage leads on to a page after the login.
type loginPage struct{ Next string }

func loadLogin(v *visit) (*view, error) {
	return &view{title: v.lang.mustText("login"), place: "login", still: true, data: &loginPage{cmp.Or(ownPath(v.FormValue("next")), "/ui/")}}, nil
}

func logIn(v *visit) (next string, err error) {
	var session api.Session
	err = v.do(http.MethodPost, "/v1/session", nil, api.Login{Token: v.PostForm.Get("token")}, &session)
	next = cmp.Or(ownPath(v.PostForm.Get("next")), "/ui/")
	if next == "/ui/" && !slices.Contains(session.Caller.Scopes, "read") { // the overview is not for a submitter
		next = "/ui/calls"
	}
	return next, err
}

// logOut ends the session of the person, if there is still one.
func logOut(v *visit) (next string, err error) {
	if err = v.do(http.MethodDelete, "/v1/session", nil, nil, nil); err != nil && asProblem(err).Status == http.StatusNotFound {
		err = nil
	}
	return loginPath, err
}

// entries are the forms that are there for each person, also where the pages change nothing.
var entries = []action{
	{loginPath, logIn},
	{"/ui/logout", logOut},
}

// toLogin leads a person that the API does not know to the login, and then to a page. False: there is
// no login here.
func toLogin(w http.ResponseWriter, v *visit, next string) bool {
	p := v.pages
	if p.noLogin {
		return false
	}
	if v.Method == http.MethodGet && slices.Contains([]string{"cross-site", "same-site"}, v.Header.Get("Sec-Fetch-Site")) {
		// The page of a chat or a pager has the link, so the browser has sent no cookie: asked by our
		// own page, it does.
		again := p.prefix + v.URL.RequestURI() // of this host, also if the request names another one
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Refresh", "0; url="+again)
		fmt.Fprintf(w, "<!doctype html>\n<title>Throttler</title>\n<a href=\"%s\">%s</a>\n", template.HTMLEscapeString(again), template.HTMLEscapeString(v.lang.mustText("login.go_on")))
		return true
	}
	http.Redirect(w, v.Request, mustLink(p.prefix+loginPath, "next", next), http.StatusSeeOther)
	return true
}

// afterLogin returns the page to which the login leads back: the one of the form that was sent, or the
// one that was asked for.
func afterLogin(v *visit, path string) string {
	if v.Method == http.MethodGet || slices.ContainsFunc(pages, func(p page) bool { return p.path == path }) {
		return v.URL.RequestURI()
	}
	return cmp.Or(ownPath(v.PostForm.Get("back")), "/ui/")
}

// readOnly is the answer to a form, and to its page, where the pages change nothing.
func readOnly(v *visit) *problem {
	return &problem{Status: http.StatusForbidden, Title: v.lang.mustText("read_only"), Detail: v.lang.mustText("read_only.says")}
}
