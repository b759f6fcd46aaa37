package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cast"
	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/retryafter"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A row is a case with its platform. Rows share an upstream if they need the same one. Their
// requests have the number of the row in a header, and so have queries about them.
type row struct {
	config.Case
	preset   string
	upstream string
	platform *cases.Platform
	id       string // of its call
}

const numberOfRow = "X-Row"

// kind tells apart the upstreams that rows need.
func (r *row) kind(n int) string {
	i := r.Upstream.Idempotency
	kind := fmt.Sprint(r.preset, r.Signed, r.Query != nil, r.asksAtOnce(), len(r.Exchanges) > 0, r.dials(), i.Header, " ", i.Field)
	if r.Second != nil || r.paces() || len(r.With) > 0 { // with the numbers of other rows, a pause for all calls, or keys of its own
		kind += fmt.Sprint(" ", n)
	}
	return kind
}

// naming has the names of upstreams by their kinds.
type naming map[string]string

func (n naming) of(kind string) string {
	if n[kind] == "" {
		n[kind] = fmt.Sprintf("u%d", len(n))
	}
	return n[kind]
}

// asksAtOnce reports whether a row is about its query alone. Repeats before it would wait for
// their budget.
func (r *row) asksAtOnce() bool { return r.QueryTo != "" && r.Then == "" }

// paces reports whether the platform of a row limits, or says when a call may come again: calls of
// other rows would wait.
func (r *row) paces() bool {
	limits := func(a config.Answer) bool {
		_, told := retryafter.Remaining(a.Header)
		return a.Status == http.StatusTooManyRequests || told || retryafter.Wait(a.Header, time.Now(), true) > 0
	}
	return r.Outcome == upstream.NotExecuted || r.Answer != nil && limits(*r.Answer) ||
		slices.ContainsFunc(r.Exchanges, func(e config.Exchange) bool { return limits(e.Answer) })
}

// dials reports whether a row has no upstream that can be reached.
func (r *row) dials() bool { return r.Answer != nil && r.Answer.Error == "dial" }

// rowsOfPresets returns the cases of all presets that exchange something. Only the times
// between exchanges are left to pkg/config: here they are short.
func rowsOfPresets(t *testing.T) (rows []*row) {
	names := make(naming)
	for _, preset := range config.Presets() {
		text, err := config.PresetCases(preset)
		if err != nil {
			t.Fatal(err)
		}
		all, err := config.ParseCases(preset, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Outcome == "" && c.Then == "" && c.QueryTo == "" && c.Decides == "" && c.Becomes == "" && len(c.Exchanges) == 0 {
				continue // names alone
			}
			if c.Second != nil && c.Becomes == "" {
				continue // a cancel: see TestCancelEndsThePayment, where queries are not faster than it
			}
			c.After = 0
			for i := range c.Exchanges {
				c.Exchanges[i].After = 0
			}
			if c.Then == "alone" { // other calls of the upstream show the difference
				c.Then = "again"
			}
			r := &row{Case: c, preset: preset}
			if r.paces() || r.dials() { // waits that cannot be made short
				r.Then = ""
			}
			r.platform = cases.NewPlatform(r.Case)
			r.upstream = names.of(r.kind(len(rows)))
			for _, q := range []*upstream.Request{c.Request, c.Second} {
				if q != nil {
					q.Header.Set(numberOfRow, strconv.Itoa(len(rows)))
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// ServeHTTP answers as the platform of a row.
func (r *row) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, target, _ := strings.Cut(q.RequestURI[1:], "/") // behind the upstream
	a := r.platform.Take(q.Method, "/"+target, body)
	r.platform.Paused()
	if to := a.Header.Get("Location"); strings.HasPrefix(to, "/") {
		a.Header = a.Header.Clone()
		a.Header.Set("Location", "/upstream"+to)
	}
	reply(w, a)
}

// reply gives an answer, or closes the connection.
func reply(w http.ResponseWriter, a config.Answer) {
	if a.Error != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok && a.Error == "reset" {
			tcp.SetLinger(0)
		}
		conn.Close()
		return
	}
	w.Header()["Content-Type"] = nil // else net/http guesses one
	for name := range a.Header {
		w.Header().Set(name, a.Header.Get(name))
	}
	w.WriteHeader(a.Status)
	w.Write(a.Body)
}

// hasten makes all waits of a preset one short one.
func hasten(v any, wait string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			switch key {
			case "after", "every", "for", "min", "max":
				v[key] = wait
			default:
				v[key] = hasten(value, wait)
			}
		}
	case []any:
		for i := range v {
			v[i] = hasten(v[i], wait)
		}
	}
	return v
}

// hastenedPreset returns a preset with short waits.
func hastenedPreset(t *testing.T, preset, wait string) (doc map[string]any) {
	t.Helper()
	text, err := config.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	hasten(doc, wait)
	return doc
}

// quickQueries returns the queries of a preset as lines of an upstream, with short waits, and
// more queries than a test needs.
func quickQueries(t *testing.T, preset string) string {
	t.Helper()
	queries := hastenedPreset(t, preset, "100ms")["resolve"]
	for _, q := range queries.([]any) {
		q.(map[string]any)["queries"] = 10000
	}
	text, err := yaml.Marshal(map[string]any{"resolve": queries})
	if err != nil {
		t.Fatal(err)
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ") + "\n"
}

// numberQueries gives the queries of an upstream the number of the row, and short waits.
func numberQueries(keys map[string]any) {
	for _, r := range cast.ToSlice(keys["resolve"]) {
		query := r.(map[string]any)
		headers := cast.ToStringMap(query["headers"])
		headers[numberOfRow] = fmt.Sprintf("header(%q)", numberOfRow)
		query["headers"], query["after"], query["every"] = headers, "1ms", "1ms"
	}
}

// hastened returns the keys of a preset that have waits, with short ones. Its queries have the
// number of the row.
func hastened(t *testing.T, preset string) (keys map[string]any) {
	t.Helper()
	doc := hastenedPreset(t, preset, "1ms")
	numberQueries(doc)
	keys = make(map[string]any)
	for _, key := range []string{"outcomes", "proof", "resolve", "retry"} {
		if doc[key] != nil {
			keys[key] = doc[key]
		}
	}
	cast.ToStringMap(keys["retry"])["budget"] = 1.0 // the rows share it
	return keys
}

// keysOf returns the keys of the upstream of a row.
func keysOf(t *testing.T, r *row, platform string) map[string]any {
	t.Helper()
	keys := hastened(t, r.preset)
	if len(r.Exchanges) == 0 {
		for _, query := range cast.ToSlice(keys["resolve"]) {
			query.(map[string]any)["queries"] = 2 // more say nothing else
		}
	}
	if r.Second == nil {
		keys["identity"] = "" // they have the same numbers
	}
	if r.Becomes != "" {
		keys["listen"] = "127.0.0.1:0"
		delete(keys, "outcomes") // as in the preset: they cost most of the start
	}
	if r.asksAtOnce() {
		cast.ToStringMap(keys["retry"])["attempts"] = 1
	}
	more := hasten(maps.Clone(r.With), "1ms").(map[string]any)
	numberQueries(more)
	if more["limited"] != nil { // its rules stand before the preset's, which are left to the preset then
		delete(keys, "outcomes")
	}
	if rules, ok := more["outcomes"]; ok { // the file's rules stand before the preset's
		more["outcomes"] = append(cast.ToSlice(rules), cast.ToSlice(keys["outcomes"])...)
	}
	maps.Copy(keys, more)
	keys["url"], keys["preset"], keys["breaker"] = platform+"/upstream", r.preset, map[string]any{"unknown": 0}
	if r.State != scheduler.Waiting { // for the end of its pause
		keys["max_pause"] = "1ms"
	}
	keys["idempotency"] = map[string]any{"header": r.Upstream.Idempotency.Header, "field": r.Upstream.Idempotency.Field}
	if r.dials() {
		keys["url"] = "http://127.0.0.1:1"
	}
	if r.Signed && r.Becomes == "" { // a client that waits would wait for queries, too
		keys["signer"] = map[string]any{"kind": "http", "url": platform + "/sign"}
	}
	if r.Query != nil { // only a query leads to a second sending, as in package cases
		keys["idempotent"], keys["idempotency"] = "", map[string]any{"header": "", "field": ""}
		cast.ToStringMap(keys["retry"])["attempts"] = 2
	}
	return keys
}

// waitingKeysOf returns the keys of the upstream of a row whose client waits: each call has one
// attempt, and no queries.
func waitingKeysOf(_ *testing.T, r *row, platform string) map[string]any {
	i := r.Upstream.Idempotency
	return map[string]any{
		"listen": "127.0.0.1:0", "url": platform + "/upstream", "preset": r.preset, "breaker": map[string]any{"unknown": 0},
		"identity": "", "idempotency": map[string]any{"header": i.Header, "field": i.Field}, "retry": map[string]any{"attempts": 1},
	}
}

// playRows runs the sidecar with the upstreams of rows, in front of a stand-in for their platforms.
func playRows(t *testing.T, rows []*row, keysOf func(*testing.T, *row, string) map[string]any) *process {
	t.Helper()
	byNumber := make(map[string]*row)
	for _, r := range rows {
		byNumber[r.Request.Header.Get(numberOfRow)] = r
	}
	platform := serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/sign" { // it changes nothing
			io.WriteString(w, "{}")
		} else if r := byNumber[q.Header.Get(numberOfRow)]; r == nil {
			t.Errorf("%s %s has no row", q.Method, q.URL)
		} else {
			r.ServeHTTP(w, q)
		}
	}))
	upstreams := make(map[string]any)
	for _, r := range rows {
		if upstreams[r.upstream] == nil {
			upstreams[r.upstream] = keysOf(t, r, platform)
		}
	}
	text, err := yaml.Marshal(map[string]any{"admin": "127.0.0.1:0", "store": "memory", "upstreams": upstreams})
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, string(text))
}

// TestCasesOfWaitingClients sends the request of each case that has an answer by a client that
// waits: it gets that answer unchanged, after one sending, with the outcome of the case. Calls
// that were not executed are left out: they are sent again.
func TestCasesOfWaitingClients(t *testing.T) {
	rows := slices.DeleteFunc(rowsOfPresets(t), func(r *row) bool {
		return r.Answer == nil || r.Answer.Error != "" || r.Outcome == "" || r.Outcome == upstream.NotExecuted || r.Second != nil
	})
	names := make(naming)
	for _, r := range rows {
		i := r.Upstream.Idempotency
		r.upstream = names.of(fmt.Sprint(r.preset, " ", i.Header, " ", i.Field))
	}
	p := playRows(t, rows, waitingKeysOf)
	for _, r := range rows {
		got := p.wait(t, "upstreams."+r.upstream+".listen", r.Request)
		if got.outcome() != string(r.Outcome) || got.status != r.Answer.Status || got.body != string(r.Answer.Body) || r.platform.Sent() != 1 {
			t.Errorf("%s %s: %s with %d %s after %d sendings, want %s with %d %s after 1",
				r.Place, r.Name, got.outcome(), got.status, got.body, r.platform.Sent(), r.Outcome, r.Answer.Status, r.Answer.Body)
		}
	}
	t.Logf("%d cases", len(rows))
}

// TestCasesThroughTheSidecar plays the cases of all presets on the real sidecar: a stand-in for the
// platform answers as each case says. Outcome, queries and their decision, and all that was
// sent in which order are compared. Waits of the presets are short.
func TestCasesThroughTheSidecar(t *testing.T) {
	t.Parallel()
	rows := rowsOfPresets(t)
	p := playRows(t, rows, keysOf)
	for _, r := range rows {
		if r.Becomes != "" {
			p.repeats(t, r)
		} else {
			r.id = p.hand(t, r.upstream, r.Request)
		}
	}
	for _, r := range rows { // in turn: each begins as soon as it is handed over
		p.settles(t, r)
	}
	for _, r := range rows { // nothing has come after that
		if failures := p.compare(t, r); len(failures) > 0 {
			t.Errorf("%s %s: later: %s", r.Place, r.Name, strings.Join(failures, "; "))
		}
	}
	t.Logf("%d cases", len(rows))
}

// hand submits a request, and returns the call's id.
func (p *process) hand(t *testing.T, to string, r *upstream.Request) string {
	t.Helper()
	headers := make(map[string]string)
	for name := range r.Header {
		headers[name] = r.Header.Get(name)
	}
	text, err := json.Marshal(map[string]any{"upstream": to, "method": r.Method, "path": r.Target, "headers": headers, "body_base64": r.Body})
	if err != nil {
		t.Fatal(err)
	}
	return p.accepted(t, string(text))
}

// compare compares a row with its call; one that has not ended fails.
func (p *process) compare(t *testing.T, r *row) []string {
	t.Helper()
	if r.id == "" {
		return nil
	}
	var call api.Call
	if err := json.Unmarshal([]byte(p.body("/v1/calls/"+r.id)), &call); err != nil {
		return []string{err.Error()}
	}
	if len(call.Attempts) == 0 || call.Attempts[0].Outcome == "" {
		return []string{"the request has no outcome yet"}
	}
	return cases.Compare(r.platform, upstream.Outcome(call.Attempts[0].Outcome), call.Attempts[0].Reason, scheduler.State(call.State))
}

// settles waits until a row is as it must be.
func (p *process) settles(t *testing.T, r *row) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	failures := p.compare(t, r)
	for ; len(failures) > 0 && time.Now().Before(deadline); failures = p.compare(t, r) {
		time.Sleep(2 * time.Millisecond)
	}
	if len(failures) > 0 {
		t.Fatalf("%s %s: %s", r.Place, r.Name, strings.Join(failures, "; "))
	}
}

// repeats sends the two requests of a row by clients that wait.
func (p *process) repeats(t *testing.T, r *row) {
	t.Helper()
	listener := "upstreams." + r.upstream + ".listen"
	before := p.wait(t, listener, r.Request)
	sent := r.platform.Sent()
	after := p.wait(t, listener, r.Second)
	got := "sent"
	switch {
	case r.platform.Sent() > sent:
	case before.status == after.status && before.body == after.body:
		got = "answered"
	default:
		got = "refused"
	}
	if got != r.Becomes {
		t.Errorf("%s %s: the second request is %s, want %s: %d %s", r.Place, r.Name, got, r.Becomes, after.status, after.body)
	}
}

// wait sends a request to a data listener, and returns the answer.
func (p *process) wait(t *testing.T, listener string, r *upstream.Request) answer {
	t.Helper()
	var header []string
	for name := range r.Header {
		header = append(header, name, r.Header.Get(name))
	}
	return send(t, r.Method, p.url(t, listener)+r.Target, string(r.Body), header...)
}
