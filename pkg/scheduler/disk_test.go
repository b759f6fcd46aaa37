package scheduler_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// A fullable is a store whose disk may be full.
type fullable struct {
	*store.DB
	full atomic.Bool
}

func (f *fullable) Intend(c *scheduler.Call, take []scheduler.Hold) error {
	if f.full.Load() {
		return scheduler.ErrFull
	}
	return f.DB.Intend(c, take)
}

func (f *fullable) Accept(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	if f.full.Load() {
		return nil, scheduler.ErrFull
	}
	return f.DB.Accept(ctx, e)
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

var ok = roundTrip(func(r *http.Request) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}
})

// onDisk runs a test in a bubble, with a function that starts a life of a store.
func onDisk(t *testing.T, test func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable))) {
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		test(t, func(ups map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable) {
			t.Helper()
			quiet := slog.New(slog.DiscardHandler)
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

// A caller who waits is told at once that the disk is full, be the call durable or not.
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
