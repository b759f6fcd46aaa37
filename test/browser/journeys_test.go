package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// Journeys of a person, each with the mouse and with the keyboard alone. TestLogin has the one of
// the login, whose sidecar knows its callers.
var journeys = []struct {
	name  string
	looks []look
	walk  func(*tab, hands, *scene)
}{
	{"alert to decision", []look{desk, phone}, decide},
	{"find a refund", []look{desk, phone}, find},
	{"why it waits, and cancel", []look{desk}, whyAndCancel},
	{"cancel several", []look{desk}, cancelSeveral},
	{"pause and resume", []look{desk}, pauseAndResume},
	{"what if", []look{desk, phone}, whatIf},
	{"plan a file", []look{desk}, planUpload},
	{"mend the configuration", []look{desk}, mendConfig},
}

func TestJourneys(t *testing.T) {
	for _, j := range journeys {
		walk := func(name string, l look, h hands, store func(*testing.T) string) {
			t.Run(j.name+"/"+name+"/"+l.String(), func(t *testing.T) {
				s := newSceneOver(t, store(t))
				b := newTab(t, s.admin, l)
				b.open("/ui/")
				j.walk(b, h, s)
				b.clean(eval[string](b, `location.pathname`))
			})
		}
		for _, l := range j.looks {
			walk("mouse", l, mouse{}, inFile)
			walk("keyboard", l, keyboard{}, inFile)
		}
		walk("mouse, PostgreSQL", j.looks[0], mouse{}, inDatabase)
	}
}

// words are texts of the pages in the language of a tab.
func words(b *tab, en, zh string) string {
	b.Helper()
	if eval[string](b, `document.documentElement.lang`) == "en" {
		return en
	}
	return zh
}

// decide: a person sees the alert, and decides the oldest call as done.
func decide(b *tab, h hands, s *scene) {
	id := s.calls["unknown"]
	b.says(words(b, "2 calls may have been executed and wait for a person", "有 2 个调用可能已执行，等待人工处理"))
	b.says("R-88123")
	h.choose(b, ".alert.urgent a", words(b, "Decide", "处理"))
	b.at("/ui/decide")
	b.says(words(b, "A repeat is not safe: it may be executed twice", "重复发送不安全：可能被执行两次"))
	h.choose(b, "#call-"+id+" a.primary", words(b, "Decide", "处理"))
	b.at("/ui/calls/" + id + "/resolve")
	b.says(words(b, "What does alipay say about attempt 1?", "alipay 侧第 1 次尝试的结果是？"))
	h.choose(b, "input[name=outcome]", words(b, "It was executed", "已执行"))
	h.write(b, "textarea[name=reason]", "商户后台 22 Nov: R-88123 已退款")
	h.choose(b, "form.fields button.primary", words(b, "Record", "记录"))
	b.at("/ui/calls/" + id)
	b.says(words(b, "Recorded.", "已记录。"))
	b.says(words(b, "Refund R-88123 of order 20261122001 was executed by alipay", "订单 20261122001 的退款 R-88123 已由 alipay 执行"))
	h.choose(b, ".did a", words(b, "One call is still to decide", "还有 1 个调用待人工处理"))
	b.at("/ui/decide")
	b.until(`!document.getElementById($0)`, "call-"+id)
	b.until(`document.querySelector("header .decide b").textContent === "1"`)
	c := s.get(b.T, id)
	if c.State != "done" || len(c.Decisions) != 1 || c.Decisions[0].As != "done" || c.Decisions[0].Reason != "商户后台 22 Nov: R-88123 已退款" {
		b.Errorf("the call is %+v", c)
	}
}

// find: a person of support finds a refund by its number, and reads a sentence about it.
func find(b *tab, h hands, s *scene) {
	h.find(b, "R-88123")
	b.at("/ui/calls/" + s.calls["unknown"])
	b.says(words(b, "Refund R-88123 of order 20261122001 was sent to alipay", "订单 20261122001 的退款 R-88123 于"))
	b.says(words(b, "it may have been executed. A person has to decide. It is not lost, and is not sent again without that.", "可能已执行。需人工处理。没有丢失，未经处理不会再次发送。"))
	h.find(b, "R-0")
	b.at("/ui/calls")
	b.says(words(b, "No call has the number, id, idempotency key or limit key “R-0”", "没有调用的业务号、ID、幂等键或限额键为“R-0”"))
}

// whyAndCancel: a person asks why a call waits, and takes it back.
func whyAndCancel(b *tab, h hands, s *scene) {
	id := s.calls["waiting"]
	h.goTo(b, "c", "/ui/calls")
	h.choose(b, "#call-"+id+" th a", "refund R-88140")
	b.at("/ui/calls/" + id)
	b.says("All permits of limit refund, key 2021001 are out")
	b.until(`[...document.querySelectorAll(".permits li")].some((e) => e.textContent.includes("refund") && e.textContent.includes("holds it back"))`)
	h.choose(b, "main .buttons a", "Cancel")
	b.at("/ui/calls/" + id + "/cancel")
	h.write(b, "textarea[name=reason]", "ordered twice")
	h.choose(b, "button.danger", "Cancel")
	b.at("/ui/calls/" + id)
	b.says("Refund R-88140 of order 20261122077 was cancelled")
	if c := s.get(b.T, id); c.State != "cancelled" {
		b.Errorf("the call is %+v", c)
	}
}

// cancelSeveral: a person chooses two calls of a list, and takes them back together.
func cancelSeveral(b *tab, h hands, s *scene) {
	h.goTo(b, "c", "/ui/calls")
	for _, name := range []string{"waiting", "later"} {
		h.choose(b, fmt.Sprintf(`[id="call-%s"] .pick input`, s.calls[name]), "")
	}
	h.choose(b, "main form button:not(.primary)", "Cancel those that are chosen")
	b.at("/ui/bulk")
	b.says("Cancel 2 calls")
	h.write(b, "textarea[name=reason]", "the shop has closed")
	h.choose(b, "button.danger", "Cancel 2 calls")
	b.at("/ui/calls")
	for _, name := range []string{"waiting", "later"} {
		if c := s.get(b.T, s.calls[name]); c.State != "cancelled" {
			b.Errorf("the call is %+v", c)
		}
	}
}

// pauseAndResume: a person pauses an upstream, sees it on the overview, and ends the pause; and
// the same with a key of a limit.
func pauseAndResume(b *tab, h hands, s *scene) {
	// pauses returns those that the person has made: the scene has paused wechat and a key.
	pauses := func() (ids []string) {
		var all struct {
			Pauses []struct{ ID, Upstream, Key string }
		}
		if status, answer := s.ask(b.T, "GET", "/v1/pauses", nil); status != http.StatusOK || json.Unmarshal(answer, &all) != nil {
			b.Fatalf("%d %s", status, answer)
		}
		for _, p := range all.Pauses {
			if p.Upstream == "alipay" && p.Key != "2021003" {
				ids = append(ids, p.ID)
			}
		}
		return ids
	}
	resume := func(what string) {
		b.Helper()
		ids := pauses()
		if len(ids) != 1 {
			b.Fatalf("%s: the pauses are %q", what, ids)
		}
		h.choose(b, fmt.Sprintf(`[id="pause-%s"] button`, ids[0]), "Resume"+what)
		b.until(`location.pathname === "/ui/limits" && !document.getElementById($0)`, "pause-"+ids[0])
		if ids := pauses(); len(ids) != 0 {
			b.Errorf("%s: the pauses are %q", what, ids)
		}
	}
	h.goTo(b, "l", "/ui/limits")
	h.choose(b, "main a.button", "Pause alipay")
	b.at("/ui/pause")
	h.write(b, "input[name=for]", "10m")
	h.write(b, "textarea[name=reason]", "the platform is ill")
	h.choose(b, "button.primary", "Pause alipay")
	b.at("/ui/limits")
	b.says("the platform is ill")
	h.goTo(b, "o", "/ui/")
	b.says("alipay is paused by local access")
	b.says("the platform is ill, and goes on in")
	h.goTo(b, "l", "/ui/limits")
	resume(" alipay")

	h.choose(b, "main th a", "alipay / refund")
	b.at("/ui/upstreams/alipay/limits/refund")
	h.choose(b, `[id="key-2021001"] a.button`, "Pause 2021001")
	b.at("/ui/pause")
	h.write(b, "input[name=for]", "1h")
	h.choose(b, "button.primary", "Pause alipay / refund / 2021001")
	b.at("/ui/limits")
	resume(" alipay refund 2021001")
}
