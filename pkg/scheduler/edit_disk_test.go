package scheduler_test

import (
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestEditedCallsLeaveMemory: a call that is put off for long is on disk only.
func TestEditedCallsLeaveMemory(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		w := &site{pay: 200}
		s, _ := start(w.upstream(false))
		defer s.Close()
		soon := time.Now().Add(10 * time.Second)
		c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/pay", NotBefore: soon})
		if err != nil || s.InMemory() != 1 {
			t.Fatalf("%v, %d calls in memory", err, s.InMemory())
		}
		for _, later := range []time.Time{soon.Add(time.Hour), soon.Add(2 * time.Hour), soon} {
			got, err := s.Edit(t.Context(), c.ID, scheduler.Edit{NotBefore: &later})
			if want := map[bool]int{true: 1, false: 0}[later.Equal(soon)]; err != nil || got.State != scheduler.Waiting || !got.ETA.Equal(later) || s.InMemory() != want {
				t.Errorf("until %v: %+v, %v, %d calls in memory", later, got, err, s.InMemory())
			}
			if st, err := s.Status(t.Context(), "api"); err != nil || st.Waiting != 1 {
				t.Errorf("%+v, %v", st, err)
			}
		}
		time.Sleep(11 * time.Second)
		if w.sent("/pay") != 1 {
			t.Error("it was not sent")
		}
	})
}
