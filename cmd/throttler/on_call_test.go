package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// TestOnCallCommands runs the commands of docs/on-call.md that change or search anything: each
// curl with a body, and the query of the store.
func TestOnCallCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	file := filepath.Join(t.TempDir(), "throttler.db")
	broken := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	p := launch(t, "admin: 127.0.0.1:0\nstore: "+file+"\nupstreams:\n  partner: {listen: 127.0.0.1:0, url: "+broken+", limits: [{name: refund, calls: 100, window: 1s}]}\n")
	unknown := func() string {
		var call api.Call
		read := func(text string) {
			if err := json.Unmarshal([]byte(text), &call); err != nil {
				t.Fatal(text)
			}
		}
		read(p.post(t, "/v1/calls", `{"upstream":"partner","method":"POST","path":"/refund","body":"{\"number\":\"R-88123\"}"}`, http.StatusAccepted))
		p.until(t, "an unknown call", func() bool { read(p.body("/v1/calls/" + call.ID)); return call.State == api.Unknown })
		return call.ID
	}

	id := unknown()
	query := regexp.MustCompile(`(?s)sqlite3 throttler.db "(.*?)"\n`).FindStringSubmatch(page)
	if query == nil {
		t.Fatal("the page has no query of the store")
	}
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var found, body string
	if err := db.QueryRow(query[1]).Scan(&found, &body); err != nil || found != id || !strings.Contains(body, "R-88123") {
		t.Errorf("the query finds %q, %q, %v; want call %s", found, body, err, id)
	}

	commands := regexp.MustCompile(`(?m)^curl --json '(.*?)'\s+\$ADMIN(\S+)`).FindAllStringSubmatch(page, -1)
	ends := regexp.MustCompile(`(?m)^curl -X DELETE "\$ADMIN/v1/pauses/ID(\S*)"`).FindAllStringSubmatch(page, -1)
	if len(commands) < 4 || len(ends) < 2 {
		t.Fatalf("the page has %d commands, and %d that end a pause", len(commands), len(ends))
	}
	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range commands {
		path, status := c[2], http.StatusOK
		if path == "/v1/pauses" {
			status = http.StatusCreated
		}
		if strings.Contains(path, "ID") {
			path = strings.ReplaceAll(path, "ID", unknown())
		}
		body := regexp.MustCompile(`"until":"[^"]*"`).ReplaceAllString(strings.ReplaceAll(c[1], "NAME", "partner"), `"until":"`+soon+`"`)
		answer := p.post(t, path, body, status)
		if path == "/v1/pauses" {
			for _, end := range ends {
				if ended := p.resume(t, "partner", end[1]); len(ended) > 1 {
					t.Errorf("ended: %+v", ended)
				}
			}
		}
		if reason := regexp.MustCompile(`"reason":"([^"]*)"`).FindStringSubmatch(c[1]); reason != nil && !strings.Contains(answer, reason[1]) {
			t.Errorf("%s: the answer lacks its reason: %s", c[0], answer)
		}
	}
	call := unknown()
	if answer := p.post(t, "/v1/calls/"+call+"/resolve", `{"outcome":"not_executed","attempt":1,"reason":"not in the statement"}`, http.StatusOK); !strings.Contains(answer, `"resolved":true`) {
		t.Errorf("a call that was not executed: %s", answer)
	}
	if answer := p.post(t, "/v1/calls/"+unknown()+"/retry", `{"nonsense":1}`, http.StatusBadRequest); !strings.Contains(answer, "reason") {
		t.Errorf("an unknown member: %s", answer)
	}
}
