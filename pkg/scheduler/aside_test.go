package scheduler

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// More calls lack permits of two limits than one look at them takes: those that
// lack none go all the same.
func TestManyCallsThatStepAsideBlockNobody(t *testing.T) {
	key := `query("k")`
	u := Upstream{Limits: []Limit{
		{Name: "hour", When: `path == "/refund"`, PerKey: key, Calls: 2, Window: time.Hour, Cost: "2"},
		{Name: "day", When: `path == "/refund"`, PerKey: key, Calls: 2, Window: 2 * time.Hour, Cost: "2"},
		{Name: "m", When: `path == "/batch"`, PerKey: key, Calls: 2, Window: sec, Cost: "2"},
		{Name: "n", When: `path == "/batch"`, PerKey: key, Calls: 2, Window: sec, Cost: "2"},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 20 * ms} }
		for i := range 4 * lookAside {
			for range 2 {
				submit(t, s, Request{Target: fmt.Sprintf("/refund?k=%d", i)})
			}
		}
		first := submit(t, s, Request{Target: "/batch?k=v"})
		second := submit(t, s, Request{Target: "/batch?k=v"})
		time.Sleep(2 * sec)
		for i, id := range []string{first.ID, second.ID} {
			c := s.mustGet(t, id)
			if want := time.Duration(i) * 1020 * ms; c.State != Done || c.Attempts[0].SentAt.Sub(f.start).Round(10*ms) != want {
				t.Errorf("batch %d is %s (%+v), want it sent at %v", i, c.State, c.Attempts, want)
			}
		}
	})
}

func TestAPauseThatEndsLetsAllGoAtOnce(t *testing.T) {
	u := Upstream{Concurrency: 4000, Limits: []Limit{
		{Name: "app", Calls: 2000, Window: sec},
		{Name: "m", PerKey: `path`, Calls: 2, Window: sec, Cost: "2"},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 3 * sec} }
		until := time.Now().Add(10 * sec)
		for _, limit := range []string{"app", "m"} {
			if err := s.Pause(t.Context(), "api", limit, "", until); err != nil {
				t.Fatal(err)
			}
		}
		const calls = 4*lookAside - 12
		for i := range calls {
			submit(t, s, Request{Target: fmt.Sprint("/", i)})
		}
		time.Sleep(10*sec + 10*ms)
		synctest.Wait()
		if n := len(f.at()); n != calls {
			t.Errorf("%d of %d calls were sent when the pauses ended", n, calls)
		}
	})
}
