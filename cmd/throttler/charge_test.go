package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// TestActualCostOverKills: what an answer tells of a call's cost is known after kill -9; a call
// in flight then counts with its most.
func TestActualCostOverKills(t *testing.T) {
	hang := make(chan struct{})
	arrived := make(chan struct{}, 9)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		if r.URL.Path == "/hang" {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
		io.WriteString(w, `{"extensions":{"cost":{"requestedQueryCost":40,"actualQueryCost":7}}}`)
	}))
	defer srv.Close()
	defer close(hang)
	yaml := "long_window: 2h\n" + oneUpstream(filepath.Join(t.TempDir(), "t.db"), "alipay", srv.URL, `
    timeout: 30m
    late: 30m
    idempotent: ''
    limits:
      - {name: points, calls: 100, window: 24h, cost: 40, actual_cost: 'body("extensions.cost.actualQueryCost")'}
      - {name: burst, calls: 100, window: 1h, cost: 40, actual_cost: 'body("extensions.cost.actualQueryCost")'}
`)
	p := launch(t, yaml)
	out := func(limit string) int {
		t.Helper()
		var all api.Limits
		if err := json.Unmarshal([]byte(p.body("/v1/limits?upstream=alipay")), &all); err != nil {
			t.Fatal(err)
		}
		for _, l := range all.Limits {
			if l.Limit == limit {
				return l.Out
			}
		}
		t.Fatalf("no limit %s in %+v", limit, all)
		return 0
	}
	restart := func() {
		t.Helper()
		p.kill9()
		p = launch(t, yaml)
	}
	done := func(id string) func() bool {
		return func() bool { return p.call(id).State == api.Done }
	}
	p.until(t, "done", done(p.submit(t, "/one")))
	if points, burst := out("points"), out("burst"); points != 7 || burst != 7 {
		t.Errorf("after an answer %d and %d points are out, want the 7 that it tells", points, burst)
	}
	restart()
	// The short window is stored call by call; of the long one the lease of 40 counts.
	if points, burst := out("points"), out("burst"); points != 40 || burst != 7 {
		t.Errorf("after kill -9 %d and %d points are out, want a lease of 40, and 7", points, burst)
	}
	p.submit(t, "/hang")
	<-arrived
	select {
	case <-arrived:
	case <-time.After(time.Minute):
		t.Fatal("the second call has not arrived")
	}
	restart()
	if points, burst := out("points"), out("burst"); points != 80 || burst != 47 {
		t.Errorf("after kill -9 with a call in flight %d and %d points are out, want 80 and 47", points, burst)
	}
}
