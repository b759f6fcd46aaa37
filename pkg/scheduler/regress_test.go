package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What once went wrong, or nearly did, each in the words of who would notice.

func tenant(name string) http.Header { return http.Header{"X-Tenant": {name}} }

func TestBacklogOfOneTenantRefusesNoOther(t *testing.T) {
	u := Upstream{Limits: perSecond(1), ShareBy: `header("X-Tenant")`}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 100 {
			submit(t, s, Request{Priority: DataPriority, Header: tenant("a")})
		}
		time.Sleep(50 * ms)
		resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/b", Priority: DataPriority, Header: tenant("b")})
		if err != nil {
			t.Fatalf("the other tenant's only call: %v", err)
		}
		resp.Body.Close()
		if d := time.Since(f.start); d > 3*sec {
			t.Errorf("the other tenant's only call was answered at %v, behind the backlog", d)
		}
	})
}

func TestBacklogOfOneKeyRefusesNoOther(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: 5 * sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 400 {
			submit(t, s, Request{Target: "/full", Priority: DataPriority})
		}
		time.Sleep(50 * ms)
		resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/other", Priority: DataPriority})
		if err != nil {
			t.Fatalf("another key's call: %v", err)
		}
		resp.Body.Close()
		if d := time.Since(f.start); d > 100*ms {
			t.Errorf("another key's call was answered at %v", d)
		}
	})
}

func TestCancelsBehindDoNotChangeTheETA(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for range 21 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(20 * ms)
		before := s.mustGet(t, ids[10])
		for _, id := range ids[11:] {
			s.Cancel(t.Context(), id)
		}
		after := s.mustGet(t, ids[10])
		if !before.ETA.Equal(after.ETA) || before.WaitingFor.Ahead != after.WaitingFor.Ahead {
			t.Errorf("ten calls behind were cancelled: ETA from %v (%d ahead) to %v (%d ahead)", before.ETA.Sub(f.start), before.WaitingFor.Ahead, after.ETA.Sub(f.start), after.WaitingFor.Ahead)
		}
		if at := wait(t, s, ids[10]).Attempts[0].SentAt; at.Sub(after.ETA).Abs() > tick {
			t.Errorf("it went at %v, its ETA was %v", at.Sub(f.start), after.ETA.Sub(f.start))
		}
	})
}

func TestRetryIsNotEndedBecauseOfYoungerCalls(t *testing.T) {
	u := Upstream{Limits: perSecond(1)}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: 500 * ms, status: 429}
			}
			return answer{}
		}
		first := submit(t, s, Request{Target: "/first", Deadline: f.start.Add(20 * sec)})
		synctest.Wait()
		for range 50 {
			submit(t, s, Request{Target: "/younger"})
		}
		if c := wait(t, s, first.ID); c.State != Done {
			t.Errorf("the oldest call, limited once, ended as %s at %v; its deadline is 20s and nobody is ahead", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

// Three of four permits are free, and a call that needs all four waits for the last.
func TestUrgentCallJoinsALaneBehindADearOne(t *testing.T) {
	for _, joins := range []bool{false, true} {
		u := Upstream{Limits: []Limit{{Name: "app", Calls: 4, Window: 10 * sec, Cost: `path == "/big" ? 4 : 1`}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			submit(t, s, Request{Target: "/a"})
			time.Sleep(100 * ms)
			submit(t, s, Request{Target: "/big", Priority: 5})
			if joins { // the lane that the urgent call will be the first of
				submit(t, s, Request{Target: "/low"})
			}
			time.Sleep(100 * ms)
			wait(t, s, submit(t, s, Request{Target: "/urgent", Priority: 10}).ID)
			if d := time.Since(f.start); d > sec {
				t.Errorf("behind one that waits: %v; an urgent call with 3 permits free went at %v", joins, d)
			}
		})
	}
}

// A claim on permits ends when whoever has it comes to lack another limit's too.
func TestClaimEndsWithAPauseElsewhere(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 4, Window: 10 * sec, Cost: `path == "/big" ? 4 : 1`},
		{Name: "key", When: `query("k") != ""`, PerKey: `query("k")`, Calls: 1, Window: time.Hour},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{Target: "/a"})
		time.Sleep(100 * ms)
		submit(t, s, Request{Target: "/big?k=x", Deadline: f.start.Add(2 * time.Hour)})
		time.Sleep(100 * ms)
		if err := s.Pause(t.Context(), "api", "key", "x", f.start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{Target: "/small"}).ID)
		sameTimes(t, f.at(), 0, 200*ms)
	})
}

func TestResolveOfAnEndedCall(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		c := wait(t, s, submit(t, s, Request{}).ID)
		if got, err := s.Resolve(t.Context(), c.ID, Failed, "x"); reason(err) != WrongState {
			t.Errorf("resolving a done call as failed: %v, %v; want wrong_state", got, err)
		}
		s.Close()
		if _, err := s.Resolve(t.Context(), c.ID, Failed, "x"); reason(err) != Stopping {
			t.Errorf("after Close: %v, want stopping", err)
		}
	})
}

func TestResolveOfACallWhoseCallerWasTold(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: io.EOF} }
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if c == nil || c.State != Unknown {
			t.Fatalf("Do = %+v, %v; want it unknown", c, err)
		}
		if _, err := s.Resolve(t.Context(), c.ID, Waiting, ""); reason(err) != WrongState {
			t.Errorf("sent again behind its caller's back: %v, want wrong_state", err)
		}
		if got, err := s.Resolve(t.Context(), c.ID, Done, "seen on the statement"); err != nil || got.State != Done {
			t.Errorf("Resolve = %+v, %v; want it done", got, err)
		}
	})
}

func TestCallerWhoIsGoneSendsNothing(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Method: "POST"}); err != context.Canceled {
			t.Errorf("Do = %v, want it cancelled", err)
		}
		time.Sleep(sec)
		sameTimes(t, f.at())
	})
}

func TestTransportReadsNoBodyLongerThanItsCallerWaits(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		body, never := io.Pipe()
		defer never.Close()
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://x/", body)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := s.Transport("api").RoundTrip(req); ended <- err }()
		select {
		case err := <-ended:
			if err == nil || len(f.at()) > 0 {
				t.Errorf("RoundTrip = %v after %d requests", err, len(f.at()))
			}
		case <-time.After(time.Hour):
			t.Error("RoundTrip still reads an hour after its context ended")
			never.Close()
			<-ended
		}
	})
}

func TestProbeDoesNotWaitForAHangingAttempt(t *testing.T) {
	bubble(t, Upstream{Concurrency: 10}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			switch {
			case strings.HasPrefix(r.URL.Path, "/hang"):
				return answer{after: time.Hour}
			case time.Since(f.start) < 2*sec:
				return answer{err: errDial}
			}
			return answer{}
		}
		submit(t, s, Request{Target: "/hang"})
		time.Sleep(sec)
		wait(t, s, submit(t, s, Request{Target: "/b"}).ID)
		if d := time.Since(f.start); d > 5*sec {
			t.Errorf("the upstream was back at 2s, the call went at %v; all at %v", d, f.at())
		}
	})
}

// Connections are dropped, not refused: each dial takes ten seconds to fail, and
// a thousand are under way when the first does.
func TestDialsThatFailTogetherCountOnce(t *testing.T) {
	bubble(t, Upstream{Concurrency: 1000}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 10 * sec, err: errDial} }
		for range 1200 {
			submit(t, s, Request{})
		}
		time.Sleep(10*sec + ms)
		s.ask(t.Context(), func(now time.Time) {
			if d := s.loop.planners["api"].door; d.down != 1 || d.probe.Sub(now) > probes.Min {
				t.Errorf("down after %d failed dials, the next in %v; want one, and the first step", d.down, d.probe.Sub(now))
			}
		})
		known := len(f.at())
		time.Sleep(time.Minute)
		if n := len(f.at()) - known; n > 5 {
			t.Errorf("%d probes in a minute, each of which takes ten seconds", n)
		}
	})
}

func TestFlowsAreForgotten(t *testing.T) {
	bubble(t, Upstream{ShareBy: `header("X-Tenant")`}, func(t *testing.T, s *Scheduler, f *fake) {
		for i := range 5000 {
			wait(t, s, submit(t, s, Request{Header: tenant(fmt.Sprint(i))}).ID)
		}
		s.ask(t.Context(), func(time.Time) {
			if n := len(s.loop.planners["api"].flows); n > 200 {
				t.Errorf("%d flows are remembered, none has anything waiting", n)
			}
		})
	})
}

// TestFlowsWithAWeightInAnyCase: gold and GOLD are one flow, so a tenant has its
// weight once; a is none of theirs, nor is A.
func TestFlowsWithAWeightInAnyCase(t *testing.T) {
	u := Upstream{Limits: perSecond(10), ShareBy: `header("X-Tenant")`, Weights: map[string]float64{"Gold": 3}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 40 {
			for _, name := range []string{"gold", "GOLD", "a", "A"} {
				submit(t, s, Request{Header: tenant(name)})
			}
		}
		time.Sleep(3 * sec)
		s.ask(t.Context(), func(time.Time) {
			p := s.loop.planners["api"]
			var left []string
			for name, fl := range p.flows {
				left = append(left, fmt.Sprint(name, " ", fl.weight, " ", fl.waiting))
			}
			slices.Sort(left)
			// 30 of 160 have gone, 3:1:1.
			if want := []string{"A 1 34", "a 1 34", "gold 3 62"}; !slices.Equal(left, want) {
				t.Errorf("flows, weights and what waits: %q, want %q", left, want)
			}
		})
	})
	twice := map[string]float64{"gold": 3, "Gold": 2}
	err := Config{Upstreams: map[string]Upstream{"api": {Config: upstream.Config{URL: "http://api.test"}, ShareBy: "path", Weights: twice}}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "weights.gold: is given twice") {
		t.Errorf("a weight twice: %v", err)
	}
}

func TestNotBeforeBeyondMaxAge(t *testing.T) {
	bubble(t, Upstream{MaxAge: 24 * time.Hour}, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{NotBefore: f.start.Add(48 * time.Hour)})
		if c = wait(t, s, c.ID); c.State != Done {
			t.Errorf("it is %s", c.State)
		}
		sameTimes(t, f.at(), 48*time.Hour)
	})
}

// putBack makes the scheduler one that was started before the wall clock was put
// back: its origin's wall time lies ahead of what the monotonic clock says.
func putBack(t *testing.T, s *Scheduler, by time.Duration) {
	s.ask(t.Context(), func(time.Time) {
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

// The bubble's clock is one, so this is on the real ones.
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
		wait(t, s, submit(t, s, Request{Target: "/c"}).ID) // a second sending would go before it
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
		s.ask(t.Context(), func(now time.Time) {
			if next, ok := s.loop.wheel.Next(); !ok || next < time.Minute {
				t.Errorf("the wheel's next is at %v", next)
			}
		})
		if f.targets() != "later" {
			t.Errorf("sent %q, the call that must wait for an hour is %s", f.targets(), s.mustGet(t, c.ID).State)
		}
	})
}

type closedStore struct {
	Store
	closed bool
	after  int // how often it was asked since
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
			"Pause": s.Pause(t.Context(), "api", "", "", time.Now().Add(sec)),
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

func TestCloseTellsWhoWaitsForADeadUpstream(t *testing.T) {
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

func TestRefusalsNameTheirReason(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: f.start.Add(-sec)}); reason(err) != BadRequest {
			t.Errorf("a deadline that has passed: %v, want bad_request", err)
		}
		if _, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/", NotBefore: f.start.Add(time.Minute)}); reason(err) != PastDeadline {
			t.Errorf("a not_before after max_wait: %v, want past_deadline", err)
		}
		s.Pause(t.Context(), "api", "app", "/a", f.start.Add(time.Hour))
		if _, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/a"}); reason(err) != Paused || !strings.Contains(err.Error(), `"/a"`) {
			t.Errorf("a paused key: %v, want paused, and the key", err)
		}
	})
}

func TestAcceptedCallHandedOverAgainIsNotRefused(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		r := Request{Upstream: "api", Target: "/refund", IdempotencyKey: "k", Deadline: f.start.Add(5 * sec)}
		first := submit(t, s, r)
		for range 10 { // by now a new call would be refused
			submit(t, s, Request{})
		}
		if c, err := s.Submit(t.Context(), r); err != nil || c.ID != first.ID {
			t.Errorf("the accepted call, handed over again: %v, %v", c, err)
		}
	})
}

func TestCallerMayUseItsMemoryAgain(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var got string
		f.serve = func(_ int, r *http.Request) answer {
			b, _ := io.ReadAll(r.Body)
			got = string(b) + r.Header.Get("X")
			return answer{}
		}
		submit(t, s, Request{})
		body, header := []byte("amount=1"), http.Header{"X": {"1"}}
		c := submit(t, s, Request{Method: "POST", Body: body, Header: header})
		copy(body, "amount=9")
		header.Set("X", "9")
		wait(t, s, c.ID)
		if got != "amount=11" {
			t.Errorf("sent %q, want what was handed over", got)
		}
	})
}

type panicky struct{}

func (panicky) RoundTrip(*http.Request) (*http.Response, error) { panic("in a user's RoundTripper") }

func TestPanicHarmsItsCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := Upstream{Concurrency: 1}
		u.URL, u.Transport = "http://api.test", panicky{}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 2 {
			if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Unknown {
				t.Errorf("it is %s, want unknown: it may have been sent", c.State)
			}
		}
	})
}

// An upstream that limits everything, and does not say for how long, is asked less
// and less often.
func TestUpstreamThatLimitsForEver(t *testing.T) {
	u := Upstream{}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 10 * ms, status: 429} }
		for range 300 {
			submit(t, s, Request{Deadline: f.start.Add(10 * time.Minute)})
		}
		time.Sleep(5 * time.Minute)
		var waves []time.Duration
		for _, at := range f.at() {
			if len(waves) == 0 || at-waves[len(waves)-1] > 100*ms {
				waves = append(waves, at)
			}
		}
		// Each wait is at least half of its step, which double.
		step := time.Duration(retry.DefaultMin)
		for i := 1; i < len(waves); i++ {
			if wait := waves[i] - waves[i-1]; wait < step/2 {
				t.Errorf("asked again after %v, in a step of %v: %v", wait, step, waves)
			}
			step = min(2*step, retry.DefaultMax)
		}
		if most := len(waves) * 300; len(f.at()) > most || len(waves) < 8 {
			t.Errorf("%d requests, want at most %d: each call once at %v", len(f.at()), most, waves)
		}
	})
}

func TestLaterPauseWins(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		s.Pause(t.Context(), "api", "", "", f.start.Add(time.Hour))
		s.Pause(t.Context(), "api", "", "", f.start.Add(time.Minute))
		if st := upstreams(t, s)[0]; st.State != "paused" || !st.PausedUntil.Equal(f.start.Add(time.Hour)) {
			t.Errorf("%s until %v, want paused for the hour", st.State, st.PausedUntil.Sub(f.start))
		}
		s.Resume(t.Context(), "api", "", "")
		s.Pause(t.Context(), "api", ConcurrencyLimit, "nobody", f.start.Add(time.Hour)) // a key that no call has
		if st := upstreams(t, s)[0]; st.State != "up" {
			t.Errorf("%s until %v, want up", st.State, st.PausedUntil.Sub(f.start))
		}
	})
}

// A body that is longer than what is looked at is the caller's to read, also when
// the scheduler has been closed since.
func TestBodyIsReadAfterClose(t *testing.T) {
	const size = 4 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) }))
	defer server.Close()
	u := Upstream{}
	u.URL, u.MaxInspect = server.URL, 100
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v; want all %d", n, err, size)
	}
}

func TestMemoryCountsHeadersToo(t *testing.T) {
	m := NewMemory(1000, 1<<20).(*memory)
	for i := range 100 {
		m.Record(t.Context(), &Call{ID: fmt.Sprint(i), State: Done, Response: &Response{Headers: http.Header{"X": {strings.Repeat("x", 200<<10)}}}})
	}
	if held := len(m.calls) * 200 << 10; held > 1<<20 {
		t.Errorf("%d bytes of headers are held, at most 1 MiB may be", held)
	}
}

func TestMemoryRecordsACallTwice(t *testing.T) {
	m := NewMemory(1, 1<<20).(*memory)
	for _, id := range []string{"a", "b"} {
		if _, err := m.Accept(context.Background(), &Entry{Call: &Call{ID: id, State: Waiting}}); err != nil {
			t.Fatal(err)
		}
		for n, want := range []error{nil, ErrNotFound} {
			if err := m.Record(t.Context(), &Call{ID: id, State: Done}); !errors.Is(err, want) {
				t.Errorf("record %d of %s: %v, want %v", n+1, id, err, want)
			}
		}
	}
	if _, err := m.Get(t.Context(), "b"); err != nil || len(m.calls) != 1 {
		t.Errorf("%d calls are held, the last one: %v", len(m.calls), err)
	}
}

// One limit, costs and priorities: whenever anybody looks, the first call of all
// lacks permits, or is on its way.
func TestFirstCallOfAllNeverIdles(t *testing.T) {
	for seed := range uint64(30) {
		u := Upstream{Limits: []Limit{{Name: "app", Calls: 6, Window: sec, Cost: `int(query("c"))`}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			r := rand.New(rand.NewPCG(seed, 9))
			for range 80 {
				submit(t, s, Request{Target: fmt.Sprintf("/?c=%d", 1+r.IntN(6)), Priority: r.IntN(3)})
				time.Sleep(time.Duration(r.IntN(400)) * ms)
				s.ask(t.Context(), func(now time.Time) {
					var first *call
					for _, c := range s.loop.calls {
						if c.State == Waiting && (first == nil || c.rank().before(first.rank())) {
							first = c
						}
					}
					if first == nil {
						return
					}
					if at := s.loop.planners["api"].ledger.Next(now, first.route.needs[1]); !at.IsZero() && now.Sub(at) > tick {
						t.Errorf("seed %d: at %v the first call could have gone at %v", seed, now.Sub(f.start), at.Sub(f.start))
					}
				})
			}
		})
	}
}

// All cost one permit: whenever anybody looks, each call that waits lacks some
// permit, whatever was lost, cancelled, paused or resumed.
func TestNoPermitIdlesWhileACallCouldTakeIt(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 11))
		u := Upstream{Concurrency: 1 + r.IntN(6), ShareBy: `header("X-Flow")`, Late: 200 * ms}
		u.Timeout = 300 * ms
		for i := range 1 + r.IntN(3) {
			key := fmt.Sprintf(`header("X-Key-%d")`, i)
			u.Limits = append(u.Limits, Limit{Name: fmt.Sprintf("l%d", i), When: key + ` != ""`, PerKey: key, Calls: 1 + r.IntN(4), Window: time.Duration(50+r.IntN(800)) * ms})
		}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(n int, _ *http.Request) answer {
				switch k := n * 7919 % 1201; { // scattered, and the same in each run
				case k%12 == 0:
					return answer{after: time.Hour}
				case k%12 == 1:
					return answer{after: ms, err: errDial}
				default:
					return answer{after: time.Duration(1+k%100) * ms}
				}
			}
			var ids []string
			for range 100 {
				h := http.Header{"X-Flow": {string(rune('a' + r.IntN(3)))}}
				for i := range u.Limits {
					h.Set(fmt.Sprintf("X-Key-%d", i), []string{"", "x", "y", "z"}[r.IntN(4)])
				}
				ids = append(ids, submit(t, s, Request{Priority: r.IntN(3), Header: h}).ID)
				limit, key := u.Limits[r.IntN(len(u.Limits))].Name, []string{"", "x", "y"}[r.IntN(3)]
				switch r.IntN(8) {
				case 0:
					s.Cancel(t.Context(), ids[r.IntN(len(ids))])
				case 1:
					s.Pause(t.Context(), "api", limit, key, time.Now().Add(time.Duration(r.IntN(2000))*ms))
				case 2:
					s.Resume(t.Context(), "api", limit, key)
				}
				time.Sleep(time.Duration(r.IntN(60))*ms + 50*time.Microsecond)
				noneIdles(t, s, seed)
			}
			for range 400 {
				time.Sleep(37*ms + 3*time.Microsecond)
				noneIdles(t, s, seed)
			}
		})
	}
}

func noneIdles(t *testing.T, s *Scheduler, seed uint64) {
	t.Helper()
	s.ask(t.Context(), func(now time.Time) {
		p := s.loop.planners["api"]
		for _, c := range s.loop.calls {
			if c.State != Waiting || c.queued.lane == nil || !p.door.lets(now.Add(-tick)) {
				continue
			}
			lacks := false
			for _, n := range c.route.needs {
				at := p.ledger.Next(now, n)
				lacks = lacks || at.IsZero() || now.Sub(at) <= tick
			}
			if !lacks {
				t.Errorf("seed %d: a call that needs %v could go and does not", seed, c.route.needs)
			}
		}
	})
}

// TestAnswersOfUnknownCallsCount: what is kept of them is bounded like requests.
func TestAnswersOfUnknownCallsCount(t *testing.T) {
	bubble(t, Upstream{MaxWaitingBytes: 1 << 20}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500, body: strings.Repeat("x", 300<<10)} }
		full := 0
		for range 10 {
			c, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"})
			if reason(err) == Full {
				full++
				continue
			}
			wait(t, s, c.ID)
		}
		if held := upstreams(t, s)[0].Bytes; full != 6 || held < 4*300<<10 {
			t.Errorf("%d calls were refused with %d bytes held, want 6: 1 MiB may be", full, held)
		}
	})
}

// TestRefusalOfARepeatLeavesTheDoubt: what the platform says of the second sending
// tells nothing of the first, which it may have executed.
func TestRefusalOfARepeatLeavesTheDoubt(t *testing.T) {
	var u Upstream
	u.Idempotent = "true"
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return answer{status: map[bool]int{true: 502, false: 401}[n == 1]}
		}
		if c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID); c.State != Unknown || len(c.Attempts) != 2 {
			t.Errorf("%s after %d attempts, want unknown after 2", c.State, len(c.Attempts))
		}
	})
}

// TestHookOfThePolicyThatPanics ends its call's repeats, and nothing else.
func TestHookOfThePolicyThatPanics(t *testing.T) {
	var u Upstream
	u.Idempotent = "true"
	u.Retry.Check = func(a retry.Attempt) bool { panic("no response to look at") }
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		for range 2 {
			if c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID); c.State != Unknown || len(c.Attempts) != 1 {
				t.Errorf("%s after %d attempts, want unknown after 1", c.State, len(c.Attempts))
			}
		}
	})
}
