package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
)

// TestSubmitter: an application with the token of a submitter submits, polls its call and gets
// the answer of the platform as it came; it sees nothing else.
func TestSubmitter(t *testing.T) {
	const paid = "{\"paid\":\"\u00a5 8\"}\n\x00"
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, paid) }))
	p := launch(t, "admin: 127.0.0.1:0\naccess:\n"+tokenLines()+"store: memory\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: '"+url+"', limits: [{name: app, calls: 100, window: 1s}]}\n")
	by := func(role access.Role) adminCaller {
		return adminCaller{base: p.admin, token: tokenFor(role), client: dialer(without(p.admin))}
	}
	submit := func(role access.Role, key string) (call api.Call) {
		t.Helper()
		status, body := by(role).ask(t, "POST", "/v1/calls", `{"upstream":"alipay","method":"POST","target":"/pay"}`, "Idempotency-Key: "+key)
		if err := json.Unmarshal([]byte(body), &call); err != nil || status != 202 {
			t.Fatalf("submit by %s: %d %s", role, status, body)
		}
		return call
	}
	own, other := submit(access.Submitter, "own"), submit(access.Operator, "other")
	app := by(access.Submitter)
	status, body := app.ask(t, "GET", "/v1/calls/"+own.ID, "", "Prefer: wait=20")
	if status != 200 || !strings.Contains(body, `"state":"done"`) || !strings.Contains(body, `"submitted_by":"t-submitter"`) {
		t.Errorf("its call: %d %s", status, body)
	}
	if status, body := app.ask(t, "GET", "/v1/calls/"+own.ID+"/response", ""); status != 200 || body != paid {
		t.Errorf("its answer: %d %q, want %q", status, body, paid)
	}
	if status, body := app.ask(t, "GET", "/v1/calls", ""); status != 200 || !strings.Contains(body, own.ID) || strings.Contains(body, other.ID) {
		t.Errorf("its list: %d %s", status, body)
	}
	if again := submit(access.Submitter, "own"); again.ID != own.ID {
		t.Errorf("a repeat is %s, want %s", again.ID, own.ID)
	}
	if status, body := app.ask(t, "POST", "/v1/calls", `{"upstream":"alipay","method":"POST","target":"/pay"}`, "Idempotency-Key: other"); status != 422 || strings.Contains(body, other.ID) {
		t.Errorf("the key of another caller: %d %s", status, body)
	}
	lines := `{"upstream":"alipay","method":"POST","target":"/pay","idempotency_key":"other"}` + "\n" + `{"upstream":"alipay","method":"POST","target":"/pay","idempotency_key":"own"}`
	status, body = app.ask(t, "POST", "/v1/calls/batch", lines, mediaOf("/v1/calls/batch"))
	if status != 200 || !strings.Contains(body, `"reason":"key_reused"`) || !strings.Contains(body, own.ID) || !strings.Contains(body, `"replayed":true`) || strings.Contains(body, other.ID) || strings.Contains(body, "t-operator") {
		t.Errorf("a batch with the key of another caller, and its own: %d %s", status, body)
	}
	for op, row := range accessRows {
		method, path, _ := strings.Cut(op, " ")
		want := 403
		switch {
		case row.roles == "all", path == "/v1/calls", path == "/v1/calls/batch":
			continue
		case path == "/v1/info":
			want = 200
		case strings.Contains(row.roles, "s"):
			want = 404 // of a call that is another caller's
		}
		path = strings.NewReplacer("{id}", other.ID, "{name}", "alipay", "{limit}", "app").Replace(path)
		if status, body := app.ask(t, method, path, row.body); status != want || strings.Contains(body, "t-operator") {
			t.Errorf("%s: %d %s, want %d", op, status, body, want)
		}
	}
}
