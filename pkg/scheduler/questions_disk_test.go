package scheduler_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestNotifiedOnDisk: a notification finds a call that has left memory after its last query,
// also in the next process, and none that a person has decided on disk.
func TestNotifiedOnDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 500, query: 503}
		ups := w.upstream(true)
		u := ups["api"]
		u.Numbers = map[string]string{"order": "path"}
		ups["api"] = u
		order := map[string]string{"order": "/pay"}

		s, _ := start(ups)
		c := hand(t, s, "/pay")
		time.Sleep(5 * time.Minute) // its queries are used up
		if n, sent := s.InMemory(), w.sent("/query"); n != 0 || sent != 2 {
			t.Fatalf("%d in memory, %d queries", n, sent)
		}
		if n := s.Notified("api", order); n != 1 {
			t.Errorf("%d calls, want the one on disk", n)
		}
		synctest.Wait()
		if sent := w.sent("/query"); sent != 3 {
			t.Errorf("%d queries, want one more", sent)
		}
		time.Sleep(5 * time.Minute)
		if n := s.InMemory(); n != 0 || state(t, s, c.ID) != scheduler.Unknown {
			t.Errorf("%d in memory, %s", n, state(t, s, c.ID))
		}
		s.Close()

		s, _ = start(ups)
		time.Sleep(time.Second)
		w.answer(500, 200)
		if n := s.Notified("api", order); n != 1 {
			t.Errorf("%d calls after a restart, want 1", n)
		}
		synctest.Wait()
		if got := state(t, s, c.ID); got != scheduler.Done {
			t.Errorf("%s, want done", got)
		}

		w.answer(500, 503)
		c = hand(t, s, "/pay")
		time.Sleep(5 * time.Minute)
		if _, err := s.Resolve(t.Context(), c.ID, scheduler.Decision{As: upstream.Failed}); err != nil {
			t.Fatal(err)
		}
		sent := w.sent("/query")
		if n := s.Notified("api", order); n != 0 {
			t.Errorf("%d calls, want none: they are decided", n)
		}
		time.Sleep(time.Hour)
		if got := state(t, s, c.ID); got != scheduler.Failed || w.sent("/query") != sent {
			t.Errorf("%s, %d queries more", got, w.sent("/query")-sent)
		}
		s.Close()
	})
}
