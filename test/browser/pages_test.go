package browser

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestAccessibility runs axe-core on each page in both languages, light and dark, on a desk and on
// a phone.
func TestAccessibility(t *testing.T) {
	s := newScene(t)
	pages, runs := s.pages(), 0
	for _, language := range []string{"en", "zh-Hans"} {
		b := newTab(t, s.admin, look{language, "light", 1280, 800})
		for _, path := range pages {
			b.open(path)
			b.run(axe + "; 1")
			for _, theme := range []string{"light", "dark"} {
				for _, width := range []int64{1280, 390} {
					l := look{language, theme, width, 844}
					b.look(l)
					runs++
					for _, violation := range eval[[]string](b, violations) {
						t.Errorf("%s, %s: %s", path, l, violation)
					}
				}
			}
		}
	}
	t.Logf("axe-core: %d pages, %d runs", len(pages), runs)
}

// tooWide returns the last elements that do not fit into 320 px.
const tooWide = `document.documentElement.scrollWidth <= 320 ? [] : [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 321).slice(-3).map((e) => e.outerHTML.slice(0, 150))`

// violations runs axe-core, and returns its findings, with the elements.
const violations = `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] })
	.then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.any.map((a) => a.message).join(" ")).join(" | ")))`

// TestPages holds for each page in both languages, over each kind of store, that the browser reports no fault, that the
// page asks no other origin, fits into 320 px, and names no text that is missing.
func TestPages(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) { lookAtPages(t, newSceneOver(t, store(t))) })
	}
}

func lookAtPages(t *testing.T, s *scene) {
	for _, language := range []string{"en", "zh-Hans"} {
		b := newTab(t, s.admin, look{language, "light", 320, 640})
		for _, path := range s.pages() {
			b.open(path)
			if wide := eval[[]string](b, tooWide); len(wide) > 0 {
				t.Errorf("%s, %s: at 320 px it is %d px wide: %s", path, language, eval[int](b, `document.documentElement.scrollWidth`), wide)
			}
			if small := eval[[]string](b, `[...document.querySelectorAll("button, a.button, input, select, summary, nav a, header a:not(.skip)")].filter((e) => e.offsetParent && e.type !== "hidden" && e.type !== "radio" && e.type !== "checkbox" && (e.getBoundingClientRect().height < 24 || e.getBoundingClientRect().width < 24)).map((e) => e.outerHTML.slice(0, 150))`); len(small) > 0 {
				t.Errorf("%s, %s: targets of less than 24 px: %s", path, language, small)
			}
			if got := eval[string](b, `document.documentElement.lang`); got != language {
				t.Errorf("%s is in %s, want %s", path, got, language)
			}
			if !strings.Contains(path, "?") || strings.Contains(path, "calls") {
				b.until(`document.body.dataset.live === undefined || document.getElementById("connection").dataset.state === "live"`)
			}
			b.clean(path)
		}
		b.mu.Lock()
		for _, url := range b.requests {
			if !strings.HasPrefix(url, s.admin+"/ui/") && !strings.HasPrefix(url, "data:") { // the browser's own pictures of fields
				t.Errorf("a page asks %s", url)
			}
		}
		t.Logf("%s: %d pages, %d requests, all to the own origin", language, len(s.pages()), len(b.requests))
		b.mu.Unlock()
	}
}

// TestWatch holds that a tab would see each fault of which the other tests find none.
func TestWatch(t *testing.T) {
	s := launch(t)
	b := newTab(t, s.admin, desk)
	for name, script := range map[string]string{
		"policy: style-src":            `document.head.append(Object.assign(document.createElement("style"), { textContent: "p { color: red }" })), 1`,
		"policy: img-src":              `document.body.append(Object.assign(document.createElement("img"), { src: "http://127.0.0.2:1/x.png" })), 1`,
		"policy: require-trusted-type": `(() => { try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); } catch {} })(), 1`,
		"on the console":               `console.error("x"), 1`,
		"an exception":                 `setTimeout(() => { throw new Error("x"); }), 1`,
	} {
		b.open("/ui/")
		b.taken()
		b.run(script)
		b.until(`1`)
		var faults []string
		for range 100 { // the browser reports them in its own time
			if faults = append(faults, b.taken()...); slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, name) }) {
				break
			}
		}
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, name) }) {
			t.Errorf("%s is not seen: %q", name, faults)
		}
	}
	b.look(look{"en", "light", 320, 640})
	b.open("/ui/calls")
	b.run(axe + "; 1")
	if found := append(eval[[]string](b, violations), eval[[]string](b, tooWide)...); len(found) > 0 {
		t.Errorf("before there is a fault: %s", found)
	}
	b.key(".") // a page that is sent would have no fault
	b.until(`document.getElementById("connection").dataset.state === "paused"`)
	b.run(`document.querySelector("#find").removeAttribute("aria-label"), document.querySelector("#find").placeholder = "", document.querySelector("h1").textContent = "x".repeat(300), document.querySelector("h1").style.overflowWrap = "normal", document.querySelector("footer .who").style.color = "#aaaaaa", 1`)
	if found := strings.Join(eval[[]string](b, violations), " "); !strings.Contains(found, "label:") || !strings.Contains(found, "color-contrast:") {
		t.Errorf("axe-core finds only %s", found)
	}
	if len(eval[[]string](b, tooWide)) == 0 {
		t.Error("a line of 300 letters seems to fit")
	}
}

// TestWithoutScripts uses the pages by links and forms alone.
func TestWithoutScripts(t *testing.T) {
	s := newScene(t)
	b := newTab(t, s.admin, desk)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.open("/ui/")
	if eval[string](b, `document.getElementById("connection").textContent`) != "" || !strings.Contains(eval[string](b, `document.querySelector("[data-zone]").textContent`), "UTC") {
		t.Error("scripts run")
	}
	m := mouse{}
	find(b, m, s)
	b.open("/ui/")
	decide(b, m, s)
	whyAndCancel(b, m, s)
	pauseAndResume(b, m, s)
	// The language and the theme.
	b.click("header button", "中文")
	b.until(`document.documentElement.lang === "zh-Hans" && location.pathname === "/ui/limits"`)
	b.click("header button", "深色")
	b.until(`document.documentElement.dataset.theme === "dark" && getComputedStyle(document.body).backgroundColor === "rgb(21, 23, 26)"`)
	b.click("header button", "English")
	b.until(`document.documentElement.lang === "en" && document.documentElement.dataset.theme === "dark"`)
	b.clean("/ui/limits")
}

// TestSizes holds the bounds of the bytes that a browser fetches, compressed: of all assets, and of the
// first page with its assets.
func TestSizes(t *testing.T) {
	s := newScene(t)
	b := newTab(t, s.admin, desk)
	b.open("/ui/")
	b.until(`document.getElementById("connection").dataset.state === "live"`)
	first, assets := 0, make(map[string]int)
	b.mu.Lock()
	urls := slices.Clone(b.requests)
	b.mu.Unlock()
	for _, url := range urls {
		if strings.Contains(url, "/ui/live") {
			continue
		}
		n := compressed(t, url)
		first += n
		if strings.Contains(url, "/ui/static/") {
			assets[url] = n
		}
	}
	for _, path := range s.pages() { // those that other pages have
		b.open(path)
	}
	b.mu.Lock()
	urls = slices.Clone(b.requests)
	b.mu.Unlock()
	all := 0
	for _, url := range urls {
		if _, ok := assets[url]; !ok && strings.Contains(url, "/ui/static/") {
			assets[url] = compressed(t, url)
		}
	}
	for _, n := range assets {
		all += n
	}
	t.Logf("compressed: %d assets of %d bytes, the first page with its assets %d bytes", len(assets), all, first)
	if len(assets) < 3 || all > 64_000 || first > 40_000 {
		t.Errorf("%d assets of %d bytes, at most 64000; the first page %d bytes, at most 40000", len(assets), all, first)
	}
}

// compressed returns the size of a page or an asset, in bytes.
func compressed(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.Copy(w, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %d %v", url, resp.StatusCode, err))
	}
	w.Close()
	return out.Len()
}
