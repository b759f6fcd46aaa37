package scheduler_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A fullable is a store with a disk that can be full. It calls a function once, after it has
// read a row.
type fullable struct {
	*store.DB
	full    atomic.Bool
	fetched func()
}

func (f *fullable) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	e, err := f.DB.Fetch(ctx, id)
	if fetched := f.fetched; fetched != nil {
		f.fetched = nil
		fetched()
	}
	return e, err
}

func (f *fullable) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	if f.full.Load() {
		return scheduler.ErrFull
	}
	return f.DB.Intend(ctx, c, take)
}

func (f *fullable) Accept(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	if f.full.Load() {
		return nil, scheduler.ErrFull
	}
	return f.DB.Accept(ctx, e)
}

type unsigned struct{}

func (unsigned) Sign(context.Context, *upstream.Request) error { return nil }

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

var ok = roundTrip(func(r *http.Request) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}
})

// onDisk runs a test in a bubble, with a function that starts a scheduler on the same
// store file.
func onDisk(t *testing.T, test func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable))) {
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		test(t, func(ups map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable) {
			t.Helper()
			db, err := store.Open(path, store.Options{Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			f := &fullable{DB: db}
			s, err := scheduler.New(scheduler.Config{Upstreams: ups, Store: f, Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			return s, f
		})
	})
}

func upstreamAt(name string) scheduler.Upstream {
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}}}
	u.URL, u.Transport = "http://"+name+".test", ok
	return u
}

// TestCallerOfAFullDisk: a waiting caller learns at once that the disk is full,
// whether its call is durable or not.
func TestCallerOfAFullDisk(t *testing.T) {
	for name, durable := range map[string]string{"durable": `path == "/"`, "not durable": ""} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
				u := upstreamAt("api")
				u.Durable = durable
				s, disk := start(map[string]scheduler.Upstream{"api": u})
				defer s.Close()
				disk.full.Store(true)
				began := time.Now()
				_, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
				var e *scheduler.Error
				if !errors.As(err, &e) || e.Reason != scheduler.DiskFull || e.RetryAfter != time.Second || time.Since(began) > time.Second {
					t.Errorf("after %v: %+v", time.Since(began), err)
				}
				disk.full.Store(false)
				if resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"}); err != nil {
					t.Errorf("with room again: %v", err)
				} else {
					resp.Body.Close()
				}
			})
		})
	}
}

// TestCallsOfAnUpstreamThatHasGone: calls of an upstream that is no longer configured
// can be neither cancelled nor sent again. The error says why, and how to proceed. They
// are counted, and unknown ones can be decided.
func TestCallsOfAnUpstreamThatHasGone(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		api := upstreamAt("api")
		api.Transport = roundTrip(func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: 500, Header: http.Header{}, Body: http.NoBody, Request: r}
		})
		s, _ := start(map[string]scheduler.Upstream{"api": api})
		submit := func(notBefore time.Time) string {
			t.Helper()
			c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/", NotBefore: notBefore})
			if err != nil {
				t.Fatal(err)
			}
			return c.ID
		}
		waiting, unknown, decided := submit(time.Now().Add(time.Hour)), submit(time.Time{}), submit(time.Time{})
		for _, id := range []string{unknown, decided} {
			if c, err := s.Wait(t.Context(), id); err != nil || c.State != scheduler.Unknown {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		counts := func(state string, waiting, unknown int) {
			t.Helper()
			st, err := s.Status(t.Context(), "api")
			if err != nil || st.State != state || st.Waiting != waiting || st.Unknown != unknown || st.Bytes > 0 != (waiting+unknown > 0) {
				t.Errorf("%+v, %v", st, err)
			}
		}
		s.Close()

		s, _ = start(map[string]scheduler.Upstream{"other": upstreamAt("other")})
		defer func() { s.Close() }()
		refused := func(what string, err error) {
			t.Helper()
			var e *scheduler.Error
			if !errors.As(err, &e) || e.Reason != scheduler.WrongState || !strings.Contains(e.Detail, `its upstream "api" is not configured`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := s.Cancel(t.Context(), waiting)
		refused("cancel", err)
		_, err = s.Resolve(t.Context(), unknown, scheduler.Decision{As: upstream.NotExecuted})
		refused("send again", err)
		counts("removed", 1, 2)
		if c, err := s.Resolve(t.Context(), decided, scheduler.Decision{As: upstream.Done}); err != nil || c.State != scheduler.Done {
			t.Errorf("%+v, %v", c, err)
		}
		counts("removed", 1, 1)
		if err := s.Reload(t.Context(), scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": upstreamAt("api")}}); err != nil {
			t.Fatal(err)
		}
		counts("up", 1, 1)
		if err := s.Reload(t.Context(), scheduler.Config{Upstreams: map[string]scheduler.Upstream{"other": upstreamAt("other")}}); err != nil {
			t.Fatal(err)
		}
		counts("removed", 1, 1)
		s.Close()

		s, _ = start(map[string]scheduler.Upstream{"api": upstreamAt("api")}) // as the error asked for
		if c, err := s.Cancel(t.Context(), waiting); err != nil || c.State != scheduler.Cancelled {
			t.Errorf("cancelled then: %+v, %v", c, err)
		}
		if _, err := s.Resolve(t.Context(), unknown, scheduler.Decision{As: upstream.NotExecuted}); err != nil {
			t.Error(err)
		}
		if c, err := s.Wait(t.Context(), unknown); err != nil || c.State != scheduler.Done {
			t.Errorf("sent again then: %+v, %v", c, err)
		}
		counts("up", 0, 0)
	})
}

// TestWebhookThatWasRefused: a webhook that a full disk refused is sent by the same
// process once there is room.
func TestWebhookThatWasRefused(t *testing.T) {
	onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
		release := make(chan struct{})
		api := upstreamAt("api")
		api.Transport = roundTrip(func(r *http.Request) *http.Response { <-release; return ok(r) })
		var told atomic.Int64
		hook := upstream.Config{URL: "http://shop.test/hook", Signer: unsigned{}, Transport: roundTrip(func(r *http.Request) *http.Response {
			told.Add(1)
			return ok(r)
		})}
		api.Callbacks = map[string]scheduler.Callback{"shop": {Config: hook}}
		s, disk := start(map[string]scheduler.Upstream{"api": api})
		defer s.Close()
		const calls = 3
		for range calls {
			if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/", Callback: "shop"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // the calls are in flight
		disk.full.Store(true)
		close(release)
		time.Sleep(5 * time.Minute)
		if n := told.Load(); n != 0 {
			t.Fatalf("%d webhooks were sent, of which the store knows nothing", n)
		}
		disk.full.Store(false)
		time.Sleep(2 * time.Minute)
		if n := told.Load(); n != calls {
			t.Errorf("%d webhooks were sent, want %d", n, calls)
		}
		time.Sleep(time.Hour)
		if n := told.Load(); n != calls {
			t.Errorf("an hour later %d webhooks were sent, want %d", n, calls)
		}
	})
}
