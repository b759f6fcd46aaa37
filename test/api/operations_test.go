package api

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi-validator/schema_validation"
)

// A session asks one sidecar, and validates all requests and answers.
type session struct {
	*contract
	admin, file string
}

func newSession(t *testing.T) *session {
	admin, file := launch(t)
	return &session{contract: readContract(t, readDocument(t)), admin: admin, file: file}
}

// want sends a request that is to be answered with the status, and returns the body of the answer.
func (s *session) want(t *testing.T, status int, method, path, body string, header ...string) string {
	t.Helper()
	resp, text := s.ask(t, method, s.admin+path, body, header...)
	if resp.StatusCode != status {
		t.Errorf("%s %s %s: %d, want %d: %s", method, path, body, resp.StatusCode, status, text)
	}
	return text
}

// read parses an answer.
func read[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func idOf(t *testing.T, text string) string {
	t.Helper()
	v := read[struct{ ID string }](t, text)
	if v.ID == "" {
		t.Fatalf("no id: %s", text)
	}
	return v.ID
}

// submit submits a call, and returns its id. Members are more members of the submission.
func (s *session) submit(t *testing.T, target, members string) string {
	t.Helper()
	return idOf(t, s.want(t, 202, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"`+target+`","headers":{"app":"a","X":["1","2"]},"body":"{\"order\":\"O1\"}"`+members+`}`))
}

// later are the members of a call that waits for long.
const later = `,"not_before":"2099-01-01T00:00:00Z","deadline":"2100-01-01T00:00:00Z"`

// wait waits until a call has ended, or is unknown.
func (s *session) wait(t *testing.T, id, state string) {
	t.Helper()
	text := s.want(t, 200, "GET", "/v1/calls/"+id, "", "Prefer: wait=30")
	if got := read[struct{ State string }](t, text).State; got != state {
		t.Fatalf("the call is %s, want %s: %s", got, state, text)
	}
}

// TestContract sends each operation of the document, most of them in several ways, and
// validates the requests and the answers.
func TestContract(t *testing.T) {
	s := newSession(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"submissions", s.testSubmissions},
		{"batch", s.testBatch},
		{"decisions", s.testDecisions},
		{"lists", s.testLists},
		{"pauses", s.testPauses},
		{"upstreams", s.testUpstreams},
		{"history", s.testHistory},
		{"process", s.testProcess},
		{"plan", s.testPlan},
		{"fleet", s.testFleet},
		{"sessions", s.testSessions},
		{"audit", s.testAudit},
		{"events", s.testEvents},
		{"refusals", s.testRefusals},
		{"refused", s.testRefused},
		{"conflicts", s.testConflicts},
	} {
		t.Run(part.name, part.run)
	}
	statuses := make(map[int]bool)
	for operation, answered := range s.answered {
		succeeded := false
		for status := range answered {
			statuses[status] = true
			succeeded = succeeded || status < 300
		}
		if !succeeded {
			t.Errorf("%s has not succeeded: %v", operation, answered)
		}
	}
	for _, status := range []int{200, 201, 202, 304, 400, 404, 409, 412, 415, 422, 429, 503} {
		if !statuses[status] {
			t.Errorf("no answer has the status %d", status)
		}
	}
}

func (s *session) testSubmissions(t *testing.T) {
	done := s.submit(t, "/pay?x=1", `,"deadline":"2100-01-01T00:00:00Z","priority":3`)
	s.wait(t, done, "done")
	s.want(t, 200, "GET", "/v1/calls/"+done+"?include=response", "")
	if got := s.want(t, 200, "GET", "/v1/calls/"+done+"/response", "", "Prefer: wait=1"); got != `{"paid":true}` {
		t.Errorf("the response as it came: %s", got)
	}
	s.want(t, 404, "GET", "/v1/calls/"+done+"/request", "")
	waits := s.submit(t, "/pay", later)
	if got := s.want(t, 200, "GET", "/v1/calls/"+waits+"/request", ""); got != `{"order":"O1"}` {
		t.Errorf("the request as it came: %s", got)
	}
	s.want(t, 200, "POST", "/v1/calls/"+waits+"/cancel", "")
	tag, _ := s.ask(t, "GET", s.admin+"/v1/calls/"+done, "")
	s.want(t, 304, "GET", "/v1/calls/"+done, "", "If-None-Match: "+tag.Header.Get("ETag"))

	body := `{"upstream":"pay","method":"POST","path":"/pay","headers":{"app":"a"}`
	first := s.want(t, 202, "POST", "/v1/calls", body+`}`, "Idempotency-Key: k1")
	resp, again := s.ask(t, "POST", s.admin+"/v1/calls", body+`,"idempotency_key":"k1"}`)
	if resp.Header.Get("Idempotent-Replayed") != "true" || idOf(t, again) != idOf(t, first) {
		t.Errorf("a repeat: %v, %s", resp.Header, again)
	}
}

// testBatch submits calls of which one is refused, twice.
func (s *session) testBatch(t *testing.T) {
	type result struct {
		Line     int
		Call     struct{ ID string }
		Replayed bool
		Problem  struct{ Reason string }
	}
	line := func(upstream, key string) string {
		return `{"upstream":"` + upstream + `","method":"POST","target":"/pay","headers":{"app":"a","X":["1","2"]},"idempotency_key":"` + key + `"}` + "\n"
	}
	body := line("pay", "b1") + line("none", "b2") + line("pay", "b3")
	var before []result
	for again := range 2 {
		text := s.want(t, 200, "POST", "/v1/calls/batch", body, lines)
		var all []result
		for text := range strings.Lines(text) {
			all = append(all, read[result](t, text))
		}
		if len(all) != 3 || all[1].Line != 2 || all[1].Problem.Reason != "not_found" || all[2].Call.ID == "" || all[2].Replayed != (again == 1) {
			t.Fatalf("the results: %s", text)
		}
		if again == 1 && all[2].Call.ID != before[2].Call.ID {
			t.Errorf("the repeat is %s, want %s", all[2].Call.ID, before[2].Call.ID)
		}
		before = all
	}
	s.wait(t, before[0].Call.ID, "done")
	s.want(t, 413, "POST", "/v1/calls/batch", strings.Repeat("{}\n", 1001), lines)
}

// lines is the header line of a batch.
const lines = "Content-Type: application/x-ndjson"

// testRefused runs after refusals.
func (s *session) testRefused(t *testing.T) {
	type page struct {
		Refusals []struct{ ID, Reason string }
		Next     string
	}
	first := read[page](t, s.want(t, 200, "GET", "/v1/refusals?page_size=1", ""))
	second := read[page](t, s.want(t, 200, "GET", "/v1/refusals?page_size=1&cursor="+url.QueryEscape(first.Next), ""))
	if len(first.Refusals) != 1 || len(second.Refusals) != 1 || first.Refusals[0].ID == second.Refusals[0].ID {
		t.Fatalf("two pages: %+v, %+v", first, second)
	}
	s.want(t, 404, "GET", "/v1/calls/"+first.Refusals[0].ID, "")
	if p := read[page](t, s.want(t, 200, "GET", "/v1/refusals?upstream=pay&reason=bad_key", "")); len(p.Refusals) == 0 {
		t.Error("no refusal for a key that is missing")
	}
	for _, query := range []string{"reason=lost", "cursor=none", "page_size=0", "upstream="} {
		s.want(t, 400, "GET", "/v1/refusals?"+query, "")
	}
	s.want(t, 404, "GET", "/v1/refusals?upstream=none", "")
}

func (s *session) testDecisions(t *testing.T) {
	s.want(t, 200, "POST", "/v1/calls/"+s.submit(t, "/pay", later)+"/cancel", "")
	s.want(t, 200, "POST", "/v1/calls/"+s.submit(t, "/pay", later)+"/cancel", `{"reason":"ordered twice"}`)

	waiting := s.submit(t, "/pay", later)
	edited := s.want(t, 200, "PATCH", "/v1/calls/"+waiting, `{"priority":50,"not_before":"2098-01-01T00:00:00Z","deadline":"2098-06-01T00:00:00Z","reason":"the customer waits"}`)
	if c := read[struct{ Priority int }](t, edited); c.Priority != 50 {
		t.Errorf("after the edit: %s", edited)
	}
	for i, decision := range []string{
		`done /resolve {"outcome":"done","attempt":1,"reason":"seen in the statement"}`,
		`failed /resolve {"outcome":"failed","attempt":1,"reason":"seen in the statement"}`,
		`unknown /resolve {"outcome":"not_executed","attempt":1,"reason":"not in the statement"}`,
		`unknown /retry {"attempt":1,"accept_duplicate":true,"reason":"a duplicate is harmless"}`,
	} {
		state, decision, _ := strings.Cut(decision, " ")
		path, body, _ := strings.Cut(decision, " ")
		lost := s.submit(t, fmt.Sprint("/lost", i), "")
		s.wait(t, lost, "unknown")
		s.want(t, 200, "POST", "/v1/calls/"+lost+path, body)
		s.wait(t, lost, state)
	}
	asked := s.submit(t, "/asked", "")
	s.wait(t, asked, "unknown")
	if c := s.want(t, 200, "POST", "/v1/calls/"+asked+"/ask", `{"reason":"the customer asks"}`); read[struct{ State string }](t, c).State != "done" {
		t.Errorf("after the query: %s", c)
	}

	dry := s.want(t, 200, "POST", "/v1/calls/bulk", `{"action":"ask","filter":{"upstream":"pay","number":"O1"},"dry_run":true}`)
	if n := read[struct{ Matched int }](t, dry).Matched; n != 2 {
		t.Errorf("%d unknown calls match, want 2: %s", n, dry)
	}
	if log := s.want(t, 200, "GET", "/v1/audit?action=ask", ""); !strings.Contains(log, `"reason":"the customer asks"`) {
		t.Errorf("the audit has no reason of the question: %s", log)
	}
	dry = s.want(t, 200, "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"calls":["`+waiting+`","`+asked+`","`+waiting+`","none"]},"dry_run":true}`)
	if n := read[struct{ Matched, Refused int }](t, dry); n.Matched != 3 || n.Refused != 2 {
		t.Errorf("of three calls %d match, %d would be refused; want 3 and 2: %s", n.Matched, n.Refused, dry)
	}
	bulk := s.want(t, 200, "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"calls":["`+waiting+`","none"]},"reason":"the campaign is off"}`)
	if n := read[struct{ Succeeded, Refused int }](t, bulk); n.Succeeded != 1 || n.Refused != 1 {
		t.Errorf("cancelled %d, refused %d, want 1 and 1: %s", n.Succeeded, n.Refused, bulk)
	}
}

type page struct {
	Calls []struct{ ID, State string }
	Next  string
}

// pages reads a list to its end.
func (s *session) pages(t *testing.T, query string) (ids []string) {
	t.Helper()
	for next := ""; ; {
		p := read[page](t, s.want(t, 200, "GET", "/v1/calls?"+query+next, ""))
		for _, c := range p.Calls {
			ids = append(ids, c.ID)
		}
		if p.Next == "" {
			return ids
		}
		next = "&cursor=" + url.QueryEscape(p.Next)
	}
}

// testLists: an id grows with the time of the call.
func (s *session) testLists(t *testing.T) {
	newest := s.pages(t, "upstream=pay&page_size=2")
	if len(newest) < 9 || !slices.IsSortedFunc(newest, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("not the newest first: %q", newest)
	}
	oldest := s.pages(t, "upstream=pay&page_size=2&order=oldest")
	slices.Reverse(oldest)
	if !slices.Equal(oldest, newest) {
		t.Errorf("the newest first: %q; the oldest first, reversed: %q", newest, oldest)
	}
	past, future := "2001-01-01T00:00:00Z", "2101-01-01T00:00:00Z"
	lost, queries := s.pages(t, "state=unknown"), s.pages(t, "origin=query")
	if len(lost) != 2 || len(queries) != 1 {
		t.Fatalf("unknown calls %q, want 2; queries %q, want 1", lost, queries)
	}
	submitted := slices.DeleteFunc(slices.Clone(newest), func(id string) bool { return id == queries[0] })
	for query, want := range map[string][]string{
		"state=unknown&state=sending":                           lost,
		"state=unknown&number=O1":                               lost,
		"state=unknown&q=O1":                                    lost,
		"outcome=unknown&state=unknown":                         lost,
		"needs=person":                                          lost,
		"q=" + lost[0]:                                          lost[:1],
		"idempotency_key=k1":                                    s.pages(t, "q=k1"),
		"limit=app&key=a&origin=admin":                          submitted,
		"path_prefix=/lost&state=unknown":                       lost,
		"accepted_after=" + past + "&accepted_before=" + future: newest,
		"finished_after=" + future:                              nil,
		"finished_before=" + past:                               nil,
		"submitted_by=another":                                  nil,
		"flow=another":                                          nil,
		"number=O2":                                             nil,
	} {
		if got := s.pages(t, query); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if got := s.pages(t, "state=unknown&number.order=O1"); !slices.Equal(got, lost) {
		t.Errorf("by the number of a name: %q, want %q", got, lost)
	}
	p := read[page](t, s.want(t, 200, "GET", "/v1/calls?page_size=1", ""))
	s.want(t, 400, "GET", "/v1/calls?page_size=1&upstream=pay&cursor="+url.QueryEscape(p.Next), "")
	for _, query := range []string{"page_size=0", "page_size=1001", "page_size=many", "state=lost", "order=up", "accepted_after=yesterday", "upstream=pay&upstream=pay", "cursor=none"} {
		s.want(t, 400, "GET", "/v1/calls?"+query, "")
	}
	s.want(t, 404, "GET", "/v1/calls?upstream=none", "")
}

func (s *session) testPauses(t *testing.T) {
	var ids []string
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, body := range []string{
		`{"upstream":"pay","limit":"app","key":"a","for":"1h","reason":"maintenance"}`,
		`{"upstream":"pay","limit":"day","for":"1h"}`,
		`{"upstream":"pay","until":"` + until + `"}`,
	} {
		ids = append(ids, idOf(t, s.want(t, 201, "POST", "/v1/pauses", body)))
	}
	blocked := s.submit(t, "/daily", "")
	s.want(t, 200, "GET", "/v1/calls/"+blocked, "")
	s.want(t, 503, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"/pay","headers":{"app":"a"},"deadline":"`+time.Now().Add(time.Minute).UTC().Format(time.RFC3339)+`"}`)
	s.want(t, 200, "GET", "/v1/upstreams/pay", "")
	s.want(t, 200, "GET", "/v1/limits?upstream=pay", "")
	type pauses struct {
		Pauses []struct{ ID, By, Reason string }
	}
	text := s.want(t, 200, "GET", "/v1/pauses", "")
	all := read[pauses](t, text).Pauses
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(p struct{ ID, By, Reason string }) bool { return p.ID == id && p.By == "person" }) {
			t.Errorf("no pause %s in %s", id, text)
		}
		if ended := s.want(t, 200, "DELETE", "/v1/pauses/"+id+"?reason=over", ""); idOf(t, ended) != id {
			t.Errorf("the pause %s that has ended: %s", id, ended)
		}
		s.want(t, 404, "DELETE", "/v1/pauses/"+id, "")
	}
	if text := s.want(t, 200, "GET", "/v1/pauses", ""); len(read[pauses](t, text).Pauses) > 0 {
		t.Errorf("pauses that have ended: %s", text)
	}
	s.wait(t, blocked, "done")
	for _, body := range []string{
		`{"upstream":"pay"}`, `{"upstream":"pay","for":"-1h"}`, `{"upstream":"pay","for":"1h","key":"a"}`,
		`{"upstream":"pay","for":"1h","until":"` + until + `"}`, `{"upstream":"pay","for":"1h","reason":"` + strings.Repeat("x", 501) + `"}`,
	} {
		s.want(t, 400, "POST", "/v1/pauses", body)
	}
	s.want(t, 404, "POST", "/v1/pauses", `{"upstream":"pay","limit":"none","for":"1h"}`)
}

func (s *session) testUpstreams(t *testing.T) {
	s.want(t, 200, "GET", "/v1/upstreams", "")
	s.want(t, 200, "GET", "/v1/limits", "")
	s.want(t, 404, "GET", "/v1/limits?upstream=none", "")
	for _, path := range []string{"/v1/upstreams/pay", "/v1/upstreams/pay/limits/app", "/v1/upstreams/pay/limits/day"} {
		resp, _ := s.ask(t, "GET", s.admin+path, "")
		if resp.StatusCode != 200 || resp.Header.Get("ETag") == "" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("GET %s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	s.want(t, 404, "GET", "/v1/upstreams/pay/limits/none", "")
	keys := s.want(t, 200, "GET", "/v1/upstreams/pay/limits/app/keys?sort=waiting&page_size=10", "")
	one := s.want(t, 200, "GET", "/v1/upstreams/pay/limits/app/keys?key=unused", "")
	if k := read[struct{ Keys []struct{ Free int } }](t, one).Keys; len(k) != 1 || k[0].Free != 20 {
		t.Errorf("a key that is not in use: %s; the keys: %s", one, keys)
	}
	s.want(t, 404, "GET", "/v1/upstreams/pay/limits/none/keys", "")
	s.want(t, 400, "GET", "/v1/upstreams/pay/limits/app/keys?page_size=101", "")
	s.want(t, 400, "GET", "/v1/upstreams/pay/limits/day/keys?key=a", "")
	flows := s.want(t, 200, "GET", "/v1/upstreams/pay/flows?page_size=10", "")
	if f := read[struct{ Sent int }](t, flows); f.Sent < 9 {
		t.Errorf("after the calls before: %s", flows)
	}
	s.want(t, 404, "GET", "/v1/upstreams/none/flows", "")
	type window struct {
		ResetsAt time.Time `json:"resets_at"`
	}
	day, app := read[window](t, s.want(t, 200, "GET", "/v1/upstreams/pay/limits/day", "")), read[window](t, s.want(t, 200, "GET", "/v1/upstreams/pay/limits/app", ""))
	if in := time.Until(day.ResetsAt); in < -time.Minute || in > 24*time.Hour || day.ResetsAt.UTC().Format("15:04:05") != "16:00:00" || !app.ResetsAt.IsZero() {
		t.Errorf("a day of Shanghai resets at %v, a second that slides at %v", day.ResetsAt, app.ResetsAt)
	}
}

// testHistory runs after the calls before, and until they are sampled.
func (s *session) testHistory(t *testing.T) {
	type history struct {
		Calls   []struct{ Accepted, Sent, Waiting int }
		Permits []struct{ Most int }
	}
	deadline := time.Now().Add(20 * time.Second)
	for _, query := range []string{"", "&step=10s", "&step=1m&from=2001-01-01T00:00:00Z&to=2101-01-01T00:00:00Z", "&limit=app"} {
		for {
			h, sent, most := read[history](t, s.want(t, 200, "GET", "/v1/history?upstream=pay"+query, "")), 0, 0
			for _, c := range h.Calls {
				sent += c.Sent
			}
			for _, p := range h.Permits {
				most = max(most, p.Most)
			}
			if sent >= 9 || most > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", query, h)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	s.want(t, 400, "GET", "/v1/history", "")
	s.want(t, 400, "GET", "/v1/history?upstream=pay&step=2s", "")
	s.want(t, 404, "GET", "/v1/history?upstream=none", "")
	s.want(t, 404, "GET", "/v1/history?upstream=pay&limit=none", "")
}

func (s *session) testProcess(t *testing.T) {
	s.want(t, 200, "POST", "/v1/config/reload?dry_run=true", "")
	s.want(t, 200, "POST", "/v1/config/reload", "")
	s.want(t, 400, "POST", "/v1/config/reload?dry_run=maybe", "")
	s.want(t, 412, "POST", "/v1/config/reload?file=another", "")
	for _, path := range []string{"/v1/config", "/v1/config/diff", "/v1/info", "/healthz", "/readyz", "/readyz?verbose=true", "/metrics", "/problems/changed_since"} {
		s.want(t, 200, "GET", path, "")
	}
}

// testPlan runs after calls have come in.
func (s *session) testPlan(t *testing.T) {
	type plan struct {
		Variants []struct {
			Config string
			Calls  int
		}
		Findings []struct{ Kind, Text string }
	}
	change := `"changes":[{"upstream":"pay","limit":"app","permits":2,"window":"2s"}]`
	p := read[plan](t, s.want(t, 200, "POST", "/v1/plan", `{`+change+`,"last":"1h","rtt_ms":80,"rtt_spread_ms":20,"seed":7,"fail_if":["wait.p99 > 5s"]}`))
	if len(p.Variants) != 2 || p.Variants[0].Calls < 10 || len(p.Findings) < 2 {
		t.Errorf("the traffic that came in: %+v", p)
	}
	p = read[plan](t, s.want(t, 200, "POST", "/v1/plan", `{"config":"upstreams: {pay: {url: 'https://a', signer: {kind: alipay, key: 'file:/etc/shadow'}, limits: [{name: all, calls: 1, window: 1s}]}}","alone":true,"variants":[{"name":"more","changes":[{"upstream":"pay","limit":"all","permits":2}]}],"settings":["rate=5/s for=10s"]}`))
	if len(p.Variants) != 2 || p.Variants[1].Config != "more" {
		t.Errorf("a pasted configuration: %+v", p)
	}
	s.want(t, 200, "POST", "/v1/plan", `{"alone":true,"rows":"at,key.app,key.day,key.heavy,key.parallel\n0,a,,,*\n1,b,,,*\n"}`)
	s.want(t, 422, "POST", "/v1/plan", `{"config":"upstreams: {pay: {limits: [{name: all}]}}","settings":["rate=5/s for=10s"]}`)
	for _, body := range []string{`{"last":"0s"}`, `{"last":"1h","rows":"at\n0"}`, `{"settings":["rate=5"]}`, `{"rows":"no"}`, `{"fail_if":["wait"],"settings":["rate=5/s for=1s"]}`} {
		s.want(t, 400, "POST", "/v1/plan", body)
	}
}

// testSessions: the sidecar has no access, and so no tokens; by a file with one, a browser logs in.
func (s *session) testSessions(t *testing.T) {
	s.want(t, 401, "POST", "/v1/session", `{"token":"thr_x"}`)
	s.want(t, 404, "DELETE", "/v1/session", "")
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	const token = "thr_of_the_contract"
	section := fmt.Sprintf("access:\n  anyone: admin\n  tokens: [{name: oncall, role: operator, sha256: %x}]\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(s.file, append(text, section...), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(t, 200, "POST", "/v1/config/reload", "")
	resp, _ := s.ask(t, "POST", s.admin+"/v1/session", `{"token":"`+token+`"}`)
	if resp.StatusCode != 201 || len(resp.Cookies()) != 1 {
		t.Fatalf("login: %d %v", resp.StatusCode, resp.Header)
	}
	by := "Cookie: " + resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	if info := s.want(t, 200, "GET", "/v1/info", "", by); !strings.Contains(info, `"via":"session"`) {
		t.Errorf("by the session: %s", info)
	}
	s.want(t, 400, "POST", "/v1/session", `{}`)
	s.want(t, 401, "POST", "/v1/session", `{"token":"thr_wrong"}`)
	s.want(t, 200, "DELETE", "/v1/session", "", by)
	s.want(t, 404, "DELETE", "/v1/session", "", by)
	if err := os.WriteFile(s.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(t, 200, "POST", "/v1/config/reload", "")
}

// testAudit runs after the decisions and the pauses.
func (s *session) testAudit(t *testing.T) {
	type log struct {
		Records []struct {
			Seq                                int64
			Actor, Action, Call, After, Reason string
		}
		Next string
	}
	actions, last := make(map[string]bool), int64(0)
	for next := ""; ; {
		l := read[log](t, s.want(t, 200, "GET", "/v1/audit?page_size=3"+next, ""))
		for _, r := range l.Records {
			if last != 0 && r.Seq >= last || r.Actor == "" {
				t.Errorf("after record %d: %+v", last, r)
			}
			actions[r.Action], last = true, r.Seq
		}
		if l.Next == "" {
			break
		}
		next = "&cursor=" + l.Next
	}
	for _, action := range []string{"cancel", "edit", "resolve", "retry", "ask", "pause", "resume", "reload", "login", "login_failed", "logout"} {
		if !actions[action] {
			t.Errorf("no record of %s: %v", action, actions)
		}
	}
	resolved := read[log](t, s.want(t, 200, "GET", "/v1/audit?action=resolve&from=2001-01-01T00:00:00Z&to=2101-01-01T00:00:00Z", "")).Records
	if len(resolved) != 3 || resolved[0].Reason != "not in the statement" {
		t.Fatalf("records of resolve: %+v", resolved)
	}
	one := s.want(t, 200, "GET", "/v1/audit?call="+resolved[0].Call+"&actor="+url.QueryEscape(resolved[0].Actor), "")
	if l := read[log](t, one); len(l.Records) != 1 {
		t.Errorf("records of one call: %s", one)
	}
	for _, query := range []string{"cursor=-", "from=yesterday", "page_size=0"} {
		s.want(t, 400, "GET", "/v1/audit?"+query, "")
	}
}

// testEvents follows the events of the parts before, and validates the data of each.
func (s *session) testEvents(t *testing.T) {
	if all := s.want(t, 200, "GET", "/v1/events/latest?kind=ended&page_size=2", ""); len(read[struct{ Events []any }](t, all).Events) != 2 {
		t.Errorf("the latest two ends: %s", all)
	}
	s.want(t, 400, "GET", "/v1/events/latest?kind=born", "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	request := func() *http.Request {
		r, err := http.NewRequestWithContext(ctx, "GET", s.admin+"/v1/events?routes=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Last-Event-ID", "0-0") // of another process: all events that are there come
		return r
	}
	resp, err := http.DefaultClient.Do(request())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	validator, kind, text := schema_validation.NewSchemaValidator(), "", ""
	missing := map[string]bool{"accepted": true, "refused": true, "sending": true, "attempt": true, "paused": true, "resumed": true, "ended": true, "lost": true}
	for lines := bufio.NewScanner(resp.Body); len(missing) > 0; {
		if !lines.Scan() {
			t.Fatalf("the stream ends (%v) before the events %v", lines.Err(), missing)
		}
		text += lines.Text() + "\n"
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
			delete(missing, kind)
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		schema := "Event"
		if kind == "lost" {
			schema = "Lost"
		}
		if _, errs := validator.ValidateSchemaString(s.schemas.GetOrZero(schema).Schema(), data); len(errs) > 0 {
			t.Errorf("the event %s %s: %v", kind, data, texts("", errs))
		}
	}
	for _, fault := range s.faults(request, resp, []byte(text)) {
		t.Error(fault)
	}
}
