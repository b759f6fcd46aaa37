package scheduler

import (
	"bytes"
	"log/slog"
	"net/http"
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
					if err := s.Pause(t.Context(), "api", "", "", time.Now().Add(time.Hour), "maintenance"); err != nil {
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
