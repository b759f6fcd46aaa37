package scheduler

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestUpstreamDown(t *testing.T) {
	u := Upstream{Limits: perSecond(10)}
	u.Retry.Attempts = 1
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			if time.Since(f.start) < 60*sec {
				return answer{after: ms, err: errDial}
			}
			return answer{after: 10 * ms}
		}
		var ids []string
		for range 50 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(30 * sec)
		if st := upstreams(t, s)[0]; st.State != "down" || st.Waiting+st.Sending != 50 {
			t.Errorf("in the middle: %+v; want it down and 50 calls waiting", st)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("a call ended as %s after %+v", c.State, c.Attempts)
			}
		}
		var probes, inRow int
		at := f.at()
		for i, d := range at {
			if d >= 60*sec {
				break
			}
			if probes++; i >= 10 && d-at[i-1] < 250*ms {
				inRow++
			}
		}
		// 10 dials before the upstream is known to be down, then one for each step of 0.5, 1, 2, 4 … 30 s
		if probes > 10+9 || inRow > 0 {
			t.Errorf("%d dials while it was down, %d of them too soon after another: %v", probes, inRow, at[:probes])
		}
		after := at[probes:]
		if len(after) != 50 {
			t.Errorf("%d requests after it came back, want 50", len(after))
		}
		for i := 10; i < len(after); i++ {
			if after[i]-after[i-10] < sec {
				t.Errorf("more than 10 in a second when it came back: %v", after)
				break
			}
		}
		if st := upstreams(t, s)[0]; st.State != "up" {
			t.Errorf("afterwards: %+v", st)
		}
	})
}

// TestUpstreamDownInTheMiddleOfABacklog takes the upstream down for a minute. No
// attempt is used up, and there is one probe for each step of the backoff. Afterwards
// each call is sent once, within the limit.
func TestUpstreamDownInTheMiddleOfABacklog(t *testing.T) {
	const backlog, perWindow = 1000, 10
	const from, to = 20500 * ms, 80500 * ms
	u := Upstream{Limits: perSecond(perWindow)}
	u.Retry = retry.Policy{Attempts: 1}
	for _, dial := range []time.Duration{0, ms, 300 * ms} {
		t.Run(fmt.Sprintf("a dial fails after %v", dial), func(t *testing.T) {
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				var mu sync.Mutex
				var dials, reached []time.Duration
				seen := map[string]int{}
				f.serve = func(n int, r *http.Request) answer {
					mu.Lock()
					defer mu.Unlock()
					now := time.Since(f.start)
					if now >= from && now < to {
						dials = append(dials, now)
						return answer{after: dial, err: errDial}
					}
					reached = append(reached, now)
					seen[r.URL.Path]++
					return answer{after: time.Duration(1+n*7919%200) * grain}
				}
				var ids []string
				for i := range backlog {
					ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i)}).ID)
				}
				for _, id := range ids {
					if c := wait(t, s, id); c.State != Done {
						t.Fatalf("a call is %s after %+v", c.State, c.Attempts)
					}
				}
				if len(seen) != backlog || len(reached) != backlog {
					t.Errorf("%d requests for %d of %d calls", len(reached), len(seen), backlog)
				}
				if n := busiest(reached, sec); n > perWindow {
					t.Errorf("%d requests in a second", n)
				}
				// The calls of one window may be in flight before the upstream is known to
				// be down. Then come the probes: each wait is at least half of its step, of
				// 0.5, 1, 2 … 30 s.
				on := 0
				for on < len(dials) && dials[on] <= dials[0]+dial {
					on++
				}
				step := firstProbe
				for i := on; i < len(dials); i++ {
					if wait := dials[i] - dials[i-1]; wait < step/2 {
						t.Errorf("a probe %v after the last dial, in a step of %v: %v", wait, step, dials)
					}
					step = min(2*step, lastProbe)
				}
				if most := perWindow + 10; len(dials) > most || on > perWindow {
					t.Errorf("%d dials, %d of them before it was known to be down, want at most %d: %v", len(dials), on, most, dials)
				}
				back, _ := slices.BinarySearch(reached, to)
				if late := reached[back] - to; late > lastProbe+sec {
					t.Errorf("it was back for %v before a call reached it", late)
				}
				t.Logf("%d dials at %s", len(dials), strings.Trim(fmt.Sprint(dials), "[]"))
			})
		})
	}
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

// TestDialsThatFailTogetherCountOnce drops connections instead of refusing them: each
// dial fails after ten seconds, and a thousand dials are in flight when the first one
// fails.
func TestDialsThatFailTogetherCountOnce(t *testing.T) {
	bubble(t, Upstream{Concurrency: 1000}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 10 * sec, err: errDial} }
		for range 1200 {
			submit(t, s, Request{})
		}
		time.Sleep(10*sec + ms)
		s.loop.ask(t.Context(), func(now time.Time) {
			if b := &s.loop.upstreams["api"].circuit; b.Failures() != 1 || b.Until(now).Sub(now) > firstProbe {
				t.Errorf("down after %d failed dials, the next in %v; want one, and the first step", b.Failures(), b.Until(now).Sub(now))
			}
		})
		known := len(f.at())
		time.Sleep(time.Minute)
		if n := len(f.at()) - known; n > 5 {
			t.Errorf("%d probes in a minute, each of which takes ten seconds", n)
		}
	})
}

// TestTrips plays ten minutes with upstreams that fail in several ways while 5,000
// payments wait, which cannot be repeated. For each time that the breaker opens, at most
// 20 of them and those in flight become unknown, and one for each probe.
func TestTrips(t *testing.T) {
	const perWindow, span = 50, 10 * time.Minute
	ok, bad := answer{after: 50 * ms}, answer{after: 50 * ms, status: 503}
	hangs := answer{after: time.Hour}
	tests := []struct {
		name  string
		serve func(since time.Duration, n int) answer
		opens int  // at least
		never bool // it does not open
		back  time.Duration
	}{
		{name: "503", opens: 1, back: 4 * time.Minute, serve: func(d time.Duration, _ int) answer {
			if d < 4*time.Minute {
				return bad
			}
			return ok
		}},
		{name: "hangs from the beginning", opens: 1, back: 4 * time.Minute, serve: func(d time.Duration, _ int) answer {
			if d < 4*time.Minute {
				return hangs
			}
			return ok
		}},
		{name: "hangs after a while", opens: 1, back: 4 * time.Minute, serve: func(d time.Duration, _ int) answer {
			if d > 10*sec && d < 4*time.Minute {
				return hangs
			}
			return ok
		}},
		{name: "fails half the time", opens: 5, serve: func(_ time.Duration, n int) answer {
			if n%2 == 0 {
				return bad
			}
			return ok
		}},
		{name: "is well for a second of each minute", opens: 1, serve: func(d time.Duration, _ int) answer {
			if int(d/sec)%60 == 30 {
				return ok
			}
			return bad
		}},
		{name: "fails one time in twenty", never: true, serve: func(_ time.Duration, n int) answer {
			if n%20 == 0 {
				return bad
			}
			return ok
		}},
		{name: "is slow by nature", never: true, serve: func(time.Duration, int) answer { return answer{after: 25 * sec} }},
		{name: "is slow now and then", never: true, serve: func(_ time.Duration, n int) answer {
			if n%10 == 0 {
				return answer{after: 20 * sec}
			}
			return ok
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &tripped{start: time.Now()}
				f := &fake{start: p.start, serve: func(n int, _ *http.Request) answer { return tt.serve(time.Since(p.start), n) }}
				u := Upstream{Limits: perSecond(perWindow), MaxAge: time.Hour}
				u.URL, u.Transport, u.Timeout = "http://api.test", f, 30*sec
				s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Observe: p.observe, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for i := range 5000 {
					submit(t, s, Request{Method: "POST", Target: fmt.Sprintf("/%d", i)})
				}
				time.Sleep(span)
				p.check(t, f, tt.opens, tt.never, tt.back, perWindow)
			})
		})
	}
}

// tripped counts what a breaker that opens costs.
type tripped struct {
	mu       sync.Mutex
	start    time.Time
	flying   int
	allowed  int // unknown calls, by the openings
	unknown  int
	probes   int
	openings []time.Duration
	firstOK  time.Duration // after the latest opening
	open     bool
}

func (p *tripped) observe(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Kind == EventSending:
		p.flying++
		if p.open {
			p.probes++
		}
	case e.Kind == EventAttempt:
		p.flying--
		if e.Attempt.Outcome == upstream.Done && p.firstOK == 0 && len(p.openings) > 0 {
			p.firstOK = time.Since(p.start)
		}
	case e.Kind == EventPaused && (e.Reason == "failing" || e.Reason == "silent"):
		p.open = true
		p.openings = append(p.openings, time.Since(p.start))
		p.allowed += 20 + p.flying
		p.firstOK = 0
	case e.Kind == EventResumed:
		p.open = false
	case e.Kind == EventEnded && e.Call.State == Unknown:
		p.unknown++
	}
}

func (p *tripped) check(t *testing.T, f *fake, opens int, never bool, back time.Duration, perWindow int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d arrivals, %d openings at %v, %d probes, %d unknown (at most %d and the probes)", len(f.at()), len(p.openings), p.openings, p.probes, p.unknown, p.allowed)
	if never {
		if len(p.openings) > 0 {
			t.Errorf("it opened at %v", p.openings)
		}
		return
	}
	if len(p.openings) < opens || p.unknown > p.allowed+p.probes {
		t.Errorf("%d openings, want at least %d; %d unknown calls, want at most %d and %d for probes", len(p.openings), opens, p.unknown, p.allowed, p.probes)
	}
	for i, at := range p.openings[1:] {
		if since := at - p.openings[i]; since < firstProbe/2 {
			t.Errorf("opened again after %v", since)
		}
	}
	if last := p.openings[len(p.openings)-1]; back > 0 && (p.firstOK < back || p.firstOK-back > max(firstProbe, 2*(back-last))) {
		t.Errorf("back at %v after it had opened at %v, and answered at %v", back, last, p.firstOK)
	}
	if n := busiest(f.at(), sec); n > perWindow {
		t.Errorf("%d requests in a second, of %d", n, perWindow)
	}
}

// TestProbesThatMayBeRepeated: while a call waits that the upstream recognises when it is
// repeated, or that is a query, no payment probes a tripped upstream.
func TestProbesThatMayBeRepeated(t *testing.T) {
	u := Upstream{Limits: perSecond(10), MaxAge: 24 * time.Hour, Retry: retry.Policy{Attempts: 100}}
	u.Idempotent = `method == "GET"`
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			if time.Since(f.start) < time.Hour {
				return answer{status: 503}
			}
			return answer{}
		}
		for i := range 100 {
			submit(t, s, Request{Method: "POST", Target: fmt.Sprintf("/pay/%d", i), Priority: 50})
		}
		query := submit(t, s, Request{Method: "GET", Target: "/orders"})
		time.Sleep(59 * time.Minute)
		pays, queries := 0, 0
		for _, target := range strings.Fields(f.targets()) {
			if strings.HasPrefix(target, "pay/") {
				pays++
			} else {
				queries++
			}
		}
		if pays > 20 || queries < 59 {
			t.Errorf("%d payments and %d queries were sent, want the payments until it opened, and the query as the probe", pays, queries)
		}
		if c := wait(t, s, query.ID); c.State != Done {
			t.Errorf("the query is %s", c.State)
		}
		time.Sleep(time.Minute)
		if st := upstreams(t, s)[0]; st.State != "up" || st.Waiting > 0 || st.Unknown != pays {
			t.Errorf("a minute after it is back: %+v", st)
		}
	})
}

// TestResumeClosesTheBreaker: a person says that an upstream is well.
func TestResumeClosesTheBreaker(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(10)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n <= 10 {
				return answer{status: 503}
			}
			return answer{}
		}
		var last *Call
		for range 30 {
			last = submit(t, s, Request{Method: "POST"})
		}
		time.Sleep(100 * ms)
		if why := s.mustGet(t, last.ID).WaitingFor; why == nil || !strings.Contains(why.Breaker, "10 of the last 20") || !why.Until.Equal(upstreams(t, s)[0].PausedUntil) || why.Ahead != 19 {
			t.Errorf("the last call waits for %+v, want the breaker with 19 calls ahead", why)
		}
		st := upstreams(t, s)[0]
		if st.State != "tripped" || st.Since.Sub(f.start) > 50*ms || !strings.Contains(st.Reason, "the outcomes of 10 of the last 20 calls are unknown; the last one: status") {
			t.Fatalf("%+v, want it tripped", st)
		}
		if err := s.Resume(t.Context(), "api", "", ""); err != nil {
			t.Fatal(err)
		}
		if st := upstreams(t, s)[0]; st.State != "up" {
			t.Errorf("at once it is %s", st.State)
		}
		time.Sleep(7 * sec)
		if st := upstreams(t, s)[0]; st.State != "up" || st.Waiting > 0 || st.Reason != "" {
			t.Errorf("%+v, want it up and all calls gone", st)
		}
	})
}

// TestRefusedWhileTripped: a payment whose caller waits is refused at once while none may
// probe, and the next one that comes when it may is the probe.
func TestRefusedWhileTripped(t *testing.T) {
	u := Upstream{MaxWait: 10 * sec}
	u.Idempotent = `method == "GET"`
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if time.Since(f.start) < 30*time.Minute {
				return answer{status: 503}
			}
			return answer{}
		}
		answered, refused := 0, 0
		for time.Since(f.start) < time.Hour {
			began := time.Now()
			_, _, err := s.Do(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/"})
			switch waited := time.Since(began); {
			case err == nil && time.Since(f.start) > 30*time.Minute:
				answered++
			case reason(err) == Paused && waited == 0 && strings.Contains(err.Error(), "the circuit breaker of upstream"):
				refused++
			}
			time.Sleep(sec)
		}
		sent := 0
		for _, at := range f.at() {
			if at < 30*time.Minute {
				sent++
			}
		}
		if sent > 10+20 || refused < 1000 || answered < 1500 {
			t.Errorf("%d payments were sent to the upstream that fails, %d refused at once, %d answered afterwards", sent, refused, answered)
		}
	})
}
