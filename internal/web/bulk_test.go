package web

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// many is an API with calls that wait, of which bulk actions take the first or all.
type many struct {
	calls   int
	taken   int // by a bulk action
	actions []api.Bulk
}

func (m *many) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out any
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/info":
		out = api.Info{Caller: api.CallerInfo{Name: "ops", Scopes: allScopes}}
	case "POST /v1/calls/bulk":
		var in api.Bulk
		json.NewDecoder(r.Body).Decode(&in)
		m.actions = append(m.actions, in)
		result := api.BulkResult{DryRun: in.DryRun, Matched: m.calls}
		for i := range m.calls {
			item := api.BulkItem{Call: fmt.Sprint("c", i)}
			if i >= m.taken {
				item.Reason, item.Detail = "wrong_state", fmt.Sprintf("call c%d is done", i)
				result.Refused++
			}
			result.Results = append(result.Results, item)
		}
		if !in.DryRun {
			result.Succeeded = m.taken
		}
		out = result
	case "GET /v1/calls":
		from := 0
		fmt.Sscan(r.URL.Query().Get("cursor"), &from)
		list := api.Calls{Calls: []api.CallSummary{}}
		for i := from; i < min(m.calls, from+1000) && r.URL.Query().Get("needs") == ""; i++ {
			list.Calls = append(list.Calls, api.CallSummary{CallFacts: api.CallFacts{
				ID: fmt.Sprint("c", i), Upstream: "alipay", State: api.Waiting, Path: "/pay", Flow: "=1+2", Numbers: map[string]string{"order": "7", "refund": "R,\"1"},
				AcceptedAt: api.At(time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)), WaitingFor: &api.WaitingFor{Limit: "app", Key: "a"},
			}, AttemptCount: 1, LastAttempt: &api.Attempt{Outcome: "not_executed", Status: 429}})
		}
		if from+1000 < m.calls {
			list.Next = fmt.Sprint(from + 1000)
		}
		out = list
	default:
		out = api.Upstreams{}
	}
	json.NewEncoder(w).Encode(out)
}

// TestBulk: the form of an action on many calls says how many it would be, and sends the same choice.
func TestBulk(t *testing.T) {
	m := &many{calls: 3, taken: 2}
	p := New(Config{API: m})
	defer p.Close()
	page := ask(t, p, "/ui/bulk?action=cancel&call=c0&call=c1&call=c2&back=/ui/calls%3Fstate%3Dwaiting", nil).Body.String()
	for _, want := range []string{
		"<h1>Cancel 2 calls</h1>", "One of the chosen calls is in another state by now", `name="call" value="c0"`, `name="call" value="c1"`, `name="back" value="/ui/calls?state=waiting"`,
		"throttler calls cancel --reason REASON c0 c1 c2",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if len(m.actions) != 1 || !m.actions[0].DryRun || !slices.Equal(m.actions[0].Filter.Calls, []string{"c0", "c1", "c2"}) {
		t.Errorf("asked with %+v", m.actions)
	}
	form := url.Values{"action": {"cancel"}, "upstream": {"alipay"}, "flow": {"shop7"}, "reason": {" closed "}, "back": {"/ui/calls?state=waiting"}}
	w := ask(t, p, "/ui/bulk", form)
	for _, want := range []string{"One call has refused it; 2 have taken it", "call c2 is done", " closed </textarea>", `name="call" value="c1"`} {
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d, no %s in %s", w.Code, want, w.Body)
		}
	}
	if sent := m.actions[1]; sent.DryRun || sent.Reason != "closed" || *sent.Filter.Upstream != "alipay" || *sent.Filter.Flow != "shop7" || sent.Filter.Key != nil {
		t.Errorf("sent %+v", sent)
	}
	m.taken = 3
	for back, want := range map[string]string{"/ui/calls?state=waiting": "/ui/calls?did=cancel&n=3&state=waiting", "//evil.example/ui/": "/ui/calls?did=cancel&n=3", "": "/ui/calls?did=cancel&n=3"} {
		form.Set("back", back)
		if w := ask(t, p, "/ui/bulk", form); w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
			t.Errorf("back to %q: %d %s", back, w.Code, w.Header().Get("Location"))
		}
	}
	if w := ask(t, p, "/ui/bulk?action=resolve&upstream=alipay", nil); w.Code != http.StatusNotFound {
		t.Errorf("a decision on many calls: %d", w.Code)
	}
	for name, pages := range map[string]*Pages{
		"a viewer":       newPages(t, &stub{Role: []string{"read_own", "read"}, State: api.Waiting}),
		"read-only":      New(Config{API: (&stub{State: api.Waiting}).handler(), UI: func() UI { return UI{ReadOnly: true} }}),
		"without scopes": newPages(t, &stub{Role: []string{}, State: api.Waiting}),
	} {
		t.Cleanup(pages.Close)
		if w := ask(t, pages, "/ui/bulk?action=cancel&upstream=alipay", nil); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", name, w.Code)
		}
		if page := ask(t, pages, "/ui/calls?state=waiting&upstream=a", nil).Body.String(); strings.Contains(page, `name="call"`) || strings.Contains(page, "/ui/bulk?") {
			t.Errorf("%s is offered to cancel: %s", name, page)
		}
	}
	if w := ask(t, New(Config{API: m, UI: func() UI { return UI{ReadOnly: true} }}), "/ui/bulk", form); w.Code != http.StatusForbidden {
		t.Errorf("read-only: %d", w.Code)
	}
	if w := ask(t, p, "/ui/live?at=/ui/bulk%3Faction=cancel", nil); w.Code != http.StatusBadRequest {
		t.Errorf("a form that is followed: %d", w.Code)
	}
}

// TestCancelAll: all calls of a list can be cancelled only where the action knows each of its filters.
func TestCancelAll(t *testing.T) {
	for query, want := range map[string]string{
		"state=waiting&upstream=a&order=oldest&cursor=x": "/ui/bulk?action=cancel&back=%2Fui%2Fcalls%3Fcursor%3Dx%26order%3Doldest%26state%3Dwaiting%26upstream%3Da&upstream=a",
		"state=waiting":                       "",
		"upstream=a":                          "",
		"state=waiting&state=done&upstream=a": "",
		"state=waiting&upstream=a&q=R-1":      "",
		"state=waiting&upstream=a&accepted_after=2026-11-22T03:00:00Z": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := cancelAll(q); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// TestExport: a file has all pages of the list up to its bound, and no cell is a formula.
func TestExport(t *testing.T) {
	for _, tt := range []struct{ calls, rows int }{{0, 1}, {2500, 2501}, {20_000, maxExport + 1}} {
		m := &many{calls: tt.calls}
		p := New(Config{API: m})
		defer p.Close()
		w := ask(t, p, "/ui/calls.csv?state=waiting", nil)
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || len(rows) != tt.rows || w.Header().Get("Content-Type") != "text/csv; charset=utf-8" || !strings.Contains(w.Header().Get("Content-Disposition"), "attachment") {
			t.Fatalf("%d calls: %d rows, %v, %v", tt.calls, len(rows), err, w.Header())
		}
		if tt.calls > 0 {
			if got := strings.Join(rows[1], "|"); got != "c0|alipay|waiting|order 7; refund R,\"1||/pay|'=1+2|0|2026-11-22T03:00:00Z|||app a|1|not_executed|429|" {
				t.Errorf("the first call is %s", got)
			}
		}
	}
	refused := newPages(t, &stub{})
	refused.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if w := ask(t, refused, "/ui/calls.csv", nil); w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/ui/login") {
		t.Errorf("a caller that is not known: %d %v", w.Code, w.Header())
	}
	r := httptest.NewRequest("GET", "/ui/live?at=/ui/calls.csv", nil)
	w := httptest.NewRecorder()
	refused.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("a file that is followed: %d", w.Code)
	}
}

// TestCell: see OWASP, CSV injection.
func TestCell(t *testing.T) {
	for value, want := range map[string]string{"": "", "a": "a", "=1": "'=1", "+1": "'+1", "-1": "'-1", "@x": "'@x", "\tx": "'\tx", "a=1": "a=1"} {
		if got := cell(value); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
}
