package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// doubtful is a rig whose payments end unknown. Queries about those of /asked say what says
// returns.
func doubtful(t *testing.T, says func() int) *rig {
	t.Helper()
	u := scheduler.Upstream{Durable: "false"}
	u.Outcomes = []upstream.Rule{{When: "status == 500", Is: upstream.Unknown}}
	u.Resolve = []scheduler.Resolve{{
		When: `path == "/asked"`, Target: `"/query"`, After: time.Hour, Every: time.Hour, Queries: 2,
		Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}, {When: "status == 404", Is: upstream.NotExecuted}},
	}}
	return newRig(t, u, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/query" {
			w.WriteHeader(says())
			return
		}
		w.WriteHeader(500)
	})
}

// unknown submits a payment, and returns it when its outcome is unknown.
func (r *rig) unknown(t *testing.T, path string) api.Call {
	t.Helper()
	return r.again(t, r.submit(t, `{"upstream":"pay","method":"POST","target":"`+path+`"}`).ID, 1)
}

// again waits until a call is unknown after its nth attempt.
func (r *rig) again(t *testing.T, id string, n int) (call api.Call) {
	t.Helper()
	r.until(t, fmt.Sprintf("unknown after attempt %d", n), func(scheduler.UpstreamStatus) bool {
		call = read[api.Call](t, r.admin.URL+"/v1/calls/"+id)
		return call.State == api.Unknown && len(call.Attempts) == n
	})
	return call
}

// change asks for a change of a call, and returns the answer.
func (r *rig) change(t *testing.T, method, path, body string, status int, wants ...string) (call api.Call) {
	t.Helper()
	resp, got := send(t, method, r.admin.URL+"/v1/calls/"+path, body)
	if resp.StatusCode != status {
		t.Fatalf("%s %s %s: %d %s", method, path, body, resp.StatusCode, got)
	}
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("%s %s %s: no %s in %s", method, path, body, want, got)
		}
	}
	json.Unmarshal([]byte(got), &call)
	return call
}

// trail compares the records of a call, the oldest first: action, before, after and reason,
// with a bar between them. A star at the end is any rest.
func (r *rig) trail(t *testing.T, call string, want ...string) {
	t.Helper()
	records := r.audit(t, "?call="+call)
	if len(records) != len(want) {
		t.Errorf("%d records, want %d: %+v", len(records), len(want), records)
		return
	}
	for i, record := range records {
		got := strings.Join([]string{record.Action, record.Before, record.After, record.Reason}, "|")
		wanted := want[len(want)-1-i]
		begin, more := strings.CutSuffix(wanted, "*")
		if got != wanted && !(more && strings.HasPrefix(got, begin)) || record.Actor != "anyone" || record.Role != "admin" || record.Call != call || record.Upstream != "pay" || time.Since(record.At.Time) > time.Minute {
			t.Errorf("record %d: %q, want %q: %+v", len(want)-1-i, got, wanted, record)
		}
	}
}

// TestResolve: a decision is about the attempt that the person saw. A stale one changes
// nothing, and is told the state and the attempt of now.
func TestResolve(t *testing.T) {
	r := doubtful(t, nil)
	id := r.unknown(t, "/pay").ID
	r.change(t, "POST", id+"/resolve", `{"outcome":"done","attempt":1}`, 400, `"pointer":"/reason"`)
	r.change(t, "POST", id+"/resolve", `{"outcome":"expired","reason":"x"}`, 400, `"pointer":"/attempt"`, `"pointer":"/outcome"`)
	if call := r.change(t, "POST", id+"/resolve", `{"outcome":"not_executed","attempt":1,"reason":"not in the bill"}`, 200); call.ID != id || len(call.Decisions) != 1 || call.Decisions[0].By != "anyone" || call.Decisions[0].Reason != "not in the bill" || call.Decisions[0].Attempt != 1 {
		t.Errorf("sent again: %+v", call)
	}
	r.again(t, id, 2)
	r.change(t, "POST", id+"/resolve", `{"outcome":"done","attempt":1,"reason":"seen"}`, 412, `"reason":"changed_since"`, "is unknown", "attempt 2", `"call":"`+id+`"`)
	if call := r.change(t, "POST", id+"/resolve", `{"outcome":"done","attempt":2,"reason":"seen"}`, 200); call.State != api.Done || call.Response != nil {
		t.Errorf("done: %+v", call)
	}
	r.change(t, "POST", id+"/resolve", `{"outcome":"failed","attempt":1,"reason":"late"}`, 412, `"reason":"changed_since"`, "is done", "attempt 2")
	r.trail(t, id,
		"resolve|unknown after attempt 1|not_executed, seen attempt 1|not in the bill",
		"resolve|unknown after attempt 2|done, seen attempt 1|seen",
		"resolve|unknown after attempt 2|not done: *",
		"resolve|unknown after attempt 2|done, seen attempt 2|seen",
		"resolve|done after attempt 2|failed, seen attempt 1|late",
		"resolve|done after attempt 2|not done: *")
	if resp, body := send(t, "POST", r.admin.URL+"/v1/calls/nope/resolve", `{"outcome":"done","attempt":1,"reason":"x"}`); resp.StatusCode != 404 || len(r.audit(t, "?call=nope")) != 0 {
		t.Errorf("no such call: %d %s", resp.StatusCode, body)
	}
}

// TestRetry: where the upstream does not recognise a repeat, it is sent again only if the
// decision accepts a duplicate.
func TestRetry(t *testing.T) {
	r := doubtful(t, nil)
	id := r.unknown(t, "/pay").ID
	r.change(t, "POST", id+"/retry", `{"attempt":1}`, 400, `"pointer":"/reason"`)
	r.change(t, "POST", id+"/retry", `{"attempt":1,"reason":"no answer"}`, 422, `"reason":"may_execute_twice"`, "accept the duplicate")
	r.change(t, "POST", id+"/retry", `{"attempt":1,"accept_duplicate":true,"reason":"harmless"}`, 200)
	if call := r.again(t, id, 2); len(call.Decisions) != 1 || call.Decisions[0].As != "unknown" {
		t.Errorf("decided: %+v", call.Decisions)
	}
	r.change(t, "POST", id+"/retry", `{"attempt":1,"accept_duplicate":true,"reason":"again"}`, 412, "is unknown", "attempt 2")
	r.trail(t, id,
		"retry|unknown after attempt 1|sent again, seen attempt 1|no answer",
		"retry|unknown after attempt 1|not done: *",
		"retry|unknown after attempt 1|sent again, seen attempt 1, a duplicate is accepted|harmless",
		"retry|unknown after attempt 2|sent again, seen attempt 1, a duplicate is accepted|again",
		"retry|unknown after attempt 2|not done: *")
}

// TestAsk: the platform is asked now, however late the next query is; its answer decides, or
// leaves the call unknown.
func TestAsk(t *testing.T) {
	status := make(chan int, 1)
	r := doubtful(t, func() int { return <-status })
	id := r.unknown(t, "/asked").ID
	status <- 503
	if call := r.change(t, "POST", id+"/ask", "", 200); call.State != api.Unknown || call.Unknown == nil || call.Unknown.Queries.Made != 1 {
		t.Errorf("an answer that says nothing: %+v", call)
	}
	status <- 200
	if call := r.change(t, "POST", id+"/ask", "", 200); call.State != api.Done || len(call.Decisions) != 1 || !strings.Contains(call.Decisions[0].By, "query") || !strings.Contains(call.Decisions[0].By, "anyone") {
		t.Errorf("an answer that decides: %+v", call)
	}
	r.change(t, "POST", id+"/ask", "", 409, `"reason":"wrong_state"`, "is done")
	r.trail(t, id, "ask|unknown after attempt 1||", "ask|unknown after attempt 1||", "ask|done after attempt 1||", "ask|done after attempt 1|not done: *")

	other := r.unknown(t, "/pay").ID
	r.change(t, "POST", other+"/ask", "", 409, "resolve")
	r.trail(t, other, "ask|unknown after attempt 1||", "ask|unknown after attempt 1|not done: *")
}

// TestEdit changes calls that wait, in memory and on disk, and no others.
func TestEdit(t *testing.T) {
	r := doubtful(t, nil)
	all := r.pause(t, `{"upstream":"pay","for":"1h"}`)
	near := r.submit(t, `{"upstream":"pay","method":"POST","target":"/pay"}`).ID
	in := func(hours int) string {
		return time.Now().Add(time.Duration(hours) * time.Hour).UTC().Format(time.RFC3339)
	}
	later, latest := in(10), in(20)
	far := r.submit(t, `{"upstream":"pay","method":"POST","target":"/pay","not_before":"`+later+`"}`).ID
	for _, id := range []string{near, far} {
		r.change(t, "PATCH", id, `{}`, 400, "nothing is to be changed")
		r.change(t, "PATCH", id, `{"priority":101}`, 400, "101")
		if call := r.change(t, "PATCH", id, `{"priority":50,"deadline":"`+latest+`","reason":"the customer waits"}`, 200); call.Priority != 50 || call.Deadline.Format(time.RFC3339) != latest || call.State != api.Waiting {
			t.Errorf("edited: %+v", call)
		}
		r.change(t, "PATCH", id, `{"deadline":"2001-01-01T00:00:00Z"}`, 400, "deadline")
		r.trail(t, id,
			"edit|waiting|priority 101|", "edit|waiting|not done: *",
			"edit|waiting|priority 50, deadline "+latest+"|the customer waits",
			"edit|waiting|deadline 2001-01-01T00:00:00Z|", "edit|waiting|not done: *")
	}
	if call := r.change(t, "PATCH", near, `{"not_before":"`+later+`"}`, 200); call.NotBefore.Format(time.RFC3339) != later {
		t.Errorf("later: %+v", call)
	}
	for _, id := range []string{near, far} {
		r.change(t, "PATCH", id, `{"not_before":"`+in(0)+`"}`, 200)
	}
	send(t, "DELETE", r.admin.URL+"/v1/pauses/"+all.ID, "")
	for _, id := range []string{near, far} {
		r.again(t, id, 1)
		r.change(t, "PATCH", id, `{"priority":1}`, 409, "is unknown")
		r.change(t, "POST", id+"/resolve", `{"outcome":"failed","attempt":1,"reason":"seen"}`, 200)
		r.change(t, "PATCH", id, `{"priority":1}`, 409, "is failed")
	}
	r.change(t, "PATCH", "nope", `{"priority":1}`, 404)
}

// TestAuditPages lists records by each filter, page by page, the newest first.
func TestAuditPages(t *testing.T) {
	r := doubtful(t, nil)
	id := r.unknown(t, "/pay").ID
	r.change(t, "POST", id+"/retry", `{"attempt":1,"reason":"no answer"}`, 422)
	r.change(t, "POST", id+"/resolve", `{"outcome":"done","attempt":1,"reason":"seen"}`, 200)
	r.pause(t, `{"upstream":"pay","for":"1h","limit":"concurrency"}`)
	send(t, "POST", r.admin.URL+"/v1/config/reload", "")
	all := r.audit(t, "")
	var actions []string
	for i, record := range all {
		actions = append(actions, record.Action)
		if i > 0 && (record.Seq >= all[i-1].Seq || record.At.After(all[i-1].At.Time)) {
			t.Errorf("record %d is not older than the one before: %+v", i, all)
		}
	}
	if got := strings.Join(actions, " "); got != "reload pause resolve retry retry" {
		t.Fatalf("actions %s", got)
	}
	middle := all[2].At.Format(time.RFC3339Nano)
	for query, want := range map[string]int{
		"": 5, "actor=anyone": 5, "actor=oncall": 0, "action=retry": 2, "action=pause": 1, "call=" + id: 3, "call=nope": 0,
		"from=" + middle: 3, "to=" + middle: 2, "action=retry&from=" + middle: 0, "action=retry&call=" + id: 2,
	} {
		n, cursor := 0, ""
		for pages := 0; pages == 0 || cursor != ""; pages++ {
			page := read[api.AuditLog](t, r.admin.URL+"/v1/audit?page_size=2&"+query+cursor)
			n, cursor = n+len(page.Records), ""
			if page.Next != "" {
				cursor = "&cursor=" + page.Next
			}
			if len(page.Records) > 2 || pages > 5 {
				t.Fatalf("%s: page %d: %+v", query, pages, page)
			}
		}
		if n != want {
			t.Errorf("%s: %d records, want %d", query, n, want)
		}
	}
	for query, want := range map[string]string{
		"cursor=-1": "none of ours", "cursor=!": "none of ours", "from=today": "RFC 3339", "page_size=0": "from 1 to 1000", "who=x": "unknown", "actor=a&actor=b": "2 times",
	} {
		if resp, body := send(t, "GET", r.admin.URL+"/v1/audit?"+query, ""); resp.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}
