package scheduler

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// jobs accepts orders with a 202, whose Location tells their end.
func jobs() Upstream {
	u := Upstream{MaxWait: 4 * time.Minute, Numbers: map[string]string{"order": `query("no")`}}
	u.Resolve = []Resolve{{
		When: `status == 202 and answer_header("Location") != ""`, Target: "location", Queries: 5,
		Header:   map[string]string{"X-Job": `body("job") ?? "none"`},
		Outcomes: []upstream.Rule{{When: `body("state") == "made"`, Is: upstream.Done}, {When: `body("state") == "refused"`, Is: upstream.Failed}},
	}}
	return u
}

// accepts answers an order with a Location and a Retry-After, which may be empty, and queries in
// turn.
func accepts(location, retryAfter string, queries ...answer) func(int, *http.Request) answer {
	return func(n int, r *http.Request) answer {
		if r.Method == http.MethodPost {
			a := answer{status: 202, header: http.Header{}, body: `{"job":"j9"}`}
			for name, value := range map[string]string{"Location": location, "Retry-After": retryAfter} {
				if value != "" {
					a.header.Set(name, value)
				}
			}
			return a
		}
		if r.URL.Path != "/jobs/9" || r.Header.Get("X-Job") != "j9" {
			return answer{status: 404}
		}
		return queries[min(n-2, len(queries)-1)]
	}
}

// TestAcceptedWithLocation: the query about a 202 goes to its Location, not before the Retry-After of
// the last answer, and never to another host.
func TestAcceptedWithLocation(t *testing.T) {
	running, made := answer{body: `{"state":"running"}`}, answer{body: `{"state":"made"}`}
	patient := answer{body: `{"state":"running"}`, header: http.Header{"Retry-After": {"120"}}}
	for _, tt := range []struct {
		name, location, retryAfter string
		queries                    []answer
		change                     func(*Upstream)
		state                      State
		at                         []time.Duration
	}{
		{name: "the usual waits", location: "/jobs/9", queries: []answer{running, made}, state: Done, at: []time.Duration{0, 10 * sec, 40 * sec}},
		{name: "waits that the answers ask for", location: "/jobs/9", retryAfter: "60", queries: []answer{patient, made}, state: Done, at: []time.Duration{0, 60 * sec, 180 * sec}},
		{name: "shorter ones", location: "/jobs/9", retryAfter: "1", queries: []answer{made}, state: Done, at: []time.Duration{0, 10 * sec}},
		{name: "above max_pause", location: "/jobs/9", retryAfter: "86400", change: func(u *Upstream) { u.MaxPause = time.Hour }, queries: []answer{made}, state: Done, at: []time.Duration{0, time.Hour}},
		{name: "the upstream's own URL", location: "http://api.test/jobs/9", queries: []answer{{body: `{"state":"refused"}`}}, state: Failed, at: []time.Duration{0, 10 * sec}},
		{name: "relative", location: "jobs/9", queries: []answer{made}, state: Done, at: []time.Duration{0, 10 * sec}},
		{name: "no Location: no resolve fits", state: Done, at: []time.Duration{0}},
		{name: "another host", location: "http://evil.test/jobs/9", state: Unknown, at: []time.Duration{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := jobs()
			if tt.change != nil {
				tt.change(&u)
			}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = accepts(tt.location, tt.retryAfter, tt.queries...)
				id := submit(t, s, Request{Method: "POST", Target: "/orders?no=1"}).ID
				wait(t, s, id)
				time.Sleep(2 * time.Hour)
				if c := s.mustGet(t, id); c.State != tt.state {
					t.Errorf("%s, want %s", c.State, tt.state)
				}
				sameTimes(t, f.at(), tt.at...)
				if tt.state == Unknown {
					_, err := s.Ask(t.Context(), id, "ann")
					if err == nil || !strings.Contains(err.Error(), "cannot be made: location cannot be computed for this request: the Location of the answer to it leads to another host") || strings.Contains(err.Error(), "evil") {
						t.Errorf("asked by a person: %v", err)
					}
				}
			})
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = accepts(tt.location, tt.retryAfter, tt.queries...)
				resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/orders?no=1"})
				if err != nil || resp.StatusCode != 202 {
					t.Fatalf("%v, %v", resp, err)
				}
				resp.Body.Close()
				state, at := tt.state, tt.at
				if at[len(at)-1] > u.MaxWait { // a query that comes too late for the caller is not made
					state, at = Unknown, at[:1]
				}
				if c.State != state {
					t.Errorf("for a caller that waits %s, want %s", c.State, state)
				}
				sameTimes(t, f.at(), at...)
			})
		})
	}
}

// TestQueriesWaitAsAsked: the Retry-After of any unknown answer delays the first query. A
// notification, or a person, asks at once.
func TestQueriesWaitAsAsked(t *testing.T) {
	u := jobs()
	u.Resolve[0].When, u.Resolve[0].Target, u.Resolve[0].Header = "", `"/jobs/" + query("no")`, nil
	busy := func(_ int, r *http.Request) answer {
		if r.Method == http.MethodPost {
			return answer{status: 503, header: http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:10:00 GMT"}}}
		}
		return answer{body: `{"state":"made"}`}
	}
	for name, tt := range map[string]struct {
		early func(t *testing.T, s *Scheduler, id string)
		want  time.Duration
	}{
		"by itself":      {func(*testing.T, *Scheduler, string) {}, 10 * time.Minute},
		"a notification": {func(t *testing.T, s *Scheduler, _ string) { s.Notified("api", notices("order", "9")) }, time.Minute},
		"a person": {func(t *testing.T, s *Scheduler, id string) {
			if _, err := s.Ask(t.Context(), id, "ann"); err != nil {
				t.Error(err)
			}
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = busy
				id := submit(t, s, Request{Method: "POST", Target: "/orders?no=9"}).ID
				wait(t, s, id)
				synctest.Wait()
				if c := s.mustGet(t, id); c.Pending == nil || c.Pending.NextQuery.Sub(f.start) != 10*time.Minute {
					t.Errorf("pending %+v, want the next query after 10m", c.Pending)
				}
				time.Sleep(time.Minute)
				tt.early(t, s, id)
				time.Sleep(time.Hour)
				if c := s.mustGet(t, id); c.State != Done {
					t.Errorf("%s", c.State)
				}
				sameTimes(t, f.at(), 0, tt.want)
			})
		})
	}
}
