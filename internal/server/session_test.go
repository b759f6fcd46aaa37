package server

import (
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// newTokenAdmin returns an admin API at a prefix, with tokens that are the names of their roles.
func newTokenAdmin(t *testing.T, prefix string) (*rig, *Admin) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	rules := &config.Access{Session: 12 * time.Hour}
	for _, role := range access.Roles {
		rules.Tokens = append(rules.Tokens, config.Token{Name: "t-" + string(role), Role: string(role), Sums: [][32]byte{sha256.Sum256([]byte("canary-" + role))}})
	}
	return r, NewAdmin(AdminConfig{
		Scheduler: r.s, Metrics: r.metrics, Events: NewEvents(), Log: slog.New(slog.NewTextHandler(r.logs, nil)), Ready: func() error { return nil },
		Info: func() api.Info { return api.Info{} }, Guard: access.NewGuard(rules), MaxHeld: 1, Prefix: prefix,
	})
}

// setCookieOf returns the cookie that an answer sets.
func setCookieOf(t *testing.T, resp *http.Response) *http.Cookie {
	t.Helper()
	if all := resp.Cookies(); len(all) == 1 && all[0].Name == access.SessionCookie {
		return all[0]
	}
	t.Fatalf("the answer sets %v", resp.Header["Set-Cookie"])
	return nil
}

// TestSession: a login, requests by its cookie, a logout; each of them is in the audit, and no
// token is in the audit or the log.
func TestSession(t *testing.T) {
	r, a := newTokenAdmin(t, "")
	base := serve(t, a, slog.New(slog.DiscardHandler)).URL

	resp, body := send(t, "POST", base+"/v1/session", `{"token":" canary-operator\n"}`)
	var session api.Session
	if err := json.Unmarshal([]byte(body), &session); err != nil || resp.StatusCode != 201 || session.Caller.Name != "t-operator" || session.Caller.Via != "session" || time.Until(session.EndsAt.Time) > time.Hour {
		t.Fatalf("login: %d %s", resp.StatusCode, body)
	}
	cookie := setCookieOf(t, resp)
	if cookie.Path != "/" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	by := "Cookie: " + cookie.Name + "=" + cookie.Value
	if _, body := send(t, "GET", base+"/v1/info", "", by); !strings.Contains(body, `"name":"t-operator","role":"operator","via":"session"`) {
		t.Errorf("by the session: %s", body)
	}
	if resp, _ := send(t, "POST", base+"/v1/config/reload", "", by); resp.StatusCode != 403 {
		t.Errorf("an operator reloads by a session: %d", resp.StatusCode)
	}
	resp, body = send(t, "POST", base+"/v1/session", `{"token":"canary-nobody"}`)
	if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` || len(resp.Cookies()) > 0 || strings.Contains(body, "canary") {
		t.Errorf("a wrong token: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if resp, body := send(t, "POST", base+"/v1/session", `{"token":" "}`); resp.StatusCode != 400 || !strings.Contains(body, "/token") {
		t.Errorf("no token: %d %s", resp.StatusCode, body)
	}
	if resp, _ := send(t, "DELETE", base+"/v1/session", "", by); resp.StatusCode != 200 || setCookieOf(t, resp).MaxAge >= 0 {
		t.Errorf("logout: %d %v", resp.StatusCode, resp.Header)
	}
	for method, want := range map[string]int{"GET": 401, "DELETE": 404} {
		path := map[string]string{"GET": "/v1/info", "DELETE": "/v1/session"}[method]
		if resp, body := send(t, method, base+path, "", by); resp.StatusCode != want {
			t.Errorf("%s %s after the logout: %d %s", method, path, resp.StatusCode, body)
		}
	}

	var got []string
	for _, record := range read[api.AuditLog](t, base+"/v1/audit", "Authorization: Bearer canary-admin").Records {
		via, _, _ := strings.Cut(record.Via, " ")
		got = append(got, strings.Join([]string{record.Action, record.Actor, record.Role, via}, " "))
	}
	if want := []string{"logout t-operator operator session", "login_failed unknown  login", "login t-operator operator session"}; !slices.Equal(got, want) {
		t.Errorf("the audit has %q, want %q", got, want)
	}
	if log := r.logs.String(); strings.Contains(log, "canary") || strings.Contains(log, cookie.Value) || !strings.Contains(log, `msg="admin: login_failed" by=unknown from=127.0.0.1:`) {
		t.Errorf("the log: %s", log)
	}
	page := read[api.AuditLog](t, base+"/v1/audit?action=login", "Authorization: Bearer canary-admin")
	if text, _ := json.Marshal(page); len(page.Records) != 1 || strings.Contains(string(text), "canary") {
		t.Errorf("the audit: %s", text)
	}
}

// TestSessionOfOtherSites: a session is of no use to a page of another site, though its browser
// sent the cookie; a person that follows a link of it has to log in first.
func TestSessionOfOtherSites(t *testing.T) {
	_, a := newTokenAdmin(t, "")
	base := serve(t, a, slog.New(slog.DiscardHandler)).URL
	resp, _ := send(t, "POST", base+"/v1/session", `{"token":"canary-admin"}`)
	cookie := setCookieOf(t, resp)
	by := "Cookie: " + cookie.Name + "=" + cookie.Value
	link := []string{by, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Fetch-User: ?1"}
	for _, tt := range []struct {
		method, path string
		header       []string
		want         int
	}{
		{"GET", "/v1/calls", []string{by}, 200},
		{"GET", "/v1/calls", []string{by, "Sec-Fetch-Site: same-origin"}, 200},
		{"GET", "/v1/calls", []string{by, "Sec-Fetch-Site: cross-site"}, 403},
		{"GET", "/v1/calls", []string{by, "Sec-Fetch-Site: same-site"}, 403},
		{"GET", "/v1/calls", []string{by, "Origin: http://localhost:3000"}, 403},
		{"GET", "/v1/calls", append(link, "Sec-Fetch-Site: cross-site"), 401},
		{"GET", "/v1/calls", append(link, "Sec-Fetch-Site: same-site"), 401},
		{"GET", "/v1/calls", append(link, "Sec-Fetch-Site: none"), 200},
		{"GET", "/v1/events", []string{by, "Sec-Fetch-Site: cross-site"}, 403},
		{"POST", "/v1/calls/x/cancel", []string{by, "Sec-Fetch-Site: cross-site"}, 403},
		{"POST", "/v1/calls/x/cancel", []string{by, "Origin: https://evil.example"}, 403},
		{"POST", "/v1/calls/x/cancel", []string{by, "Origin: null"}, 403},
		{"POST", "/v1/calls/x/cancel", append(link, "Sec-Fetch-Site: cross-site"), 403},
		{"DELETE", "/v1/session", []string{by, "Sec-Fetch-Site: cross-site"}, 403},
	} {
		if resp, body := send(t, tt.method, base+tt.path, "", tt.header...); resp.StatusCode != tt.want {
			t.Errorf("%s %s %q: %d, want %d: %s", tt.method, tt.path, tt.header, resp.StatusCode, tt.want, body)
		}
	}
	if resp, body := send(t, "POST", base+"/v1/session", `{"token":"canary-admin"}`, "Sec-Fetch-Site: cross-site"); resp.StatusCode != 403 || len(resp.Cookies()) > 0 {
		t.Errorf("another site logs in: %d %s", resp.StatusCode, body)
	}
}

// TestStrangersAreBounded: a caller that is not known sends little.
func TestStrangersAreBounded(t *testing.T) {
	_, a := newTokenAdmin(t, "")
	a.Mount("/ui/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }))
	base := serve(t, a, slog.New(slog.DiscardHandler)).URL
	large := strings.Repeat("x", smallBody+1)
	for _, tt := range []struct {
		path   string
		header []string
		want   int
	}{
		{"/v1/session", nil, 413},
		{"/v1/session", []string{"Authorization: Bearer canary-admin"}, 413},
		{"/ui/login", nil, 413},
		{"/ui/login", []string{"Authorization: Bearer canary-viewer"}, 204},
	} {
		if resp, body := send(t, "POST", base+tt.path, large, tt.header...); resp.StatusCode != tt.want {
			t.Errorf("%s %q: %d, want %d: %s", tt.path, tt.header, resp.StatusCode, tt.want, body)
		}
	}
}

// TestPrefix: addresses that clients see have the prefix, and the path of the cookie is it.
func TestPrefix(t *testing.T) {
	_, a := newTokenAdmin(t, "/ops/throttler")
	a.Mount("/ui/", http.NotFoundHandler())
	base := serve(t, a, slog.New(slog.DiscardHandler)).URL
	resp, _ := send(t, "POST", base+"/v1/session", `{"token":"canary-admin"}`)
	if c := setCookieOf(t, resp); c.Path != "/ops/throttler/" {
		t.Errorf("the cookie is %v", c)
	}
	resp, _ = send(t, "POST", base+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/"}`, "Authorization: Bearer canary-admin")
	if at := resp.Header.Get("Location"); !strings.HasPrefix(at, "/ops/throttler/v1/calls/") {
		t.Errorf("the call is at %s", at)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/", nil))
	if at := w.Header().Get("Location"); at != "/ops/throttler/ui/" {
		t.Errorf("/ leads to %s", at)
	}
}

// deadlines is an answer of net/http that keeps the last read deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

// TestReadDeadlineEnds: under net/http a deadline for the body would end the rest of the request.
func TestReadDeadlineEnds(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder(), read: time.Now()}
	body, release, err := readBody(w, httptest.NewRequest("POST", "/", strings.NewReader("x")), 10, nil)
	if err != nil || string(body) != "x" || !w.read.IsZero() {
		t.Errorf("%q, %v; the deadline is %v", body, err, w.read)
	}
	release()
}

// TestWithoutMetrics: the rest of the API is there.
func TestWithoutMetrics(t *testing.T) {
	r, _ := newTokenAdmin(t, "")
	a := NewAdmin(AdminConfig{Scheduler: r.s, Events: NewEvents(), Log: slog.New(slog.DiscardHandler), Ready: func() error { return nil }, MaxHeld: 1})
	for path, want := range map[string]int{"/metrics": 404, "/healthz": 200} {
		w := httptest.NewRecorder()
		if a.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil)); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
