package scheduler

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestCancel(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for _, target := range []string{"/a", "/b", "/c"} {
			ids = append(ids, submit(t, s, Request{Target: target}).ID)
		}
		synctest.Wait()
		if _, err := s.Cancel(t.Context(), ids[0]); reason(err) != WrongState {
			t.Errorf("cancelling a call that is being sent: %v, want wrong_state", err)
		}
		if c, err := s.Cancel(t.Context(), ids[1]); err != nil || c.State != Cancelled {
			t.Fatalf("Cancel = %v, %v", c, err)
		}
		if _, err := s.Cancel(t.Context(), ids[1]); reason(err) != WrongState {
			t.Errorf("cancelling twice: %v, want wrong_state", err)
		}
		if _, err := s.Cancel(t.Context(), "nobody"); reason(err) != NotFound {
			t.Errorf("cancelling an unknown id: %v, want not_found", err)
		}
		wait(t, s, ids[2])
		sameTimes(t, f.at(), 0, sec+10*ms) // its slot goes to the next call
		if got := f.targets(); got != "a c" {
			t.Errorf("sent %q, want a c", got)
		}
	})
}

// TestHalfOfABacklogIsCancelled cancels calls of a backlog. Their slots go to the
// calls that are left: each window is as full as if only those had been accepted.
func TestHalfOfABacklogIsCancelled(t *testing.T) {
	const backlog, perWindow, most = 1500, 50, 20 * ms
	seeds := uint64(20)
	if testing.Short() {
		seeds /= 6
	}
	for seed := range seeds {
		bubble(t, Upstream{Limits: perSecond(perWindow)}, func(t *testing.T, s *Scheduler, f *fake) {
			r := rand.New(rand.NewPCG(seed, 25))
			f.serve = func(n int, _ *http.Request) answer {
				return answer{after: time.Duration(1+n*7919%200) * grain}
			}
			var ids []string
			for range backlog {
				ids = append(ids, submit(t, s, Request{}).ID)
			}
			cancelled := 0
			for range 1 + r.IntN(3) { // at once, or in parts
				time.Sleep(time.Duration(r.IntN(4000)) * ms)
				for _, i := range r.Perm(backlog)[:backlog/4] {
					if _, err := s.Cancel(t.Context(), ids[i]); err == nil {
						cancelled++
					} else if reason(err) != WrongState {
						t.Fatal(err)
					}
				}
			}
			for _, id := range ids {
				wait(t, s, id)
			}
			if len(f.arrivals) != backlog-cancelled {
				t.Fatalf("seed %d: %d requests for %d calls of which %d were cancelled", seed, len(f.arrivals), backlog, cancelled)
			}
			var at []time.Duration
			for i, a := range f.arrivals {
				if latest := time.Duration(i/perWindow) * (sec + most + tick); a.at > latest {
					t.Fatalf("seed %d: request %d came at %v, the optimum and a round trip per window is %v", seed, i, a.at, latest)
				}
				at = append(at, a.at)
			}
			if n := busiest(at, sec); n > perWindow {
				t.Errorf("seed %d: %d requests in a second", seed, n)
			}
		})
	}
}

func TestResolveAndRetryOfUnknown(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n <= 2 {
				return answer{status: 500}
			}
			return answer{}
		}
		a, b := submit(t, s, Request{}), submit(t, s, Request{})
		wait(t, s, a.ID)
		wait(t, s, b.ID)
		if c, err := s.Resolve(t.Context(), a.ID, Decision{As: upstream.Done, Reason: "seen on the statement"}); err != nil || c.State != Done || len(c.Decisions) != 1 || c.Decisions[0].Reason != "seen on the statement" {
			t.Errorf("Resolve = %+v, %v", c, err)
		}
		if _, err := s.Resolve(t.Context(), a.ID, Decision{As: upstream.Failed}); reason(err) != "" && reason(err) != WrongState && reason(err) != NotFound {
			t.Errorf("a second Resolve = %v", err)
		}
		if _, err := s.Resolve(t.Context(), b.ID, Decision{As: upstream.NotExecuted, Reason: "never arrived"}); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, b.ID); c.State != Done || len(c.Attempts) != 2 {
			t.Errorf("sent again: %s after %d attempts", c.State, len(c.Attempts))
		}
		if st := upstreams(t, s)[0]; st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("what waits afterwards: %+v", st)
		}
	})
}

func TestResolveOfAnEndedCall(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		c := wait(t, s, submit(t, s, Request{}).ID)
		if got, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Failed, Reason: "x"}); reason(err) != WrongState {
			t.Errorf("resolving a done call as failed: %v, %v; want wrong_state", got, err)
		}
		s.Close()
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Failed, Reason: "x"}); reason(err) != Stopping {
			t.Errorf("after Close: %v, want stopping", err)
		}
	})
}

func TestResolveOfAnAnsweredCall(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: io.EOF} }
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if c == nil || c.State != Unknown {
			t.Fatalf("Do = %+v, %v; want it unknown", c, err)
		}
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted}); reason(err) != WrongState {
			t.Errorf("sent again behind its caller's back: %v, want wrong_state", err)
		}
		if got, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done, Reason: "seen on the statement"}); err != nil || got.State != Done {
			t.Errorf("Resolve = %+v, %v; want it done", got, err)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: "app", Key: "/a", Until: f.start.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		a := submit(t, s, Request{Target: "/a"})
		if a.WaitingFor.Limit != "app" || a.WaitingFor.Key != "/a" {
			t.Errorf("a waits for %+v", a.WaitingFor)
		}
		wait(t, s, submit(t, s, Request{Target: "/b"}).ID)
		time.Sleep(2 * sec)
		if err := s.Resume(t.Context(), "api", "app", "/a"); err != nil {
			t.Fatal(err)
		}
		wait(t, s, a.ID)
		sameTimes(t, f.at(), 0, 2*sec+10*ms)
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: "nope", Until: time.Now().Add(sec)}); reason(err) != NotFound {
			t.Errorf("unknown limit: %v", err)
		}
		for _, until := range []time.Time{{}, time.Now()} { // the zero time ends no pause either
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: until}); reason(err) != BadRequest || !strings.Contains(err.Error(), "has passed") {
				t.Errorf("Pause until %v: %v, want bad_request", until, err)
			}
		}
	})
}

func TestLaterPauseWins(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		s.Pause(t.Context(), Pause{Upstream: "api", Until: f.start.Add(time.Hour), Reason: "maintenance"})
		err := s.Pause(t.Context(), Pause{Upstream: "api", Until: f.start.Add(time.Minute)})
		if want := "is paused until 2000-01-01T01:00:00.000Z already, and not only until 2000-01-01T00:01:00.000Z; resume it first to shorten the pause (by an operator, since 2000-01-01T00:00:00.000Z: maintenance)"; reason(err) != WrongState || !strings.Contains(err.Error(), want) {
			t.Errorf("a shorter pause: %v, want %q", err, want)
		}
		if st := upstreams(t, s)[0]; st.State != "paused" || !st.PausedUntil.Equal(f.start.Add(time.Hour)) {
			t.Errorf("%s until %v, want paused for the hour", st.State, st.PausedUntil.Sub(f.start))
		}
		s.Resume(t.Context(), "api", "", "")
		s.Pause(t.Context(), Pause{Upstream: "api", Limit: ConcurrencyLimit, Key: "nobody", Until: f.start.Add(time.Hour)}) // a key that no call has
		if st := upstreams(t, s)[0]; st.State != "up" {
			t.Errorf("%s until %v, want up", st.State, st.PausedUntil.Sub(f.start))
		}
	})
}

// TestPauseOfAnUpstreamThatIsDown: a pause counts also while the upstream is down,
// and a pause without an end is reported as one.
func TestPauseOfAnUpstreamThatIsDown(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(5)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		c := submit(t, s, Request{Target: "/"})
		time.Sleep(100 * ms)
		until := time.Now().Add(time.Hour)
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: until}); err != nil {
			t.Fatal(err)
		}
		got := s.mustGet(t, c.ID)
		if !got.ETA.Equal(until) || got.WaitingFor == nil || !got.WaitingFor.Paused || !got.WaitingFor.Until.Equal(until) {
			t.Errorf("eta %v for %+v, want the end of the pause %v", got.ETA, got.WaitingFor, until)
		}
		if st := upstreams(t, s)[0]; !st.ETA.Equal(until) || !st.PausedUntil.Equal(until) {
			t.Errorf("%+v, want it shut until %v", st, until)
		}
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
			t.Fatal(err)
		}
		if st := upstreams(t, s)[0]; time.Until(st.PausedUntil) < 250*365*24*time.Hour {
			t.Errorf("%+v, want it shut for ever", st)
		}
	})
}

// A gatedStore holds the record of each call that is done until the gate opens.
type gatedStore struct {
	Store
	gate chan struct{}
}

func (g *gatedStore) Record(ctx context.Context, c *Call) error {
	if c.State == Done {
		<-g.gate
	}
	return g.Store.Record(ctx, c)
}

// TestOneDecision: while a decision is being stored, another one is refused.
func TestOneDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := Upstream{}
		u.URL, u.Transport = "http://api.test", &fake{start: time.Now(), serve: func(int, *http.Request) answer { return answer{status: 500} }}
		store := &gatedStore{NewMemory(10, 1000), make(chan struct{})}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Store: store, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Unknown {
			t.Fatalf("the call is %s", c.State)
		}
		first := make(chan error)
		go func() {
			first <- second(s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done, Reason: "it is in the list"}))
		}()
		synctest.Wait()
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Reason: "it is not in the list"}); reason(err) != WrongState {
			t.Errorf("a second decision meanwhile: %v", err)
		}
		close(store.gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if got := s.mustGet(t, c.ID); got.State != Done {
			t.Errorf("in the end the call is %s", got.State)
		}
	})
}
