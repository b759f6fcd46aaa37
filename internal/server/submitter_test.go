package server

import (
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestSubmitter: a program that submits calls sees its own ones, with their responses, and
// nothing else: to it, other calls are not there, and other operations are forbidden.
func TestSubmitter(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(201)
		io.WriteString(w, "<paid>")
	})
	rules := &config.Access{}
	for _, c := range [][2]string{{"shop", "submitter"}, {"billing", "submitter"}, {"oncall", "operator"}, {"root", "admin"}} {
		rules.Tokens = append(rules.Tokens, config.Token{Name: c[0], Role: c[1], Sums: [][32]byte{sha256.Sum256([]byte(c[0]))}})
	}
	log := slog.New(slog.DiscardHandler)
	all := newAdmin(r.s, r.metrics, NewEvents(), log, nil).AdminConfig
	all.Guard = access.NewGuard(rules)
	r.admin = serve(t, NewAdmin(all), log)
	by := func(name string) string { return "Authorization: Bearer " + name }

	const paid = `{"upstream":"pay","method":"POST","target":"/pay","idempotency_key":"KEY"}`
	own := r.submit(t, strings.Replace(paid, "KEY", "own", 1), by("shop"))
	other := r.submit(t, strings.Replace(paid, "KEY", "other", 1), by("billing"))
	if own.SubmittedBy != "shop" || other.SubmittedBy != "billing" {
		t.Errorf("submitted by %q and %q", own.SubmittedBy, other.SubmittedBy)
	}
	call := read[api.Call](t, r.admin.URL+"/v1/calls/"+own.ID+"?include=response", by("shop"), "Prefer: wait=10")
	if call.State != api.Done || call.Response == nil || string(call.Response.Body) != "<paid>" {
		t.Errorf("its own call: %+v", call)
	}
	resp, body := send(t, "GET", r.admin.URL+"/v1/calls/"+own.ID+"/response", "", by("shop"))
	if resp.StatusCode != 200 || body != "<paid>" || resp.Header.Get("Throttler-Status") != "201" || resp.Header.Get("Throttler-Content-Type") != "text/html" || resp.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("its answer: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	read[api.Call](t, r.admin.URL+"/v1/calls/"+other.ID, by("billing"), "Prefer: wait=10")
	for query, want := range map[string]string{
		"": own.ID, "?submitted_by=shop": own.ID, "?submitted_by=billing": "", "?q=other": "", "?q=" + other.ID: "", "?idempotency_key=own": own.ID,
	} {
		var got []string
		for _, c := range read[api.Calls](t, r.admin.URL+"/v1/calls"+query, by("shop")).Calls {
			got = append(got, c.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("list%s: %v, want %q", query, got, want)
		}
	}
	if page := read[api.Calls](t, r.admin.URL+"/v1/calls?page_size=1", by("billing")); len(page.Calls) != 1 {
		t.Errorf("a page: %+v", page)
	} else if resp, body := send(t, "GET", r.admin.URL+"/v1/calls?page_size=1&cursor="+page.Next, "", by("shop")); resp.StatusCode != 400 {
		t.Errorf("the cursor of another submitter: %d %s", resp.StatusCode, body)
	}

	for _, op := range Operations() {
		path := strings.NewReplacer("{id}", other.ID, "{name}", "pay", "{limit}", "concurrency", "{reason}", "full").Replace(op.Path)
		body := ""
		if op.In != nil {
			body = `{"reason":"x"}`
		}
		want := 403
		switch {
		case op.ID == "submitCall", op.ID == "logIn":
			want = 400
		case op.ID == "submitCalls": // its body is no NDJSON
			want = 415
		case op.ID == "logOut":
			want = 404
		case op.Scope == access.Open, op.ID == "listCalls", op.ID == "getInfo":
			want = 200
		case strings.Contains(op.Path, "{id}") && op.Scope != access.Operate:
			want = 404
		}
		resp, got := send(t, op.Method, r.admin.URL+path, body, by("shop"))
		if resp.StatusCode != want || strings.Contains(got, "billing") || want != 200 && strings.Contains(got, `"state"`) {
			t.Errorf("%s %s: %d %s, want %d", op.Method, path, resp.StatusCode, got, want)
		}
	}
	if resp, body := send(t, "POST", r.admin.URL+"/v1/calls", strings.Replace(paid, "KEY", "other", 1), by("shop")); resp.StatusCode != 422 || resp.Header.Get("Throttler-Call") != "" || strings.Contains(body, other.ID) || strings.Contains(body, "billing") {
		t.Errorf("the idempotency key of another submitter: %d %s", resp.StatusCode, body)
	}
	for _, name := range []string{"shop", "oncall", "root"} {
		if repeat := r.submit(t, strings.Replace(paid, "KEY", "own", 1), by(name)); repeat.ID != own.ID || repeat.Response != nil {
			t.Errorf("a repeat by %s: %+v", name, repeat)
		}
	}
	if resp, body := send(t, "GET", r.admin.URL+"/v1/calls/"+own.ID+"/response", "", by("oncall")); resp.StatusCode != 403 || strings.Contains(body, "paid") {
		t.Errorf("the answer, by an operator: %d %s", resp.StatusCode, body)
	}
	if resp, body := send(t, "GET", r.admin.URL+"/v1/calls/"+own.ID+"?include=response", "", by("oncall")); resp.StatusCode != 403 || strings.Contains(body, "PHBhaWQ") {
		t.Errorf("the call with its answer, by an operator: %d %s", resp.StatusCode, body)
	}
	waits := r.submit(t, `{"upstream":"pay","method":"POST","target":"/","body":"<order>","headers":{"Content-Type":"text/xml"},"not_before":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`, by("shop"))
	for name, want := range map[string]int{"shop": 200, "root": 200, "oncall": 403, "billing": 404} {
		resp, body := send(t, "GET", r.admin.URL+"/v1/calls/"+waits.ID+"/request", "", by(name))
		if resp.StatusCode != want || strings.Contains(body, "<order>") != (want == 200) {
			t.Errorf("the request, by %s: %d %s", name, resp.StatusCode, body)
		}
		if want == 200 && (resp.Header.Get("Throttler-Content-Type") != "text/xml" || resp.Header.Get("Content-Security-Policy") != "sandbox") {
			t.Errorf("its header: %v", resp.Header)
		}
	}
	for name, want := range map[string]int{"billing": 404, "shop": 200} {
		if resp, body := send(t, "POST", r.admin.URL+"/v1/calls/"+waits.ID+"/cancel", `{"reason":"ordered twice"}`, by(name)); resp.StatusCode != want {
			t.Errorf("cancel by %s: %d %s", name, resp.StatusCode, body)
		}
	}
	records := read[api.AuditLog](t, r.admin.URL+"/v1/audit", by("root")).Records
	if len(records) != 1 || records[0].Actor != "shop" || records[0].Role != "submitter" || !strings.HasPrefix(records[0].Via, "token 127.0.0.1:") || records[0].Call != waits.ID || records[0].Reason != "ordered twice" {
		t.Errorf("audit: %+v", records)
	}
}
