package store

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestWaitBehindTheDeadlineOverRestart: a call that its answer wants later than its deadline waits
// on disk until that, and ends then, also if the process began anew.
func TestWaitBehindTheDeadlineOverRestart(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, began, requests := filepath.Join(dir, "waits.db"), time.Now(), 0
		up := roundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
			time.Sleep(10 * time.Millisecond)
			return &http.Response{StatusCode: 423, Header: http.Header{"Retry-After": {"172800"}}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		})
		start := func() *scheduler.Scheduler {
			u := scheduler.Upstream{}
			u.URL, u.Transport, u.MaxPause = "http://api.test", up, 48*time.Hour
			u.Outcomes = []upstream.Rule{{When: "status == 423", Is: upstream.NotExecuted, After: time.Second}}
			s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: openTest(t, path), Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := start()
		id := hand(t, s, scheduler.Request{Target: "/"}).ID
		time.Sleep(time.Hour)
		s.Close()
		s = start()
		defer func() { s.Close() }()
		time.Sleep(22 * time.Hour)
		if c := must(s.Get(t.Context(), id)); c.State != scheduler.Waiting || !c.ETA.After(c.Deadline) {
			t.Errorf("after 23 h %s with ETA %v, want waiting behind %v", c.State, c.ETA, c.Deadline)
		}
		c := must(s.Wait(t.Context(), id))
		if at := time.Since(began); c.State != scheduler.Expired || c.Reason != scheduler.PastDeadline || at < 24*time.Hour || at > 24*time.Hour+time.Second || requests != 1 {
			t.Errorf("after %v and %d requests %s because of %q, want expired after a day", at, requests, c.State, c.Reason)
		}
	})
}
