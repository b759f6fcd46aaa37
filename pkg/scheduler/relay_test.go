package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A desk is a handler of ends that records them.
type desk struct {
	mu   sync.Mutex
	told []string // instant in whole seconds, state and target of each
	do   func(ctx context.Context, n int, c *Call) error
}

func (d *desk) handle(start time.Time) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		d.mu.Lock()
		d.told = append(d.told, fmt.Sprintf("%ds %s", time.Since(start)/sec, c.State))
		n := len(d.told)
		d.mu.Unlock()
		if d.do == nil {
			return nil
		}
		return d.do(ctx, n, c)
	}
}

func (d *desk) so(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.told, want) {
		t.Errorf("told %q, want %q", d.told, want)
	}
}

// handled runs a test in a bubble with a scheduler whose ends a desk handles.
func handled(t *testing.T, u Upstream, d *desk, test func(t *testing.T, s *Scheduler, f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Ended: d.handle(f.start)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s, f)
	})
}

func TestEndedGetsEachEnd(t *testing.T) {
	d := &desk{}
	handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			return answer{status: map[string]int{"/no": 400}[r.URL.Path]}
		}
		d.do = func(_ context.Context, _ int, c *Call) error {
			if c.Response == nil || c.Response.Status != c.Last().Status || !c.Handled() {
				t.Errorf("handled: %+v", c)
			}
			return nil
		}
		for _, target := range []string{"/yes", "/no"} {
			wait(t, s, submit(t, s, Request{Target: target}).ID)
			synctest.Wait()
		}
		resp, err := (&http.Client{Transport: s.Transport("api")}).Get("http://api.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		d.so(t, "0s done", "0s failed") // the caller of the third has its answer
	})
}

func TestEndedAgainAfterAFailure(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("books are closed") },
		"panic":  func() error { panic("books are closed") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := &desk{}
			handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
				var at []time.Duration
				d.do = func(_ context.Context, n int, c *Call) error {
					at = append(at, time.Since(f.start))
					if n <= 20 {
						return fail()
					}
					return nil
				}
				wait(t, s, submit(t, s, Request{}).ID)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if len(at) != 21 {
					t.Fatalf("handled %d times, want 21", len(at))
				}
				least, most := sec/2, sec
				for i := range 20 {
					if gap := at[i+1] - at[i]; gap < least || gap > most {
						t.Errorf("again %v after failure %d, want from %v to %v", gap, i+1, least, most)
					}
					most = min(2*most, 10*time.Minute)
					least = most / 2
				}
			})
		})
	}
}

func TestEndedGetsAnUnknownCallAgain(t *testing.T) {
	d := &desk{}
	handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer { return answer{status: 502} }
		first, second := submit(t, s, Request{}), submit(t, s, Request{})
		wait(t, s, first.ID)
		wait(t, s, second.ID)
		d.so(t, "0s unknown", "0s unknown")
		time.Sleep(sec)
		if _, err := s.Resolve(t.Context(), first.ID, Decision{As: upstream.Failed, Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		d.so(t, "0s unknown", "0s unknown", "1s failed")
		if _, err := s.Resolve(t.Context(), second.ID, Decision{As: upstream.NotExecuted, Reason: "asked"}); err != nil { // and is unknown again
			t.Fatal(err)
		}
		time.Sleep(sec)
		d.so(t, "0s unknown", "0s unknown", "1s failed", "1s unknown")
	})
}

// TestEndedIsNotToldOfThePast: the handler is late for an unknown call, and gets its decision.
func TestEndedIsNotToldOfThePast(t *testing.T) {
	d := &desk{do: func(_ context.Context, n int, _ *Call) error {
		if n == 1 {
			return errors.New("not now")
		}
		return nil
	}}
	handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 502} }
		c := wait(t, s, submit(t, s, Request{}).ID)
		synctest.Wait()
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done, Reason: "asked"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		d.so(t, "0s unknown", "0s done")
	})
}

// TestEndedIsBounded: few handlers run at once, one for a call, and a slow one holds up no
// other call.
func TestEndedIsBounded(t *testing.T) {
	d := &desk{}
	handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
		running, most := 0, 0
		of := make(map[string]int)
		d.do = func(_ context.Context, n int, c *Call) error {
			d.mu.Lock()
			running++
			of[c.ID]++
			most = max(most, running)
			if of[c.ID] > 1 {
				t.Error("two handlers of one call")
			}
			d.mu.Unlock()
			if n == 1 {
				time.Sleep(time.Hour)
			} else {
				time.Sleep(sec)
			}
			d.mu.Lock()
			running--
			of[c.ID]--
			d.mu.Unlock()
			return nil
		}
		for range 1000 {
			submit(t, s, Request{})
		}
		time.Sleep(70 * sec) // 999 in turns of 15
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.told) != 1000 || most != maxHandlers || running != 1 {
			t.Errorf("%d handled, at most %d at once, %d now; want 1000, %d, 1", len(d.told), most, running, maxHandlers)
		}
	})
}

// TestEndedAtAStop: the ctx of a handler ends with the beginning of a stop, and the stop
// waits for the handler.
func TestEndedAtAStop(t *testing.T) {
	returned := false
	d := &desk{do: func(ctx context.Context, n int, _ *Call) error {
		<-ctx.Done()
		time.Sleep(sec)
		returned = true
		return ctx.Err()
	}}
	handled(t, Upstream{}, d, func(t *testing.T, s *Scheduler, f *fake) {
		wait(t, s, submit(t, s, Request{}).ID)
		synctest.Wait()
		if err := s.Close(); err != nil || !returned {
			t.Errorf("Close: %v; the handler has returned: %v", err, returned)
		}
		d.so(t, "0s done")
	})
}

// TestEndedForgets: a store in memory forgets finished calls, and their ends with them.
func TestEndedForgets(t *testing.T) {
	m := newMemory(2, 1<<20)
	for n := range 3 {
		c := &Call{ID: fmt.Sprint(n), State: Waiting, Async: true, Callback: toEnded}
		m.Accept(t.Context(), &Entry{Call: c})
		end := *c
		end.State = Done
		if err := m.Record(t.Context(), &end); err != nil {
			t.Fatal(err)
		}
	}
	if calls, err := m.PendingEnds(t.Context(), 9); err != nil || len(calls) != 2 || calls[0].ID != "1" {
		t.Errorf("pending ends: %v, %v; want the two that are kept", calls, err)
	}
}

type bareStore struct{ Store }

func TestEndedNeedsAStore(t *testing.T) {
	c := Config{
		Upstreams: map[string]Upstream{"api": {Config: upstream.Config{URL: "http://api.test"}}},
		Store:     bareStore{NewMemory(1, 1)}, Ended: new(desk).handle(time.Now()),
	}
	if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "ended: needs a store") {
		t.Errorf("a store that keeps no ends: %v", err)
	}
	c.Store = NewMemory(1, 1)
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}
