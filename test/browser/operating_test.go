package browser

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	protocol "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// whatIf: a person asks on the page of a limit about another N of it.
func whatIf(b *tab, h hands, s *scene) {
	h.goTo(b, "l", "/ui/limits")
	h.choose(b, "main th a", "alipay / refund")
	b.at("/ui/upstreams/alipay/limits/refund")
	h.write(b, "input[name=permits]", "7")
	h.choose(b, "form.inline button.primary", words(b, "Run", "预演"))
	b.at("/ui/plan")
	b.says(words(b, "With 7 per 1 h the wait would", "若为 7 "))
	b.until(`document.querySelector(".report p.lead").textContent.includes("7")`)
	if got := eval[string](b, `[...document.querySelectorAll(".report table.figures thead th")].map((e) => e.textContent).join()`); !strings.Contains(got, words(b, "now", "当前")) || !strings.Contains(got, "7") {
		b.Errorf("the columns of the table are %q", got)
	}
	if n := eval[int](b, `document.querySelectorAll(".report table.figures tbody tr").length * document.querySelectorAll(".report svg").length`); n < 8 {
		b.Errorf("there are %d figures", n)
	}
	b.good()
}

// good fails for findings of axe-core, and for a page that does not fit.
func (b *tab) good() {
	b.Helper()
	b.run(axe + "; 1")
	for _, violation := range eval[[]string](b, violations) {
		b.Errorf("%s: %s", eval[string](b, `location.pathname`), violation)
	}
	if eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		b.Errorf("%s is %d px wide", eval[string](b, `location.pathname`), eval[int](b, `document.documentElement.scrollWidth`))
	}
}

// planUpload: a person uploads a load, reads the report, and takes it away as one file.
func planUpload(b *tab, h hands, s *scene) {
	dir := b.TempDir()
	var csv strings.Builder
	csv.WriteString("at,upstream,method,path,json.key,json.flow\n")
	for i := range 600 {
		fmt.Fprintf(&csv, "%s,alipay,POST,/refunds,2021001,shop7\n", time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC).Add(time.Duration(i)*100*time.Millisecond).Format(time.RFC3339Nano))
	}
	file := filepath.Join(dir, "load.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	chosen := b.files(dir)
	h.goTo(b, "p", "/ui/plan")
	h.choose(b, "input[name=load]", "A file, CSV")
	h.choose(b, "input[name=rows]", "")
	chosen(file)
	b.until(`document.querySelector("input[name=rows]").files[0]?.name === "load.csv"`)
	h.write(b, "textarea[name=fail_if]", "wait.p99 > 5s")
	h.choose(b, "button.primary", "Run")
	b.says("99 of 100 calls wait")
	b.says("wait.p99 > 5s holds")
	b.until(`[...document.querySelectorAll(".report table.figures tr")].some((e) => e.textContent.replace(/\s+/g, " ").includes("Calls600"))`)
	b.good()

	h.choose(b, "a[download]", "Download the report (HTML)")
	report := filepath.Join(dir, "report.html")
	for end := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
		if text, err := os.ReadFile(report); err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), "</html>") {
			break
		} else if time.Now().After(end) {
			b.Fatalf("the report does not come: %v", err)
		}
	}
	// It is whole by itself: it asks for nothing, and runs nothing.
	two := newTab(b.T, b.origin, desk)
	two.do(chromedp.Navigate("file://" + report))
	two.until(`document.querySelector("svg") && document.querySelectorAll("table").length > 0 && document.body.innerText.includes("600")`)
	if n := eval[int](two, `document.querySelectorAll("script, link[href], iframe, img:not([src^='data:']), [src]:not([src^='data:'])").length`); n > 0 {
		b.Errorf("the report refers to %d other things", n)
	}
	two.mu.Lock()
	for _, url := range two.requests {
		if url != "file://"+report && !strings.HasPrefix(url, "data:") {
			b.Errorf("the report asks for %s", url)
		}
	}
	two.mu.Unlock()
	two.clean(report)
}

// files lets the browser write downloads into a folder, and returns the answer to the dialog of a file.
func (b *tab) files(dir string) (choose func(file string)) {
	b.Helper()
	allowed := protocol.SetDownloadBehaviorParams{Behavior: "allow", BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID, DownloadPath: dir}
	if _, err := chromedp.CallBrowser(b.ctx, protocol.SetDownloadBehavior, allowed); err != nil {
		b.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.SetInterceptFileChooserDialog, page.SetInterceptFileChooserDialogParams{Enabled: true})
		return err
	}))
	return func(file string) {
		b.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
			b.run(`1`)
			b.mu.Lock()
			field := b.chooser
			b.mu.Unlock()
			if field != 0 {
				b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
					_, err := cdp.Call(ctx, t, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: []string{file}, BackendNodeID: field})
					return err
				}))
				return
			}
			if time.Now().After(end) {
				b.Fatal("no dialog of a file opens")
			}
		}
	}
}

// mendConfig: the file is faulty, and the page says where; then it is mended, and put into force.
func mendConfig(b *tab, h hands, s *scene) {
	whole := read(b.T, s.file)
	show := func() {
		b.Helper()
		h.choose(b, "nav a", "Configuration")
		b.at("/ui/config")
	}
	show()
	b.says("The file is what runs.")
	s.configure(b.T, strings.NewReplacer("calls: 10000, window: 1s", "calls: -3, window: 1s", "concurrency: 1}", "concurency: 1}").Replace(whole))
	h.goTo(b, "o", "/ui/")
	show()
	b.says("The file has faults.")
	b.says("upstreams.alipay.limits[0]")
	b.says("concurency")
	if eval[bool](b, `Boolean(document.querySelector("main form[method=post]"))`) {
		b.Error("a faulty file can be reloaded")
	}
	b.good()
	if got := eval[string](b, `fetch("/ui/config", { method: "POST" }).then(async (r) => r.status + " " + await r.text())`); !strings.HasPrefix(got, "422") || !strings.Contains(got, "upstreams.alipay.limits[0]") {
		b.Errorf("a reload of the faulty file: %.300s", got)
	}
	s.configure(b.T, strings.Replace(whole, "calls: 10000, window: 1s", "calls: 9000, window: 1s", 1))
	h.goTo(b, "o", "/ui/")
	show()
	b.until(`[...document.querySelectorAll("main table tr")].some((e) => e.textContent.includes("limits") && e.textContent.includes("10000") && e.textContent.includes("9000"))`)
	h.choose(b, "button.primary", "Reload")
	b.says("The file is what runs.")
	b.at("/ui/config")
	b.until(`[...document.querySelectorAll("table.settings td code")].some((e) => e.textContent.trim() === "9000")`)
	if _, answer := s.ask(b.T, "GET", "/v1/upstreams/alipay/limits/app", nil); !strings.Contains(string(answer), `"permits":9000`) {
		b.Errorf("the limit is %s", answer)
	}
	b.clean("/ui/config")
}

// TestLogin: people with tokens log in, do what their role may, and log out.
func TestLogin(t *testing.T) {
	for name, h := range map[string]hands{"mouse": mouse{}, "keyboard": keyboard{}} {
		t.Run(name, func(t *testing.T) { login(t, h) })
	}
}

// people is a section of a configuration: a token for each of the roles.
func people(roles ...string) string {
	lines := "access:\n  tokens:\n"
	for _, role := range roles {
		lines += fmt.Sprintf("    - {name: %s-jo, role: %[1]s, sha256: %x}\n", role, sha256.Sum256([]byte(tokenOf(role))))
	}
	return lines
}

func tokenOf(role string) string { return "thr_canary_of_" + role }

func login(t *testing.T, h hands) {
	s := launch(t, "upstreams:\n  alipay:", people("viewer", "operator")+"upstreams:\n  alipay:")
	s.token = tokenOf("operator")
	id := s.submit(t, "/lost/refunds", body{"order": "20261122001", "refund": "R-88123", "key": "2021001"})
	s.reaches(t, id, "unknown")
	b := newTab(t, s.admin, desk)
	enter := func(token string) {
		b.Helper()
		h.write(b, "input[name=token]", token)
		h.choose(b, "main button.primary", "Log in")
	}
	b.open("/ui/decide")
	b.at("/ui/login")
	b.good()
	enter("thr_of_nobody")
	b.until(`document.querySelector(".refusal")`)
	b.says("the token is none of access.tokens")
	if eval[bool](b, `document.body.innerHTML.includes("thr_of_nobody")`) {
		t.Error("the page shows the token")
	}
	b.clean("/ui/login")

	enter(tokenOf("viewer"))
	b.at("/ui/decide")
	b.says("viewer-jo · viewer")
	b.says("R-88123")
	for _, path := range []string{"/ui/", "/ui/decide", "/ui/calls/" + id, "/ui/limits", "/ui/upstreams/alipay/limits/app", "/ui/config", "/ui/events", "/ui/system"} {
		b.open(path)
		if odd := eval[[]string](b, `[...document.querySelectorAll("main form[method=post], main a[href*='/ui/pause'], main a[href$='/resolve'], main a[href*='/resolve?'], main a[href*='/ask'], main a[href*='/retry'], main a[href*='/cancel'], nav a[href='/ui/plan'], nav a[href='/ui/audit']")].map((e) => e.outerHTML.slice(0, 100))`); len(odd) > 0 {
			t.Errorf("%s offers a viewer %s", path, odd)
		}
		b.clean(path)
	}
	forms := map[string]string{
		"/ui/calls/" + id + "/resolve": "outcome=done&attempt=1&reason=seen+nowhere",
		"/ui/calls/" + id + "/retry":   "attempt=1&reason=seen+nowhere&typed=R-88123",
		"/ui/calls/" + id + "/ask":     "reason=x",
		"/ui/pause":                    "upstream=alipay&for=10m&reason=xyz",
		"/ui/config":                   "",
		"/ui/plan":                     "load=settings&settings=rate%3D1%2Fs+for%3D10s",
	}
	for path, fields := range forms {
		if got := eval[int](b, `fetch($0, { method: "POST", body: new URLSearchParams($1) }).then((r) => r.status)`, path, fields); got != http.StatusForbidden {
			t.Errorf("the form of %s by a viewer: %d", path, got)
		}
		b.clean(path)
	}
	if c := s.get(t, id); c.State != "unknown" || len(c.Attempts) != 1 {
		t.Errorf("the call is %+v", c)
	}

	h.choose(b, "header form.me button", "Log out")
	b.at("/ui/login")
	b.open("/ui/calls/" + id)
	b.at("/ui/login")
	if got := eval[int](b, `fetch("/v1/calls").then((r) => r.status)`); got != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", got)
	}
	b.clean("/v1/calls")
	enter(tokenOf("operator"))
	b.at("/ui/calls/" + id)
	h.choose(b, "main .buttons a", "Decide")
	b.at("/ui/calls/" + id + "/resolve")
	h.choose(b, "input[name=outcome]", "It was executed")
	h.write(b, "textarea[name=reason]", "seen in the console")
	h.choose(b, "button.primary", "Record")
	b.at("/ui/calls/" + id)
	if c := s.get(t, id); c.State != "done" || !regexp.MustCompile(`\boperator-jo\b`).MatchString(fmt.Sprint(c.Decisions)) {
		t.Errorf("the call is %+v", c)
	}
	b.clean("/ui/calls/" + id)
}
