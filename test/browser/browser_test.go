package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	binary  string          // of the sidecar
	browser context.Context // the one process
	axe     string          // script
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	fail := func(format string, args ...any) int {
		fmt.Fprintf(os.Stderr, format+"; make browser installs what the tests need\n", args...)
		return 1
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		return fail("chromium is not installed: %v", err)
	}
	script, err := os.ReadFile("npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		return fail("axe-core is not installed: %v", err)
	}
	axe = string(script)
	dir, err := os.MkdirTemp("", "throttler-browser")
	if err != nil {
		return fail("%v", err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "throttler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/throttler")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return fail("building the sidecar: %v\n%s", err, out)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("disable-component-update", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var cancel context.CancelFunc
	browser, cancel = chromedp.NewContext(allocator)
	defer cancel()
	if err := chromedp.Do(browser); err != nil {
		return fail("starting chromium: %v", err)
	}
	defer func() {
		if running != nil {
			running.Close()
		}
	}()
	return m.Run()
}

// A tab is one of a browser profile of its own. It keeps a record of the faults that the
// browser reports, and of all requests.
type tab struct {
	*testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	faults   []string // errors of the console, violations of the policy, dialogs
	requests []string
	chooser  cdp.BackendNodeID // the field for a file that was opened last
}

// A look is how a page is looked at.
type look struct {
	language      string // en or zh-Hans
	theme         string // light or dark
	width, height int64
}

var (
	desk  = look{"en", "light", 1280, 800}
	phone = look{"zh-Hans", "light", 390, 844}
)

func (l look) String() string { return fmt.Sprintf("%s %s %d px", l.language, l.theme, l.width) }

// watch reports violations of the policy on the console, and a script of a hostile value.
const watch = `window.hit = () => console.error("a script of a value has run"); document.addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI + " " + e.sample));`

// newTab opens a tab. It is closed when the test ends.
func newTab(t *testing.T, origin string, l look) *tab {
	t.Helper()
	return open(t, browser, origin, l, chromedp.WithNewBrowserContext())
}

// sibling opens another tab of the same profile.
func (b *tab) sibling(l look) *tab { b.Helper(); return open(b.T, b.ctx, b.origin, l) }

func open(t *testing.T, parent context.Context, origin string, l look, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{T: t, origin: origin}
	ctx, cancel := chromedp.NewContext(parent, append(options, chromedp.WithListener(b.listen))...)
	t.Cleanup(cancel)
	b.ctx = ctx
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: "throttler_language", Value: l.language, URL: origin + "/ui/"})
		return err
	}))
	b.look(l)
	return b
}

// look changes the size and the colours of the page.
func (b *tab) look(l look) {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600})
		if err != nil {
			return err
		}
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// listen keeps the reports of the browser. It is called in the order of the events.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *page.EventFileChooserOpened:
		b.chooser = e.BackendNodeID
	case *page.EventJavascriptDialogOpening:
		b.faults = append(b.faults, "a dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, "an exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			text := ""
			for _, arg := range e.Args {
				text += string(arg.Value) + " "
			}
			b.faults = append(b.faults, "on the console: "+text)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			b.faults = append(b.faults, fmt.Sprintf("in the log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	}
}

// taken returns the faults that have been reported, and forgets them.
func (b *tab) taken() []string {
	b.run(`1`) // all that was reported before this answer has come
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	b.faults = nil
	return faults
}

// clean fails for each fault that the browser has reported. That a page itself was answered
// with an error, as a test wants it, is none.
func (b *tab) clean(where string) {
	b.Helper()
	for _, fault := range b.taken() {
		if !(strings.Contains(fault, "Failed to load resource: the server responded with a status of 4") && strings.HasSuffix(fault, where)) {
			b.Errorf("%s: %s", where, fault)
		}
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if chromedp.FromContext(b.ctx).Target == nil { // the first action opens the tab, which lives as long as its context
		ctx = b.ctx
	}
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// open shows a page of the sidecar.
func (b *tab) open(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.origin + path))
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string, args ...any) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script(expression, args...), chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// script returns an expression with its arguments: $0, $1 …
func script(expression string, args ...any) string {
	for i, arg := range args {
		text, _ := json.Marshal(arg)
		expression = strings.ReplaceAll(expression, fmt.Sprintf("$%d", i), string(text))
	}
	return expression
}

// run is eval for an expression whose value does not matter.
func (b *tab) run(expression string, args ...any) { b.Helper(); eval[any](b, expression, args...) }

// until waits until an expression is true of a page that is loaded.
func (b *tab) until(expression string, args ...any) {
	b.Helper()
	text := script(`document.readyState === "complete" && Boolean(`+expression+")", args...)
	for end := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](text))
		cancel()
		if err == nil && ok {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("it does not come true: %s (%v)\n%s\n%s", text, err, eval[string](b, `location.href`), eval[string](b, `document.body.innerText`))
		}
	}
}

// at waits until the page at a path is loaded.
func (b *tab) at(path string) {
	b.Helper()
	b.until(`location.pathname === $0`, path)
}

// says waits until the page has a text.
func (b *tab) says(text string) {
	b.Helper()
	b.until(`document.body.innerText.replace(/[\u2068\u2069]/g, "").includes($0)`, text)
}

// pick is the function that finds an element by a selector and the beginning of its text, or
// of that of its label.
const pick = `((selector, text) => [...document.querySelectorAll(selector)].find((e) => ((e.labels?.[0] ?? e).textContent.trim()).startsWith(text)))($0, $1)`

// key presses keys, one after the other, as a keyboard does: a page that takes a key gets no
// character.
func (b *tab) key(keys string) {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			events := kb.Encode(r)
			for _, e := range events {
				if e.Type == kb.KeyChar {
					continue
				}
				if e.Type != kb.KeyUp && len(events) == 3 {
					e.Text = events[1].Text
				}
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *e); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// click clicks an element with the mouse.
func (b *tab) click(selector, text string, options ...chromedp.MouseOption) {
	b.Helper()
	b.until(pick, selector, text)
	at := eval[[]float64](b, `(() => {
		const e = `+pick+`;
		if (!e) return null; // a page has come
		e.scrollIntoView({ block: "center" });
		const r = (e.getClientRects()[0]);
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector, text)
	if at == nil {
		b.click(selector, text, options...)
		return
	}
	b.do(chromedp.MouseClickXY(at[0], at[1], options...))
}

// Hands are a way to use a page: the mouse, or the keyboard alone.
type hands interface {
	// choose follows a link, presses a button or checks a box.
	choose(b *tab, selector, text string)
	// write writes into a field.
	write(b *tab, selector, text string)
	// find writes into the box at the top, and sends it.
	find(b *tab, text string)
	// goTo goes to a page of the menu: o, d, c, l, e or p.
	goTo(b *tab, letter, path string)
}

type mouse struct{}

func (mouse) choose(b *tab, selector, text string) { b.Helper(); b.click(selector, text) }

func (mouse) write(b *tab, selector, text string) {
	b.Helper()
	b.click(selector, "", chromedp.ClickCount(3)) // the text that is there is replaced
	b.until(`document.activeElement?.matches($0)`, selector)
	b.do(insert(text))
}

func (m mouse) find(b *tab, text string) {
	b.Helper()
	m.write(b, "#find", text)
	b.key(kb.Enter)
}

func (mouse) goTo(b *tab, _, path string) {
	b.Helper()
	b.click(fmt.Sprintf("nav a[href=%q]", path), "")
	b.at(path)
}

// insert writes a text as a keyboard of any language does.
func insert(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return err
	})
}

type keyboard struct{}

// reach presses Tab until the focus is on an element. Of radio buttons, Tab reaches one of a group.
func (keyboard) reach(b *tab, selector, text string) {
	b.Helper()
	b.until(pick, selector, text)
	focused := `((e) => Boolean(e) && (e === document.activeElement || e.type === "radio" && e.name === document.activeElement.name))(` + pick + `)`
	for range 150 {
		if eval[bool](b, focused, selector, text) {
			if visible := eval[bool](b, `document.activeElement.matches(":focus-visible") && (({width, height}) => width > 1 && height > 1)(document.activeElement.getBoundingClientRect())`); !visible {
				b.Errorf("the focus on %s %q is not seen", selector, text)
			}
			return
		}
		b.key(kb.Tab)
	}
	b.Fatalf("Tab does not reach %s %q", selector, text)
}

func (k keyboard) choose(b *tab, selector, text string) {
	b.Helper()
	k.reach(b, selector, text)
	switch eval[string](b, `document.activeElement.type ?? ""`) {
	case "radio":
		for range 10 {
			if eval[bool](b, `((e) => e === document.activeElement)(`+pick+`)`, selector, text) {
				break
			}
			b.key(kb.ArrowDown)
		}
		b.key(" ")
	case "checkbox":
		b.key(" ")
	default:
		b.key(kb.Enter)
	}
}

func (k keyboard) write(b *tab, selector, text string) {
	b.Helper()
	k.reach(b, selector, "")
	b.do(insert(text))
}

func (keyboard) find(b *tab, text string) {
	b.Helper()
	b.key("/")
	b.until(`document.activeElement?.id === "find"`)
	b.do(insert(text))
	b.key(kb.Enter)
}

func (keyboard) goTo(b *tab, letter, path string) {
	b.Helper()
	b.key("g" + letter)
	b.at(path)
}
