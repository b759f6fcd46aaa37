package store

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestEditOnDisk changes calls that are on disk only. They go by the changes, in this process and in
// the next, and leave memory if they are due much later.
func TestEditOnDisk(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up, begin := filepath.Join(dir, "edit.db"), &log{}, time.Now()
		limit := scheduler.Limit{Name: "key", Calls: 1, Window: time.Second}
		s := startProcess(t, path, up, limit)
		delayed := func(path string) *scheduler.Call {
			return hand(t, s, scheduler.Request{Target: path, NotBefore: begin.Add(time.Hour)})
		}
		soon, next, dropped, far := delayed("/soon"), delayed("/next"), delayed("/dropped"), delayed("/far")
		edit := func(c *scheduler.Call, e scheduler.Edit) {
			t.Helper()
			if got, err := s.Edit(t.Context(), c.ID, e); err != nil || got.State != scheduler.Waiting {
				t.Errorf("%+v, %v", got, err)
			}
		}
		at := func(d time.Duration) *time.Time { return new(begin.Add(d)) }
		edit(soon, scheduler.Edit{NotBefore: at(5 * time.Second)})
		edit(next, scheduler.Edit{NotBefore: at(2 * time.Minute), Priority: new(7)})
		edit(dropped, scheduler.Edit{Deadline: at(2 * time.Hour)})
		edit(far, scheduler.Edit{NotBefore: at(3 * time.Hour)})
		ended := make(chan *scheduler.Call, 1)
		go func() { ended <- must(s.Wait(t.Context(), next.ID)) }()
		synctest.Wait()
		edit(next, scheduler.Edit{NotBefore: at(3 * time.Minute)}) // on disk again, with its watcher
		time.Sleep(10 * time.Second)
		if sent := fmt.Sprint(up.sent()); sent != "[/soon]" {
			t.Errorf("sent %v", sent)
		}
		if c, err := s.Cancel(t.Context(), dropped.ID); err != nil || c.State != scheduler.Cancelled {
			t.Errorf("cancelled: %+v, %v", c, err)
		}
		time.Sleep(4 * time.Minute)
		if c := <-ended; c.State != scheduler.Done || c.Priority != 7 || c.Last().SentAt.Sub(begin).Round(time.Second) != 3*time.Minute {
			t.Errorf("next: %+v", c)
		}
		s.Close()
		s = startProcess(t, path, up, limit)
		defer s.Close()
		if c := must(s.Get(t.Context(), far.ID)); !c.NotBefore.Equal(*at(3 * time.Hour)) || c.ETA.Before(*at(3 * time.Hour)) {
			t.Errorf("after a restart: %+v", c)
		}
		if st := first(t, s); st.Waiting != 1 {
			t.Errorf("%+v, want one call that waits", st)
		}
		time.Sleep(3 * time.Hour)
		if sent := fmt.Sprint(up.sent()); sent != "[/soon /next /far]" {
			t.Errorf("sent %v", sent)
		}
	})
}

// TestRetryOverRestart: a call that is sent again in spite of a duplicate waits over a restart,
// with all its attempts, and however long ago it was sent first.
func TestRetryOverRestart(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "retry.db"), &log{lost: true}
		start := func() *scheduler.Scheduler {
			u := scheduler.Upstream{Breaker: retry.Trip{Unknown: -1}, Retry: retry.Policy{Attempts: 2}}
			u.URL, u.Transport = "http://api.test", up
			u.Idempotency = upstream.Idempotency{Header: "Key", Retention: time.Hour}
			return must(scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: openTest(t, path), Log: quiet}))
		}
		s := start()
		c := hand(t, s, scheduler.Request{Target: "/pay", Header: http.Header{"Key": {"k"}}})
		time.Sleep(2 * time.Hour)
		d := scheduler.Decision{Attempt: 2, By: "alice", Reason: "nothing is known"}
		if _, err := s.Retry(t.Context(), c.ID, d); err == nil {
			t.Error("a repeat that the upstream has forgotten was sent")
		}
		if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		d.AcceptDuplicate = true
		if got, err := s.Retry(t.Context(), c.ID, d); err != nil || got.State != scheduler.Waiting {
			t.Errorf("%+v, %v", got, err)
		}
		s.Close()
		s = start()
		time.Sleep(10 * time.Minute)
		got := must(s.Get(t.Context(), c.ID))
		if p := got.Pending; got.State != scheduler.Unknown || len(got.Attempts) != 4 || len(got.Decisions) != 1 || p == nil || !p.RepeatIsSafe || p.Attempt != 4 || !p.Since.Equal(got.Attempts[0].EndedAt) {
			t.Errorf("after a restart: %+v, %+v", got, got.Pending)
		}
		s.Close()
		s = start()
		defer s.Close()
		d.Attempt, d.As = 4, upstream.Done
		if got, err := s.Resolve(t.Context(), c.ID, d); err != nil || got.State != scheduler.Done || len(got.Decisions) != 2 || got.Decisions[1].AcceptDuplicate {
			t.Errorf("resolved: %+v, %v", got, err)
		}
	})
}
