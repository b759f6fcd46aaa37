package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

// state returns the parts of the state that a page of another origin could change.
func (s *scene) state(t *testing.T) any {
	t.Helper()
	var all []any
	for _, path := range []string{"/v1/pauses", "/v1/calls?page_size=100", "/v1/audit"} {
		var v map[string]any
		if status, answer := s.ask(t, "GET", path, nil); status != http.StatusOK || json.Unmarshal(answer, &v) != nil {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
		delete(v, "at")
		if calls, ok := v["calls"].([]any); ok {
			for _, c := range calls {
				c := c.(map[string]any)
				delete(c, "eta")
				delete(c, "waiting_for")
			}
		}
		all = append(all, v)
	}
	return all
}

// TestCrossSite: a page of another origin posts the forms, asks, and frames the pages; and a name
// that was made to lead to this host asks too. All is refused, and nothing changes.
func TestCrossSite(t *testing.T) {
	s := newScene(t)
	id := s.calls["unknown"]
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>evil</title><p>evil")
	}))
	t.Cleanup(evil.Close)
	b := newTab(t, s.admin, desk)
	b.open("/ui/") // the cookies are there
	before := s.state(t)
	b.origin = evil.URL

	forms := map[string]string{
		"/ui/calls/" + id + "/resolve":              "outcome=failed&attempt=1&reason=seen+nowhere",
		"/ui/calls/" + id + "/retry":                "attempt=1&reason=seen+nowhere&typed=R-88123",
		"/ui/calls/" + id + "/ask":                  "reason=x",
		"/ui/calls/" + s.calls["later"] + "/cancel": "reason=x",
		"/ui/calls/" + s.calls["later"] + "/edit":   "priority=99",
		"/ui/pause":       "upstream=alipay&for=10m",
		"/ui/resume":      "id=1",
		"/ui/config":      "",
		"/ui/plan":        "load=settings&settings=rate%3D1%2Fs+for%3D10s",
		"/ui/login":       "token=thr_x",
		"/ui/logout":      "",
		"/ui/preferences": "theme=dark&back=/ui/",
		"/v1/calls/" + s.calls["later"] + "/cancel":    "{}",
		"/v1/config/reload":                            "",
		"/v1/calls/" + id + "/resolve?x=<b>&y=%3Cb%3E": `{"outcome":"failed","attempt":1,"reason":"seen nowhere"}`,
	}
	n := 0
	for path, fields := range forms {
		for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data"} {
			b.open("/")
			b.run(`(() => {
				const form = document.body.appendChild(document.createElement("form"));
				form.method = "post", form.action = $0, form.enctype = $2;
				for (const [name, value] of new URLSearchParams($1)) form.appendChild(Object.assign(document.createElement("input"), { name, value }));
				form.submit();
			})(), 1`, s.admin+path, fields, kind)
			b.until(`location.origin === $0`, s.admin)
			n++
			if text := eval[string](b, `document.body.innerText`); !strings.Contains(text, "403") {
				t.Errorf("the form of %s as %s: %.200s", path, kind, text)
			}
		}
	}
	// Scripts ask: the browser shows nothing, and the sidecar refuses.
	b.open("/")
	for path := range forms {
		for _, how := range []string{`{}`, `{ mode: "no-cors" }`, `{ credentials: "include" }`, `{ method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams("upstream=alipay&for=10m&reason=xyz") }`, `{ method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }`, `{ method: "DELETE" }`} {
			n++
			if got := eval[string](b, `fetch($0, `+how+`).then(async (r) => r.type === "opaque" ? "refused" : r.status + await r.text(), () => "refused")`, s.admin+path); got != "refused" {
				t.Errorf("fetch %s %s: %.100s", path, how, got)
			}
		}
	}
	// Pages in frames, pictures and scripts of the other origin.
	for _, path := range []string{"/ui/", "/ui/decide", "/ui/calls/" + id + "/resolve"} {
		b.open("/")
		b.run(`new Promise((done) => { const f = document.body.appendChild(document.createElement("iframe")); f.onload = done; f.src = $0; setTimeout(done, 3000); }).then(() => 1)`, s.admin+path)
		n++
		if got := eval[string](b, `(() => { try { return frames[0].document ? frames[0].document.body.innerText : "none" } catch { return "blocked" } })()`); strings.Contains(got, "R-88123") {
			t.Errorf("%s in a frame: %.100s", path, got)
		}
	}
	b.open("/")
	for _, path := range []string{"/ui/live?at=/ui/", "/v1/calls", "/v1/events"} {
		n++
		if got := eval[string](b, `new Promise((done) => { const s = document.createElement("script"); s.onload = () => done("loaded"); s.onerror = () => done("refused"); s.src = $0; document.head.append(s); })`, s.admin+path); got != "refused" {
			t.Errorf("%s as a script: %s", path, got)
		}
		if got := eval[string](b, `new Promise((done) => { const e = new EventSource($0, { withCredentials: true }); e.onopen = () => done("open"); e.onerror = () => done("refused"); })`, s.admin+path); got != "refused" {
			t.Errorf("%s as a stream: %s", path, got)
		}
	}
	// A name that leads to this host, and one with another port.
	for _, host := range []string{"evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example", "metadata", "0.0.0.0.evil.example"} {
		for _, path := range []string{"/ui/", "/ui/decide", "/ui/live?at=/ui/", "/ui/static/x.js", "/v1/info"} {
			r, err := http.NewRequest("GET", s.admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			n++
			if resp.StatusCode != http.StatusMisdirectedRequest && resp.StatusCode != http.StatusForbidden {
				t.Errorf("Host %s, %s: %d", host, path, resp.StatusCode)
			}
		}
	}
	if after := s.state(t); !reflect.DeepEqual(after, before) {
		t.Errorf("it has changed:\n%v\nbefore:\n%v", after, before)
	}
	// A link of another origin is followed: it shows a page to the person only.
	b.open("/")
	b.run(`document.body.appendChild(Object.assign(document.createElement("a"), { href: $0, textContent: "the call" })), 1`, s.admin+"/ui/calls/"+id)
	b.click("a", "the call")
	b.until(`location.origin === $0 && document.querySelector("h1")?.textContent.includes("R-88123")`, s.admin)
	t.Logf("%d requests of another origin or by another name: refused, and nothing has changed", n)
}
