package scheduler

import (
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// limitOnce answers the first request with a status and a Retry-After, and others with 200.
func limitOnce(status int, retryAfter string) func(int, *http.Request) answer {
	return func(n int, _ *http.Request) answer {
		if n == 1 {
			return answer{after: 10 * ms, status: status, header: http.Header{"Retry-After": {retryAfter}}}
		}
		return answer{}
	}
}

const aDay = 24 * time.Hour

// TestNoWaitEndsACall: a submitted call that is to wait until after its deadline waits until then,
// and says why. A person may end the pause before.
func TestNoWaitEndsACall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   upstream.Rule
		why    WaitingFor // while it waits
		reason Reason     // at its end
		resume bool       // works
	}{
		{"the upstream is paused", upstream.Rule{Pause: &upstream.Pause{Upstream: true}}, WaitingFor{Limit: ConcurrencyLimit, Paused: true}, Paused, true},
		{"a key is paused", upstream.Rule{Pause: &upstream.Pause{Limit: "app"}}, WaitingFor{Limit: "app", Key: "/slow", Paused: true}, PastDeadline, true},
		{"the call alone", upstream.Rule{After: sec}, WaitingFor{}, PastDeadline, false},
	} {
		u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 100, Window: sec}}}
		tt.rule.When, tt.rule.Is = "status == 429", upstream.NotExecuted
		u.Outcomes = []upstream.Rule{tt.rule}
		for _, resumed := range []bool{false, true}[:1+map[bool]int{true: 1}[tt.resume]] {
			t.Run(tt.name, func(t *testing.T) {
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					f.serve = limitOnce(429, "86400")
					id := submit(t, s, Request{Target: "/slow"}).ID
					time.Sleep(time.Hour)
					c := s.mustGet(t, id)
					if why := c.WaitingFor; c.State != Waiting || why == nil || why.Limit != tt.why.Limit || why.Key != tt.why.Key || why.Paused != tt.why.Paused || !why.Until.After(c.Deadline) {
						t.Fatalf("after an hour %s for %+v, want %+v behind %v", c.State, c.WaitingFor, tt.why, c.Deadline)
					}
					if !c.ETA.After(c.Deadline) || c.ETA.Sub(f.start) != aDay+10*ms {
						t.Errorf("its ETA is %v, want a day after %v, which is behind its deadline %v", c.ETA, f.start, c.Deadline)
					}
					if resumed {
						if err := s.Resume(t.Context(), "api", strings.TrimPrefix(tt.why.Limit, ConcurrencyLimit), tt.why.Key); err != nil {
							t.Fatal(err)
						}
						if c := wait(t, s, id); c.State != Done || len(c.Attempts) != 2 {
							t.Errorf("resumed, it is %s after %d attempts", c.State, len(c.Attempts))
						}
						sameTimes(t, f.at(), 0, time.Hour)
						return
					}
					c = wait(t, s, id)
					if c.State != Expired || c.Reason != tt.reason || time.Since(f.start) != aDay {
						t.Errorf("after %v %s because of %q, want expired, %q after a day", time.Since(f.start), c.State, c.Reason, tt.reason)
					}
					if n := len(f.at()); n != 1 {
						t.Errorf("%d requests, want 1", n)
					}
				})
			})
		}
	}
}

// TestWaitingCallerIsAnsweredAtOnce: a caller gets the answer if its slot comes too late for it.
func TestWaitingCallerIsAnsweredAtOnce(t *testing.T) {
	u := Upstream{Resend: true}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = limitOnce(429, "86400")
		resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if err != nil || resp.StatusCode != 429 || c.State != Exhausted || time.Since(f.start) > sec {
			t.Fatalf("after %v: %v, %v, %v", time.Since(f.start), resp, c, err)
		}
		resp.Body.Close()
	})
}

// TestDoubtIsToldAtOnce: a call that may have been executed, and cannot go again before its
// deadline, is unknown at once, so that queries and people settle it.
func TestDoubtIsToldAtOnce(t *testing.T) {
	for name, serve := range map[string]func(n int, r *http.Request) answer{
		"unknown": func(int, *http.Request) answer {
			return answer{status: 500, header: http.Header{"Retry-After": {"90000"}}}
		},
		"limited after an unknown outcome": func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{status: 500}
			}
			return answer{status: 429, header: http.Header{"Retry-After": {"86400"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{}
			u.Idempotent, u.MaxPause = "true", 2*aDay
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = serve
				if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Unknown || time.Since(f.start) > 2*sec {
					t.Errorf("after %v %s, want unknown at once", time.Since(f.start), c.State)
				}
			})
		})
	}
}

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestMaxPause: a wait is capped by max_pause, and the log tells both. A pause by a rule's expression
// is too, and one that cannot be computed falls back to the backoff and is told.
func TestMaxPause(t *testing.T) {
	rule := upstream.Rule{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{ForExpr: `body("retry_after")`}}
	for _, tt := range []struct {
		name, retryAfter, body string
		rules                  []upstream.Rule
		want                   time.Duration // 0: the backoff
		log                    string
	}{
		{name: "a field", retryAfter: "172800", want: time.Hour, log: `retry_after=1h0m0s asked="48h0m0s, capped by max_pause"`},
		{name: "a Unix time", retryAfter: "946692000", want: time.Hour, log: `asked="2h0m0s, capped by max_pause"`}, // 02:00 on the day of the bubble
		{name: "an expression", body: `{"retry_after":7200}`, rules: []upstream.Rule{rule}, want: time.Hour, log: `asked="2h0m0s, capped by max_pause"`},
		{name: "below it", body: `{"retry_after":35.5}`, rules: []upstream.Rule{rule}, want: 35500 * ms, log: "retry_after=35.5s slowed="},
		{name: "no wait", body: `{"retry_after":"soon"}`, rules: []upstream.Rule{rule}, log: `body(\"retry_after\") gives neither a number of seconds`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, log := &fake{start: time.Now()}, new(lines)
				f.serve = func(n int, _ *http.Request) answer {
					if n > 1 {
						return answer{}
					}
					a := answer{status: 429, header: http.Header{}, body: tt.body}
					if tt.retryAfter != "" {
						a.header.Set("Retry-After", tt.retryAfter)
					}
					return a
				}
				u := Upstream{}
				u.URL, u.Transport, u.MaxPause, u.Outcomes = "http://api.test", f, time.Hour, tt.rules
				s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Done {
					t.Fatalf("%s", c.State)
				}
				s.Close()
				again := f.at()[1]
				if tt.want == 0 && (again < 250*ms || again > sec) || tt.want != 0 && (again < tt.want || again > tt.want+50*ms) {
					t.Errorf("it went again after %v, want %v", again, tt.want)
				}
				if !strings.Contains(log.String(), tt.log) {
					t.Errorf("the log lacks %s:\n%s", tt.log, log)
				}
			})
		})
	}
}

// TestWebhookTargetsWait: a target's wait is read as an upstream's, and capped by the upstream's max_pause.
func TestWebhookTargetsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, target := &fake{start: time.Now()}, &fake{start: time.Now()}
		target.serve = limitOnce(429, "7200.5")
		u := Upstream{Callbacks: map[string]Callback{"shop": {Config: upstream.Config{URL: "http://shop.test/hook", Transport: target, Signer: stamper{}}}}}
		u.URL, u.Transport, u.MaxPause = "http://api.test", api, time.Hour
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		time.Sleep(2 * time.Hour)
		if at := target.at(); len(at) != 2 || at[1]-at[0] < time.Hour || at[1]-at[0] > time.Hour+sec {
			t.Errorf("the target was called at %v, want twice, an hour apart", at)
		}
	})
}
