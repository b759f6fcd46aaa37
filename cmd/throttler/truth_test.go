package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// upstream returns the state of an upstream as the admin API tells it.
func (p *process) upstream(t *testing.T, name string) api.Upstream {
	t.Helper()
	var all []api.Upstream
	if err := json.Unmarshal([]byte(p.body("/v1/upstreams")), &all); err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("there is no upstream %s", name)
	return api.Upstream{}
}

// page returns a list of calls by a query.
func (p *process) page(t *testing.T, query string) api.Page {
	t.Helper()
	var page api.Page
	if text := p.body("/v1/calls?" + query); json.Unmarshal([]byte(text), &page) != nil || page.Calls == nil {
		t.Fatal(text)
	}
	return page
}

// TestBacklogOnDisk has more calls than are in memory. What lists, single calls and the
// upstream tell of them agrees, for those on disk too. Calls go so seldom that the time of
// the test itself does not count.
func TestBacklogOnDisk(t *testing.T) {
	const calls, each = 3000, 6 * time.Second // ten a minute
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := launch(t, fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: %s, limits: [{name: app, calls: 10, window: 1m}]}\n",
		filepath.Join(t.TempDir(), "throttler.db"), url))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range calls / 20 {
				p.submitTo(t, "alipay")
			}
		})
	}
	all.Wait()
	near := func(what string, eta time.Time, ahead int) {
		t.Helper()
		if d := time.Until(eta) - time.Duration(ahead)*each; d.Abs() > 5*time.Minute {
			t.Errorf("%s goes %v later than it should", what, d)
		}
	}
	near("the last call, by its upstream,", p.upstream(t, "alipay").ETA, calls)
	seen, cursor, last := 0, "", ""
	for more := true; more; more = cursor != "" {
		page := p.page(t, "state=waiting&limit=1000&cursor="+cursor)
		for _, c := range page.Calls {
			if c.State != api.Waiting || c.ETA.IsZero() || c.WaitingFor == nil || c.WaitingFor.Limit != "app" {
				t.Fatalf("call %d: %+v", seen, c)
			}
			near(fmt.Sprintf("call %d", seen), c.ETA, seen)
			seen, last = seen+1, c.ID
		}
		cursor = page.Next
	}
	if seen < calls-100 {
		t.Errorf("%d calls are listed, want about %d", seen, calls)
	}
	var call api.Call
	if err := json.Unmarshal([]byte(p.body("/v1/calls/"+last)), &call); err != nil {
		t.Fatal(err)
	}
	near("the last call", call.ETA, calls)
	var paused api.Upstream
	if err := json.Unmarshal([]byte(p.post(t, "/v1/upstreams/alipay/pause", `{"for":"10h"}`, 200)), &paused); err != nil {
		t.Fatal(err)
	}
	near("the last call after a pause", paused.ETA, calls+6000)
}

// submitTo hands a durable call over.
func (p *process) submitTo(t *testing.T, upstream string) {
	t.Helper()
	p.post(t, "/v1/calls", fmt.Sprintf(`{"upstream":%q,"method":"POST","path":"/"}`, upstream), 202)
}

// post sends a body to the admin API, and returns that of the answer.
func (p *process) post(t *testing.T, path, body string, status int) string {
	t.Helper()
	resp, err := http.Post(p.admin+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Errorf("%s: %s, %v: %s", path, resp.Status, err, answer)
	}
	return string(answer)
}
