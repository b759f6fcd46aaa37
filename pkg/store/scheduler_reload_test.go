package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A hooked store calls a function after an Accept or a Fetch, and before a Record.
type hooked struct {
	*DB
	accepted, fetched, recording func()
}

// once runs a hook and removes it.
func once(hook *func()) {
	if f := *hook; f != nil {
		*hook = nil
		f()
	}
}

func (h *hooked) Accept(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	c, err := h.DB.Accept(ctx, e)
	once(&h.accepted)
	return c, err
}

func (h *hooked) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	e, err := h.DB.Fetch(ctx, id)
	once(&h.fetched)
	return e, err
}

func (h *hooked) Record(ctx context.Context, c *scheduler.Call) error {
	once(&h.recording)
	return h.DB.Record(ctx, c)
}

func (h *hooked) Close() error { return nil }

// hookedConfig is an upstream with limits over a store.
func hookedConfig(store scheduler.Store, up *log, limits ...scheduler.Limit) scheduler.Config {
	u := scheduler.Upstream{Limits: limits}
	u.URL, u.Transport = "http://api.test", up
	return scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Log: quiet, Store: store}
}

func perHour(name, path string) scheduler.Limit {
	return scheduler.Limit{Name: name, Calls: 1, Window: time.Hour, When: `path == "` + path + `"`}
}

// TestReloadWhileACallIsStored: the limits change between the two messages by which a
// durable call is accepted. The call goes by the new limits, and its event names them.
func TestReloadWhileACallIsStored(t *testing.T) {
	path := filepath.Join(scratch(t), "reload.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		h := &hooked{DB: d}
		a, b := perHour("a", "/"), perHour("b", "/b")
		c := hookedConfig(h, &log{}, a, b)
		var route *scheduler.Route
		c.Observe = func(e scheduler.Event) {
			if e.Kind == scheduler.EventAccepted {
				route = e.Route()
			}
		}
		s, err := scheduler.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		reload := func(limits ...scheduler.Limit) func() {
			return func() {
				if err := s.Reload(t.Context(), hookedConfig(h, &log{}, limits...)); err != nil {
					t.Error(err)
				}
			}
		}
		h.accepted = reload(b, a)
		swapped, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
		if _, under := route.Keys["a"]; err != nil || !under || len(route.Keys) != 1 {
			t.Fatalf("%+v, %v: accepted under %+v, want limit a", swapped, err, route)
		}
		h.accepted = reload()
		later, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/", NotBefore: time.Now().Add(30 * time.Second)})
		if err != nil || len(route.Keys) != 0 {
			t.Fatalf("%v: accepted under %+v, want no limit", err, route)
		}
		reload(a, b)()
		h.fetched = reload() // while a call on disk is looked up
		far, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/b", NotBefore: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if far, err = s.Get(t.Context(), far.ID); err != nil || far.State != scheduler.Waiting {
			t.Errorf("a call an hour away: %+v, %v", far, err)
		}
		time.Sleep(2 * time.Hour)
		for _, id := range []string{swapped.ID, later.ID, far.ID} {
			if c, err := s.Get(t.Context(), id); err != nil || c.State != scheduler.Done {
				t.Errorf("in the end %+v, %v", c, err)
			}
		}
	})
}

// TestEndedContextIsNoFailureOfTheStore: Submit returns the error of its context if that
// ends while the call is stored.
func TestEndedContextIsNoFailureOfTheStore(t *testing.T) {
	d := openTest(t, filepath.Join(scratch(t), "ended.db"))
	ctx, cancel := context.WithCancel(t.Context())
	s, err := scheduler.New(hookedConfig(&leaving{DB: d, leave: cancel}, &log{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var refused *scheduler.Error
	if _, err := s.Submit(ctx, scheduler.Request{Upstream: "api", Target: "/"}); !errors.Is(err, context.Canceled) || errors.As(err, &refused) {
		t.Errorf("%v, want the error of the context", err)
	}
}

// A leaving store sees its caller leave before the call is stored.
type leaving struct {
	*DB
	leave func()
}

func (l *leaving) Accept(ctx context.Context, _ *scheduler.Entry) (*scheduler.Call, error) {
	l.leave()
	return nil, ctx.Err()
}

// TestWaitDuringADecision: Wait returns the end of a call also if it begins while that is
// being stored.
func TestWaitDuringADecision(t *testing.T) {
	path := filepath.Join(scratch(t), "wait.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		h := &hooked{DB: d}
		s, err := scheduler.New(hookedConfig(h, &log{lost: true}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
		if err != nil {
			t.Fatal(err)
		}
		if c, err = s.Wait(t.Context(), c.ID); err != nil || c.State != scheduler.Unknown {
			t.Fatalf("%+v, %v", c, err)
		}
		took := make(chan time.Duration, 1)
		h.recording = func() {
			go func() {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				s.Wait(ctx, c.ID)
				took <- time.Since(begin)
			}()
			time.Sleep(time.Second)
		}
		if _, err := s.Resolve(t.Context(), c.ID, scheduler.Decision{As: upstream.Done, Reason: "it is in the list"}); err != nil {
			t.Fatal(err)
		}
		if d := <-took; d > 2*time.Second {
			t.Errorf("the caller waited %v", d)
		}
	})
}

// TestEndIsToldWhenStored: while an end is stored, which takes a second, the call is sending to
// readers of the call and of lists, and to a caller that leaves; then they, a cancel and observers
// are told the end.
func TestEndIsToldWhenStored(t *testing.T) {
	for name, lost := range map[string]bool{"done": false, "unknown": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(scratch(t), "ends.db")
			synctest.Test(t, func(t *testing.T) {
				d := openTest(t, path)
				defer d.Close()
				config := hookedConfig(&hooked{DB: d, recording: func() { time.Sleep(time.Second) }}, &log{lost: lost})
				begin := time.Now()
				var observed []time.Duration
				config.Observe = func(e scheduler.Event) {
					if e.Kind == scheduler.EventEnded {
						observed = append(observed, time.Since(begin))
					}
				}
				s := must(scheduler.New(config))
				defer s.Close()
				id := must(s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})).ID
				told := func(want scheduler.State, after time.Duration) {
					t.Helper()
					leaving, leave := context.WithTimeout(t.Context(), time.Millisecond)
					defer leave()
					for where, c := range map[string]*scheduler.Call{
						"Get": must(s.Get(t.Context(), id)), "List": must(s.List(t.Context(), scheduler.Filter{})).Calls[0],
						"Wait": must(s.Wait(leaving, id)), "the store": must(d.Get(t.Context(), id)),
					} {
						if c.State != want {
							t.Errorf("%s: the call is %s after %v, want %s", where, c.State, time.Since(begin), want)
						}
						if ended := !c.Last().EndedAt.IsZero(); ended != (want != scheduler.Sending) || !ended && (c.Response != nil || c.Outcome() == "done") {
							t.Errorf("%s: after %v the attempt has %+v, the answer %+v", where, time.Since(begin), c.Last(), c.Response)
						}
					}
					if took := time.Since(begin); took != after {
						t.Errorf("told after %v, want %v", took, after)
					}
				}
				synctest.Wait()
				told(scheduler.Sending, time.Millisecond) // of Wait
				if _, err := s.Cancel(t.Context(), id); err == nil || !strings.Contains(err.Error(), "is "+name) {
					t.Errorf("Cancel: %v", err)
				}
				told(scheduler.State(name), time.Second)
				if !slices.Equal(observed, []time.Duration{time.Second}) {
					t.Errorf("the end was observed after %v, want 1s", observed)
				}
			})
		})
	}
}

// TestCancelIsToldWhenStored: a call that is being cancelled is sending until that is stored.
// Another cancel waits for it, too.
func TestCancelIsToldWhenStored(t *testing.T) {
	path := filepath.Join(scratch(t), "cancel.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		s := must(scheduler.New(hookedConfig(&hooked{DB: d, recording: func() { time.Sleep(time.Second) }}, &log{}, perHour("app", "/"))))
		defer s.Close()
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Minute)})
		id := must(s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})).ID
		go s.Cancel(t.Context(), id)
		synctest.Wait()
		if c := must(s.Get(t.Context(), id)); c.State != scheduler.Sending {
			t.Errorf("the call is %s before it is stored as cancelled", c.State)
		}
		if c, err := s.Cancel(t.Context(), id); err != nil || c.State != scheduler.Cancelled || must(d.Get(t.Context(), id)).State != scheduler.Cancelled {
			t.Errorf("another cancel: %+v, %v", c, err)
		}
		if c := must(s.Wait(t.Context(), id)); c.State != scheduler.Cancelled || must(d.Get(t.Context(), id)).State != scheduler.Cancelled {
			t.Errorf("in the end %+v", c)
		}
	})
}

// TestLeaveIsToldWhenStored: a call whose caller leaves while it waits is told to be cancelled when
// that is stored, and to be sending if that takes longer than a second.
func TestLeaveIsToldWhenStored(t *testing.T) {
	for takes, want := range map[time.Duration]scheduler.State{time.Second / 2: scheduler.Cancelled, 2 * time.Second: scheduler.Sending} {
		path := filepath.Join(scratch(t), "leave.db")
		synctest.Test(t, func(t *testing.T) {
			d := openTest(t, path)
			defer d.Close()
			c := hookedConfig(&hooked{DB: d, recording: func() { time.Sleep(takes) }}, &log{})
			u := c.Upstreams["api"]
			u.Durable, u.MaxWait = "true", time.Hour
			c.Upstreams["api"] = u
			s := must(scheduler.New(c))
			defer s.Close()
			s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Minute)})
			ctx, leave := context.WithCancel(t.Context())
			defer time.AfterFunc(time.Second, leave).Stop()
			begin := time.Now()
			_, left, err := s.Do(ctx, scheduler.Request{Upstream: "api", Target: "/"})
			if took := time.Since(begin) - time.Second; !errors.Is(err, context.Canceled) || left.State != want || took != min(takes, time.Second) {
				t.Errorf("%s, %v after %v; want %s after %v", left.State, err, took, want, takes)
			}
		})
	}
}

// TestExpiryIsToldWhenStored: a call on disk that has passed its deadline expires when it is read.
// That is told when it is stored, which takes a minute; a reader that leaves sees it waiting.
func TestExpiryIsToldWhenStored(t *testing.T) {
	path := filepath.Join(scratch(t), "expiry.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		h := &hooked{DB: d}
		s := must(scheduler.New(hookedConfig(h, &log{}, scheduler.Limit{Name: "app", Calls: 100, Window: time.Second})))
		defer s.Close()
		for range 3_000 { // the last ones wait on disk only
			must(s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"}))
		}
		id := must(s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/", Deadline: time.Now().Add(40 * time.Second)})).ID
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour)})
		time.Sleep(41 * time.Second)
		begin := time.Now()
		h.recording = func() { time.Sleep(time.Minute) }
		read := func(wait time.Duration, want scheduler.State, after time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			if c, err := s.Get(ctx, id); err != nil || c.State != want || time.Since(begin) != after {
				t.Errorf("%+v, %v after %v; want %s after %v", c, err, time.Since(begin), want, after)
			}
		}
		read(time.Second, scheduler.Waiting, time.Second)
		read(time.Second, scheduler.Sending, time.Second)
		time.Sleep(time.Minute)
		read(time.Second, scheduler.Expired, time.Second+time.Minute)
	})
}

// TestDecisionBeforeTheOutcomeIsStored: a decision about a call that has just become
// unknown takes effect after that is stored, and is the last that the store has.
func TestDecisionBeforeTheOutcomeIsStored(t *testing.T) {
	path := filepath.Join(scratch(t), "decision.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		h := &hooked{DB: d, recording: func() { time.Sleep(time.Second) }}
		s, err := scheduler.New(hookedConfig(h, &log{lost: true}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := must(s.Status(t.Context(), "api")); st.Unknown != 1 {
			t.Fatalf("%d calls are unknown, want 1", st.Unknown)
		}
		begin := time.Now()
		c, err = s.Resolve(t.Context(), c.ID, scheduler.Decision{As: upstream.Done, Reason: "it is in the list"})
		if took := time.Since(begin); err != nil || c.State != scheduler.Done || took < time.Second {
			t.Errorf("Resolve: %+v, %v after %v; want done after the outcome is stored", c, err, took)
		}
		if c, err = d.Get(t.Context(), c.ID); err != nil || c.State != scheduler.Done {
			t.Errorf("the store has %+v, %v", c, err)
		}
	})
}

// TestDeadlineCountsCallsOnDisk: a call whose slot is past its deadline because of the
// calls on disk is refused.
func TestDeadlineCountsCallsOnDisk(t *testing.T) {
	path := filepath.Join(scratch(t), "deadline.db")
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, path)
		defer d.Close()
		c := hookedConfig(d, &log{}, scheduler.Limit{Name: "app", Calls: 1, Window: time.Second})
		u := c.Upstreams["api"]
		u.MaxWaiting = 20_000
		c.Upstreams["api"], c.Store = u, &hooked{DB: d}
		s, err := scheduler.New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		var last *scheduler.Call
		for range 5000 { // of one class a quarter of 8,192 are in memory
			if last, err = s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/"}); err != nil {
				t.Fatal(err)
			}
		}
		deadline := last.ETA.Add(-20 * time.Minute)
		late, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Target: "/", Deadline: deadline})
		if !errors.Is(err, scheduler.PastDeadline) || !strings.Contains(err.Error(), `upstream "api" is paused until 2000-01-01T01:00:00.000Z, and with the calls ahead`) {
			t.Errorf("a call that must go 20 minutes before the last one: %+v, %v", late, err)
		}
	})
}

// TestStoreBreaksAtTheStart: a store that breaks while the scheduler starts is told as failed.
func TestStoreBreaksAtTheStart(t *testing.T) {
	d := openTest(t, filepath.Join(scratch(t), "breaks.db"))
	defer d.Close()
	for range 100 {
		config := hookedConfig(&breaking{&hooked{DB: d}}, &log{})
		config.Ended = func(context.Context, *scheduler.Call) error { return nil }
		s := must(scheduler.New(config))
		<-s.Failed()
		if err := s.Close(); !errors.Is(err, scheduler.ErrBroken) {
			t.Fatal(err)
		}
	}
}

// A breaking store breaks at its first list of ends.
type breaking struct{ *hooked }

func (*breaking) PendingEnds(context.Context, int) ([]*scheduler.Call, error) {
	return nil, scheduler.ErrBroken
}
