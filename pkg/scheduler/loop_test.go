package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestStop(t *testing.T) {
	stored := func(t *testing.T, s *Scheduler, id string) *Call {
		c, err := s.journal.memory.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("those in flight finish, those that wait are refused", func(t *testing.T) {
		bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: 2 * sec} }
			flying := submit(t, s, Request{})
			synctest.Wait()
			refused := make(chan error, 1)
			go func() {
				_, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
				refused <- err
			}()
			synctest.Wait()
			go func() {
				time.Sleep(ms)
				if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"}); reason(err) != Stopping {
					t.Errorf("Submit while stopping: %v, want stopping", err)
				}
			}()
			s.Close()
			if err := <-refused; reason(err) != Stopping {
				t.Errorf("the waiting caller got %v, want stopping", err)
			}
			if c := stored(t, s, flying.ID); c.State != Done || time.Since(f.start) < 2*sec {
				t.Errorf("the call in flight ended as %s after %v", c.State, time.Since(f.start))
			}
			s.Close() // a second Close does nothing
			for name, err := range map[string]error{
				"Get":     second(s.Get(t.Context(), flying.ID)),
				"List":    second(s.List(t.Context(), Filter{})),
				"Cancel":  second(s.Cancel(t.Context(), flying.ID)),
				"Resolve": second(s.Resolve(t.Context(), flying.ID, Decision{As: upstream.Done})),
				"Pause":   s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(sec)}),
			} {
				if reason(err) != Stopping {
					t.Errorf("%s afterwards: %v, want stopping", name, err)
				}
			}
			if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"}); reason(err) != Stopping || !strings.Contains(err.Error(), "the scheduler is shutting down, or has shut down") {
				t.Errorf("Submit afterwards: %v, want stopping", err)
			}
			sameTimes(t, f.at(), 0)
		})
	})
	t.Run("a bounded stop cuts attempts off: unknown", func(t *testing.T) {
		bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: 20 * sec} }
			c := submit(t, s, Request{})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), sec)
			defer cancel()
			s.Shutdown(ctx)
			if got := stored(t, s, c.ID); got.State != Unknown || time.Since(f.start).Round(ms) != sec {
				t.Errorf("%s after %v, want unknown after 1s", got.State, time.Since(f.start))
			}
		})
	})
}

// TestStopTellsDoubt: a stop finds a call that waits for its repeat. It may have been executed,
// and its caller is not told that it was not.
func TestStopTellsDoubt(t *testing.T) {
	bubble(t, Upstream{Config: upstream.Config{Idempotent: "true"}, Resend: true, Retry: retry.Policy{Curve: retry.Curve{Min: 10 * sec, Max: 10 * sec}}}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: io.ErrUnexpectedEOF} }
		done := make(chan error, 1)
		go func() {
			_, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
			done <- err
		}()
		time.Sleep(sec)
		s.Close()
		var e *Error
		if err := <-done; !errors.As(err, &e) || e.Reason != NoAnswer || e.Outcome() != upstream.Unknown {
			t.Errorf("Do = %v, want an unknown outcome", err)
		}
		sameTimes(t, f.at(), 0)
	})
}

// TestStopLogsItsLosses: without a store, the log reports the lost calls at the end of
// the process, among them the webhooks of calls that end during the stop.
func TestStopLogsItsLosses(t *testing.T) {
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks", stamper{}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 500, Body: http.NoBody}, nil // the webhook will be sent again
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), serve: func(n int, _ *http.Request) answer {
			return answer{after: map[int]time.Duration{3: 10 * sec}[n], status: map[int]int{2: 500}[n]}
		}}
		u := Upstream{Callbacks: map[string]Callback{"shop": shop}, Limits: []Limit{{Name: "few", Calls: 3, Window: time.Hour}}}
		u.URL, u.Transport = "http://api.test", f
		var log strings.Builder
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		wait(t, s, submit(t, s, Request{}).ID) // unknown
		submit(t, s, Request{Callback: "shop"})
		submit(t, s, Request{}) // waits for the limit
		time.Sleep(sec)
		s.Close()
		const want = `msg="calls in memory end with this process" waiting_calls=1 unknown_calls=1 webhooks=2`
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is\n%s, want in it %s", log.String(), want)
		}
	})
}

type closedStore struct {
	Store
	closed bool
	after  int // number of requests since
}

func (c *closedStore) Close() error { c.closed = true; return c.Store.Close() }
func (c *closedStore) Get(ctx context.Context, id string) (*Call, error) {
	if c.closed {
		c.after++
	}
	return c.Store.Get(ctx, id)
}

func TestNothingIsAskedOfAClosedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := Upstream{Limits: perSecond(1)}
		u.URL, u.Transport = "http://api.test", &fake{start: time.Now()}
		store := &closedStore{Store: NewMemory(10, 1000)}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Store: store, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		submit(t, s, Request{})
		c := submit(t, s, Request{})
		waited := make(chan error, 1)
		go func() { _, err := s.Wait(t.Context(), c.ID); waited <- err }()
		synctest.Wait()
		s.Close()
		for name, err := range map[string]error{
			"Wait": <-waited, "Cancel": second(s.Cancel(t.Context(), c.ID)), "Get": second(s.Get(t.Context(), c.ID)),
			"Pause": s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(sec)}),
		} {
			if reason(err) != Stopping {
				t.Errorf("%s after Close: %v, want stopping", name, err)
			}
		}
		if store.after > 0 {
			t.Errorf("the store was asked %d times after Close", store.after)
		}
	})
}

func TestCloseWakesCallersOfADeadUpstream(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		done := make(chan error, 1)
		go func() {
			done <- second(func() (*Call, error) {
				_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
				return c, err
			}())
		}()
		time.Sleep(100 * ms)
		s.Close()
		if err := <-done; reason(err) != Stopping {
			t.Errorf("Do = %v, want stopping", err)
		}
	})
}

// putBack gives the scheduler the state of one that was started before the wall clock
// was put back: the wall time of its origin is ahead of its monotonic reading.
func putBack(t *testing.T, s *Scheduler, by time.Duration) {
	s.loop.ask(t.Context(), func(time.Time) {
		origin := (*struct { // a time.Time
			wall uint64
			ext  int64
			loc  *time.Location
		})(unsafe.Pointer(&s.loop.origin))
		if origin.wall>>63 == 0 {
			t.Error("the origin has no monotonic reading")
		}
		origin.wall += uint64(by/sec) << 30
	})
}

// TestWallClockIsPutBack runs on the real clocks, because a bubble has no separate
// wall clock.
func TestWallClockIsPutBack(t *testing.T) {
	const step = time.Hour
	start := func(t *testing.T, u Upstream) (*Scheduler, *fake) {
		f := &fake{start: time.Now()}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s, f
	}
	wall := func(in time.Duration) time.Time { return time.Now().Add(in).Round(0) }
	t.Run("a deadline: sent once", func(t *testing.T) {
		s, f := start(t, Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: 500 * ms}}})
		submit(t, s, Request{Target: "/a"})
		putBack(t, s, step)
		c := wait(t, s, submit(t, s, Request{Target: "/refund", Deadline: wall(step + 100*ms)}).ID)
		wait(t, s, submit(t, s, Request{Target: "/c"}).ID) // a second attempt would be sent before it
		if f.targets() != "a refund c" || c.State != Done {
			t.Errorf("sent %q, the call is %s", f.targets(), c.State)
		}
		if st := upstreams(t, s)[0]; st.Waiting != 0 || st.Sending != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	t.Run("a not_before: not early, and the loop sleeps until then", func(t *testing.T) {
		s, f := start(t, Upstream{})
		putBack(t, s, step)
		c := submit(t, s, Request{NotBefore: wall(step + 100*ms)})
		wait(t, s, submit(t, s, Request{Target: "/later", NotBefore: time.Now().Add(200 * ms)}).ID)
		s.loop.ask(t.Context(), func(now time.Time) {
			if next, ok := s.loop.wheel.Next(); !ok || next < time.Minute {
				t.Errorf("the wheel's next is at %v", next)
			}
		})
		if f.targets() != "later" {
			t.Errorf("sent %q, the call that must wait for an hour is %s", f.targets(), s.mustGet(t, c.ID).State)
		}
	})
}

// TestMessageThatDoesNotEnd: a panic within the loop ends the process, though the goroutine that
// runs the message recovers from panics; so does the end of that goroutine.
func TestMessageThatDoesNotEnd(t *testing.T) {
	ways := map[string]func(Event){"a panic": func(Event) { panic("a panic") }, "its goroutine has ended": func(Event) { runtime.Goexit() }}
	observe, inside := ways[os.Getenv("THROTTLER_TEST_MESSAGE")]
	if !inside {
		for way := range ways {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMessageThatDoesNotEnd$")
			cmd.Env = append(os.Environ(), "THROTTLER_TEST_MESSAGE="+way)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "a message did not end: "+way) || !strings.Contains(string(out), "enqueue") {
				t.Errorf("%s: %v\n%s", way, err, out)
			}
		}
		return
	}
	u := Upstream{}
	u.URL, u.Transport = "http://api.test", immediate{}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { recover() }()
	s.Submit(t.Context(), Request{Upstream: "api", Target: "/"})
}
