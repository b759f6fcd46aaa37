package scheduler

import (
	"context"
	"log/slog"
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
			page, err := s.List(t.Context(), Filter{Upstream: "api", Oldest: true, After: after, Max: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Calls {
				got = append(got, c.ID)
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("listed %v, want %v", got, ids)
		}
		page, err := s.List(t.Context(), Filter{States: []State{Waiting}, Oldest: true, Max: 10})
		if err != nil {
			t.Fatal(err)
		}
		waiting := page.Calls
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

// A slowStore is a store whose lists take a while.
type slowStore struct {
	Store
	takes time.Duration
}

func (s slowStore) List(ctx context.Context, f Filter) (*ListPage, error) {
	page, err := s.Store.List(ctx, f)
	time.Sleep(s.takes)
	return page, err
}

// TestListWhileCallsGo: calls that were sent or have ended while a list was read are not
// among those of their former state, and others take their places.
func TestListWhileCallsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		u := Upstream{Limits: perSecond(1)}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Store: slowStore{NewMemory(100, 1<<20), 1500 * ms}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var ids []string
		for range 8 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(100 * ms)
		page, err := s.List(t.Context(), Filter{States: []State{Waiting}, Oldest: true, Max: 2})
		if err != nil || len(page.Calls) != 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, c := range page.Calls {
			if now := s.mustGet(t, c.ID); c.State != Waiting || now.State != Waiting {
				t.Errorf("call %d is listed as %s, and is %s", slices.Index(ids, c.ID), c.State, now.State)
			}
		}
	})
}
