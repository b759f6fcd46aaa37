package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// hostile are values that a client, a platform or a person may send.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `' onmouseover='alert(1)`, `</textarea><script>alert(1)</script>`, `</title><iframe src=//evil.example>`,
	`javascript:alert(1)`, `//evil.example/`, `{{.Info}}`, `{{template "page" .}}`, `${7*7}`, `=cmd|'/c calc'!A1`, `&lt;b&gt;`, `<!--`, `]]>`,
	"R-1\u202e123", "a\u2066b\u2069", "\u200bhidden", "nul\x00l", "tab\tnew\nline", "e\u0301\u0301\u0301\u0301\u0301", "\u3164", "א123", "null", "undefined", "NaN", "../../etc/passwd", "%00%2e%2e", "🧾👩‍💻", strings.Repeat("long", 500), "",
}

// walk calls f for a node and all that are in it.
func walk(n *html.Node, f func(*html.Node)) {
	f(n)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		walk(c, f)
	}
}

// elements are those that pages have. Another one was made of a value.
var elements = strings.Fields(`html head desc path text meta title link script body div a header form input nav ul li main h1 h2 p section table thead tbody tr th td
	span small b code time svg rect footer button article label textarea fieldset legend details summary select option dl dt dd caption output pre strong path line text g circle polyline ol dialog kbd`)

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// check returns the faults of a page: markup that the policy forbids or that was made of a
// value, links that lead away, and characters that hide or turn text.
func check(page string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return []string{err.Error()}
	}
	titles := 0
	walk(doc, func(n *html.Node) {
		switch n.Type {
		case html.TextNode:
			for _, r := range n.Data {
				if !unicode.IsPrint(r) && !strings.ContainsRune("\n\u2068\u2069", r) && n.Parent.Data != "textarea" {
					fault("the text %.60q has the character %U", n.Data, r)
				}
			}
			if strings.Contains(n.Data, "%!") || strings.Contains(n.Data, "<no value>") {
				fault("the text %.60q", n.Data)
			}
			return
		case html.CommentNode:
			fault("the comment %.60q", n.Data)
			return
		case html.ElementNode:
		default:
			return
		}
		if !slices.Contains(elements, n.Data) {
			fault("the element <%s>", n.Data)
		}
		if n.Data == "h1" {
			titles++
		}
		if n.Data == "script" && (n.FirstChild != nil || !strings.HasPrefix(attr(n, "src"), staticPath)) {
			fault("a script in the page")
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "srcdoc" || a.Key == "formaction":
				fault("<%s %s=%.40q>", n.Data, a.Key, a.Val)
			case a.Key == "href" || a.Key == "src" || a.Key == "action":
				if a.Val != "#main" && !isOwn(a.Val, "") {
					fault("<%s> leads to %.60q", n.Data, a.Val)
				}
			}
		}
	})
	if titles != 1 {
		fault("%d h1", titles)
	}
	return faults
}

// TestHostileValues renders each page in each language with hostile values in all texts of the
// API, and calls in each state: they are text, and characters that cannot be seen are marked.
func TestHostileValues(t *testing.T) {
	n := 0
	for i, value := range hostile {
		for j, state := range api.States {
			most := 5
			if testing.Short() {
				most = 0
			}
			if state != api.Unknown && state != api.Waiting && i > most {
				continue // the same fields as of the others
			}
			p := newPages(t, &stub{Text: value, State: state})
			for _, paths := range addresses(t) {
				for _, path := range paths {
					for k, tag := range tags {
						if testing.Short() && k != (i+j)%len(tags) {
							continue // a language each
						}
						w := ask(t, p, path, nil, "Accept-Language", tag.String())
						n++
						late := w.Code == http.StatusConflict && strings.HasPrefix(path, "/ui/calls/") // an action on a call in another state
						if w.Code != http.StatusOK && w.Code != http.StatusSeeOther && !late {
							t.Errorf("%.30q %s: %d %s", value, path, w.Code, w.Body)
						}
						if w.Code == http.StatusOK || late {
							for _, fault := range check(w.Body.String()) {
								t.Errorf("value %.30q, %s, %s: %s", value, state, path, fault)
							}
						}
					}
				}
			}
			if j == 0 {
				// In the query of a page, and in a form that is refused.
				q := url.QueryEscape(value)
				for _, path := range []string{"/ui/calls?q=" + q, "/ui/calls?state=waiting&key=" + q + "&flow=" + q + "&limit=" + q, "/ui/pause?upstream=x" + q + "&limit=" + q + "&key=" + q, "/ui/calls/7/resolve?back=" + q, "/ui/none/" + url.PathEscape(value)} {
					for _, fault := range check(ask(t, p, path, nil).Body.String()) {
						if !strings.Contains(fault, "h1") { // a redirect has no page
							t.Errorf("value %.30q, %s: %s", value, path, fault)
						}
					}
				}
			}
		}
	}
	t.Logf("%d pages with %d hostile values", n, len(hostile))
}

// TestEscapedPaths: a name of any characters reaches the API as it is.
func TestEscapedPaths(t *testing.T) {
	got := make(chan string, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/upstreams/{name}/limits/{limit}", func(w http.ResponseWriter, r *http.Request) {
		got <- r.PathValue("name") + " " + r.PathValue("limit") + " " + r.RequestURI
		http.NotFound(w, r)
	})
	p := New(Config{API: mux})
	t.Cleanup(p.Close)
	for _, name := range []string{"a", "a/b", "a b", "a%b", "a%2Fb", "a?b=c", "a#b", "支付", "a;b"} {
		escaped := "/upstreams/" + url.PathEscape(name) + "/limits/" + url.PathEscape(name+"x")
		ask(t, p, "/ui"+escaped, nil)
		select {
		case at := <-got:
			if at != name+" "+name+"x /v1"+escaped {
				t.Errorf("the API was asked for %q, want %q", at, name)
			}
		default:
			t.Errorf("the API was not asked for %q", name)
		}
	}
}

// TestLinesOfAProblem: the detail of a problem keeps its lines, and nothing else that is not seen.
func TestLinesOfAProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"line 3:\n  a: b\n     ^\n":       "line 3:\n  a: b\n     ^",
		"a\r\nb\tc\x00":                   "a⟦U+000D⟧\nb⟦U+0009⟧c⟦U+0000⟧",
		"\u05d0\nb\u202e":                 "\u2068\u05d0\u2069\nb⟦U+202E⟧",
		strings.Repeat("a\n", 2000):       strings.Repeat("a\n", maxDetail/2) + "…",
		strings.Repeat("a", maxDetail+1):  strings.Repeat("a", maxDetail) + "…",
		"a\n" + strings.Repeat("b", 9000): "a\n" + strings.Repeat("b", maxDetail-2) + "…",
	} {
		if got := detailLines(text); got != want {
			t.Errorf("%.40q: %.80q, want %.80q", text, got, want)
		}
	}
	detail := "throttler.yaml:3: no such key\n  3 | fault"
	p := newPages(t, &stub{Text: "R-1", Refuse: &api.Problem{Title: "It has faults", Status: 422, Detail: detail}})
	for _, path := range []string{"/ui/config", "/ui/resume"} { // above a page, and a page of its own
		if page := ask(t, p, path, url.Values{"id": {"7"}}).Body.String(); !strings.Contains(page, `<p class="lines">`+detail+"</p>") {
			t.Errorf("%s: %s", path, page)
		}
	}
}

func TestClean(t *testing.T) {
	for value, want := range map[string]string{
		"R-1\u202e123":                  "R-1⟦U+202E⟧123",
		"a\u2066b\u2069":                "a⟦U+2066⟧b⟦U+2069⟧",
		"nul\x00l":                      "nul⟦U+0000⟧l",
		"two\nlines":                    "two⟦U+000A⟧lines",
		"\u3164":                        "⟦U+3164⟧",
		"\u2800x":                       "⟦U+2800⟧x",
		"\u0301x":                       "⟦U+0301⟧x",
		"e\u0301\u0302\u0303\u0304":     "e\u0301\u0302⟦U+0303⟧⟦U+0304⟧",
		"\xff":                          "⟦U+FFFD⟧",
		"订单 7":                          "订单 7",
		"א12":                           "\u2068א12\u2069",
		strings.Repeat("x", maxValue):   strings.Repeat("x", maxValue),
		strings.Repeat("x", maxValue+1): strings.Repeat("x", maxValue) + "…",
	} {
		if got := clean(value); got != want {
			t.Errorf("clean(%q) = %q, want %q", value, got, want)
		}
	}
}

func TestQuoted(t *testing.T) {
	for value, want := range map[string]string{
		"R-1": "R-1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
		"R\u202e'1\\\n": `$'R\u202e\'1\\\u000a'`,
	} {
		if got := quoted(value); got != want {
			t.Errorf("quoted(%q) = %s, want %s", value, got, want)
		}
	}
}

// TestOwnPath holds that preferences lead to pages of the dashboard only.
func TestOwnPath(t *testing.T) {
	p := newPages(t, &stub{State: api.Done})
	for back, want := range map[string]string{
		"/ui/":                        "/ui/",
		"/ui/calls?q=R-1&state=done":  "/ui/calls?q=R-1&state=done",
		"/ui/calls/7#x":               "/ui/calls/7",
		"":                            "/ui/",
		"/":                           "/ui/",
		"/v1/calls":                   "/ui/",
		"ui/calls":                    "/ui/",
		"//evil.example/ui/":          "/ui/",
		"///evil.example/ui/":         "/ui/",
		`\\evil.example/ui/`:          "/ui/",
		`/\evil.example/ui/`:          "/ui/",
		"https://evil.example/ui/":    "/ui/",
		"http:/ui/":                   "/ui/",
		"javascript:alert(1)":         "/ui/",
		"data:text/html,/ui/":         "/ui/",
		"/ui/\r\nSet-Cookie: a=b":     "/ui/",
		" /ui/calls":                  "/ui/",
		"//user@evil.example/ui/":     "/ui/",
		"/uix/":                       "/ui/",
		"/ui":                         "/ui/",
		"%2f%2fevil.example/ui/":      "/ui/",
		"?back=/ui/":                  "/ui/",
		"/ui/%2e%2e/%2e%2e//evil.com": "/ui/",
		"/ui/../../evil":              "/ui/",
	} {
		w := ask(t, p, "/ui/preferences", url.Values{"theme": {"dark"}, "back": {back}})
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("back %q leads to %d %q, want %q", back, w.Code, got, want)
		}
		if c := w.Header().Get("Set-Cookie"); !strings.Contains(c, "throttler_theme=dark") || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Strict") {
			t.Errorf("the cookie is %q", c)
		}
	}
	// Another value is that of the browser.
	w := ask(t, p, "/ui/preferences", url.Values{"language": {"\"><script>"}})
	if c := w.Header().Get("Set-Cookie"); !strings.Contains(c, "Max-Age=0") {
		t.Errorf("the cookie is %q", c)
	}
}

// TestPrefix holds that all links of pages under a prefix have it.
func TestPrefix(t *testing.T) {
	p := New(Config{API: (&stub{Text: "x", State: api.Unknown}).handler(), Prefix: "/ops/"})
	t.Cleanup(p.Close)
	for _, paths := range addresses(t) {
		for _, path := range paths {
			doc, err := html.Parse(strings.NewReader(ask(t, p, path, nil).Body.String()))
			if err != nil {
				t.Fatal(err)
			}
			walk(doc, func(n *html.Node) {
				for _, a := range n.Attr {
					if (slices.Contains([]string{"href", "src", "action"}, a.Key) || a.Key == "data-live" && n.Data == "body") && a.Val != "#main" && !isOwn(a.Val, "/ops") {
						t.Errorf("%s: <%s> leads to %s", path, n.Data, a.Val)
					}
				}
			})
		}
	}
	if got := ask(t, p, "/ui/preferences", url.Values{"back": {"/ui/calls"}}).Header().Get("Location"); got != "/ops/ui/calls" {
		t.Errorf("preferences lead to %s", got)
	}
}

// TestRefusedForm sends each form, and the API refuses it: the refusal is above the form, and
// the form keeps the text, and the page to which it leads back.
func TestRefusedForm(t *testing.T) {
	detail := "the call was sent again since, as attempt 3; read what happened, and decide about that attempt. " + strings.Repeat("A long detail is shown whole. ", 5)
	p := newPages(t, &stub{Text: "R-1", State: api.Unknown, Refuse: &api.Problem{Title: "It has changed", Status: http.StatusPreconditionFailed, Detail: detail, Errors: []api.Fault{{Pointer: "/reason", Detail: "too short"}}}})
	for _, action := range append(slices.Clone(actionNames), "pause") {
		path := "/ui/calls/01a20144-7a3c-7000-8000-00000000fe2b/" + action
		form := url.Values{"reason": {"seen in <the> console"}, "attempt": {"1"}, "typed": {"R-1"}, "outcome": {"done"}, "priority": {"17"}, "deadline": {"2031-01-02T03:04"}}
		if action == "pause" {
			path = "/ui/pause"
			form = url.Values{"reason": {"seen in <the> console"}, "upstream": {"alipay"}, "limit": {"app"}, "key": {"a"}, "for": {"12m"}}
		}
		w := ask(t, p, path, form)
		page := w.Body.String()
		if w.Code != http.StatusPreconditionFailed {
			t.Errorf("%s: %d", action, w.Code)
		}
		refusal, text := strings.Index(page, strings.TrimSpace(detail)), strings.Index(page, "seen in &lt;the&gt; console</textarea>")
		if refusal < 0 || text < 0 || refusal > strings.Index(page, "<h1>") || refusal > text || !strings.Contains(page, "too short") || !strings.Contains(page, `role="alert"`) {
			t.Errorf("%s: the refusal is at %d, the text at %d, in\n%s", action, refusal, text, page)
		}
		for _, want := range map[string][]string{
			"pause": {`name="for" value="12m"`, `name="upstream" value="alipay"`, `name="limit" value="app"`, `name="key" value="a"`},
			"edit":  {`name="priority" type="number" value="17"`, `name="deadline" type="datetime-local" value="2031-01-02T03:04"`},
		}[action] {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the form has no %s:\n%s", action, want, page)
			}
		}
		if strings.Contains(page, "data-live=\"/ui/live") {
			t.Errorf("%s: the form is followed, and would lose what was written", action)
		}
	}
	// The refusal of a form without a page of its own.
	w := ask(t, p, "/ui/resume", url.Values{"id": {"7"}})
	if page := w.Body.String(); w.Code != http.StatusPreconditionFailed || !strings.Contains(page, "It has changed") || strings.Contains(page, "data-live=\"/ui/live") {
		t.Errorf("resume: %d %s", w.Code, page)
	}
}

// TestFormsThatAreNotAllowed: a link to a form, as of a pager, tells what happened if a colleague was
// faster, and a person without the role gets no form.
func TestFormsThatAreNotAllowed(t *testing.T) {
	id := "01a20144-7a3c-7000-8000-00000000fe2b"
	back := `href="/ui/calls/` + id + `"`
	viewer := []string{"read_own", "read"}
	for _, tt := range []struct {
		path  string
		state api.State
		role  []string
		code  int
		parts []string
	}{
		{"/ui/calls/" + id + "/resolve", api.Done, nil, 409, []string{"Decide: not possible now", back}},
		{"/ui/calls/" + id + "/resolve", api.Waiting, viewer, 409, []string{"Decide: not possible now", back}},
		{"/ui/calls/" + id + "/cancel", api.Unknown, nil, 409, []string{"Cancel: not possible now", back}},
		{"/ui/calls/" + id + "/resolve", api.Unknown, viewer, 403, []string{"Not permitted", back}},
		{"/ui/calls/" + id + "/edit", api.Waiting, []string{"read_own", "submit"}, 403, []string{"Not permitted", back}},
		{"/ui/calls/" + id + "/cancel", api.Waiting, []string{"read_own", "submit"}, 200, []string{"<textarea"}},
		{"/ui/pause?upstream=alipay", api.Waiting, viewer, 403, []string{"Not permitted"}},
		{"/ui/pause?upstream=alipay&limit=app&key=a&for=99h&reason=forged", api.Waiting, nil, 200, []string{`name="limit" value="app"`, `name="key" value="a"`, `name="for" value=""`}},
	} {
		w := ask(t, newPages(t, &stub{Text: "R-1", State: tt.state, Role: tt.role}), tt.path, nil)
		page := w.Body.String()
		if w.Code != tt.code || strings.Contains(page, "forged</textarea>") || tt.code != 200 && strings.Contains(page, `class="fields"`) {
			t.Errorf("%s, %s: %d, want %d: %s", tt.path, tt.state, w.Code, tt.code, page)
		}
		for _, part := range tt.parts {
			if !strings.Contains(page, part) {
				t.Errorf("%s, %s: no %s in %s", tt.path, tt.state, part, page)
			}
		}
	}
}

// TestForms holds which page each form leads to.
func TestForms(t *testing.T) {
	p := newPages(t, &stub{Text: "R-1", State: api.Unknown})
	call := "/ui/calls/01a20144-7a3c-7000-8000-00000000fe2b"
	for _, tt := range []struct {
		path string
		form url.Values
		want string
	}{
		{call + "/resolve", url.Values{"outcome": {"done"}, "attempt": {"2"}, "reason": {"seen"}}, call + "?did=resolve"},
		{call + "/ask", url.Values{}, call + "?did=ask"},
		{call + "/retry", url.Values{"attempt": {"2"}, "reason": {"seen"}, "typed": {" R-1 "}}, call + "?did=retry"},
		{call + "/cancel", url.Values{}, call + "?did=cancel"},
		{call + "/edit", url.Values{"priority": {"7"}}, call + "?did=edit"},
		{"/ui/pause", url.Values{"upstream": {"alipay"}, "for": {"10m"}}, "/ui/limits"},
		{"/ui/resume", url.Values{"id": {"7"}}, "/ui/limits"},
	} {
		w := ask(t, p, tt.path, tt.form)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != tt.want {
			t.Errorf("%s %v: %d %s, want %s", tt.path, tt.form, w.Code, w.Header().Get("Location"), tt.want)
		}
	}
	for path, form := range map[string]url.Values{
		call + "/retry": {"attempt": {"2"}, "reason": {"seen"}, "typed": {"R-2"}},
		call + "/edit":  {"priority": {"high"}},
		call + "/edit?": {"deadline": {"tomorrow"}},
		call + "/eat":   {},
	} {
		if w := ask(t, p, path, form); w.Code < 400 || w.Code >= 500 {
			t.Errorf("%s %v: %d", path, form, w.Code)
		}
	}
}

// TestTyped holds that a person can type the text that a retry asks for.
func TestTyped(t *testing.T) {
	for number, want := range map[string]string{
		"R-1": "R-1", "退款 7": "退款 7", "R\u202e1": "00fe2b", " R-1": "00fe2b", "R-1 ": "00fe2b", strings.Repeat("x", maxValue+1): "00fe2b", "א1": "00fe2b",
	} {
		c := &api.Call{CallFacts: api.CallFacts{ID: "01a20144-7a3c-7000-8000-00000000fe2b", Numbers: map[string]string{"order": "7", "refund": number}}}
		if got := typed(c); got != want {
			t.Errorf("number %q: %q, want %q", number, got, want)
		}
	}
}

// TestNoScopes holds that a caller without a scope sees no buttons for it.
func TestNoScopes(t *testing.T) {
	p := newPages(t, &stub{Text: "R-1", State: api.Unknown, Role: []string{"read_own", "read"}})
	for _, paths := range addresses(t) {
		for _, path := range paths {
			if strings.Count(path, "/") > 3 && strings.HasPrefix(path, "/ui/calls") || strings.HasPrefix(path, "/ui/pause") {
				continue // a form, to which no page links: TestFormsThatAreNotAllowed
			}
			page := ask(t, p, path, nil).Body.String()
			for _, form := range []string{"/resolve", "/ask", "/retry", "/cancel", "/edit", "/ui/pause", "/ui/resume"} {
				if strings.Contains(page, form) {
					t.Errorf("%s: a viewer sees %s", path, form)
				}
			}
		}
	}
}

// TestProblems holds that a page about an error is not followed: it has nothing to follow.
func TestProblems(t *testing.T) {
	p := newPages(t, &stub{State: api.Done})
	for _, path := range []string{"/ui/none", "/ui/calls/7/eat", "/ui/resume"} {
		w := ask(t, p, path, nil)
		if page := w.Body.String(); w.Code != http.StatusNotFound || strings.Contains(page, "data-live=\"/ui/live") || len(check(page)) > 0 {
			t.Errorf("%s: %d %v", path, w.Code, check(page))
		}
	}
}

// isOwn reports whether a link leads to a page, to the API or to another resource of the admin
// listener, under a prefix.
func isOwn(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && slices.ContainsFunc([]string{"/ui/", "/v1/", "/problems/"}, func(own string) bool { return strings.HasPrefix(rest, own) })
}
