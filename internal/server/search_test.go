package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// found is a rig with four calls, the oldest first: a payment that is done, a refund of it
// that has failed, a payout whose outcome is unknown, and a payment that waits.
func found(t *testing.T, durable bool) (r *rig, calls []api.Call) {
	t.Helper()
	u := scheduler.Upstream{
		Numbers: map[string]string{"order": `json("order") ?? ""`, "refund": `json("refund") ?? ""`}, ShareBy: `header("X-Shop")`,
		Limits: []scheduler.Limit{
			{Name: "app", Calls: 100, Window: time.Second},
			{Name: "order", PerKey: `json("order") ?? "none"`, When: `path != "/payout"`, Calls: 100, Window: time.Second},
		},
	}
	u.Outcomes = []upstream.Rule{{When: "status == 400", Is: upstream.Failed}, {When: "status == 500", Is: upstream.Unknown}}
	if durable {
		u.Durable = "false"
	}
	r = newRig(t, u, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/pay": 200, "/refund": 400, "/payout": 500}[r.URL.Path])
	})
	for _, body := range []string{
		`{"upstream":"pay","method":"POST","target":"/pay","headers":{"X-Shop":"s1"},"body":"{\"order\":\"O1\"}","idempotency_key":"k1"}`,
		`{"upstream":"pay","method":"POST","target":"/refund","headers":{"X-Shop":"s2"},"body":"{\"order\":\"O1\",\"refund\":\"R1\"}"}`,
		`{"upstream":"pay","method":"POST","target":"/payout","headers":{"X-Shop":"s1"},"body":"{\"order\":\"O2\"}"}`,
		`{"upstream":"pay","method":"POST","target":"/pay","headers":{"X-Shop":"s1"},"body":"{\"order\":\"R1\"}","not_before":"2999-01-01T00:00:00Z"}`,
	} {
		call := r.submit(t, body)
		if len(calls) < 3 {
			call = read[api.Call](t, r.admin.URL+"/v1/calls/"+call.ID, "Prefer: wait=10")
		}
		calls = append(calls, call)
	}
	if calls[0].State != api.Done || calls[1].State != api.Failed || calls[2].State != api.Unknown || calls[3].State != api.Waiting {
		t.Fatalf("%+v", calls)
	}
	return r, calls
}

// TestFind asks for calls by each parameter of a list, in memory and in a store.
func TestFind(t *testing.T) {
	for name, durable := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			r, calls := found(t, durable)
			middle := url.QueryEscape(calls[1].AcceptedAt.Format(time.RFC3339Nano))
			ended := url.QueryEscape(calls[1].FinishedAt.Format(time.RFC3339Nano))
			for query, want := range map[string]string{ // digits of calls, in order
				"":                              "3210",
				"order=newest":                  "3210",
				"order=oldest":                  "0123",
				"number=O1":                     "10",
				"number=R1":                     "31",
				"number.order=R1":               "3",
				"number.refund=R1":              "1",
				"number.trade=O1":               "",
				"number=O":                      "",
				"q=" + calls[2].ID:              "2",
				"q=R1":                          "31",
				"q=O1":                          "10",
				"q=k1":                          "0",
				"q=O2":                          "2",
				"q=s1":                          "",
				"idempotency_key=k1":            "0",
				"idempotency_key=k":             "",
				"upstream=pay":                  "3210",
				"state=done":                    "0",
				"state=done&state=waiting":      "30",
				"outcome=done":                  "0",
				"outcome=failed":                "1",
				"outcome=unknown":               "2",
				"outcome=not_executed":          "3",
				"needs=person":                  "2",
				"limit=app":                     "3210",
				"limit=order":                   "310",
				"limit=order&key=O1":            "10",
				"key=O1":                        "10",
				"key=O2":                        "",
				"flow=s1":                       "320",
				"flow=s2":                       "1",
				"origin=admin":                  "3210",
				"origin=data":                   "",
				"submitted_by=shop":             "",
				"path_prefix=/pay":              "320",
				"path_prefix=/payo":             "2",
				"path_prefix=%25":               "",
				"accepted_after=" + middle:      "321",
				"accepted_before=" + middle:     "0",
				"finished_after=" + ended:       "1",
				"finished_before=" + ended:      "0",
				"number=O1&state=failed":        "1",
				"flow=s1&path_prefix=/pay&q=R1": "3",
				"accepted_after=" + middle + "&finished_before=2999-01-01T00:00:00Z": "1",
			} {
				if got := r.digits(t, calls, query); got != want {
					t.Errorf("%s: calls %q, want %q", query, got, want)
				}
			}
			if q := "accepted_after=" + url.QueryEscape(calls[1].AcceptedAt.In(time.FixedZone("", 8*3600)).Format(time.RFC3339Nano)); r.digits(t, calls, q) != "321" {
				t.Errorf("an instant of another zone: %q", r.digits(t, calls, q))
			}
		})
	}
}

// digits returns the calls of a list, by their places among others. Pages of one call have
// the same ones.
func (r *rig) digits(t *testing.T, calls []api.Call, query string) string {
	t.Helper()
	all, single := r.pages(t, calls, query+"&page_size=1000"), r.pages(t, calls, query+"&page_size=1")
	if all != single {
		t.Errorf("%s: %q, call by call %q", query, all, single)
	}
	return all
}

func (r *rig) pages(t *testing.T, calls []api.Call, query string) (digits string) {
	t.Helper()
	cursor := ""
	for range 10 {
		page := read[api.Calls](t, r.admin.URL+"/v1/calls?"+strings.TrimPrefix(query, "&")+cursor)
		for _, c := range page.Calls {
			digits += string(rune('0' + slices.IndexFunc(calls, func(other api.Call) bool { return other.ID == c.ID })))
		}
		if page.Next == "" {
			return digits
		}
		cursor = "&cursor=" + page.Next
	}
	t.Errorf("%s has no last page", query)
	return digits
}

// TestFindRefuses: a fault of a parameter is named with it, and never chooses other calls.
func TestFindRefuses(t *testing.T) {
	r, calls := found(t, false)
	next := read[api.Calls](t, r.admin.URL+"/v1/calls?limit=order&key=O1&page_size=1").Next
	for query, want := range map[string]string{ // the faulty parameters
		"q=":                               "q",
		"number=":                          "number",
		"number.order=":                    "number.order",
		"number.=x":                        "number.",
		"idempotency_key=":                 "idempotency_key",
		"submitted_by=":                    "submitted_by",
		"number.order=O1&number.refund=R1": "number.order|number.refund",
		"number=O1&number.refund=R1":       "number|number.refund",
		"number=O1&number=O2":              "number",
		"state=lost":                       "state",
		"state=done&state=lost":            "state",
		"state=":                           "state",
		"outcome=expired":                  "outcome",
		"needs=query":                      "needs",
		"origin=cloud":                     "origin",
		"order=random":                     "order",
		"accepted_after=yesterday":         "accepted_after",
		"accepted_before=2026-11-21":       "accepted_before",
		"finished_after=0":                 "finished_after",
		"finished_before=":                 "finished_before",
		"page_size=0":                      "page_size",
		"page_size=1001":                   "page_size",
		"page_size=ten":                    "page_size",
		"flow=a&flow=b":                    "flow",
		"stat=done":                        "stat",
		"page_size=0&stat=done&state=lost&q=a&q=b": "page_size stat state q",
	} {
		resp, body := send(t, "GET", r.admin.URL+"/v1/calls?"+query, "")
		if resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
			continue
		}
		for _, name := range strings.Fields(want) {
			if !slices.ContainsFunc(strings.Split(name, "|"), func(one string) bool { return strings.Contains(body, `{"parameter":"`+one+`","detail":"`) }) {
				t.Errorf("%s: no fault of %s in %s", query, name, body)
			}
		}
	}
	for query, want := range map[string]string{
		"cursor=x":                   "none of ours",
		"cursor=" + next:             "another filter",
		"limit=order&cursor=" + next: "another filter",
		"limit=order&key=O1&order=oldest&cursor=" + next: "another filter or order",
		"limit=order+O1&cursor=" + next:                  "another filter",
		"limit=order&key=O1&cursor=" + next + "A":        "none of ours",
	} {
		if resp, body := send(t, "GET", r.admin.URL+"/v1/calls?"+query, ""); resp.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query, resp.StatusCode, body, want)
		}
	}
	if page := read[api.Calls](t, r.admin.URL+"/v1/calls?limit=order&key=O1&page_size=7&cursor="+next); len(page.Calls) != 1 || page.Calls[0].ID != calls[0].ID {
		t.Errorf("another page size: %+v", page)
	}
	if resp, body := send(t, "GET", r.admin.URL+"/v1/calls?upstream=nope", ""); resp.StatusCode != 404 || !strings.Contains(body, "nope") {
		t.Errorf("an unknown upstream: %d %s", resp.StatusCode, body)
	}
}
