package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const prefix = "/ops/throttler"

// A program embeds a scheduler. A request has the name and the role of its caller in two header fields.
type program struct {
	url    string
	seen   chan scheduler.EventKind
	client *http.Client // follows no redirect
}

func newProgram(t *testing.T, o Options) *program {
	t.Helper()
	platform := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var pay scheduler.Upstream
	pay.URL, pay.Limits = platform.URL, []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}}
	p := &program{seen: make(chan scheduler.EventKind, 100), client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	cfg := scheduler.Config{
		Upstreams: map[string]scheduler.Upstream{"pay": pay}, Log: slog.New(slog.DiscardHandler),
		Observe: func(e scheduler.Event) { p.seen <- e.Kind },
	}
	o.Observer, o.Log = Observe(&cfg), cfg.Log
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(o.Prefix+"/", h)
	site := httptest.NewServer(mux)
	p.url = site.URL
	t.Cleanup(func() {
		h.Close()
		site.Close()
		s.Close()
		platform.Close()
	})
	return p
}

// byHeader is the identity of the program.
func byHeader(r *http.Request) (name, role string, ok bool) {
	name, role = r.Header.Get("User"), r.Header.Get("Role")
	return name, role, name != ""
}

// ask sends a request by ada, an operator; header fields are pairs.
func (p *program) ask(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User", "ada")
	r.Header.Set("Role", "operator")
	r.Header.Set("Content-Type", "application/json")
	if strings.Contains(path, "/ui/") {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	resp, err := p.client.Do(r)
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

var address = regexp.MustCompile(` (?:(?:href|src|action)="([^"#]+)"|data-live="(/[^"]+)")`)

// TestPrefix follows each link, asset and page from the first page on: all are below the prefix.
func TestPrefix(t *testing.T) {
	p := newProgram(t, Options{Prefix: prefix, Caller: byHeader, Name: "PROD pay", Metrics: true})
	resp, body := p.ask(t, "POST", prefix+"/v1/calls", `{"upstream":"pay","method":"GET","path":"/x"}`)
	if resp.StatusCode != 202 || !strings.HasPrefix(resp.Header.Get("Location"), prefix+"/v1/calls/") {
		t.Fatalf("submit: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if kind := <-p.seen; kind != scheduler.EventAccepted {
		t.Errorf("the program's own Observe gets %s", kind)
	}
	seen, queue := make(map[string]bool), []string{prefix + "/ui/", resp.Header.Get("Location"), strings.Replace(resp.Header.Get("Location"), "/v1/", "/ui/", 1)}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		resp, body := p.ask(t, "GET", at, "")
		if resp.StatusCode != 200 {
			t.Errorf("GET %s: %d %s", at, resp.StatusCode, body)
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, m := range address.FindAllStringSubmatch(body, -1) {
			to := strings.ReplaceAll(m[1]+m[2], "&amp;", "&")
			switch {
			case !strings.HasPrefix(to, prefix+"/"):
				t.Errorf("%s leads to %s", at, to)
			case !seen[to] && !strings.Contains(m[0], "action=") && !strings.Contains(m[0], "data-live="):
				queue = append(queue, to)
			}
			seen[to] = true
		}
		if !strings.Contains(body, ">PROD pay</span>") || !strings.Contains(body, "ada · operator") || strings.Contains(body, "/ui/login") {
			t.Errorf("%s: %s", at, body)
		}
	}
	for _, want := range []string{"/ui/limits", "/ui/decide", "/ui/pause?upstream=pay", "/v1/limits", "/ui/preferences", "/ui/live?at=%2Fui%2F"} {
		if !seen[prefix+want] {
			t.Errorf("no page leads to %s", want)
		}
	}
}

// TestRedirects: forms lead to pages below the prefix, cookies are for it, and other paths are put right.
func TestRedirects(t *testing.T) {
	p := newProgram(t, Options{Prefix: prefix, Caller: byHeader})
	for _, tt := range []struct {
		method, path, body string
		status             int
		to                 string
	}{
		{"GET", "/", "", 303, "/ui/"},
		{"GET", "/ui", "", 307, "/ui/"},
		{"POST", "/ui/pause", "upstream=pay&for=1h&reason=maintenance", 303, "/ui/limits"},
		{"POST", "/ui/preferences", "theme=dark&back=/ui/calls?q=x", 303, "/ui/calls?q=x"},
		{"POST", "/ui/preferences", "theme=dark&back=//evil.example/ui/", 303, "/ui/"},
	} {
		resp, body := p.ask(t, tt.method, prefix+tt.path, tt.body)
		if at := resp.Header.Get("Location"); resp.StatusCode != tt.status || at != prefix+tt.to {
			t.Errorf("%s %s: %d to %s, want %s: %s", tt.method, tt.path, resp.StatusCode, at, prefix+tt.to, body)
		}
		for _, c := range resp.Cookies() {
			if c.Path != prefix+"/ui/" {
				t.Errorf("the cookie %v", c)
			}
		}
	}
	resp, body := p.ask(t, "GET", prefix+"/v1/audit", "", "Role", "admin")
	if resp.StatusCode != 200 || !strings.Contains(body, `"actor":"ada","role":"operator","via":"program 127.0.0.1:`) || !strings.Contains(body, `"action":"pause"`) {
		t.Errorf("the audit: %d %s", resp.StatusCode, body)
	}
	for _, path := range []string{"/ops/throttlerx/ui/", "/ops/"} {
		w := httptest.NewRecorder()
		(&Handler{prefix: prefix}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for from, to := range map[string]string{prefix: "/", prefix + "//evil.example": "/evil.example", prefix + "/ui//calls?q=1": "/ui/calls?q=1", prefix + "/x/../ui/": "/ui/"} {
		w := httptest.NewRecorder()
		(&Handler{prefix: prefix}).ServeHTTP(w, httptest.NewRequest("GET", from, nil))
		if w.Code != 307 || w.Header().Get("Location") != prefix+to {
			t.Errorf("%s: %d to %s", from, w.Code, w.Header().Get("Location"))
		}
	}
}

// TestCallers: the program decides, and the API holds it.
func TestCallers(t *testing.T) {
	p := newProgram(t, Options{Prefix: prefix, Caller: byHeader})
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
		has                string
	}{
		{"nobody, a page", "GET", "/ui/", []string{"User", ""}, 401, "does not know the caller"},
		{"nobody, the API", "GET", "/v1/calls", []string{"User", ""}, 401, "does not know the caller"},
		{"a password of the program", "GET", "/v1/calls", []string{"Authorization", "Basic YQ=="}, 200, ""},
		{"a viewer pauses", "POST", "/v1/pauses", []string{"Role", "viewer"}, 403, "has the role viewer"},
		{"an unknown role", "GET", "/v1/limits", []string{"Role", "boss"}, 403, "has the role boss"},
		{"a login", "POST", "/v1/session", nil, 400, "token is missing"},
		{"another site", "POST", "/v1/pauses", []string{"Origin", "https://evil.example"}, 403, "not allowed"},
		{"another site reads", "GET", "/v1/calls", []string{"Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"any name of the host", "GET", "/v1/calls", []string{"Host", "ops.example"}, 200, ""},
		{"a reload", "POST", "/v1/config/reload", []string{"Role", "admin"}, 404, "embedded in a program"},
		{"the configuration", "GET", "/v1/config", nil, 200, `"settings":[]`},
		{"metrics", "GET", "/metrics", nil, 404, "no GET /metrics"},
		{"about", "GET", "/v1/info", nil, 200, `"store":"memory"`},
		{"ready", "GET", "/readyz", nil, 200, "ready"},
	} {
		if resp, body := p.ask(t, tt.method, prefix+tt.path, "", tt.header...); resp.StatusCode != tt.status || !strings.Contains(body, tt.has) || strings.Contains(body, "/ui/login") {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, resp.StatusCode, body, tt.status, tt.has)
		}
	}
}

// TestPagesOfAProgram: the program has the logins and the configuration, and no file of Throttler's.
func TestPagesOfAProgram(t *testing.T) {
	p := newProgram(t, Options{Trusted: true})
	for _, request := range []string{"GET /ui/login", "POST /ui/login", "POST /ui/logout"} {
		method, path, _ := strings.Cut(request, " ")
		if resp, body := p.ask(t, method, path, ""); resp.StatusCode != 404 && resp.StatusCode != 405 {
			t.Errorf("%s: %d %s", request, resp.StatusCode, body)
		}
	}
	resp, body := p.ask(t, "GET", "/ui/config", "")
	if resp.StatusCode != 200 || strings.Contains(body, "The file") || strings.Contains(body, "embedded in a program") {
		t.Errorf("the page of the configuration: %d %s", resp.StatusCode, body)
	}
}

// TestTrusted: administrators by the path alone, and by no name of another page. It has no prefix, and has
// metrics.
func TestTrusted(t *testing.T) {
	p := newProgram(t, Options{Trusted: true, Hosts: []string{"ops.example"}, Metrics: true, ReadOnly: true})
	for host, want := range map[string]int{"": 200, "localhost": 200, "ops.example:8080": 200, "evil.example": 421} {
		var header []string
		if host != "" {
			header = []string{"Host", host}
		}
		if resp, body := p.ask(t, "GET", "/v1/audit", "", header...); resp.StatusCode != want {
			t.Errorf("%q: %d %s", host, resp.StatusCode, body)
		}
	}
	p.ask(t, "POST", "/v1/calls", `{"upstream":"pay","method":"GET","path":"/x"}`)
	if resp, body := p.ask(t, "GET", "/metrics", ""); resp.StatusCode != 200 || !strings.Contains(body, `throttler_calls_accepted_total{upstream="pay"} 1`) {
		t.Errorf("metrics: %d %.300s", resp.StatusCode, body)
	}
	if resp, body := p.ask(t, "POST", "/ui/pause", "upstream=pay&for=1h"); resp.StatusCode != 403 || !strings.Contains(body, "These pages change nothing") {
		t.Errorf("a form: %d %s", resp.StatusCode, body)
	}
}

// TestLive follows a page and the events until the handler is closed.
func TestLive(t *testing.T) {
	var cfg scheduler.Config
	var pay scheduler.Upstream
	pay.URL = "http://127.0.0.1:1"
	cfg.Upstreams, cfg.Log = map[string]scheduler.Upstream{"pay": pay}, slog.New(slog.DiscardHandler)
	observer := Observe(&cfg)
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, err := New(s, Options{Observer: observer, Prefix: prefix, Trusted: true, Log: cfg.Log})
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(h)
	defer site.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	open := func(path string) *bufio.Scanner {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, "GET", site.URL+prefix+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewScanner(resp.Body)
	}
	page, events := open("/ui/live?at="+url.QueryEscape(prefix+"/ui/limits")), open("/v1/events")
	until := func(lines *bufio.Scanner, text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Errorf("the stream ends before %q: %v", text, lines.Err())
	}
	until(page, `href="`+prefix+`/ui/pause?upstream=pay"`)
	resp, err := http.Post(site.URL+prefix+"/v1/pauses", "application/json", strings.NewReader(`{"upstream":"pay","for":"1h","reason":"maintenance at the bank"}`))
	if err != nil {
		t.Fatal(err)
	}
	var pause struct{ Who string }
	if err := json.NewDecoder(resp.Body).Decode(&pause); err != nil || resp.StatusCode != 201 || pause.Who != "program" {
		t.Errorf("pause: %d %+v, %v", resp.StatusCode, pause, err)
	}
	resp.Body.Close()
	until(page, "maintenance at the bank")
	until(events, `"event":"paused"`)
	h.Close()
	for name, lines := range map[string]*bufio.Scanner{"page": page, "events": events} {
		for lines.Scan() {
		}
		if lines.Err() != nil {
			t.Errorf("the stream of the %s does not end: %v", name, lines.Err())
		}
	}
}

// TestFaults: each fault of the options is told.
func TestFaults(t *testing.T) {
	var pay scheduler.Upstream
	pay.URL = "http://127.0.0.1:1"
	cfg := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": pay}, Log: slog.New(slog.DiscardHandler)}
	observer := Observe(&cfg)
	s, err := scheduler.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for want, o := range map[string]Options{
		"Observer is missing":              {Trusted: true},
		"Caller is missing":                {Observer: observer},
		"give one of them":                 {Observer: observer, Caller: byHeader, Trusted: true},
		"Trusted or Hosts":                 {Observer: observer, Caller: byHeader, Hosts: []string{"ops.example"}},
		`Options.Prefix is "ops"`:          {Observer: observer, Trusted: true, Prefix: "ops"},
		`Options.Prefix is "/"`:            {Observer: observer, Trusted: true, Prefix: "/"},
		`Options.Prefix is "/ops/"`:        {Observer: observer, Trusted: true, Prefix: "/ops/"},
		`Options.Prefix is "//ops"`:        {Observer: observer, Trusted: true, Prefix: "//ops"},
		`Options.Prefix is "/o?s"`:         {Observer: observer, Trusted: true, Prefix: "/o?s"},
		`Options.Prefix is "/ops; Path=/"`: {Observer: observer, Trusted: true, Prefix: "/ops; Path=/"},
	} {
		if h, err := New(s, o); err == nil || h != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := New(nil, Options{Observer: observer, Trusted: true}); err == nil || !strings.Contains(err.Error(), "no scheduler") {
		t.Errorf("without a scheduler: %v", err)
	}
	if h, err := New(s, Options{Observer: observer, Trusted: true, Prefix: "/ops/pay-1"}); err != nil {
		t.Error(err)
	} else {
		h.Close()
	}
	if !slices.Contains([]string{"devel", "(devel)", ""}, version()) && !strings.HasPrefix(version(), "v") {
		t.Errorf("version %q", version())
	}
}
