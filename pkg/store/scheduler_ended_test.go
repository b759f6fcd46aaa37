package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// endedOn starts a process whose ends handle gets.
func endedOn(t *testing.T, path string, up roundTripper, handle func(context.Context, *scheduler.Call) error) *scheduler.Scheduler {
	t.Helper()
	u := scheduler.Upstream{MaxAge: 100 * time.Hour}
	u.URL, u.Transport = "http://api.test", up
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: openTest(t, path), Log: quiet, Ended: handle})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEndedOverRestarts: an end that no process could handle comes in the next one that has
// a handler, at the instant that its failures give; a handled one comes no more.
func TestEndedOverRestarts(t *testing.T) {
	path := file(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var got []string
		note := func(_ context.Context, c *scheduler.Call) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%v %s %s", time.Since(start).Round(time.Minute), c.State, c.Response.Body))
			return nil
		}
		up := (&log{}).RoundTrip
		failures := 0
		s := endedOn(t, path, up, func(context.Context, *scheduler.Call) error {
			failures++
			return errors.New("the books are closed")
		})
		hand(t, s, scheduler.Request{Target: "/1"})
		time.Sleep(time.Hour)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if failures < 10 || failures > 25 { // 1s, 2s, 4s, …, 10m
			t.Errorf("%d failures in an hour", failures)
		}

		s = endedOn(t, path, up, nil) // a process without a handler
		time.Sleep(time.Second)
		s.Close()

		s = endedOn(t, path, up, note)
		synctest.Wait()
		mu.Lock()
		if len(got) != 0 {
			t.Errorf("at the start: %q, want that the wait goes on", got)
		}
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		s.Close()
		if len(got) != 1 || got[0][len(got[0])-len("done answer to /1"):] != "done answer to /1" {
			t.Errorf("handled: %q, want the end once", got)
		}
		s = endedOn(t, path, up, note)
		time.Sleep(time.Hour)
		s.Close()
		if len(got) != 1 {
			t.Errorf("handled again: %q", got)
		}
	})
}

// TestEndedAfterAClockStep: an end that was put off by a clock that was wrong does not wait
// until the clock is there again.
func TestEndedAfterAClockStep(t *testing.T) {
	path := file(t)
	synctest.Test(t, func(t *testing.T) {
		s := endedOn(t, path, (&log{}).RoundTrip, func(context.Context, *scheduler.Call) error { return errors.New("no") })
		hand(t, s, scheduler.Request{Target: "/1"})
		time.Sleep(time.Millisecond)
		s.Close()
		alter(t, path, "UPDATE untold SET tell_at = tell_at + 86400000000 * 365")
		handled := 0
		s = endedOn(t, path, (&log{}).RoundTrip, func(context.Context, *scheduler.Call) error { handled++; return nil })
		synctest.Wait()
		s.Close()
		if handled != 1 {
			t.Errorf("handled %d times, want once", handled)
		}
	})
}

// TestEndedAfterACrash: a call whose attempt a crash cut off is unknown, and its end comes.
func TestEndedAfterACrash(t *testing.T) {
	path, crashed := file(t), file(t)
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan struct{})
		d := openTest(t, path)
		u := scheduler.Upstream{}
		u.URL, u.Transport = "http://api.test", roundTripper(func(r *http.Request) (*http.Response, error) {
			close(sent)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		nothing := func(context.Context, *scheduler.Call) error { return nil }
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet, Ended: nothing})
		if err != nil {
			t.Fatal(err)
		}
		id := hand(t, s, scheduler.Request{Target: "/1"}).ID
		<-sent
		copyOf(t, d, crashed)
		s.Close()

		var got []scheduler.State
		s = endedOn(t, crashed, (&log{}).RoundTrip, func(_ context.Context, c *scheduler.Call) error {
			got = append(got, c.State)
			return nil
		})
		synctest.Wait()
		if _, err := s.Resolve(t.Context(), id, scheduler.Decision{As: upstream.Done, Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Close()
		if !slices.Equal(got, []scheduler.State{scheduler.Unknown, scheduler.Done}) {
			t.Errorf("handled %v, want unknown and then done", got)
		}
	})
}
