package scheduler

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestListAndStatus(t *testing.T) {
	bubble(t, Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 1, Window: sec}}}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for range 5 {
			ids = append(ids, submit(t, s, Request{Target: "/k"}).ID)
			synctest.Wait()
		}
		time.Sleep(500 * ms)
		var got []string
		for after := ""; ; {
			page, err := s.List(t.Context(), Filter{Upstream: "api", After: after, Max: 2})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, c := range page {
				got = append(got, c.ID)
			}
			after = page[len(page)-1].ID
		}
		if !slices.Equal(got, ids) {
			t.Errorf("listed %v, want %v", got, ids)
		}
		waiting, _ := s.List(t.Context(), Filter{State: Waiting, Max: 10})
		if len(waiting) != 4 || waiting[3].WaitingFor == nil || waiting[3].WaitingFor.Ahead != 3 || waiting[3].ETA.Sub(f.start).Round(10*ms) != 4040*ms {
			t.Errorf("%d waiting, the last %+v; want 4, the last with 3 ahead until 4.04s", len(waiting), waiting[len(waiting)-1])
		}
		st := limits(t, s)
		if len(st) != 2 || st[1].Limit != "app" || st[1].Out != 1 || st[1].Waiting != 4 || st[1].Keys[0].Key != "/k" {
			t.Errorf("limits: %+v", st)
		}
		up := upstreams(t, s)[0]
		if up.Waiting != 4 || up.ETA.Sub(f.start).Round(10*ms) != 4040*ms {
			t.Errorf("upstream: %+v", up)
		}
	})
}
