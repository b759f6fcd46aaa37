package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A site is a configuration of two upstreams, of which one may be left out.
type site struct {
	up     *log
	limits []scheduler.Limit
}

func (w *site) config(names ...string) scheduler.Config {
	ups := make(map[string]scheduler.Upstream)
	for _, name := range append(names, "other") {
		u := scheduler.Upstream{MaxWaiting: 1 << 20, Limits: w.limits}
		u.URL, u.Transport = "http://"+name+".test", w.up
		ups[name] = u
	}
	return scheduler.Config{Upstreams: ups, Log: quiet}
}

func (w *site) start(t *testing.T, path string, names ...string) (*scheduler.Scheduler, *DB) {
	t.Helper()
	d := openTest(t, path)
	c := w.config(names...)
	c.Store = d
	s, err := scheduler.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

func (w *site) reload(t *testing.T, s *scheduler.Scheduler, names ...string) {
	t.Helper()
	if err := s.Reload(t.Context(), w.config(names...)); err != nil {
		t.Fatal(err)
	}
}

// TestUpstreamReturns: a reload, or a restart, leaves an upstream out, and another
// reload takes it in again. It still has its calls, and its permits are out as before.
func TestUpstreamReturns(t *testing.T) {
	for _, how := range []string{"reload", "restart", "crash"} {
		t.Run(how, func(t *testing.T) {
			dir := scratch(t)
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(dir, "return.db")
				w := &site{up: &log{}, limits: []scheduler.Limit{{Name: "hour", Calls: 3, Window: time.Hour}}}
				s, d := w.start(t, path, "api")
				for n := range 3 {
					if c := hand(t, s, scheduler.Request{Target: fmt.Sprint("/", n)}); must(s.Wait(t.Context(), c.ID)).State != scheduler.Done {
						t.Fatal("it was not sent")
					}
				}
				later := time.Now().Add(30 * time.Minute)
				far := hand(t, s, scheduler.Request{Target: "/far", NotBefore: later})
				switch how {
				case "reload":
					w.reload(t, s)
				case "restart":
					s.Close()
					s, _ = w.start(t, path)
				case "crash":
					image := copyOf(t, d, filepath.Join(dir, "crash.db"))
					s.Close()
					s, _ = w.start(t, image)
				}
				defer func() { s.Close() }()
				time.Sleep(10 * time.Minute)
				if how == "restart" { // once more without the upstream
					s.Close()
					s, _ = w.start(t, path)
				}
				time.Sleep(5 * time.Minute)
				w.reload(t, s, "api")
				if st := first(t, s); st.Name != "api" || st.Waiting != 1 {
					t.Errorf("the upstream that is there again: %+v, want 1 call waiting", st)
				}
				next := hand(t, s, scheduler.Request{Target: "/next"})
				time.Sleep(14 * time.Minute)
				if n := len(w.up.sent()); n != 3 {
					t.Fatalf("%v were sent in half an hour, 3 may be in an hour", w.up.sent())
				}
				time.Sleep(45 * time.Minute)
				for _, c := range []*scheduler.Call{far, next} {
					if c = must(s.Get(t.Context(), c.ID)); c.State != scheduler.Done {
						t.Errorf("%+v, want done", c)
					}
				}
			})
		})
	}
}

// copyOf copies the file as a crash leaves it.
func copyOf(t *testing.T, d *DB, path string) string {
	t.Helper()
	for _, part := range []string{"", "-wal"} {
		text, err := os.ReadFile(d.writer.path + part)
		if err == nil {
			err = os.WriteFile(path+part, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestPauseOverRestart: a pause lasts over a restart, and over a crash, until its time
// or until it is resumed.
func TestPauseOverRestart(t *testing.T) {
	for _, how := range []string{"restart", "crash"} {
		t.Run(how, func(t *testing.T) {
			dir := scratch(t)
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(dir, "pause.db")
				w := &site{up: &log{}, limits: []scheduler.Limit{{Name: "key", PerKey: `query("key")`, Calls: 3, Window: time.Second}}}
				s, d := w.start(t, path, "api")
				restarts := 0
				again := func() {
					t.Helper()
					if restarts++; how == "crash" {
						path = copyOf(t, d, filepath.Join(dir, fmt.Sprint(restarts, ".db")))
					}
					s.Close()
					s, d = w.start(t, path, "api")
				}
				pause := func(limit, key string, d time.Duration) {
					t.Helper()
					if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Limit: limit, Key: key, Until: time.Now().Add(d), Who: "alice", Reason: "maintenance"}); err != nil {
						t.Fatal(err)
					}
				}
				begun := time.Now()
				pause("", "", time.Hour)
				pause("key", "a", 2*time.Hour)
				pause("key", "b", 3*time.Hour)
				if err := s.Resume(t.Context(), "api", "key", "b"); err != nil {
					t.Fatal(err)
				}
				before := must(s.Pauses(t.Context()))
				again()
				calls := make(map[string]*scheduler.Call)
				for _, key := range []string{"a", "b"} {
					calls[key] = hand(t, s, scheduler.Request{Target: "/?key=" + key})
				}
				again()
				defer func() { s.Close() }()
				if st, err := s.Status(t.Context(), "api"); err != nil || st.State != "paused" || st.Cause != "operator" || st.Reason != "maintenance" || st.Since.Sub(begun).Abs() > time.Millisecond ||
					len(st.Pauses) != 1 || st.Pauses[0].Key != "a" || !strings.HasSuffix(st.Pauses[0].Pause, ": maintenance") {
					t.Errorf("after restarts: %+v", st)
				}
				if after := must(s.Pauses(t.Context())); len(after) != 2 || after[0].ID != before[0].ID || after[1].ID != before[1].ID || after[0].Who != "alice" || after[0].By != "person" {
					t.Errorf("pauses %+v, before the restarts %+v", after, before)
				}
				if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Minute)}); !errors.Is(err, scheduler.WrongState) {
					t.Errorf("a shorter pause: %v", err)
				}
				time.Sleep(59 * time.Minute)
				if n := len(w.up.sent()); n != 0 {
					t.Errorf("%d calls were sent, the upstream is paused", n)
				}
				time.Sleep(2 * time.Minute)
				again()
				if a, b := must(s.Get(t.Context(), calls["a"].ID)), must(s.Get(t.Context(), calls["b"].ID)); a.State != scheduler.Waiting || b.State != scheduler.Done {
					t.Errorf("key a is paused, b is not: a is %s, b %s", a.State, b.State)
				}
				time.Sleep(time.Hour)
				if a := must(s.Get(t.Context(), calls["a"].ID)); a.State != scheduler.Done {
					t.Errorf("after the pause a is %s", a.State)
				}
			})
		})
	}
}

// TestBreakerOverRestart: a circuit breaker that unknown outcomes have opened is open in
// the next process, until a probe has an answer or a person resumes the upstream. Of a
// breaker that has closed the next process knows nothing.
func TestBreakerOverRestart(t *testing.T) {
	for _, how := range []string{"restart", "crash"} {
		t.Run(how, func(t *testing.T) {
			dir := scratch(t)
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(dir, "breaker.db")
				w := &site{up: &log{lost: true}, limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}}}
				s, d := w.start(t, path, "api")
				restarts := 0
				state := func(want string, after time.Duration) {
					t.Helper()
					time.Sleep(after)
					ups, err := s.Upstreams(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, u := range ups {
						if u.Name == "api" && u.State != want {
							t.Fatalf("the upstream is %s (%s), want %s", u.State, u.Reason, want)
						}
					}
				}
				again := func() {
					t.Helper()
					if restarts++; how == "crash" {
						path = copyOf(t, d, filepath.Join(dir, fmt.Sprint(restarts, ".db")))
					}
					s.Close()
					s, d = w.start(t, path, "api")
				}
				for range 30 {
					hand(t, s, scheduler.Request{Target: "/pay"})
				}
				state("tripped", 20*time.Second)
				sent := len(w.up.sent())
				if sent < 10 || sent > 20+5 {
					t.Errorf("%d calls were sent, want ten, those in flight, and some probes", sent)
				}
				again()
				state("tripped", 0)
				w.up.lose(false)
				state("up", time.Minute)
				if n := len(w.up.sent()); n != 30 {
					t.Errorf("%d calls were sent, want all 30", n)
				}
				again()
				state("up", 0)
				w.up.lose(true)
				for range 30 {
					hand(t, s, scheduler.Request{Target: "/pay"})
				}
				state("tripped", 20*time.Second)
				again()
				w.up.lose(false) // or the calls that go now open it anew
				if err := s.Resume(t.Context(), "api", "", ""); err != nil {
					t.Fatal(err)
				}
				state("up", 0)
				again()
				state("up", 0)
				s.Close()
			})
		})
	}
}

// TestPauseByRestart: permits that may be out since a crash hold the upstream and its limits.
// Statuses and refusals name the restart, and not an operator whose pause is over.
func TestPauseByRestart(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		w := &site{up: &log{}, limits: []scheduler.Limit{{Name: "app", Calls: 3, Window: 4 * time.Second}}}
		s, d := w.start(t, filepath.Join(dir, "hold.db"), "api")
		if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour), Reason: "maintenance"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.Resume(t.Context(), "api", "", ""); err != nil {
			t.Fatal(err)
		}
		call := func(wait time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			resp, _, err := s.Do(ctx, scheduler.Request{Upstream: "api", Target: "/", Deadline: time.Now().Add(wait)})
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		if err := call(time.Second); err != nil {
			t.Fatal(err)
		}
		path := copyOf(t, d, filepath.Join(dir, "crash.db"))
		s.Close()
		time.Sleep(time.Minute)
		began := time.Now()
		s, _ = w.start(t, path, "api")
		defer func() { s.Close() }()
		const why = "permits of attempts of the last process may be out"
		st := first(t, s)
		if st.State != "paused" || st.Cause != "restart" || st.Reason != why || !st.Since.Equal(began) || !st.PausedUntil.After(began) {
			t.Errorf("%+v", st)
		}
		if p := st.Pauses; len(p) != 1 || p[0].Limit != "app" || p[0].Until.Sub(began) != 9*time.Second || !strings.HasPrefix(p[0].Pause, "by a restart or take-over, since ") {
			t.Errorf("%+v", p)
		}
		for _, wait := range []time.Duration{time.Second, 7 * time.Second} { // less than the upstream, and than its limit is held
			if err := call(wait); err == nil || !strings.Contains(err.Error(), "it was paused by a restart or take-over, since ") || !strings.Contains(err.Error(), why) {
				t.Errorf("within %v: %v", wait, err)
			}
		}
		time.Sleep(10 * time.Second)
		if st := first(t, s); st.State != "up" || len(st.Pauses) > 0 {
			t.Errorf("%+v", st)
		}
	})
}
