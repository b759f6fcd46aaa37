package scheduler

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestClientTimeout: no call is sent for a client that would be gone before the usual answer. One
// whose slot comes later is refused at once, with the reason.
func TestClientTimeout(t *testing.T) {
	shop := func(calls int, window time.Duration) Upstream {
		return Upstream{ClientTimeout: 14 * sec, Limits: []Limit{{Name: "app", Calls: calls, Window: window}}}
	}
	get := Request{Upstream: "api", Target: "/"}
	for _, tt := range []struct {
		name   string
		answer time.Duration // of each call
		window time.Duration // of one call
		want   string        // the result of the second call
	}{
		{"its answer reaches the client", sec, 13*sec - ms, "200 "},
		{"its answer comes too late", sec, 13*sec + ms, "past_deadline"},
		{"a slow upstream", 3 * sec, 11*sec - ms, "200 "},
		{"a slow upstream, too late", 3 * sec, 11*sec + ms, "past_deadline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, shop(1, tt.window), func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return answer{after: tt.answer} }
				doing(t.Context(), s, get)() // its permit comes back a window after its answer
				began := time.Now()
				_, _, err := s.Do(t.Context(), get)
				var e *Error
				switch got := errors.As(err, &e); {
				case got != (tt.want == "past_deadline"):
					t.Fatalf("%v, want %s", err, tt.want)
				case got && (time.Since(began) > 0 || !strings.Contains(err.Error(), "client_timeout of upstream \"api\", 14s") || len(f.at()) != 1):
					t.Errorf("%v after %v, %d requests; want the reason at once and no second request", err, time.Since(began), len(f.at()))
				}
			})
		})
	}
	t.Run("before the first answer half of it is left", func(t *testing.T) {
		bubble(t, Upstream{ClientTimeout: 14 * sec}, func(t *testing.T, s *Scheduler, f *fake) {
			paused := func(until time.Duration) error {
				if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(until)}); err != nil {
					t.Fatal(err)
				}
				_, _, err := s.Do(t.Context(), get)
				if _, err := s.Submit(t.Context(), get); err != nil {
					t.Errorf("a call without a client: %v", err)
				}
				return errors.Join(err, s.Resume(t.Context(), "api", "", ""))
			}
			if err := paused(7*sec + ms); reason(err) != Paused {
				t.Errorf("later than half: %v", err)
			}
		})
		bubble(t, Upstream{ClientTimeout: 14 * sec}, func(t *testing.T, s *Scheduler, f *fake) {
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(7*sec - ms)}); err != nil {
				t.Fatal(err)
			}
			if text, _ := doing(t.Context(), s, get)(); text != "200 " {
				t.Errorf("sooner than half: %s", text)
			}
		})
	})
	t.Run("an upstream that takes longer", func(t *testing.T) {
		u := Upstream{ClientTimeout: 4 * sec, Limits: []Limit{{Name: "app", Calls: 1, Window: 2*sec - 10*ms}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			slow := true
			f.serve = func(int, *http.Request) answer {
				if slow {
					return answer{after: 10 * sec}
				}
				return answer{after: 10 * ms}
			}
			for range 3 {
				if text, _ := doing(t.Context(), s, get)(); text != "200 " {
					t.Fatalf("a slow upstream gets no call: %s", text)
				}
			}
			slow = false
			if text, _ := doing(t.Context(), s, get)(); text != "200 " {
				t.Errorf("an upstream that is fast again: %s", text)
			}
		})
	})
	t.Run("an unknown call is asked about until then", func(t *testing.T) {
		u := bank()
		u.MaxWait, u.ClientTimeout = 3*sec, 14*sec
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = answers(map[string][]answer{"": {{}}, "pay": {{status: 500, body: "busy"}}, "query": {{body: `{"state":"PENDING"}`}, {body: `{"state":"PAID"}`}}})
			doing(t.Context(), s, get)() // from now on the time of an answer is known
			if text, c := doing(t.Context(), s, pay(payment))(); text != "500 busy" || c.State != Done {
				t.Errorf("%s, %s", text, c.State)
			}
		})
	})
}
