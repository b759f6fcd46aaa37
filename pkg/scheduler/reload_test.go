package scheduler

import (
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestSpacingLeavesUncountedCallsAlone: a budget of two failures a minute does not
// space calls that are done.
func TestSpacingLeavesUncountedCallsAlone(t *testing.T) {
	u := Upstream{Burst: 2, Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "failed", Calls: 2, Window: time.Minute, Counts: []upstream.Outcome{upstream.Failed}},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 5 {
			wait(t, s, submit(t, s, Request{}).ID)
		}
		sameTimes(t, f.at(), 0, 10*ms, 100*ms, 200*ms, 300*ms)
	})
}

// TestPausesOutliveAChangedWindow: who has shut a limit, or a key of one, meant it,
// also where a reload makes it another limit.
func TestPausesOutliveAChangedWindow(t *testing.T) {
	limits := func(window time.Duration, perKey string) []Limit {
		return []Limit{{Name: "app", Calls: 5, Window: window}, {Name: "key", PerKey: perKey, Calls: 5, Window: window}}
	}
	bubble(t, Upstream{Limits: limits(sec, `header("X-Tenant")`)}, func(t *testing.T, s *Scheduler, f *fake) {
		reload := func(l []Limit) {
			t.Helper()
			u := Upstream{Config: upstream.Config{URL: "http://api.test", Transport: f}, Limits: l}
			if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
				t.Fatal(err)
			}
		}
		pause := func(limit, key string, at time.Duration) {
			t.Helper()
			if err := s.Pause(t.Context(), "api", limit, key, f.start.Add(at)); err != nil {
				t.Fatal(err)
			}
		}
		pause("app", "", 10*sec)
		pause("key", "a", 20*sec)
		pause("key", "b", 5*sec)
		reload(limits(2*sec, `header("X-Tenant")`))
		b, a := submit(t, s, Request{Header: tenant("b")}), submit(t, s, Request{Header: tenant("a")})
		wait(t, s, b.ID)
		wait(t, s, a.ID)
		sameTimes(t, f.at(), 10*sec, 20*sec)

		// A key that is computed in another way is another key.
		pause("key", "a", 40*sec)
		reload(limits(2*sec, `header("X-Tenant") + ""`))
		wait(t, s, submit(t, s, Request{Header: tenant("a")}).ID)
		sameTimes(t, f.at(), 10*sec, 20*sec, 20*sec+10*ms) // after a round trip
	})
}
