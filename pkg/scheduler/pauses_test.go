package scheduler

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestLogOfLimited: the log of a limited call has what was out of each limit, and how long what
// waits, also where the answer does not say so.
func TestLogOfLimited(t *testing.T) {
	pause := &upstream.Pause{For: 2 * sec}
	for name, tt := range map[string]struct {
		rule   upstream.Rule
		header http.Header
		want   string
	}{
		"the rule has the wait":   {upstream.Rule{Pause: pause}, nil, `out="app: 3 of 5 per 1s, day: 3 of 100 per day" paused="the upstream" retry_after=2s`},
		"the answer has it":       {upstream.Rule{Pause: pause}, http.Header{"Retry-After": {"7"}}, `paused="the upstream" retry_after=7s`},
		"the backoff has it":      {upstream.Rule{}, nil, `paused="the upstream" retry_after=`},
		"a limit is paused":       {upstream.Rule{Pause: &upstream.Pause{Limit: "app", For: sec}}, nil, `paused=app retry_after=1s`},
		"the call alone is meant": {upstream.Rule{After: 3 * sec}, nil, `level=INFO msg="the upstream did not execute a call, which is sent again" call=ID upstream=api reason="status == 429" retry_after=3s`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{start: time.Now(), serve: func(n int, _ *http.Request) answer {
					if n == 3 {
						return answer{after: ms, status: 429, header: tt.header}
					}
					return answer{after: ms}
				}}
				tt.rule.When, tt.rule.Is = "status == 429", upstream.NotExecuted
				u := Upstream{Limits: []Limit{{Name: "app", Calls: 5, Window: sec}, {Name: "day", Calls: 100, Calendar: &quota.Calendar{Unit: quota.Day}}}}
				u.URL, u.Transport, u.Outcomes = "http://api.test", f, []upstream.Rule{tt.rule}
				u.Retry.Limited = &retry.Curve{Min: sec, Max: sec}
				var log bytes.Buffer
				s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				var last *Call
				for range 3 {
					last = submit(t, s, Request{})
					time.Sleep(10 * ms)
				}
				wait(t, s, last.ID)
				s.Close()
				got := strings.ReplaceAll(log.String(), last.ID, "ID")
				if alone := tt.rule.After > 0; strings.Contains(got, "retry_after=0s") || strings.Contains(got, "the upstream limited a call") == alone || !strings.Contains(got, tt.want) {
					t.Errorf("no %s in %s", tt.want, got)
				}
			})
		})
	}
}

// TestExpiredWhileHeld: a caller whose call waited too long is told what held the upstream.
func TestExpiredWhileHeld(t *testing.T) {
	down := func(int, *http.Request) answer { return answer{err: errDial} }
	limited := func(int, *http.Request) answer {
		return answer{after: ms, status: 429, header: http.Header{"Retry-After": {"60"}}}
	}
	for name, tt := range map[string]struct {
		serve func(int, *http.Request) answer
		pause bool
		want  string
	}{
		"by an operator": {nil, true, `upstream "api" was paused until 2000-01-01T01:00:00.500Z (by an operator, since 2000-01-01T00:00:00.500Z: maintenance), and call `},
		"by an answer":   {limited, false, `upstream "api" was paused until 2000-01-01T00:01:00.001Z (by an answer of the upstream, since 2000-01-01T00:00:00.001Z: status == 429), and call `},
		"by the breaker": {down, false, `upstream "api" had its circuit breaker open since 2000-01-01T00:00:00.000Z (`},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{MaxWait: 2 * sec, Limits: []Limit{{Name: "app", Calls: 1, Window: sec}}}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = tt.serve
				submit(t, s, Request{}) // it is sent at once
				asked := make(chan error, 1)
				go func() {
					_, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
					asked <- err
				}()
				if tt.pause {
					time.Sleep(500 * ms)
					if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(time.Hour), Reason: "maintenance"}); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-asked; reason(err) != Paused || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %s", err, tt.want)
				}
			})
		})
	}
}

// TestPausesAfterReload: a reload leaves alone what has paused the upstream, its limits and
// their keys. An operator whose pause is over is not named.
func TestPausesAfterReload(t *testing.T) {
	rules := []upstream.Rule{
		{When: `status == 429 and path == "/key"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "key", For: 50 * sec}},
		{When: `status == 429 and path == "/"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{For: 40 * sec, Upstream: true}},
		{When: `status == 429 and path == "/app"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "app", For: time.Minute}},
	}
	up := func(rules []upstream.Rule, limits ...Limit) Upstream {
		u := Upstream{Limits: limits}
		u.Outcomes, u.Retry.Attempts = rules, 1
		return u
	}
	app, key := Limit{Name: "app", Calls: 9, Window: sec}, Limit{Name: "key", PerKey: `query("k")`, Calls: 9, Window: sec}
	longer, other := app, key
	longer.Window, other.PerKey = 2*sec, `query("other")`
	for name, tt := range map[string]struct {
		limits []Limit
		want   string
	}{
		"no change":      {[]Limit{app, key}, "app, key a"},
		"another order":  {[]Limit{key, app}, "app, key a"},
		"another window": {[]Limit{longer, key}, "app, key a"},
		"other keys":     {[]Limit{app, other}, "app"},
		"one limit less": {[]Limit{key}, "key a"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, up(rules, app, key), func(t *testing.T, s *Scheduler, f *fake) {
				if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(sec), Reason: "maintenance"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * sec)
				f.serve = func(int, *http.Request) answer { return answer{after: ms, status: 429} }
				for _, target := range []string{"/app?k=b&other=b", "/key?k=a&other=b", "/?k=c&other=c"} {
					submit(t, s, Request{Target: target, Deadline: time.Now().Add(10 * sec)})
				}
				time.Sleep(10 * ms)
				before := upstreams(t, s)[0]
				u := up(rules[:len(tt.limits)], tt.limits...)
				u.URL, u.Transport = "http://api.test", f
				for range 2 {
					if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
						t.Fatal(err)
					}
				}
				st := upstreams(t, s)[0]
				if st.State != "paused" || st.Cause != "answer" || st.Reason == "" || st.Reason != before.Reason || st.Since != before.Since || st.PausedUntil != before.PausedUntil {
					t.Errorf("%+v, before %+v", st, before)
				}
				var got []string
				for _, p := range st.Pauses {
					if !slices.Contains(before.Pauses, p) {
						t.Errorf("%+v, before %+v", p, before.Pauses)
					}
					got = append(got, strings.TrimSpace(p.Limit+" "+p.Key))
				}
				if got := strings.Join(got, ", "); got != tt.want {
					t.Errorf("paused are %s, want %s", got, tt.want)
				}
				time.Sleep(time.Minute)
				if st := upstreams(t, s)[0]; st.State != "up" || len(st.Pauses) > 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestPauseWhileTripped: a pause of an upstream whose breaker is open has its reason in the
// status. A call is told of the one that lasts longer.
func TestPauseWhileTripped(t *testing.T) {
	bubble(t, Upstream{Breaker: retry.Trip{Unknown: 2, Of: 4}, Limits: perSecond(9)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500, after: ms} }
		for range 2 {
			wait(t, s, submit(t, s, Request{}).ID)
		}
		pause := func(limit string, d time.Duration) {
			t.Helper()
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: limit, Until: time.Now().Add(d), Reason: "maintenance"}); err != nil {
				t.Fatal(err)
			}
		}
		id := submit(t, s, Request{}).ID
		for _, tt := range []struct {
			limit  string        // that is paused
			pause  time.Duration // for so long
			listed int           // in the status
			want   string        // cause of the wait
		}{
			{"", 100 * ms, 1, "concurrency: breaker"},
			{"", time.Hour, 1, "concurrency: by an operator, since 2000-01-01T00:00:00.002Z: maintenance"},
			{"app", 2 * time.Hour, 2, "app: by an operator, since 2000-01-01T00:00:00.002Z: maintenance"},
		} {
			pause(tt.limit, tt.pause)
			until := time.Now().Add(tt.pause)
			st := upstreams(t, s)[0]
			if st.State != "tripped" || st.Cause != "failing" || len(st.Pauses) != tt.listed {
				t.Fatalf("%+v", st)
			}
			if p := st.Pauses[0]; p.Until != until || !strings.Contains(p.Pause, "by an operator, since 2000-01-01T00:00:00.002Z: maintenance") {
				t.Errorf("%+v", p)
			}
			why := s.mustGet(t, id).WaitingFor
			got := why.Limit + ": " + why.Pause
			if why.Breaker != "" {
				got += "breaker"
			}
			if got != tt.want || why.Breaker == "" && !why.Until.Equal(until) {
				t.Errorf("it waits for %s (%+v), want %s", got, why, tt.want)
			}
			_, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: time.Now().Add(200 * ms)})
			named := ` is paused until ` + stamp(until)
			if why.Breaker != "" {
				named = "the circuit breaker of upstream"
			}
			if reason(err) != Paused || !strings.Contains(err.Error(), named) {
				t.Errorf("refused: %v, want %s", err, named)
			}
		}
	})
}

// TestRefusedForTheLongerPause: of two pauses a refusal names the one that ends last, as its
// time to try again does.
func TestRefusedForTheLongerPause(t *testing.T) {
	for name, tt := range map[string]struct {
		whole, limit, wait time.Duration
		want               string
	}{
		"the limit":              {time.Minute, 2 * time.Minute, 30 * sec, `limit "app" is paused until 2000-01-01T00:02:00.000Z`},
		"the limit alone":        {time.Minute, 2 * time.Minute, 90 * sec, `limit "app" is paused until 2000-01-01T00:02:00.000Z`},
		"the upstream":           {2 * time.Minute, time.Minute, 30 * sec, `upstream "api" is paused until 2000-01-01T00:02:00.000Z`},
		"the upstream, as alike": {2 * time.Minute, 2 * time.Minute, 30 * sec, `upstream "api" is paused until 2000-01-01T00:02:00.000Z`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Upstream{Limits: perSecond(9)}, func(t *testing.T, s *Scheduler, f *fake) {
				for limit, d := range map[string]time.Duration{"": tt.whole, "app": tt.limit} {
					if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: limit, Until: f.start.Add(d), Reason: "pause of " + limit}); err != nil {
						t.Fatal(err)
					}
				}
				_, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: f.start.Add(tt.wait)})
				var e *Error
				if !errors.As(err, &e) || e.Reason != Paused || !strings.Contains(e.Detail, tt.want) || e.RetryAfter != 2*time.Minute-tt.wait {
					t.Errorf("%+v, want %s", err, tt.want)
				}
			})
		})
	}
}
