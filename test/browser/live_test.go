package browser

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// TestLive holds that a page which is sent anew keeps its elements, the focus, a text
// that is being written and a selection, while 50 calls a second come; and that it tells of a sidecar that was
// killed, and catches up with the one that is started on its port.
func TestLive(t *testing.T) {
	s := newScene(t)
	s.configure(t, strings.Replace(read(t, s.file), "admin: 127.0.0.1:0", "admin: "+strings.TrimPrefix(s.admin, "http://"), 1))
	b, stop := newTab(t, s.admin, desk), s.load(t, 50)
	for _, path := range []string{"/ui/", "/ui/decide", "/ui/calls/" + s.calls["unknown"], "/ui/limits"} {
		b.open(path)
		b.run(`window.all = [...document.querySelectorAll("#page *")], window.changes = 0,
			new MutationObserver(() => { window.changes++ }).observe(document.getElementById("page"), { subtree: true, childList: true, characterData: true }), 1`)
		b.until(`window.changes >= 2`)
		if gone := eval[[]string](b, `all.filter((e) => !e.isConnected).map((e) => e.outerHTML.slice(0, 80))`); len(gone) > 0 {
			t.Errorf("%s: elements were replaced: %q", path, gone)
		}
	}
	b.open("/ui/upstreams/alipay/limits/app")
	b.until(`document.getElementById("connection").dataset.state === "live"`)
	m := mouse{}
	m.write(b, "#find", "R-88")
	b.run(`window.changes = 0, window.field = document.activeElement, field.setSelectionRange(1, 3),
		new MutationObserver(() => { window.changes++ }).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true }), 1`)
	b.until(`window.changes >= 3`)
	if got := eval[string](b, `[document.activeElement === field, field.isConnected, field.value, field.selectionStart, field.selectionEnd].join()`); got != "true,true,R-88,1,3" {
		t.Errorf("the field is %s", got)
	}
	b.run(`getSelection().selectAllChildren(document.querySelector("h1")), window.changes = 0, 1`)
	b.until(`window.changes >= 3`)
	if got := eval[string](b, `String(getSelection())`); got != "alipay / app" {
		t.Errorf("the selection is %q", got)
	}
	// A hidden field is of the server: it is written anew.
	b.open("/ui/limits")
	b.run(`document.querySelector("[id^=pause-] input[type=hidden]").value = "x", 1`)
	b.until(`document.querySelector("[id^=pause-] input[type=hidden]").value !== "x"`)
	// A list under the keyboard: the focus stays on its link while rows come above it.
	b.open("/ui/calls?upstream=alipay")
	keyboard{}.reach(b, "tbody th a", "order L-")
	b.run(`window.row = document.activeElement.closest("tr").id, window.changes = 0,
		new MutationObserver(() => { window.changes++ }).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true }), 1`)
	b.until(`window.changes >= 2 || !document.getElementById(row)`)
	if !eval[bool](b, `!document.getElementById(row) || document.activeElement.closest("tr")?.id === row`) {
		t.Error("the focus has left its row")
	}
	b.clean("/ui/calls?upstream=alipay")

	b.open("/ui/")
	b.until(`document.getElementById("connection").dataset.state === "live"`)
	stopped(b)
	sent := stop()
	s.stop(syscall.SIGKILL)
	b.until(`document.getElementById("connection").dataset.state === "lost" && document.getElementById("connection").textContent.startsWith("Connection lost; this page is of")`)
	start := time.Now()
	s.start(t)
	ready := time.Now()
	b.until(`document.getElementById("connection").dataset.state === "live"`)
	if c := s.get(t, s.calls["later"]); c.State != "waiting" {
		t.Errorf("a call after kill -9: %+v", c)
	}
	if status, answer := s.ask(t, "POST", "/v1/calls/"+s.calls["later"]+"/cancel", map[string]string{}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	put := s.submit(t, "/lost", body{"order": "AFTER-1", "key": "2021001"})
	s.reaches(t, put, "unknown")
	b.says("may have been executed and wait for a person")
	b.until(`document.querySelector("header .decide b").textContent >= "3"`)
	caught := time.Since(ready)
	t.Logf("%d calls in the load; after kill -9 ready in %v, and the page had caught up %v later", sent, ready.Sub(start).Round(time.Millisecond), caught.Round(time.Millisecond))
	if caught > 6*time.Second {
		t.Errorf("the page needed %v to catch up", caught)
	}
}

// stopped stops the page, and lets it follow itself anew, twice: it has one source, stays stopped,
// and says so.
func stopped(b *tab) {
	b.Helper()
	b.run(`window.sources = [], window.EventSource = class extends EventSource { constructor(url) { super(url); sources.push(this); } }, 1`)
	b.key(".")
	b.until(`document.getElementById("connection").textContent === "Stopped by you; press . to go on"`)
	b.run(`document.dispatchEvent(new Event("visibilitychange")), document.dispatchEvent(new Event("visibilitychange")), 1`)
	b.until(`sources.some((s) => s.readyState === EventSource.OPEN)`)
	if got := eval[string](b, `[sources.length, sources.filter((s) => s.readyState !== EventSource.CLOSED).length, document.getElementById("connection").dataset.state].join()`); got != "2,1,paused" {
		b.Errorf("sources that were made, those that are open, and the state: %s", got)
	}
	b.key(".")
	b.until(`document.getElementById("connection").textContent === "Live"`)
}

// TestKeys: a person sees the keys, turns them off, and on again.
func TestKeys(t *testing.T) {
	s := launch(t)
	for _, l := range []look{desk, phone} {
		b := newTab(t, s.admin, l)
		b.open("/ui/")
		b.key("?")
		b.until(`document.querySelector("dialog").open && document.activeElement.closest("dialog")`)
		b.good()
		k := keyboard{}
		k.choose(b, "dialog input", "")
		b.key(kb.Escape)
		b.until(`!document.querySelector("dialog").open`)
		b.open("/ui/calls")
		b.key("?gl")
		if eval[bool](b, `document.querySelector("dialog").open || location.pathname !== "/ui/calls"`) {
			t.Error("keys that are off are taken")
		}
		k.choose(b, "button.shortcuts", "")
		k.choose(b, "dialog input", "")
		k.choose(b, "dialog button", "")
		b.until(`!document.querySelector("dialog").open`)
		k.goTo(b, "l", "/ui/limits")
		b.clean("/ui/limits")
	}
}

// read returns the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// load submits so many calls a second until stop, which returns their number.
func (s *sidecar) load(t *testing.T, perSecond int) (stop func() int) {
	done, n := make(chan struct{}), 0
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			n++
			s.submit(t, "/pay", body{"order": fmt.Sprintf("L-%d", n), "key": fmt.Sprintf("load-%d", n%5)})
		}
	})
	end := sync.OnceFunc(func() { close(done); running.Wait() })
	t.Cleanup(end)
	return func() int { end(); return n }
}
