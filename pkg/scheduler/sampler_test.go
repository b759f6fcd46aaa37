package scheduler

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestSampleOfManyKeys has 3,000 keys, of which each has one call in flight and one that waits.
func TestSampleOfManyKeys(t *testing.T) {
	const keys = 3000
	u := Upstream{
		Concurrency: 2 * keys,
		Limits:      []Limit{{Name: "app", PerKey: `query("k")`, Calls: 1, Window: time.Hour}, {Name: "all", Calls: keys, Window: time.Hour}},
	}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: time.Minute} }
		for i := range 2 * keys {
			submit(t, s, Request{Target: fmt.Sprintf("/?k=%d", i%keys)})
		}
		synctest.Wait()
		steps := 0
		w := &walk{name: "api"}
		for more := true; more; steps++ {
			s.loop.ask(t.Context(), func(now time.Time) { more = w.step(now, s.loop) })
		}
		if w.visited < keys || steps < w.visited/keysAtOnce {
			t.Errorf("%d keys are visited in %d steps, at most %d at once are right", w.visited, steps, keysAtOnce)
		}
		check := func(when string, out, waiting int) {
			t.Helper()
			for _, l := range limits(t, s)[1:] {
				if l.Out != out || l.InFlight != out || l.Waiting != waiting || len(l.Keys) > maxKeys {
					t.Errorf("%s: limit %s has %d permits out, %d in flight, %d awaited, %d keys; want %d out and in flight, %d awaited", when, l.Limit, l.Out, l.InFlight, l.Waiting, len(l.Keys), out, waiting)
				}
			}
		}
		check("at first", keys, keys)
		if l := limits(t, s)[1]; l.LiveKeys != keys || l.Keys[0].Free != 0 || l.Keys[0].Out != 1 || l.Keys[0].Waiting != 1 {
			t.Errorf("%d live keys, the first is %+v", l.LiveKeys, l.Keys[0])
		}
		visited, made := s.sampler.visited, s.sampler.made
		time.Sleep(time.Duration(visited)*time.Second/keysPerSecond - 1)
		limits(t, s)
		if s.sampler.made != made {
			t.Errorf("a sample of %d keys is made again after %v", visited, time.Since(made))
		}
		time.Sleep(time.Minute)
		synctest.Wait() // all answers have come
		for _, l := range limits(t, s)[1:] {
			if l.Out != keys || l.InFlight != 0 || l.NextBack.IsZero() {
				t.Errorf("after the answers: %s has %d permits out, %d in flight, the next is back at %v", l.Limit, l.Out, l.InFlight, l.NextBack)
			}
		}
	})
}

// TestSampleDuringReload replaces the limits between two steps of a walk: it begins again.
func TestSampleDuringReload(t *testing.T) {
	const keys = 2 * keysAtOnce
	u := Upstream{Concurrency: keys, Limits: []Limit{{Name: "app", PerKey: `query("k")`, Calls: 1, Window: time.Hour}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for i := range keys {
			submit(t, s, Request{Target: fmt.Sprintf("/?k=%d", i)})
		}
		synctest.Wait()
		w := &walk{name: "api"}
		s.loop.ask(t.Context(), func(now time.Time) { w.step(now, s.loop) })
		u.URL, u.Transport = "http://api.test", f
		u.Limits = append([]Limit{{Name: "new", Calls: 5, Window: time.Second}}, u.Limits...)
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			s.loop.ask(t.Context(), func(now time.Time) { more = w.step(now, s.loop) })
		}
		if len(w.limits) != 3 || w.limits[1].Limit != "new" || w.limits[2].Out != keys || w.limits[2].LiveKeys != keys {
			t.Errorf("after a reload the limits are %d, the last has %d permits out", len(w.limits), w.limits[len(w.limits)-1].Out)
		}
	})
}

// TestSampleOfFewKeys is of now, however often it is asked for.
func TestSampleOfFewKeys(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(2)}, func(t *testing.T, s *Scheduler, f *fake) {
		for n := range 3 {
			if l := limits(t, s)[1]; l.Out != min(n, 2) || l.Waiting != max(0, n-2) {
				t.Errorf("after %d calls %d permits are out, %d awaited", n, l.Out, l.Waiting)
			}
			submit(t, s, Request{})
		}
	})
}
