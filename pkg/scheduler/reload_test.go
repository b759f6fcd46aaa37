package scheduler

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestPausesOutliveAChangedWindow: a pause of a limit, or of one of its keys, stays
// in force over a reload that changes the limit's window.
func TestPausesOutliveAChangedWindow(t *testing.T) {
	limits := func(window time.Duration, perKey string) []Limit {
		return []Limit{{Name: "app", Calls: 5, Window: window}, {Name: "key", PerKey: perKey, Calls: 5, Window: window}}
	}
	bubble(t, Upstream{Limits: limits(sec, `header("X-Tenant")`)}, func(t *testing.T, s *Scheduler, f *fake) {
		reload := func(l []Limit) {
			t.Helper()
			u := Upstream{Config: upstream.Config{URL: "http://api.test", Transport: f}, Limits: l}
			if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
				t.Fatal(err)
			}
		}
		pause := func(limit, key string, at time.Duration) {
			t.Helper()
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: limit, Key: key, Until: f.start.Add(at)}); err != nil {
				t.Fatal(err)
			}
		}
		pause("app", "", 10*sec)
		pause("key", "a", 20*sec)
		pause("key", "b", 5*sec)
		reload(limits(2*sec, `header("X-Tenant")`))
		b, a := submit(t, s, Request{Header: tenant("b")}), submit(t, s, Request{Header: tenant("a")})
		wait(t, s, b.ID)
		wait(t, s, a.ID)
		sameTimes(t, f.at(), 10*sec, 20*sec)

		// A key with another expression is another key.
		pause("key", "a", 40*sec)
		reload(limits(2*sec, `header("X-Tenant") + ""`))
		wait(t, s, submit(t, s, Request{Header: tenant("a")}).ID)
		sameTimes(t, f.at(), 10*sec, 20*sec, 20*sec+10*ms) // after a round trip
	})
}

// TestRepeatableAfterReload: the configuration in force at the end of an attempt
// decides whether the call may be repeated.
func TestRepeatableAfterReload(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer { return answer{after: 10 * sec, status: 500} }
		c := submit(t, s, Request{Method: "POST"})
		time.Sleep(sec) // the call is in flight
		next := Upstream{}
		next.URL, next.Transport, next.Idempotent = "http://api.test", f, "true"
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": next}}); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, c.ID); c.State != Unknown || len(f.at()) != retry.DefaultAttempts {
			t.Errorf("%s after %d requests", c.State, len(f.at()))
		}
	})
}

// TestFollowUpsAfterReload removes an upstream from the configuration while a call
// to it is in flight. Its webhooks are sent, but neither its query nor its next attempt
// before the upstream is there again. New calls are refused.
func TestFollowUpsAfterReload(t *testing.T) {
	var told []string
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks", stamper{}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		told = append(told, r.Header.Get("Webhook-Id"))
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	u := Upstream{Callbacks: map[string]Callback{"shop": shop}}
	u.Resolve = []Resolve{{When: `path == "/pay"`, Target: `"/query"`, Outcomes: []upstream.Rule{{When: "status == 404", Is: upstream.NotExecuted}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		paid := 0
		f.serve = func(_ int, r *http.Request) answer {
			switch {
			case r.URL.Path == "/query":
				return answer{status: 404}
			case paid == 0:
				paid++
				return answer{after: sec, status: 500}
			}
			return answer{}
		}
		c := submit(t, s, Request{Target: "/pay", Callback: "shop"})
		time.Sleep(500 * ms)
		other := Upstream{}
		other.URL = "http://other.test"
		reload := func(with map[string]Upstream) {
			t.Helper()
			with["other"] = other
			if err := s.Reload(t.Context(), Config{Upstreams: with}); err != nil {
				t.Fatal(err)
			}
		}
		reload(map[string]Upstream{})
		for _, name := range []string{"api", "api/callbacks/shop"} {
			if _, err := s.Submit(t.Context(), Request{Upstream: name, Target: "/"}); reason(err) != NotFound {
				t.Errorf("a new call to %s: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		if got := s.mustGet(t, c.ID); got.State != Unknown || f.targets() != "pay" {
			t.Errorf("without the upstream: %s after %q", got.State, f.targets())
		}
		if want := []string{c.ID + ".unknown.1"}; !slices.Equal(told, want) {
			t.Errorf("without the upstream: told %q, want %q", told, want)
		}
		u.URL, u.Transport = "http://api.test", f
		reload(map[string]Upstream{"api": u})
		time.Sleep(time.Minute)
		if got := s.mustGet(t, c.ID); got.State != Done || f.targets() != "pay query pay" {
			t.Errorf("%s after %q", got.State, f.targets())
		}
		if want := []string{c.ID + ".unknown.1", c.ID + ".done.2"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		reload(map[string]Upstream{})
		if all := upstreams(t, s); len(all) != 1 {
			t.Errorf("%+v, want the other one alone", all)
		}
	})
}

// TestRemovedUpstream takes an upstream out of the configuration while calls wait. It sends
// none of them, can be looked at and paused, and goes on when it is there again.
func TestRemovedUpstream(t *testing.T) {
	u := Upstream{MaxWait: time.Hour, Limits: []Limit{{Name: "app", Calls: 1, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 100 * ms, status: 429} }
		ctx := t.Context()
		other := Upstream{}
		other.URL = "http://other.test"
		submit(t, s, Request{}) // in flight when the upstream goes; it is limited
		waits := submit(t, s, Request{Target: "/waits"})
		asked := make(chan error, 1)
		go func() { asked <- thirdOf(s.Do(ctx, Request{Upstream: "api", Target: "/asked"})) }()
		synctest.Wait()
		if err := s.Reload(ctx, Config{Upstreams: map[string]Upstream{"other": other}}); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; reason(err) != NotFound || !strings.Contains(err.Error(), "taken out of the configuration") {
			t.Errorf("the caller that waited got %v", err)
		}
		time.Sleep(time.Minute)
		if len(f.at()) != 1 {
			t.Errorf("without the upstream calls were sent: %q", f.targets())
		}
		st, err := s.Status(ctx, "api")
		if err != nil || st.State != "removed" || st.Waiting != 2 || st.Sending != 0 || !st.ETA.IsZero() {
			t.Errorf("%+v, %v", st, err)
		}
		if c := s.mustGet(t, waits.ID); c.State != Waiting || c.WaitingFor == nil || !c.WaitingFor.Removed || !c.ETA.IsZero() {
			t.Errorf("%+v", c)
		}
		if err := s.Pause(ctx, Pause{Upstream: "api", Until: time.Now().Add(time.Minute)}); err != nil {
			t.Error(err)
		}
		u.URL, u.Transport = "http://api.test", f
		if err := s.Reload(ctx, Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		if st := upstreams(t, s)[0]; st.State != "paused" || st.Waiting != 2 {
			t.Errorf("%+v", st)
		}
		f.serve = nil
		if c := wait(t, s, waits.ID); c.State != Done || c.Last().SentAt.Sub(f.start) < 2*time.Minute {
			t.Errorf("%+v", c)
		}
	})
}

func thirdOf(_ *http.Response, _ *Call, err error) error { return err }

// onStepped returns an instant on a wall clock that has been put forward by whole seconds,
// or back. Its monotonic reading stays. The wall seconds of a time.Time that has one begin
// at bit 30 of its first word.
func onStepped(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}

// TestClockStepsWhileAnUpstreamIsAway: the wall clock is stepped while an upstream is not
// configured, and a permit of it is out. The permit comes back when its window is over by
// the old clock and by the new one, as in a ledger that runs. The loop has ended, and the
// test is its clock: in a bubble there is no monotonic one.
func TestClockStepsWhileAnUpstreamIsAway(t *testing.T) {
	const skew, away = 2 * sec, 5 * sec
	config := func(name string, generation uint32) (Config, map[string]*service) {
		u := Upstream{Limits: []Limit{{Name: "hour", Calls: 1, Calendar: &quota.Calendar{Unit: quota.Hour, Skew: skew}}}}
		u.URL = "http://" + name + ".test"
		c := Config{Upstreams: map[string]Upstream{name: u}, Log: slog.New(slog.DiscardHandler)}
		compiled, err := compile(c, generation)
		if err != nil {
			t.Fatal(err)
		}
		return c, compiled
	}
	for _, tt := range []struct {
		name string
		step time.Duration
		back time.Duration // after the reload
	}{
		{"no step", 0, 27 * sec},
		{"forward within the skew", sec, 26 * sec},
		{"forward over the hour", 30 * time.Minute, 30*time.Minute + 27*sec},
		{"forward to right before the next hour", 59*time.Minute + 55*sec, 32 * sec},
		{"back within the hour", -30 * time.Minute, 30*time.Minute + 27*sec},
		{"back by a day", -24 * time.Hour, 27 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, api := config("api", 3)
			_, other := config("other", 2)
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			l := s.loop
			u := l.upstreams["api"]
			begin := l.origin.Add(2*time.Hour - 30*sec - l.origin.Sub(l.origin.Truncate(time.Hour))) // 30s before an hour
			need := []quota.Need{{Limit: u.limitNamed("hour"), Cost: 1}}
			u.ledger.Take(begin, need)
			u.ledger.Return(begin, need, quota.Attempt{Sent: begin, End: begin, Fate: quota.Answered})
			atOnce := func(now time.Time, next map[string]*service) {
				r := newReload(s, next)
				r.begin(now)
				r.commit(now)
				r.finish(now)
			}
			atOnce(begin, other)
			now := onStepped(begin.Add(away), tt.step)
			atOnce(now, api)
			held := l.upstreams["api"].holds(now)
			if len(held) != 1 || held[0].Back.Sub(now) != tt.back {
				t.Errorf("%+v, want one permit back after %v", held, tt.back)
			}
		})
	}
}

// TestReloadGivenUp: a reload whose context ends before its commit leaves nothing behind, and
// calls go on by the old limits.
func TestReloadGivenUp(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		for range 10 {
			submit(t, s, Request{})
		}
		pending := func() (n int) {
			s.loop.ask(t.Context(), func(time.Time) { n = s.loop.wheel.Len() })
			return n
		}
		time.Sleep(50 * ms) // the first is answered, and the limit has a timeout
		timeouts := pending()
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		next := Upstream{Limits: perSecond(1), Late: sec}
		next.URL, next.Transport = "http://api.test", f
		r := reloadInSteps(t, s, next, 1, func() {
			if steps++; steps == 15 {
				cancel()
			}
		})
		if err := r.run(ctx); err != context.Canceled || len(r.demands) == 0 {
			t.Fatalf("%v, with %d calls staged", err, len(r.demands))
		}
		if n := pending(); n != timeouts {
			t.Errorf("%d timeouts are in the wheel, %d were before", n, timeouts)
		}
		time.Sleep(5*sec + 500*ms)
		if n := len(f.at()); n != 6 {
			t.Errorf("%d calls went, want 6", n)
		}
	})
}

// TestReloadStagesLateCalls: of the calls that come while a reload is prepared, no more than a
// step's are left to its commit.
func TestReloadStagesLateCalls(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		wait(t, s, submit(t, s, Request{}).ID)
		submit(t, s, Request{})
		next := Upstream{Limits: perSecond(2)}
		next.URL, next.Transport = "http://api.test", f
		var r *reload
		come := 20
		r = reloadInSteps(t, s, next, 1, func() {
			for ; len(r.demands) > 0 && come > 0; come-- {
				submit(t, s, Request{})
			}
		})
		if err := r.prepare(t.Context()); err != nil || come > 0 {
			t.Fatalf("%v; %d calls are yet to come", err, come)
		}
		late := 0
		r.do(func(time.Time) {
			for _, h := range r.handovers {
				late += len(h.calls.Late())
			}
		})
		if late > r.step {
			t.Errorf("%d calls are left to the commit", late)
		}
		if err := cmp.Or(r.do(r.commit), r.end()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*sec + 500*ms)
		if n := len(f.at()); n != 22 {
			t.Errorf("%d calls went, want 22, two a second", n)
		}
	})
}

// A slowHooks store takes webhooks, and records that they are done, when it is let.
type slowHooks struct {
	Store
	accept, record chan struct{}
}

func (s *slowHooks) Accept(ctx context.Context, e *Entry) (*Call, error) {
	if e.Notice != "" {
		<-s.accept
	}
	return s.Store.Accept(ctx, e)
}

func (s *slowHooks) Record(ctx context.Context, c *Call) error {
	if c.Upstream == "api/callbacks/shop" && c.State == Done {
		<-s.record
	}
	return s.Store.Record(ctx, c)
}

// TestRemovedWhileAWebhookIsRecorded: an upstream that is left out stays as long as the end of
// one of its calls is being stored, also if the call came while the reload went on.
func TestRemovedWhileAWebhookIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := 0
		shop := Callback{}
		shop.URL, shop.Signer = "https://shop.test/hooks", stamper{}
		shop.Transport = roundTrip(func(*http.Request) (*http.Response, error) {
			hooks++
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		api, other := Upstream{Callbacks: map[string]Callback{"shop": shop}}, Upstream{}
		api.URL, api.Transport, other.URL = "http://api.test", &fake{start: time.Now()}, "http://other.test"
		store := &slowHooks{NewMemory(10, 1000), make(chan struct{}), make(chan struct{})}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": api}, Store: store, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		synctest.Wait() // its webhook is being accepted
		s.generation++
		next, err := compile(Config{Upstreams: map[string]Upstream{"other": other}}, s.generation)
		if err != nil {
			t.Fatal(err)
		}
		r := newReload(s, next)
		if err := cmp.Or(r.prepare(t.Context()), r.do(r.commit), r.walk(t.Context(), r.settle)); err != nil {
			t.Fatal(err)
		}
		close(store.accept)
		time.Sleep(sec) // the webhook is answered, and its end is being stored
		r.do(r.finish)
		left := func() (names []string) {
			s.loop.ask(t.Context(), func(time.Time) { names = slices.Sorted(maps.Keys(s.loop.upstreams)) })
			return names
		}
		if names := left(); hooks != 1 || !slices.Contains(names, "api/callbacks/shop") {
			t.Errorf("%d webhooks were sent; left are %q", hooks, names)
		}
		close(store.record)
		synctest.Wait()
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"other": other}}); err != nil {
			t.Fatal(err)
		}
		if names := left(); len(names) != 1 {
			t.Errorf("in the end %q are left", names)
		}
	})
}
