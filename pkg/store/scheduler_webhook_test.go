package store

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type unsigned struct{}

func (unsigned) Sign(context.Context, *upstream.Request) error { return nil }

// A shop counts the webhooks that it gets, by id.
type shop struct {
	mu   sync.Mutex
	told map[string]int
	news chan string
}

func (s *shop) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Webhook-Id")
	s.mu.Lock()
	s.told[id]++
	s.mu.Unlock()
	s.news <- id
}

// TestWebhooksAfterACrash: for a call that a crash made unknown, and for one that
// ended just before it, the next process sends the webhook, and the query for an
// unknown one. The process after that sends none again. The upstream may also come
// with a reload.
func TestWebhooksAfterACrash(t *testing.T) {
	for _, first := range []string{"api", "other"} {
		t.Run(first, func(t *testing.T) { webhooksAfterACrash(t, first) })
	}
}

func webhooksAfterACrash(t *testing.T, first string) {
	d := open(t, file(t), Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	var entries []*scheduler.Entry
	for n, target := range []string{"/asked", "/open", "/done"} {
		e := storetest.NewEntry(int64(n + 1))
		e.Call.Callback, e.Request.Target = "shop", target
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if err := d.Intend(t.Context(), storetest.Sent(e.Call), nil); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := d.Record(t.Context(), storetest.Ended(storetest.Sent(entries[2].Call), scheduler.Done)); err != nil {
		t.Fatal(err)
	}
	asked, left, ended := entries[0].Call.ID, entries[1].Call.ID, entries[2].Call.ID
	d.Close()

	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"state":"done"}`)) }))
	defer platform.Close()
	s := &shop{told: make(map[string]int), news: make(chan string, 100)}
	hook := httptest.NewServer(s)
	defer hook.Close()
	up := scheduler.Upstream{
		Config: upstream.Config{URL: platform.URL},
		Resolve: []scheduler.Resolve{{
			When: `path == "/asked"`, Target: `"/query"`, After: time.Millisecond,
			Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Done}},
		}},
		Callbacks: map[string]scheduler.Callback{"shop": {Config: upstream.Config{URL: hook.URL, Signer: unsigned{}}}},
	}
	for process := range 2 {
		d = open(t, d.writer.path, Options{})
		sch, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{first: up}, Store: d, Log: quiet})
		if err == nil && first != "api" {
			err = sch.Reload(t.Context(), scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": up}, Log: quiet})
		}
		if err != nil {
			t.Fatal(err)
		}
		for heard := 0; process == 0 && heard < 4; heard++ {
			select {
			case <-s.news:
			case <-time.After(10 * time.Second):
				t.Fatalf("only %v were told", s.told)
			}
		}
		if c, err := sch.Get(t.Context(), asked); err != nil || c.State != scheduler.Done {
			t.Errorf("the call that was asked about: %+v, %v", c, err)
		}
		if c, err := sch.Get(t.Context(), left); err != nil || c.State != scheduler.Unknown {
			t.Errorf("the other one: %+v, %v", c, err)
		}
		if err := sch.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{asked + ".unknown.1", asked + ".done.1", left + ".unknown.1", ended + ".done.1"} {
		if s.told[id] != 1 || len(s.told) != 4 {
			t.Errorf("told %v; want %s once", s.told, id)
		}
	}
}
