package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile returns 200 values that a client, a platform or a person may send.
func hostile() []string {
	all := []string{
		`<script>hit()</script>`, `<img src=x onerror=hit()>`, `<svg onload=hit()>`, `<iframe srcdoc="<script>parent.hit()</script>">`, `<body onload=hit()>`, `<math><mi xlink:href="javascript:hit()">x`,
		`<a href="javascript:hit()">x</a>`, `<details open ontoggle=hit()>`, `<input autofocus onfocus=hit()>`, `<style>*{display:none}</style>`, `<base href=//evil.example>`, `<meta http-equiv=refresh content="0;url=//evil.example">`,
		`<form action=//evil.example><button>x</button></form>`, `<object data=javascript:hit()>`, `<embed src=javascript:hit()>`, `<template><script>hit()</script></template>`, `<noscript><img src=x onerror=hit()></noscript>`, `<plaintext>`, `<xmp>`, `<!-- `, `--><script>hit()</script>`,
		`]]><script>hit()</script>`, `</textarea><script>hit()</script>`, `</title><script>hit()</script>`, `</script><script>hit()</script>`, `</time><img src=x onerror=hit()>`, `"><script>hit()</script>`, `'><script>hit()</script>`, `" onmouseover="hit()`, `' onmouseover='hit()`, "` onmouseover=hit()", `x" autofocus onfocus="hit()`,
		`javascript:hit()`, `JaVaScRiPt:hit()`, `java	script:hit()`, `data:text/html,<script>hit()</script>`, `vbscript:hit()`, `//evil.example/`, `\\evil.example\x`, `https://evil.example/`, `file:///etc/passwd`, `blob:https://evil.example/1`,
		`{{.Info}}`, `{{template "page" .}}`, `{{"<script>hit()</script>" | safe}}`, `${hit()}`, `#{hit()}`, `<%= hit() %>`, `{% raw %}`, `[[${hit()}]]`, `%(x)s`, `%s%s%n`, `%d`, `$0`, `$(hit)`, "`hit`",
		`=HYPERLINK("//evil.example","x")`, `=cmd|'/c calc'!A1`, `+1+1`, `-1+1`, `@SUM(1)`, "\t=1+1", "\r=1+1",
		`null`, `undefined`, `NaN`, `Infinity`, `true`, `false`, `0`, `-0`, `1e309`, `0x10`, `[]`, `{}`, `[object Object]`, `__proto__`, `constructor`, `toString`, `None`, `nil`, `NULL`, `''`, `""`,
		`' OR 1=1 --`, `'; DROP TABLE calls; --`, `*`, `?`, `%`, `_`, `\`, `/`, `..`, `../../etc/passwd`, `%00`, `%2e%2e%2f`, `a?b#c&d=e`, `a;b`, `a,b`, `a|b`, `~`, `&lt;script&gt;`, `&amp;`, `&#x3c;script&#x3e;`, `&NewLine;`, `<b>bold</b>`,
		"R-1\u202e321", "\u202dabc", "\u202aabc\u202c", "\u2066abc\u2069", "\u2067abc", "\u200fabc", "\u200eabc", "\u061cabc", "\u2068x\u2069", "a\u200bb", "a\u200cb", "a\u200db", "a\u2060b", "\ufeffx", "a\u00adb", "a\u034fb", "\u3164", "\u115f\u1160", "\uffa0", "\u2800", "a\u2028b", "a\u2029b", "a\u0085b", "a\u00a0b", "a\u3000b", "a\ufe0f", "\U000e0041\U000e0042", "\U000e0001", "\ue000", "\ufff9a\ufffb", "\ufffd", "\U0001d173",
		"a\nb", "a\r\nb", "a\tb", "a\vb", "a\x1b[31mred", "a\x07b", "a\x08b", "a\x7fb", "a\u0001b", "e\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301", "\u0301x", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334",
		"אבג 123", "مرحبا 456", "123 אבג (x)", "עברית<b>", "R-1 ב", "😀", "👩‍👩‍👧‍👦", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️", "🇨🇳", "𝕏𝖞", "ﬀ", "İi̇", "ß", "ǅ", "Ω≈ç√∫", "部落格", "社會科學院", "田中さん", "울란바토르", "ก็็็็็็", "ค้้้ຸ", "Ṱ̺̺̕o͞ ̷", "１２３", "①", "½", "−1", "аdmin", "pаypal", "ｓｃｒｉｐｔ", "＜script＞hit()＜/script＞",
		strings.Repeat("A", 119), strings.Repeat("B", 121), strings.Repeat("W", 500), strings.Repeat("汉", 130), strings.Repeat("a b ", 60), strings.Repeat("<i>", 50), strings.Repeat("\u202e", 30), strings.Repeat("😀", 125), strings.Repeat("-", 200), strings.Repeat("x\u0301", 100),
		" leading", "trailing ", "  ", "a  b", "id=page", "main", "find", "connection", "page", "filter",
	}
	for i := 0; len(all) < 200; i++ {
		all = append(all, fmt.Sprintf(`<img src=x%d onerror=hit()>`+"\u202e", i))
	}
	return all[:200]
}

// injected returns the faults of a page: elements and handlers that were
// made of a text, links that lead away, and characters that are not seen or turn the text.
const injected = `(() => {
	const odd = [];
	for (const e of document.querySelectorAll("*")) {
		const name = e.localName;
		if (["img", "iframe", "object", "embed", "base", "style", "template", "math", "noscript", "plaintext", "xmp", "audio", "video", "b-i", "i"].includes(name)) odd.push("<" + name + ">");
		if (name === "script" && !e.src.startsWith(location.origin + "/ui/static/")) odd.push("a script");
		for (const a of e.attributes) {
			if (a.name.startsWith("on") || a.name === "style" || a.name === "srcdoc") odd.push(name + " " + a.name);
			if (["href", "src", "action"].includes(a.name) && !new URL(a.value, location.href).href.startsWith(location.origin + "/")) odd.push(a.name + "=" + a.value);
		}
	}
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walker.nextNode());) {
		const bad = n.data.match(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029\u2800\u3164\u115f\u1160\uffa0\u034f\ufe0f]/gu)?.filter((c) => !"\n\u2068\u2069".includes(c));
		if (bad?.length) odd.push("U+" + bad[0].codePointAt(0).toString(16) + " in " + JSON.stringify(n.data.slice(0, 60)));
	}
	if (document.documentElement.scrollWidth > 390) odd.push("it is " + document.documentElement.scrollWidth + " px wide: " + [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > 391).slice(-1).map((e) => e.outerHTML.slice(0, 120)));
	return odd;
})()`

// TestHostileValues holds that 200 hostile values are text on every page that shows them: as
// business number, key, flow, path, idempotency key, reason of a decision, reason of a pause
// and answer of the platform.
func TestHostileValues(t *testing.T) {
	s := launch(t)
	values := hostile()
	if n := len(values); n != 200 || slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
		t.Fatalf("%d values", n)
	}
	b := newTab(t, s.admin, look{"en", "light", 390, 844})
	b.open("/ui/")
	where := func(what, value string) string { return fmt.Sprintf("%s %.60q", what, value) }
	check := func(what string) {
		b.Helper()
		for _, odd := range eval[[]string](b, injected) {
			b.Errorf("%s: %s", what, odd)
		}
		b.clean(what)
	}
	ids, pauses := make(map[string]string), 0
	for _, v := range values {
		in := map[string]any{"upstream": "alipay", "method": "POST", "target": "/lost/" + url.PathEscape(strings.TrimLeft(v, "/.\\")), "idempotency_key": v, "headers": map[string]string{"Content-Type": "application/json"}}
		content, _ := json.Marshal(body{"order": v, "refund": v, "key": v, "flow": v})
		in["body"] = string(content)
		status, answer := s.ask(t, "POST", "/v1/calls", in)
		for _, plainer := range []string{"idempotency_key", "target"} { // some are no key, or no path
			if status != http.StatusAccepted {
				in[plainer] = map[string]string{"idempotency_key": "", "target": "/lost/x"}[plainer]
				status, answer = s.ask(t, "POST", "/v1/calls", in)
			}
		}
		var c call
		if json.Unmarshal(answer, &c); status == http.StatusAccepted {
			ids[v] = c.ID
		} else if status < 400 || status >= 500 {
			t.Errorf("%s: %d %s", where("submission", v), status, answer)
		}
		reason := v
		if n := utf8.RuneCountInString(reason); n > 400 {
			reason = string([]rune(reason)[:400])
		}
		if status, _ := s.ask(t, "POST", "/v1/pauses", map[string]string{"upstream": "alipay", "limit": "app", "key": v, "for": "2h", "reason": reason}); status < 300 {
			pauses++
		}
	}
	decided := 0
	for v, id := range ids {
		s.until(t, id, "unknown or waiting", func(c call) bool { return c.State == "unknown" || c.State == "waiting" })
		if status, _ := s.ask(t, "POST", "/v1/calls/"+id+"/resolve", map[string]any{"outcome": "failed", "attempt": 1, "reason": v + " 123"}); status == http.StatusOK {
			decided++
		}
	}
	shown := 0
	for v, id := range ids {
		b.open("/ui/calls/" + id)
		check(where("call", v))
		if plain := strings.TrimSpace(v); len(plain) > 2 && plain == v && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) && len(v) <= 120 {
			shown++
			if !eval[bool](b, `document.querySelector("h1").textContent.includes("Refund " + $0 + " of order " + $0)`, v) {
				t.Errorf("%s is not shown as it is: %s", where("call", v), eval[string](b, `document.querySelector("h1").textContent`))
			}
		}
	}
	for v := range ids { // in the box, and in the fields of the filter
		b.open("/ui/calls?" + url.Values{"q": {v}}.Encode())
		check(where("search", v))
	}
	for _, path := range []string{"/ui/", "/ui/decide", "/ui/limits", "/ui/upstreams/alipay/limits/app", "/ui/events", "/ui/refusals", "/ui/audit", "/ui/plan"} {
		b.open(path)
		check(path)
	}
	pages := 0
	for b.open("/ui/calls"); ; pages++ {
		check("list of calls")
		if !eval[bool](b, `Boolean(document.querySelector("a[rel=next]"))`) {
			break
		}
		b.click("a[rel=next]", "")
		b.until(`location.search.includes("cursor")`)
	}
	for mark, text := range map[string]string{"⟦U+202E⟧": "R-1\u202e321", "⟦U+001B⟧": "a\x1b[31mred", "⟦U+200B⟧": "a\u200bb"} {
		if id := ids[text]; id == "" {
			t.Errorf("%q was refused", text)
		} else if b.open("/ui/calls/" + id); !eval[bool](b, `document.querySelector("h1").textContent.includes($0)`, mark) {
			t.Errorf("%q is shown as %s", text, eval[string](b, `document.querySelector("h1").textContent`))
		}
	}
	t.Logf("%d hostile values: %d calls, %d pauses, %d decisions; %d shown as they are", len(values), len(ids), pauses, decided, shown)
	if len(ids) < 150 || pauses < 150 || shown < 50 {
		t.Errorf("too few: %d calls, %d pauses, %d shown", len(ids), pauses, shown)
	}
}
