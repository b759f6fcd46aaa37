package scheduler

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestTotals compares the running totals with the sums of a walk over all keys, while calls wait
// and are sent, and after a reload.
func TestTotals(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 5, Window: sec}, {Name: "key", PerKey: `query("k")`, Calls: 2, Window: 3 * sec, Cost: `int(query("c"))`}, {Name: "flight", Concurrency: 4},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		check := func(when string) {
			t.Helper()
			totals := make(map[string]Totals)
			all, err := s.Totals(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, total := range all {
				totals[total.Limit] = total
			}
			if got, want := totals[""].Waiting, upstreams(t, s)[0].Waiting; got != want {
				t.Errorf("%s: %d calls wait, want %d", when, got, want)
			}
			for _, l := range limits(t, s) {
				got := totals[l.Limit]
				// It may count those that are back for less than a thousandth of the window.
				if got.Upstream != "api" || got.Waiting != l.Waiting || got.Out < l.Out || got.InFlight != l.InFlight || got.Most != l.Most {
					t.Errorf("%s: the totals of %s are %+v, want %+v", when, l.Limit, got, l)
				}
			}
			if len(all) != len(limits(t, s))+1 {
				t.Errorf("%s: %d totals", when, len(all))
			}
		}
		for i := range 40 {
			submit(t, s, Request{Target: fmt.Sprintf("/?k=%d&c=%d", i%3, 1+i%2)})
		}
		check("at first")
		for range 10 {
			time.Sleep(700 * ms)
			check("later")
		}
		u.URL, u.Transport = "http://api.test", f
		u.Limits = u.Limits[1:]
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		check("after a reload")
		time.Sleep(time.Hour)
		check("at the end")
		if all, _ := s.Totals(t.Context()); len(all) != 4 || all[1].Out != 0 || all[2].Out != 0 || all[3].Out != 0 {
			t.Errorf("at the end: %+v", all)
		}
	})
}

// TestKeyStatus: a key has the same figures alone as in the list, and all permits if it is not in use.
func TestKeyStatus(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 9, Window: sec}, {Name: "key", PerKey: `query("k")`, Calls: 2, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: time.Minute} }
		for range 5 {
			submit(t, s, Request{Target: "/?k=a"})
		}
		for i, tt := range []struct {
			limit, key string
			want       KeyStatus
			refused    Reason
		}{
			{"key", "a", limits(t, s)[2].Keys[0], ""},
			{"key", "b", KeyStatus{Key: "b", Free: 2}, ""},
			{"app", "", KeyStatus{Free: 7, Out: 2, InFlight: 2, Waiting: 3}, ""},
			{"app", "a", KeyStatus{}, BadRequest},
			{"none", "", KeyStatus{}, NotFound},
		} {
			got, err := s.Key(t.Context(), "api", tt.limit, tt.key)
			if got != tt.want || reason(err) != tt.refused {
				t.Errorf("%d: %+v, %v; want %+v, %s", i, got, err, tt.want, tt.refused)
			}
		}
		if got, _ := s.Key(t.Context(), "api", "key", "a"); got.Free != 0 || got.Out != 2 || got.InFlight != 2 || got.Waiting != 3 {
			t.Errorf("a key in use: %+v", got)
		}
		if _, err := s.Key(t.Context(), "none", "key", "a"); reason(err) != NotFound {
			t.Errorf("of no upstream: %v", err)
		}
	})
}

// TestFlows: of each flow the calls that wait count, and the oldest is that in front, whichever permits
// it takes.
func TestFlows(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: `query("k")`, Calls: 1, Window: time.Hour}}, ShareBy: `header("X-Tenant")`, Weights: map[string]float64{"gold": 3}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		begin := time.Now()
		for i, flow := range []string{"gold", "gold", "gold", "gold", "tin", "tin"} {
			time.Sleep(sec)
			submit(t, s, Request{Target: fmt.Sprintf("/?k=%d", i%2), Header: tenant(flow)})
		}
		submit(t, s, Request{Target: "/?k=9", NotBefore: time.Now().Add(time.Hour), Header: tenant("later")})
		got, err := s.Flows(t.Context(), "api")
		want := []FlowStatus{{"gold", 3, 2, begin.Add(3 * sec)}, {"tin", 1, 2, begin.Add(5 * sec)}}
		if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("flows are %+v, %v; want %+v", got, err, want)
		}
		if _, err := s.Flows(t.Context(), "none"); reason(err) != NotFound {
			t.Errorf("of no upstream: %v", err)
		}
	})
}

// TestManyFlows: those with most calls come, however many there are, and a walk takes few at a time.
func TestManyFlows(t *testing.T) {
	const flows = 2500
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: time.Hour}}, ShareBy: `header("X-Tenant")`, MaxAge: 300 * 24 * time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for i := range flows {
			submit(t, s, Request{Header: tenant(fmt.Sprint(i))})
		}
		for range 3 {
			submit(t, s, Request{Header: tenant("2000")})
		}
		synctest.Wait()
		steps := 0
		w := &walk{name: "api"}
		for more := true; more; steps++ {
			s.loop.ask(t.Context(), func(now time.Time) { more = w.step(now, s.loop) })
			if len(w.flows) >= 10*maxKeys {
				t.Errorf("a walk keeps %d flows", len(w.flows))
			}
		}
		if w.visited < flows || steps < w.visited/keysAtOnce {
			t.Errorf("%d keys and flows are visited in %d steps", w.visited, steps)
		}
		got, err := s.Flows(t.Context(), "api")
		if err != nil || len(got) != maxKeys || got[0].Flow != "2000" || got[0].Waiting != 4 || got[1].Waiting != 1 {
			t.Errorf("%d flows, the first is %+v, %v", len(got), got[0], err)
		}
	})
}

// TestFreePermits: each permit that a waiting call takes says how many are free, and those of other
// calls do not.
func TestFreePermits(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 9, Window: sec}, {Name: "key", PerKey: `query("k")`, Calls: 2, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for range 4 {
			ids = append(ids, submit(t, s, Request{Target: "/?k=a"}).ID)
		}
		synctest.Wait()
		free := func(id string) (all []int) {
			for _, p := range s.mustGet(t, id).Permits {
				if p.Free != nil {
					all = append(all, *p.Free)
				}
			}
			return all
		}
		if got := free(ids[3]); len(got) != 2 || got[0] != 7 || got[1] != 0 {
			t.Errorf("free are %v, want 7 and 0", got)
		}
		s.Pause(t.Context(), Pause{Upstream: "api", Limit: "app", Until: time.Now().Add(time.Minute)})
		if got := free(ids[3]); len(got) != 2 || got[0] != 0 {
			t.Errorf("free are %v of a paused limit, want none", got)
		}
		if got := free(ids[0]); got != nil {
			t.Errorf("of a call that was sent: %v", got)
		}
		u.URL, u.Transport, u.Limits = "http://api.test", f, u.Limits[1:]
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		if got := free(ids[3]); len(got) != 1 || got[0] != 0 {
			t.Errorf("free are %v when a limit is gone, want one", got)
		}
	})
}

// TestSignatureUntil: a caller's signature ages, that of a signer does not.
func TestSignatureUntil(t *testing.T) {
	u, now := Upstream{Signature: Signature{Life: time.Minute}}, time.Now()
	if at := u.SignatureUntil(now); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("good until %v", at.Sub(now))
	}
	u.Signer = stamper{}
	if at := u.SignatureUntil(now); !at.IsZero() {
		t.Errorf("by a signer, good until %v", at)
	}
	if at := new(Upstream).SignatureUntil(now); !at.IsZero() {
		t.Errorf("without a life, good until %v", at)
	}
}
