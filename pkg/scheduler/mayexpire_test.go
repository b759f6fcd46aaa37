package scheduler

import (
	"testing"
	"time"
)

// TestMayExpire: the status of a paused upstream tells whether a waiting call can end by its deadline before it
// goes, and forgets such a call with the last that waits.
func TestMayExpire(t *testing.T) {
	u := Upstream{Limits: perSecond(100), MaxAge: time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		pause := func(d time.Duration) {
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(d)}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(when string, waiting int, want bool) {
			t.Helper()
			if st := upstreams(t, s)[0]; st.Waiting != waiting || st.MayExpire != want {
				t.Errorf("%s: %d wait, may expire: %v", when, st.Waiting, st.MayExpire)
			}
		}
		pause(10 * sec)
		expect("nothing waits", 0, false)
		submit(t, s, Request{})
		expect("a pause shorter than max_age", 1, false)
		short := submit(t, s, Request{Deadline: time.Now().Add(30 * sec)})
		expect("a pause shorter than the deadline", 2, false)
		pause(time.Minute)
		expect("a longer one", 2, true)
		time.Sleep(31 * sec)
		if c := s.mustGet(t, short.ID); c.State != Expired {
			t.Errorf("it is %s", c.State)
		}
		time.Sleep(time.Minute)
		expect("all are gone", 0, false)
		pause(time.Minute)
		submit(t, s, Request{})
		expect("a later call", 1, false)
		pause(2 * time.Hour)
		expect("a pause longer than max_age", 1, true)
	})
}
