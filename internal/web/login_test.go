package web_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/internal/web"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A dashboard is the pages with the real API, whose tokens are the names of their roles.
type dashboard struct {
	url    string
	guard  *access.Guard
	ui     atomic.Pointer[web.UI]
	client *http.Client // follows no redirect, and keeps no cookie
}

func newDashboard(t *testing.T) *dashboard {
	t.Helper()
	pay := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}}}
	pay.URL = "https://pay.example"
	s, err := scheduler.New(scheduler.Config{Log: slog.New(slog.DiscardHandler), Upstreams: map[string]scheduler.Upstream{"pay": pay}})
	if err != nil {
		t.Fatal(err)
	}
	rules := &config.Access{Session: time.Hour}
	for _, role := range access.Roles {
		rules.Tokens = append(rules.Tokens, config.Token{Name: "t-" + string(role), Role: string(role), Sums: [][32]byte{sha256.Sum256([]byte("canary-" + role))}})
	}
	d := &dashboard{guard: access.NewGuard(rules), client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	d.ui.Store(new(web.UI))
	a := server.NewAdmin(server.AdminConfig{History: server.NewHistory(),
		Scheduler: s, Events: server.NewEvents(), Log: slog.New(slog.DiscardHandler), Ready: func() error { return nil },
		Info: func() api.Info { return api.Info{Version: "1.0"} }, Settings: func() []api.Setting { return nil }, Guard: d.guard, MaxHeld: 10,
	})
	pages := web.New(web.Config{API: a, UI: func() web.UI { return *d.ui.Load() }})
	a.Mount("/ui/", pages)
	site := httptest.NewServer(a)
	d.url = site.URL
	t.Cleanup(func() {
		pages.Close()
		site.CloseClientConnections()
		site.Close()
		s.Close()
	})
	return d
}

// ask sends a GET, or a POST if there is a form; header fields are pairs.
func (d *dashboard) ask(t *testing.T, path string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	method, body := "GET", ""
	if form != nil {
		method, body = "POST", form.Encode()
	}
	r, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := d.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// login logs in by the form, and returns the value of Cookie.
func (d *dashboard) login(t *testing.T, role string) string {
	t.Helper()
	resp, body := d.ask(t, "/ui/login", url.Values{"token": {"canary-" + role}})
	if len(resp.Cookies()) != 1 {
		t.Fatalf("login: %d %s", resp.StatusCode, body)
	}
	return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
}

// wants checks the status and the parts of a page; a part that begins with ! must not be there.
func wants(t *testing.T, name string, resp *http.Response, body string, status int, parts ...string) {
	t.Helper()
	if resp.StatusCode != status {
		t.Errorf("%s: %d, want %d: %s", name, resp.StatusCode, status, body)
	}
	for _, part := range parts {
		if absent := strings.TrimPrefix(part, "!"); strings.Contains(body, absent) == (absent != part) {
			t.Errorf("%s: %q in %s", name, part, body)
		}
	}
}

// TestLogin: a person is led to the login and back, sees the name and the role, and logs out.
func TestLogin(t *testing.T) {
	d := newDashboard(t)
	resp, _ := d.ask(t, "/ui/calls?state=waiting&q=R-1", nil)
	form := resp.Header.Get("Location")
	if resp.StatusCode != 303 || form != "/ui/login?next="+url.QueryEscape("/ui/calls?state=waiting&q=R-1") {
		t.Fatalf("a stranger: %d to %s", resp.StatusCode, form)
	}
	resp, body := d.ask(t, form, nil)
	wants(t, "the form", resp, body, 200, `<input type="password" name="token" required autocomplete="current-password"`, `<label>Token `, `value="/ui/calls?state=waiting&amp;q=R-1"`, "!data-live=\"/ui/live", "!<nav", "!Log out", "!canary")

	next := url.Values{"next": {"/ui/calls?state=waiting&q=R-1"}, "token": {"canary-nobody"}}
	resp, body = d.ask(t, "/ui/login", next)
	wants(t, "a wrong token", resp, body, 401, `role="alert"`, "The caller is not known", "none of access.tokens", `type="password"`, `value="/ui/calls?state=waiting&amp;q=R-1"`, "!canary")
	next.Set("token", "canary-viewer")
	resp, body = d.ask(t, "/ui/login", next)
	wants(t, "a right token", resp, body, 303)
	if at := resp.Header.Get("Location"); at != "/ui/calls?state=waiting&q=R-1" || len(resp.Cookies()) != 1 {
		t.Fatalf("leads to %s with %v", at, resp.Cookies())
	}
	cookie := resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	if raw := resp.Header.Get("Set-Cookie"); !strings.Contains(raw, "; Path=/; HttpOnly; SameSite=Strict") {
		t.Errorf("the cookie is %s", raw)
	}

	resp, body = d.ask(t, "/ui/calls", nil, "Cookie", cookie)
	wants(t, "a page", resp, body, 200, "t-viewer", "viewer", "<button>Log out</button>", "!>Log in<")
	resp, body = d.ask(t, "/v1/calls", nil, "Cookie", cookie)
	wants(t, "as JSON", resp, body, 200, `{"calls":[]}`)
	resp, _ = d.ask(t, "/ui/logout", url.Values{}, "Cookie", cookie)
	if resp.StatusCode != 303 || resp.Header.Get("Location") != "/ui/login" || len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: %d %v", resp.StatusCode, resp.Header)
	}
	for range 2 {
		if resp, _ := d.ask(t, "/ui/calls", nil, "Cookie", cookie); resp.StatusCode != 303 || resp.Header.Get("Location") != "/ui/login?next=%2Fui%2Fcalls" {
			t.Errorf("after the logout: %d %v", resp.StatusCode, resp.Header)
		}
		if resp, _ := d.ask(t, "/ui/logout", url.Values{}, "Cookie", cookie); resp.StatusCode != 303 {
			t.Errorf("a second logout: %d", resp.StatusCode)
		}
	}
}

// TestLoginLeadsHome: next is a page of the dashboard, and nothing else.
func TestLoginLeadsHome(t *testing.T) {
	d := newDashboard(t)
	for next, want := range map[string]string{
		"//evil.example/ui/": "/ui/", "https://evil.example/ui/": "/ui/", "/v1/calls": "/ui/",
		`/\evil.example`: "/ui/", "/ui/limits": "/ui/limits",
	} {
		resp, _ := d.ask(t, "/ui/login", url.Values{"next": {next}, "token": {"canary-viewer"}})
		if at := resp.Header.Get("Location"); resp.StatusCode != 303 || at != want {
			t.Errorf("%q leads to %s (%d), want %s", next, at, resp.StatusCode, want)
		}
	}
	resp, body := d.ask(t, "/ui/login", url.Values{"token": {"canary-viewer"}})
	wants(t, "a sixth login", resp, body, 429, `role="alert"`, "Too many logins", `type="password"`)
}

// TestStrangers: a form of a session that has ended, a link of another site, and a role that may not.
func TestStrangers(t *testing.T) {
	d := newDashboard(t)
	for path, want := range map[string]string{
		"/ui/pause":           "/ui/login?next=%2Fui%2Fpause",
		"/ui/calls/7/resolve": "/ui/login?next=%2Fui%2Fcalls%2F7%2Fresolve",
		"/ui/resume":          "/ui/login?next=%2Fui%2Flimits",
	} {
		resp, _ := d.ask(t, path, url.Values{"back": {"/ui/limits"}, "upstream": {"pay"}, "for": {"1h"}, "id": {"x"}})
		if at := resp.Header.Get("Location"); resp.StatusCode != 303 || at != want {
			t.Errorf("POST %s: %d to %s, want %s", path, resp.StatusCode, at, want)
		}
	}
	cookie := d.login(t, "viewer")
	link := []string{"Cookie", cookie, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Sec-Fetch-User", "?1", "Sec-Fetch-Site"}
	resp, body := d.ask(t, "/ui/calls?q=%22%3E%3Cb%3E", nil, append(link, "cross-site")...)
	wants(t, "a link of another site", resp, body, 200, `<a href="/ui/calls?q=%22%3E%3Cb%3E">Go on</a>`, "!t-viewer")
	if resp.Header.Get("Refresh") != "0; url=/ui/calls?q=%22%3E%3Cb%3E" {
		t.Errorf("it leads on by %q", resp.Header.Get("Refresh"))
	}
	resp, body = d.ask(t, "/ui/calls", nil, append(link, "same-origin")...)
	wants(t, "and then", resp, body, 200, "t-viewer")

	resp, body = d.ask(t, "/ui/", nil, "Cookie", d.login(t, "submitter"))
	wants(t, "a submitter", resp, body, 403, "has the role submitter", "With another token", `href="/ui/login?next=%2Fui%2F"`, "Log out")

	open := &config.Access{Anyone: "viewer", Session: time.Hour}
	d.guard.Set(open)
	resp, body = d.ask(t, "/ui/limits", nil)
	wants(t, "anyone", resp, body, 200, `href="/ui/login?next=%2Fui%2Flimits">Log in</a>`, "!Log out")
}

// TestWhereALoginLeads: a submitter has no overview, and is led to the calls.
func TestWhereALoginLeads(t *testing.T) {
	d := newDashboard(t)
	for _, tt := range []struct{ role, next, want string }{
		{"submitter", "/ui/", "/ui/calls"},
		{"submitter", "", "/ui/calls"},
		{"submitter", "/ui/calls/7", "/ui/calls/7"},
		{"viewer", "/ui/", "/ui/"},
	} {
		resp, _ := d.ask(t, "/ui/login", url.Values{"token": {"canary-" + tt.role}, "next": {tt.next}})
		if at := resp.Header.Get("Location"); resp.StatusCode != 303 || at != tt.want {
			t.Errorf("%s, to %q: %d to %s, want %s", tt.role, tt.next, resp.StatusCode, at, tt.want)
		}
	}
	resp, _ := d.ask(t, "/ui/pause?upstream=pay", nil)
	if at := resp.Header.Get("Location"); resp.StatusCode != 303 || at != "/ui/login?next=%2Fui%2Fpause%3Fupstream%3Dpay" {
		t.Errorf("the form of a pause, for a stranger: %d to %s", resp.StatusCode, at)
	}
}

// TestReadOnly: the pages show no button and take no form, the API stays as it is, and a person may
// log in.
func TestReadOnly(t *testing.T) {
	d := newDashboard(t)
	cookie := d.login(t, "operator")
	resp, body := d.ask(t, "/ui/limits", nil, "Cookie", cookie)
	wants(t, "with actions", resp, body, 200, "/ui/pause?upstream=pay")
	d.ui.Store(&web.UI{ReadOnly: true})
	for path, absent := range map[string]string{"/ui/limits": "!/ui/pause", "/ui/decide": "!<button class", "/ui/": "!/ui/pause"} {
		resp, body = d.ask(t, path, nil, "Cookie", cookie)
		wants(t, path, resp, body, 200, absent, "Log out")
	}
	resp, body = d.ask(t, "/ui/pause?upstream=pay", nil, "Cookie", cookie)
	wants(t, "a form", resp, body, 403, "These pages change nothing", "!With another token")
	for _, path := range []string{"/ui/pause", "/ui/resume", "/ui/calls/7/cancel", "/ui/config"} {
		resp, body = d.ask(t, path, url.Values{"upstream": {"pay"}, "for": {"1h"}, "id": {"x"}}, "Cookie", cookie)
		wants(t, "POST "+path, resp, body, 403, "These pages change nothing", "ui: {actions: false}")
	}
	resp, body = d.ask(t, "/v1/pauses", nil, "Cookie", cookie)
	wants(t, "pauses", resp, body, 200, `"pauses":[]`)
	resp, body = d.ask(t, "/ui/logout", url.Values{}, "Cookie", cookie)
	wants(t, "logout", resp, body, 303)
	d.login(t, "viewer")
}

// TestFollowedPageEnds: the page of a session that ends says so at once, and says so to a browser
// that connects again.
func TestFollowedPageEnds(t *testing.T) {
	d := newDashboard(t)
	ended, other := d.login(t, "viewer"), d.login(t, "viewer")
	follow := func(cookie string) *bufio.Scanner {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, "GET", d.url+"/ui/live?at=/ui/limits", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", cookie)
		resp, err := d.client.Do(r)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v, %v", resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewScanner(resp.Body)
	}
	until := func(lines *bufio.Scanner, text, never string) {
		t.Helper()
		for lines.Scan() {
			if never != "" && strings.Contains(lines.Text(), never) {
				t.Errorf("the page says %s", lines.Text())
			}
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Errorf("the stream ends without %q: %v", text, lines.Err())
	}
	const gone = "You are not logged in any more."
	first, second := follow(ended), follow(other)
	until(first, "t-viewer", gone)
	until(second, "t-viewer", gone)
	d.ask(t, "/ui/logout", url.Values{}, "Cookie", ended)
	until(first, gone, "")
	until(follow(ended), gone, "")
	d.ui.Store(&web.UI{Name: "another page"})
	until(second, "another page", gone)
}

// TestBackground: a page that follows itself does not keep a session alive.
func TestBackground(t *testing.T) {
	asked := make(chan string, 100)
	pages := web.New(web.Config{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + " " + cmp.Or(r.Header.Get(api.Background), "by a person")
		fmt.Fprint(w, `{"caller":{"scopes":["read"]}}`)
	})})
	site := httptest.NewServer(pages)
	defer site.Close()
	defer pages.Close()
	resp, err := http.Get(site.URL + "/ui/limits")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for len(asked) > 0 {
		if got := <-asked; !strings.HasSuffix(got, " by a person") {
			t.Errorf("a page asks %s", got)
		}
	}
	resp, err = http.Get(site.URL + "/ui/live?at=/ui/limits")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		if got := <-asked; !strings.HasSuffix(got, " 1") {
			t.Errorf("a page that follows itself asks %s", got)
		}
	}
}

// TestBadge: each page has the name of the environment, always in the same colour.
func TestBadge(t *testing.T) {
	d := newDashboard(t)
	d.ui.Store(&web.UI{Name: "PROD <pay>"})
	resp, body := d.ask(t, "/ui/login", nil)
	badge := regexp.MustCompile(`<span class="badge badge([0-5])">PROD &lt;pay&gt;</span>`).FindString(body)
	if resp.StatusCode != 200 || badge == "" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if _, again := d.ask(t, "/ui/login", nil); !strings.Contains(again, badge) {
		t.Errorf("then: %s", again)
	}
	colours := make(map[string]bool)
	for n := range 100 {
		d.ui.Store(&web.UI{Name: fmt.Sprint("pay-", n)})
		_, body := d.ask(t, "/ui/login", nil)
		colours[regexp.MustCompile(`badge badge\d`).FindString(body)] = true
	}
	if len(colours) != 6 {
		t.Errorf("100 names have the colours %v", colours)
	}
	d.ui.Store(new(web.UI))
	if _, body := d.ask(t, "/ui/login", nil); strings.Contains(body, "badge") {
		t.Error("there is a badge without a name")
	}
}

// TestBadgesAreReadable: each colour has a contrast of 4.5 to its text (WCAG 2.2, 1.4.3), in light and in
// dark.
func TestBadgesAreReadable(t *testing.T) {
	css, err := os.ReadFile("static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`\.badge[0-5] \{ color: #(\w{6}); background: #(\w{6}); \}`).FindAllStringSubmatch(string(css), -1)
	if len(rules) != 6 {
		t.Fatalf("%d colours", len(rules))
	}
	for _, m := range rules {
		light, dark := luminance(t, m[1]), luminance(t, m[2])
		if contrast := (max(light, dark) + .05) / (min(light, dark) + .05); contrast < 4.5 {
			t.Errorf("%s: the contrast is %.2f", m[0], contrast)
		}
	}
}

// luminance is that of WCAG 2.2.
func luminance(t *testing.T, hex string) float64 {
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, share := range []float64{.0722, .7152, .2126} {
		c := float64(n>>(8*i)&255) / 255
		if c <= .04045 {
			sum += share * c / 12.92
		} else {
			sum += share * math.Pow((c+.055)/1.055, 2.4)
		}
	}
	return sum
}
