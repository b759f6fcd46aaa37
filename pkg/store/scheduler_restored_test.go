package store

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestRestoredScheduler: a scheduler over a restored copy does not send what waited in it,
// be it repeatable, and keeps the limits of permits that it cannot know, also those of an
// upstream that comes later. Webhooks that waited are sent.
func TestRestoredScheduler(t *testing.T) {
	for _, later := range []bool{false, true} {
		dir := scratch(t)
		synctest.Test(t, func(t *testing.T) {
			up, hooks := &log{}, &log{}
			config := func(api bool) scheduler.Config {
				u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "hour", Calls: 3, Window: time.Hour}}}
				u.URL, u.Transport, u.Idempotent = "http://api.test", up, "true"
				hook := scheduler.Callback{}
				hook.URL, hook.Transport, hook.Signer = "http://shop.test", hooks, unsigned{}
				u.Callbacks = map[string]scheduler.Callback{"shop": hook}
				ups := map[string]scheduler.Upstream{"api": u}
				if !api {
					o := scheduler.Upstream{}
					o.URL, o.Transport = "http://other.test", up
					ups = map[string]scheduler.Upstream{"other": o}
				}
				return scheduler.Config{Upstreams: ups, Log: quiet}
			}
			start := func(d *DB, api bool) *scheduler.Scheduler {
				c := config(api)
				c.Store = d
				s, err := scheduler.New(c)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			d := openTest(t, filepath.Join(dir, "store.db"))
			s := start(d, true)
			at := time.Now().Add(time.Minute)
			waits := hand(t, s, scheduler.Request{Target: "/waits", NotBefore: at, Callback: "shop"})
			image := copyOf(t, d, filepath.Join(dir, "copy.db"))
			for n := range 3 {
				hand(t, s, scheduler.Request{Target: fmt.Sprint("/", n), NotBefore: at})
			}
			time.Sleep(2 * time.Minute)
			s.Close()
			before := len(up.sent())
			if before != 3 {
				t.Fatalf("%d were sent before, want 3", before)
			}
			r, err := Open(image, Options{Log: quiet, boot: steadyBoot, raw: "_pragma=synchronous(OFF)", reserve: 4096, Restored: true})
			if err != nil {
				t.Fatal(err)
			}
			s = start(r, !later)
			defer func() { s.Close() }()
			if later {
				time.Sleep(time.Minute)
				if err := s.Reload(t.Context(), config(true)); err != nil {
					t.Fatal(err)
				}
			}
			fresh := hand(t, s, scheduler.Request{Target: "/fresh"})
			time.Sleep(58 * time.Minute)
			if got := up.sent()[before:]; len(got) > 0 {
				t.Errorf("%v were sent within the hour", got)
			}
			if c := must(s.Get(t.Context(), waits.ID)); c.State != scheduler.Unknown {
				t.Errorf("%+v, want unknown", c)
			}
			if len(hooks.sent()) == 0 {
				t.Error("nothing told that the call is unknown")
			}
			time.Sleep(10 * time.Minute)
			if c := must(s.Get(t.Context(), fresh.ID)); c.State != scheduler.Done {
				t.Errorf("%+v, want done", c)
			}
		})
	}
}

// TestRestoredWebhook: a webhook that waited in a copy is sent: its receiver knows it again.
func TestRestoredWebhook(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		up := &log{}
		var tries atomic.Int64
		hook := scheduler.Callback{}
		hook.URL, hook.Signer = "http://shop.test", unsigned{}
		hook.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			return (&log{lost: tries.Add(1) == 1}).RoundTrip(r)
		})
		u := scheduler.Upstream{Callbacks: map[string]scheduler.Callback{"shop": hook}}
		u.URL, u.Transport = "http://api.test", up
		start := func(d *DB) *scheduler.Scheduler {
			s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Log: quiet, Store: d})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		d := openTest(t, filepath.Join(dir, "store.db"))
		s := start(d)
		hand(t, s, scheduler.Request{Target: "/done", Callback: "shop"})
		time.Sleep(time.Second) // the webhook has failed once, and waits for its repeat
		image := copyOf(t, d, filepath.Join(dir, "copy.db"))
		s.Close()
		if tries.Load() != 1 {
			t.Fatalf("%d tries, want 1", tries.Load())
		}
		r, err := Open(image, Options{Log: quiet, boot: steadyBoot, raw: "_pragma=synchronous(OFF)", reserve: 4096, Restored: true})
		if err != nil {
			t.Fatal(err)
		}
		s = start(r)
		defer s.Close()
		time.Sleep(time.Hour)
		if tries.Load() != 2 || len(up.sent()) != 1 {
			t.Errorf("%d tries of the webhook, want 2; %v sent", tries.Load(), up.sent())
		}
	})
}
