package scheduler

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
)

func ptr[T any](v T) *T { return &v }

// TestEdit: a change of a waiting call takes effect at once, and as at submit.
func TestEdit(t *testing.T) {
	u := Upstream{Limits: perSecond(1), MaxAge: time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		edit := func(c *Call, e Edit) *Call {
			t.Helper()
			got, err := s.Edit(t.Context(), c.ID, e)
			if err != nil || got.State != Waiting {
				t.Fatalf("%+v, %v", got, err)
			}
			return got
		}
		submit(t, s, Request{Target: "/first"})
		a, b, c := submit(t, s, Request{Target: "/a"}), submit(t, s, Request{Target: "/b"}), submit(t, s, Request{Target: "/c"})
		later := submit(t, s, Request{Target: "/later", NotBefore: f.start.Add(time.Minute)})
		synctest.Wait()
		if got := edit(c, Edit{Priority: ptr(5)}); got.Priority != 5 || !got.ETA.Equal(f.start.Add(sec)) || !got.Deadline.Equal(c.Deadline) {
			t.Errorf("first in line: %+v", got)
		}
		if got := edit(later, Edit{NotBefore: &time.Time{}}); !got.NotBefore.IsZero() || got.Deadline.After(f.start.Add(time.Hour+ms)) {
			t.Errorf("at once: %+v", got)
		}
		if got := edit(a, Edit{NotBefore: ptr(f.start.Add(30 * sec))}); !got.ETA.Equal(f.start.Add(30*sec)) || !got.Deadline.Equal(f.start.Add(30*sec+time.Hour)) {
			t.Errorf("delayed: %+v", got)
		}
		if got := edit(b, Edit{Deadline: ptr(f.start.Add(1500 * ms))}); !got.Deadline.Equal(f.start.Add(1500 * ms)) {
			t.Errorf("no later: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := f.targets(); got != "first c later a" || s.mustGet(t, b.ID).State != Expired {
			t.Errorf("sent %q, b is %s", got, s.mustGet(t, b.ID).State)
		}
		sameTimes(t, f.at(), 0, sec+10*ms, 2*sec+20*ms, 30*sec)
	})
}

func TestEditIsRefused(t *testing.T) {
	bubble(t, Upstream{Breaker: retry.Trip{Unknown: -1}, Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer { return answer{after: sec, status: 500} }
		sending := submit(t, s, Request{Target: "/a"})
		waiting := submit(t, s, Request{Target: "/b"})
		go s.Do(t.Context(), Request{Upstream: "api", Target: "/c"})
		synctest.Wait()
		page, err := s.List(t.Context(), Filter{States: []State{Waiting}, Oldest: true})
		if err != nil || len(page.Calls) != 2 {
			t.Fatal(page, err)
		}
		for _, tt := range []struct {
			id   string
			edit Edit
			want Reason
		}{
			{"nobody", Edit{Priority: ptr(1)}, NotFound},
			{sending.ID, Edit{Priority: ptr(1)}, WrongState},
			{page.Calls[1].ID, Edit{Priority: ptr(1)}, WrongState}, // its caller waits
			{waiting.ID, Edit{Priority: ptr(MaxPriority + 1)}, BadRequest},
			{waiting.ID, Edit{Deadline: ptr(f.start)}, BadRequest},
			{waiting.ID, Edit{NotBefore: ptr(f.start.Add(time.Hour)), Deadline: ptr(f.start.Add(time.Minute))}, BadRequest},
		} {
			if got, err := s.Edit(t.Context(), tt.id, tt.edit); reason(err) != tt.want {
				t.Errorf("%+v: %+v, %v; want %s", tt, got, err, tt.want)
			}
		}
		if got := s.mustGet(t, waiting.ID); got.Priority != 0 || !got.Deadline.Equal(waiting.Deadline) {
			t.Errorf("changed: %+v", got)
		}
		unknown := wait(t, s, sending.ID)
		if _, err := s.Edit(t.Context(), unknown.ID, Edit{Priority: ptr(1)}); reason(err) != WrongState {
			t.Errorf("unknown: %v", err)
		}
	})
}
