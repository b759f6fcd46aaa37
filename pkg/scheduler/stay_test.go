package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestStay: a caller that stays gets the answer of an attempt during which its ctx ends, and no
// attempt follows. Before and between attempts it returns at once.
func TestStay(t *testing.T) {
	limited := answer{after: 2 * sec, status: 429}
	for _, tt := range []struct {
		name    string
		answers []answer
		leaves  time.Duration
		err     error
		took    time.Duration
		state   State
		sent    int
	}{
		{"stays", []answer{{after: 2 * sec}}, time.Hour, nil, 2 * sec, Done, 1},
		{"stays for a repeat", []answer{limited, {after: 2 * sec}}, time.Hour, nil, 5 * sec, Done, 2},
		{"leaves during the attempt", []answer{{after: 2 * sec}}, sec, nil, 2 * sec, Done, 1},
		{"leaves during an attempt that is limited", []answer{limited, {}}, sec, context.Canceled, 2 * sec, Exhausted, 1},
		{"leaves between attempts", []answer{limited, {}}, 2*sec + 500*ms, context.Canceled, 2*sec + 500*ms, Cancelled, 1},
		{"leaves during the second attempt", []answer{limited, {after: 2 * sec}}, 4 * sec, nil, 5 * sec, Done, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, Upstream{Resend: true, Config: upstream.Config{Outcomes: []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}}}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer { return tt.answers[n-1] }
				ctx, leave := context.WithCancel(t.Context())
				defer time.AfterFunc(tt.leaves, leave).Stop()
				resp, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Stay: true})
				if resp != nil {
					resp.Body.Close()
				}
				if took := time.Since(f.start).Round(ms); took != tt.took || !errors.Is(err, tt.err) || (resp == nil) != (tt.err != nil) || c.State != tt.state {
					t.Errorf("%v after %v, the call is %s; want %v after %v, %s", err, took, c.State, tt.err, tt.took, tt.state)
				}
				time.Sleep(time.Minute)
				if len(f.at()) != tt.sent {
					t.Errorf("sent at %v, want %d times", f.at(), tt.sent)
				}
			})
		})
	}
}

// TestStayAtTheGrant: a ctx that ends with the grant of an attempt leaves it neither undone nor
// done twice.
func TestStayAtTheGrant(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{start: time.Now()}
			u := Upstream{}
			u.URL, u.Transport = "http://api.test", f
			ctx, cancel := context.WithCancel(t.Context())
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Observe: func(e Event) {
				if e.Kind == EventSending {
					cancel()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			resp, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Stay: true})
			if resp != nil {
				resp.Body.Close()
			}
			if err != nil && !errors.Is(err, context.Canceled) || c == nil {
				t.Errorf("%+v, %v", c, err)
			}
			s.Close() // waits for the attempt
			sameTimes(t, f.at(), 0)
			if got, err := s.journal.memory.Get(t.Context(), c.ID); err != nil || got.State != Done {
				t.Errorf("%+v, %v; want it done", got, err)
			}
		})
	}
}
